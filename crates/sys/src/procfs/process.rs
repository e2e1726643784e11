//! Who a process is: its name, parents, children, threads, and where a thread last ran.
//!
//! The fault path asks for the last CPU of a faulting thread; the rest is for following a job's
//! processes. Command names are chosen by programs and may hold any bytes, parentheses included.
#![forbid(unsafe_code)]

use super::{kib_value, malformed, number, value, Pid};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Fields of /proc/PID/stat, numbered as in proc(5).
const FIELD_FLAGS: usize = 9;
const FIELD_PPID: usize = 4;
const FIELD_START_TIME: usize = 22;
const FIELD_LAST_CPU: usize = 39;

/// Fields of /proc/PID/status; memory in bytes, zero for kernel threads and processes that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Command name, at most 15 bytes, special characters escaped by the kernel.
    pub name: String,
    /// Thread group: the id of the process.
    pub tgid: Pid,
    /// Parent process.
    pub ppid: Pid,
    /// Number of threads.
    pub threads: u32,
    /// Resident anonymous memory.
    pub rss_anon_bytes: u64,
    /// Resident file mappings.
    pub rss_file_bytes: u64,
    /// Resident shared memory.
    pub rss_shmem_bytes: u64,
    /// Page tables.
    pub page_table_bytes: u64,
    /// What may be locked (mlock), whether it is there or not.
    pub locked_bytes: u64,
}

/// Reads /proc/PID/status; a thread id serves too.
///
/// # Errors
/// The process has ended, or the text is malformed.
pub fn status(pid: Pid) -> io::Result<Status> {
    let text = fs::read(format!("/proc/{pid}/status"))?;
    parse_status(&text).ok_or_else(|| malformed("status"))
}

fn parse_status(text: &[u8]) -> Option<Status> {
    let bytes = |key| match value(text, key) {
        None => Some(0),
        Some(_) => kib_value(text, key),
    };
    Some(Status {
        name: printable(value(text, "Name")?),
        tgid: number(value(text, "Tgid")?)?,
        ppid: number(value(text, "PPid")?)?,
        threads: number(value(text, "Threads")?)?,
        rss_anon_bytes: bytes("RssAnon")?,
        rss_file_bytes: bytes("RssFile")?,
        rss_shmem_bytes: bytes("RssShmem")?,
        page_table_bytes: bytes("VmPTE")?,
        locked_bytes: bytes("VmLck")?,
    })
}

/// A name that a program has chosen, without what would do something to a terminal.
fn printable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    name.replace(|letter: char| letter.is_control(), "?")
}

/// How many seccomp filters a process has; 0 where that cannot be told, or it has the strict mode.
pub fn seccomp_filters(pid: Pid) -> u32 {
    let text = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
    value(&text, "Seccomp_filters")
        .and_then(number)
        .unwrap_or(0)
}

/// Whether a thread has forbidden itself all but four system calls (seccomp's strict mode).
pub fn is_strict(tid: Pid) -> bool {
    let text = fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    value(&text, "Seccomp") == Some(b"1")
}

/// Limits of a process that keep it from being managed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Its address space is limited (`ulimit -v`).
    pub has_address_space: bool,
}

/// Reads /proc/PID/limits.
///
/// # Errors
/// The process has ended, or is another user's.
pub fn limits(pid: Pid) -> io::Result<Limits> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits"))?;
    Ok(parse_limits(&text))
}

fn parse_limits(text: &str) -> Limits {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max address space"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    Limits {
        has_address_space: soft.is_some_and(|soft| soft != "unlimited"),
    }
}

/// The process that a thread belongs to.
///
/// # Errors
/// The thread has ended.
pub fn tgid_of_thread(tid: Pid) -> io::Result<Pid> {
    status(tid).map(|status| status.tgid)
}

/// An open file that tells on which CPU a thread ran last. It stays with its thread.
pub struct LastCpuReader(File);

