//! Memory that a space's thread needs only while it works: lent out, for a job has many such threads, and only as many work at
//! a time as there are CPUs.
//!
//! It is some 250 KB, so a server of a hundred processes would have 25 MB of them. Pages of any process of the job
//! may still be in it: who copies from it to a process has just written every byte of that.

use crate::fold::Press;
use crate::shared::{lock, Shared};
use pleat_types::PAGE_SIZE;
use std::sync::Mutex;

/// So many are kept for each CPU: threads are displaced by others while they work.
const KEPT_PER_CPU: usize = 2;

/// What a thread works with.
pub struct Scratch {
    /// Compresses and decompresses.
    pub press: Press,
    /// Pages on their way to a process, as many as are filled at once.
    pub pages: Vec<u8>,
}

impl Scratch {
    fn new(shared: &Shared) -> Scratch {
        Scratch {
            press: Press::new(shared),
            pages: vec![0; shared.run_pages as usize * PAGE_SIZE],
        }
    }
}

/// Those that nobody has; the one that was used last is lent first.
#[derive(Default)]
pub struct Scratches(Mutex<Vec<Scratch>>);

/// What a thread has of them: one, or none.
#[derive(Default)]
pub struct Lease(Option<Scratch>);

impl Lease {
    /// The thread's own, until it is given back.
    pub fn get(&mut self, shared: &Shared) -> &mut Scratch {
        self.0.get_or_insert_with(|| {
            let kept = lock(&shared.scratches.0).pop();
            kept.unwrap_or_else(|| Scratch::new(shared))
        })
    }

    /// The thread is about to sleep.
    pub fn give_back(&mut self, shared: &Shared) {
        let Some(scratch) = self.0.take() else { return };
        let mut kept = lock(&shared.scratches.0);
        if kept.len() < shared.cpus * KEPT_PER_CPU {
            kept.push(scratch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::tests::shared;

    #[test]
    fn threads_that_sleep_have_none() {
        let shared = shared();
        let most = shared.cpus * KEPT_PER_CPU;
        let mut leases: Vec<Lease> = (0..most + 2).map(|_| Lease::default()).collect();
        for lease in &mut leases {
            assert_eq!(
                lease.get(&shared).pages.len(),
                shared.run_pages as usize * PAGE_SIZE
            );
        }
        leases[0].get(&shared).pages[0] = 7;
        for lease in leases.iter_mut().rev() {
            lease.give_back(&shared);
            lease.give_back(&shared);
        }
        assert_eq!(lock(&shared.scratches.0).len(), most);
        // Those beyond went; the one used last of those that are kept is the next.
        assert_ne!(Lease::default().get(&shared).pages[0], 7);
        assert_eq!(lock(&shared.scratches.0).len(), most - 1);
    }
}
