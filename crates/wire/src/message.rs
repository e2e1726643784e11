//! Packets between agent and supervisor.
//!
//! Each packet starts with a `u32` kind. All are plain little structs of integers, written and read
//! in native byte order by the two sides on the same machine.

/// Most pages in one take-away command: also the size of the agent's staging areas.
pub const TAKE_MAX: usize = 64;

/// Largest packet either side sends.
pub const PACKET_MAX: usize = core::mem::size_of::<Take>();

/// Agent to supervisor, first packet of a connection.
pub const HELLO: u32 = 1;
/// Agent to supervisor: answer to [`PREPARE`], with the userfaultfd that it made, if it was to make one.
pub const PREPARED: u32 = 2;
/// Agent to supervisor: answer to [`TAKE`].
pub const TAKEN: u32 = 3;
/// Supervisor to agent: get ready for take-aways. Carries shared memory, then the userfaultfd that a fork made
/// (if `has_uffd`: this is the connection that has shown the token of that child's memory, and no other gets it),
/// then the open device `/dev/userfaultfd` (if `has_device`).
pub const PREPARE: u32 = 4;
/// Supervisor to agent: take these pages away.
pub const TAKE: u32 = 5;

/// 128 random bits that only the memory of one forked child holds, by which its agent says whose memory it
/// serves. Zeros stand for none.
pub type Token = [u64; 2];

/// "Here I am."
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello {
    /// [`HELLO`].
    pub kind: u32,
    /// [`crate::VERSION`].
    pub version: u32,
    /// Process id as the process sees it.
    pub pid: i32,
    /// Thread id of the agent; 0: there is none yet, and this is all that is said over the connection.
    pub agent_thread: i32,
    /// 1 when this is the child of a fork, 0 after an exec.
    pub forked: u32,
    /// 1 when the agent was put into the process while that ran: the program's own library announces nothing.
    pub injected: u32,
    /// What a forked child found in the beacon page; zeros when there was none.
    pub token: Token,
    /// The agent's own memory, never to be managed: `[area_start, area_end)`.
    pub area_start: u64,
    /// End of the agent's own memory.
    pub area_end: u64,
    /// The agent library's variables, never to be managed either: `[data_start, data_end)`.
    pub data_start: u64,
    /// End of the agent library's variables.
    pub data_end: u64,
}

/// "Get ready."
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Prepare {
    /// [`PREPARE`].
    pub kind: u32,
    /// Frames of the staging ring behind the control page, in the memory that comes with the packet.
    pub ring_frames: u32,
    /// 1 when the packet carries a userfaultfd, 0 when the agent is to make one.
    pub has_uffd: u32,
    /// 1 when the packet carries the device that makes userfaultfds; without it there is the system call.
    pub has_device: u32,
    /// Ticks after which a move is taken for one that had to interrupt another CPU. 0: take-aways are
    /// not timed.
    pub slow_ticks: u64,
}

/// "Ready", or why not.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Prepared {
    /// [`PREPARED`].
    pub kind: u32,
    /// 0, or the errno of what failed.
    pub error: i32,
    /// Which step failed: `STEP_*`.
    pub step: u32,
    /// Unused.
    pub reserved: u32,
    /// Address of the staging area, in the agent's own memory. Where the agent made the userfaultfd the supervisor
    /// is to shake hands over it, and then to register this and the beacon.
    pub staging: u64,
    /// Address of the beacon page; [`DOORBELLS`] doorbell pages follow it.
    pub beacon: u64,
}

/// Pages behind the beacon. A program that is about to fork, or has made a mapping, touches the next
/// one of its kind: the fault asks the supervisor to get ready for it, and its answer says that it is.
pub const DOORBELLS: usize = DOORBELL_KINDS * DOORBELL_PAGES;
/// Doorbells of one kind.
pub const DOORBELL_PAGES: usize = 10;
/// Kinds of doorbells, in this order: a fork is about to come; a mapping was made; the fork is over; a child of
/// a fork is about to run its program; memory was got, where the control page says; a child that was forked past the C
/// library, and so has no control page, is about to have memory of its own children wiped; a child's agent offers its
/// conversation.
pub const DOORBELL_KINDS: usize = 7;

/// Making the userfaultfd failed.
pub const STEP_USERFAULTFD: u32 = 1;
/// The userfaultfd handshake failed.
pub const STEP_API: u32 = 2;
/// Mapping the shared memory failed.
pub const STEP_MEMORY: u32 = 3;
/// Registering the staging area failed.
pub const STEP_REGISTER: u32 = 4;

