//! Which processes descend from which, read from /proc.

use std::fs;
use std::path::Path;

struct Stat {
    state: char,
    parent: i32,
}

/// None when the process is gone.
fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and parentheses; the fields begin after the last one.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Stat { state, parent })
}

/// Whether the process still runs; a zombie that nobody waited for yet does not.
pub fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|s| !matches!(s.state, 'Z' | 'X'))
}

fn all_pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// Children, grandchildren and so on of `ancestor`, without itself.
pub fn descendants(ancestor: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = all_pids()
        .into_iter()
        .filter_map(|pid| Some((pid, stat(pid)?.parent)))
        .collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|p| p.1 == parent).map(|p| p.0));
        next += 1;
    }
    found.split_off(1)
}

/// Every living process that works in `dir`, as each process of a job works in the scratch directory.
pub fn working_in(dir: &Path) -> Vec<i32> {
    let works_there = |pid: &i32| {
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == dir) && is_alive(*pid)
    };
    all_pids().into_iter().filter(works_there).collect()
}

/// Every thread of this process and of its descendants, a line each: what it is, what it does, where in the kernel it waits,
/// and how long it has computed, in clock ticks.
pub fn threads(ancestor: i32) -> String {
    let pids = [ancestor].into_iter().chain(descendants(ancestor));
    let tasks = pids.flat_map(|pid| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        let tasks = tasks.into_iter().flatten().flatten();
        tasks.map(move |task| describe(pid, &task.path()))
    });
    tasks.collect::<Vec<_>>().join("\n")
}

fn describe(pid: i32, task: &Path) -> String {
    const USER_AND_SYSTEM_TICKS: std::ops::Range<usize> = 11..13;
    let read = |name| fs::read_to_string(task.join(name)).unwrap_or_default();
    let (comm, place, stat) = (read("comm"), read("wchan"), read("stat"));
    let fields = stat.rfind(')').map_or("", |end| &stat[end + 1..]);
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let state = fields.first().unwrap_or(&"?");
    let ticks = fields.get(USER_AND_SYSTEM_TICKS).unwrap_or_default();
    let comm = comm.trim_end();
    format!("{pid} {comm}: {state} {place} {}", ticks.join("+"))
}
