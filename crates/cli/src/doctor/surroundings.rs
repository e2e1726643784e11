//! Where pleat runs: as which user, in a container or a user namespace, behind a filter, with the helper or without.
//! What it is told by decides which remedy is true.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Who could be refusing, and who could help.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The harmless variant of userfaultfd(2) is refused, too.
    pub even_user_mode_refused: bool,
    /// This process has a seccomp filter.
    pub seccomp_filter: bool,
    /// A container's own file system is seen.
    pub container: bool,
    /// Not the first user namespace: its capabilities do not count for userfaultfd.
    pub user_namespace: bool,
    /// The effective user id is 0.
    pub root: bool,
    /// CAP_SYS_PTRACE is in effect, wherever it counts.
    pub may_trace: bool,
    /// What there is of `pleat-helper`.
    pub helper: Helper,
}

/// How far `pleat-helper` has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Helper {
    /// It is not installed.
    #[default]
    Absent,
    /// It is installed and has no capabilities.
    Plain,
    /// It has some, and this user is not in its group, which has this number or name.
    ForGroup(String),
    /// This user may execute it.
    Ready,
}

const CAP_SYS_PTRACE: u64 = 1 << 19;

impl Surroundings {
    /// Looks at /proc and at the helper.
    pub fn look(even_user_mode_refused: bool, helper: Option<&Path>) -> Surroundings {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let status = read("/proc/self/status");
        let has_marker = ["/.dockerenv", "/run/.containerenv"]
            .iter()
            .any(|path| Path::new(path).exists());
        let effective = field(&status, "CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        Surroundings {
            even_user_mode_refused,
            seccomp_filter: field(&status, "Seccomp:") == Some("2"),
            container: has_marker && is_of_container(&read("/proc/self/mountinfo")),
            user_namespace: is_of_namespace(&read("/proc/self/uid_map")),
            // The second of four.
            root: field(&status, "Uid:")
                .is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0")),
            may_trace: effective.is_some_and(|bits| bits & CAP_SYS_PTRACE != 0),
            helper: Helper::look(helper),
        }
    }
}

impl Helper {
    fn look(path: Option<&Path>) -> Helper {
        let Some((path, status)) = path.and_then(|path| Some((path, fs::metadata(path).ok()?)))
        else {
            return Helper::Absent;
        };
        // Set up, it is its group's alone; installed, everybody's.
        if status.permissions().mode() & 0o001 != 0 {
            return Helper::Plain;
        }
        match fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Helper::ForGroup(name_of_group(status.gid()))
            }
            _ => Helper::Ready,
        }
    }
}

fn name_of_group(gid: u32) -> String {
    let text = fs::read_to_string("/etc/group").unwrap_or_default();
    let mut groups = text.lines().map(|line| line.split(':'));
    let found = groups.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then_some(name)
    });
    found.map_or_else(|| gid.to_string(), str::to_owned)
}

/// The value of a line of /proc/PID/status.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// Whether the mounts are those of a container: its root is a layered file system, or its names of hosts are put in
/// from outside. A file `/.dockerenv` alone may lie on any machine.
fn is_of_container(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let place = line.split(' ').nth(4).unwrap_or_default();
        let kind = line.split(" - ").nth(1).unwrap_or_default();
        let kind = kind.split(' ').next().unwrap_or_default();
        let is_layered = place == "/" && matches!(kind, "overlay" | "fuse.fuse-overlayfs");
        is_layered || matches!(place, "/etc/hosts" | "/run/.containerenv")
    })
}

/// The first user namespace maps every id to itself.
fn is_of_namespace(uid_map: &str) -> bool {
    let words: Vec<&str> = uid_map.split_whitespace().collect();
    !words.is_empty() && words != ["0", "0", "4294967295"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_whole_name() {
        let status = "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(field(status, "Seccomp:"), Some("2"));
        assert_eq!(field(status, "NoNewPrivs:"), None);
    }

    #[test]
    fn a_file_of_a_container_on_a_plain_machine_makes_no_container() {
        let plain = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n";
        let docker = "600 500 0:50 / / rw - overlay overlay rw,lowerdir=/x\n";
        let other = "22 1 0:30 /x / rw - btrfs /dev/sda rw\n23 22 0:30 /h /etc/hosts rw - btrfs /dev/sda rw\n";
        assert!(!is_of_container(plain));
        assert!(is_of_container(docker) && is_of_container(other));
    }

    #[test]
    fn only_the_first_user_namespace_maps_everything() {
        assert!(!is_of_namespace("         0          0 4294967295\n"));
        assert!(is_of_namespace("0 1000 1\n"));
        assert!(is_of_namespace("0 1000 1\n1 100000 65536\n"));
        assert!(!is_of_namespace(""));
    }
}
