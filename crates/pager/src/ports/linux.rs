//! The ports as Linux has them.

use super::{
    AgentSocket, Call, Machine, Memory, PageTableView, Runs, SharedMemory, Sharing, SpaceBell,
    Userfault,
};
use crate::family::Family;
use crate::segments::{Identity, Segments, State as SegmentState};
use crate::space::Space;
use pleat_sys::channel::{Channel, Received};
use pleat_sys::inject::threads;
use pleat_sys::memory_file::MemoryFile;
use pleat_sys::process::{self, Bell};
use pleat_sys::procfs::{self, Content, FilePart, Mapper, Mapping, NamelessPart, PageTable, State};
use pleat_sys::ring::Ring;
use pleat_sys::robust::{self, RobustLocks};
use pleat_sys::take_out::TakeOut;
use pleat_sys::uffd::{FillError, Uffd};
use pleat_sys::{pidfd, random, ticks};
use pleat_wire::uffd::Message;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// What the kernel calls the place where a thread waits for a page.
const IN_FAULT: &str = "handle_userfault";
/// Bytes of the stack of a space's thread.
const STACK_BYTES: usize = 512 << 10;
/// The same of the thread that takes pages of segments.
const TAKER_STACK_BYTES: usize = 256 << 10;

impl Userfault for Uffd {
    fn descriptor(&self) -> RawFd {
        self.as_raw_fd()
    }

    fn read(&self, out: &mut Vec<Message>) -> io::Result<()> {
        Uffd::read(self, out)
    }

    fn child(&self, descriptor: i32) -> Arc<dyn Userfault> {
        Arc::new(self.take_child(descriptor))
    }

    fn copy(&self, address: u64, bytes: &[u8]) -> Result<u64, FillError> {
        Uffd::copy(self, address, bytes)
    }

    fn copy_quietly(&self, address: u64, bytes: &[u8]) -> Result<u64, FillError> {
        Uffd::copy_quietly(self, address, bytes)
    }

    fn poison(&self, address: u64) -> Result<(), FillError> {
        Uffd::poison(self, address)
    }

    fn protect(&self, start: u64, len: u64, protect: bool) -> Result<(), FillError> {
        Uffd::protect(self, start, len, protect)
    }

    fn check_private(&self, address: u64) -> Result<(), FillError> {
        Uffd::check_private(self, address)
    }

    fn wake(&self, start: u64, len: u64) {
        Uffd::wake(self, start, len);
    }

    fn register(&self, start: u64, len: u64) -> io::Result<()> {
        Uffd::register(self, start, len)
    }

    fn register_read_only(&self, start: u64, len: u64) -> io::Result<()> {
        Uffd::register_read_only(self, start, len)
    }

    fn unregister(&self, start: u64, len: u64) -> io::Result<()> {
        Uffd::unregister(self, start, len)
    }

    fn is_dead(&self) -> bool {
        Uffd::is_dead(self)
    }

    fn is_event_pending(&self) -> bool {
        Uffd::is_event_pending(self)
    }

    fn close(&self) {
        Uffd::close(self);
    }
}

impl AgentSocket for Channel {
    fn descriptor(&self) -> RawFd {
        self.as_raw_fd()
    }

    fn send(&self, packet: &[u8], descriptor: Option<RawFd>) -> io::Result<()> {
        Channel::send(self, packet, descriptor)
    }

    fn receive(&self, packet: &mut [u8]) -> Received {
        Channel::receive(self, packet)
    }

    fn is_closed(&self) -> bool {
        Channel::is_closed(self)
    }
}

impl Call for Bell {
    fn descriptor(&self) -> RawFd {
        self.as_raw_fd()
    }

    fn ring(&self) {
        Bell::ring(self);
    }

    fn hush(&self) {
        Bell::hush(self);
    }
}

impl PageTableView for PageTable {
    fn free_run(&self, start: u64, pages: usize) -> io::Result<usize> {
        PageTable::free_run(self, start, pages)
    }

    fn which_exist(&self, start: u64, pages: usize) -> io::Result<Vec<bool>> {
        PageTable::which_exist(self, start, pages)
    }

    fn is_marked(&self, address: u64) -> io::Result<bool> {
        PageTable::is_marked(self, address)
    }
}

impl Memory for Content {
    fn which_exist(&self, start: u64, pages: usize) -> io::Result<Vec<bool>> {
        self.page_table().which_exist(start, pages)
    }

    fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()> {
        Content::read(self, address, to)
    }
}

impl SharedMemory for MemoryFile {
    fn identity(&self) -> Identity {
        MemoryFile::identity(self)
    }

    fn size(&self) -> io::Result<u64> {
        MemoryFile::size(self)
    }

    fn bytes(&self) -> u64 {
        MemoryFile::bytes(self)
    }

    fn runs(&self) -> io::Result<Vec<(u64, u64)>> {
        MemoryFile::runs(self)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        MemoryFile::write(self, offset, bytes)
    }

    fn mark_orphans(&self, offset: u64, threads: &[i32]) -> io::Result<usize> {
        robust::mark_orphans(self, offset, threads)
    }
}

/// The machine that this runs on, with the job's family.
pub struct Linux(pub Family);

impl Machine for Linux {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait(&self, fds: &mut [libc::pollfd], limit: Option<Duration>) {
        process::wait(fds, limit);
    }

    fn pause(&self, time: Duration) {
        match time.is_zero() {
            true => std::thread::yield_now(),
            false => std::thread::sleep(time),
        }
    }

    fn join(&self, looks: u32, may_sleep: bool, is_over: &dyn Fn() -> bool) -> bool {
        for _ in 0..looks {
            if is_over() {
                return true;
            }
            std::hint::spin_loop();
        }
        // A call that came before, of this wait or an earlier one, only means one look more.
        while may_sleep && !is_over() {
            std::thread::park();
        }
        may_sleep
    }

