//! The program of a job: the command that starts it.

use crate::companion::Companion;
use crate::job::{Job, RunError};
use crate::supervisor::mappings::ask_from;
use pleat_sys::procfs;
use pleat_wire::elf;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of AddressSanitizer's runtime. As a library it refuses to work behind another in the order of loading, unless
/// told that this is meant.
const SANITIZER_VARIABLE: &str = "ASAN_OPTIONS";
const SANITIZER_OPTION: &str = "verify_asan_link_order=0";

/// Set for a supervisor that runs as a process of another job: the socket of that one.
pub const INSIDE_VARIABLE: &str = "PLEAT_INSIDE";

/// The user's options, whose own word counts more, with that one.
fn with_option(given: Option<OsString>) -> OsString {
    let mut options = OsString::from(SANITIZER_OPTION);
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        options.push(":");
        options.push(given);
    }
    options
}

/// The command by which the program of a job is started, with the environment by which its agent is loaded and finds the
/// supervisor. `is_eager`: no agent can be started in a process later, so each has its own from the start. `takes_offers`:
/// see [`takes_offers`].
///
/// # Errors
/// The working directory is not to be seen in what is mounted over it.
pub(crate) fn program_command(
    (job, words): (&Job, &[OsString]),
    socket: &str,
    companions: &[Box<dyn Companion>],
    (is_eager, takes_offers): (bool, bool),
) -> Result<Command, RunError> {
    let mut preload = job.agent.clone().into_os_string();
    if let Some(before) = env::var_os("LD_PRELOAD").filter(|value| !value.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let mut command = Command::new(&words[0]);
    // Its loader would complain of the agent. (`agent/src/exec.rs` does the same for what a program executes.)
    if !is_for_other_machine(&words[0]) {
        command.env("LD_PRELOAD", preload);
    }
    command
        .args(&words[1..])
        .env(
            SANITIZER_VARIABLE,
            with_option(env::var_os(SANITIZER_VARIABLE)),
        )
        .env(pleat_wire::SOCKET_VARIABLE, socket)
        .env_remove(pleat_wire::DEVICES_VARIABLE)
        .env_remove(INSIDE_VARIABLE)
        .env(
            pleat_wire::ASK_FROM_VARIABLE,
            settings(job, is_eager, takes_offers),
        );
    if !companions.is_empty() {
        let devices = companions.iter().map(|one| one.device().to_string());
        let devices: Vec<String> = devices.collect();
        command.env(pleat_wire::DEVICES_VARIABLE, devices.join(","));
    }
    for (name, value) in &job.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(dir) = hidden_dir(companions)? {
        command.current_dir(dir);
    }
    Ok(command)
}

/// Whether conversations that agents offer are taken: what it takes is what it takes to trace them, and a kernel that can.
pub fn takes_offers(is_eager: bool) -> bool {
    !is_eager && pleat_sys::inject::offer::are_taken()
}

/// What every process is to know ([`pleat_wire::ASK_FROM_VARIABLE`]).
fn settings(job: &Job, is_eager: bool, takes_offers: bool) -> String {
    let (bytes, own) = (ask_from(job.budget_bytes), std::process::id());
    let filters = procfs::seccomp_filters(own as i32);
    let [is_eager, takes_offers] = [is_eager, takes_offers].map(u8::from);
    format!("{bytes},{own},{is_eager},{filters},{takes_offers}")
}

/// The working directory, where something is mounted over it: the program is to be in what is seen there.
fn hidden_dir(companions: &[Box<dyn Companion>]) -> Result<Option<PathBuf>, RunError> {
    let Ok(dir) = env::current_dir() else {
        return Ok(None);
    };
    let mut places = companions.iter().map(|companion| companion.place());
    let Some(place) = places.find(|place| dir.starts_with(place)) else {
        return Ok(None);
    };
    match dir.is_dir() {
        true => Ok(Some(dir)),
        false => Err(RunError::Mistake(format!(
            "the working directory {} is not in what is mounted on {}; start from another directory",
            dir.display(),
            place.display()
        ))),
    }
}

/// Whether a program is in the format of another kind of machine than the agent, or of the same with shorter addresses.
/// What cannot be told is none: the kernel will say what is wrong.
fn is_for_other_machine(name: &OsStr) -> bool {
    let kind = |path: &Path| {
        let mut head = [0; elf::HEAD];
        // Anything else may do something when it is opened.
        let file = File::open(path.is_file().then_some(path)?).ok()?;
        file.read_exact_at(&mut head, 0).ok()?;
        elf::kind(&head)
    };
    let program = found(name).and_then(|path| kind(&path));
    program.is_some_and(|program| {
        let own = kind(Path::new("/proc/self/exe"));
        own.is_some_and(|own| own != program)
    })
}

/// The file that is executed by this name.
fn found(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let path = env::var_os("PATH")?;
    let mut candidates = env::split_paths(&path).map(|directory| directory.join(name));
    candidates.find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_by_the_head_of_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut head = [0; 64];
        File::open("/proc/self/exe")
            .unwrap()
            .read_exact_at(&mut head, 0)
            .unwrap();
        let is_for_other = |bytes: &[u8]| {
            let path = dir.path().join("program");
            std::fs::write(&path, bytes).unwrap();
            is_for_other_machine(path.as_os_str())
        };
        assert!(!is_for_other(&head));
        assert!(!is_for_other(b"#!/bin/sh"));
        let mut shorter = head;
        shorter[4] = 1;
        assert!(is_for_other(&shorter));
        let mut strange = head;
        strange[18] ^= 0xff;
        assert!(is_for_other(&strange));
        assert!(!is_for_other_machine(OsStr::new("sh")));
        assert!(!is_for_other_machine(OsStr::new("no-such-program-here")));
    }
}
