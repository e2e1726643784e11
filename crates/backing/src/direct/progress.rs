//! How far one transfer has come, and what the system's answer to its last call means for it.
//!
//! A call may transfer less than was asked: the rest is asked for again, at most so often without
//! getting anywhere. This is the one place that decides it, whoever makes the calls.
#![forbid(unsafe_code)]

use super::BLOCK_BYTES;
use crate::backing::{Completion, Request, Transfer};
use crate::error::{BackingError, Site};
use std::io;

/// Calls in a row that may come to nothing (EINTR, EAGAIN) before the answer is taken for an error.
const IDLE_CALLS_MAX: u32 = 1000;

/// A transfer that is under way.
#[derive(Debug)]
pub struct Progress {
    request: Request,
    /// Bytes transferred so far.
    done: usize,
    idle_calls: u32,
}

/// What is to be done after an answer.
#[derive(Debug)]
pub enum Step {
    /// Ask for the rest.
    Again(Progress),
    /// It has ended.
    Ended(Completion),
}

impl Progress {
    pub fn new(request: Request) -> Progress {
        Progress {
            request,
            done: 0,
            idle_calls: 0,
        }
    }

    pub fn transfer(&self) -> Transfer {
        self.request.transfer
    }

    /// What is still to be transferred: first byte in the store, and the bytes.
    pub fn rest(&mut self) -> (u64, &mut [u8]) {
        let offset = self.request.offset + self.done as u64;
        (offset, &mut self.request.buffer[self.done..])
    }

    /// Takes the answer to a call that asked for the rest: a number of bytes or an error.
    pub fn answered(mut self, answer: io::Result<usize>, name: &str) -> Step {
        match answer {
            Ok(0) => self.end_of_file(name),
            Ok(bytes) => self.advance(bytes, name),
            Err(error) if is_transient(&error) && self.idle_calls < IDLE_CALLS_MAX => {
                self.idle_calls += 1;
                Step::Again(self)
            }
            Err(error) => self.fail(error, name),
        }
    }

    fn advance(mut self, bytes: usize, name: &str) -> Step {
        let block = BLOCK_BYTES as usize;
        let done = self.done + bytes;
        assert!(done <= self.request.buffer.len(), "more than was asked for");
        if done == self.request.buffer.len() {
            return Step::Ended(Completion::new(self.request, Ok(())));
        }
        // The next call has to begin at a block, or O_DIRECT refuses it.
        let whole = done / block * block;
        if whole > self.done {
            self.done = whole;
            self.idle_calls = 0;
            return Step::Again(self);
        }
        match self.request.transfer {
            Transfer::Read => self.end_of_file(name),
            Transfer::Write => self.answered(Err(io::ErrorKind::Interrupted.into()), name),
        }
    }

    fn end_of_file(self, name: &str) -> Step {
        let kind = match self.request.transfer {
            Transfer::Read => io::ErrorKind::UnexpectedEof,
            Transfer::Write => io::ErrorKind::WriteZero,
        };
        self.fail(kind.into(), name)
    }

    fn fail(self, error: io::Error, name: &str) -> Step {
        let site = Site::of(name, self.request.transfer.into(), self.request.offset);
        let result = Err(BackingError::new(site, error));
        Step::Ended(Completion::new(self.request, result))
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    const BLOCKS: usize = 4;
    const BLOCK: usize = BLOCK_BYTES as usize;

    /// Feeds answers until the transfer ends; checks what each call asks for.
    fn run(transfer: Transfer, answers: &[(usize, Result<usize, i32>)]) -> Completion {
        let mut progress = Progress::new(Request {
            id: 9,
            transfer,
            offset: 1 << 20,
            buffer: Buffer::new(BLOCKS * BLOCK),
        });
        for &(done, answer) in answers {
            let (offset, rest) = progress.rest();
            assert_eq!(offset, (1 << 20) + done as u64);
            assert_eq!(rest.len(), BLOCKS * BLOCK - done);
            match progress.answered(answer.map_err(io::Error::from_raw_os_error), "it") {
                Step::Again(next) => progress = next,
                Step::Ended(completion) => return completion,
            }
        }
        panic!("not ended");
    }

    #[test]
    fn a_short_transfer_goes_on_at_the_last_whole_block() {
        let answers = [
            (0, Ok(BLOCK)),
            (BLOCK, Err(libc::EINTR)),
            (BLOCK, Ok(BLOCK + 100)),
            (2 * BLOCK, Err(libc::EAGAIN)),
            (2 * BLOCK, Ok(2 * BLOCK)),
        ];
        for transfer in [Transfer::Read, Transfer::Write] {
            let completion = run(transfer, &answers);
            completion.result.unwrap();
            assert_eq!((completion.id, completion.offset), (9, 1 << 20));
            assert_eq!(completion.buffer.len(), BLOCKS * BLOCK);
        }
    }

    #[test]
    fn a_disk_that_fills_up_in_the_middle_is_full() {
        let answers = [(0, Ok(BLOCK)), (BLOCK, Err(libc::ENOSPC))];
        let error = run(Transfer::Write, &answers).result.unwrap_err();
        assert!(matches!(error, BackingError::NoSpace(_)), "{error}");
        assert!(error.to_string().starts_with("it, writing at byte 1048576"));
    }

    #[test]
    fn the_end_of_the_file_is_an_error_wherever_it_lies() {
        for answers in [&[(0, Ok(0))][..], &[(0, Ok(BLOCK)), (BLOCK, Ok(10))]] {
            let error = run(Transfer::Read, answers).result.unwrap_err();
            assert!(matches!(error, BackingError::Truncated(_)), "{error}");
        }
    }

    #[test]
    fn a_call_that_never_gets_anywhere_is_given_up() {
        let answers = vec![(0, Err(libc::EAGAIN)); 1 + IDLE_CALLS_MAX as usize];
        let error = run(Transfer::Write, &answers).result.unwrap_err();
        assert!(matches!(error, BackingError::Other { .. }), "{error}");
        let tiny = vec![(0, Ok(100)); 1 + IDLE_CALLS_MAX as usize];
        assert!(run(Transfer::Write, &tiny).result.is_err());
    }
}
