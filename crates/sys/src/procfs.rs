//! What /proc says about processes: their mappings, memory, threads and children.
//!
//! The supervisor reads these files to decide what to manage and how close the budget is. Names in
//! them come from the programs themselves, so every parser takes any bytes and answers with an error
//! rather than a guess. A process that has ended shows as `NotFound` or ESRCH.

mod content;
mod credentials;
mod flags;
mod maps;
mod memory;
mod pagemap;
mod process;
mod query;
mod state;

pub use content::Content;
pub use credentials::{credentials, is_in_our_user_namespace, Credentials};
pub use flags::{has_userfaultfd, registered, wiped_on_fork, Registered};
pub use maps::{
    is_named, mappers_of, mappings_of, maps, nameless_device, nameless_parts, shared_memory_beside,
    FilePart, Mapper, Mapping, MappingKind, MapsReader, NamelessPart,
};
pub use memory::{rollup, MinorFaults, Rollup, Statm, StatmReader};
pub use pagemap::{present_anon_runs, zero_page_runs, PageTable};
pub use process::{
    children, command_line, descendants, descendants_without, exe, is_ending, is_strict,
    is_thread_of, last_cpu_of_thread, limits, of_users, own_number, own_thread_number, parent,
    pids, real_uid, seccomp_filters, shares_numbers, shows_us, sleeps_in, start_time, status,
    tgid_of_thread, thread_called, CpuTimeReader, LastCpuReader, Limits, Status, ThreadTimes,
};
pub use query::mapping_at;
pub use state::{is_stopped, state, state_letter, status_of_first_but_one, waits_for_cpu, State};

use std::io;
use std::str::FromStr;

/// A process or thread id, as the caller's PID namespace numbers them.
pub type Pid = i32;

fn malformed(file: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("/proc: {file} is not in the known format"),
    )
}

/// A number written in decimal.
fn number<T: FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The trimmed value of the line `key: value`.
fn value<'a>(text: &'a [u8], key: &str) -> Option<&'a [u8]> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let rest = line.strip_prefix(key.as_bytes())?.strip_prefix(b":")?;
        Some(rest.trim_ascii())
    })
}

/// The value of the line `key: 123 kB`, in bytes.
fn kib_value(text: &[u8], key: &str) -> Option<u64> {
    let kib: u64 = number(value(text, key)?.strip_suffix(b" kB")?)?;
    kib.checked_mul(1024)
}
