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
