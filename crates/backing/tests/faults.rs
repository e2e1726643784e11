//! Every fault that can be injected does what it says, the same way each time, and nothing else.

use pleat_backing::{
    Backing, BackingError, Buffer, Completion, Fault, Faulty, Memory, Patience, Queue, Request,
    Transfer,
};
use std::sync::Arc;
use std::time::Duration;

const BLOCK: usize = 4096;

fn run(queue: &mut dyn Queue, transfer: Transfer, block: u64, buffer: Buffer) -> Completion {
    queue.submit(Request {
        id: 70 + block,
        transfer,
        offset: block * BLOCK as u64,
        buffer,
    });
    let mut done = Vec::new();
    queue.complete(Patience::Sleep(Duration::from_secs(20)), &mut done);
    let completion = done.pop().expect("an answer");
    assert_eq!(completion.id, 70 + block);
    assert!(done.is_empty());
    completion
}

/// Writes blocks whose bytes are as given, one after the other.
fn write(queue: &mut dyn Queue, block: u64, bytes: &[u8]) -> Result<(), BackingError> {
    let mut buffer = Buffer::new(bytes.len() * BLOCK);
    for (block, &byte) in buffer.chunks_mut(BLOCK).zip(bytes) {
        block.fill(byte);
    }
    let completion = run(queue, Transfer::Write, block, buffer);
    assert_eq!(
        completion.buffer.len(),
        bytes.len() * BLOCK,
        "the buffer comes back whole"
    );
    completion.result
}

/// The byte that each of so many blocks is filled with.
fn read(queue: &mut dyn Queue, block: u64, blocks: usize) -> Result<Vec<u8>, BackingError> {
    let completion = run(queue, Transfer::Read, block, Buffer::new(blocks * BLOCK));
    completion.result?;
    let blocks = completion.buffer.chunks(BLOCK);
    Ok(blocks
        .map(|block| {
            assert!(block.iter().all(|&byte| byte == block[0]));
            block[0]
        })
        .collect())
}

/// A store with a fault, and one in which the same can be looked at without.
fn faulty(fault: Fault, after: u64, times: u64) -> (Faulty, Arc<Memory>) {
    let memory = Arc::new(Memory::new());
    (Faulty::new(memory.clone(), fault, after, times), memory)
}

#[test]
fn writes_that_are_refused_write_nothing() {
    for fault in [Fault::NoSpace, Fault::WriteError] {
        let (store, _) = faulty(fault, 1, 2);
        let mut queue = store.queue(1).unwrap();
        write(&mut *queue, 0, &[1, 1]).unwrap();
        for _ in 0..2 {
            let error = write(&mut *queue, 0, &[2]).unwrap_err();
            match fault {
                Fault::NoSpace => assert!(matches!(error, BackingError::NoSpace(_))),
                _ => assert!(matches!(error, BackingError::Device(_))),
            }
            assert!(error.to_string().contains("writing at byte 0"), "{error}");
        }
        assert_eq!(read(&mut *queue, 0, 2).unwrap(), [1, 1]);
        write(&mut *queue, 0, &[3]).unwrap();
        assert_eq!(read(&mut *queue, 0, 2).unwrap(), [3, 1]);
        assert_eq!(store.hits(), 2);
    }
}

#[test]
fn reads_that_are_refused_say_why() {
    for fault in [Fault::ReadError, Fault::Truncated] {
        let (store, _) = faulty(fault, 1, u64::MAX);
        let mut queue = store.queue(1).unwrap();
        write(&mut *queue, 0, &[1]).unwrap();
        assert_eq!(read(&mut *queue, 0, 1).unwrap(), [1]);
        for hits in 1..5 {
            let error = read(&mut *queue, 0, 1).unwrap_err();
            match fault {
                Fault::ReadError => assert!(matches!(error, BackingError::Device(_))),
                _ => assert!(matches!(error, BackingError::Truncated(_))),
            }
            assert_eq!(store.hits(), hits);
        }
    }
}

#[test]
fn all_queues_of_a_store_share_its_count() {
    let (store, _) = faulty(Fault::WriteError, 2, 1);
    let mut queues: Vec<_> = (0..4).map(|_| store.queue(1).unwrap()).collect();
    let results = queues.iter_mut().map(|queue| write(&mut **queue, 0, &[1]));
    let failed: Vec<bool> = results.map(|result| result.is_err()).collect();
    assert_eq!(failed, [false, false, true, false]);
}

#[test]
fn a_short_write_reaches_the_store_by_half_and_says_nothing() {
    let (store, memory) = faulty(Fault::ShortWrite, 1, 2);
    let mut queue = store.queue(1).unwrap();
    write(&mut *queue, 0, &[1; 5]).unwrap();
    write(&mut *queue, 0, &[2; 5]).unwrap();
    assert_eq!(read(&mut *queue, 0, 5).unwrap(), [2, 2, 1, 1, 1]);
    write(&mut *queue, 4, &[3]).unwrap();
    assert_eq!(read(&mut *queue, 4, 1).unwrap(), [1]);
    write(&mut *queue, 4, &[3]).unwrap();
    let mut behind = memory.queue(1).unwrap();
    assert_eq!(read(&mut *behind, 0, 5).unwrap(), [2, 2, 1, 1, 3]);
}

