//! Jobs that run are listed and given other budgets, by their own user and root alone; whatever is done to a control socket, the
//! job goes on.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use pleat_e2e::{eventually, signal, skip, Machine, Megabytes, Running};
use serde_json::Value;

const NOBODY: &str = "65534";

/// A job of `hold`, which checks its memory until it is let go.
struct Held<'m> {
    machine: &'m Machine,
    running: Running,
    file: PathBuf,
}

impl<'m> Held<'m> {
    /// So many MiB in that budget, filled.
    fn start(
        machine: &'m Machine,
        mib: &str,
        budget: Megabytes,
        args: &[&str],
    ) -> Option<Held<'m>> {
        let file = machine.scratch().join(format!(
            "end-{}",
            fs::read_dir(machine.scratch()).ok()?.count()
        ));
        let job = machine.job(machine.hold()?).arg(mib).arg(&file);
        let running = job.budget(budget).pleat_args(args).timeout(90).spawn();
        running.wait_for_output("filled");
        Some(Held {
            machine,
            running,
            file,
        })
    }

    fn pid(&self) -> String {
        self.running.pid().to_string()
    }

    /// How it stands; nothing where it is not listed.
    fn listed(&self) -> Option<Value> {
        self.machine.listed(self.running.pid())
    }

    fn set(&self, memory: &str) -> Output {
        self.machine.ask(["set", &self.pid(), "--memory", memory])
    }

    /// Its end, with all its memory as it was.
    fn end(self) -> pleat_e2e::Outcome {
        fs::write(&self.file, "").expect("scratch is writable");
        let outcome = self.running.wait();
        outcome.expect_success();
        assert!(
            outcome.stdout_text().ends_with("ok\n"),
            "{}",
            outcome.describe()
        );
        outcome
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// It did what it was asked.
fn done(output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    out
}

/// It refused, and this is why.
fn refused(output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{out}\n{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    err
}

fn socket(job: &Value) -> PathBuf {
    PathBuf::from(job["socket"].as_str().expect("a path"))
}

/// The directory of the memory cgroup of a process's job, where it has one of v1.
fn group_of(pid: i32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let line = groups.lines().find(|line| line.contains(":memory:"))?;
    let path = line.split(':').nth(2)?;
    let dir = Path::new("/sys/fs/cgroup/memory").join(path.strip_prefix('/')?);
    let is_there = path.contains("pleat-job-") && dir.is_dir();
    is_there.then_some(dir)
}

fn number(dir: &Path, file: &str) -> u64 {
    let text = fs::read_to_string(dir.join(file)).expect("it is there");
    text.trim().parse().expect("a number")
}

#[test]
fn a_budget_goes_down_and_up_while_the_program_checks_its_memory() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(held) = Held::start(&machine, "120", Megabytes(250), &["--name", "to-and-fro"]) else {
        return;
    };
    let job = held.listed().expect("it is listed");
    assert_eq!(
        (job["name"].as_str(), job["processes"].as_u64()),
        (Some("to-and-fro"), Some(1))
    );
    assert!(job["used_bytes"].as_u64() > Some(120 << 20), "{job}");
    let table = done(&machine.ask(["list"]));
    let mut lines = table.lines();
    assert!(
        lines.any(|line| line.contains("to-and-fro") && line.contains("250M")),
        "{table}"
    );

    for (memory, mib) in [("60M", 60), ("200M", 200), ("48M", 48)] {
        let said = done(&machine.ask(["set", "to-and-fro", "--memory", memory]));
        assert!(said.contains(&format!("-> {memory}")), "{said}");
        for _ in 0..20 {
            let job = held.listed().expect("it is listed");
            let used = job["used_bytes"].as_u64().expect("a number");
            assert!(used <= (mib + mib / 50) << 20, "{job}");
            assert_eq!(job["budget_bytes"], mib << 20);
            std::thread::sleep(Duration::from_millis(25));
        }
    }
    let outcome = held.end();
    let stats = outcome.expect_folded().stats();
    assert_eq!(stats["report"]["budget_bytes"], 48 << 20);
    assert_eq!(stats["report"]["budget_changes"], 3);
    assert!(!socket(&job).exists(), "it goes with the job");
}

#[test]
fn a_firm_limit_follows_the_budget_and_nobody_is_killed_for_it() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(held) = Held::start(&machine, "120", Megabytes(250), &["--hard"]) else {
        return;
    };
    let program = held.listed().expect("it is listed")["program_pid"].as_i64();
    let program = program.expect("a number") as i32;
    let Some(group) = group_of(program) else {
        return skip("no job has a memory cgroup v1 of its own here");
    };
    let limit = || number(&group, "memory.limit_in_bytes");
    for (memory, mib) in [("64M", 64), ("160M", 160), ("50M", 50)] {
        done(&held.set(memory));
        let firm = (mib << 20) / 50 * 51;
        // The supervisor is beside the group, and within the limit.
        assert!(limit() <= firm, "{} of {firm}", limit());
        // It moves with what the supervisor has, between one look and the other.
        let is_told = || {
            let told = held.listed().expect("it is listed")["limit_bytes"].as_u64();
            told.is_some_and(|bytes| bytes.abs_diff(limit()) < 2 << 20)
        };
        assert!(eventually(Duration::from_secs(5), is_told));
        for _ in 0..20 {
            assert!(number(&group, "memory.usage_in_bytes") <= firm);
            std::thread::sleep(Duration::from_millis(25));
        }
    }
    let outcome = held.end();
    assert!(!outcome.stderr.contains("killed"), "{}", outcome.describe());
}