/// One page to take away.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TakeItem {
    /// Its address.
    pub address: u64,
    /// Frame of the ring that its bytes go to.
    pub slot: u32,
    /// Unused.
    pub reserved: u32,
}

/// Most ranges in one [`Guard`].
pub const GUARD_MAX: usize = 32;

/// "Keep these ranges from forked children": where the kernel does not report forks, a child would
/// read zeros for what is away. Sent before anything of the ranges is taken.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    /// [`GUARD`].
    pub kind: u32,
    /// How many of `ranges` count.
    pub count: u32,
    /// Start and end addresses.
    pub ranges: [[u64; 2]; GUARD_MAX],
}

/// "Take these pages away", if nothing has changed since `generation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Take {
    /// [`TAKE`].
    pub kind: u32,
    /// How many of `items` count, 1..=[`TAKE_MAX`].
    pub count: u32,
    /// 1 when the command before was revoked: what lies in the staging area is nobody's any more, and to be dropped first.
    pub has_leftovers: u32,
    /// Unused.
    pub reserved: u32,
    /// Generation of the address space that the command was made for.
    pub generation: u64,
    /// The pages, in ascending runs where possible.
    pub items: [TakeItem; TAKE_MAX],
}

/// What became of each page of a [`Take`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// [`TAKEN`].
    pub kind: u32,
    /// As in the command.
    pub count: u32,
    /// `TOOK`, `BUSY`, ... for each page.
    pub status: [u8; TAKE_MAX],
    /// What it took; zeros unless [`Prepare`] asked.
    pub times: TakeTimes,
}

/// When an agent did what for a [`Take`], in ticks: of the time stamp counter on x86-64, elsewhere
/// nanoseconds of CLOCK_MONOTONIC.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TakeTimes {
    /// The command was there.
    pub began: u64,
    /// Everything that moves was moved out.
    pub moved: u64,
    /// All was done but the answer.
    pub ended: u64,
    /// How long the copying to the ring took, between these two.
    pub copying: u64,
    /// Moves out of the program, of up to 16 pages each.
    pub moves: u32,
    /// Of these, how many took longer than `slow_ticks`.
    pub slow_moves: u32,
}

/// The page is in the ring and out of the process.
pub const TOOK: u8 = 1;
/// Pinned for I/O or in use elsewhere: it stays.
pub const BUSY: u8 = 2;
/// There is no page at that address.
pub const GONE: u8 = 3;
/// It can never be taken while it is as it is (mlocked, read-only, a thread's own block).
pub const UNMOVABLE: u8 = 4;
/// The address space changed since the command was made: nothing was done.
pub const STALE: u8 = 5;
/// As [`TOOK`], after a copy of a page shared since a fork was made: no memory is gained.
pub const TOOK_SHARED: u8 = 6;

/// The kernel does not let this process take any page (any more): a seccomp filter that it set for all its threads.
pub const FORBIDDEN: u8 = 7;

/// Supervisor to agent: nothing of this process is to be taken any more, because the job's main program has ended,
/// or the process cannot be managed or is not to be served; the agent thread ends and the process goes on alone.
pub const RELEASE: u32 = 6;
/// Supervisor to agent, a [`Word`]: nothing of this process is away any more, and nothing will be. The agent gives back what it has
/// mapped but for its code and stack, and its thread ends. Of processes that loaded the library nobody asks that.
pub const LEAVE: u32 = 24;
/// Supervisor to agent: a [`Guard`].
pub const GUARD: u32 = 7;

/// Program to supervisor, over a connection of its own that carries nothing else: a [`FileRequest`] with
/// the file's descriptor.
pub const MAP_FILE: u32 = 8;
/// The same without a descriptor: is any page of this range filled from a file?
pub const ASK_FILE: u32 = 9;
/// Supervisor to program: a [`FileAnswer`].
pub const FILE_ANSWER: u32 = 10;

