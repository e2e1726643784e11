//! Whether this process may use userfaultfd as pleat needs it, and if not, who stands in the way:
//! the kernel's configuration, the sysctl, or a seccomp filter.
//!
//! The kernel answers EPERM for the last two alike. They are told apart by asking for the variant
//! that serves user-mode faults only, which the kernel itself grants to everybody.

use super::Check;
use crate::probe::{self, Refusal, Route};
use pleat_wire::uffd;
use std::io;
use std::path::Path;

const NAME: &str = "userfaultfd";

/// What there is to know, gathered before anything is judged.
#[derive(Clone, Debug)]
struct Facts {
    /// Which way a userfaultfd can be had.
    route: Result<Route, Refusal>,
    /// Features the kernel has, or the errno of asking.
    offered: Result<u64, i32>,
    /// The errno of asking for fork events on top of the rest.
    fork_errno: Option<i32>,
    surroundings: Surroundings,
}

/// Who could be refusing.
#[derive(Clone, Copy, Debug, Default)]
struct Surroundings {
    even_user_mode_refused: bool,
    seccomp_filter: bool,
    container: bool,
    root: bool,
}

/// The checks, in the order of dependence; later ones are left out when an earlier one fails.
pub fn checks() -> Vec<Check> {
    judge(&gather())
}

fn gather() -> Facts {
    let route = probe::open_userfaultfd().map(|(_, route)| route);
    // A handshake can be made once per descriptor, so each question takes a fresh one.
    let ask = |wanted| match probe::open_userfaultfd() {
        Ok((fd, _)) => probe::handshake(fd, wanted).map_err(|e| errno(&e)),
        Err(refusal) => Err(refusal.syscall_errno),
    };
    Facts {
        route,
        offered: ask(0),
        fork_errno: ask(uffd::FEATURES_FOLLOW | uffd::FEATURE_EVENT_FORK).err(),
        surroundings: Surroundings::look(),
    }
}

impl Surroundings {
    fn look() -> Surroundings {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let exists = |path| Path::new(path).exists();
        Surroundings {
            even_user_mode_refused: probe::even_user_mode_is_refused(),
            seccomp_filter: status_field(&status, "Seccomp:") == Some("2"),
            container: exists("/.dockerenv") || exists("/run/.containerenv"),
            // Effective user id, the second of four.
            root: status_field(&status, "Uid:")
                .is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0")),
        }
    }
}

fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

fn judge(facts: &Facts) -> Vec<Check> {
    match facts.route {
        Err(refusal) => vec![refused(refusal, facts.surroundings)],
        Ok(route) => {
            let by = match route {
                Route::Device => "allowed through /dev/userfaultfd",
                Route::Syscall => "allowed by the system call",
            };
            let features = features(facts.offered);
            let usable = features.verdict == super::Verdict::Ok;
            let fork = usable.then(|| fork_events(facts));
            [Check::ok(NAME, by), features]
                .into_iter()
                .chain(fork)
                .collect()
        }
    }
}

fn refused(refusal: Refusal, around: Surroundings) -> Check {
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
    if refusal.syscall_errno != libc::EPERM {
        let why = io::Error::from_raw_os_error(refusal.syscall_errno);
        let finding = format!("refused ({why})");
        return Check::missing(NAME, finding, "raise the limit that this error names");
    }
    let remedy = match (around.container, around.root) {
        (false, _) => "sudo sysctl vm.unprivileged_userfaultfd=1",
        (true, true) => "start the container with --cap-add SYS_PTRACE",
        // Docker gives added capabilities to root only.
        (true, false) => "start the container with --user root --cap-add SYS_PTRACE",
    };
    Check::missing(NAME, "not allowed to this user", remedy)
}

/// Docker's default profile has no userfaultfd(2), with whatever capability, but lets ioctl(2)
/// on the device pass.
fn seccomp_remedy(around: Surroundings) -> &'static str {
    match (around.container, around.root) {
        (true, true) => "start the container with --device /dev/userfaultfd --cap-add SYS_PTRACE",
        (true, false) => {
            "start the container with --user root --device /dev/userfaultfd --cap-add SYS_PTRACE"
        }
        (false, _) => "allow it where the filter is set (systemd: SystemCallFilter=userfaultfd)",
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
    match facts.fork_errno {
        None => Check::ok(NAME, "children are served from their first instruction"),
        Some(libc::EPERM) => {
            let remedy = match facts.surroundings.container {
                true => "start the container with --cap-add SYS_PTRACE",
                false => "sudo pleat run ...",
            };
            Check::note(
                NAME,
                "fork events need CAP_SYS_PTRACE; programs that fork without exec are limited",
            )
            .mended_by(remedy)
        }
        Some(errno) => {
            let why = io::Error::from_raw_os_error(errno);
            let finding = format!("fork events are refused ({why})");
            Check::missing(NAME, finding, super::machine::NEWER_KERNEL)
        }
    }
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
            fork_errno: None,
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
        let checks = judge(&allowed());
        assert_eq!(checks.len(), 3);
        assert!(
            checks.iter().all(|check| check.verdict == Verdict::Ok),
            "{checks:?}"
        );
    }

    #[test]
    fn an_ordinary_user_is_shown_the_sysctl() {
        let check = refused_with(libc::EPERM, Surroundings::default());
        assert_eq!(remedy(check), "sudo sysctl vm.unprivileged_userfaultfd=1");
    }

    #[test]
    fn a_container_without_the_capability_is_shown_the_capability() {
        let container = Surroundings {
            container: true,
            ..Surroundings::default()
        };
        assert!(remedy(refused_with(libc::EPERM, container)).ends_with("--cap-add SYS_PTRACE"));
    }

    #[test]
    fn a_seccomp_filter_is_told_from_a_missing_privilege() {
        let filtered = Surroundings {
            even_user_mode_refused: true,
            seccomp_filter: true,
            container: true,
            root: true,
        };
        for errno in [libc::EPERM, libc::ENOSYS] {
            let check = refused_with(errno, filtered);
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
            fork_errno: Some(libc::EPERM),
            ..allowed()
        };
        let fork = judge(&facts).pop().unwrap();
        assert_eq!((fork.verdict, fork.name), (Verdict::Note, "fork"));
    }

    #[test]
    fn status_fields_are_found_by_whole_name() {
        let status = "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        assert_eq!(status_field(status, "Seccomp:"), Some("2"));
        assert_eq!(status_field(status, "NoNewPrivs:"), None);
    }
}
