//! Jobs that root starts and that give up root, in every way in which that is done: they keep all that root's have,
//! forks included.

use pleat_e2e::{skip, Machine, Megabytes, Outcome};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

const BUDGET: Megabytes = Megabytes(44);
const SIZE: &str = "80";

/// The machine, and the program where everybody may execute it; `None`, visibly, where this is not root's.
fn root() -> Option<(Machine, PathBuf)> {
    let machine = Machine::ready()?;
    if fs::metadata("/proc/self").ok()?.uid() != 0 {
        skip("only root can give up root");
        return None;
    }
    let program = machine.shut_in()?;
    fs::set_permissions(machine.scratch(), Permissions::from_mode(0o755)).expect("it is ours");
    let copy = machine.scratch().join("shut_in");
    fs::copy(program, &copy).expect("there is room for a copy");
    Some((machine, copy))
}

/// Runs a shell command in which `$0` is the program.
fn run(machine: &Machine, program: &PathBuf, script: &str) -> Outcome {
    let job = machine.job("sh").args(["-c", script]).arg(program);
    let outcome = job.budget(BUDGET).timeout(60).run();
    outcome.expect_success().expect_folded();
    assert_eq!(outcome.stdout_text(), "ok 0\n", "{}", outcome.describe());
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
    let managed = outcome.stats()["report"]["pager"]["managed_processes"].as_u64();
    assert!(managed >= Some(2), "{}", outcome.describe());
    outcome
}

fn assert_kept_after(tool: &str, script: &str) {
    let Some((machine, program)) = root() else {
        return;
    };
    if machine.installed(&[tool]) {
        run(&machine, &program, script);
    }
}

#[test]
fn what_su_starts_is_managed_and_forks() {
    let script = format!("su nobody -s /bin/sh -c \"$0 none {SIZE}\"");
    assert_kept_after("su", &script);
}

#[test]
fn what_runuser_starts_is_managed_and_forks() {
    let script = format!("runuser -u nobody -- \"$0\" none {SIZE}");
    assert_kept_after("runuser", &script);
}

#[test]
fn what_setpriv_starts_is_managed_and_forks() {
    let how = "--reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs";
    assert_kept_after("setpriv", &format!("setpriv {how} \"$0\" none {SIZE}"));
}

#[test]
fn a_process_that_calls_setuid_is_managed_and_forks() {
    assert_kept_after("sh", &format!("\"$0\" uid {SIZE}"));
}

#[test]
fn a_process_that_calls_seteuid_is_managed_and_forks() {
    assert_kept_after("sh", &format!("\"$0\" euid {SIZE}"));
}

#[test]
fn python_that_calls_setuid_in_the_middle_is_managed_and_forks() {
    let Some((machine, program)) = root() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let code = "import os\nd=[os.urandom(1024)*4 for i in range(12000)]\nos.setgid(65534); os.setuid(65534)\n\
                d+=[os.urandom(1024)*4 for i in range(6000)]\np=os.fork()\nif p==0: os._exit(0)\n\
                s=os.waitpid(p,0)[1]\nprint(\"ok\", s + sum(x[:1024]*4 != x for x in d))";
    run(&machine, &program, &format!("python3 -c '{code}'"));
}

/// A program sees no device where it sees no /dev; the supervisor has it open.
#[test]
fn a_process_without_dev_and_without_root_is_managed_and_forks() {
    let how = "--reuid 65534 --regid 65534 --clear-groups";
    let script = format!(
        "exec unshare -m sh -c 'mount -t tmpfs none /dev && exec setpriv {how} \"$0\" none {SIZE}' \"$0\""
    );
    assert_kept_after("unshare", &script);
}
