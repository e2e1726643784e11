//! What is counted beside the engine's own counters.
#![forbid(unsafe_code)]

pleat_pager::meters! {
    /// READ requests.
    reads,
    /// Bytes they were answered with.
    read_bytes,
    /// Bytes of them that came from the source.
    source_bytes,
    /// Reads of the source.
    source_reads,
    /// WRITE requests.
    writes,
    /// Bytes they wrote.
    written_bytes,
    /// Writes before whose answer the kernel's pages were dropped, for they might have been out of date.
    mended_writes,
    /// Pages copied from the kernel's cache.
    retrieved_pages,
    /// Pages dropped from the kernel's cache.
    invalidated_pages,
    /// Pages whose copy was worth nothing.
    void_pages,
    /// Pages that the kernel had dropped by itself before they could be copied.
    lost_pages,
    /// Files that were changed from outside.
    outside_changes,
    /// READ requests that waited for memory.
    memory_waits,
    /// How long they did, all together.
    memory_waited_us,
}
