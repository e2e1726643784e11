//! Memory of a managed process that the engine does not know of: when its mappings are looked for.

use std::time::{Duration, Instant};

/// Between two looks without growth: the first, and, where they are in vain, the last.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// Why mappings are to be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is more unknown memory than before.
    Growth,
    /// Much has stayed unknown: what could not be taken charge of then may be possible now. A mapping is
    /// refused while the kernel has no memory for it or the process has all the mappings it may have.
    StillMuch,
}

/// What is unknown of one process, in bytes.
#[derive(Debug, Default)]
pub struct Unknown {
    /// When its mappings were last looked for, or the least since.
    at_look: u64,
    /// When that was, and how long they are to be left alone without growth.
    looked: Option<(Instant, Duration)>,
}

impl Unknown {
    /// So many bytes are unknown now. Whether that is a reason to look for mappings: more than `growth` bytes
    /// have come, or `much` or more are still there.
    pub fn note(&mut self, now: Instant, bytes: u64, growth: u64, much: u64) -> Option<Cause> {
        let has_grown = bytes > self.at_look.saturating_add(growth);
        self.at_look = match has_grown {
            true => bytes,
            false => self.at_look.min(bytes),
        };
        if has_grown {
            self.looked = Some((now, PAUSE_MIN));
            return Some(Cause::Growth);
        }
        let (at, pause) = *self.looked.get_or_insert((now, PAUSE_MIN));
        if bytes < much || now.saturating_duration_since(at) < pause {
            return None;
        }
        self.looked = Some((now, (pause * 2).min(PAUSE_MAX)));
        Some(Cause::StillMuch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn note(unknown: &mut Unknown, start: Instant, ms: u64, bytes: u64) -> Option<Cause> {
        let now = start + Duration::from_millis(ms);
        unknown.note(now, bytes, MIB, 8 * MIB)
    }

    #[test]
    fn growth_is_looked_at_once_and_again_after_a_fall() {
        let (mut unknown, start) = (Unknown::default(), Instant::now());
        assert_eq!(note(&mut unknown, start, 0, MIB), None);
        assert_eq!(note(&mut unknown, start, 1, 3 * MIB), Some(Cause::Growth));
        assert_eq!(note(&mut unknown, start, 2, 4 * MIB), None);
        assert_eq!(note(&mut unknown, start, 3, 0), None);
        assert_eq!(note(&mut unknown, start, 4, 2 * MIB), Some(Cause::Growth));
        // Little stays unknown in every process: its stacks, the data of its libraries.
        assert_eq!(note(&mut unknown, start, 60_000, 3 * MIB), None);
    }

    #[test]
    fn what_stays_unknown_is_looked_at_ever_less_often() {
        let (mut unknown, start) = (Unknown::default(), Instant::now());
        assert_eq!(note(&mut unknown, start, 0, 9 * MIB), Some(Cause::Growth));
        let mut looks = Vec::new();
        for ms in 1..30_000 {
            match note(&mut unknown, start, ms, 9 * MIB) {
                Some(Cause::StillMuch) => looks.push(ms),
                other => assert_eq!(other, None),
            }
        }
        assert_eq!(looks, [250, 750, 1750, 3750, 7750, 15750, 23750]);
        assert_eq!(
            note(&mut unknown, start, 30_001, 20 * MIB),
            Some(Cause::Growth)
        );
        assert_eq!(
            note(&mut unknown, start, 30_251, 20 * MIB),
            Some(Cause::StillMuch)
        );
    }
}
