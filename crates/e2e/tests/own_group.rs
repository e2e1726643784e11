//! The job's own memory cgroup: who outruns pleat inside a hard limit waits, is helped, and is never left waiting.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pleat_e2e::{eventually, is_alive, signal, skip, Cgroup, Machine, Megabytes, Running};

const BUDGET: Megabytes = Megabytes(40);
const HEAP: &str = "70";
/// The program stops its parent, the supervisor, which has heard of it by then, and grows as fast as it can.
const STOP_AND_GROW: &str = r#"sleep 0.2; kill -STOP $PPID; exec "$GROW" "$MIB""#;

/// The groups of jobs in `group`.
fn job_groups(group: &Cgroup) -> Vec<PathBuf> {
    let is_job = |dir: &PathBuf| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("pleat-job-")
    };
    group.below().into_iter().filter(is_job).collect()
}

fn says(dir: &Path, file: &str, line: &str) -> bool {
    let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
    text.lines().any(|other| other == line)
}

/// A job that waits at the limit of its own group, with its supervisor stopped; `None`, visibly, where the kernel
/// has no such groups, or slows instead.
fn that_waits(machine: &Machine) -> Option<Running> {
    let job = machine.job("sh").args(["-c", STOP_AND_GROW]);
    let job = job.env("GROW", machine.grow()?).env("MIB", HEAP);
    let running = job.budget(BUDGET).hard_limit().spawn();
    let group = running.cgroup()?;
    eventually(Duration::from_secs(5), || !job_groups(group).is_empty());
    let Some(dir) = job_groups(group).pop() else {
        skip("no job has a memory cgroup of its own here");
        return None;
    };
    if !dir.join("memory.oom_control").exists() {
        skip("nobody waits in cgroup v2, where who is too fast is slowed");
        return None;
    }
    let waits = eventually(Duration::from_secs(10), || {
        says(&dir, "memory.oom_control", "under_oom 1")
    });
    assert!(waits, "nobody waits; stderr: {}", running.stderr());
    Some(running)
}

/// Nobody looks for as long as it takes: without a group of the job's own, the kernel kills the program.
#[test]
fn who_outruns_a_supervisor_that_is_late_waits_and_is_not_killed() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(running) = that_waits(&machine) else {
        return;
    };
    std::thread::sleep(Duration::from_millis(300));
    running.signal(signal::SIGCONT);
    let outcome = running.wait();
    outcome.expect_success().expect_folded();
    assert!(outcome.stdout_text().starts_with("0 of "));
}

#[test]
fn nobody_is_left_waiting_when_the_supervisor_is_killed() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(running) = that_waits(&machine) else {
        return;
    };
    let offspring = running.descendants();
    running.signal(signal::SIGKILL);
    let group = running.cgroup().expect("it has one");
    let is_over = eventually(Duration::from_secs(3), || {
        job_groups(group).is_empty() && !offspring.iter().any(|pid| is_alive(*pid))
    });
    assert!(is_over, "left: {:?}", job_groups(group));
}

/// Processes of the job are forked and executed all the time: one of those finds no supervisor, and ends itself because nobody
/// minds its group.
#[test]
fn nobody_is_left_when_supervisor_and_keeper_are_killed_by_one_stroke() {
    const ROUNDS: u64 = 12;
    const FORKS: &str =
        "echo begun; for i in 1 2 3; do (while :; do sleep 9 & env true; done) & done; wait";
    let Some(machine) = Machine::ready() else {
        return;
    };
    for round in 0..ROUNDS {
        let job = machine.job("sh").args(["-c", FORKS]).budget(BUDGET);
        let running = job.hard_limit().spawn();
        running.wait_for_output("begun");
        let Some(group) = running.cgroup() else {
            return;
        };
        if job_groups(group).is_empty() {
            return skip("no job has a memory cgroup of its own here");
        }
        std::thread::sleep(Duration::from_millis(7 * round));
        running.kill_with_keeper();
        let all_gone = eventually(Duration::from_secs(1), || group.members().is_empty());
        assert!(
            all_gone,
            "left: {:?}; {}",
            group.members(),
            running.stderr()
        );
    }
}

/// Memory that cannot be folded, and a limit that is firm.
#[test]
fn a_job_that_nothing_helps_is_told_so_and_ended_where_the_limit_is_firm() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(grow) = machine.grow() else {
        return;
    };
    let unmanaged = || {
        let job = machine.job("env").arg("PLEAT_SOCKET=");
        job.arg(&grow).arg(HEAP).budget(BUDGET)
    };
    unmanaged().run().expect_success();
    let outcome = unmanaged().pleat_args(["--hard"]).run();
    if outcome.stderr.contains("--hard needs") {
        return skip("no job has a memory cgroup of its own here");
    }
    assert_eq!(outcome.status.code(), Some(137), "{}", outcome.describe());
    assert!(
        outcome.stderr.contains("has waited for memory in vain"),
        "{}",
        outcome.describe()
    );
    assert!(
        outcome
            .stderr
            .contains("the memory cgroup's limit is 40 MiB"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_firm_limit_is_refused_where_it_cannot_be_had() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let job = machine.job("true").budget(BUDGET);
    let outcome = job.pleat_args(["--hard", "--cgroup=never"]).run();
    assert_eq!(outcome.status.code(), Some(2), "{}", outcome.describe());
    assert!(
        outcome.stderr.contains("--cgroup never"),
        "{}",
        outcome.stderr
    );
}

/// Forks need memory of the kernel's, which waits for nobody: it is there.
#[test]
fn many_processes_in_a_hard_limit_all_end_and_their_group_is_removed() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(grow) = machine.grow() else {
        return;
    };
    let script = r#"for i in 1 2 3 4 5 6 7 8 9 10; do
        "$GROW" 12 & "$GROW" 9 & for j in 1 2 3 4 5 6 7 8 9 10; do /bin/true || echo lost; done; wait
    done"#;
    let job = machine.job("sh").args(["-c", script]).env("GROW", grow);
    let running = job.budget(BUDGET).hard_limit().spawn();
    let outcome = running.wait();
    outcome.expect_success();
    let printed = outcome.stdout_text();
    assert_eq!(
        printed
            .lines()
            .filter(|line| line.starts_with("0 of "))
            .count(),
        20,
        "{printed}"
    );
    assert!(!printed.contains("lost"), "{printed}");
}

