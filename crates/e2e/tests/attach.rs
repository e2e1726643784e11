//! Processes that run already are kept within a budget, and left again with all their memory, as they were.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use pleat_e2e::{eventually, skip, Cgroup, CpuGroup, Machine, Megabytes, Running};

const MIB: u64 = 1 << 20;
/// What `waiters` has, and less than that.
const SIZE: &str = "60";
const BUDGET: &str = "50M";
const NOBODY: &str = "65534";
/// Each takes about a second.
const CYCLES: usize = 12;

/// A program without pleat, which checks its memory until it is let go.
struct Bare {
    running: Running,
    end: PathBuf,
}

impl Bare {
    /// `forks`: so many children a second check what they inherit.
    fn start(machine: &Machine, forks: &str) -> Option<Bare> {
        let program = machine.waiters()?;
        Some(Bare::of(machine, &program.display().to_string(), forks))
    }

    fn of(machine: &Machine, program: &str, forks: &str) -> Bare {
        let count = fs::read_dir(machine.scratch()).map_or(0, Iterator::count);
        let end = machine.scratch().join(format!("end-{count}"));
        let job = machine.job(program).args([SIZE, forks]).arg(&end);
        let running = job.timeout(150).spawn();
        running.wait_for_output("filled");
        Bare { running, end }
    }

    /// In a memory cgroup of its own, inside this one.
    fn in_group(machine: &Machine, group: &Cgroup) -> Option<Bare> {
        let program = machine.waiters()?;
        let outer = group.procs().parent()?.to_owned();
        let inner = outer.join("inner");
        // With cgroup v1 there is no such file, and no need.
        let _ = fs::write(outer.join("cgroup.subtree_control"), "+memory");
        fs::create_dir(&inner).expect("the group is ours");
        let end = machine.scratch().join("end-in-group");
        let text = format!(
            "echo 0 > {} && exec {} {SIZE} 0 {}",
            inner.join("cgroup.procs").display(),
            program.display(),
            end.display()
        );
        let running = machine.job("sh").args(["-c", &text]).timeout(120).spawn();
        running.wait_for_output("filled");
        Some(Bare { running, end })
    }

    fn pid(&self) -> i32 {
        self.running.pid()
    }

    fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    }

    fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.pid())).map_or(0, Iterator::count)
    }

    /// What its memory is like, but for where it is.
    fn mappings(&self) -> usize {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap_or_default();
        maps.lines().count()
    }

    fn end(self) {
        fs::write(&self.end, "").expect("scratch is writable");
        let outcome = self.running.wait();
        outcome.expect_success();
        assert_eq!(outcome.stdout_text(), "filled\nok\n");
        assert_eq!(outcome.stderr, "", "{}", outcome.describe());
    }
}

fn attach(machine: &Machine, pid: i32) -> Running {
    attach_with(machine, pid, &["--memory", BUDGET])
}

fn attach_with(machine: &Machine, pid: i32, flags: &[&str]) -> Running {
    let job = machine.job(machine.pleat());
    let pid = pid.to_string();
    let swap = machine.scratch().display().to_string();
    job.args(["attach", "--swap-dir", &swap])
        .args(flags)
        .arg(&pid)
        .timeout(120)
        .spawn()
}

/// Waits until pages of the process are away.
fn expect_away(machine: &Machine, supervisor: &Running) {
    let is_away = || {
        let job = machine.listed(supervisor.pid());
        job.is_some_and(|job| job["pages_away"].as_u64() > Some(1000))
    };
    assert!(
        eventually(Duration::from_secs(60), is_away),
        "{:?}: {}",
        machine.listed(supervisor.pid()),
        supervisor.stderr()
    );
}

fn detach(machine: &Machine, pid: i32) {
    let output = machine.ask(["detach", &pid.to_string()]);
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && out.ends_with(": left\n"),
        "{out}{err}"
    );
}

/// Attaches to a process, waits until pages of it are away, and leaves it.
fn attach_and_leave(machine: &Machine, bare: &Bare) {
    let supervisor = attach(machine, bare.pid());
    expect_away(machine, &supervisor);
    detach(machine, bare.pid());
    supervisor.wait().expect_success();
}

/// Starts one, where the kernel tells of forks: without, nothing is attached to.
fn ready(machine: &Machine, forks: &str) -> Option<Bare> {
    let bare = Bare::start(machine, forks)?;
    let dry = machine.ask(["attach", "--memory", "1K", &bare.pid().to_string()]);
    let why = String::from_utf8_lossy(&dry.stderr).into_owned();
    assert!(why.contains("too small"), "{why}");
    Some(bare)
}

