//! Who is told of a job: the series of how it stood, commands that are run when it is in trouble, systemd.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pleat_e2e::{eventually, kill_process, signal, skip, Job, Machine, Megabytes};
use serde_json::Value;

const BUDGET: Megabytes = Megabytes(40);
/// What cannot be compressed of any program is more than that.
const ALWAYS: [&str; 4] = ["--pressure", "unfoldable=1%", "--pressure-every", "1"];

/// A job that holds more than its budget until the file is there.
fn hold<'a>(machine: &'a Machine, end: &Path) -> Option<Job<'a>> {
    let job = machine.job(machine.hold()?).arg("60").arg(end);
    Some(job.budget(BUDGET).timeout(200))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = read(path);
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("each line is JSON")
}

#[test]
fn a_series_tells_of_each_second_and_of_the_end() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let (end, series) = (
        machine.scratch().join("end"),
        machine.scratch().join("series"),
    );
    let Some(job) = hold(&machine, &end) else {
        return;
    };
    let at = series.to_str().expect("a plain path");
    let running = job
        .pleat_args(["--name", "train", "--trace-stats", at])
        .spawn();
    running.wait_for_output("filled");
    // While it runs, whoever reads the file sees whole lines.
    let count = || lines(&series).len();
    let before = count();
    assert!(eventually(Duration::from_secs(20), || count() >= before + 3));
    fs::write(&end, "").expect("scratch is writable");
    let outcome = running.wait();
    outcome.expect_success();
    let all = lines(&series);
    let (first, last) = (&all[0], &all[all.len() - 1]);
    assert_eq!(
        (&first["kind"], &last["kind"]),
        (&"start".into(), &"end".into())
    );
    assert!(first["machine"]["memory_bytes"].as_u64() > Some(1 << 20));
    assert_eq!(first["settings"]["budget_bytes"], BUDGET.bytes());
    let samples = &all[1..all.len() - 1];
    let times: Vec<u64> = samples
        .iter()
        .filter_map(|one| one["wall_us"].as_u64())
        .collect();
    assert_eq!(times.len(), samples.len());
    assert!(times.windows(2).all(|two| two[1] > two[0]), "{times:?}");
    let newest = &samples[samples.len() - 1];
    assert_eq!(
        (&newest["kind"], &newest["name"]),
        (&"sample".into(), &"train".into())
    );
    assert!(newest["totals"]["faults"].as_u64() > Some(0));
    // The end has what --stats has.
    let stats = outcome.stats();
    assert_eq!(last["report"], stats["report"]);
    assert_eq!(last["ending"]["exit_code"], 0);
    // Every fault is in one of the histograms.
    let latencies = stats["report"]["latencies"].as_object().expect("an object");
    let counted: u64 = latencies
        .values()
        .filter_map(|one| one["count"].as_u64())
        .sum();
    assert_eq!(Some(counted), stats["report"]["pager"]["faults"].as_u64());
    assert!(latencies["compressed"]["median_ns"].as_u64() > Some(0));
    let page = machine.scratch().join("page.html");
    let made = machine.ask(["report", at, "-o", page.to_str().expect("a plain path")]);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let page = read(&page);
    assert!(page.contains("train") && page.contains("How long faults took"));
}

