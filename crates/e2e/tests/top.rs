//! Jobs are watched on a terminal and by scripts, and steered from there; whoever watches, however slowly, nobody waits for him.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pleat_e2e::{eventually, signal, skip, Machine, Megabytes, Running, Terminal};
use serde_json::Value;

/// A job of `hold`, which checks its memory until it is let go.
struct Held {
    running: Running,
    file: PathBuf,
}

impl Held {
    /// So many MiB in that budget, filled.
    fn start(machine: &Machine, name: &str, mib: &str, budget: Megabytes) -> Option<Held> {
        let file = machine.scratch().join(format!("end-{name}"));
        let job = machine.job(machine.hold()?).arg(mib).arg(&file);
        let running = job.budget(budget).pleat_args(["--name", name]);
        let running = running.timeout(200).spawn();
        running.wait_for_output("filled");
        Some(Held { running, file })
    }

    /// Its end, with all its memory as it was.
    fn end(self) {
        fs::write(&self.file, "").expect("scratch is writable");
        let outcome = self.running.wait();
        outcome.expect_success();
        assert!(
            outcome.stdout_text().ends_with("ok\n"),
            "{}",
            outcome.describe()
        );
    }
}

fn command(machine: &Machine, args: &[&str]) -> Command {
    let mut command = Command::new(machine.pleat());
    command.args(args).env("TERM", "xterm-256color");
    command.env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
    command
}

fn pleat(machine: &Machine, args: &[&str]) -> Output {
    command(machine, args).output().expect("pleat runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How a job stands, by `pleat stat`.
fn look(machine: &Machine, name: &str) -> Value {
    let output = pleat(machine, &["stat", name, "--json", "--count", "1"]);
    let error = text(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {error}"))
}

fn budget(machine: &Machine, name: &str) -> u64 {
    look(machine, name)["budget_bytes"].as_u64().expect("bytes")
}

#[test]
fn a_job_is_looked_at_steered_and_seen_to_end() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(held) = Held::start(&machine, "steered", "60", Megabytes(64)) else {
        return;
    };
    let mut top = Terminal::start(command(&machine, &["top", "--interval", "0.2"]), (80, 24));
    top.wait_for("steered");
    top.wait_until("its process, and memory away", |screen| {
        let line = screen.lines().find(|line| line.contains(" hold"));
        line.is_some_and(|line| !line.contains("later"))
    });
    assert!(top.is_taken() && top.has_colours());

    // What the budget is now, and what is asked for by keys, is a 16th apart.
    top.press("-");
    let is = |mib: u64| {
        eventually(Duration::from_secs(20), || {
            budget(&machine, "steered") == mib << 20
        })
    };
    assert!(is(60), "{}", top.screen());
    top.wait_for("60M");
    top.press("++");
    assert!(is(68), "{}", top.screen());

    top.press("\r");
    let screen = top.wait_for("in the swap file");
    assert!(screen.contains("steered  user"), "{screen}");
    top.wait_for("faults/s, compressed");
    top.resize((200, 60));
    let screen = top.wait_for("compression ");
    assert!(
        screen.contains("swap/s, read") && screen.contains("WHY"),
        "{screen}"
    );
    top.press("\x1b");
    top.wait_for("COMMAND, OR WHY NOT");
    top.resize((80, 24));
    top.wait_until("a narrow screen", |screen| !screen.contains("SWAP-RD"));

    held.end();
    top.wait_until("that it has ended", |screen| {
        let mut lines = screen.lines().rev();
        let is_told = lines
            .next()
            .is_some_and(|line| line.contains("(steered) has ended"));
        is_told && !lines.any(|line| line.contains("steered"))
    });
    top.press("q");
    assert!(top.wait().success());
    assert!(!top.is_taken(), "the terminal is as it was");
}

#[test]
fn a_terminal_without_colours_or_of_another_kind_is_respected() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(held) = Held::start(&machine, "plain", "20", Megabytes(64)) else {
        return;
    };
    let mut plain = command(&machine, &["top", "plain"]);
    plain.env("NO_COLOR", "1").env("LC_ALL", "C");
    let mut top = Terminal::start(plain, (80, 24));
    let screen = top.wait_for("in the swap file");
    assert!(!top.has_colours() && screen.is_ascii(), "{screen}");
    // By a signal it ends as by a key.
    Command::new("kill")
        .arg(top.pid().to_string())
        .status()
        .expect("there is kill");
    assert!(top.wait().success());
    assert!(!top.is_taken(), "the terminal is as it was");

    let mut dumb = command(&machine, &["top"]);
    let mut top = Terminal::start(
        {
            dumb.env("TERM", "dumb");
            dumb
        },
        (80, 24),
    );
    assert_eq!(top.wait().code(), Some(2));
    assert!(top.screen().contains("pleat stat"), "{}", top.screen());
    let output = pleat(&machine, &["top"]);
    assert_eq!(output.status.code(), Some(2), "no terminal");
    held.end();
}

#[test]
fn two_hundred_processes_are_shown_and_told_of() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let script = "i=0; while [ $i -lt 200 ]; do sleep 600 & i=$((i+1)); done; echo started; wait";
    let job = machine
        .job("sh")
        .args(["-c", script])
        .budget(Megabytes(300));
    let job = job
        .pleat_args(["--name", "many", "--kill-on-exit"])
        .timeout(150);
    let running = job.spawn();
    running.wait_for_output("started");
    let mut top = Terminal::start(command(&machine, &["top"]), (80, 24));
    top.wait_until("all of them", |screen| {
        let counted = screen
            .split(" process")
            .next()
            .and_then(|text| text.rsplit(' ').next());
        counted.and_then(|count| count.parse().ok()) >= Some(201)
    });
    top.press("t");
    top.wait_for("tree by memory");
    // To the last line, and back.
    top.press("\x1b[F");
    top.wait_until("the end", |screen| !screen.contains(" many "));
    top.press("\x1b[H");
    top.wait_for(" many ");
    // Names are those of a process's first second, and then those of its program.
    let names = |told: &Value| {
        let rows = told["rows"].as_array().expect("rows").clone();
        rows.iter().filter(|row| row["name"] == "sleep").count()
    };
    let mut told = look(&machine, "many");
    let is_named = eventually(Duration::from_secs(30), || {
        told = look(&machine, "many");
        names(&told) == 200
    });
    assert!(is_named, "{told}");
    let rows = told["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &told["rows_left_out"]), (201, &0.into()));
    let parent = rows
        .iter()
        .find(|row| row["name"] == "sh")
        .expect("the shell");
    let sleeps = rows.iter().filter(|row| row["name"] == "sleep");
    assert_eq!(
        sleeps.filter(|row| row["ppid"] == parent["pid"]).count(),
        200
    );
    top.press("q");
    assert!(top.wait().success());
    running.signal(signal::SIGTERM);
    running.wait();
}

#[test]
fn who_watches_and_stops_keeps_nobody_waiting() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(held) = Held::start(&machine, "watched", "60", Megabytes(50)) else {
        return;
    };
    let top = Terminal::start(command(&machine, &["top", "--interval", "0.2"]), (80, 24));
    top.wait_for("watched");
    let kill = |signal: &str| {
        let pid = top.pid().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("there is kill").success());
    };
    kill("-STOP");
    // One that asks and asks, and reads nothing: its connection is closed, once there is no room for an answer.
    let told = pleat(&machine, &["list", "--json"]);
    let jobs = text(&told.stdout);
    let mut jobs = jobs
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let job = jobs.find(|job| job["name"] == "watched");
    let job = job.expect("it is listed");
    let mut deaf = UnixStream::connect(job["socket"].as_str().expect("a path"));
    let deaf = deaf.as_mut().expect("it listens");
    let request = "{\"version\":1,\"do\":\"detail\"}\n".repeat(2000);
    deaf.write_all(request.as_bytes()).expect("there is room");
    let start = Instant::now();
    for _ in 0..10 {
        assert!(look(&machine, "watched")["used_bytes"].as_u64() > Some(0));
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(20), "ten looks took {took:?}");
    // It says so when it is closed: this cannot be written for ever.
    let is_closed = eventually(Duration::from_secs(30), || deaf.write_all(b"\n").is_err());
    assert!(is_closed, "answers are kept for who does not read them");
    kill("-CONT");
    top.press("r");
    top.wait_for("by memory reversed");
    held.end();
}

