//! Staging rings: where pages that were taken lie until they are folded.

use crate::shared::lock;
use pleat_sys::ring::Ring;
use pleat_types::StagingSlot;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// Frames of one staging ring at most: a slot number is ring number and frame number.
pub const RING_FRAMES_MAX: u32 = 1 << RING_BITS;
const RING_BITS: u32 = 9;
/// Rings there may be at once.
const RINGS_MAX: usize = 1 << (u32::BITS - RING_BITS);

/// Staging rings by number. The number of a ring that is gone is given to another: a job may have any number of
/// processes, one after the other.
#[derive(Default)]
pub struct Rings(RwLock<Vec<Weak<Slots>>>);

impl Rings {
    /// The ring frame that `slot` names, while a staged page keeps its ring alive.
    pub fn with_slot<T>(&self, slot: StagingSlot, use_it: impl FnOnce(&[u8; 4096]) -> T) -> T {
        let rings = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let slots = rings[(slot.0 >> RING_BITS) as usize].upgrade();
        let slots = slots.expect("a staged page's fold job keeps its ring");
        use_it(slots.ring.frame(slot.0 & (RING_FRAMES_MAX - 1)))
    }

    /// Has rings of which no frame was in use since this was last called give their memory back: a job has one for each process, and
    /// most processes of a large one sleep.
    pub fn trim(&self) {
        let rings = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let slots: Vec<_> = rings.iter().filter_map(Weak::upgrade).collect();
        drop(rings);
        slots.iter().for_each(|slots| slots.trim());
    }

    /// Registers a ring and makes its slots.
    ///
    /// # Panics
    /// When there are more rings than slots have names for, some millions.
    pub fn add(&self, ring: Ring) -> Arc<Slots> {
        let mut rings = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Nothing names a slot of a ring that nobody holds: a staged page's fold job holds its own.
        let vacant = rings.iter().position(|ring| ring.strong_count() == 0);
        let number = vacant.unwrap_or(rings.len());
        assert!(number < RINGS_MAX, "too many processes at once");
        let frames = ring.frames();
        let slots = Arc::new(Slots {
            ring,
            number: number as u32,
            free: Mutex::new((0..frames).rev().collect()),
            touched: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
        });
        match vacant {
            Some(number) => rings[number] = Arc::downgrade(&slots),
            None => rings.push(Arc::downgrade(&slots)),
        }
        slots
    }
}

/// A staging ring and its free frames.
pub struct Slots {
    /// The shared memory.
    pub ring: Ring,
    number: u32,
    free: Mutex<Vec<u32>>,
    /// Highest number of frames ever in use: frames above were never touched.
    touched: AtomicU64,
    /// A frame was claimed since somebody last looked.
    is_used: AtomicBool,
}

impl Slots {
    /// Free frames.
    pub fn available(&self) -> usize {
        lock(&self.free).len()
    }

    /// Bytes of shared memory that exist because they were touched.
    pub fn touched_bytes(&self) -> u64 {
        (1 + self.touched.load(Ordering::Relaxed)) * 4096
    }

    /// Takes a free frame, which has memory: the agent, who is to fill it, may have no more when the job's memory is full.
    pub fn claim(&self) -> Option<u32> {
        let frame = lock(&self.free).pop()?;
        self.is_used.store(true, Ordering::Relaxed);
        let end = u64::from(frame) + 1;
        if self.touched.fetch_max(end, Ordering::Relaxed) < end {
            self.ring.put(frame, &[]);
        }
        Some(frame)
    }

    /// Gives the frames' memory back, if none is in use or was since the last call.
    fn trim(&self) {
        let is_used = self.is_used.swap(false, Ordering::Relaxed);
        // Held to the end: nobody claims one meanwhile.
        let mut free = lock(&self.free);
        let is_idle = !is_used && free.len() == self.ring.frames() as usize;
        if is_idle && self.touched.load(Ordering::Relaxed) > 0 && self.ring.empty() {
            free.sort_unstable_by(|a, b| b.cmp(a));
            self.touched.store(0, Ordering::Relaxed);
        }
    }

    /// Gives a frame back.
    pub fn release(&self, frame: u32) {
        lock(&self.free).push(frame);
    }

    /// The name of a frame for the engine.
    pub fn name(&self, frame: u32) -> StagingSlot {
        StagingSlot(self.number << RING_BITS | frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Ring {
        Ring::private(4).expect("memory for a ring")
    }

    #[test]
    fn the_number_of_a_ring_is_free_when_nobody_holds_it() {
        let rings = Rings::default();
        let kept = rings.add(ring());
        for _ in 0..100 {
            let gone = rings.add(ring());
            assert_eq!(gone.name(3), StagingSlot(1 << RING_BITS | 3));
        }
        let held = rings.add(ring());
        let other = rings.add(ring());
        assert_eq!(other.name(0), StagingSlot(2 << RING_BITS));
        drop(held);
        assert_eq!(rings.add(ring()).name(0), StagingSlot(1 << RING_BITS));
        let at = |slots: &Slots| slots.ring.frame(2).as_ptr();
        rings.with_slot(kept.name(2), |frame| assert_eq!(frame.as_ptr(), at(&kept)));
    }

    #[test]
    fn a_ring_that_is_idle_gives_its_memory_back() {
        for ring in [ring(), Ring::shared(4).expect("memory for a ring").0] {
            let rings = Rings::default();
            let slots = rings.add(ring);
            let claimed: Vec<u32> = (0..3).map(|_| slots.claim().unwrap()).collect();
            slots.ring.put(claimed[2], &[7; 4096]);
            slots.release(claimed[0]);
            slots.release(claimed[1]);
            for _ in 0..3 {
                rings.trim();
            }
            let kept = slots.ring.frame(claimed[2])[9];
            assert_eq!((kept, slots.touched_bytes()), (7, 4 * 4096), "in use");
            slots.release(claimed[2]);
            rings.trim();
            // It was claimed before the first call, which took note of that.
            assert_eq!(slots.touched_bytes(), 4096);
            assert_eq!(slots.ring.frame(2)[9], 0);
            let again = slots.claim().unwrap();
            rings.trim();
            slots.release(again);
            assert_eq!((again, slots.touched_bytes()), (0, 2 * 4096));
        }
    }
}
