//! Whether memory is plenty: then programs that are managed have only large pieces of new memory registered before they
//! fill them (`Control::at_ease`). Filling what is registered costs a fault of ours for some pages, what is not a fault of
//! the kernel's for each; and what is not is found by looking, for which there is time while memory is plenty.

use super::Supervisor;
use crate::shared::lock;

/// Memory is plenty from this part of the budget on, one in so many, but at least from so much.
const PLENTY_PART: u64 = 5;
const PLENTY_MIN: u64 = 64 << 20;

impl Supervisor<'_> {
    /// So much is free; processes are told when that changes what they are to do. Those that become managed meanwhile are not:
    /// they announce everything until then.
    pub(super) fn note_ease(&mut self, free: i64) {
        let was = self.is_at_ease;
        // A recording wants to see every first touch.
        self.is_at_ease = !self.is_recording() && is_at_ease(self.budget.bytes, free, was);
        if self.is_at_ease != was {
            let links = lock(&self.shared.links);
            links
                .iter()
                .for_each(|link| link.set_at_ease(self.is_at_ease));
        }
    }
}

/// Not again and again at the border: it ends where half as much is free as it began with.
fn is_at_ease(budget: u64, free: i64, was: bool) -> bool {
    let plenty = (budget / PLENTY_PART).max(PLENTY_MIN);
    let from = if was { plenty / 2 } else { plenty };
    free > from as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_plenty_while_a_program_cannot_fill_it_between_looks() {
        let at = |free: i64, was| is_at_ease(1000 << 20, free << 20, was);
        assert!(at(201, false) && at(199, true) && at(101, true));
        assert!(!at(199, false) && !at(99, true) && !at(-1, true));
        // Never in a small budget.
        assert!(!is_at_ease(60 << 20, 60 << 20, false));
    }
}
