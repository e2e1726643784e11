//! What the layouts cost: bytes held per byte of items, metadata included, and ns per operation.
//!
//! `cargo run --release -p pleat-store --example churn -- [LAYOUT]... [MIB]... [SIZES_FILE]...`.
//! A file has the compressed size of a page in each line, in bytes, as `pleat bench codec --sizes`
//! prints them; without one, the sizes are
//! those of a mix of programs. `zsmalloc` is a model of the kernel's allocator, which only counts.
//!
//! Phases: *filled* has MIB of items. *fifo* keeps the frames held at what they are, growth denied,
//! and removes the oldest items until the next one fits. *random* replaces random items by new
//! ones, growth allowed; *meta* is the metadata then, per item. *compact* is what is held after the
//! layout has moved what it can (zsmalloc: `zs_compact`), and *shrunk* after a random nine tenths
//! have been removed.

mod phases;
mod sizes;
mod zsmalloc;

use pleat_store::{layout_by_name, layout_names, Layout};

use crate::phases::churn;
use crate::sizes::Sizes;
use crate::zsmalloc::Zsmalloc;

/// What the command line asks for.
#[derive(Default)]
struct Plan {
    layouts: Vec<String>,
    mib: Vec<u64>,
    pools: Vec<Sizes>,
}

fn main() {
    let plan = plan(std::env::args().skip(1)).unwrap_or_else(|problem| {
        eprintln!("churn: {problem}");
        std::process::exit(2);
    });
    for sizes in &plan.pools {
        for &mib in &plan.mib {
            print_table(sizes, mib, &plan.layouts);
        }
    }
}

/// Numbers are MiB, names of layouts are layouts, all else is files.
fn plan(arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let known: Vec<String> = layout_names()
        .iter()
        .chain(&["zsmalloc"])
        .map(ToString::to_string)
        .collect();
    let mut plan = Plan::default();
    for argument in arguments {
        if let Ok(mib) = argument.parse() {
            plan.mib.push(mib);
        } else if known.contains(&argument) {
            plan.layouts.push(argument);
        } else {
            plan.pools.push(Sizes::from_file(&argument)?);
        }
    }
    if plan.layouts.is_empty() {
        plan.layouts = known;
    }
    if plan.mib.is_empty() {
        plan.mib = vec![8, 64, 512];
    }
    if plan.pools.is_empty() {
        plan.pools.push(Sizes::of_a_mix());
    }
    Ok(plan)
}

fn print_table(sizes: &Sizes, mib: u64, layouts: &[String]) {
    println!(
        "{}, {mib} MiB of items of {:.0} bytes on average",
        sizes.name,
        sizes.mean()
    );
    println!(
        "  {:<8} | {:>6} | {:>6} {:>6} | {:>6} {:>6} {:>5} | {:>7} | {:>6}",
        "layout", "filled", "fifo", "ns/op", "random", "ns/op", "meta", "compact", "shrunk"
    );
    for name in layouts {
        let store: Option<Box<dyn Layout>> = match name.as_str() {
            "zsmalloc" => Some(Box::new(Zsmalloc::new())),
            _ => layout_by_name(name, mib << 21),
        };
        match store {
            Some(mut store) => {
                let found = churn(store.as_mut(), mib << 20, sizes);
                println!("  {name:<8} | {found}");
            }
            None => println!("  {name:<8} | SKIPPED: no address space"),
        }
    }
    println!();
}
