//! Which parts of the swap file are in use: contiguous runs of fragments, found next-fit.
//!
//! The engine asks for room for a cluster and later frees it, whole or item by item. The search
//! sweeps forward from the last allocation so that clusters reach the disk mostly in order
//! (douglis93, section 4.3, writes 1 KiB fragments in clusters for the same reason). It starts over
//! at the front once a quarter of the file is free, and lets the file grow before that.
//!
//! ```text
//!   file   | region 0          | region 1          | region 2          |  32768 fragments each
//!   bits   |1111000111101111...|1111111111110001...|1111100000000000...|  1 = in use
//!                                            next ------^
//! ```
//!
//! Cost: a few words of bitmap per call, plus one comparison for every region passed over (1220 for
//! 40 million fragments). `examples/slots_speed.rs` measures it.
#![forbid(unsafe_code)]

use crate::region::{Region, REGION_FRAGMENTS};

/// A range of bytes in the swap file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First byte; a multiple of the fragment size.
    pub offset: u64,
    /// How many bytes; the fragment that the last of them is in belongs to the extent whole.
    pub bytes: u32,
}

/// The map of used and free fragments of one swap file.
///
/// `used_bytes() <= high_water_bytes() <= max_bytes`
pub struct SlotSpace {
    fragment_bytes: u32,
    fragments_max: u64,
    regions: Vec<Region>,
    /// Where the next search begins: the fragment after the last allocation.
    next: u64,
    used: u64,
    high_water: u64,
    /// See [`SlotSpace::reusing_early`].
    reuses_early: bool,
}

impl SlotSpace {
    /// An empty space of fragments of `fragment_bytes` bytes that grows up to `max_bytes`, or as far
    /// as a file can.
    ///
    /// # Panics
    /// When `fragment_bytes` is 0.
    pub fn new(fragment_bytes: u32, max_bytes: Option<u64>) -> Self {
        let max_bytes = max_bytes.unwrap_or(u64::MAX).min(i64::MAX as u64);
        SlotSpace {
            fragment_bytes,
            fragments_max: max_bytes / u64::from(fragment_bytes),
            regions: Vec::new(),
            next: 0,
            used: 0,
            high_water: 0,
            reuses_early: false,
        }
    }

    /// Starts over at the front as soon as a quarter of what the file has grown to is free, instead of a
    /// quarter of its regions: for large fragments, of which a region holds gigabytes.
    pub fn reusing_early(mut self) -> Self {
        self.reuses_early = true;
        self
    }

    /// Room for `bytes` bytes in one piece, or `None` when the space is full, too fragmented, or
    /// `bytes` is 0 or more than 32768 fragments.
    pub fn allocate(&mut self, bytes: u32) -> Option<Extent> {
        let want = bytes.div_ceil(self.fragment_bytes);
        if want == 0 || want > REGION_FRAGMENTS {
            return None;
        }
        let start = self.find_place(want)?;
        let (region, first) = locate(start);
        self.regions[region].take(first..first + want);
        self.next = start + u64::from(want);
        self.used += u64::from(want);
        self.high_water = self.high_water.max(self.next);
        Some(Extent {
            offset: start * u64::from(self.fragment_bytes),
            bytes,
        })
    }

    /// Gives back an allocation, or a part of one that begins at a fragment.
    ///
    /// # Panics
    /// When the extent does not begin at a fragment or is not allocated: that is a bug of the
    /// caller, and going on would overwrite somebody's pages.
    pub fn free(&mut self, extent: Extent) {
        let fragment = u64::from(self.fragment_bytes);
        assert!(
            extent.offset.is_multiple_of(fragment),
            "{extent:?} does not begin at a fragment"
        );
        let count = extent.bytes.div_ceil(self.fragment_bytes);
        let (region, first) = locate(extent.offset / fragment);
        assert!(
            region < self.regions.len() && count <= REGION_FRAGMENTS - first,
            "{extent:?} was never allocated"
        );
        self.regions[region].release(first..first + count);
        self.used -= u64::from(count);
    }

