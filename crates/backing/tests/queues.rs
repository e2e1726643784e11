//! What every store promises, asserted for each of them: the swap file with io_uring, with threads,
//! in memory, and one in front that spares everything.

use pleat_backing::{
    Backing, BackingError, Buffer, Completion, DirectFile, Fault, Faulty, Memory, Patience, Queue,
    Request, Rings, Transfer,
};
use std::collections::{HashMap, HashSet};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const LIMIT: Duration = Duration::from_secs(20);
const SLEEP: Patience = Patience::Sleep(LIMIT);

fn file_in(dir: &Path, rings: Rings) -> Arc<dyn Backing> {
    Arc::new(DirectFile::create(dir, rings).unwrap())
}

/// All of them, named for messages.
fn stores() -> Vec<(String, Arc<dyn Backing>)> {
    let mut stores: Vec<(String, Arc<dyn Backing>)> = Vec::new();
    let mut dirs = vec![std::env::temp_dir()];
    if Path::new("/dev/shm").is_dir() {
        dirs.push("/dev/shm".into());
    }
    for dir in dirs {
        for rings in [Rings::WherePossible, Rings::Never] {
            let file = DirectFile::create(&dir, rings).unwrap();
            let name = format!("{}, {}", dir.display(), file.describe());
            stores.push((name, Arc::new(file)));
        }
    }
    stores.push(("memory".into(), Arc::new(Memory::new())));
    let spared = Faulty::new(Arc::new(Memory::new()), Fault::BitFlip, u64::MAX, 1);
    stores.push(("spared".into(), Arc::new(spared)));
    stores
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

/// Bytes that tell which version of which block they are.
fn filled(mut buffer: Buffer, first: u64, version: u64) -> Buffer {
    for (block, bytes) in (first..).zip(buffer.chunks_exact_mut(BLOCK)) {
        for (at, word) in (0u64..).zip(bytes.chunks_exact_mut(8)) {
            let value = (block << 40 | version << 12 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            word.copy_from_slice(&value.to_ne_bytes());
        }
    }
    buffer
}

fn request(id: u64, transfer: Transfer, block: u64, buffer: Buffer) -> Request {
    Request {
        id,
        transfer,
        offset: block * BLOCK as u64,
        buffer,
    }
}

fn write(id: u64, block: u64, blocks: usize, version: u64) -> Request {
    let buffer = filled(Buffer::new(blocks * BLOCK), block, version);
    request(id, Transfer::Write, block, buffer)
}

fn read(id: u64, block: u64, blocks: usize) -> Request {
    request(id, Transfer::Read, block, Buffer::new(blocks * BLOCK))
}

/// Carries out one request.
fn run(queue: &mut dyn Queue, request: Request) -> Completion {
    queue.submit(request);
    let mut done = Vec::new();
    queue.complete(SLEEP, &mut done);
    assert_eq!((done.len(), queue.in_flight()), (1, 0));
    done.pop().unwrap()
}

fn assert_holds(completion: Completion, version: u64) {
    completion.result.unwrap();
    let block = completion.offset / BLOCK as u64;
    let expected = filled(Buffer::new(completion.buffer.len()), block, version);
    assert!(completion.buffer[..] == expected[..], "block {block}");
}

fn is_readable(queue: &dyn Queue, limit: Duration) -> bool {
    let mut wanted = libc::pollfd {
        fd: queue.event().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one `pollfd`, borrowed for the call.
    unsafe { libc::poll(&raw mut wanted, 1, limit.as_millis() as i32) == 1 }
}

const AREAS: u64 = 64;
const AREA_BLOCKS: u64 = 16;
const DEPTH: u32 = 12;
const TRANSFERS: u64 = 1200;

/// One thread's part of the store, and what it must hold.
struct Model {
    first_block: u64,
    /// Version and number of blocks of each area that was written.
    areas: HashMap<u64, (u64, usize)>,
    /// Areas of the requests in flight.
    busy: HashMap<u64, u64>,
    random: Random,
}

impl Model {
    fn next(&mut self, id: u64, mut buffer: Buffer) -> Request {
        let area = loop {
            let area = self.random.below(AREAS);
            if !self.busy.values().any(|&busy| busy == area) {
                break area;
            }
        };
        self.busy.insert(id, area);
        let block = self.first_block + area * AREA_BLOCKS;
        match self.areas.get(&area) {
            Some(&(_, blocks)) if self.random.below(2) == 0 => {
                let skipped = self.random.below(blocks as u64);
                buffer.resize((blocks - skipped as usize) * BLOCK);
                request(id, Transfer::Read, block + skipped, buffer)
            }
            _ => {
                let blocks = 1 + self.random.below(AREA_BLOCKS) as usize;
                self.areas.insert(area, (id, blocks));
                buffer.resize(blocks * BLOCK);
                let buffer = filled(buffer, block, id);
                request(id, Transfer::Write, block, buffer)
            }
        }
    }

    fn check(&mut self, completion: Completion) -> Buffer {
        let area = self.busy.remove(&completion.id).expect("in flight");
        completion.result.unwrap();
        let block = completion.offset / BLOCK as u64;
        let (version, _) = self.areas[&area];
        let expected = filled(Buffer::new(completion.buffer.len()), block, version);
        assert!(completion.buffer[..] == expected[..]);
        completion.buffer
    }
}

fn transfer_at_random(store: &dyn Backing, thread: u64) {
    let mut queue = store.queue(DEPTH).unwrap();
    let mut model = Model {
        first_block: thread * AREAS * AREA_BLOCKS,
        areas: HashMap::new(),
        busy: HashMap::new(),
        random: Random(thread + 1),
    };
    let mut spare: Vec<Buffer> = (0..DEPTH).map(|_| Buffer::default()).collect();
    let (mut next, mut back, mut done) = (0, 0, Vec::new());
    while back < TRANSFERS {
        while next < TRANSFERS && !spare.is_empty() {
            queue.submit(model.next(next, spare.pop().unwrap()));
            next += 1;
        }
        assert_eq!(queue.in_flight(), model.busy.len());
        let patience = match model.random.below(3) {
            0 => Patience::Poll,
            1 => Patience::Spin(Duration::from_micros(50)),
            _ => SLEEP,
        };
        queue.complete(patience, &mut done);
        back += done.len() as u64;
        spare.extend(done.drain(..).map(|completion| model.check(completion)));
    }
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn what_was_written_is_read_by_many_queues_in_many_threads_and_each_id_comes_back_once() {
    for (name, store) in stores() {
        println!("{name}");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &*store;
                scope.spawn(move || transfer_at_random(store, thread));
            }
        });
    }
}

#[test]
fn a_read_past_the_end_is_truncated() {
    for (name, store) in stores() {
        let mut queue = store.queue(1).unwrap();
        run(&mut *queue, write(0, 0, 3, 1)).result.unwrap();
        for (block, blocks) in [(3, 1), (2, 2), (1000, 4)] {
            let completion = run(&mut *queue, read(7, block, blocks));
            let error = completion.result.unwrap_err();
            assert!(
                matches!(error, BackingError::Truncated(_)),
                "{name}: {error}"
            );
            let place = format!("reading at byte {}", block * BLOCK as u64);
            assert!(error.to_string().contains(&place), "{error}");
            assert_eq!(
                (completion.id, completion.buffer.len()),
                (7, blocks * BLOCK)
            );
        }
        assert_holds(run(&mut *queue, read(8, 1, 2)), 1);
    }
}

#[test]
fn the_event_is_readable_while_there_is_something_to_take() {
    for (name, store) in stores() {
        let mut queue = store.queue(4).unwrap();
        assert!(!is_readable(&*queue, Duration::ZERO), "{name}");
        for round in 0..20 {
            for id in 0..4 {
                queue.submit(write(id, 8 * id, 8, round));
            }
            let mut done = Vec::new();
            while queue.in_flight() > 0 {
                assert!(is_readable(&*queue, LIMIT), "{name}");
                queue.complete(Patience::Poll, &mut done);
            }
            assert_eq!(done.len(), 4);
            let end = Instant::now() + LIMIT;
            // A last signal may come after what it tells of has been taken.
            while is_readable(&*queue, Duration::ZERO) {
                queue.complete(Patience::Poll, &mut done);
                assert!(Instant::now() < end || queue.in_flight() == 0, "{name}");
                if queue.in_flight() == 0 {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_queue_may_be_made_used_and_dropped_in_different_threads() {
    for (_, store) in stores() {
        let mut queue = store.queue(8).unwrap();
        let started = std::thread::spawn(move || {
            for id in 0..8 {
                queue.submit(write(id, id, 1, 5));
            }
            queue
        });
        let mut queue = started.join().unwrap();
        let mut ids = HashSet::new();
        while queue.in_flight() > 0 {
            let mut done = Vec::new();
            queue.complete(SLEEP, &mut done);
            assert!(!done.is_empty(), "no answer");
            ids.extend(done.iter().map(|completion| completion.id));
        }
        assert_eq!(ids.len(), 8);
        std::thread::spawn(move || drop(queue)).join().unwrap();
    }
}

#[test]
fn a_queue_that_is_dropped_finishes_what_it_was_given() {
    for (_, store) in stores() {
        let mut queue = store.queue(8).unwrap();
        for id in 0..8 {
            queue.submit(write(id, id, 1, 3));
        }
        drop(queue);
        let mut queue = store.queue(1).unwrap();
        for id in 0..8 {
            assert_holds(run(&mut *queue, read(id, id, 1)), 3);
        }
    }
}

#[test]
fn patience_has_an_end_when_there_is_no_answer() {
    for (name, store) in stores() {
        let stuck = Faulty::new(store, Fault::Stuck, 0, 1);
        let mut queue = stuck.queue(2).unwrap();
        let mut done = Vec::new();
        queue.complete(SLEEP, &mut done);
        queue.submit(write(1, 0, 1, 1));
        for (patience, least) in [
            (Patience::Poll, 0),
            (Patience::Spin(Duration::from_millis(20)), 20),
            (Patience::Sleep(Duration::from_millis(20)), 20),
        ] {
            let start = Instant::now();
            queue.complete(patience, &mut done);
            let taken = start.elapsed();
            assert!(taken >= Duration::from_millis(least), "{name}: {taken:?}");
            assert!(taken < Duration::from_secs(5), "{name}: {taken:?}");
        }
        assert_eq!((done.len(), queue.in_flight()), (0, 1));
        queue.submit(write(2, 1, 1, 1));
        queue.complete(SLEEP, &mut done);
        assert_eq!((done.len(), done[0].id, queue.in_flight()), (1, 2, 1));
        let start = Instant::now();
        drop(queue);
        assert!(start.elapsed() < Duration::from_secs(3));
    }
}

#[test]
#[should_panic(expected = "2 requests are in flight already")]
fn more_requests_than_the_depth_are_a_bug() {
    let mut queue = Memory::new().queue(2).unwrap();
    for id in 0..3 {
        queue.submit(write(id, id, 1, 0));
    }
}

#[test]
fn misaligned_requests_are_a_bug() {
    for (name, store) in stores() {
        for (offset, bytes) in [(512, BLOCK), (0, 100), (0, 0)] {
            let mut queue = store.queue(2).unwrap();
            let submitted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                queue.submit(Request {
                    id: 0,
                    transfer: Transfer::Write,
                    offset,
                    buffer: Buffer::new(bytes),
                });
            }));
            assert!(submitted.is_err(), "{name}: {bytes} bytes at {offset}");
        }
    }
}

#[test]
fn discarded_blocks_go_back_and_their_neighbours_stay() {
    let dir = tempfile::tempdir().unwrap();
    for rings in [Rings::WherePossible, Rings::Never] {
        use std::os::unix::fs::MetadataExt;
        let store = DirectFile::create(dir.path(), rings).unwrap();
        let mut queue = store.queue(1).unwrap();
        run(&mut *queue, write(0, 0, 256, 1)).result.unwrap();
        let before = store.file().metadata().unwrap().blocks();
        store.discard(64 << 12, 128 << 12).unwrap();
        let after = store.file().metadata().unwrap().blocks();
        assert!(after < before, "no hole on this file system?");
        assert_holds(run(&mut *queue, read(1, 0, 64)), 1);
        assert_holds(run(&mut *queue, read(2, 192, 64)), 1);
        assert!(store.free_bytes().unwrap() > 0);
    }
}

#[test]
fn the_file_vanishes_and_the_directory_is_named_in_errors() {
    let dir = tempfile::tempdir().unwrap();
    let store = file_in(dir.path(), Rings::WherePossible);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let name = format!("swap file in {}", dir.path().display());
    assert_eq!(store.name(), name);
    let mut queue = store.queue(1).unwrap();
    let error = run(&mut *queue, read(0, 0, 1)).result.unwrap_err();
    assert!(error.to_string().starts_with(&name), "{error}");
    let gone = DirectFile::create(Path::new("/nonexistent/dir"), Rings::Never);
    let message = gone.err().unwrap().to_string();
    assert!(
        message.contains("/nonexistent/dir, creating it"),
        "{message}"
    );
}

#[test]
fn memory_is_full_at_its_limit_and_takes_more_after_a_discard() {
    let store = Memory::with_limit(4 * BLOCK as u64 + 100);
    let mut queue = store.queue(1).unwrap();
    run(&mut *queue, write(0, 10, 3, 1)).result.unwrap();
    let error = run(&mut *queue, write(1, 20, 2, 1)).result.unwrap_err();
    assert!(matches!(error, BackingError::NoSpace(_)), "{error}");
    run(&mut *queue, write(2, 10, 3, 2)).result.unwrap();
    assert_eq!(store.free_bytes().unwrap(), BLOCK as u64);
    store.discard(10 << 12, 1 << 12).unwrap();
    run(&mut *queue, write(1, 20, 2, 1)).result.unwrap();
    assert_eq!(
        (store.free_bytes().unwrap(), store.used_bytes()),
        (0, 4 * BLOCK as u64)
    );
    assert_holds(run(&mut *queue, read(3, 11, 2)), 2);
    let hole = run(&mut *queue, read(3, 10, 1));
    assert!(hole.buffer.iter().all(|&byte| byte == 0));
}