impl LastCpuReader {
    /// # Errors
    /// `NotFound` when there is no such thread.
    pub fn open(tid: Pid) -> io::Result<LastCpuReader> {
        // The file under task/ leaves out sums over all threads of the process.
        File::open(format!("/proc/{tid}/task/{tid}/stat")).map(LastCpuReader)
    }

    /// The CPU on which the thread runs or ran last. About 4 us, no allocation.
    ///
    /// # Errors
    /// ESRCH when the thread has ended.
    pub fn read(&self) -> io::Result<u32> {
        let mut text = [0; 1024];
        let len = self.0.read_at(&mut text, 0)?;
        stat_field(&text[..len], FIELD_LAST_CPU).ok_or_else(|| malformed("stat"))
    }
}

/// An open file that tells how long a thread ran. It stays with its thread.
pub struct CpuTimeReader(File);

impl CpuTimeReader {
    /// # Errors
    /// `NotFound` when there is no such thread.
    pub fn open(tid: Pid) -> io::Result<CpuTimeReader> {
        File::open(format!("/proc/{tid}/task/{tid}/schedstat")).map(CpuTimeReader)
    }

    /// CPU time in nanoseconds, exact for a thread that does not run just now. About 1 us.
    ///
    /// # Errors
    /// ESRCH when the thread has ended.
    pub fn read(&self) -> io::Result<u64> {
        let mut text = [0; 96];
        let len = self.0.read_at(&mut text, 0)?;
        let times = parse_schedstat(&text[..len]);
        times
            .map(|(used_ns, _)| used_ns)
            .ok_or_else(|| malformed("schedstat"))
    }
}

/// How long a thread ran, and waited for a CPU, since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Its id.
    pub thread: Pid,
    /// Nanoseconds of CPU time.
    pub used_ns: u64,
    /// Nanoseconds in which it could have run and others did.
    pub waited_ns: u64,
}

impl ThreadTimes {
    /// The times of one thread; about 8 us.
    ///
    /// # Errors
    /// The thread has ended, or the kernel keeps no such times (built without CONFIG_SCHED_INFO).
    pub fn of(thread: Pid) -> io::Result<ThreadTimes> {
        let text = fs::read(format!("/proc/{thread}/task/{thread}/schedstat"))?;
        let (used_ns, waited_ns) = parse_schedstat(&text).ok_or_else(|| malformed("schedstat"))?;
        Ok(ThreadTimes {
            thread,
            used_ns,
            waited_ns,
        })
    }

    /// The same of the first `most` threads of a process. Those that end meanwhile are left out.
    ///
    /// # Errors
    /// The process has ended, or the kernel keeps no such times.
    pub fn of_process(pid: Pid, most: usize) -> io::Result<Vec<ThreadTimes>> {
        let entries = fs::read_dir(format!("/proc/{pid}/task"))?.take(most);
        let names = entries.filter_map(|entry| number(entry.ok()?.file_name().as_encoded_bytes()));
        let times: Vec<_> = names.flat_map(ThreadTimes::of).collect();
        match times.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(times),
        }
    }
}

/// `ran waited slices`, the first two in nanoseconds.
fn parse_schedstat(text: &[u8]) -> Option<(u64, u64)> {
    let mut fields = text.split(|&byte| byte == b' ');
    Some((number(fields.next()?)?, number(fields.next()?)?))
}

