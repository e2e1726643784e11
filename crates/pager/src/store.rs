//! The swap file as the threads use it: transfers of whole blocks, each page in them sealed.
//!
//! Readers (`space/reads.rs`, `collect.rs`) round what they want out to blocks and open every page
//! by itself; the writer (`write.rs`) seals every page by itself. Nothing that was read is used
//! before its seal is right and the engine has said that it is still wanted.

use crate::ends::Failure;
use crate::fold;
use crate::job::{Place, RunError, Swap};
use pleat_backing::{
    Backing, BackingError, Buffer, DirectFile, Fingerprints, Identity, Rings, Seal, Transfer,
};
use pleat_engine::{ReadItem, WritePlan};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A transfer that takes so long will not end any more.
const STUCK: Duration = Duration::from_secs(30);
/// What counts of the time between two looks at most: this process may have been stopped.
const TICK_MAX: Duration = Duration::from_secs(1);
/// Spare buffers of at most so many bytes are short; so many of them are kept.
const SHORT_BYTES: usize = 16 << 10;
const SHORT_MAX: usize = 8;
/// Longer ones than this are not kept.
const LONG_BYTES: usize = 256 << 10;

/// Where pages go that do not fit into memory.
pub struct SwapStore {
    /// The bytes.
    pub backing: Arc<dyn Backing>,
    /// What protects each page in it.
    pub seal: Seal,
    /// What tells whether a page is as it was when it was read.
    pub fingerprints: Fingerprints,
}

impl SwapStore {
    /// Makes the swap file of a job.
    pub fn open(swap: &Swap) -> Result<SwapStore, RunError> {
        let backing = match &swap.place {
            Place::Given(backing) => backing.clone(),
            Place::Dir(dir) => {
                let file = DirectFile::create(dir, Rings::WherePossible);
                Arc::new(file.map_err(|error| RunError::Swap(error.to_string()))?)
            }
        };
        let seal = Seal::new(swap.protection).map_err(|error| RunError::Swap(error.to_string()))?;
        let fingerprints = Fingerprints::new();
        Ok(SwapStore {
            backing,
            seal,
            fingerprints: fingerprints.map_err(|error| RunError::Swap(error.to_string()))?,
        })
    }

    /// The whole blocks that hold these items: first byte and length.
    pub fn span(&self, items: &[ReadItem]) -> (u64, usize) {
        let block = u64::from(self.backing.block_bytes());
        let start = items.iter().map(|item| item.offset).min();
        let start = start.unwrap_or(0) / block * block;
        let end = items.iter().map(ReadItem::end).max();
        let end = end.unwrap_or(0).next_multiple_of(block);
        (start, (end - start) as usize)
    }

    /// The page of an item in what was read from `start` on, if it is what was written.
    pub fn unseal<'a>(&self, item: &ReadItem, start: u64, bytes: &'a mut [u8]) -> Option<&'a [u8]> {
        let (at, len) = ((item.offset - start) as usize, item.len as usize);
        let room = bytes.get_mut(at..at + item.room as usize)?;
        let identity = Identity {
            serial: item.serial,
            offset: item.offset,
            codec: item.codec.0,
        };
        self.seal.open(identity, room, len).ok()?;
        Some(&room[..len])
    }

    /// What is to be written for a plan: its bytes, with every page sealed.
    ///
    /// # Errors
    /// Why the job has to end: what is in memory is not what it was.
    pub fn seal(&self, plan: &WritePlan, buffer: &mut Buffer) -> Result<(), Failure> {
        buffer.resize(plan.bytes.len());
        buffer.copy_from_slice(&plan.bytes);
        for item in &plan.items {
            let identity = Identity {
                serial: plan.serial,
                offset: plan.offset + u64::from(item.start),
                codec: item.codec.0,
            };
            let (start, len) = (item.start as usize, item.len as usize);
            fold::check(&plan.bytes[start..start + len], item.check)?;
            let room = &mut buffer[start..start + item.room as usize];
            self.seal.close(identity, room, len);
        }
        Ok(())
    }

    /// Why the job ends when a page is not what was written.
    pub fn damaged(&self, item: &ReadItem) -> Failure {
        Failure::NotWhatWasWritten {
            file: self.backing.name(),
            offset: item.offset,
        }
    }

    /// Why the job ends when a transfer does not.
    pub fn stuck(&self, transfer: Transfer, offset: u64) -> BackingError {
        BackingError::stuck(&self.backing.name(), transfer, offset, STUCK)
    }
}

/// How long transfers have been under way, as far as this process ran meanwhile.
pub struct Watch(Instant);

impl Watch {
    /// A watch that begins now.
    pub fn new() -> Watch {
        Watch(Instant::now())
    }

    /// Adds the time since the last look to each; whether one of them is stuck.
    pub fn look<'a>(&mut self, waited: impl Iterator<Item = &'a mut Duration>) -> Option<usize> {
        let passed = self.0.elapsed();
        if passed < TICK_MAX / 2 {
            return None;
        }
        self.0 = Instant::now();
        let mut stuck = None;
        for (index, waited) in waited.enumerate() {
            *waited += passed.min(TICK_MAX);
            if *waited >= STUCK {
                stuck.get_or_insert(index);
            }
        }
        stuck
    }
}

#[cfg(test)]
impl Watch {
    /// So much time passes.
    pub fn pass(&mut self, time: Duration) {
        self.0 -= time;
    }
}

/// Buffers that are used again. Buffers keep the memory of their longest use: so short and long ones are
/// kept apart, and few of the long.
pub struct Spares {
    short: Vec<Buffer>,
    long: Vec<Buffer>,
    long_max: usize,
}

impl Spares {
    /// None yet; never more than so many long ones.
    pub fn new(long_max: usize) -> Spares {
        Spares {
            short: Vec::new(),
            long: Vec::new(),
            long_max,
        }
    }

    /// A buffer of that length, with anything in it.
    pub fn take(&mut self, len: usize) -> Buffer {
        let list = match len {
            0..=SHORT_BYTES => &mut self.short,
            _ => &mut self.long,
        };
        let mut buffer = list.pop().unwrap_or_default();
        buffer.resize(len);
        buffer
    }

    /// Keeps a buffer, if it is not too many or too long.
    pub fn give(&mut self, buffer: Buffer) {
        let (list, most) = match buffer.len() {
            0..=SHORT_BYTES => (&mut self.short, SHORT_MAX),
            _ => (&mut self.long, self.long_max),
        };
        if list.len() < most && buffer.len() <= LONG_BYTES {
            list.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_stuck_after_half_a_minute_in_which_this_process_ran() {
        let second = Duration::from_secs(1);
        let mut watch = Watch::new();
        let mut waited = [Duration::ZERO, 20 * second];
        // A stop of an hour counts as a second.
        watch.pass(3600 * second);
        assert_eq!(watch.look(waited.iter_mut()), None);
        assert_eq!(waited, [second, 21 * second]);
        for _ in 0..8 {
            watch.pass(second);
            assert_eq!(watch.look(waited.iter_mut()), None);
        }
        watch.pass(second);
        assert_eq!(watch.look(waited.iter_mut()), Some(1));
        assert_eq!(
            watch.look(waited.iter_mut()),
            None,
            "one look in half a second"
        );
    }
}
