//! Doubly linked lists inside tables: records that name their neighbours by number.
//!
//! Blocks chain frames with room, buffers and the ring their items in the order of their places.
//! A chain does not own its table; a record is in one chain at most, and the caller knows which.

pub(crate) const NONE: u32 = u32::MAX;

/// Neighbours of a record in its chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    previous: u32,
    pub(crate) next: u32,
}

impl Link {
    pub(crate) const NONE: Link = Link {
        previous: NONE,
        next: NONE,
    };
}

/// A record that can be in a chain.
pub(crate) trait Linked {
    fn link(&mut self) -> &mut Link;
}

/// The ends of a chain: both [`NONE`] or neither.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
}

impl Chain {
    pub(crate) const EMPTY: Chain = Chain {
        first: NONE,
        last: NONE,
    };

    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// The number of the first record, or [`NONE`].
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// Puts `number`, which is in no chain, before all others.
    pub(crate) fn push_front<T: Linked>(&mut self, table: &mut [T], number: u32) {
        let next = std::mem::replace(&mut self.first, number);
        *table[number as usize].link() = Link {
            previous: NONE,
            next,
        };
        match next {
            NONE => self.last = number,
            _ => table[next as usize].link().previous = number,
        }
    }

    /// Puts `number`, which is in no chain, behind all others.
    pub(crate) fn push_back<T: Linked>(&mut self, table: &mut [T], number: u32) {
        let previous = std::mem::replace(&mut self.last, number);
        *table[number as usize].link() = Link {
            previous,
            next: NONE,
        };
        match previous {
            NONE => self.first = number,
            _ => table[previous as usize].link().next = number,
        }
    }

    /// Takes `number` out of this chain.
    pub(crate) fn detach<T: Linked>(&mut self, table: &mut [T], number: u32) {
        let Link { previous, next } = std::mem::replace(table[number as usize].link(), Link::NONE);
        match previous {
            NONE => self.first = next,
            _ => table[previous as usize].link().next = next,
        }
        match next {
            NONE => self.last = previous,
            _ => table[next as usize].link().previous = previous,
        }
    }

    /// All numbers in order, for checks: follows both directions and compares.
    #[cfg(test)]
    pub(crate) fn numbers<T: Linked + Copy>(&self, table: &[T]) -> Vec<u32> {
        let link = |number: u32| {
            let mut record = table[number as usize];
            *record.link()
        };
        let follow = |start: u32, step: fn(Link) -> u32| {
            let known = |&number: &u32| (number != NONE).then_some(number);
            std::iter::successors(known(&start), move |&number| known(&step(link(number))))
        };
        let forth: Vec<u32> = follow(self.first, |link| link.next).collect();
        let back: Vec<u32> = follow(self.last, |link| link.previous).collect();
        assert!(forth.iter().eq(back.iter().rev()), "{forth:?} {back:?}");
        forth
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    impl Linked for Link {
        fn link(&mut self) -> &mut Link {
            self
        }
    }

    proptest! {
        #[test]
        fn a_chain_is_a_queue_that_can_be_left_anywhere(
            steps in proptest::collection::vec((0..10u32, any::<bool>()), 1..100),
        ) {
            let mut table = [Link::NONE; 10];
            let (mut chain, mut model) = (Chain::EMPTY, VecDeque::new());
            for (number, front) in steps {
                if let Some(at) = model.iter().position(|&other| other == number) {
                    model.remove(at);
                    chain.detach(&mut table, number);
                } else if front {
                    model.push_front(number);
                    chain.push_front(&mut table, number);
                } else {
                    model.push_back(number);
                    chain.push_back(&mut table, number);
                }
                prop_assert_eq!(chain.numbers(&table), Vec::from(model.clone()));
                prop_assert_eq!(chain.is_empty(), model.is_empty());
                prop_assert_eq!(chain.first(), model.front().copied().unwrap_or(NONE));
            }
        }
    }
}