#[test]
fn a_command_is_run_under_pressure_and_is_none_of_the_job() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let (end, said) = (
        machine.scratch().join("end"),
        machine.scratch().join("said"),
    );
    let left = machine.scratch().join("left");
    let Some(job) = hold(&machine, &end) else {
        return;
    };
    // It leaves something running, which would keep the job from ending if it were of it.
    let command = format!(
        "echo \"$PLEAT_REASON $PLEAT_JOB_NAME $PLEAT_JOB_PID $PLEAT_MESSAGE\" >>{said}; echo words; \
         [ -e {left} ] || {{ sleep 300 & echo $! >{left}; }}",
        said = said.display(),
        left = left.display()
    );
    let job = job
        .pleat_args(ALWAYS)
        .pleat_args(["--name", "train", "--on-pressure", &command]);
    let running = job.spawn();
    running.wait_for_output("filled");
    // Once a second, and not all the time.
    assert!(eventually(Duration::from_secs(20), || read(&said)
        .lines()
        .count()
        >= 3));
    let start = format!("unfoldable train {} ", running.pid());
    let told = read(&said);
    assert!(
        told.lines()
            .all(|line| line.starts_with(&start) && line.contains("cannot be compressed")),
        "{told}"
    );
    let listed = machine.listed(running.pid()).expect("it is listed");
    assert_eq!(listed["processes"], 1, "{listed}");
    fs::write(&end, "").expect("scratch is writable");
    let ended = Instant::now();
    let outcome = running.wait();
    outcome.expect_success();
    assert!(ended.elapsed() < Duration::from_secs(30));
    // What a command says is not among what the program says.
    assert!(
        outcome.stdout_text().starts_with("filled\n") && !outcome.stdout_text().contains("words")
    );
    assert!(
        outcome.stderr.contains("words") && outcome.stderr.contains("warning: "),
        "{}",
        outcome.describe()
    );
    let left: i32 = read(&left).trim().parse().expect("a process id");
    assert!(
        read(Path::new(&format!("/proc/{left}/comm"))).contains("sleep"),
        "it goes on"
    );
    kill_process(left, signal::SIGKILL);
}

/// In a container pleat is often the first process, which adopts whatever has lost its parent.
#[test]
fn a_command_is_none_of_the_job_where_pleat_is_the_first_process() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(program) = machine.hold() else {
        return;
    };
    let (end, said) = (
        machine.scratch().join("end"),
        machine.scratch().join("said"),
    );
    let command = format!(
        "sh -c 'sleep 300 &'; echo $PLEAT_JOB_PID >>{}",
        said.display()
    );
    let unshare = |words: &[&str]| {
        let mut unshare = Command::new("timeout");
        unshare.args([
            "120",
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ]);
        unshare.args(words);
        unshare
    };
    if !unshare(&["true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip("no process namespace can be had here");
    }
    let mut job = unshare(&[]);
    job.arg(machine.pleat())
        .args(["run", "--memory", "40M"])
        .args(ALWAYS);
    job.args(["--on-pressure", &command, "--"])
        .arg(program)
        .arg("60")
        .arg(&end);
    let mut job = job
        .stdout(Stdio::null())
        .spawn()
        .expect("unshare was there just now");
    assert!(eventually(Duration::from_secs(30), || read(&said)
        .lines()
        .count()
        >= 2));
    assert!(read(&said).starts_with("1\n"), "{}", read(&said));
    fs::write(&end, "").expect("scratch is writable");
    let ended = Instant::now();
    assert!(job.wait().expect("it is a child").success());
    assert!(ended.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_job_goes_on_without_what_runs_its_commands() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let end = machine.scratch().join("end");
    let Some(job) = hold(&machine, &end) else {
        return;
    };
    let running = job
        .pleat_args(ALWAYS)
        .pleat_args(["--on-pressure", "true"])
        .spawn();
    running.wait_for_output("filled");
    let is_runner =
        |pid: &i32| read(Path::new(&format!("/proc/{pid}/comm"))).trim() == "pleat-hooks";
    let runner = running.descendants().into_iter().find(is_runner);
    kill_process(runner.expect("there is one"), signal::SIGKILL);
    assert!(eventually(Duration::from_secs(20), || running
        .stderr()
        .contains("what runs it was killed")));
    fs::write(&end, "").expect("scratch is writable");
    running.wait().expect_success();
}

#[test]
fn before_a_job_is_ended_somebody_is_told_and_waited_for() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let said = machine.scratch().join("said");
    // The program is still there, and pleat waits.
    let command = format!(
        "ps -o comm= --ppid $PLEAT_JOB_PID >{said}; sleep 1; echo \"$PLEAT_REASON: $PLEAT_MESSAGE\" >>{said}; exit 3",
        said = said.display()
    );
    let job = machine.job("python3").args([
        "-c",
        "import os; a = [os.urandom(1 << 20) for _ in range(200)]",
    ]);
    let job = job
        .budget(BUDGET)
        .timeout(200)
        .pleat_args(["--no-swap", "--on-trouble", &command]);
    let outcome = job.run();
    outcome.expect_code(125);
    let told = read(&said);
    let (names, told) = told.split_at(told.find("stopped: ").unwrap_or_else(|| panic!("{told}")));
    assert!(
        names.lines().any(|name| name.starts_with("python3")),
        "{names}"
    );
    let why = told.trim().trim_start_matches("stopped: ");
    assert!(
        outcome.stderr.contains(why),
        "{why} in {}",
        outcome.describe()
    );
    let first = outcome.stderr.lines().next().unwrap_or_default();
    assert!(
        first.contains("the command of --on-trouble is run first"),
        "{}",
        outcome.describe()
    );
    assert!(
        outcome
            .stderr
            .contains("the command of --on-trouble ended with status 3"),
        "{}",
        outcome.describe()
    );
}

