//! The rest of what `pleat doctor` looks at: kernel, agent, swap directory, memory, huge pages.

use super::Check;
use crate::settings::Machine;
use crate::size::human;
use crate::swap_dir;
use pleat_sys::oom_score::OomScore;
use pleat_sys::take_out::TakeOut;
use std::io;

/// The remedy for anything the kernel is too old for.
pub const NEWER_KERNEL: &str = "install Linux 6.8 or newer \
     (Debian: sudo apt-get install -t bookworm-backports linux-image-amd64; \
     Ubuntu: sudo apt-get install linux-generic-hwe-22.04)";

const OLDEST_KERNEL: (u32, u32) = (6, 8);

/// Whether /proc is there.
pub fn has_proc() -> bool {
    std::path::Path::new("/proc/self/status").exists()
}

/// Whether the kernel is new enough for UFFDIO_MOVE.
pub fn kernel() -> Check {
    judge_kernel(read("/proc/sys/kernel/osrelease").trim())
}

/// Agent, swap directory, memory and huge pages.
pub fn checks() -> Vec<Check> {
    let mut checks = vec![agent()];
    match Machine::read() {
        Ok(machine) => checks.extend([
            swap(&machine),
            cgroup(&machine),
            own_cgroup(),
            shared_memory(),
            budget(&machine),
        ]),
        Err(error) => {
            checks.push(Check::missing("memory", error.to_string(), "mount /proc"));
        }
    }
    checks.push(oom_score(OomScore::lower()));
    checks.push(huge_pages(&read(
        "/sys/kernel/mm/transparent_hugepage/enabled",
    )));
    checks
}

fn judge_kernel(release: &str) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let version = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => (0, 0),
    };
    match version >= OLDEST_KERNEL {
        true => Check::ok("kernel", format!("Linux {release}")),
        false => Check::missing(
            "kernel",
            format!("Linux {release} is too old"),
            NEWER_KERNEL,
        ),
    }
}

fn agent() -> Check {
    match crate::agent_path::find() {
        Ok(path) => Check::ok("agent", path.display().to_string()),
        // The error's own text already ends in its remedy.
        Err(error) => {
            let text = error.to_string();
            match text.rsplit_once(": ") {
                Some((finding, remedy)) => Check::missing("agent", finding, remedy),
                None => Check::missing("agent", text, "make install"),
            }
        }
    }
}

fn swap(machine: &Machine) -> Check {
    match swap_dir::first_usable(&machine.swap_candidates) {
        Ok(found) => Check::ok(
            "swap",
            format!(
                "{} ({} free)",
                found.path.display(),
                human(found.free_bytes)
            ),
        ),
        Err(reasons) => Check::note("swap", format!("no directory by default ({reasons})"))
            .mended_by("pleat run --swap-dir DIR ..."),
    }
}

fn cgroup(machine: &Machine) -> Check {
    match machine.memory.cgroup_limit_bytes {
        Some(limit) => Check::ok("cgroup", format!("memory is limited to {}", human(limit))),
        None => Check::ok("cgroup", "no memory limit"),
    }
}

/// Whether memory that processes share can be taken away.
fn shared_memory() -> Check {
    let name = "shared";
    match TakeOut::new() {
        Ok(_) => Check::ok(name, "--shared-memory works: who holds a page can be asked"),
        Err(error) => Check::note(
            name,
            format!(
                "--shared-memory does not: it takes root's rights and /sys/kernel/btf ({error})"
            ),
        ),
    }
}

/// Whether growth can be stopped by the kernel.
fn own_cgroup() -> Check {
    match crate::pager::try_own_cgroup() {
        Ok(stops) => Check::ok(
            "own cgroup",
            format!("can be had: who outruns pleat below a memory limit {stops}; --hard works"),
        ),
        Err(why) => Check::note(
            "own cgroup",
            format!("cannot be had, nor --hard ({why}): who outruns pleat below a memory limit close to the budget is killed"),
        ),
    }
}

/// Whether the supervisor is the last to be killed. Lowered for this process, which ends soon.
fn oom_score(lowered: io::Result<Option<OomScore>>) -> Check {
    match lowered {
        Ok(_) => Check::ok("oom score", "pleat is the last to be killed when memory runs out"),
        Err(error) => Check::note(
            "oom score",
            format!("cannot be lowered ({error}): when memory runs out the kernel may kill pleat, and with it the job"),
        ),
    }
}

fn budget(machine: &Machine) -> Check {
    let budget = machine.memory.default_budget();
    Check::ok(
        "budget",
        format!("{} by default, {}", human(budget.bytes), budget.reason),
    )
}

fn huge_pages(setting: &str) -> Check {
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("unknown");
    match chosen {
        "always" => Check::note(
            "huge pages",
            "always: one is split when a part of it is folded, which is fine but costs once",
        ),
        other => Check::ok("huge pages", other),
    }
}

fn read(path: &str) -> String {
    // What cannot be read is judged as unknown, which every caller can say better.
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn kernels_are_compared_by_number_and_not_by_text() {
        for fit in [
            "6.8.0",
            "6.8.0-45-generic",
            "6.12.1+deb13-amd64",
            "6.18.44-fc",
            "7.0",
            "10.1",
        ] {
            assert_eq!(judge_kernel(fit).verdict, Verdict::Ok, "{fit}");
        }
        for old in ["6.7.12-amd64", "5.15.0", "4.19", "", "weird"] {
            assert_eq!(judge_kernel(old).verdict, Verdict::Missing, "{old}");
        }
    }

    #[test]
    fn the_chosen_huge_page_setting_is_the_bracketed_one() {
        assert_eq!(
            huge_pages("[always] madvise never\n").verdict,
            Verdict::Note
        );
        assert_eq!(huge_pages("always [madvise] never\n").finding, "madvise");
        assert_eq!(huge_pages("").finding, "unknown");
    }

    #[test]
    fn a_score_that_cannot_be_lowered_is_a_note_with_the_reason() {
        let refused = oom_score(Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(refused.verdict, Verdict::Note);
        assert!(refused.finding.contains("permission denied"), "{refused}");
        assert_eq!(oom_score(Ok(None)).verdict, Verdict::Ok);
    }

    #[test]
    fn a_missing_agent_comes_with_its_remedy() {
        let check = agent();
        assert_eq!(
            check.verdict == Verdict::Missing,
            check.remedy.is_some(),
            "{check}"
        );
    }
}