/// A process that stays is where it would have been without pleat, and keeps running.
#[test]
fn who_stays_after_the_job_leaves_its_group() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let stay = "setsid sleep 2 >/dev/null 2>&1 & echo $!; cat /proc/self/cgroup";
    let job = machine.job("sh").args(["-c", stay]).budget(BUDGET);
    let outcome = job.run();
    assert_eq!(outcome.status.code(), Some(0), "{}", outcome.describe());
    let printed = outcome.stdout_text();
    let pid = printed.lines().next().unwrap_or_default();
    if !printed.contains("pleat-job-") {
        return skip("no job has a memory cgroup of its own here");
    }
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it still runs");
    assert!(!groups.contains("pleat-job-"), "{groups}");
}

/// Others that use the CPUs, ended with the test.
struct Busy(Vec<Child>);

impl Busy {
    /// Two for each CPU of most machines.
    fn start() -> Busy {
        let start = |_| {
            let mut busy = Command::new("sh");
            busy.args(["-c", "while :; do :; done"])
                .stdin(Stdio::null());
            busy.spawn().expect("sh is installed")
        };
        Busy((0..4).map(start).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have been ended by others.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn growth_at_full_speed_survives_a_hard_limit_beside_busy_threads() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(grow) = machine.grow() else {
        return;
    };
    let busy = Busy::start();
    let outcomes: Vec<_> = (0..8)
        .map(|_| {
            let job = machine.job(&grow).arg(HEAP).budget(Megabytes(25));
            job.hard_limit().run()
        })
        .collect();
    drop(busy);
    for outcome in outcomes {
        outcome.expect_success().expect_folded();
    }
}

/// The supervisor and its keeper go last, and the program is judged as without pleat.
#[test]
fn the_supervisor_is_the_last_to_be_killed_for_memory_and_programs_are_as_ever() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let score = |pid: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj"));
        text.expect("it is there").trim().to_owned()
    };
    let job = machine
        .job("sh")
        .args(["-c", "cat /proc/self/oom_score_adj; sleep 20"]);
    let running = job.budget(BUDGET).spawn();
    running.wait_for_output("\n");
    assert_eq!(running.stdout().trim(), score("self"));
    // In a process of its own, or whatever this one starts would be among the last.
    let lower = "LC_ALL=C; export LC_ALL; echo -1 >/proc/self/oom_score_adj";
    let lowered = Command::new("sh").args(["-c", lower]).output();
    let lowered = lowered.expect("sh is installed");
    if !lowered.status.success() {
        let why = String::from_utf8_lossy(&lowered.stderr);
        return skip(format!(
            "oom_score_adj cannot be lowered here: {}",
            why.trim()
        ));
    }
    assert_eq!(score(&running.pid().to_string()), "-999");
    assert_eq!(score(&running.keeper().to_string()), "-999");
}

/// Children of a fork that write to what they share, of bytes that do not compress: what is taken from one leaves its memory to
/// the others at once, and is in the supervisor until it is on disk. Each of four runs ended with the supervisor killed.
#[test]
fn children_that_write_to_what_they_share_stay_inside_a_hard_limit() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let text = "import os, random, time\n\
        heap = bytearray(os.urandom(1 << 20) * 16)\n\
        end = time.monotonic() + 4\n\
        def write(seed):\n    dice = random.Random(seed)\n    mine = {}\n    \
            while time.monotonic() < end:\n        at = dice.randrange(16 << 20)\n        \
                heap[at] = mine[at] = (mine.get(at, heap[at]) + 1) & 255\n    \
            return any(heap[at] != value for at, value in mine.items())\n\
        for seed in range(6):\n    if os.fork() == 0:\n        os._exit(write(seed))\n\
        print([os.wait()[1] for _ in range(6)])\n";
    let job = machine.job("python3").args(["-c", text]);
    let outcome = job.budget(Megabytes(62)).hard_limit().timeout(60).run();
    outcome.expect_success().expect_folded();
    assert_eq!(outcome.stdout_text().trim(), "[0, 0, 0, 0, 0, 0]");
}

/// What is kept back of the limit for many processes is kept free by the budget, too: a system call that needs memory
/// at the limit fails. Of four runs two stood still there and were ended, and one waited at 7,498 looks.
#[test]
fn a_program_beside_idle_processes_never_gets_to_the_limit_and_its_writes_succeed() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let job = machine
        .job("python3")
        .arg(machine.program("grow_and_write.py"));
    let job = job.arg("1200").budget(Megabytes(48)).hard_limit();
    let outcome = job.timeout(60).run();
    outcome.expect_success().expect_folded();
    assert_eq!(outcome.stdout_text().trim(), "ok");
    let waits = &outcome.stats()["report"]["pager"]["limit_waits"];
    // A few are looks that came late.
    assert!(waits.as_u64().is_some_and(|waits| waits < 100), "{waits}");
}