/// Whether a thread of that id belongs to the process. It does not where another PID namespace has given it.
#[must_use]
pub fn is_thread_of(pid: Pid, tid: Pid) -> bool {
    std::path::Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// The thread of a process that has this number in the PID namespace it is in itself. That is asked of the kernel, which tells the
/// numbers of a thread in all of them, the innermost last.
#[must_use]
pub fn thread_called(pid: Pid, name: Pid) -> Option<Pid> {
    let is_called =
        |tid: &Pid| called_by_itself(&format!("/proc/{pid}/task/{tid}/status")) == Some(name);
    // Where it is in no other namespace.
    if is_called(&name) {
        return Some(name);
    }
    let entries = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut threads = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    threads.find(is_called)
}

/// The number of a thread of a process in the PID namespace it is in itself.
#[must_use]
pub fn own_thread_number(pid: Pid, tid: Pid) -> Option<Pid> {
    called_by_itself(&format!("/proc/{pid}/task/{tid}/status"))
}

/// Whether a thread of a process is ending, or has: it runs nothing of its program any more.
#[must_use]
pub fn is_ending(pid: Pid, tid: Pid) -> bool {
    const EXITING: u64 = 4;
    let stat = fs::read(format!("/proc/{pid}/task/{tid}/stat"));
    let flags = stat
        .ok()
        .and_then(|line| stat_field::<u64>(&line, FIELD_FLAGS));
    flags.is_none_or(|flags| flags & EXITING != 0)
}

/// The number of a process in the PID namespace it is in itself.
#[must_use]
pub fn own_number(pid: Pid) -> Option<Pid> {
    called_by_itself(&format!("/proc/{pid}/status"))
}

fn called_by_itself(status: &str) -> Option<Pid> {
    let text = fs::read(status).ok()?;
    let names = value(&text, "NSpid")?;
    number(names.rsplit(|&b| b == b'\t').next()?)
}

/// [`LastCpuReader`] for a single reading: 10 us.
///
/// # Errors
/// The thread has ended.
pub fn last_cpu_of_thread(tid: Pid) -> io::Result<u32> {
    LastCpuReader::open(tid)?.read()
}

/// When a process started, in clock ticks since boot. With its id it names a process for good.
///
/// # Errors
/// The process has ended.
pub fn start_time(pid: Pid) -> io::Result<u64> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    stat_field(&text, FIELD_START_TIME).ok_or_else(|| malformed("stat"))
}

/// The parent of a process; 0 where this PID namespace does not have it.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn parent(pid: Pid) -> io::Result<Pid> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    stat_field(&text, FIELD_PPID).ok_or_else(|| malformed("stat"))
}

/// The user whose process it is (the real one).
///
/// # Errors
/// As for [`parent`].
pub fn real_uid(pid: Pid) -> io::Result<u32> {
    let text = fs::read(format!("/proc/{pid}/status"))?;
    let real = value(&text, "Uid").and_then(|ids| number(ids.split(|&b| b == b'\t').next()?));
    real.ok_or_else(|| malformed("status"))
}

/// Program and arguments of a process, as it shows them; nothing where it is gone.
pub fn command_line(pid: Pid) -> Vec<OsString> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = text.strip_suffix(&[0]).unwrap_or(&text);
    let words = text.split(|&byte| byte == 0);
    words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

/// All processes.
pub fn pids() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Pid>().ok());
    pids.collect()
}

/// All processes of these users.
pub fn of_users(users: &HashSet<u32>) -> Vec<Pid> {
    let mut pids = pids();
    pids.retain(|pid| real_uid(*pid).is_ok_and(|user| users.contains(&user)));
    pids
}

/// Whether /proc is there and numbers processes as we do.
pub fn shows_us() -> bool {
    let own = fs::read_link("/proc/self").ok();
    own.is_some_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

/// Where a thread sleeps in the kernel, by the name of a function; empty where that may not be known.
pub fn sleeps_in(tid: Pid) -> String {
    fs::read_to_string(format!("/proc/{tid}/wchan")).unwrap_or_default()
}

/// Whether a process is in our PID namespace, where its threads call themselves what we call them.
pub fn shares_numbers(pid: Pid) -> bool {
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    of("self").is_some_and(|own| of(&pid.to_string()) == Some(own))
}

/// The executable of a process; " (deleted)" is appended when it has been removed.
///
/// # Errors
/// The process has ended, may not be looked at, or is a kernel thread.
pub fn exe(pid: Pid) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe"))
}

