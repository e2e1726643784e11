//! The map of the swap file: its units, what is in each, and whether the file takes more.
//!
//! A unit is what becomes free at once: a cluster, whose dead parts only collection regains
//! (`collect.rs`), or a block. Writes that are shorter than a cluster fill one together, one behind the other.
//! Every filling of a cluster, and else every write, has a number of its own, and a unit remembers that of its
//! own: offset and number together name one version of one page, for within a filling no place is written to twice.

use pleat_backing::{Extent, SlotSpace};

use crate::{BodyId, SwapSettings, SwapUnit};

/// What disks transfer: writes begin and end at multiples of it.
pub(crate) const BLOCK_BYTES: u32 = 4096;
/// A collected cluster holds at least the largest page with all that is added to it.
const CLUSTER_LEAST: u32 = 2 * BLOCK_BYTES;
/// A file has at least so many clusters, where its size is limited: collection needs a free one.
const CLUSTERS_LEAST: u64 = 8;

/// A part of the file that becomes free at once.
#[derive(Clone, Copy, Default)]
pub(crate) struct SwapPart {
    /// Pages in it that somebody wants; 0: it is free.
    pub(crate) pages: u32,
    /// Their room in bytes.
    pub(crate) live_bytes: u32,
    /// Number of the write, or of the filling by several, that its pages came with.
    pub(crate) serial: u64,
}

/// Room for a write, and the number that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) extent: Extent,
    pub(crate) serial: u64,
}

/// A cluster that has room behind what was written to it.
#[derive(Clone, Copy)]
struct Open {
    offset: u64,
    /// Bytes that writes were given.
    full: u32,
    serial: u64,
}

/// Where there is room in the swap file.
///
/// ```text
/// space.used_bytes() == unit_bytes * parts with pages
/// live_bytes         == extents of bodies == sum of the parts'
/// ```
pub(crate) struct Swap {
    pub(crate) settings: SwapSettings,
    pub(crate) space: SlotSpace,
    unit_bytes: u32,
    parts: Vec<SwapPart>,
    /// Pages that were written to each cluster, wanted or not, as they lie there. Blocks have none.
    lists: Vec<Vec<BodyId>>,
    /// Entries of all lists.
    listed: usize,
    live_bytes: u64,
    /// The last number given out.
    serial: u64,
    /// The cluster that is being filled.
    open: Option<Open>,
    /// Clusters are being emptied: one collection at a time.
    pub(crate) collecting: bool,
    /// A write failed: nothing is written until the driver says so.
    pub(crate) halted: bool,
    /// The last search for room found none and nothing was freed since.
    pub(crate) full: bool,
}

impl Swap {
    pub(crate) fn new(mut settings: SwapSettings) -> Swap {
        let cluster = settings.cluster_bytes / BLOCK_BYTES * BLOCK_BYTES;
        settings.cluster_bytes = match settings.unit {
            SwapUnit::Cluster => {
                let most = settings.max_bytes.unwrap_or(u64::MAX) / CLUSTERS_LEAST;
                let most = u32::try_from(most).unwrap_or(u32::MAX) / BLOCK_BYTES * BLOCK_BYTES;
                cluster.min(most).max(CLUSTER_LEAST)
            }
            SwapUnit::Block => cluster.max(BLOCK_BYTES),
        };
        let unit_bytes = match settings.unit {
            SwapUnit::Cluster => settings.cluster_bytes,
            SwapUnit::Block => BLOCK_BYTES,
        };
        let space = SlotSpace::new(unit_bytes, settings.max_bytes);
        let space = match settings.unit {
            SwapUnit::Cluster => space.reusing_early(),
            SwapUnit::Block => space,
        };
        Swap {
            settings,
            space,
            unit_bytes,
            parts: Vec::new(),
            lists: Vec::new(),
            listed: 0,
            live_bytes: 0,
            serial: 0,
            open: None,
            collecting: false,
            halted: false,
            full: false,
        }
    }

    /// Whether dead parts of units can be regained.
    pub(crate) fn collects(&self) -> bool {
        self.settings.unit == SwapUnit::Cluster
    }

    pub(crate) fn unit_bytes(&self) -> u32 {
        self.unit_bytes
    }