    fn serve(&self, space: Space) -> io::Result<()> {
        std::thread::Builder::new()
            .name("pleat-space".into())
            .stack_size(STACK_BYTES)
            .spawn(move || space.run())
            .map(drop)
    }

    fn lock(&self, ring: &Ring, give_up: &dyn Fn() -> bool) -> bool {
        ring.lock(give_up)
    }

    fn own_thread(&self) -> i32 {
        process::own_thread()
    }

    fn hurry(&self, thread: i32) {
        process::hurry(thread);
    }

    fn relax(&self) {
        process::relax();
    }

    fn relax_like(&self, thread: i32, pid: i32) {
        process::relax_like(thread, pid);
    }

    fn pin(&self, thread: i32, cpu: u32) {
        process::pin(thread, cpu);
    }

    fn last_cpu(&self, thread: i32) -> io::Result<u32> {
        procfs::last_cpu_of_thread(thread)
    }

    fn state(&self, thread: i32) -> State {
        procfs::state(thread)
    }

    fn is_stopped(&self, thread: i32) -> bool {
        procfs::is_stopped(thread)
    }

    fn own_cpu_ns(&self) -> u64 {
        ticks::own_cpu_ns()
    }

    fn has_ended(&self, process: &OwnedFd) -> bool {
        pidfd::has_ended(process)
    }

    fn kill(&self, process: &OwnedFd) {
        process::signal(process.as_raw_fd(), libc::SIGKILL);
    }

    fn find_waiting(&self, thread: i32) -> Option<(i32, Arc<OwnedFd>)> {
        let pid = procfs::tgid_of_thread(thread).ok()?;
        // Taken first: what is seen afterwards is of this process, or of one that has ended.
        let found = self.0.open(pid, &|_| false)?;
        let is_it = procfs::shares_numbers(pid) && procfs::sleeps_in(thread).contains(IN_FAULT);
        is_it.then(|| (pid, Arc::new(found)))
    }

    fn maps(&self, pid: i32) -> io::Result<Vec<Mapping>> {
        procfs::maps(pid)
    }

    fn mapping_at(&self, pid: i32, address: u64) -> Option<(u64, u64)> {
        procfs::mapping_at(pid, address)
    }

    fn present_anon_runs(&self, pid: i32, start: u64, end: u64) -> io::Result<Runs> {
        procfs::present_anon_runs(pid, start, end)
    }

    fn zero_page_runs(&self, pid: i32, start: u64, end: u64) -> io::Result<Runs> {
        procfs::zero_page_runs(pid, start, end)
    }

    fn wiped_on_fork(&self, pid: i32) -> io::Result<Runs> {
        procfs::wiped_on_fork(pid)
    }

    fn page_table(&self, pid: i32) -> io::Result<Box<dyn PageTableView>> {
        Ok(Box::new(PageTable::open(pid)?))
    }

    fn memory(&self, pid: i32) -> io::Result<Box<dyn Memory>> {
        Ok(Box::new(Content::open(pid)?))
    }

    fn bell(&self) -> io::Result<SpaceBell> {
        Ok(Box::new(Bell::new()?))
    }

    fn for_child(&self) -> io::Result<(SpaceBell, [u64; 2])> {
        Ok((Box::new(Bell::new()?), random::bits128()?))
    }
}

impl Sharing for Linux {
    fn nameless_device(&self) -> io::Result<u64> {
        procfs::nameless_device()
    }

    fn taker(&self) -> io::Result<TakeOut> {
        TakeOut::new()
    }

    fn serve_segments(&self, segments: Arc<Segments>, taker: TakeOut) -> io::Result<()> {
        std::thread::Builder::new()
            .name("pleat-shared".into())
            .stack_size(TAKER_STACK_BYTES)
            .spawn(move || segments.run(taker))
            .map(drop)
    }

    fn alone<'a>(&self, state: &'a RwLock<SegmentState>) -> RwLockWriteGuard<'a, SegmentState> {
        state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn nameless_parts(&self, pid: i32) -> io::Result<Vec<NamelessPart>> {
        procfs::nameless_parts(pid)
    }

    fn mappings_of(&self, pid: i32, memory: Identity) -> io::Result<Vec<FilePart>> {
        procfs::mappings_of(pid, memory)
    }

    fn mappers_of(&self, memory: Identity) -> io::Result<Vec<Mapper>> {
        procfs::mappers_of(memory)
    }

    fn open(
        &self,
        pid: i32,
        part: &FilePart,
        memory: Identity,
    ) -> io::Result<Box<dyn SharedMemory>> {
        Ok(Box::new(MemoryFile::of_mapping(pid, part, memory)?))
    }

    fn is_named(&self, pid: i32, address: u64, name: &str) -> io::Result<bool> {
        procfs::is_named(pid, address, name)
    }

    fn share_memory(&self, one: i32, other: i32) -> bool {
        process::share_memory(one, other)
    }

    fn children(&self, pid: i32) -> Vec<i32> {
        procfs::children(pid)
    }

    fn threads(&self, pid: i32) -> Vec<i32> {
        threads::of(pid)
    }

    fn shares_numbers(&self, pid: i32) -> bool {
        procfs::shares_numbers(pid)
    }

    fn own_thread_number(&self, pid: i32, thread: i32) -> Option<i32> {
        procfs::own_thread_number(pid, thread)
    }

    fn is_ending(&self, pid: i32, thread: i32) -> bool {
        procfs::is_ending(pid, thread)
    }

    fn robust_locks(
        &self,
        pid: i32,
        thread: i32,
        may_read: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<RobustLocks> {
        robust::robust_locks(pid, thread, may_read)
    }
}