/// Program to supervisor: a [`FileRequest`] with the file's descriptor. May shared memory of the
/// supervisor's stand in its place? With a yes comes the memory's descriptor.
pub const BORROW: u32 = 11;
/// The same, once that memory is mapped, not accessible yet: its pages are to be filled from now on.
pub const MAP_STAND_IN: u32 = 12;
/// As [`ASK_FILE`]: does anything of this range stand in for a file?
pub const ASK_STAND_IN: u32 = 17;
/// The same without a descriptor, of fresh memory: answered when the process may go on and fill it; yes, when
/// it is managed.
pub const MAP_MEMORY: u32 = 18;
/// The same without a descriptor: remove these pages of shared memory, for all who map it (MADV_REMOVE). With a no the program
/// is to do it itself.
pub const REMOVE_SHARED: u32 = 26;
/// Supervisor to agent, a [`Word`]: let no thread of the program change mappings by the C library.
pub const FREEZE: u32 = 13;
/// Agent to supervisor, a [`Word`]: nobody does now; or, after a [`Replace`], it is done.
pub const DONE: u32 = 14;
/// Supervisor to agent: a [`Replace`], with the descriptor of a file.
pub const REPLACE: u32 = 15;
/// Supervisor to agent, a [`Word`]: mappings may be changed again. Has no answer.
pub const THAW: u32 = 16;

/// Supervisor to agent, a [`Word`]: the userfaultfd that it made is set up, and what was to be registered is. Has no
/// answer. The control page says the same, a little earlier.
pub const FOLLOWED: u32 = 19;

/// Supervisor to agent, a [`Word`]: the conversation that it has offered ([`crate::injected::Offer`]) was taken.
pub const HEARD: u32 = 23;

/// Supervisor to agent: a [`Shed`]. Has no answer.
pub const SHED: u32 = 20;

/// Supervisor to agent, a [`Word`]: its thread is the last one of its process, which so cannot end. It is to end with
/// this status. Has no answer.
pub const ALONE: u32 = 21;

/// Supervisor to agent: a [`Keep`]. The answer is [`KEPT`].
pub const KEEP: u32 = 22;

/// Agent to supervisor, a [`Word`]: what a [`Keep`] says stays, and is there.
pub const KEPT: u32 = 25;

/// Most ranges in one [`Keep`].
pub const KEEP_MAX: usize = 32;

/// "What the kernel writes to when a thread ends is here: let it stay." Sent of threads that no library of the process
/// tells of, before anything of theirs is taken.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// [`KEEP`].
    pub kind: u32,
    /// How many of `ranges` count.
    pub count: u32,
    /// First address and bytes, of which there are no more than a page.
    pub ranges: [[u64; 2]; KEEP_MAX],
}

/// Most further groups in one [`Shed`].
pub const SHED_GROUPS_MAX: usize = 32;
/// Instead of a number of groups: they are to stay as they are.
pub const SHED_KEEPS_GROUPS: u32 = u32::MAX;

/// "Your program has become these users and groups, and cannot go back: become them, too, and keep no capability."
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shed {
    /// [`SHED`].
    pub kind: u32,
    /// How many of `more` count, or [`SHED_KEEPS_GROUPS`].
    pub more_count: u32,
    /// Real, effective and saved.
    pub users: [u32; 3],
    /// The same.
    pub groups: [u32; 3],
    /// Further groups.
    pub more: [u32; SHED_GROUPS_MAX],
}

/// A message that says no more than its kind, or how it ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Word {
    /// [`FREEZE`], [`DONE`], [`THAW`], [`KEPT`], [`FOLLOWED`], [`ALONE`], [`HEARD`].
    pub kind: u32,
    /// 0, or an errno.
    pub error: i32,
}

/// Most ranges in one [`Replace`].
pub const REPLACE_MAX: usize = 24;

/// One range of a [`Replace`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplaceItem {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// `PROT_*`.
    pub protection: u32,
    /// Unused.
    pub reserved: u32,
}

/// "Map that file, shared, over these ranges": between [`FREEZE`] and [`THAW`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Replace {
    /// [`REPLACE`].
    pub kind: u32,
    /// How many of `items` count.
    pub count: u32,
    /// Where.
    pub items: [ReplaceItem; REPLACE_MAX],
}

/// "Fill this range from that file": it is fresh anonymous memory that nobody knows of yet. Or only a
/// question ([`ASK_FILE`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FileRequest {
    /// [`MAP_FILE`], [`ASK_FILE`], [`BORROW`], [`MAP_STAND_IN`], [`ASK_STAND_IN`], [`MAP_MEMORY`] or
    /// [`REMOVE_SHARED`].
    pub kind: u32,
    /// Thread id of the asking process's agent, if it has one: it tells this address space from that before an exec.
    pub agent_thread: i32,
    /// First address.
    pub address: u64,
    /// Bytes; a multiple of the page size.
    pub len: u64,
    /// Where in the file the first page begins.
    pub offset: u64,
}

/// What became of a [`FileRequest`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FileAnswer {
    /// [`FILE_ANSWER`].
    pub kind: u32,
    /// 1: the range is filled from the file from now on, or (to a question) some of it is.
    pub yes: u32,
}
