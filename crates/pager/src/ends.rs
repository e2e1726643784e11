//! Why a job is given up, and why one process of it is ended. Each says what the user is told.

use pleat_backing::BackingError;
use pleat_codec::CodecError;
use pleat_engine::CacheFull;
use pleat_types::PageNo;
use std::io;

/// Why pleat ends the job: what was promised to its programs cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The checksum of a compressed page is not what it was.
    #[error("{}", damaged("a compressed page has changed"))]
    Changed,
    /// A compressed page cannot be expanded.
    #[error("{}", damaged(&.0.to_string()))]
    Undecodable(CodecError),
    /// The compressed cache has no room for what has left the program already.
    #[error("{0}")]
    CacheFull(CacheFull),
    /// The engine has a page in a swap file, and there is none.
    #[error("a page is in a swap file that does not exist")]
    NoSwapFile,
    /// The swap file cannot be used, or does not answer.
    #[error("{0}")]
    Backing(#[from] BackingError),
    /// What the swap file has given is not what was written there.
    #[error(
        "{file}, reading at byte {offset}: what was read is not what was written (damaged, out of date or \
         misplaced); check the disk (dmesg) and choose another --swap-dir"
    )]
    NotWhatWasWritten {
        /// The swap file.
        file: String,
        /// Where in it, in bytes.
        offset: u64,
    },
    /// Too much is in memory for the budget, and there is nowhere to put it.
    #[error(
        "the job does not fit into --memory {budget_mib} MiB, and what is too much cannot be put anywhere: {remedy}"
    )]
    DoesNotFit {
        /// The budget.
        budget_mib: u64,
        /// What the user can do.
        remedy: String,
    },
    /// A process waits for a page that the kernel refuses, and nothing can be taken from anybody.
    #[error(
        "the job stands still at the limit of its memory cgroup: what waits for memory is refused it, and nothing can be \
         taken away from processes that are stopped; raise --memory {budget_mib} MiB, and the limit"
    )]
    StandsStill {
        /// The budget.
        budget_mib: u64,
    },
    /// It was told to end, and has next to no memory for what it does then.
    #[error(
        "the job was told to end {seconds} s ago, and what cannot be folded leaves it next to no memory to do so: it is killed; \
         raise --memory {budget_mib} MiB"
    )]
    CannotEnd {
        /// How long it had.
        seconds: u64,
        /// The budget.
        budget_mib: u64,
    },
    /// Pages of a file must not be shown any more, and cannot be taken away.
    #[error("pages of a mapped file cannot be given back")]
    FileNotGivenBack,
    /// A page of a file cannot be taken away.
    #[error("a page of a mapped file cannot be punched out")]
    FileNotPunched,
    /// Pages of shared memory were to be removed, and some are still there.
    #[error("a page of shared memory cannot be taken away; run without --shared-memory")]
    SharedNotRemoved,
    /// Somebody keeps a page of shared memory that is removed already, and may write to it still.
    #[error(
        "a page of shared memory was pinned by the kernel (io_uring, direct I/O) just as it was taken away, and is not let go; \
         run without --shared-memory"
    )]
    SharedPinned,
    /// A page of shared memory that was removed cannot be put back.
    #[error("a page of shared memory cannot be put back: there is no memory; raise --memory or its limit")]
    SharedNotPutBack,
    /// A page of shared memory that is away is there.
    #[error(
        "shared memory of the job is used by a process that is not managed, which has changed a page that was away; \
         run without --shared-memory"
    )]
    SharedBoth,
    /// A file may have changed while programs saw what it was.
    #[error(
        "pleat was stopped while a mapped file ({0}) was opened for writing; the job is ended to keep its programs \
         from reading what the file is no more"
    )]
    LeaseMissed(String),
}

fn damaged(what: &str) -> String {
    format!("memory is damaged: {what}; test it (memtest86+), or report this as a bug of pleat")
}

/// Why a process is ended, and it alone: it cannot be served any more.
#[derive(Debug, thiserror::Error)]
pub enum Unservable {
    /// Its agent has said, or left unsaid, what no agent does.
    #[error("its agent's connection was misused ({0})")]
    Misuse(Misuse),
    /// It lives, and its agent does not answer any more.
    #[error("it has closed its agent's connection")]
    AgentGone,
    /// A page is neither where it should be nor anywhere else.
    #[error("its page {:#x} is gone, though nobody has given it up, and zeros must not be read there", .0.address())]
    Lost(PageNo),
    /// The account of its memory is wrong.
    #[error("its page {:#x} is both present and away", .0.address())]
    Both(PageNo),
    /// The kernel refuses to put a page in place.
    #[error("its page {:#x} cannot be filled ({error})", .0.address(), error = .1)]
    CannotFill(PageNo, io::Error),
    /// The kernel refuses to have an access of a page fail.
    #[error("its page {:#x} cannot be poisoned ({error})", .0.address(), error = .1)]
    CannotPoison(PageNo, io::Error),
    /// Its userfaultfd cannot be read, or its staging area not registered again.
    #[error("it cannot be followed ({0})")]
    CannotFollow(io::Error),
    /// What a stopped agent had in hand cannot be told.
    #[error("what was being taken from it cannot be read")]
    CannotRecover,
    /// It was forked, and there was no way to serve it.
    #[error("it cannot be given the memory that it had when it was forked")]
    CannotInherit,
    /// It was forked, and its mappings cannot be listed.
    #[error("what it has mapped cannot be read ({0})")]
    CannotLook(io::Error),
    /// It was forked, and the kernel does not say what of it is registered.
    #[error("whether its memory is registered cannot be told ({0})")]
    CannotTellRegistered(String),
    /// It was forked past the C library, and nobody can ask what memory it was not to have.
    #[error(
        "it was forked without the C library and uses memory under MADV_WIPEONFORK, which pleat cannot follow"
    )]
    UnheardWiped,
    /// It uses shared memory, and nobody can ask which.
    #[error(
        "it was forked without the C library and uses shared memory, which pleat cannot follow; run without --shared-memory"
    )]
    UnheardShared,
    /// There is no thread to serve it.
    #[error("it cannot be served")]
    NotServed,
    /// Its mappings of a file that is about to change cannot be listed.
    #[error("its mappings cannot be looked at ({0})")]
    CannotListFiles(io::Error),
    /// It shows pages of a file in a mapping that was not announced.
    #[error(
        "it has mapped more of a file by a system call that bypasses the C library, which pleat cannot follow; run \
         it with --no-file-maps"
    )]
    UnknownView,
    /// It shows pages of a file that is about to change, and has no agent to map the file again.
    #[error(
        "a file that it has mapped was opened for writing, and it was forked without the C library, which pleat \
         cannot follow"
    )]
    UnheardView,
    /// Its agent could not map a file again that is about to change.
    #[error("a file that it has mapped was opened for writing, and cannot be mapped again ({0})")]
    NotMappedAgain(io::Error),
}

/// What no agent does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// A packet that is none of its.
    #[error("a packet of another process, or too long")]
    Garbled,
    /// A packet of no known kind.
    #[error("an unknown message")]
    Unknown,
    /// An answer that fits no command.
    #[error("an answer to what was not asked")]
    Unasked,
    /// It has held the control lock for longer than any agent.
    #[error("its lock is not let go")]
    LockKept,
    /// It has not answered for longer than any agent.
    #[error("a command is not answered")]
    Unanswered,
    /// Its socket is full of commands.
    #[error("commands are not read")]
    Unread,
}
