//! Processes that the program has left running when it ended, and whose memory pleat has: it stays for them. With
//! `--kill-on-exit` they are ended; else the user, who sees that the program is done, is told whom pleat waits for.

use super::Supervisor;
use crate::census::Stage;
use pleat_sys::procfs;
use std::time::{Duration, Instant};

/// Servants of the program that end by themselves, a moment after it, are not worth a word.
const TOLD_AFTER: Duration = Duration::from_secs(2);
const NAMED_MAX: usize = 3;

/// What was done about them.
#[derive(Default)]
pub(super) struct Leftovers {
    since: Option<Instant>,
    is_told: bool,
}

impl Supervisor<'_> {
    /// Called while the program has ended and others have not.
    pub(super) fn look_after_leftovers(&mut self) {
        let since = *self.leftovers.since.get_or_insert_with(Instant::now);
        if self.leftovers.is_told || since.elapsed() < TOLD_AFTER {
            return;
        }
        self.leftovers.is_told = true;
        let names = self.names_of_leftovers();
        if !names.is_empty() {
            let (who, remedy) = match self.family.is_given() {
                true => ("the processes have ended", "`pleat detach` leaves it alone"),
                false => ("the program has ended", "--kill-on-exit ends it"),
            };
            self.warn(&format!(
                "{who}; pleat stays for {names}, whose memory it has, until that ends, too \
                 ({remedy})"
            ));
        }
    }

    fn names_of_leftovers(&self) -> String {
        let processes = self.census.processes.iter();
        let waited_for = processes.filter(|(_, process)| match &process.stage {
            Stage::Managed(link) => !link.is_over(),
            Stage::Preparing(..) => true,
            _ => false,
        });
        let mut pids: Vec<i32> = waited_for.map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        let named = pids.iter().take(NAMED_MAX).map(|pid| {
            let name = procfs::status(*pid).map_or("a process".into(), |status| status.name);
            format!("{name} ({pid})")
        });
        let mut names: Vec<String> = named.collect();
        if pids.len() > NAMED_MAX {
            names.push(format!("{} more", pids.len() - NAMED_MAX));
        }
        names.join(", ")
    }
}