#[test]
fn a_flipped_bit_is_one_bit_and_only_in_what_comes_back() {
    let (store, memory) = faulty(Fault::BitFlip, 0, 1);
    let mut queue = store.queue(1).unwrap();
    write(&mut *queue, 0, &[1, 2, 3]).unwrap();
    let flipped = run(&mut *queue, Transfer::Read, 0, Buffer::new(3 * BLOCK));
    flipped.result.unwrap();
    let mut behind = memory.queue(1).unwrap();
    let right = run(&mut *behind, Transfer::Read, 0, Buffer::new(3 * BLOCK));
    let bits = flipped.buffer.iter().zip(right.buffer.iter());
    assert_eq!(bits.map(|(a, b)| (a ^ b).count_ones()).sum::<u32>(), 1);
    assert_eq!(read(&mut *queue, 0, 3).unwrap(), [1, 2, 3]);
}

#[test]
fn swapped_reads_return_what_is_elsewhere() {
    let (store, _) = faulty(Fault::Swapped, 0, 2);
    let mut queue = store.queue(1).unwrap();
    write(&mut *queue, 0, &[1, 1]).unwrap();
    // Nothing else is there that differs: nothing can be swapped, and nothing is counted.
    assert_eq!(read(&mut *queue, 0, 1).unwrap(), [1]);
    assert_eq!(store.hits(), 0);
    write(&mut *queue, 8, &[2, 3]).unwrap();
    assert_eq!(read(&mut *queue, 0, 2).unwrap(), [2, 3]);
    assert_eq!(read(&mut *queue, 8, 1).unwrap(), [3]);
    assert_eq!(read(&mut *queue, 8, 1).unwrap(), [2]);
    assert_eq!(store.hits(), 2);
}

#[test]
fn replayed_reads_return_what_was_there_before() {
    let (store, _) = faulty(Fault::Replayed, 1, 1);
    let mut queue = store.queue(1).unwrap();
    write(&mut *queue, 0, &[1, 2, 3]).unwrap();
    assert_eq!(read(&mut *queue, 0, 3).unwrap(), [1, 2, 3]);
    write(&mut *queue, 1, &[4]).unwrap();
    assert_eq!(read(&mut *queue, 0, 3).unwrap(), [1, 4, 3]);
    assert_eq!(store.hits(), 0);
    assert_eq!(read(&mut *queue, 0, 3).unwrap(), [1, 2, 3]);
    assert_eq!(store.hits(), 1);
    assert_eq!(read(&mut *queue, 0, 3).unwrap(), [1, 4, 3]);
}

#[test]
fn a_stuck_request_never_comes_back_and_does_nothing() {
    let (store, memory) = faulty(Fault::Stuck, 1, 1);
    let mut queue = store.queue(3).unwrap();
    write(&mut *queue, 0, &[1]).unwrap();
    let mut buffer = Buffer::new(BLOCK);
    buffer.fill(9);
    queue.submit(Request {
        id: 1,
        transfer: Transfer::Write,
        offset: 0,
        buffer,
    });
    for _ in 0..10 {
        assert_eq!(read(&mut *queue, 0, 1).unwrap(), [1]);
    }
    let mut done = Vec::new();
    queue.complete(Patience::Sleep(Duration::from_millis(30)), &mut done);
    assert_eq!((done.len(), queue.in_flight(), store.hits()), (0, 1, 1));
    drop(queue);
    let mut behind = memory.queue(1).unwrap();
    assert_eq!(read(&mut *behind, 0, 1).unwrap(), [1]);
}

#[test]
fn a_store_whose_reads_are_stuck_still_writes() {
    let (store, memory) = faulty(Fault::StuckRead, 0, 1);
    let mut queue = store.queue(2).unwrap();
    queue.submit(Request {
        id: 1,
        transfer: Transfer::Read,
        offset: 0,
        buffer: Buffer::new(BLOCK),
    });
    write(&mut *queue, 0, &[1]).unwrap();
    assert_eq!((queue.in_flight(), store.hits()), (1, 1));
    let mut behind = memory.queue(1).unwrap();
    assert_eq!(read(&mut *behind, 0, 1).unwrap(), [1]);
}

#[test]
fn the_message_about_a_stuck_disk_names_the_store_and_the_place() {
    let store = Memory::new();
    let waited = Duration::from_secs(30);
    let error = BackingError::stuck(&store.name(), Transfer::Write, 4096, waited);
    let message = error.to_string();
    assert!(message.starts_with("store in memory, writing at byte 4096: no answer for 30 s"));
}
