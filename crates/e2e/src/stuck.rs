//! What the threads of a job are at that does not come to its end: where each waits in the kernel, whether
//! it gets on, and, where gdb is installed, what calls led there.

use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::tree;

/// Between two looks at the threads, to see which of them run.
const APART: Duration = Duration::from_secs(1);
const GDB_SECONDS: &str = "20";

/// A line and the kernel's stack for each thread of `pid` and all that descend from it, then backtraces of
/// `pid` itself.
pub fn describe(pid: i32) -> String {
    let mut pids = tree::descendants(pid);
    pids.insert(0, pid);
    let before: Vec<String> = pids.iter().flat_map(|&pid| threads(pid)).collect();
    std::thread::sleep(APART);
    let mut text =
        format!("its threads, {APART:?} apart (thread, name, state, CPU time, switches):\n");
    for line in before {
        let _ = writeln!(text, "  {line}");
    }
    for line in pids.iter().flat_map(|&pid| threads(pid)) {
        let _ = writeln!(text, "  {line}");
    }
    for pid in pids {
        let _ = writeln!(text, "{pid} is{}", stacks(pid));
    }
    text + &backtraces(pid)
}

/// One line a thread.
fn threads(pid: i32) -> Vec<String> {
    let lines = tasks(pid).into_iter().map(|task| {
        let read = |name: &str| fs::read_to_string(format!("{task}/{name}")).unwrap_or_default();
        let status = read("status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or("?").trim().to_owned()
        };
        format!(
            "{} {} {} {} {}+{}",
            field("Pid:"),
            field("Name:"),
            field("State:"),
            read("schedstat").split(' ').next().unwrap_or("?"),
            field("voluntary_ctxt_switches:"),
            field("nonvoluntary_ctxt_switches:"),
        )
    });
    lines.collect()
}

/// Where each thread of a process is in the kernel.
fn stacks(pid: i32) -> String {
    let stacks = tasks(pid).into_iter().map(|task| {
        let stack = fs::read_to_string(format!("{task}/stack")).unwrap_or_default();
        let calls = stack.lines().filter_map(|line| line.split(' ').nth(1));
        let calls: Vec<&str> = calls.collect();
        format!("\n  {task}: {}", calls.join(" < "))
    });
    stacks.collect()
}

fn tasks(pid: i32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let paths = entries.into_iter().flatten().flatten();
    paths
        .map(|entry| entry.path().display().to_string())
        .collect()
}

fn backtraces(pid: i32) -> String {
    let mut gdb = Command::new("timeout");
    gdb.args([GDB_SECONDS, "gdb", "-p", &pid.to_string(), "-batch"]);
    gdb.args(["-ex", "thread apply all backtrace 16"]);
    let Ok(output) = gdb.output() else {
        return String::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = |line: &&str| line.starts_with("Thread") || line.starts_with('#');
    let lines: Vec<&str> = text.lines().filter(told).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_a_sleeping_process_sleeps() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let text = describe(child.id() as i32);
        child.kill().and_then(|()| child.wait()).expect("ours");
        let looks = text.matches(" sleep ").count();
        assert!(looks >= 2 && text.contains("S (sleeping)"), "{text}");
    }
}
