//! Whether this process may use userfaultfd as pleat needs it, and if not, who stands in the way:
//! the kernel's configuration, the sysctl, a seccomp filter, or a user namespace.
//!
//! The kernel answers EPERM for several of them alike. They are told apart by asking for the variant
//! that serves user-mode faults only, which the kernel itself grants to everybody. Whether the helper helps is tried.

use super::surroundings::{Helper, Surroundings};
use super::Check;
use crate::probe::{self, Refusal, Route};
use pleat_sys::grant::Grant;
use pleat_wire::uffd;
use std::io;

const NAME: &str = "userfaultfd";

/// What there is to know, gathered before anything is judged.
#[derive(Clone, Debug)]
struct Facts {
    /// Which way a userfaultfd can be had.
    route: Result<Route, Refusal>,
    /// Features the kernel has, or the errno of asking.
    offered: Result<u64, i32>,
    /// Whether forks are reported.
    forks: bool,
    /// The device is there to be handed to processes that may not open it.
    device: bool,
    /// The number of the device, if the kernel has one.
    device_minor: Option<u32>,
    surroundings: Surroundings,
}

/// The checks, in the order of dependence; later ones are left out when an earlier one fails.
pub fn checks() -> Vec<Check> {
    if probe::is_killed_for_asking() {
        return vec![Check::missing(
            NAME,
            "a seccomp filter kills whoever asks for it",
            "allow userfaultfd(2) where the filter is set (systemd: SystemCallFilter=userfaultfd)",
        )];
    }
    judge(&gather())
}

fn gather() -> Facts {
    let path = crate::helper_path::find();
    let grant = Grant::find(path.as_deref());
    let own = probe::open_userfaultfd().map(|(_, route)| route);
    let route = match own {
        Err(_) if grant.is_allowed() => Ok(Route::Helper),
        own => own,
    };
    // A handshake can be made once per descriptor, so the question takes a fresh one.
    let offered = match grant.new_userfaultfd() {
        Ok(fd) => probe::handshake(fd, 0).map_err(|e| errno(&e)),
        Err(error) => Err(errno(&error)),
    };
    Facts {
        route,
        offered,
        forks: grant.reports_forks(),
        device: grant.device().is_some(),
        device_minor: device_minor(&std::fs::read_to_string("/proc/misc").unwrap_or_default()),
        surroundings: Surroundings::look(probe::even_user_mode_is_refused(), path.as_deref()),
    }
}

fn device_minor(misc: &str) -> Option<u32> {
    let mut lines = misc.lines().map(str::split_whitespace);
    lines.find_map(|mut words| {
        let minor = words.next()?.parse().ok()?;
        (words.next() == Some(NAME)).then_some(minor)
    })
}

fn judge(facts: &Facts) -> Vec<Check> {
    match facts.route {
        Err(refusal) => vec![refused(refusal, &facts.surroundings)],
        Ok(route) => {
            let by = match route {
                Route::Device => "allowed through /dev/userfaultfd",
                Route::Syscall => "allowed by the system call",
                Route::Helper => "allowed through pleat-helper",
            };
            let mut checks = vec![Check::ok(NAME, by), features(facts.offered)];
            if checks[1].verdict == super::Verdict::Ok {
                checks.push(fork_events(facts));
                checks.extend(giving_up_root(facts));
            }
            checks
        }
    }
}

/// Jobs that root starts and that give up root, as servers do: their agents need the device.
fn giving_up_root(facts: &Facts) -> Option<Check> {
    const NAME: &str = "giving up";
    let around = &facts.surroundings;
    if !around.root {
        return None;
    }
    if facts.device {
        return Some(Check::ok(
            NAME,
            "jobs that give up root are managed as before",
        ));
    }
    let note = Check::note(
        NAME,
        "processes that give up root run unmanaged, for there is no /dev/userfaultfd",
    );
    Some(match (around.container, facts.device_minor) {
        (true, _) => note.mended_by("start the container with --device /dev/userfaultfd"),
        (false, Some(minor)) => {
            note.mended_by(&format!("mknod -m 600 /dev/userfaultfd c 10 {minor}"))
        }
        (false, None) => note,
    })
}

