//! The ports as Linux has them.

use super::{AgentSocket, Call, Machine, Memory, PageTableView, Runs, SpaceBell, Userfault};
use crate::family::Family;
use crate::space::Space;
use pleat_sys::channel::{Channel, Received};
use pleat_sys::process::{self, Bell};
use pleat_sys::procfs::{self, Content, Mapping, PageTable, State};
use pleat_sys::ring::Ring;
use pleat_sys::uffd::{FillError, Uffd};
use pleat_sys::{pidfd, random, ticks};
use pleat_wire::uffd::Message;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the kernel calls the place where a thread waits for a page.
const IN_FAULT: &str = "handle_userfault";
/// Bytes of the stack of a space's thread.
const STACK_BYTES: usize = 512 << 10;

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

    fn for_child(&self) -> io::Result<(SpaceBell, [u64; 2])> {
        Ok((Box::new(Bell::new()?), random::bits128()?))
    }
}
