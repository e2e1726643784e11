//! The threads that work for every face of the engine: those that fold, and the one that writes.

use crate::shared::{lock, Shared};
use crate::{fold, write};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Folding threads at most; one for each CPU.
const FOLDERS_MAX: usize = 8;
const STACK_BYTES: usize = 512 << 10;

/// Threads at work on what they share.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts them.
    ///
    /// # Errors
    /// When the system has no room for a thread; those that were started end.
    pub fn start(shared: Arc<Shared>) -> io::Result<Pool> {
        let mut pool = Pool {
            shared,
            threads: Vec::new(),
        };
        let started = pool.start_all();
        match started {
            Ok(()) => Ok(pool),
            Err(error) => {
                pool.stop();
                Err(error)
            }
        }
    }

    fn start_all(&mut self) -> io::Result<()> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cpus.min(FOLDERS_MAX) {
            self.add("pleat-fold", fold::run)?;
        }
        if self.shared.swap.is_some() {
            self.add("pleat-write", write::run)?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, body: fn(&Arc<Shared>)) -> io::Result<()> {
        let shared = self.shared.clone();
        let builder = Builder::new().name(name.into()).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || body(&shared))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Everything is over: ends every thread, those of address spaces too, and waits for its own.
    pub fn stop(self) {
        let shared = &self.shared;
        shared.over.store(true, Ordering::Release);
        shared.writer.open();
        shared.folds.close();
        shared.readers.close();
        lock(&shared.links).iter().for_each(|link| link.end());
        for thread in self.threads {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
