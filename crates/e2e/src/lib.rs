//! Runs the built `pleat` binary on real programs and on the torture program, and says what
//! came of it. Knows pleat only from outside: its command line, its exit status, its output. (Only the
//! binary `faulty-run`, which is pleat on a disk that fails, is built from its crates.)
//!
//! ```no_run
//! use pleat_e2e::{Machine, Megabytes};
//!
//! let Some(machine) = Machine::ready() else { return };
//! let natural = machine.job("sort").arg("lines").run();
//! let budget = natural.peak.percent(50);
//! let folded = machine.job("sort").arg("lines").budget(budget).hard_limit().run();
//! folded.expect_success().expect_same_output(&natural);
//! ```
//!
//! Memory limits and timings of two tests at once would disturb each other, so every test holds
//! a lock on the machine as long as its [`Machine`] lives; `--test-threads=1` saves the others
//! the wait. What cannot be tested here is skipped with a line `SKIP ...` on stderr.

#![deny(unsafe_code)]

mod cgroup;
mod cpu_group;
mod job;
mod machine;
mod mounted;
mod nobody;
mod outcome;
mod programs;
mod running;
mod silence;
mod size;
mod stuck;
mod swap_file;
mod sys;
mod terminal;
mod tree;
mod walk;

pub use cgroup::Cgroup;
pub use cpu_group::CpuGroup;
pub use job::Job;
pub use machine::{eventually, reaches_other_networks, Machine};
pub use mounted::{Mounted, Mountpoint, SmallDisk};
pub use nobody::{Nobody, Ordinary};
pub use outcome::Outcome;
pub use pleat_testing::skip;
pub use running::Running;
pub use size::Megabytes;
pub use swap_file::SwapFile;
pub use sys::{kill_process, resident_bytes, set_attribute};
pub use terminal::Terminal;
pub use tree::{descendants, is_alive, working_in};
pub use walk::Listing;

/// The signals that tests send.
pub mod signal {
    pub use libc::{SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGTSTP};
}