/// Field `index` (from 4 on) of a stat line: `pid (command) state ppid ...`. The command may hold
/// parentheses and spaces, but nothing after it does.
fn stat_field<T: std::str::FromStr>(line: &[u8], index: usize) -> Option<T> {
    let line = line.strip_suffix(b"\n")?;
    let command_end = line.iter().rposition(|&byte| byte == b')')?;
    let after_command = line[command_end + 1..].strip_prefix(b" ")?;
    number(after_command.split(|&byte| byte == b' ').nth(index - 3)?)
}

/// All processes that descend from `pid`, itself not among them, every parent before its children.
///
/// A process whose parent ended has been adopted and is missing, unless by one of these.
pub fn descendants(pid: Pid) -> Vec<Pid> {
    descendants_without(pid, &[])
}

/// The same without `left_out`, and what descends from these.
pub fn descendants_without(pid: Pid, left_out: &[Pid]) -> Vec<Pid> {
    let mut all_children = None;
    let mut found = vec![pid];
    let mut seen: HashSet<Pid> = left_out.iter().copied().collect();
    seen.insert(pid);
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        let children = children_of(parent).unwrap_or_else(|| {
            let table = all_children.get_or_insert_with(children_of_all);
            table.get(&parent).cloned().unwrap_or_default()
        });
        // An id that is used again while we look could otherwise lead in a circle.
        found.extend(children.into_iter().filter(|&child| seen.insert(child)));
    }
    found.remove(0);
    found
}

/// The children of a process.
#[must_use]
pub fn children(pid: Pid) -> Vec<Pid> {
    let of_all = || children_of_all().remove(&pid).unwrap_or_default();
    children_of(pid).unwrap_or_else(of_all)
}

/// The children of all threads of a process; `None` where the kernel was built without that list.
fn children_of(pid: Pid) -> Option<Vec<Pid>> {
    let mut children = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Some(children); // It has ended.
    };
    for thread in threads.flatten() {
        match fs::read(thread.path().join("children")) {
            Ok(text) => children.extend(text.split(|&byte| byte == b' ').filter_map(number::<Pid>)),
            Err(_) if thread.path().exists() => return None,
            Err(_) => {} // The thread has ended.
        }
    }
    Some(children)
}

