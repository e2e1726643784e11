//! Frames on their way back to the system. They wait until they are many, and then go without the lock under which a
//! layout is used: in a [`Flight`], which another thread carries out. A frame that is needed again meanwhile is taken
//! back as long as nobody has begun; else whoever needs it waits for the system call.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

use pleat_types::PAGE_SIZE;

/// Frames, in bytes from the start of the arena.
pub(super) type Frames = Range<usize>;

/// So many bytes more than enough wait for somebody who carries flights out, or as many again.
const OVERDUE_BYTES: usize = 4 * PAGE_SIZE;
/// Looks for the end of a system call before the CPU is left to who makes it.
const LOOKS: u32 = 1000;

/// Nobody has begun to release the frames of a flight.
const AWAITED: u8 = 0;
/// Somebody does.
const UNDER_WAY: u8 = 1;
/// They hold no memory any more, or were taken back.
const OVER: u8 = 2;

/// Frames that go together.
pub(super) struct Flight {
    frames: Vec<Frames>,
    state: AtomicU8,
}

impl Flight {
    /// The frames to be released, for the one who is to do it: `None` when they were taken back. Then `end` is due.
    pub(super) fn begin(&self) -> Option<&[Frames]> {
        self.leave_awaited(UNDER_WAY).then_some(&self.frames)
    }

    /// They hold no memory any more.
    pub(super) fn end(&self) {
        // Releases the system call to who is going to write to the frames.
        self.state.store(OVER, Ordering::Release);
    }

    fn leave_awaited(&self, state: u8) -> bool {
        let swapped =
            self.state
                .compare_exchange(AWAITED, state, Ordering::AcqRel, Ordering::Acquire);
        swapped.is_ok()
    }

    fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) == OVER
    }

    fn wait(&self) {
        let mut looks = 0;
        while !self.is_over() {
            looks += 1;
            match looks < LOOKS {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
    }
}

/// All frames that are to go and still hold memory.
#[derive(Default)]
pub(super) struct Leaving {
    /// They wait for others.
    soon: Vec<Frames>,
    /// They are enough when they come to more than this.
    most_bytes: usize,
    /// What went last; perhaps it is not over.
    flight: Option<Arc<Flight>>,
    /// Somebody has asked for a flight, and will again.
    is_asked: bool,
}

impl Leaving {
    /// These are to go together with others, once all come to more than `most_bytes`.
    pub(super) fn add(&mut self, frames: Frames, most_bytes: usize) {
        debug_assert!(!self.has_any_of(&frames), "released twice");
        self.soon.push(frames);
        self.most_bytes = most_bytes;
    }

    /// Frames are to stay, as far as any were to go. Those that have gone read as zeros.
    pub(super) fn keep(&mut self, frames: &Frames) {
        if let Some(flight) = self
            .flight
            .take_if(|flight| touches(&flight.frames, frames))
        {
            match flight.leave_awaited(OVER) {
                true => self.soon.extend(flight.frames.iter().cloned()),
                false => flight.wait(),
            }
        }
        let mut nth = 0;
        while nth < self.soon.len() {
            let Range { start, end } = self.soon[nth];
            if end <= frames.start || frames.end <= start {
                nth += 1;
                continue;
            }
            self.soon.swap_remove(nth);
            // What is left of it lies outside, and so is passed over when its turn comes.
            let left = [start..frames.start.max(start), frames.end.min(end)..end];
            self.soon
                .extend(left.into_iter().filter(|rest| !rest.is_empty()));
        }
    }

    /// What is to be released now, if it is enough and nothing else is under way.
    pub(super) fn depart(&mut self) -> Option<Arc<Flight>> {
        self.is_asked = true;
        self.flight.take_if(|flight| flight.is_over());
        if self.flight.is_some() || bytes_of(&self.soon) <= self.most_bytes {
            return None;
        }
        let flight = Arc::new(Flight {
            frames: std::mem::take(&mut self.soon),
            state: AtomicU8::new(AWAITED),
        });
        self.flight = Some(flight.clone());
        Some(flight)
    }

    /// What is to be released now, because nobody carries a flight out, or not yet.
    pub(super) fn overdue(&mut self) -> Option<Vec<Frames>> {
        let most_bytes = match self.is_asked {
            true => self.most_bytes + self.most_bytes.max(OVERDUE_BYTES),
            false => self.most_bytes,
        };
        let is_overdue = bytes_of(&self.soon) > most_bytes;
        is_overdue.then(|| std::mem::take(&mut self.soon))
    }

    /// Whether any of these are to go and not yet gone.
    pub(super) fn has_any_of(&self, frames: &Frames) -> bool {
        let going = self.flight.as_ref().filter(|flight| !flight.is_over());
        touches(&self.soon, frames) || going.is_some_and(|flight| touches(&flight.frames, frames))
    }

    /// Bytes of frames that still hold memory, but not for long.
    pub(super) fn bytes(&self) -> usize {
        let going = self.flight.as_ref().filter(|flight| !flight.is_over());
        bytes_of(&self.soon) + going.map_or(0, |flight| bytes_of(&flight.frames))
    }

    /// Bytes of the lists.
    pub(super) fn metadata_bytes(&self) -> usize {
        let going = self
            .flight
            .as_ref()
            .map_or(0, |flight| flight.frames.capacity());
        (self.soon.capacity() + going) * size_of::<Frames>()
    }
}

fn touches(all: &[Frames], frames: &Frames) -> bool {
    all.iter()
        .any(|other| other.start < frames.end && frames.start < other.end)
}

/// Bytes of all of them.
pub(super) fn bytes_of(all: &[Frames]) -> usize {
    all.iter().map(Range::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_been_begun_is_taken_back_whole_and_waits_again() {
        let mut leaving = Leaving::default();
        leaving.add(0..40, 30);
        let flight = leaving.depart().expect("enough");
        assert!(leaving.depart().is_none(), "one is under way");
        leaving.keep(&(10..20));
        assert!(flight.begin().is_none(), "taken back");
        assert_eq!(leaving.bytes(), 30);
        assert!(!leaving.has_any_of(&(10..20)));
        assert!(leaving.has_any_of(&(0..10)) && leaving.has_any_of(&(20..40)));
    }

    #[test]
    fn who_needs_frames_that_are_just_going_waits_for_the_end() {
        let mut leaving = Leaving::default();
        leaving.add(0..40, 30);
        let flight = leaving.depart().expect("enough");
        assert_eq!(flight.begin().map(bytes_of), Some(40));
        let carrier = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            flight.end();
        });
        assert_eq!(leaving.bytes(), 40);
        leaving.keep(&(50..60));
        assert_eq!(leaving.bytes(), 40, "others are nobody's business");
        leaving.keep(&(10..20));
        assert_eq!(leaving.bytes(), 0);
        carrier.join().expect("no panic");
    }

    #[test]
    fn where_nobody_asks_for_a_flight_enough_is_overdue() {
        let mut leaving = Leaving::default();
        leaving.add(0..30, 30);
        assert!(leaving.overdue().is_none());
        leaving.add(40..50, 30);
        assert_eq!(leaving.overdue(), Some(vec![0..30, 40..50]));
        assert_eq!(leaving.bytes(), 0);
    }

    #[test]
    fn what_is_not_asked_for_in_time_is_overdue_at_last() {
        let mut leaving = Leaving::default();
        assert!(leaving.depart().is_none());
        leaving.add(0..40, 30);
        leaving.add(50..OVERDUE_BYTES, 30);
        assert!(leaving.overdue().is_none());
        leaving.add(OVERDUE_BYTES..OVERDUE_BYTES + 50, 30);
        let three = [0..40, 50..OVERDUE_BYTES, OVERDUE_BYTES..OVERDUE_BYTES + 50];
        assert_eq!(leaving.overdue().as_deref(), Some(&three[..]));
    }
}
