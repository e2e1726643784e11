//! All end-to-end tests, in one program: built once, and what they compile is compiled once.
//!
//! One file for each subject: `cargo test --release -p pleat-e2e -- --test-threads=1 own_group::` runs those of one.

mod account;
mod beside;
mod cli;
mod death;
mod dropped;
mod faults;
mod growth;
mod hostile;
mod kept;
mod limits;
mod mappings;
mod mount;
mod mount_death;
mod mount_programs;
mod ordinary;
mod own_group;
mod presets;
mod profile;
mod programs;
mod readonly;
mod record;
mod refused;
mod replaced;
mod run_mount;
mod sanitizers;
mod setup;
mod stopped;
mod swapfull;
mod torture;
mod torture_calls;
mod turns;
mod unmanaged;
mod verify;
