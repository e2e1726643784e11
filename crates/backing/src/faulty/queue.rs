//! The queue of a store that fails on purpose. It stands in front of a queue of the store proper.
#![forbid(unsafe_code)]

use super::{Chance, Fate, Fault};
use crate::backing::{Backing, Completion, Patience, Queue, Request, Transfer};
use crate::buffer::Buffer;
use crate::error::{BackingError, Operation, Site};
use crate::event;
use crate::mailbox::Mailbox;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

pub struct FaultyQueue {
    name: String,
    block_bytes: u32,
    depth: usize,
    chance: Arc<Chance>,
    inner: Box<dyn Queue>,
    /// By the id that the inner queue knows, for the caller's need not differ.
    passed_on: HashMap<u64, PassedOn>,
    next_id: u64,
    /// Answered without asking the store.
    answers: Mailbox,
    answers_waiting: usize,
    /// Never answered.
    stuck: Vec<Request>,
    /// Readable when `inner` or `answers` is.
    either: OwnedFd,
}

struct PassedOn {
    id: u64,
    fate: Fate,
    /// The caller's buffer, when the store was given another.
    whole: Option<Buffer>,
}

impl FaultyQueue {
    /// In front of a queue of `store`'s for so many requests.
    pub fn new(
        store: &dyn Backing,
        inner: Box<dyn Queue>,
        chance: Arc<Chance>,
        depth: u32,
    ) -> Result<FaultyQueue, BackingError> {
        let waiting = Mailbox::new()
            .and_then(|answers| Ok((event::either(inner.event(), answers.event())?, answers)));
        let (either, answers) = waiting.map_err(|error| {
            let site = Site {
                operation: Operation::Create,
                name: store.name(),
                offset: None,
            };
            BackingError::new(site, error)
        })?;
        Ok(FaultyQueue {
            name: store.name(),
            block_bytes: store.block_bytes(),
            depth: depth as usize,
            chance,
            inner,
            passed_on: HashMap::new(),
            next_id: 0,
            answers,
            answers_waiting: 0,
            stuck: Vec::new(),
            either,
        })
    }

    fn answer(&mut self, request: Request, result: io::Result<()>) {
        let site = Site::of(&self.name, request.transfer.into(), request.offset);
        let result = result.map_err(|error| BackingError::new(site, error));
        self.answers_waiting += 1;
        self.answers.put(Completion::new(request, result));
    }

    fn pass_on(&mut self, mut request: Request, fate: Fate, whole: Option<Buffer>) {
        let id = std::mem::replace(&mut request.id, self.next_id);
        self.passed_on
            .insert(self.next_id, PassedOn { id, fate, whole });
        self.next_id += 1;
        self.inner.submit(request);
    }

    fn hit(&mut self, request: Request) {
        match self.chance.fault {
            Fault::NoSpace => self.answer(request, errno(libc::ENOSPC)),
            Fault::ReadError | Fault::WriteError => self.answer(request, errno(libc::EIO)),
            Fault::Truncated => self.answer(request, Err(io::ErrorKind::UnexpectedEof.into())),
            Fault::Stuck | Fault::StuckRead => self.stuck.push(request),
            Fault::ShortWrite => self.write_half(request),
            Fault::BitFlip | Fault::Swapped | Fault::Replayed => {
                self.pass_on(request, Fate::Hit, None);
            }
        }
    }

    fn write_half(&mut self, mut request: Request) {
        let block = self.block_bytes as usize;
        let half = request.buffer.len() / 2 / block * block;
        if half == 0 {
            return self.answer(request, Ok(()));
        }
        let part = Buffer::from(&request.buffer[..half]);
        let whole = std::mem::replace(&mut request.buffer, part);
        self.pass_on(request, Fate::Hit, Some(whole));
    }

    fn take(&mut self, done: &mut Vec<Completion>) {
        self.answers_waiting -= self.answers.collect(Patience::Poll, done);
        let mut passed = Vec::new();
        self.inner.complete(Patience::Poll, &mut passed);
        for completion in passed {
            done.push(self.come_back(completion));
        }
    }

    fn come_back(&mut self, mut completion: Completion) -> Completion {
        let PassedOn { id, fate, whole } = self
            .passed_on
            .remove(&completion.id)
            .expect("what was passed on");
        completion.id = id;
        if completion.transfer == Transfer::Write && completion.result.is_ok() {
            self.chance.written(completion.offset, &completion.buffer);
        }
        if let Some(whole) = whole {
            completion.buffer = whole;
        }
        match fate {
            Fate::Replaced(bytes) => completion.buffer.copy_from_slice(&bytes),
            Fate::Hit if completion.transfer == Transfer::Read => {
                let middle = completion.buffer.len() / 2;
                completion.buffer[middle] ^= 1;
            }
            Fate::Hit | Fate::Spared => {}
        }
        completion
    }
}

impl Queue for FaultyQueue {
    fn submit(&mut self, request: Request) {
        request.check(self.block_bytes, self.in_flight(), self.depth);
        match self.chance.fate(&request) {
            Fate::Hit => self.hit(request),
            fate => self.pass_on(request, fate, None),
        }
    }

    fn in_flight(&self) -> usize {
        self.stuck.len() + self.answers_waiting + self.passed_on.len()
    }

    fn complete(&mut self, patience: Patience, done: &mut Vec<Completion>) {
        let (before, end) = (done.len(), patience.end());
        while self.in_flight() > 0 {
            self.take(done);
            let now = Instant::now();
            if done.len() > before || now >= end {
                return;
            }
            match patience {
                Patience::Poll => return,
                Patience::Spin(_) => std::hint::spin_loop(),
                Patience::Sleep(_) => event::wait_readable(self.either.as_fd(), end - now),
            }
        }
    }

    fn event(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}

fn errno(number: i32) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(number))
}
