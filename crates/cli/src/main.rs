//! `pleat`: any program in less memory than it needs.
//!
//! This crate only reads the command line, settles what it means on this machine, hands the job to
//! the pager and tells the user how it went. Follow a run through `args` (what was typed),
//! `config` (what is set elsewhere),
//! `settings` (what it means), `run` (what happens) and `exit` (what the shell sees). `jobs` asks those that
//! run already, and `report` shows how one went. `doctor`,
//! `bench`, `trace`, `model` and `sim` run nothing: they look at the machine, at codecs, at references,
//! and at what to expect.
#![deny(unsafe_code)]

mod agent_path;
mod args;
mod bench;
mod budget;
mod config;
mod doctor;
mod exit;
mod generate;
mod helper_path;
mod hints;
mod jobs;
mod metrics;
mod model;
mod mount;
mod mounts;
mod output;
mod papers;
mod probe;
mod profile;
mod progress;
mod record_file;
mod report;
mod run;
mod settings;
mod setup;
mod sim;
mod size;
mod stat;
mod stats;
mod summary;
mod swap_dir;
mod top;
mod trace;
mod watching;

use args::{Args, Command};
use exit::Exit;
use pleat_pager as pager;

/// Reading the command line takes some 100 KiB of stack.
const STACK_MIN: u64 = 256 << 10;

fn main() -> std::process::ExitCode {
    let stack = pleat_sys::inherited::stack_limit();
    if stack < STACK_MIN {
        say(&format!(
            "the stack is limited to {} KiB; raise `ulimit -s` to {} or more",
            stack >> 10,
            STACK_MIN >> 10
        ));
        return Exit::Failed.into();
    }
    let exit = match config::parse() {
        Ok(Args {
            command: Command::Run(raw),
        }) => {
            jobs::step_out();
            run::run(raw)
        }
        Ok(Args {
            command: Command::Mount(raw),
        }) => {
            jobs::step_out();
            mount::mount(raw)
        }
        Ok(Args {
            command: Command::List(raw),
        }) => jobs::list(&raw),
        Ok(Args {
            command: Command::Set(raw),
        }) => jobs::set(&raw),
        Ok(Args {
            command: Command::Attach(raw),
        }) => {
            jobs::step_out();
            jobs::attach(&raw)
        }
        Ok(Args {
            command: Command::Detach(raw),
        }) => jobs::detach(&raw),
        Ok(Args {
            command: Command::Top(raw),
        }) => top::top(&raw),
        Ok(Args {
            command: Command::Stat(raw),
        }) => stat::stat(&raw),
        Ok(Args {
            command: Command::Metrics(raw),
        }) => metrics::metrics(&raw),
        Ok(Args {
            command: Command::Report(raw),
        }) => report::report(&raw),
        Ok(Args {
            command: Command::Doctor,
        }) => doctor::doctor(),
        Ok(Args {
            command: Command::Setup(raw),
        }) => setup::setup(&raw),
        Ok(Args {
            command: Command::Bench(what),
        }) => bench::bench(what),
        Ok(Args {
            command: Command::Model(raw),
        }) => model::model(&raw),
        Ok(Args {
            command: Command::Papers(raw),
        }) => papers::papers(&raw),
        Ok(Args {
            command: Command::Sim(raw),
        }) => sim::sim(&raw),
        Ok(Args {
            command: Command::Trace(what),
        }) => trace::trace(what),
        Ok(Args {
            command: Command::Completions(raw),
        }) => generate::completions(&raw),
        Ok(Args {
            command: Command::Generate(raw),
        }) => generate::generate(&raw),
        Ok(Args {
            command: Command::RunHooks,
        }) => watching::hooks::runner(),
        Err(exit) => exit,
    };
    exit.into()
}

/// Prints one line on standard error, as every message of pleat: `pleat: ...`.
fn say(message: &str) {
    use std::io::Write;
    // Nobody is left to tell when standard error is gone, and a broken pipe must not end the job.
    let _ = writeln!(std::io::stderr(), "pleat: {message}");
}

/// Says why there is no result, and which exit status that means.
fn fail(message: &str, exit: Exit) -> Exit {
    say(message);
    exit
}
