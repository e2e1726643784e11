//! A file that is written by a thread of its own, so that nobody who writes a few bytes waits for the
//! disk. Holds [`BLOCKS_MAX`] blocks at most.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BLOCK_BYTES: usize = 128 << 10;
const BLOCKS_MAX: usize = 16;
/// How long a disk may take nothing at all while all blocks are full: a fault waits that long.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// Collects bytes, and passes them on by the block.
pub struct Blocks {
    block: Vec<u8>,
    full: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Blocks {
    /// Starts the thread.
    pub fn start(file: File) -> io::Result<Blocks> {
        let (full, blocks) = sync_channel(BLOCKS_MAX);
        let builder = std::thread::Builder::new()
            .name("pleat-record".into())
            .stack_size(128 << 10);
        let thread = builder.spawn(move || write_all(file, &blocks))?;
        Ok(Blocks {
            block: Vec::with_capacity(BLOCK_BYTES),
            full: Some(full),
            thread: Some(thread),
        })
    }

    /// Waits until everything that was flushed is in the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.full = None;
        self.outcome()
    }

    /// How the thread ended.
    fn outcome(&mut self) -> io::Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(io::Error::other("the writing thread is gone")),
        }
    }

    fn pass_on(&mut self, mut block: Vec<u8>) -> io::Result<()> {
        let since = Instant::now();
        loop {
            let full = self.full.as_ref().map(|full| full.try_send(block));
            match full {
                Some(Ok(())) => return Ok(()),
                Some(Err(TrySendError::Full(back))) if since.elapsed() < PATIENCE => block = back,
                Some(Err(TrySendError::Full(_))) => {
                    return Err(io::Error::new(
                        ErrorKind::TimedOut,
                        "the disk does not keep pace; choose a file on a faster one",
                    ))
                }
                // The thread has ended, which it only does of an error.
                _ => {
                    self.outcome()?;
                    return Err(io::Error::other("the writing thread is gone"));
                }
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Write for Blocks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.block.extend_from_slice(bytes);
        if self.block.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK_BYTES));
        self.pass_on(block)
    }
}

fn write_all(mut file: File, blocks: &Receiver<Vec<u8>>) -> io::Result<()> {
    blocks.iter().try_for_each(|block| file.write_all(&block))
}
