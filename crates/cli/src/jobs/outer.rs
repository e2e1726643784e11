//! A `pleat run` inside a job of another: it has a share of that one's budget, and is not managed by it.
//!
//! Its supervisor starts as a process of the outer job, with that one's agent. What it keeps for others must not be
//! taken away from it by a supervisor that does not know what it is for, so it executes itself once more without the agent. The
//! processes of the inner job speak to the inner supervisor only; to the outer one all of them are memory that others manage.

use super::Found;
use crate::pager::INSIDE_VARIABLE;
use pleat_sys::procfs;
use pleat_sys::signals::exec_with_own_mask;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// How much of the outer budget an inner job may have. The rest is for what else runs there, and for both supervisors.
const SHARE_PERCENT: u64 = 90;
/// What is told to programs is this part of the budget, one in so many (`supervisor/mappings.rs`).
const ASK_FROM_PART: u64 = 16;
const PARENTS_MAX: usize = 1000;

/// The job around this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Its supervisor, where that is known: it is another user's otherwise.
    pub pid: Option<i32>,
    /// Its budget.
    pub budget_bytes: u64,
}

impl Outer {
    /// The job around this process; `None` where there is none.
    pub fn find() -> Option<Outer> {
        let socket = env::var_os(INSIDE_VARIABLE).filter(|name| !name.is_empty())?;
        let found = Found::all();
        let around = above()
            .into_iter()
            .find_map(|pid| found.jobs.iter().find(|job| job.status.pid == pid));
        match around {
            Some(job) => Some(Outer {
                pid: Some(job.status.pid),
                budget_bytes: job.status.budget_bytes,
            }),
            None => by_environment(&socket),
        }
    }

    /// How much of an outer budget an inner job may have.
    pub fn share_of(budget_bytes: u64) -> u64 {
        budget_bytes / 100 * SHARE_PERCENT
    }
}

/// The outer supervisor cannot be asked: what it told its programs when they started.
fn by_environment(socket: &OsStr) -> Option<Outer> {
    // A process may outlive its job.
    let sockets = std::fs::read("/proc/net/unix").ok()?;
    let name = [b"@", socket.as_bytes()].concat();
    if !sockets
        .split(|byte| *byte == b'\n')
        .any(|line| line.ends_with(&name))
    {
        return None;
    }
    let told = env::var(pleat_wire::ASK_FROM_VARIABLE).ok()?;
    Some(Outer {
        pid: None,
        budget_bytes: budget_told(&told)?,
    })
}

/// The outer budget, by what programs are told: bytes come first, other numbers behind a comma.
fn budget_told(text: &str) -> Option<u64> {
    let ask_from: u64 = text.split(',').next()?.parse().ok()?;
    ask_from.checked_mul(ASK_FROM_PART)
}

/// The processes above this one.
fn above() -> Vec<i32> {
    let mut all = Vec::new();
    let mut at = std::process::id() as i32;
    while let Ok(status) = procfs::status(at) {
        at = status.ppid;
        if at <= 1 || all.len() >= PARENTS_MAX {
            break;
        }
        all.push(at);
    }
    all
}

/// A supervisor in a job executes itself again without the agent of that job. Returns where there is no such job.
pub fn step_out() {
    let socket = env::var_os(pleat_wire::SOCKET_VARIABLE).filter(|name| !name.is_empty());
    let (Some(socket), Ok(own)) = (socket, env::current_exe()) else {
        return;
    };
    let mut words = env::args_os();
    let mut command = Command::new(own);
    command
        .arg0(words.next().unwrap_or_default())
        .args(words)
        .env(pleat_wire::SOCKET_VARIABLE, "")
        .env(INSIDE_VARIABLE, socket);
    match without_agent(env::var_os("LD_PRELOAD").unwrap_or_default()) {
        rest if rest.is_empty() => command.env_remove("LD_PRELOAD"),
        rest => command.env("LD_PRELOAD", rest),
    };
    exec_with_own_mask(&mut command);
    // Where it fails this goes on as it is: managed by the outer supervisor, and slower for it.
    let _ = command.exec();
}

/// The list of LD_PRELOAD without agents.
fn without_agent(list: OsString) -> OsString {
    let words = list.as_bytes().split(|byte| b": ".contains(byte));
    let rest = words.filter(|word| {
        let name = Path::new(OsStr::from_bytes(word)).file_name();
        !word.is_empty() && name != Some(OsStr::new("libpleat_agent.so"))
    });
    OsStr::from_bytes(&rest.collect::<Vec<_>>().join(&b':')).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_budget_is_told_before_other_numbers() {
        assert_eq!(budget_told("6553600,4711,0,2"), Some(100 << 20));
        assert_eq!(budget_told("6553600"), Some(100 << 20));
        assert_eq!(budget_told("many,1"), None);
    }

    #[test]
    fn an_inner_supervisor_keeps_what_else_is_preloaded() {
        let rest = |list: &str| without_agent(list.into());
        assert_eq!(rest("/x/libpleat_agent.so"), "");
        assert_eq!(
            rest("/x/libpleat_agent.so:/y/a.so /z/b.so:"),
            "/y/a.so:/z/b.so"
        );
        assert_eq!(rest(""), "");
    }

    #[test]
    fn a_share_is_less_than_the_whole() {
        assert_eq!(Outer::share_of(1000 << 20), 943718400);
    }
}
