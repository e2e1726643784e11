//! `pleat run` on a swap file that fails on purpose. Only for the tests of this crate; not installed.
//!
//! ```text
//! faulty-run FAULT AFTER TIMES --memory BYTES [--plain] [--threads] SWAPDIR AGENT -- PROGRAM [ARG]...
//! ```
//!
//! Of the transfers that FAULT can hit the first AFTER go well, and the TIMES after them are hit, all
//! of them if TIMES is `always`. Ends with the status that pleat would end with, says on stderr what
//! pleat would say, and as its last line how many transfers were hit: `hits: N`.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use pleat_backing::{DirectFile, Fault, Faulty, Rings};
use pleat_codec::Choice;
use pleat_engine::preset;
use pleat_pager::{Ending, Job, OwnCgroup, Place, Protection, RunError, Subject, Swap};

const FAULTS: [(&str, Fault); 10] = [
    ("no-space", Fault::NoSpace),
    ("read-error", Fault::ReadError),
    ("write-error", Fault::WriteError),
    ("truncated", Fault::Truncated),
    ("stuck", Fault::Stuck),
    ("stuck-read", Fault::StuckRead),
    ("short-write", Fault::ShortWrite),
    ("bit-flip", Fault::BitFlip),
    ("swapped", Fault::Swapped),
    ("replayed", Fault::Replayed),
];

/// As pleat ends when it cannot start, or had to stop the job.
const FAILED: u8 = 125;

/// The command line.
struct Args {
    fault: Fault,
    after: u64,
    times: u64,
    budget_bytes: u64,
    protection: Protection,
    rings: Rings,
    swap_dir: PathBuf,
    agent: PathBuf,
    program: Vec<OsString>,
}

fn main() -> ExitCode {
    let args = match Args::parse(env::args_os().skip(1)) {
        Ok(args) => args,
        Err(what) => {
            eprintln!("faulty-run: {what}");
            return ExitCode::from(2);
        }
    };
    let file = match DirectFile::create(&args.swap_dir, args.rings) {
        Ok(file) => Arc::new(file),
        Err(error) => {
            eprintln!("faulty-run: {error}");
            return ExitCode::from(2);
        }
    };
    let faulty = Arc::new(Faulty::new(file, args.fault, args.after, args.times));
    let code = supervise(&args, faulty.clone());
    eprintln!("hits: {}", faulty.hits());
    ExitCode::from(code)
}

/// Runs the job to its end and says what pleat would say.
fn supervise(args: &Args, faulty: Arc<Faulty>) -> u8 {
    let result = job(args, faulty).and_then(|job| pleat_pager::run(&job));
    match result.map(|outcome| outcome.ending) {
        Ok(Ending::Exited(code)) => code as u8,
        Ok(Ending::Over | Ending::Left) => 0,
        Ok(Ending::Signalled(signal)) => 128u8.wrapping_add(signal as u8),
        Ok(Ending::Stopped { message }) => {
            eprintln!("pleat: {message}");
            FAILED
        }
        Err(error) => {
            eprintln!("pleat: {error}");
            FAILED
        }
    }
}

/// What `pleat run` would run with the default preset.
fn job(args: &Args, faulty: Arc<Faulty>) -> Result<Job, RunError> {
    let preset = preset("pleat").map_err(RunError::Other)?;
    let codec = Choice::parse(&preset.codec).map_err(|error| RunError::Other(error.to_string()))?;
    Ok(Job {
        subject: Subject::Program(args.program.clone()),
        budget_bytes: args.budget_bytes,
        swap: Some(Swap {
            place: Place::Given(faulty),
            max_bytes: None,
            protection: args.protection,
        }),
        codec: Arc::new(codec),
        recompress: false,
        preset,
        checks: false,
        shared_memory: false,
        load_control: true,
        kill_on_exit: false,
        own_cgroup: OwnCgroup::Auto,
        file_maps: true,
        record: None,
        profile: false,
        agent: args.agent.clone(),
        helper: None,
        environment: Vec::new(),
        beside: None,
        trouble: None,
        live: None,
        quiet: false,
        known: None,
    })
}

impl Args {
    fn parse(words: impl Iterator<Item = OsString>) -> Result<Args, String> {
        let mut words = words.peekable();
        let mut word = |what: &str| words.next().ok_or(format!("{what} is missing"));
        let fault = word("FAULT")?;
        let fault = FAULTS.iter().find(|(name, _)| fault == *name);
        let (_, fault) = fault.ok_or("no such fault")?;
        let after = number(&word("AFTER")?)?;
        let times = number(&word("TIMES")?)?;
        if word("--memory")? != "--memory" {
            return Err("--memory is missing".into());
        }
        let budget_bytes = number(&word("BYTES")?)?;
        let mut next = word("SWAPDIR")?;
        let (mut protection, mut rings) = (Protection::Encrypted, Rings::WherePossible);
        while next.to_string_lossy().starts_with("--") {
            match next.to_str() {
                Some("--plain") => protection = Protection::Checked,
                Some("--threads") => rings = Rings::Never,
                _ => return Err(format!("{} is no flag", next.display())),
            }
            next = word("SWAPDIR")?;
        }
        let agent = word("AGENT")?.into();
        if word("--")? != "--" {
            return Err("-- is missing".into());
        }
        let program = vec![word("PROGRAM")?];
        Ok(Args {
            fault: *fault,
            after,
            times,
            budget_bytes,
            protection,
            rings,
            swap_dir: next.into(),
            agent,
            program: program.into_iter().chain(words).collect(),
        })
    }
}

/// A number; `always` is the largest.
fn number(word: &OsString) -> Result<u64, String> {
    match word.to_str() {
        Some("always") => Ok(u64::MAX),
        word => word
            .and_then(|word| word.parse().ok())
            .ok_or("a number, or 'always', is wanted".into()),
    }
}