fn refused(refusal: Refusal, around: &Surroundings) -> Check {
    if around.even_user_mode_refused && around.seccomp_filter {
        return Check::missing(NAME, "refused by a seccomp filter", seccomp_remedy(around));
    }
    if refusal.syscall_errno == libc::ENOSYS {
        return Check::missing(
            NAME,
            "this kernel was built without it",
            "boot a kernel with CONFIG_USERFAULTFD=y, such as Debian's linux-image-amd64",
        );
    }
    if refusal.syscall_errno == libc::EMFILE {
        return Check::missing(NAME, "no descriptor is left", "raise `ulimit -n`");
    }
    if refusal.syscall_errno != libc::EPERM {
        let why = io::Error::from_raw_os_error(refusal.syscall_errno);
        let finding = format!("refused ({why})");
        return Check::missing(NAME, finding, "raise the limit that this error names");
    }
    match around {
        Surroundings {
            user_namespace: true,
            ..
        } => Check::missing(
            NAME,
            "not allowed in a user namespace, whose capabilities do not count for it",
            "sudo sysctl vm.unprivileged_userfaultfd=1 (outside), or start this as root outside",
        ),
        Surroundings {
            container: true,
            root: true,
            ..
        } => Check::missing(
            NAME,
            "not allowed to this user",
            "start the container with --cap-add SYS_PTRACE",
        ),
        // Docker gives added capabilities to root only.
        Surroundings {
            container: true, ..
        } => Check::missing(
            NAME,
            "not allowed to this user",
            "start the container with --user root --cap-add SYS_PTRACE",
        ),
        Surroundings { root: true, .. } => Check::missing(
            NAME,
            "not allowed to root without CAP_SYS_PTRACE",
            "leave it that capability (systemd: CapabilityBoundingSet=CAP_SYS_PTRACE)",
        ),
        _ => Check::missing(NAME, "not allowed to this user", &by_helper(around)),
    }
}

/// What lets an ordinary user of this machine use userfaultfd, by the helper where it is there.
fn by_helper(around: &Surroundings) -> String {
    let sysctl = "sudo sysctl vm.unprivileged_userfaultfd=1";
    match &around.helper {
        Helper::Absent => sysctl.into(),
        Helper::Plain => format!("sudo pleat setup && sudo usermod -aG pleat {}", user()),
        Helper::ForGroup(group) => {
            format!("sudo usermod -aG {group} {} (and log in again)", user())
        }
        // It may be executed and does not help.
        Helper::Ready => {
            format!("sudo pleat setup (pleat-helper lacks its capabilities), or {sysctl}")
        }
    }
}

fn user() -> String {
    std::env::var("USER")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or("USER".into())
}

/// Docker's default profile has no userfaultfd(2), with whatever capability, but lets ioctl(2)
/// on the device pass.
fn seccomp_remedy(around: &Surroundings) -> &'static str {
    match (around.container, around.user_namespace, around.root) {
        (_, true, _) => {
            "outside: sudo sysctl vm.unprivileged_userfaultfd=1, and a seccomp profile that allows \
             userfaultfd (--security-opt seccomp=FILE); or a container of root's"
        }
        (true, _, true) => {
            "start the container with --device /dev/userfaultfd --cap-add SYS_PTRACE"
        }
        (true, _, false) => {
            "start the container with --user root --device /dev/userfaultfd --cap-add SYS_PTRACE"
        }
        (false, ..) => "allow it where the filter is set (systemd: SystemCallFilter=userfaultfd)",
    }
}