#[test]
fn stat_tells_a_line_a_time_until_the_job_ends() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(held) = Held::start(&machine, "told", "60", Megabytes(50)) else {
        return;
    };
    let output = pleat(
        &machine,
        &["stat", "told", "--interval", "0.2", "--count", "3"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert_eq!(
        lines.lines().count(),
        5,
        "two heads and three lines: {lines}"
    );
    assert!(
        lines
            .lines()
            .nth(2)
            .is_some_and(|line| line.contains("50M")),
        "{lines}"
    );

    let told = look(&machine, "told");
    let bytes = |of: &Value| of.as_u64().expect("bytes");
    let tiers = [
        "uncompressed",
        "staged",
        "compressed",
        "raw",
        "file",
        "unfoldable",
        "own",
    ];
    let sum: u64 = tiers
        .iter()
        .map(|tier| bytes(&told["tiers"][format!("{tier}_bytes")]))
        .sum();
    let used = bytes(&told["used_bytes"]);
    assert!(sum.abs_diff(used) < 4 << 20, "{sum} {used}: {told}");
    assert!(bytes(&told["totals"]["compressed_pages"]) > 0, "{told}");
    let row = &told["rows"][0];
    assert_eq!(
        (&row["name"], &row["managed"]),
        (&"hold".into(), &"yes".into())
    );
    let held_bytes = bytes(&row["resident_bytes"]) + bytes(&row["away_bytes"]);
    assert!(held_bytes > 59 << 20, "{row}");

    let watch = command(&machine, &["stat", "told", "--json", "--interval", "0.2"]);
    let mut watch = { watch }
        .stdout(Stdio::piped())
        .spawn()
        .expect("pleat runs");
    let mut told_lines = BufReader::new(watch.stdout.take().expect("it is piped"));
    let mut told_text = String::new();
    for _ in 0..2 {
        told_lines.read_line(&mut told_text).expect("a line");
    }
    held.end();
    let is_over = eventually(Duration::from_secs(20), || {
        matches!(watch.try_wait(), Ok(Some(_)))
    });
    assert!(is_over, "it goes on without its job");
    assert_eq!(watch.wait().expect("it has ended").code(), Some(0));
    told_lines
        .read_to_string(&mut told_text)
        .expect("the rest of it");
    let lines: Vec<Value> = told_text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert!(lines.len() >= 2, "{}", lines.len());
    assert!(lines[1]["rates"]["seconds"].as_f64() < Some(10.0));
    let output = pleat(&machine, &["stat", "told"]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "there is no such job any more"
    );
}

#[test]
fn another_user_cannot_watch_a_job() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(held) = Held::start(&machine, "private", "20", Megabytes(64)) else {
        return;
    };
    if !machine.installed(&["setpriv"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
    let copy = dir.path().join("pleat");
    fs::copy(machine.pleat(), &copy).expect("there is room for a copy");
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    let output = nobody.arg(&copy).args(["stat", "private"]).output();
    let output = output.expect("setpriv is installed");
    if output.status.code() == Some(127) {
        return skip("only root can be another user");
    }
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(output.stdout.is_empty());
    held.end();
}

/// `PLEAT_SCREENS=DIR` writes the pictures that the documents show there.
#[test]
fn screens_are_pictures_of_real_jobs() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let dir = std::env::var_os("PLEAT_SCREENS").map(PathBuf::from);
    let (Some(train), Some(serve)) = (
        Held::start(&machine, "train", "120", Megabytes(80)),
        Held::start(&machine, "serve", "30", Megabytes(100)),
    ) else {
        return;
    };
    let mut top = Terminal::start(command(&machine, &["top"]), (80, 24));
    top.wait_for("serve");
    if dir.is_some() {
        std::thread::sleep(Duration::from_secs(40));
    }
    let keep = |name: &str, top: &Terminal| {
        let svg = top.svg();
        assert!(svg.contains("train") && svg.ends_with("</svg>\n"), "{svg}");
        if let Some(dir) = &dir {
            fs::write(dir.join(name), svg).expect("the directory is there");
        }
    };
    keep("top-80x24.svg", &top);
    top.press("\r");
    top.wait_for("in the swap file");
    keep("top-job-80x24.svg", &top);
    top.resize((200, 60));
    top.wait_for("compression ");
    keep("top-job-200x60.svg", &top);
    top.press("q");
    assert!(top.wait().success());
    train.end();
    serve.end();
}

/// Says this to a port of this machine, or to a socket, and returns the answer.
fn ask_metrics(mut stream: impl Read + Write) -> String {
    let question = b"GET /metrics HTTP/1.1\r\nHost: pleat\r\n\r\n";
    stream.write_all(question).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn metrics_are_served_while_a_job_runs_and_its_socket_goes_with_it() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(hold) = machine.hold() else { return };
    let (end, socket) = (
        machine.scratch().join("end"),
        machine.scratch().join("metrics"),
    );
    let at = socket.to_str().expect("a plain path");
    let job = machine.job(hold).arg("60").arg(&end).timeout(200);
    let job = job.budget(Megabytes(40));
    let running = job.pleat_args(["--name", "train", "--metrics", at]).spawn();
    running.wait_for_output("filled");
    let connect = || UnixStream::connect(&socket).expect("it listens");
    // One who says nothing holds up nobody for long, and nobody in the job.
    let mute = connect();
    let asked = Instant::now();
    let answer = ask_metrics(connect());
    assert!(asked.elapsed() < Duration::from_secs(5));
    drop(mute);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    let value = |name: &str| {
        let line = answer
            .lines()
            .find(|line| line.starts_with(name) && line.contains("name=\"train\""));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{name} in {answer}"))
    };
    assert_eq!(value("pleat_job_up{"), 1.0);
    assert_eq!(value("pleat_budget_bytes{"), (40 << 20) as f64);
    assert!(value("pleat_faults_total{") > 0.0 && value("pleat_pages_away{") > 0.0);
    assert_eq!(value("pleat_process_managed{"), 1.0);
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The same of all jobs, by the command.
    let all = pleat(&machine, &["metrics"]);
    assert!(all.status.success() && text(&all.stdout).contains("name=\"train\""));
    // A place that is taken is a mistake, and nothing is started.
    let taken = pleat(&machine, &["run", "--metrics", at, "--", "touch", "never"]);
    assert_eq!(taken.status.code(), Some(2));
    assert!(text(&taken.stderr).contains("somebody listens there already"));
    fs::write(&end, "").expect("scratch is writable");
    running.wait().expect_success();
    assert!(!socket.exists());
}