    /// Long free runs (offset, bytes) that hold disk blocks for nothing, for `Backing::discard`.
    ///
    /// Looks only where something was freed since the last call. Punch the runs before the next
    /// allocation, which may use them again.
    pub fn take_holes(&mut self, min_bytes: u64) -> Vec<(u64, u64)> {
        let fragment = u64::from(self.fragment_bytes);
        let min = min_bytes
            .div_ceil(fragment)
            .clamp(1, u64::from(REGION_FRAGMENTS)) as u32;
        let mut holes = Vec::new();
        for (index, region) in self.regions.iter_mut().enumerate() {
            let base = index as u64 * u64::from(REGION_FRAGMENTS);
            let end =
                (self.high_water.saturating_sub(base)).min(u64::from(REGION_FRAGMENTS)) as u32;
            for run in region.take_holes(min, end) {
                let start = (base + u64::from(run.start)) * fragment;
                holes.push((start, u64::from(run.end - run.start) * fragment));
            }
        }
        holes
    }

    /// Bytes that could still be allocated, were they all in one piece.
    pub fn free_bytes(&self) -> u64 {
        (self.fragments_max - self.used).saturating_mul(u64::from(self.fragment_bytes))
    }

    /// Bytes of all fragments in use.
    pub fn used_bytes(&self) -> u64 {
        self.used * u64::from(self.fragment_bytes)
    }

    /// Largest size the file has had to have, in bytes.
    pub fn high_water_bytes(&self) -> u64 {
        self.high_water * u64::from(self.fragment_bytes)
    }

    /// Memory this map itself takes, in bytes.
    pub fn metadata_bytes(&self) -> u64 {
        let bitmap_bytes = 2 * u64::from(REGION_FRAGMENTS) / 8;
        self.regions.len() as u64 * bitmap_bytes
            + (self.regions.capacity() * size_of::<Region>()) as u64
    }

    fn find_place(&mut self, want: u32) -> Option<u64> {
        // The file has never been larger, and a quarter of it is free: no need for it to grow.
        let is_enough_free = self.used <= self.high_water / 4 * 3;
        if self.reuses_early && self.next >= self.high_water && is_enough_free {
            self.next = 0;
        }
        if let Some(start) = self.find_ahead(want) {
            return Some(start);
        }
        let capacity = self.regions.len() as u64 * u64::from(REGION_FRAGMENTS);
        let start_over = self.used <= capacity / 4 * 3;
        if start_over {
            if let Some(start) = self.find_from_region(0, want) {
                return Some(start);
            }
        }
        if let Some(start) = self.find_in_growth(want) {
            return Some(start);
        }
        self.find_from_region(0, want)
    }

    fn find_ahead(&mut self, want: u32) -> Option<u64> {
        let (index, from) = locate(self.next);
        if let Some(start) = self.regions.get_mut(index)?.find(from, want) {
            return Some(fragment_number(index, start));
        }
        self.find_from_region(index + 1, want)
    }

    fn find_from_region(&mut self, first: usize, want: u32) -> Option<u64> {
        let regions = self.regions.iter_mut().enumerate().skip(first);
        for (index, region) in regions {
            if let Some(start) = region.find(0, want) {
                return Some(fragment_number(index, start));
            }
        }
        None
    }

    fn find_in_growth(&mut self, want: u32) -> Option<u64> {
        let index = self.regions.len();
        let left = self.fragments_max.saturating_sub(fragment_number(index, 0));
        if left == 0 {
            return None;
        }
        self.regions
            .push(Region::new(left.min(u64::from(REGION_FRAGMENTS)) as u32));
        self.find_from_region(index, want)
    }
}

/// The region a fragment is in, and its place there.
fn locate(fragment: u64) -> (usize, u32) {
    let region = u64::from(REGION_FRAGMENTS);
    ((fragment / region) as usize, (fragment % region) as u32)
}

fn fragment_number(region: usize, fragment: u32) -> u64 {
    region as u64 * u64::from(REGION_FRAGMENTS) + u64::from(fragment)
}

#[cfg(test)]
mod tests;
