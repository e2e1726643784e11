//! How much memory there is to use: limits of the memory cgroup and what the machine has left.
//!
//! The command line takes its default budget from here. Both cgroup versions are understood, also
//! mounted side by side; of all limits from the process's own group up to the mount the least holds.
#![forbid(unsafe_code)]

use crate::job_group::Version;
use crate::procfs::Pid;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The file of a group's limit in cgroup v2.
const V2_LIMIT: &str = "memory.max";

/// The memory limit that holds for this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLimit {
    /// Most memory that the group may use, page cache included.
    pub bytes: u64,
    /// Directory of the group that sets the limit.
    pub path: PathBuf,
}

/// cgroup v1 writes "no limit" as a number just below 2^63, rounded down to a page.
const V1_UNLIMITED_FROM: u64 = 1 << 62;

/// The least memory limit of the cgroups this process is in; `None` when there is none, or no
/// cgroup file system to tell.
pub fn memory_cgroup_limit() -> Option<CgroupLimit> {
    least(limits_told_by("/proc/self/cgroup"))
}

/// Every memory limit of the cgroups that another process is in, as far as this one sees them.
pub fn memory_cgroup_limits_of(pid: Pid) -> Vec<CgroupLimit> {
    limits_told_by(&format!("/proc/{pid}/cgroup"))
}

/// The least memory limit that any of these processes is under, as far as this one sees them.
pub fn least_memory_limit_of(pids: &[Pid]) -> Option<CgroupLimit> {
    let limits = pids.iter().copied().flat_map(memory_cgroup_limits_of);
    least(limits.collect())
}

fn limits_told_by(cgroup: &str) -> Vec<CgroupLimit> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let groups = fs::read_to_string(cgroup).unwrap_or_default();
    all_limits(&memory_groups(&mounts, &groups), |path| {
        fs::read_to_string(path).ok()
    })
}

/// Memory that the machine could give without swapping, in bytes (MemAvailable).
///
/// # Errors
/// /proc/meminfo cannot be read or has no such line.
pub fn mem_available_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    parse_mem_available(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "/proc/meminfo has no MemAvailable",
        )
    })
}

/// Memory that the machine has, in bytes (MemTotal); `None` where the kernel does not say.
pub fn mem_total_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    parse_meminfo(&text, "MemTotal:")
}

fn parse_mem_available(meminfo: &str) -> Option<u64> {
    parse_meminfo(meminfo, "MemAvailable:")
}

fn parse_meminfo(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The group of this process in one hierarchy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Where the hierarchy is mounted: no limit is looked for above.
    mount: PathBuf,
    /// Directory of the group, `mount` or below it.
    directory: PathBuf,
    limit_file: &'static str,
}

impl Group {
    /// The group's directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The version of the cgroup file system it is in.
    pub(crate) fn version(&self) -> Version {
        match self.limit_file {
            V2_LIMIT => Version::V2,
            _ => Version::V1,
        }
    }
}

/// The groups that may limit memory, from /proc/self/mountinfo and /proc/self/cgroup.
pub(crate) fn memory_groups(mountinfo: &str, cgroup: &str) -> Vec<Group> {
    mountinfo
        .lines()
        .filter_map(|line| memory_group(line, cgroup))
        .collect()
}

/// `id parent device root mount options... - type source super-options`
fn memory_group(mount_line: &str, cgroup: &str) -> Option<Group> {
    let (before, after) = mount_line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, mount) = (
        unescape(before.next()?),
        PathBuf::from(unescape(before.next()?)),
    );
    let mut after = after.split(' ');
    let limit_file = match (after.next()?, after.nth(1)?) {
        ("cgroup2", _) => V2_LIMIT,
        ("cgroup", options) if options.split(',').any(|o| o == "memory") => "memory.limit_in_bytes",
        _ => return None,
    };
    let path = match limit_file {
        V2_LIMIT => group_path(cgroup, |controllers| controllers.is_empty()),
        _ => group_path(cgroup, |controllers| {
            controllers.split(',').any(|c| c == "memory")
        }),
    }?;
    let directory = match Path::new(path).strip_prefix(&root) {
        Ok(below)
            if below
                .components()
                .all(|c| matches!(c, Component::Normal(_))) =>
        {
            mount.iter().chain(below).collect()
        }
        // A container sees its own group mounted, but may be told of it by the path outside.
        _ => mount.clone(),
    };
    Some(Group {
        mount,
        directory,
        limit_file,
    })
}

/// The path of the line `id:controllers:path` whose controllers are the wanted ones.
fn group_path(cgroup: &str, wanted: impl Fn(&str) -> bool) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        wanted(controllers).then_some(path)
    })
}

fn least(limits: Vec<CgroupLimit>) -> Option<CgroupLimit> {
    limits.into_iter().min_by_key(|limit| limit.bytes)
}

fn all_limits(groups: &[Group], read: impl Fn(&Path) -> Option<String>) -> Vec<CgroupLimit> {
    groups
        .iter()
        .flat_map(|group| {
            let up = group.directory.ancestors();
            up.take_while(|path| path.starts_with(&group.mount))
                .map(|path| (path, group.limit_file))
        })
        .filter_map(|(path, limit_file)| {
            let bytes = parse_limit(&read(&path.join(limit_file))?)?;
            Some(CgroupLimit {
                bytes,
                path: path.to_owned(),
            })
        })
        .collect()
}

