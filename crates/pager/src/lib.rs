//! Drives the engine with real processes.
//!
//! [`run`] starts a program with the agent in it and supervises the job until it ends:
//!
//! - the main thread (`supervisor`) starts the program, hears from new processes, passes signals on,
//!   and measures memory (`census`); when memory runs short it has processes managed;
//! - each managed address space has a thread (`space`) that answers its faults and follows its events;
//! - folding threads (`fold`) compress what was taken away, and help with faults (`parallel`); a writing thread (`write`, `collect`)
//!   moves the oldest to the swap file (`store`); `reclaim` chooses what goes next;
//! - reading threads (`files`) read what programs have mapped and is not in the page cache;
//! - `standins` has shared memory in the place of files that programs map to read, and a thread of its own;
//! - `control` is the socket on which others ask how the job stands, and change its budget;
//! - `own_group` is the job's own memory cgroup, where it can have one, and its limit;
//! - `record` writes a trace of the job's faults, `profile` tells where their time goes, if asked to.
//!
//! What has nothing to do with processes serves other faces too, as [`Holder`]s of pages: [`Shared`] is what
//! its threads ([`Pool`]) have in common. Such a face serves by itself, or as a [`Companion`] of a job
//! ([`run_beside`]), whose budget it shares.
#![forbid(unsafe_op_in_unsafe_fn)]

mod allowance;
mod attach;
mod budget;
mod census;
mod cgroup;
mod chosen;
mod collect;
mod companion;
pub mod control;
mod crowd;
mod ends;
mod engine_lock;
mod family;
mod files;
mod fold;
mod folds;
mod headroom;
mod histogram;
mod job;
mod keeping;
mod latency;
mod ledger;
mod link;
mod load;
mod lookout;
mod meters;
mod own_group;
mod pace;
mod page_cache;
mod parallel;
mod pool;
mod ports;
mod profile;
mod program;
mod reclaim;
mod record;
mod report;
mod rings;
mod scratch;
mod segments;
mod shared;
#[cfg(test)]
mod simulation;
mod space;
mod standins;
mod stillness;
mod store;
mod strain;
mod supervisor;
mod take;
mod unknown;
mod unshared;
mod vigil;
mod write;

pub use budget::BUDGET_MIN;
pub use cgroup::Gauge;
pub use chosen::Chosen;
pub use companion::Companion;
pub use ends::Failure;
pub use fold::check;
pub use folds::FoldJob;
pub use job::{
    run, run_beside, Ending, Job, Known, Outcome, Place, Record, RunError, StartBeside, StatsOf,
    Subject, Swap, TellTrouble, Trouble,
};
pub use latency::{Latency, LatencyReport};
pub use ledger::{Ledger, Tally};
pub use meters::{Meter, Reading};
pub use own_group::{try_own_cgroup, OwnCgroup};
pub use pleat_backing::Protection;
pub use pool::Pool;
pub use profile::{
    EvictionParts, EvictionProfile, FaultParts, FaultProfile, Figures, Profile, ProfileReport,
};
pub use program::INSIDE_VARIABLE;
pub use reclaim::kick;
pub use report::{Hits, Live, Report};
pub use rings::{Slots, RING_FRAMES_MAX};
pub use shared::{Holder, Parts, Shared};
pub use strain::Strain;
