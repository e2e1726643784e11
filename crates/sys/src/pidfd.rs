//! Which process is meant, and whose child it is: descriptors that stand for processes instead of numbers,
//! which the kernel gives to others as soon as a process is gone.
//!
//! A number read somewhere (a listing, a message) is only worth something together with a descriptor that is
//! still alive *after* everything was read by that number: then the number was this process's all the time.

use crate::process::{pidfd, readable, signal, wait};
use crate::procfs::{descendants_without, parent, Pid};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Not yet in `libc` for every target; the same on all that pleat runs on.
const SO_PEERPIDFD: libc::c_int = 77;
/// Generations between a process and the supervisor. More are taken for none of the job's: each costs two
/// reads for every connection.
const GENERATIONS_MAX: usize = 512;
/// So often a line is walked in which somebody ends meanwhile.
const WALKS_MAX: usize = 8;
/// While processes are killed others may fork: so often they are looked for.
const ROUNDS_MAX: usize = 8;

/// Who is at the other end of a connection, by the kernel's word.
#[derive(Debug)]
pub struct Peer {
    /// Its process id, as we number processes.
    pub pid: Pid,
    /// The user it ran as when it connected.
    pub uid: u32,
    /// Stands for it.
    pub pidfd: OwnedFd,
}

/// The process that connected a socket.
///
/// # Errors
/// ENOPROTOOPT before Linux 6.5 (pleat needs 6.8); when that process is gone.
pub fn of_peer(socket: RawFd) -> io::Result<OwnedFd> {
    let mut fd: RawFd = -1;
    let mut size = size_of::<RawFd>() as libc::socklen_t;
    // SAFETY: the option's value is one descriptor, for which there is room.
    let result = unsafe {
        let value = (&raw mut fd).cast();
        libc::getsockopt(socket, libc::SOL_SOCKET, SO_PEERPIDFD, value, &mut size)
    };
    if result < 0 || fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made it for this call, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether a process has ended: a zombie has.
pub fn has_ended(pidfd: &impl AsRawFd) -> bool {
    let mut fds = [readable(pidfd.as_raw_fd())];
    wait(&mut fds, Some(Duration::ZERO));
    fds[0].revents != 0
}

/// The ancestors of the process behind `pidfd`, whose number is `pid`, up to `ancestor`, nearest first.
/// `None`: it does not descend from that, or has ended.
///
/// The caller is `ancestor`, or holds a descriptor of it that is alive afterwards.
pub fn lineage(pid: Pid, pidfd: &impl AsRawFd, ancestor: Pid) -> Option<Vec<Pid>> {
    match walk(pid, pidfd, &mut |at| at == ancestor)? {
        Line::Of(line) => Some(line),
        _ => None,
    }
}

/// All ancestors of the process behind `pidfd`, whose number is `pid`, nearest first, as far as this PID namespace has them.
/// `None`: it has ended.
pub fn ancestors(pid: Pid, pidfd: &impl AsRawFd) -> Option<Vec<Pid>> {
    match walk(pid, pidfd, &mut |_| false)? {
        Line::Elsewhere(line) => Some(line),
        _ => None,
    }
}

/// Walks from a process towards an ancestor until nobody ends meanwhile; `None` where the process itself has ended.
fn walk(pid: Pid, pidfd: &impl AsRawFd, is_wanted: &mut dyn FnMut(Pid) -> bool) -> Option<Line> {
    for _ in 0..WALKS_MAX {
        let line = line_of(pid, is_wanted, &mut |pid| parent(pid));
        // Alive after all was read by its number: the number was its own.
        match line {
            _ if has_ended(pidfd) => return None,
            Line::Changed => {}
            line => return Some(line),
        }
    }
    None
}

/// What a walk from a process towards an ancestor has found.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// These, the ancestor last.
    Of(Vec<Pid>),
    /// These, and none of them is that one.
    Elsewhere(Vec<Pid>),
    /// Somebody in it has ended meanwhile, and his children have another parent.
    Changed,
}

