//! The work function of a metrical task system on a line: when to move between states, if moving costs
//! and so does staying (Borodin, Linial, Saks, JACM 1992; Chrobak and Larmore, "Metrical task systems, the
//! server problem, and the work function algorithm", 1998).
//!
//! For each state it keeps the least cost of having served everything so far and being there now. Two
//! states never differ by more than the way between them, so the past is forgotten once staying anywhere
//! else would have been dearer than to go there.

/// Work of each state. After each `serve`:
///
/// ```text
/// min(work) == 0
/// |work[i] - work[i + 1]| <= move_ns
/// ```
#[derive(Debug)]
pub(crate) struct WorkFunction {
    work_ns: Vec<f64>,
}

impl WorkFunction {
    pub(crate) fn new(states: usize) -> WorkFunction {
        WorkFunction {
            work_ns: vec![0.0; states],
        }
    }

    /// Something was served that would have cost `stalls_ns` in each state; a step to the next state costs
    /// `move_ns`. Where to be now, having been in `from`.
    pub(crate) fn serve(&mut self, stalls_ns: &[f64], move_ns: f64, from: usize) -> usize {
        debug_assert_eq!(stalls_ns.len(), self.work_ns.len());
        for (work, stall) in self.work_ns.iter_mut().zip(stalls_ns) {
            *work += stall;
        }
        let to = self.best(move_ns, from);
        self.settle(move_ns);
        to
    }

    /// The state with the least work and way; of equals the nearest.
    fn best(&self, move_ns: f64, from: usize) -> usize {
        let total = |to: usize| self.work_ns[to] + to.abs_diff(from) as f64 * move_ns;
        let states = 0..self.work_ns.len();
        let nearest = |to: &usize| to.abs_diff(from);
        let least = |one: &usize, other: &usize| {
            let by_cost = total(*one).total_cmp(&total(*other));
            by_cost.then(nearest(one).cmp(&nearest(other)))
        };
        states.min_by(least).unwrap_or(from)
    }

    /// No state is worth more than a better one and the way from there.
    fn settle(&mut self, move_ns: f64) {
        let work = &mut self.work_ns;
        for state in 1..work.len() {
            work[state] = work[state].min(work[state - 1] + move_ns);
        }
        for state in (1..work.len()).rev() {
            work[state - 1] = work[state - 1].min(work[state] + move_ns);
        }
        let least = work.iter().copied().fold(f64::INFINITY, f64::min);
        work.iter_mut().for_each(|work| *work -= least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_moves_when_staying_has_cost_as_much_as_the_way() {
        let mut work = WorkFunction::new(5);
        let stalls = [0.0, 10.0, 10.0, 10.0, 10.0];
        let mut at = 4;
        let moves: Vec<usize> = (0..5)
            .map(|_| {
                at = work.serve(&stalls, 10.0, at);
                at
            })
            .collect();
        assert_eq!(moves, [4, 4, 4, 4, 0]);
    }

    #[test]
    fn it_comes_back_as_soon_as_a_change_is_worth_it() {
        let mut work = WorkFunction::new(2);
        let mut at = 1;
        for _ in 0..1000 {
            at = work.serve(&[0.0, 1.0], 10.0, at);
        }
        assert_eq!(at, 0);
        let turns = (1..).find(|_| {
            at = work.serve(&[1.0, 0.0], 10.0, at);
            at == 1
        });
        // To be forgotten: the way there; to be shown: the way back.
        assert_eq!(turns, Some(21));
    }

    proptest! {
        #[test]
        fn neighbours_never_differ_by_more_than_the_way(
            stalls in proptest::collection::vec(proptest::collection::vec(0.0..1e9f64, 9), 1..50),
            move_ns in 0.0..1e9f64,
        ) {
            let mut work = WorkFunction::new(9);
            let mut at = 4;
            for stall in &stalls {
                at = work.serve(stall, move_ns, at);
                prop_assert!(at < 9);
                let ways = work.work_ns.windows(2).map(|pair| (pair[0] - pair[1]).abs());
                prop_assert!(ways.fold(0.0, f64::max) <= move_ns * (1.0 + 1e-9) + 1e-6);
                prop_assert!(work.work_ns.contains(&0.0));
            }
        }
    }
}
