//! References a second of every generator, and of writing and reading the file format, on one core:
//! `cargo run --release -p pleat-trace --example trace_speed [SPEC...]`.

use pleat_trace::{copy, generator, generators, ProcessNo, Reader, Source};
use std::hint::black_box;
use std::time::{Duration, Instant};

const REFERENCES_MAX: u64 = 20_000_000;

/// Takes references from all processes in turns; returns how many and how long it took.
fn drain(source: &mut dyn Source) -> (u64, Duration) {
    let start = Instant::now();
    let mut count = 0;
    let mut running: Vec<ProcessNo> = (0..source.processes()).map(ProcessNo).collect();
    while !running.is_empty() && count < REFERENCES_MAX {
        running.retain(|process| {
            (0..1000).all(|_| {
                let reference = black_box(source.next(*process));
                count += u64::from(reference.is_some());
                reference.is_some()
            })
        });
    }
    (count, start.elapsed())
}

fn show(what: &str, count: u64, time: Duration) {
    let rate = count as f64 / time.as_secs_f64() / 1e6;
    println!("{what:<40} {count:>10} references {rate:>8.1} million/s");
}

fn main() {
    let mut specs: Vec<String> = std::env::args().skip(1).collect();
    if specs.is_empty() {
        let names = generators().into_iter().map(|help| help.name.to_owned());
        specs = names.collect();
        specs.push("thrasher:passes=300".into());
        specs.push("scan:passes=80".into());
    }
    for spec in specs {
        let (count, time) = drain(&mut *generator(&spec).expect("a specification"));
        show(&spec, count, time);
        if count == REFERENCES_MAX {
            continue; // Too many to keep.
        }
        let start = Instant::now();
        let file = copy(&mut *generator(&spec).expect("as before"), Vec::new());
        let file = file.expect("memory takes everything");
        show("  generated and written", count, start.elapsed());
        let bytes = file.len() as f64 / count as f64;
        let start = Instant::now();
        let mut reader = Reader::new(file).expect("a trace");
        show(
            &format!("  opened, {bytes:.2} bytes each"),
            count,
            start.elapsed(),
        );
        let (count, time) = drain(&mut reader);
        show("  read", count, time);
    }
}
