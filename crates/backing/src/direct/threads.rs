//! Transfers by threads that make blocking calls, where there is no io_uring.
//!
//! The threads belong to the file and serve all its queues. A read is waited for by a program that
//! stands still, a write by nobody: so reads go first, and one thread never writes.
#![forbid(unsafe_code)]

use super::open_file::OpenFile;
use super::{BLOCK_BYTES, FAREWELL};
use crate::backing::{Completion, Patience, Queue, Request, Transfer};
use crate::error::BackingError;
use crate::mailbox::{lock, Mailbox};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 4;

/// The threads of one file. They end when it is dropped, each after the call it is in.
pub struct Pool {
    work: Arc<Work>,
}

#[derive(Default)]
struct Work {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

/// `writers <= writers_max` at any time.
#[derive(Default)]
struct Jobs {
    reads: VecDeque<Job>,
    writes: VecDeque<Job>,
    /// Threads that are writing now.
    writers: usize,
    writers_max: usize,
    is_over: bool,
}

struct Job {
    request: Request,
    mailbox: Arc<Mailbox>,
}

impl Pool {
    /// Starts the threads, or as many as the system gives.
    ///
    /// # Errors
    /// It gives none.
    pub fn start(file: &Arc<OpenFile>) -> Result<Pool, BackingError> {
        let pool = Pool::without_threads();
        for number in 0..THREADS {
            let (for_thread, work) = (file.clone(), pool.work.clone());
            let spawned = thread::Builder::new()
                .name(format!("pleat-disk-{number}"))
                .spawn(move || work.serve(&for_thread));
            match spawned {
                // One thread alone has to write, too.
                Ok(_) => lock(&pool.work.jobs).writers_max = number.max(1),
                Err(error) if number == 0 => return Err(file.creation(error)),
                Err(_) => break,
            }
        }
        Ok(pool)
    }

    pub(super) fn without_threads() -> Pool {
        Pool {
            work: Arc::default(),
        }
    }

    /// Requests that no thread has begun.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        let jobs = lock(&self.work.jobs);
        jobs.reads.len() + jobs.writes.len()
    }

    fn submit(&self, job: Job) {
        let mut jobs = lock(&self.work.jobs);
        match job.request.transfer {
            Transfer::Read => jobs.reads.push_back(job),
            Transfer::Write => jobs.writes.push_back(job),
        }
        drop(jobs);
        self.work.changed.notify_one();
    }

    /// Takes back what has not been begun.
    fn withdraw(&self, mailbox: &Arc<Mailbox>) {
        let mut jobs = lock(&self.work.jobs);
        let others = |job: &Job| !Arc::ptr_eq(&job.mailbox, mailbox);
        jobs.reads.retain(others);
        jobs.writes.retain(others);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.work.jobs).is_over = true;
        self.work.changed.notify_all();
    }
}

impl Work {
    /// The life of a thread.
    fn serve(&self, file: &OpenFile) {
        while let Some(Job { request, mailbox }) = self.next_job() {
            let transfer = request.transfer;
            mailbox.put(file.carry_out(request));
            if transfer == Transfer::Write {
                lock(&self.jobs).writers -= 1;
            }
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        loop {
            if jobs.is_over {
                return None;
            }
            if let Some(job) = jobs.choose() {
                return Some(job);
            }
            jobs = self
                .changed
                .wait(jobs)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Jobs {
    fn choose(&mut self) -> Option<Job> {
        if let Some(read) = self.reads.pop_front() {
            return Some(read);
        }
        if self.writers == self.writers_max {
            return None;
        }
        let write = self.writes.pop_front()?;
        self.writers += 1;
        Some(write)
    }
}

/// The requests of one thread of the caller.
pub struct ThreadQueue {
    pool: Arc<Pool>,
    mailbox: Arc<Mailbox>,
    depth: usize,
    in_flight: usize,
}

impl ThreadQueue {
    pub fn new(file: &OpenFile, pool: Arc<Pool>, depth: u32) -> Result<Self, BackingError> {
        Ok(ThreadQueue {
            pool,
            mailbox: Arc::new(Mailbox::new().map_err(|error| file.creation(error))?),
            depth: depth as usize,
            in_flight: 0,
        })
    }

    /// Waits for what is in flight, takes back what has not been begun by then, and says how many
    /// transfers the threads are left with. They own the buffers of those.
    pub(super) fn wind_up(&mut self, limit: Duration) -> usize {
        let end = Instant::now() + limit;
        while self.in_flight > 0 && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            self.complete(Patience::Sleep(left), &mut Vec::new());
        }
        if self.in_flight > 0 {
            self.pool.withdraw(&self.mailbox);
        }
        std::mem::take(&mut self.in_flight)
    }
}

impl Queue for ThreadQueue {
    fn submit(&mut self, request: Request) {
        request.check(BLOCK_BYTES, self.in_flight, self.depth);
        self.in_flight += 1;
        let mailbox = self.mailbox.clone();
        self.pool.submit(Job { request, mailbox });
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn complete(&mut self, patience: Patience, done: &mut Vec<Completion>) {
        if self.in_flight > 0 {
            self.in_flight -= self.mailbox.collect(patience, done);
        }
    }

    fn event(&self) -> BorrowedFd<'_> {
        self.mailbox.event()
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        self.wind_up(FAREWELL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    #[test]
    fn reads_go_first_and_one_thread_never_writes() {
        let pool = Pool::without_threads();
        lock(&pool.work.jobs).writers_max = 2;
        let mailbox = Arc::new(Mailbox::new().unwrap());
        for id in 0..6 {
            let transfer = [Transfer::Write, Transfer::Read][usize::from(id >= 4)];
            let (offset, buffer) = (0, Buffer::new(4096));
            pool.submit(Job {
                request: Request {
                    id,
                    transfer,
                    offset,
                    buffer,
                },
                mailbox: mailbox.clone(),
            });
        }
        let mut jobs = lock(&pool.work.jobs);
        let mut next = || jobs.choose().map(|job| job.request.id);
        assert_eq!(
            [next(), next(), next(), next()],
            [Some(4), Some(5), Some(0), Some(1)]
        );
        assert_eq!(next(), None, "two are writing");
        jobs.writers -= 1;
        assert_eq!(jobs.choose().unwrap().request.id, 2);
    }
}