/// The line of parents up to the one that is looked for, read upwards and then downwards.
///
/// A parent may end in between, and its number be given to another. But then its child has another parent when
/// it is asked again; and as it is asked after the parent was, the parent that was asked is the child's. From
/// the first process, whose descriptor vouches for it, that goes up link by link.
fn line_of(
    pid: Pid,
    is_wanted: &mut dyn FnMut(Pid) -> bool,
    parent_of: &mut dyn FnMut(Pid) -> io::Result<Pid>,
) -> Line {
    let (mut line, mut at, mut is_found) = (Vec::new(), pid, false);
    // Not of itself. 0: a parent that this PID namespace does not have.
    while !is_found && at > 1 && line.len() < GENERATIONS_MAX && !is_wanted(pid) {
        let Ok(parent) = parent_of(at) else {
            return Line::Changed;
        };
        at = parent;
        line.push(at);
        is_found = is_wanted(at);
    }
    for nth in (0..line.len()).rev() {
        let child = if nth == 0 { pid } else { line[nth - 1] };
        if parent_of(child).ok() != Some(line[nth]) {
            return Line::Changed;
        }
    }
    match is_found {
        true => Line::Of(line),
        false => Line::Elsewhere(line),
    }
}

/// A descriptor for a process that descends from `ancestor`; `None` if it does not, or is gone.
pub fn of_descendant(pid: Pid, ancestor: Pid) -> Option<OwnedFd> {
    let fd = pidfd(pid).ok()?;
    lineage(pid, &fd, ancestor).map(|_| fd)
}

/// Kills what descends from `ancestor`, but neither `spared` nor what descends from these. No number that is another process's by now is meant.
pub fn kill_descendants(ancestor: Pid, spared: &[Pid]) {
    for _ in 0..ROUNDS_MAX {
        let found = descendants_without(ancestor, spared);
        let alive: Vec<OwnedFd> = found
            .into_iter()
            .filter_map(|pid| of_descendant(pid, ancestor))
            .collect();
        if alive.is_empty() {
            return;
        }
        for fd in alive {
            signal(fd.as_raw_fd(), libc::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::process::{Command, Stdio};

    fn of(parents: &[(Pid, Pid)]) -> HashMap<Pid, Pid> {
        parents.iter().copied().collect()
    }

    fn walk(tree: &HashMap<Pid, Pid>, pid: Pid, ancestor: Pid) -> Line {
        let mut parent_of = |pid| {
            tree.get(&pid)
                .copied()
                .ok_or(io::ErrorKind::NotFound.into())
        };
        line_of(pid, &mut |at| at == ancestor, &mut parent_of)
    }

    #[test]
    fn only_descendants_have_a_line() {
        let tree = of(&[(50, 40), (40, 30), (30, 1), (60, 1), (70, 0)]);
        assert_eq!(walk(&tree, 50, 30), Line::Of(vec![40, 30]));
        assert_eq!(walk(&tree, 40, 30), Line::Of(vec![30]));
        let elsewhere = |line: &[Pid]| Line::Elsewhere(line.to_vec());
        assert_eq!(walk(&tree, 30, 30), elsewhere(&[]), "not of itself");
        assert_eq!(walk(&tree, 60, 30), elsewhere(&[1]));
        let unseen = walk(&tree, 70, 30);
        assert_eq!(unseen, elsewhere(&[0]), "its parent is not seen here");
        assert_eq!(walk(&tree, 99, 30), Line::Changed);
        let circle = of(&[(5, 6), (6, 5)]);
        assert!(
            matches!(walk(&circle, 5, 30), Line::Elsewhere(line) if line.len() == GENERATIONS_MAX)
        );
    }

    #[test]
    fn a_parent_whose_number_was_given_to_one_of_the_job_is_no_way_in() {
        // 50 is no descendant of 30. Its parent 40 ends after it was named, and 40 is a child of 30 next.
        let mut asked = 0;
        let mut parent_of = |pid: Pid| {
            asked += 1;
            Ok(match (pid, asked) {
                (50, 1) => 40,
                (40, _) => 30,
                _ => 1,
            })
        };
        let line = line_of(50, &mut |at| at == 30, &mut parent_of);
        assert_eq!(line, Line::Changed);
    }

    #[test]
    fn a_child_descends_from_us_until_it_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (pid, own) = (child.id() as Pid, std::process::id() as Pid);
        let fd = pidfd(pid).unwrap();
        assert_eq!(lineage(pid, &fd, own), Some(vec![own]));
        assert_eq!(ancestors(pid, &fd).unwrap().first(), Some(&own));
        assert!(of_descendant(1, own).is_none() && of_descendant(own, own).is_none());
        drop(child.stdin.take());
        while !has_ended(&fd) {
            std::thread::yield_now();
        }
        // A zombie still has its number, and no say any more.
        assert_eq!(lineage(pid, &fd, own), None);
        child.wait().unwrap();
    }
}