/// `None` for "max" and for v1's huge numbers.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim()
        .parse()
        .ok()
        .filter(|&bytes| bytes < V1_UNLIMITED_FROM)
}

/// mountinfo writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(field: &str) -> String {
    let mut plain = String::new();
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = after
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                rest = &after[3..];
            }
            None => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const V1_GROUPS: &str = "5:devices:/\n4:memory:/batch/job 7\n1:name=systemd:/x\n0::/\n";
    const V2_MOUNTS: &str = "\
25 30 0:23 / /proc rw,nosuid - proc proc rw
33 24 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";
    const V2_GROUPS: &str = "0::/user.slice/user-1000.slice/term-3.scope\n";
    const NO_LIMIT: &str = "9223372036854771712\n";

    fn limit(mounts: &str, groups: &str, files: &[(&str, &str)]) -> Option<(u64, String)> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        least(all_limits(&memory_groups(mounts, groups), read))
            .map(|limit| (limit.bytes, limit.path.to_str().unwrap().to_owned()))
    }

    #[test]
    fn v1_limit_of_a_parent_holds_when_it_is_less() {
        let files = [
            (
                "/sys/fs/cgroup/memory/batch/job 7/memory.limit_in_bytes",
                "2147483648\n",
            ),
            (
                "/sys/fs/cgroup/memory/batch/memory.limit_in_bytes",
                "1073741824\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT),
        ];
        let expected = Some((1 << 30, "/sys/fs/cgroup/memory/batch".to_owned()));
        assert_eq!(limit(V1_MOUNTS, V1_GROUPS, &files), expected);
        let expected = Some((2 << 30, "/sys/fs/cgroup/memory/batch/job 7".to_owned()));
        assert_eq!(limit(V1_MOUNTS, V1_GROUPS, &files[..1]), expected);
    }

    #[test]
    fn v1_huge_value_is_no_limit() {
        let files = [
            (
                "/sys/fs/cgroup/memory/batch/job 7/memory.limit_in_bytes",
                NO_LIMIT,
            ),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854775807\n",
            ),
        ];
        assert_eq!(limit(V1_MOUNTS, V1_GROUPS, &files), None);
    }

    #[test]
    fn v2_least_of_all_ancestors_holds() {
        let files = [
            (
                "/sys/fs/cgroup/user.slice/user-1000.slice/term-3.scope/memory.max",
                "max\n",
            ),
            (
                "/sys/fs/cgroup/user.slice/user-1000.slice/memory.max",
                "500000000\n",
            ),
            ("/sys/fs/cgroup/user.slice/memory.max", "800000000\n"),
        ];
        let path = "/sys/fs/cgroup/user.slice/user-1000.slice".to_owned();
        assert_eq!(
            limit(V2_MOUNTS, V2_GROUPS, &files),
            Some((500_000_000, path))
        );
        assert_eq!(limit(V2_MOUNTS, V2_GROUPS, &files[..1]), None);
    }

    #[test]
    fn a_container_finds_its_limit_at_the_mount() {
        let mounts = "40 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let files = [("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096000\n")];
        let expected = Some((4_096_000, "/sys/fs/cgroup/memory".to_owned()));
        for path in ["/docker/abc", "/elsewhere/def", "/../../x"] {
            let groups = format!("4:cpu,memory:{path}\n");
            assert_eq!(limit(mounts, &groups, &files), expected, "{path}");
        }
    }

    #[test]
    fn other_file_systems_and_damaged_lines_are_passed_over() {
        assert_eq!(
            memory_groups(
                "1 2 0:3 / /x rw - tmpfs memory memory\n\n- - -\n",
                V1_GROUPS
            ),
            []
        );
        assert_eq!(memory_groups(V1_MOUNTS, "memory\n4:memory\n"), []);
        assert_eq!(memory_groups(V1_MOUNTS, V1_GROUPS).len(), 2);
    }

    #[test]
    fn escapes_of_mountinfo_are_undone() {
        assert_eq!(unescape(r"/mnt/a\040b\134c"), r"/mnt/a b\c");
        assert_eq!(unescape(r"/odd\9\04é\"), r"/odd\9\04é\");
    }

    #[test]
    fn available_memory_is_read_in_kib() {
        let text = "MemTotal:       24684092 kB\nMemAvailable:   24415232 kB\n";
        assert_eq!(parse_mem_available(text), Some(24_415_232 * 1024));
        assert_eq!(parse_mem_available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn the_least_limit_of_several_processes_is_that_of_one_of_them() {
        let own = std::process::id() as Pid;
        assert_eq!(least_memory_limit_of(&[]), None);
        assert_eq!(least_memory_limit_of(&[own, own]), memory_cgroup_limit());
        let gone = Pid::MAX;
        assert_eq!(least_memory_limit_of(&[gone]), None);
    }

    #[test]
    fn this_machine_has_memory_available_and_any_limit_is_that_of_a_directory() {
        assert!(mem_available_bytes().unwrap() > 1 << 20);
        if let Some(limit) = memory_cgroup_limit() {
            assert!(limit.path.is_dir() && limit.bytes > 0, "{limit:?}");
        }
    }
}
