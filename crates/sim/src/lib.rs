//! The engine driven by traces and a cost model: no memory, no disk, no clock but its own.
//!
//! The engine is the one that runs programs for real; what it does to real memory is replaced by
//! what it would cost. So presets can be compared on machines nobody has any more, on workloads
//! that take hours, in seconds, and every run of the same is the same.
//!
//! One reference's way, by the files that follow it:
//!
//! ```text
//!   pleat_trace::Source --> schedule.rs --touch, fault--> memory.rs ------> pleat_engine::Engine
//!                        (processes, CPUs)                reclaim.rs, files.rs
//!                                                             |      \
//!                                                          cpu.rs    disk.rs, device.rs
//! ```
//!
//! What it took ends in `accounts.rs`.
//!
//! # What is not modelled
//!
//! Caches and TLBs, memory bandwidth, interrupts of other CPUs, and what a kernel's own data takes of
//! the memory. Content of pages: how a page compresses is the source's word.
#![forbid(unsafe_code)]

mod accounts;
mod contents;
mod cpu;
pub mod density;
mod device;
mod disk;
mod files;
mod memory;
mod meter;
pub mod misses;
pub mod model;
pub mod papers;
mod reclaim;
mod schedule;
mod simulation;

pub use accounts::{CpuTime, Outcome, ProcessTime, WaitTime};
pub use cpu::{codecs, cpus, CodecCost, Cpu, Host, Paging};
pub use device::{devices, Device};
pub use disk::{Direction, Disk, Place, Traffic};
pub use simulation::{Failure, Machine, Setup, Simulation};