/// What a job has written and read lies in its group's page cache, and is in the way of a lower limit until it is dropped.
#[test]
fn a_firm_limit_comes_down_through_the_page_cache() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(hold) = machine.hold() else {
        return;
    };
    let script =
        "dd if=/dev/zero of=big bs=1M count=200 2>/dev/null; sync big; exec \"$HOLD\" 30 end";
    let job = machine.job("sh").args(["-c", script]).env("HOLD", hold);
    let running = job.budget(Megabytes(300)).pleat_args(["--hard"]).spawn();
    running.wait_for_output("filled");
    let job = machine.listed(running.pid()).expect("it is listed");
    let Some(group) = group_of(job["program_pid"].as_i64().expect("a number") as i32) else {
        return skip("no job has a memory cgroup v1 of its own here");
    };
    let before = number(&group, "memory.usage_in_bytes");
    assert!(
        before > 150 << 20,
        "the page cache is the group's: {before}"
    );
    let pid = running.pid().to_string();
    done(&machine.ask(["set", &pid, "--memory", "70M"]));
    let limit = number(&group, "memory.limit_in_bytes");
    assert!(limit <= (70 << 20) / 50 * 51, "{limit}");
    fs::write(machine.scratch().join("end"), "").expect("scratch is writable");
    running.wait().expect_success();
}

#[test]
fn a_budget_that_cannot_hold_the_job_is_refused_with_one_that_can() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(hold) = machine.hold() else {
        return;
    };
    let file = machine.scratch().join("end");
    let job = machine.job("env").arg("PLEAT_SOCKET=").arg(hold);
    let job = job.args(["60"]).arg(&file).budget(Megabytes(200));
    let running = job.pleat_args(["--quiet", "--name", "unmanaged"]).spawn();
    running.wait_for_output("filled");
    // It is known to have no agent after a second.
    let is_known = || {
        let job = machine.listed(running.pid()).expect("it is listed");
        job["budget_min_bytes"].as_u64() > Some(60 << 20)
    };
    assert!(eventually(Duration::from_secs(5), is_known));
    let set = |memory: &str| machine.ask(["set", "unmanaged", "--memory", memory]);
    for small in ["0", "15M", "lots", "101%"] {
        refused(&set(small));
    }
    assert!(refused(&set("4M")).contains("at least --memory 16M"));
    let why = refused(&set("40M"));
    assert!(why.contains("cannot be folded"), "{why}");
    let enough = why.trim().rsplit(' ').next().expect("it ends in a size");
    done(&set(enough));
    fs::write(&file, "").expect("scratch is writable");
    running.wait().expect_success();
}

#[test]
fn jobs_are_told_apart_by_process_where_their_names_are_the_same() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let start = || Held::start(&machine, "20", Megabytes(100), &["--name", "twin"]);
    let (Some(one), Some(other)) = (start(), start()) else {
        return;
    };
    let why = refused(&machine.ask(["set", "twin", "--memory", "60M"]));
    assert!(
        why.contains(&one.pid()) && why.contains(&other.pid()),
        "{why}"
    );
    let program = one.listed().expect("it is listed")["program_pid"].to_string();
    let said = done(&machine.ask(["set", &program, "--memory", "60M"]));
    assert!(
        said.contains(&format!("job {} (twin)", one.pid())),
        "{said}"
    );
    assert_eq!(
        other.listed().expect("it is listed")["budget_bytes"],
        100 << 20
    );
    assert!(refused(&machine.ask(["set", "1", "--memory", "60M"])).contains("pleat list"));
    one.end();
    other.end();
}

