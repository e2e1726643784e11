//! Transfers that the kernel never finishes, and the way through the page cache: what cannot be had
//! from outside.

use super::*;
use crate::backing::{Completion, Patience, Request, Transfer};
use crate::buffer::Buffer;
use std::os::fd::FromRawFd;
use std::time::Instant;

const SHORT: Duration = Duration::from_millis(50);

/// A file that has no answer to a read until it is written to.
fn mute() -> Arc<OpenFile> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: nobody else has the descriptor.
    let file = unsafe { File::from_raw_fd(fd) };
    Arc::new(OpenFile::new(file, "mute file".into()))
}

fn request(transfer: Transfer, offset: u64, byte: u8) -> Request {
    let mut buffer = Buffer::new(BLOCK_BYTES as usize);
    buffer.fill(byte);
    Request {
        id: offset,
        transfer,
        offset,
        buffer,
    }
}

fn run(queue: &mut dyn Queue, request: Request) -> Completion {
    queue.submit(request);
    let mut done = Vec::new();
    queue.complete(Patience::Sleep(Duration::from_secs(20)), &mut done);
    done.pop().expect("an answer")
}

/// Sleeps and spins in vain for as long as it was told to, and no longer.
fn assert_patience_ends(queue: &mut dyn Queue) {
    for patience in [
        Patience::Poll,
        Patience::Spin(SHORT),
        Patience::Sleep(SHORT),
    ] {
        let (start, mut done) = (Instant::now(), Vec::new());
        queue.complete(patience, &mut done);
        assert!(done.is_empty() && queue.in_flight() == 1);
        assert!(patience == Patience::Poll || start.elapsed() >= SHORT);
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_ring_leaks_the_buffer_of_a_transfer_that_never_ends() {
    if !ring::is_allowed() {
        pleat_testing::skip("no io_uring here");
        return;
    }
    let file = mute();
    let mut queue = RingQueue::new(file.clone(), 4).unwrap();
    queue.submit(request(Transfer::Read, 0, 0));
    assert_patience_ends(&mut queue);
    assert_eq!(queue.wind_up(SHORT), 1);
    assert_eq!(queue.in_flight(), 0);
    let start = Instant::now();
    drop(queue);
    assert!(start.elapsed() < Duration::from_millis(500));

    let mut queue = RingQueue::new(file, 1).unwrap();
    queue.submit(request(Transfer::Read, 0, 0));
    let start = Instant::now();
    drop(queue);
    assert!(start.elapsed() >= FAREWELL && start.elapsed() < 4 * FAREWELL);
}

#[test]
fn a_request_that_no_thread_comes_to_is_taken_back_and_no_thread_is_left_over() {
    let dir = tempfile::tempdir().unwrap();
    let file = unnamed::create(dir.path()).unwrap();
    let file = Arc::new(OpenFile::new(file, unnamed::name_in(dir.path())));
    let nobody = Arc::new(Pool::without_threads());
    let mut queue = ThreadQueue::new(&file, nobody.clone(), 8).unwrap();
    queue.submit(request(Transfer::Read, 0, 0));
    assert_patience_ends(&mut queue);
    assert_eq!(queue.wind_up(SHORT), 1);
    assert_eq!((queue.in_flight(), nobody.waiting()), (0, 0));

    let pool = Arc::new(Pool::start(&file).unwrap());
    let mut queue = ThreadQueue::new(&file, pool, 8).unwrap();
    queue.submit(request(Transfer::Write, 0, 0));
    drop(queue);
    let end = Instant::now() + Duration::from_secs(20);
    while Arc::strong_count(&file) > 1 {
        assert!(Instant::now() < end, "threads are left over");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(file.as_file().metadata().unwrap().len(), 4096);
}

#[test]
fn the_page_cache_stays_small_where_it_cannot_be_gone_past() {
    let store = DirectFile::create_cached(&std::env::temp_dir()).unwrap();
    assert_eq!(store.describe(), "page cache, threads");
    let mut queue = store.queue(4).unwrap();
    for number in 0..16u64 {
        let mut long = request(Transfer::Write, number << 20, 0);
        long.buffer.resize(1 << 20);
        long.buffer.fill(number as u8);
        run(&mut *queue, long).result.unwrap();
    }
    for number in 0..16u64 {
        let back = run(&mut *queue, request(Transfer::Read, number << 20, 99));
        back.result.unwrap();
        assert!(back.buffer.iter().all(|&byte| byte == number as u8));
    }
    let resident = cached_bytes(store.file(), 16 << 20);
    assert!(resident < 2 << 20, "{resident} bytes in the page cache");
}

/// Bytes of the file that the page cache holds.
fn cached_bytes(file: &File, bytes: usize) -> usize {
    use std::os::fd::AsRawFd;
    let mut present = vec![0u8; bytes / 4096];
    // SAFETY: a new mapping that nobody reads from or writes to, asked about and removed; `present`
    // has a byte for each of its pages.
    unsafe {
        let fd = file.as_raw_fd();
        let start = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd,
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::mincore(start, bytes, present.as_mut_ptr()), 0);
        libc::munmap(start, bytes);
    }
    4096 * present.iter().filter(|&&page| page & 1 != 0).count()
}

#[test]
fn a_file_system_without_o_direct_is_served_all_the_same() {
    // On newer kernels tmpfs takes O_DIRECT, and /proc, where no file can be made, never does.
    let refusing = File::open("/proc/self/status").unwrap();
    assert!(!crate::kernel::bypass_page_cache(&refusing).unwrap());
    let file = OpenFile::new(refusing, "file in /proc".into());
    assert!(!file.past_the_page_cache().unwrap().is_direct());

    let shared_memory = Path::new("/dev/shm");
    if !shared_memory.is_dir() {
        pleat_testing::skip("the rest: no /dev/shm here");
        return;
    }
    for store in [
        DirectFile::create(shared_memory, Rings::WherePossible).unwrap(),
        DirectFile::create_cached(shared_memory).unwrap(),
    ] {
        let mut queue = store.queue(1).unwrap();
        run(&mut *queue, request(Transfer::Write, 4096, 5))
            .result
            .unwrap();
        let back = run(&mut *queue, request(Transfer::Read, 4096, 0));
        back.result.unwrap();
        assert!(back.buffer.iter().all(|&byte| byte == 5));
    }
}

#[test]
fn nothing_is_believed_after_a_loss() {
    let store = DirectFile::create_cached(&std::env::temp_dir()).unwrap();
    let mut queue = store.queue(1).unwrap();
    run(&mut *queue, request(Transfer::Write, 0, 5))
        .result
        .unwrap();
    store.file.lose();
    for transfer in [Transfer::Read, Transfer::Write] {
        let answer = run(&mut *queue, request(transfer, 0, 5)).result;
        assert!(matches!(answer, Err(BackingError::Lost(_))), "{answer:?}");
    }
}

/// Writes to new places, finished by the thread that makes them (see the module).
#[test]
fn what_is_for_writes_makes_them_by_threads() {
    let store = DirectFile::create(&std::env::temp_dir(), Rings::WherePossible).unwrap();
    let mut queue = store.queue_for_writes(4).unwrap();
    for number in 0..4 {
        run(&mut *queue, request(Transfer::Write, number << 20, 7))
            .result
            .unwrap();
    }
    assert!(lock(&store.pool).is_some());
    let mut reading = store.queue(1).unwrap();
    let back = run(&mut *reading, request(Transfer::Read, 3 << 20, 0));
    back.result.unwrap();
    assert!(back.buffer.iter().all(|&byte| byte == 7));
}
