//! What is counted outside the engine: time, processes, fault answers.

use std::sync::atomic::{AtomicU64, Ordering};

/// One running total.
#[derive(Debug, Default)]
pub struct Meter(AtomicU64);

impl Meter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Raises the meter to at least `value`.
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    /// The total.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes `Meters`, running totals of these names, and `Reading`, what they are at a time. Its user needs
/// `serde`.
#[macro_export]
macro_rules! meters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Running totals, raised by any thread.
        #[derive(Debug, Default)]
        pub struct Meters { $($(#[$doc])* pub $name: $crate::Meter,)* }

        /// A reading of every running total.
        #[derive(Clone, Copy, Debug, Default, serde::Serialize)]
        pub struct Reading { $($(#[$doc])* pub $name: u64,)* }

        impl Meters {
            /// All totals now.
            pub fn read(&self) -> Reading {
                Reading { $($name: self.$name.get(),)* }
            }
        }
    };
}

meters! {
    /// Faults answered.
    faults,
    /// Those of them that a second thread answered while the first was at work.
    helped_faults,
    /// Microseconds that threads of the job waited for an answer, from the reading of the fault on.
    stall_us,
    /// Turns that processes had which thrashed together; the first of each included.
    turns,
    /// Microseconds that threads of the job waited because it was the turn of others. No part of `stall_us`.
    rested_us,
    /// Looks at which somebody waited at the limit of the job's own memory cgroup, or was slowed there.
    limit_waits,
    /// Steps by which that limit was raised for them.
    limit_steps,
    /// Faults that were put off because an address space event came first.
    deferred_event,
    /// Faults that were put off because their page was just being taken away.
    deferred_wait,
    /// Faults that were put off because no memory was free.
    deferred_memory,
    /// Faults answered over the budget because nothing could be freed.
    urgent_faults,
    /// Most bytes in use at once: resident memory of the job, compressed cache, staging, supervisor.
    peak_bytes,
    /// Most bytes that the job would have had at once if nothing were compressed or in the swap file, without pleat itself.
    needed_peak_bytes,
    /// Most bytes that pleat itself had at once beside what it keeps compressed: tables, buffers, stacks.
    own_peak_bytes,
    /// Microseconds of CPU time spent compressing.
    fold_us,
    /// Pages put in place because a neighbour came back, and they were likely to be wanted soon.
    neighbour_pages,
    /// Take-away commands that were ended without their agent, because it was stopped at work.
    revoked_commands,
    /// Take-away commands sent.
    take_commands,
    /// Forks followed.
    forks,
    /// Forks after which shared pages were write-protected, because memory could not hold them twice.
    protected_forks,
    /// Pages that a write after a fork made two.
    unshared_pages,
    /// Processes that said hello.
    processes,
    /// Processes whose memory was managed because memory ran short.
    managed_processes,
    /// Agents that were started in running processes when memory got short, by the library or by a copy of it.
    injected_agents,
    /// Conversations that were taken because their agents offered them, instead of connecting.
    offers_taken,
    /// Processes that could not be managed: each is named, with the reason.
    unmanaged_processes,
    /// Connections turned away because who made them does not belong to the job.
    refused_peers,
    /// Connections of the job's own processes that were closed because of what was said over them, or because
    /// there were too many that said nothing.
    dropped_peers,
    /// Processes ended because of what they said, or because their memory could not be followed any more.
    ended_processes,
    /// Mappings registered with a userfaultfd.
    registered_mappings,
    /// Pieces of memory that a thread of the program announced, and had registered before it filled them.
    announced_mappings,
    /// Private mappings of files that became memory which can be folded.
    file_mappings,
    /// Shared mappings of files, only read, in whose place there is memory which can be folded.
    stand_in_mappings,
    /// Pages of these filled, from the compressed cache or from the file.
    stand_in_filled_pages,
    /// Pages of these taken away.
    stand_in_taken_pages,
    /// Pieces of shared memory whose pages can be taken away.
    segments,
    /// Pages of these filled, with zeros, from the compressed cache or from the swap file.
    segment_filled_pages,
    /// Pages of these taken away.
    segment_taken_pages,
    /// Pages of these put back at once, because a robust lock lay in them.
    segment_put_back_pages,
    /// Leases taken on files in whose place there is memory.
    leases,
    /// Leases given up because somebody was about to write to the file, or the job was stopped.
    leases_broken,
    /// Faults answered with what a mapped file holds.
    file_faults,
    /// Pages filled from mapped files, those that came along included.
    file_pages,
    /// Reads of mapped files that a fault waited for; what was in the page cache is not among them.
    file_reads,
    /// Microseconds from the asking for each of these reads to its end, in all.
    file_read_us,
    /// Pages of mapped files that could not be read, or are behind the end of a file cut short: SIGBUS.
    file_poisoned_pages,
    /// Reads from the swap file that a fault waited for.
    swap_reads,
    /// Bytes that these read, with what lay between the pages.
    swap_read_bytes,
    /// Microseconds from the start of each of these reads to its end, in all.
    swap_read_us,
    /// Clusters written to the swap file, collected ones included.
    swap_writes,
    /// Bytes written to the swap file.
    swap_written_bytes,
    /// Collections of what was still wanted in mostly dead clusters of the swap file.
    swap_collections,
    /// Bytes read for these.
    swap_collected_bytes,
    /// Page references written to the trace of --record.
    recorded_references,
    /// Times a space's thread was moved to another CPU to follow the program.
    follows,
}