/// pleat, started by another user where he can reach it.
fn as_nobody(machine: &Machine, args: &[&str]) -> Option<Output> {
    if !machine.installed(&["setpriv"]) {
        return None;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
    let copy = dir.path().join("pleat");
    fs::copy(machine.pleat(), &copy).expect("there is room for a copy");
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
        .arg(&copy)
        .args(args)
        .output()
        .expect("setpriv is installed");
    // As root only: nobody else may become another.
    (output.status.code() != Some(127)).then_some(output)
}

#[test]
fn another_user_neither_sees_a_job_nor_reaches_it() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(held) = Held::start(&machine, "20", Megabytes(100), &["--name", "mine"]) else {
        return;
    };
    let Some(output) = as_nobody(&machine, &["list", "--json"]) else {
        return skip("only root can be another user");
    };
    assert_eq!(done(&output), "");
    for job in ["mine", &held.pid()] {
        let output = as_nobody(&machine, &["set", job, "--memory", "60M"]);
        refused(&output.expect("as before"));
    }
    let path = socket(&held.listed().expect("it is listed"));
    let looked = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--clear-groups", "ls"])
        .arg(&path)
        .output()
        .expect("setpriv is installed");
    assert!(!looked.status.success());
    assert_eq!(
        held.listed().expect("it is listed")["budget_bytes"],
        100 << 20
    );
    held.end();
}

/// Says something over a new connection; what is answered to it.
fn say(path: &Path, what: &[u8]) -> (UnixStream, Option<Value>) {
    let mut stream = UnixStream::connect(path).expect("somebody listens");
    let limit = Some(Duration::from_millis(1500));
    stream.set_read_timeout(limit).expect("a limit");
    // It may be closed before all is said.
    let _ = stream.write_all(what);
    let mut line = String::new();
    let _ = BufReader::new(&stream).read_line(&mut line);
    (stream, serde_json::from_str(&line).ok())
}

#[test]
fn whatever_is_said_to_the_socket_the_job_goes_on() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(held) = Held::start(&machine, "60", Megabytes(40), &[]) else {
        return;
    };
    let path = socket(&held.listed().expect("it is listed"));
    let is_refused = |what: &[u8]| {
        let (_, answer) = say(&path, what);
        answer.is_none_or(|answer| answer["ok"] == false && answer["error"].is_string())
    };
    assert!(is_refused(b"GET / HTTP/1.1\r\n\r\n"));
    assert!(is_refused(&vec![b'x'; 1 << 20]));
    assert!(is_refused(&vec![0; 100_000]));
    assert!(is_refused(&[b"[".repeat(3000), b"\n".to_vec()].concat()));
    assert!(is_refused(
        b"{\"version\":1,\"do\":\"set\",\"memory_bytes\":18446744073709551615}\n"
    ));
    assert!(is_refused(
        b"{\"version\":1,\"do\":\"set\",\"memory_bytes\":0}\n"
    ));
    // Half of a request, many times, and nothing more; and requests whose answers nobody reads.
    let half: Vec<_> = (0..12).map(|_| UnixStream::connect(&path)).collect();
    for mut stream in half.iter().flatten() {
        let _ = stream.write_all(b"{\"version\":1,");
    }
    let mut greedy = UnixStream::connect(&path).expect("somebody listens");
    greedy.set_nonblocking(true).expect("it can");
    for _ in 0..10_000 {
        let _ = greedy.write(b"{\"version\":1,\"do\":\"stats\"}\n");
    }
    std::thread::sleep(Duration::from_millis(1200));
    let is_answered = || held.listed().is_some();
    assert!(
        eventually(Duration::from_secs(5), is_answered),
        "others are heard"
    );
    drop((half, greedy));
    let (_, stats) = say(&path, b"{\"version\":1,\"do\":\"stats\"}\n");
    let stats = stats.expect("it is answered");
    assert!(
        stats["stats"]["report"]["pager"]["faults"].as_u64() > Some(0),
        "{stats}"
    );
    assert_eq!(stats["stats"]["ending"]["kind"], "running");
    held.end().expect_folded();
}

#[test]
fn a_socket_that_a_killed_supervisor_left_is_cleaned_away() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(held) = Held::start(&machine, "20", Megabytes(100), &[]) else {
        return;
    };
    let path = socket(&held.listed().expect("it is listed"));
    held.running.signal(signal::SIGKILL);
    drop(held);
    assert!(path.exists());
    let is_gone = || {
        done(&machine.ask(["list"]));
        !path.exists()
    };
    assert!(eventually(Duration::from_secs(3), is_gone));
}

