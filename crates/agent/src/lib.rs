//! The library that pleat loads into every process of a job (`LD_PRELOAD`).
//!
//! At start it connects to the supervisor and starts one thread, the *agent*, which sleeps until the
//! supervisor sends a command: get ready, or take these pages away. All deciding and all fault
//! handling is the supervisor's. What this library must never do: call the program's malloc, stdio
//! or locks, or anything else that the program can put something of its own in the place of (see `symbols`,
//! `bytes`), set errno in the agent thread, or touch memory that may be away (its own memory is one
//! mapping that the supervisor leaves alone).
//!
//! Into a process that has not loaded it the supervisor copies it, and has the process start the agent's thread (see
//! `injected`).
//!
//! The agent is not a thread of the C library: it is made by clone(2) without `CLONE_FILES`, so its
//! descriptors live in a table of their own that the program can neither see nor close, and the C
//! library still takes a single-threaded program for one.
#![cfg_attr(not(test), no_std)]

mod abandoned;
mod area;
mod bytes;
mod credentials;
mod direct;
mod exec;
mod exits;
mod files;
mod filters;
mod frozen;
mod growth;
mod guards;
mod injected;
mod interpose;
mod locks;
mod offer;
mod patch;
mod prepare;
mod raw;
mod serve;
mod start;
mod stubs;
mod symbols;
mod take;
mod threads;
mod timer;

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    raw::die(b"pleat: the agent failed; ending the process\n")
}
