//! A real Prometheus reads the figures, and answers every question of the dashboard in `contrib/`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pleat_e2e::{eventually, Machine, Megabytes};
use serde_json::Value;

const DASHBOARD: &str = include_str!("../../../contrib/grafana-pleat.json");

/// Ended when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `pleat metrics` at a port that the kernel chooses, and where that is.
fn metrics(machine: &Machine) -> (Server, String) {
    let mut child = Command::new(machine.pleat())
        .args(["metrics", "--listen", "0"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("pleat runs");
    let stderr = child.stderr.take().expect("it is a pipe");
    let server = Server(child);
    let mut line = String::new();
    BufReader::new(stderr).read_line(&mut line).expect("a line");
    let at = line.trim().strip_prefix("pleat: metrics at http://");
    let at = at.and_then(|at| at.strip_suffix("/metrics"));
    (server, at.expect(&line).to_owned())
}

/// Prometheus, with its data in `dir`, and where it listens.
fn prometheus(dir: &Path, target: &str) -> (Server, String) {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let at = port.expect("there is a port").to_string();
    let config = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: pleat\n    static_configs:\n      - targets: ['{target}']\n"
    );
    fs::write(dir.join("prometheus.yml"), config).expect("scratch is writable");
    let log = fs::File::create(dir.join("prometheus.log")).expect("scratch is writable");
    let child = Command::new("prometheus")
        .arg(format!(
            "--config.file={}",
            dir.join("prometheus.yml").display()
        ))
        .arg(format!(
            "--storage.tsdb.path={}",
            dir.join("data").display()
        ))
        .arg(format!("--web.listen-address={at}"))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("it is installed");
    (Server(child), at)
}

/// What Prometheus answers; `None` while it cannot be asked.
fn ask(at: &str, question: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .ok()?;
    let encoded: String = question
        .bytes()
        .map(|byte| format!("%{byte:02x}"))
        .collect();
    let head = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: {at}\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    serde_json::from_str(body).ok()
}

/// Every expression of the dashboard, with its variables as Grafana fills them in.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let filled = |text: &str| {
        let text = text.replace("$instance", ".*").replace("$job_name", ".*");
        text.replace("$__rate_interval", "5s")
    };
    targets
        .map(|target| filled(target["expr"].as_str().expect("an expression")))
        .collect()
}

#[test]
fn prometheus_reads_the_figures_and_answers_the_dashboard() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(hold) = machine.hold() else { return };
    if !machine.installed(&["prometheus"]) {
        return;
    }
    let end = machine.scratch().join("end");
    let job = machine.job(hold).arg("60").arg(&end).timeout(200);
    let running = job
        .budget(Megabytes(40))
        .pleat_args(["--name", "train"])
        .spawn();
    running.wait_for_output("filled");
    let (_metrics, target) = metrics(&machine);
    let (_prometheus, at) = prometheus(machine.scratch(), &target);
    let value = |question: &str| {
        let answer = ask(&at, question)?;
        let value = answer["data"]["result"][0]["value"][1].as_str()?;
        value.parse::<f64>().ok()
    };
    let is_read = || value("pleat_job_up{name=\"train\"}") == Some(1.0);
    let log = || fs::read_to_string(machine.scratch().join("prometheus.log")).unwrap_or_default();
    assert!(eventually(Duration::from_secs(60), is_read), "{}", log());
    assert_eq!(value("up{job=\"pleat\"}"), Some(1.0));
    assert_eq!(value("pleat_budget_bytes"), Some((40 << 20) as f64));
    // Prometheus knows what only grows, and the words of HELP.
    let rate = || value("rate(pleat_faults_total[5s])") > Some(0.0);
    assert!(eventually(Duration::from_secs(30), rate));
    let expressions = expressions();
    assert!(expressions.len() > 20);
    for expression in &expressions {
        let is_answered = || value(expression).is_some_and(|value| value.is_finite());
        assert!(
            eventually(Duration::from_secs(10), is_answered),
            "{expression}: {:?}",
            ask(&at, expression)
        );
    }
    fs::write(&end, "").expect("scratch is writable");
    running.wait().expect_success();
}