#[test]
fn a_program_that_runs_is_kept_within_a_budget_and_left_as_it_was() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(bare) = ready(&machine, "0") else {
        return;
    };
    let before = (bare.threads(), bare.mappings());
    assert!(bare.resident_bytes() > 60 * MIB);
    let supervisor = attach(&machine, bare.pid());
    expect_away(&machine, &supervisor);
    let is_within = || {
        let job = machine.listed(supervisor.pid());
        job.is_some_and(|job| job["settled"] == true && job["attached_pids"][0] == bare.pid())
    };
    assert!(eventually(Duration::from_secs(30), is_within));
    assert!(
        bare.resident_bytes() < 52 * MIB,
        "{}",
        bare.resident_bytes()
    );
    let set = machine.ask(["set", &bare.pid().to_string(), "--memory", "45M"]);
    assert!(set.status.success(), "{set:?}");
    detach(&machine, bare.pid());
    let outcome = supervisor.wait();
    outcome.expect_success();
    assert!(
        outcome.stderr.contains("detached"),
        "{}",
        outcome.describe()
    );
    // The program touches all its memory all the time.
    assert!(bare.resident_bytes() > 60 * MIB);
    assert_eq!((bare.threads(), bare.mappings()), before);
    bare.end();
}

#[test]
fn attached_to_and_left_again_and_again_while_it_forks() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(bare) = ready(&machine, "8") else {
        return;
    };
    let threads = bare.threads();
    for _ in 0..CYCLES {
        attach_and_leave(&machine, &bare);
        assert_eq!(bare.threads(), threads);
    }
    bare.end();
}

#[test]
fn static_programs_are_attached_to() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.compiled_with("cc", "waiters", &["-static", "-pthread"]) else {
        return;
    };
    let bare = Bare::of(&machine, &program.display().to_string(), "4");
    for _ in 0..2 {
        attach_and_leave(&machine, &bare);
    }
    bare.end();
}

#[test]
fn a_signal_leaves_and_the_end_of_the_processes_ends() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(bare) = ready(&machine, "0") else {
        return;
    };
    let supervisor = attach(&machine, bare.pid());
    expect_away(&machine, &supervisor);
    // A terminal that is closed changes nothing.
    supervisor.signal(1);
    std::thread::sleep(Duration::from_millis(300));
    assert!(machine.listed(supervisor.pid()).is_some());
    supervisor.signal(15);
    supervisor.wait().expect_success();
    let supervisor = attach(&machine, bare.pid());
    expect_away(&machine, &supervisor);
    bare.end();
    supervisor.wait().expect_success();
}

/// What comes back is charged to its group, in which the kernel would kill it.
#[test]
fn who_has_no_room_in_its_memory_cgroup_stays() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let group = match Cgroup::limited_to(200 * MIB) {
        Ok(group) => group,
        Err(why) => return skip(why),
    };
    let Some(bare) = Bare::in_group(&machine, &group) else {
        return;
    };
    let supervisor = attach(&machine, bare.pid());
    expect_away(&machine, &supervisor);
    group.tighten(2 * MIB).expect("more than is in use");
    let output = machine.ask(["detach", &bare.pid().to_string()]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("their memory cgroup"), "{text}");
    assert_eq!(group.oom_kills(), 0);
    // It goes on within its budget.
    bare.end();
    supervisor.wait().expect_success();
}

#[test]
fn the_limit_that_the_processes_are_under_is_what_a_budget_is_reckoned_from() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let group = match Cgroup::limited_to(100 * MIB) {
        Ok(group) => group,
        Err(why) => return skip(why),
    };
    let Some(bare) = Bare::in_group(&machine, &group) else {
        return;
    };
    let has_budget = |supervisor: &Running, bytes: u64| {
        eventually(Duration::from_secs(20), || {
            let job = machine.listed(supervisor.pid());
            job.is_some_and(|job| job["budget_bytes"].as_u64() == Some(bytes))
        })
    };
    let set = |memory: &str| machine.ask(["set", &bare.pid().to_string(), "--memory", memory]);
    let supervisor = attach_with(&machine, bare.pid(), &[]);
    assert!(has_budget(&supervisor, 90 * MIB), "{}", supervisor.stderr());
    let half = set("50%");
    assert!(half.status.success(), "{half:?}");
    assert!(has_budget(&supervisor, 50 * MIB));
    expect_away(&machine, &supervisor);
    let refused = set("120M");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("memory cgroup"), "{why}");
    detach(&machine, bare.pid());
    let outcome = supervisor.wait();
    outcome.expect_success();
    assert!(!outcome.stderr.contains("warning"), "{}", outcome.stderr);
    let supervisor = attach_with(&machine, bare.pid(), &["--memory", "120M"]);
    assert!(has_budget(&supervisor, 120 * MIB));
    bare.end();
    let outcome = supervisor.wait();
    outcome.expect_success();
    let warning = "--memory 120M is more than the 100M that the processes' memory cgroup allows";
    assert!(outcome.stderr.contains(warning), "{}", outcome.stderr);
    assert_eq!(group.oom_kills(), 0);
}

