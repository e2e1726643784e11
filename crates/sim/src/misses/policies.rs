//! The policies everybody knows, and FIFO with an inactive list.

use super::list::List;
use super::{Page, Policy, Touch};

/// First in, first out: what remains of every policy that sees no use of pages that are in memory.
pub(super) struct Fifo {
    resident: List,
    frames: usize,
}

impl Fifo {
    pub(super) fn new(pages: usize, frames: usize) -> Fifo {
        let resident = List::new(pages);
        Fifo { resident, frames }
    }
}

impl Policy for Fifo {
    fn touch(&mut self, page: Page) -> Touch {
        if self.resident.contains(page) {
            return Touch::Hit;
        }
        if self.resident.len() == self.frames {
            self.resident.pop_oldest();
        }
        self.resident.push_youngest(page);
        Touch::Miss
    }

    fn forget(&mut self, page: Page) {
        self.resident.remove(page);
    }
}

/// The page goes that was not used for longest.
pub(super) struct Lru {
    fifo: Fifo,
}

impl Lru {
    pub(super) fn new(pages: usize, frames: usize) -> Lru {
        let fifo = Fifo::new(pages, frames);
        Lru { fifo }
    }
}

impl Policy for Lru {
    fn touch(&mut self, page: Page) -> Touch {
        if self.fifo.resident.remove(page) {
            self.fifo.resident.push_youngest(page);
            return Touch::Hit;
        }
        self.fifo.touch(page)
    }

    fn forget(&mut self, page: Page) {
        self.fifo.forget(page);
    }
}

/// First in, first out, but a page that was used since it came, or since it was looked at last, is
/// passed over: what can be had where there is an accessed bit.
pub(super) struct Clock {
    resident: List,
    used: Vec<bool>,
    frames: usize,
}

impl Clock {
    pub(super) fn new(pages: usize, frames: usize) -> Clock {
        Clock {
            resident: List::new(pages),
            used: vec![false; pages],
            frames,
        }
    }
}

impl Policy for Clock {
    fn touch(&mut self, page: Page) -> Touch {
        if self.resident.contains(page) {
            self.used[page as usize] = true;
            return Touch::Hit;
        }
        while self.resident.len() == self.frames {
            let oldest = self.resident.pop_oldest().expect("there are frames");
            if std::mem::take(&mut self.used[oldest as usize]) {
                self.resident.push_youngest(oldest);
            }
        }
        self.resident.push_youngest(page);
        Touch::Miss
    }

    fn forget(&mut self, page: Page) {
        self.used[page as usize] = false;
        self.resident.remove(page);
    }
}

/// First in, first out, but who leaves is not gone yet: a part of the frames holds the pages that left
/// last, and a use of one of them, which is seen because it is not in its place, makes it the
/// youngest (Turner and Levy, *Segmented FIFO Page Replacement*, SIGMETRICS 1981).
pub(super) struct Staged {
    active: List,
    inactive: List,
    frames: usize,
    inactive_max: usize,
}

impl Staged {
    pub(super) fn new(pages: usize, frames: usize, inactive_max: usize) -> Staged {
        Staged {
            active: List::new(pages),
            inactive: List::new(pages),
            frames,
            inactive_max,
        }
    }
}

impl Policy for Staged {
    fn touch(&mut self, page: Page) -> Touch {
        if self.active.contains(page) {
            return Touch::Hit;
        }
        let touch = match self.inactive.remove(page) {
            true => Touch::Soft,
            false => Touch::Miss,
        };
        self.active.push_youngest(page);
        if self.active.len() > self.frames - self.inactive_max {
            let oldest = self.active.pop_oldest().expect("it is more than full");
            self.inactive.push_youngest(oldest);
        }
        if self.inactive.len() > self.inactive_max {
            self.inactive.pop_oldest();
        }
        touch
    }

    fn forget(&mut self, page: Page) {
        self.active.remove(page);
        self.inactive.remove(page);
    }
}