fn features(offered: Result<u64, i32>) -> Check {
    const NEEDED: [(u64, &str); 5] = [
        (uffd::FEATURE_EVENT_REMAP, "EVENT_REMAP"),
        (uffd::FEATURE_EVENT_REMOVE, "EVENT_REMOVE"),
        (uffd::FEATURE_EVENT_UNMAP, "EVENT_UNMAP"),
        (uffd::FEATURE_THREAD_ID, "THREAD_ID"),
        (uffd::FEATURE_MOVE, "MOVE"),
    ];
    let offered = match offered {
        Ok(offered) => offered,
        Err(errno) => {
            let finding = format!("cannot be asked ({})", io::Error::from_raw_os_error(errno));
            return Check::missing("features", finding, super::machine::NEWER_KERNEL);
        }
    };
    let lacking: Vec<_> = NEEDED
        .iter()
        .filter(|(bit, _)| offered & bit == 0)
        .map(|(_, name)| *name)
        .collect();
    match lacking.is_empty() {
        true => Check::ok("features", NEEDED.map(|(_, name)| name).join(" ")),
        false => {
            let finding = format!("this kernel lacks {}", lacking.join(" "));
            Check::missing("features", finding, super::machine::NEWER_KERNEL)
        }
    }
}

fn fork_events(facts: &Facts) -> Check {
    const NAME: &str = "fork";
    if facts.forks {
        return Check::ok(NAME, "children are served from their first instruction");
    }
    let around = &facts.surroundings;
    let finding = match around.user_namespace {
        true => {
            "the kernel reports forks only with CAP_SYS_PTRACE outside of any user namespace; \
             programs that fork without exec are limited"
        }
        false => "fork events need CAP_SYS_PTRACE; programs that fork without exec are limited",
    };
    let remedy = match around {
        Surroundings {
            user_namespace: true,
            ..
        } => "start this as root outside of the namespace".into(),
        Surroundings {
            container: true,
            root: true,
            ..
        } => "start the container with --cap-add SYS_PTRACE".into(),
        Surroundings {
            container: true, ..
        } => "start the container with --user root --cap-add SYS_PTRACE".into(),
        Surroundings { root: true, .. } => {
            "leave root CAP_SYS_PTRACE (systemd: CapabilityBoundingSet=CAP_SYS_PTRACE)".into()
        }
        Surroundings {
            helper: Helper::Absent,
            ..
        } => "sudo pleat run ...".into(),
        _ => by_helper(around),
    };
    Check::note(NAME, finding).mended_by(&remedy)
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    const ALL: u64 = uffd::FEATURES_FOLLOW | uffd::FEATURE_EVENT_FORK;

    fn allowed() -> Facts {
        Facts {
            route: Ok(Route::Syscall),
            offered: Ok(ALL),
            forks: true,
            device: true,
            device_minor: Some(126),
            surroundings: Surroundings::default(),
        }
    }

    fn refused_with(syscall_errno: i32, surroundings: Surroundings) -> Check {
        let refusal = Refusal {
            device_errno: libc::EACCES,
            syscall_errno,
        };
        let facts = Facts {
            route: Err(refusal),
            surroundings,
            ..allowed()
        };
        let checks = judge(&facts);
        assert_eq!(
            checks.len(),
            1,
            "nothing more to say about what cannot be had"
        );
        assert_eq!(checks[0].verdict, Verdict::Missing);
        checks[0].clone()
    }

    fn remedy(check: Check) -> String {
        check.remedy.expect("every missing thing has a remedy")
    }

    #[test]
    fn a_permitted_machine_has_nothing_to_mend() {
        let root = Surroundings {
            root: true,
            may_trace: true,
            ..Surroundings::default()
        };
        for (surroundings, lines) in [(Surroundings::default(), 3), (root, 4)] {
            let facts = Facts {
                surroundings,
                ..allowed()
            };
            let checks = judge(&facts);
            assert_eq!(checks.len(), lines);
            assert!(
                checks.iter().all(|check| check.verdict == Verdict::Ok),
                "{checks:?}"
            );
        }
    }

    #[test]
    fn an_ordinary_user_is_shown_the_helper_if_there_is_one_and_else_the_sysctl() {
        let with = |helper| {
            let around = Surroundings {
                helper,
                ..Surroundings::default()
            };
            remedy(refused_with(libc::EPERM, around))
        };
        assert_eq!(
            with(Helper::Absent),
            "sudo sysctl vm.unprivileged_userfaultfd=1"
        );
        assert!(with(Helper::Plain).starts_with("sudo pleat setup && sudo usermod -aG pleat "));
        assert!(with(Helper::ForGroup("mem".into())).starts_with("sudo usermod -aG mem "));
        assert!(with(Helper::Ready).contains("lacks its capabilities"));
    }

    #[test]
    fn a_container_without_the_capability_is_shown_the_capability() {
        let container = Surroundings {
            container: true,
            ..Surroundings::default()
        };
        let remedy = remedy(refused_with(libc::EPERM, container));
        assert!(remedy.ends_with("--user root --cap-add SYS_PTRACE"));
    }

    #[test]
    fn what_a_user_namespace_was_given_is_not_recommended_again() {
        let rootless = Surroundings {
            user_namespace: true,
            container: true,
            root: true,
            may_trace: true,
            ..Surroundings::default()
        };
        let filtered = Surroundings {
            even_user_mode_refused: true,
            seccomp_filter: true,
            ..rootless.clone()
        };
        let facts = Facts {
            forks: false,
            surroundings: rootless.clone(),
            ..allowed()
        };
        let fork = judge(&facts).swap_remove(2);
        let refused = [
            refused_with(libc::EPERM, rootless),
            refused_with(libc::EPERM, filtered),
            fork,
        ];
        for check in refused {
            assert!(!check.to_string().contains("--cap-add"), "{check}");
            assert!(check.to_string().contains("outside"), "{check}");
        }
    }

    #[test]
    fn a_seccomp_filter_is_told_from_a_missing_privilege() {
        let filtered = Surroundings {
            even_user_mode_refused: true,
            seccomp_filter: true,
            container: true,
            root: true,
            ..Surroundings::default()
        };
        for errno in [libc::EPERM, libc::ENOSYS] {
            let check = refused_with(errno, filtered.clone());
            assert!(check.finding.contains("seccomp"), "{check}");
            assert!(remedy(check).contains("--device /dev/userfaultfd"));
        }
        // The same filter, but it lets userfaultfd pass: then it is the privilege.
        let passing = Surroundings {
            even_user_mode_refused: false,
            ..filtered
        };
        assert!(remedy(refused_with(libc::EPERM, passing)).contains("--cap-add SYS_PTRACE"));
    }

    #[test]
    fn a_kernel_without_userfaultfd_is_told_from_a_filter() {
        let unfiltered = Surroundings {
            even_user_mode_refused: true,
            ..Surroundings::default()
        };
        let check = refused_with(libc::ENOSYS, unfiltered);
        assert!(remedy(check).contains("CONFIG_USERFAULTFD"));
    }

    #[test]
    fn a_missing_feature_is_named() {
        let facts = Facts {
            offered: Ok(ALL & !uffd::FEATURE_MOVE),
            ..allowed()
        };
        let checks = judge(&facts);
        assert_eq!(
            checks.len(),
            2,
            "fork events are not judged on an unfit kernel"
        );
        assert_eq!(checks[1].verdict, Verdict::Missing);
        assert!(checks[1].finding.ends_with("lacks MOVE"), "{}", checks[1]);
    }

    #[test]
    fn fork_without_the_capability_is_only_a_note() {
        let facts = Facts {
            forks: false,
            ..allowed()
        };
        let fork = judge(&facts).pop().unwrap();
        assert_eq!((fork.verdict, fork.name), (Verdict::Note, "fork"));
    }

    #[test]
    fn root_without_the_device_is_told_how_to_make_it() {
        let facts = Facts {
            device: false,
            device_minor: device_minor("236 device-mapper\n126 userfaultfd\n"),
            surroundings: Surroundings {
                root: true,
                ..Surroundings::default()
            },
            ..allowed()
        };
        let check = judge(&facts).pop().unwrap();
        assert_eq!(check.verdict, Verdict::Note);
        assert_eq!(remedy(check), "mknod -m 600 /dev/userfaultfd c 10 126");
    }
}