#[test]
fn a_job_runs_as_ever_where_no_socket_can_be_made_and_its_program_has_none() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let hidden = "mkdir -p /run/pleat && mount -t tmpfs -o ro none /run/pleat && mount --bind /tmp /tmp && mount -o remount,ro,bind /tmp && exec \"$@\"";
    let job = machine
        .job("unshare")
        .args(["-m", "sh", "-c", hidden, "sh"]);
    let job = job.arg(machine.pleat()).args([
        "run",
        "--memory",
        "100M",
        "--no-swap",
        "--",
        "echo",
        "there",
    ]);
    let outcome = job.run();
    if outcome.stderr.contains("ermi") {
        return skip("nothing can be mounted here");
    }
    outcome.expect_success();
    assert_eq!(
        (outcome.stdout_text().as_str(), outcome.stderr.as_str()),
        ("there\n", "")
    );
    let fds = || {
        machine
            .job("sh")
            .args(["-c", "set -- /proc/$$/fd/*; echo $#"])
    };
    let freely = fds().run().stdout_text();
    let inside = fds().budget(Megabytes(100)).run();
    // Its agent has a connection.
    let count = |text: &str| text.trim().parse::<u32>().expect("a number");
    assert!(count(&inside.stdout_text()) <= count(&freely) + 1);
}

#[test]
fn a_job_in_a_job_has_a_share_of_its_budget_and_is_managed_by_its_own_pleat_alone() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(hold) = machine.hold() else {
        return;
    };
    let file = machine.scratch().join("end");
    let inner = "\"$PLEAT\" run --name inner --memory 50M --swap-dir . --stats inner.json -- \"$HOLD\" 90 end";
    let job = machine.job("sh").args(["-c", &format!("{inner}; :")]);
    let job = job.env("PLEAT", machine.pleat()).env("HOLD", hold);
    let running = job.budget(Megabytes(100)).hard_limit().timeout(60).spawn();
    running.wait_for_output("filled");
    let lines = done(&machine.ask(["list", "--json"]));
    let jobs = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut jobs = jobs.filter(|job| job["inside_pid"] == running.pid());
    let inner = jobs.next().expect("it is listed");
    assert_eq!(inner["name"], "inner");
    // Counted once: the inner job, and what is small beside it.
    std::thread::sleep(Duration::from_millis(1500));
    let outer = machine.listed(running.pid()).expect("it is listed");
    let used = outer["used_bytes"].as_u64().expect("a number") >> 20;
    assert!((40..75).contains(&used), "{used} MiB: {outer}");
    assert_eq!(outer["pages_away"], 0, "the outer one takes nothing");
    let set = |memory: &str| machine.ask(["set", "inner", "--memory", memory]);
    assert!(refused(&set("99M")).contains("is inside"));
    done(&set("40M"));
    fs::write(&file, "").expect("scratch is writable");
    let outcome = running.wait();
    outcome.expect_success();
    assert!(
        outcome.stdout_text().ends_with("ok\n"),
        "{}",
        outcome.describe()
    );
    assert_eq!((outcome.stderr.as_str(), outcome.oom_kills), ("", 0));
    let stats = fs::read(machine.scratch().join("inner.json")).expect("it is written");
    let stats: Value = serde_json::from_slice(&stats).expect("JSON");
    assert!(stats["report"]["pages_folded"].as_u64() > Some(0));
}

#[test]
fn a_job_in_a_job_gets_no_more_than_that_one_has() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let job = machine
        .job(machine.pleat())
        .args(["run", "--memory", "1G", "--stats", "inner.json"]);
    let outcome = job.args(["--", "true"]).budget(Megabytes(100)).run();
    outcome.expect_success();
    assert!(
        outcome.stderr.contains("more than the 90M"),
        "{}",
        outcome.describe()
    );
    let stats = fs::read(machine.scratch().join("inner.json")).expect("it is written");
    let stats: Value = serde_json::from_slice(&stats).expect("JSON");
    assert_eq!(stats["settings"]["budget_bytes"], (100u64 << 20) / 100 * 90);
    let job = machine
        .job(machine.pleat())
        .args(["run", "--memory", "16M", "--", "true"]);
    let outcome = job.budget(Megabytes(17)).run();
    outcome.expect_code(2);
    assert!(
        outcome.stderr.contains("pleat set"),
        "{}",
        outcome.describe()
    );
}