/// The children of every process, from the parent that each names.
fn children_of_all() -> HashMap<Pid, Vec<Pid>> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for pid in pids() {
        let parent = fs::read(format!("/proc/{pid}/stat"))
            .ok()
            .and_then(|line| stat_field::<Pid>(&line, FIELD_PPID));
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// CPU 1, parent 17649, started at tick 277374.
    const AFTER_COMMAND: &str =
        "R 17649 17649 3265 0 -1 4194304 101 0 0 0 0 0 0 0 20 0 1 0 277374 \
        3133440 418 18446744073709551615 94226724974592 94226724994473 140737271327296 0 0 0 0 0 0 \
        0 0 0 17 1 0 0 0 0 0 94226725010480 94226725012096 94227059998720 140737271331317\n";

    /// A shell with a child `sleep`; both end when this is dropped.
    struct Family(Child);

    impl Family {
        fn start() -> Family {
            let script = "sleep 60 & echo; wait";
            let mut shell = Command::new("sh")
                .args(["-c", script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = [0; 1];
            std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
            Family(shell)
        }
        fn shell(&self) -> Pid {
            self.0.id() as Pid
        }
    }

    impl Drop for Family {
        fn drop(&mut self) {
            for pid in descendants(self.shell()) {
                let _ = Command::new("kill").arg(pid.to_string()).status();
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_a_thread_uses_and_waits_for_adds_up() {
        let me = std::process::id() as Pid;
        let own = crate::process::own_thread();
        // Others run other tests, and end.
        let used = || {
            let threads = ThreadTimes::of_process(me, 1024).unwrap();
            let mut threads = threads.iter().filter(|times| times.thread == own);
            threads.next().map(|times| times.used_ns)
        };
        let before = used();
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        assert!(before.is_some() && used() > before);
        assert_eq!(parse_schedstat(b"17 4 2\n"), Some((17, 4)));
        assert_eq!(parse_schedstat(b"17\n"), None);
        assert!(ThreadTimes::of(Pid::MAX).is_err());
    }

    #[test]
    fn stat_fields_are_found_behind_any_command_name() {
        for name in ["cat", "a b", ") R 1 (", "((", "x)", ""] {
            let line = format!("17659 ({name}) {AFTER_COMMAND}");
            assert_eq!(
                stat_field(line.as_bytes(), FIELD_LAST_CPU),
                Some(1u32),
                "{name}"
            );
            assert_eq!(
                stat_field(line.as_bytes(), FIELD_PPID),
                Some(17649u32),
                "{name}"
            );
            assert_eq!(
                stat_field(line.as_bytes(), FIELD_START_TIME),
                Some(277374u64),
                "{name}"
            );
        }
    }

    #[test]
    fn a_stat_line_cut_short_is_refused() {
        let line = format!("17659 (cat) {AFTER_COMMAND}");
        for end in 0..line.len() {
            assert_eq!(
                stat_field::<u32>(&line.as_bytes()[..end], FIELD_LAST_CPU),
                None
            );
        }
    }

    #[test]
    fn status_without_memory_is_that_of_a_kernel_thread() {
        let text = b"Name:\tkworker/0:1\nTgid:\t12\nPPid:\t2\nThreads:\t1\n";
        let status = parse_status(text).unwrap();
        assert_eq!(
            (status.name.as_str(), status.tgid, status.ppid),
            ("kworker/0:1", 12, 2)
        );
        assert_eq!(status.rss_anon_bytes, 0);
        assert_eq!(parse_status(b"Name:\tx\nTgid:\t12\nPPid:\t2\n"), None);
        assert_eq!(
            parse_status(&[text, &b"RssAnon:\tmany kB\n"[..]].concat()),
            None
        );
    }

    #[test]
    fn own_status_is_that_of_this_process() {
        let own = std::process::id() as Pid;
        let status = status(own).unwrap();
        assert_eq!(status.tgid, own);
        assert_eq!(status.ppid, std::os::unix::process::parent_id() as Pid);
        assert!(status.threads >= 1 && status.rss_anon_bytes > 0 && status.page_table_bytes > 0);
        assert_eq!(exe(own).unwrap(), std::env::current_exe().unwrap());
    }

    #[test]
    fn a_thread_is_found_by_its_own_id() {
        let own = std::process::id() as Pid;
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || receive.recv());
        for entry in fs::read_dir(format!("/proc/{own}/task")).unwrap().flatten() {
            let tid = entry.file_name().to_str().unwrap().parse().unwrap();
            // Threads of other tests may end at any moment; those that have not must agree.
            assert!(tgid_of_thread(tid).is_ok_and(|tgid| tgid == own) || !entry.path().exists());
            let ran = CpuTimeReader::open(tid).and_then(|reader| reader.read());
            assert!(ran.is_ok() || !entry.path().exists());
            assert!(last_cpu_of_thread(tid).is_ok_and(|cpu| cpu < 4096) || !entry.path().exists());
        }
        drop(send);
        let _ = waiting.join();
    }

    #[test]
    fn children_and_grandchildren_are_found_both_ways() {
        let family = Family::start();
        let own = std::process::id() as Pid;
        let sleeper = descendants(family.shell());
        assert_eq!(sleeper.len(), 1, "{sleeper:?}");
        assert_eq!(status(sleeper[0]).unwrap().ppid, family.shell());
        let all = descendants(own);
        let place = |pid| all.iter().position(|&other| other == pid).unwrap();
        assert!(place(family.shell()) < place(sleeper[0]));
        assert!(!all.contains(&own));
        let table = children_of_all();
        assert_eq!(table[&family.shell()], sleeper);
        assert!(table[&own].contains(&family.shell()));
        assert!(start_time(family.shell()).unwrap() >= start_time(own).unwrap());
    }
}
