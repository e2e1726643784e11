//! Processes of which nothing is left but the agent.
//!
//! A process ends when its last thread does. Nearly all do it by exit_group(2), which takes every thread along. But
//! threads may also leave one by one (exit(2) itself, as a program must that has forbidden itself all but a few calls:
//! seccomp's strict mode), and the agent's, of which the program does not know, would stay for ever. The kernel takes
//! the last thread's status for that of the process (from Linux 5.18 on; before, the first's), so the agent ends with the
//! status of the first: that of the last is gone with it, where these are two.

use super::users::tell_agent;
use super::Supervisor;
use pleat_sys::procfs;
use pleat_wire::message::{Word, ALONE};

impl Supervisor<'_> {
    /// Has agents end that are alone. No thread can come after that was seen, for there is none to make it.
    pub(super) fn end_last_threads(&mut self) {
        for (pid, process) in &mut self.census.processes {
            if !process.is_bare || process.is_told_alone {
                continue;
            }
            let mut kept = self.kept.iter().filter(|(kept, _)| kept == pid);
            let kept = kept.next().map(|(_, channel)| channel);
            // Whose agent is connected has that thread: it is the one that is left.
            if let Some(status) = procfs::status_of_first_but_one(*pid) {
                let alone = Word {
                    kind: ALONE,
                    error: i32::from(status),
                };
                process.is_told_alone = tell_agent(process, kept, &alone);
            }
        }
    }
}