#[test]
fn a_killed_supervisor_takes_the_processes_with_it() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(bare) = ready(&machine, "0") else {
        return;
    };
    let supervisor = attach(&machine, bare.pid());
    expect_away(&machine, &supervisor);
    supervisor.signal(9);
    // It must read nothing else than its own memory.
    let outcome = bare.running.wait();
    assert_eq!(outcome.stderr, "", "{}", outcome.describe());
    assert_eq!(outcome.stdout_text(), "filled\n");
    assert!(!outcome.status.success());
    drop(supervisor);
}

#[test]
fn a_shell_attaches_to_itself() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.waiters() else {
        return;
    };
    let end = machine.scratch().join("end-of-shell");
    let text = format!(
        "{0} attach --memory {BUDGET} --no-swap $$ & {1} {SIZE} 4 {2}; code=$?; {0} detach $$; wait; exit $code",
        machine.pleat().display(),
        program.display(),
        end.display()
    );
    let shell = machine.job("sh").args(["-c", &text]).timeout(120).spawn();
    shell.wait_for_output("filled");
    std::thread::sleep(Duration::from_secs(3));
    fs::write(&end, "").expect("scratch is writable");
    let outcome = shell.wait();
    outcome.expect_success();
    let out = outcome.stdout_text();
    assert!(out.starts_with("filled\nok\n"), "{}", outcome.describe());
}

/// As in a container with a small limit of CPU time: whatever pleat waits for takes seconds.
/// A program that has 5 ms of CPU time in each second, with its threads and mappings of before, and who looks after it now. `None`: not here.
fn attached_to_throttled(machine: &Machine) -> Option<(Bare, CpuGroup, (usize, usize), Running)> {
    let bare = ready(machine, "0")?;
    let before = (bare.threads(), bare.mappings());
    let group = match CpuGroup::throttle(bare.pid(), 5000) {
        Ok(group) => group,
        Err(why) => {
            skip(why);
            return None;
        }
    };
    let supervisor = attach(machine, bare.pid());
    Some((bare, group, before, supervisor))
}

#[test]
fn a_program_that_hardly_gets_a_cpu_is_left_as_it_was() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some((bare, group, before, supervisor)) = attached_to_throttled(&machine) else {
        return;
    };
    expect_away(&machine, &supervisor);
    detach(&machine, bare.pid());
    let outcome = supervisor.wait();
    outcome.expect_success();
    assert!(
        !outcome.stderr.contains("unmanaged"),
        "{}",
        outcome.describe()
    );
    assert_eq!((bare.threads(), bare.mappings()), before);
    group.release();
    bare.end();
}

/// Where its agent is, is known only by what that says of itself.
#[test]
fn who_is_left_before_its_agent_has_spoken_keeps_nothing() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some((bare, group, before, supervisor)) = attached_to_throttled(&machine) else {
        return;
    };
    let has_agent = || bare.threads() > before.0;
    assert!(eventually(Duration::from_secs(60), has_agent));
    detach(&machine, bare.pid());
    supervisor.wait().expect_success();
    assert_eq!((bare.threads(), bare.mappings()), before);
    group.release();
    bare.end();
}

#[test]
fn what_cannot_be_attached_to_is_refused_in_one_line() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(bare) = ready(&machine, "0") else {
        return;
    };
    let refused = |pid: &str, why: &str| {
        let output = machine.ask(["attach", "--memory", BUDGET, pid]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(why) && text.lines().count() == 1, "{text}");
    };
    refused("99999999", "does not exist");
    refused("2", "no memory");
    let supervisor = attach(&machine, bare.pid());
    expect_away(&machine, &supervisor);
    refused(&bare.pid().to_string(), "already");
    let stays = machine.job("sleep").arg("30").budget(Megabytes(40)).spawn();
    let output = || machine.ask(["detach", &stays.pid().to_string()]);
    assert!(eventually(Duration::from_secs(5), || machine
        .listed(stays.pid())
        .is_some()));
    let text = String::from_utf8_lossy(&output().stderr).into_owned();
    assert!(text.contains("stays with the program"), "{text}");
    drop(stays);
    detach(&machine, bare.pid());
    supervisor.wait().expect_success();
    // Another user has no power over it.
    let other = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .arg("--inh-caps=-all")
        .arg(machine.pleat())
        .args(["attach", "--memory", BUDGET, &bare.pid().to_string()])
        .output();
    if let Ok(other) = other {
        assert!(!other.status.success());
    }
    bare.end();
}
