//! The mean size of the last items: what makes a buffer full (cervera99 section 3.4).

/// "The last 100 compressed pages".
const COUNT: usize = 100;

/// Sizes of the last [`COUNT`] items. `sum` is the sum of `sizes`.
pub(crate) struct MeanOfRecent {
    sizes: Vec<u16>,
    /// Which one goes next.
    oldest: usize,
    sum: usize,
}

impl MeanOfRecent {
    pub(crate) fn new() -> Self {
        MeanOfRecent {
            sizes: Vec::with_capacity(COUNT),
            oldest: 0,
            sum: 0,
        }
    }

    pub(crate) fn add(&mut self, size: usize) {
        self.sum += size;
        if self.sizes.len() < COUNT {
            self.sizes.push(size as u16);
            return;
        }
        let gone = std::mem::replace(&mut self.sizes[self.oldest], size as u16);
        self.sum -= usize::from(gone);
        self.oldest = (self.oldest + 1) % COUNT;
    }

    /// Rounded down; 0 before the first item.
    pub(crate) fn mean(&self) -> usize {
        self.sum / self.sizes.len().max(1)
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.sizes.capacity() * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_hundred_count() {
        let mut recent = MeanOfRecent::new();
        assert_eq!(recent.mean(), 0);
        (0..150).for_each(|_| recent.add(4000));
        assert_eq!(recent.mean(), 4000);
        (0..50).for_each(|_| recent.add(1000));
        assert_eq!(recent.mean(), 2500);
        (0..50).for_each(|_| recent.add(1000));
        assert_eq!(recent.mean(), 1000);
    }
}
