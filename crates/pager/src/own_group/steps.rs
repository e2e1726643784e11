//! What was kept back of a limit is given to those who wait at it, a little at a time.

use std::time::{Duration, Instant};

/// Who has waited so long, while nothing was taken away, is given another step.
const STEP_EVERY: Duration = Duration::from_millis(10);
const STEP_BYTES: u64 = 64 << 10;
/// Steps that nobody needed any more for so long are taken back.
const STEPS_FOR: Duration = Duration::from_secs(1);

/// What is given of what was kept back, while somebody waits.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) given_bytes: u64,
    /// Since when somebody waits though nothing was taken away, and how much had been by then.
    since: Option<(Instant, u64)>,
    /// The last step.
    stepped: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    Further,
    GiveUp,
}

impl Steps {
    /// Somebody waits, and so much was taken away until now.
    pub(super) fn note(
        &mut self,
        now: Instant,
        taken: u64,
        most_bytes: u64,
        patience: Duration,
    ) -> Step {
        let (since, before) = *self.since.get_or_insert((now, taken));
        if before != taken {
            self.since = Some((now, taken));
            return Step::Stay;
        }
        let last = self.stepped.map_or(since, |at| at.max(since));
        if now - last >= STEP_EVERY && self.given_bytes < most_bytes {
            self.given_bytes = (self.given_bytes + STEP_BYTES).min(most_bytes);
            self.stepped = Some(now);
            return Step::Further;
        }
        match now - last >= patience {
            true => Step::GiveUp,
            false => Step::Stay,
        }
    }

    /// Nobody waits. Whether it has been so for a while.
    pub(super) fn calm(&mut self, now: Instant) -> bool {
        self.since = None;
        let is_over = self.stepped.is_none_or(|at| now - at >= STEPS_FOR);
        if is_over {
            *self = Steps::default();
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELPLESS: Duration = Duration::from_secs(5);
    const MOST: u64 = 3 * STEP_BYTES;

    /// Notes every 5 ms, with what was taken by then; what they came to.
    fn noted(steps: &mut Steps, start: Instant, taken: &[u64]) -> Vec<Step> {
        let times = (0u32..).map(|nth| start + Duration::from_millis(5) * nth);
        times
            .zip(taken)
            .map(|(now, taken)| steps.note(now, *taken, MOST, HELPLESS))
            .collect()
    }

    #[test]
    fn who_waits_in_vain_is_given_a_step_at_a_time_and_no_more_than_there_is() {
        let (mut steps, start) = (Steps::default(), Instant::now());
        let came = noted(&mut steps, start, &[7; 12]);
        let further = came.iter().filter(|step| **step == Step::Further).count();
        assert_eq!((further, steps.given_bytes), (3, MOST));
        assert!(!came.contains(&Step::GiveUp));
        let late = start + Duration::from_millis(60) + HELPLESS;
        assert_eq!(steps.note(late, 7, MOST, HELPLESS), Step::GiveUp);
    }

    #[test]
    fn as_long_as_pages_are_taken_nothing_is_given_and_nobody_gives_up() {
        let (mut steps, start) = (Steps::default(), Instant::now());
        let taken: Vec<u64> = (0..2000).collect();
        let came = noted(&mut steps, start, &taken);
        assert!(came.iter().all(|step| *step == Step::Stay));
        assert_eq!(steps.given_bytes, 0);
    }

    #[test]
    fn what_was_given_is_taken_back_when_nobody_has_waited_for_a_second() {
        let (mut steps, start) = (Steps::default(), Instant::now());
        noted(&mut steps, start, &[7; 4]);
        assert!(steps.given_bytes > 0);
        steps.calm(start + Duration::from_millis(500));
        assert!(steps.given_bytes > 0);
        steps.calm(start + Duration::from_millis(1100));
        assert_eq!(steps.given_bytes, 0);
    }
}