    /// Bytes that pages were given that somebody wants.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// The last number given to a write.
    pub(crate) fn last_serial(&self) -> u64 {
        self.serial
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Where the next page of this length goes, when so many bytes of a write are full: its start and
    /// its room. A page that fills its block keeps the block, though there is no room for what the
    /// driver adds.
    pub(crate) fn place(&self, full: u32, len: u32) -> (u32, u32) {
        let settings = &self.settings;
        let wanted = len + settings.overhead_bytes;
        if settings.unit == SwapUnit::Block {
            return (full.next_multiple_of(BLOCK_BYTES), wanted.min(BLOCK_BYTES));
        }
        let start = full.next_multiple_of(settings.fragment_bytes);
        let room = wanted.next_multiple_of(settings.fragment_bytes);
        let left = BLOCK_BYTES - start % BLOCK_BYTES;
        if settings.spans_blocks || room <= left {
            return (start, room);
        }
        (start.next_multiple_of(BLOCK_BYTES), room)
    }

    /// Bytes that these pages take in one write, placed one after the other.
    pub(crate) fn packed_bytes(&self, lens: impl Iterator<Item = u32>) -> u32 {
        let end = lens.fold(0, |full, len| {
            let (start, room) = self.place(full, len);
            start + room
        });
        end.next_multiple_of(BLOCK_BYTES)
    }

    /// Room for a write of so many bytes, whole blocks: in the cluster that is being filled, or in one of its own.
    /// The last free cluster is for collection: without it nothing could be regained.
    pub(crate) fn allocate(&mut self, bytes: u32, collects: bool) -> Option<Room> {
        if !self.collects() {
            let extent = self.space.allocate(bytes)?;
            let serial = self.next_serial();
            return Some(Room { extent, serial });
        }
        let fits = |open: &Open| !collects && open.full + bytes <= self.unit_bytes;
        let open = match self.open.filter(fits) {
            Some(open) => open,
            None => self.open_cluster(collects)?,
        };
        let full = open.full + bytes;
        if !collects {
            self.open = (full < self.unit_bytes).then_some(Open { full, ..open });
        }
        let offset = open.offset + u64::from(open.full);
        Some(Room {
            extent: Extent { offset, bytes },
            serial: open.serial,
        })
    }

    /// A cluster of which nothing is full yet.
    fn open_cluster(&mut self, collects: bool) -> Option<Open> {
        let unit = u64::from(self.unit_bytes);
        if !collects && self.space.free_bytes() < 2 * unit {
            return None;
        }
        Some(Open {
            offset: self.space.allocate(self.unit_bytes)?.offset,
            full: 0,
            serial: self.next_serial(),
        })
    }

    /// Nothing is added to the cluster that is being filled: a write to it has failed.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Whether more will be written to this unit.
    pub(crate) fn is_open(&self, index: usize) -> bool {
        self.open
            .is_some_and(|open| self.index_of(open.offset) == index)
    }

    /// A page was given this room by the write of that number.
    pub(crate) fn share(&mut self, extent: Extent, body: BodyId, serial: u64) {
        let (index, collects) = (self.index_of(extent.offset), self.collects());
        if self.parts.len() <= index {
            self.parts.resize(index + 1, SwapPart::default());
        }
        let part = &mut self.parts[index];
        part.pages += 1;
        part.live_bytes += extent.bytes;
        part.serial = serial;
        self.live_bytes += u64::from(extent.bytes);
        if collects {
            self.lists.resize_with(self.parts.len(), Vec::new);
            self.lists[index].push(body);
            self.listed += 1;
        }
    }

    /// A page gives up its room; a unit is free when all its pages have (cervera99, 3.3).
    pub(crate) fn free(&mut self, extent: Extent) {
        self.full = false;
        let index = self.index_of(extent.offset);
        let part = &mut self.parts[index];
        part.pages -= 1;
        part.live_bytes -= extent.bytes;
        self.live_bytes -= u64::from(extent.bytes);
        if part.pages == 0 {
            if let Some(list) = self.lists.get_mut(index) {
                self.listed -= std::mem::take(list).len();
            }
            if self.is_open(index) {
                self.close();
            }
            self.space.free(self.unit(index));
        }
    }

    /// Whether nine tenths of a file of limited size are in use, but for what is kept for collection.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let kept = 2 * u64::from(self.unit_bytes);
        let most = self.settings.max_bytes.unwrap_or(u64::MAX);
        self.space.used_bytes() > most.saturating_sub(kept) / 10 * 9
    }

    /// Places for pages that are left, when so many pages are away and so many blocks are promised
    /// beside those in use. There are some per cent as many places as blocks, and a page needs both
    /// (cervera99, sections 3.2 and 4.4: "the system will always assume the worst case").
    pub(crate) fn places_left(&self, away: u64, promised: u64) -> u64 {
        let limit = self.settings.virtual_percent.zip(self.settings.max_bytes);
        let Some((percent, max)) = limit else {
            return u64::MAX;
        };
        let blocks = max / u64::from(BLOCK_BYTES);
        let places = blocks * u64::from(percent) / 100;
        let used = self.space.used_bytes() / u64::from(BLOCK_BYTES);
        let free_blocks = blocks.saturating_sub(used + promised);
        free_blocks.min(places.saturating_sub(away))
    }

    fn index_of(&self, offset: u64) -> usize {
        (offset / u64::from(self.unit_bytes)) as usize
    }

    /// The whole unit of that number.
    pub(crate) fn unit(&self, index: usize) -> Extent {
        Extent {
            offset: index as u64 * u64::from(self.unit_bytes),
            bytes: self.unit_bytes,
        }
    }

    /// The unit in which this offset lies.
    pub(crate) fn part_at(&self, offset: u64) -> &SwapPart {
        &self.parts[self.index_of(offset)]
    }

    /// The pages that were written to the cluster in which this offset lies, wanted or not.
    pub(crate) fn written_at(&self, offset: u64) -> &[BodyId] {
        let list = self.lists.get(self.index_of(offset));
        list.map_or(&[], |list| &**list)
    }

    /// Every unit that is in use, by its number.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, &SwapPart)> {
        let numbered = self.parts.iter().enumerate();
        numbered.filter(|(_, part)| part.pages > 0)
    }

    /// Bytes of the tables.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        let tables = self.parts.capacity() * size_of::<SwapPart>()
            + self.lists.capacity() * size_of::<Vec<BodyId>>()
            + self.listed * size_of::<BodyId>();
        tables as u64 + self.space.metadata_bytes()
    }

    /// Whether the equations above hold.
    pub(crate) fn is_valid(&self) -> bool {
        let used = self.parts().count() as u64 * u64::from(self.unit_bytes);
        let live: u64 = self
            .parts()
            .map(|(_, part)| u64::from(part.live_bytes))
            .sum();
        used == self.space.used_bytes() && live == self.live_bytes
    }
}
