//! What the kernel killed for want of memory: said, for nobody else does.

use super::Supervisor;
use crate::job::{Ending, Trouble};
use crate::own_group::OwnGroup;
use pleat_sys::job_group::Version;
use pleat_sys::limits;
use std::fs;
use std::path::PathBuf;

/// Where the kernel counts whom it killed.
pub(super) struct OomKills {
    file: PathBuf,
    /// The same of the job's own group: cgroup v1 counts each group alone.
    own: Option<(PathBuf, u64)>,
    /// The group's limit; `None`: the count is that of the whole machine.
    limit_bytes: Option<u64>,
    remedy: &'static str,
    before: u64,
}

impl OomKills {
    /// From here on. `None` where nothing tells.
    pub(super) fn open(own_group: Option<&OwnGroup>) -> Option<OomKills> {
        let hard =
            own_group.and_then(|own| Some((own.group().place().kills_file(), own.hard_limit()?)));
        if let Some((file, limit_bytes)) = hard {
            let kills = OomKills::of(file, Some(limit_bytes))?;
            return Some(OomKills {
                remedy: "raise --memory, or leave out --hard",
                ..kills
            });
        }
        let of_group = limits::memory_cgroup_limit().and_then(|limit| {
            let names = ["memory.events", "memory.oom_control"];
            let mut files = names.iter().map(|name| limit.path.join(name));
            files.find_map(|file| OomKills::of(file, Some(limit.bytes)))
        });
        let mut kills = of_group.or_else(|| OomKills::of("/proc/vmstat".into(), None))?;
        let own = own_group
            .map(|own| own.group())
            .filter(|own| own.version() == Version::V1);
        kills.own = own.map(|own| (own.place().kills_file(), 0));
        Some(kills)
    }

    /// The budget is another, and with it a firm limit of the job's own.
    pub(super) fn follow(&mut self, own_group: Option<&OwnGroup>) {
        if let Some(hard) = own_group.and_then(OwnGroup::hard_limit) {
            self.limit_bytes = Some(hard);
        }
    }

    fn of(file: PathBuf, limit_bytes: Option<u64>) -> Option<OomKills> {
        let before = count(&fs::read_to_string(&file).ok()?)?;
        Some(OomKills {
            file,
            own: None,
            limit_bytes,
            remedy: "lower --memory, or raise the limit",
            before,
        })
    }

    /// How many there were since.
    fn since(&self) -> u64 {
        let since = |file: &PathBuf, before: u64| {
            let now = fs::read_to_string(file).ok().and_then(|text| count(&text));
            now.unwrap_or(before).saturating_sub(before)
        };
        let own = self.own.as_ref().filter(|_| self.limit_bytes.is_some());
        since(&self.file, self.before) + own.map_or(0, |(file, before)| since(file, *before))
    }
}

/// The line `oom_kill N`.
fn count(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix("oom_kill "))?;
    number.trim().parse().ok()
}

impl Supervisor<'_> {
    /// What helps, where the kernel killed somebody for want of memory.
    pub fn memory_remedy(&self) -> Option<&'static str> {
        self.memory_remedy
    }

    /// Says that the kernel killed a process for want of memory, at what limit, and what to do. Where only the whole
    /// machine is counted it may have been another's, unless the program itself was killed.
    pub(super) fn tell_of_kills(&mut self, ending: &Ending) {
        let Some(kills) = &self.oom_kills else {
            return;
        };
        let is_program = matches!(ending, Ending::Signalled(libc::SIGKILL));
        let (killed, limit, remedy) = (kills.since(), kills.limit_bytes, kills.remedy);
        if killed == 0 || (limit.is_none() && !is_program) {
            return;
        }
        let (budget, peak) = (
            self.budget.bytes >> 20,
            self.shared.meters.peak_bytes.get() >> 20,
        );
        let who = if is_program {
            "the program"
        } else {
            "a process of its memory cgroup"
        };
        self.memory_remedy = Some(match limit {
            Some(_) => remedy,
            None => "lower --memory",
        });
        let text = match limit {
            Some(limit) => format!(
                "the kernel killed {who} for want of memory: the memory cgroup's limit is {} MiB, --memory \
                 {budget} MiB, and the job was last seen to use {peak} MiB at most; {remedy}",
                limit >> 20
            ),
            None => format!(
                "the kernel killed {who}, and the machine was out of memory: the job was last seen to use \
                 {peak} MiB of --memory {budget} MiB at most; lower --memory"
            ),
        };
        self.warn(&text);
        self.tell_trouble(Trouble::Killed, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_each_kind_of_file() {
        assert_eq!(
            count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            Some(3)
        );
        assert_eq!(
            count("low 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n"),
            Some(1)
        );
        assert_eq!(
            count("nr_free_pages 5\noom_kill 12\nnuma_hit 1\n"),
            Some(12)
        );
        assert_eq!(count("oom_kill_disable 0\n"), None);
    }
}