/// What was received at a socket so far.
fn heard(socket: &UnixDatagram) -> Vec<String> {
    let mut bytes = [0; 4096];
    let mut heard = Vec::new();
    while let Ok(count) = socket.recv(&mut bytes) {
        heard.push(String::from_utf8_lossy(&bytes[..count]).into_owned());
    }
    heard
}

#[test]
fn systemd_hears_that_the_job_runs_and_how_it_stands() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let place: PathBuf = machine.scratch().join("notify");
    let socket = UnixDatagram::bind(&place).expect("scratch is writable");
    socket.set_nonblocking(true).expect("it is a socket");
    let job = || {
        let job = machine.job("sh").args([
            "-c",
            "echo \"socket=$NOTIFY_SOCKET $WATCHDOG_USEC\"; sleep 4",
        ]);
        let job = job
            .env("NOTIFY_SOCKET", &place)
            .env("WATCHDOG_USEC", "1000000");
        job.budget(BUDGET).timeout(60)
    };
    let outcome = job().pleat_args(["--notify"]).run();
    outcome.expect_success();
    assert_eq!(outcome.stdout_text(), "socket= \n");
    let messages = heard(&socket).join("\n");
    assert_eq!(messages.matches("READY=1").count(), 1, "{messages}");
    assert!(messages.matches("WATCHDOG=1").count() >= 3, "{messages}");
    assert!(
        messages.contains("STATUS=") && messages.contains(" of 40M in use"),
        "{messages}"
    );
    // Without the flag it is the program's.
    let outcome = job().run();
    assert_eq!(
        outcome.stdout_text(),
        format!("socket={} 1000000\n", place.display())
    );
    assert!(heard(&socket).is_empty());
}

#[test]
fn runtimes_are_told_the_budget_if_that_is_asked_for() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let printed = |flags: &[&str]| {
        let words = "echo \"$GOMEMLIMIT|$JAVA_TOOL_OPTIONS|$NODE_OPTIONS\"";
        let job = machine.job("sh").args(["-c", words]).budget(BUDGET);
        // Of others' that a developer may have.
        let job = job
            .env("GOMEMLIMIT", "")
            .env("JAVA_TOOL_OPTIONS", "")
            .env("NODE_OPTIONS", "--trace-warnings");
        let outcome = job.pleat_args(flags).run();
        outcome.expect_success();
        outcome.stdout_text()
    };
    assert_eq!(printed(&[]), "||--trace-warnings\n");
    let java = "-XX:MaxRAM=41943040 -XX:MaxRAMPercentage=75";
    let told = format!("31457280|{java}|--trace-warnings --max-old-space-size=30\n");
    assert_eq!(printed(&["--hint"]), told);
    assert_eq!(
        printed(&["--hint=java"]),
        format!("|{java}|--trace-warnings\n")
    );
}
