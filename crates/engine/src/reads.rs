//! From the swap file: which pages to read for a fault, and what was read.

use pleat_types::{PageNo, SpaceId};

use crate::blocks::block_of;
use crate::bodies::{BodyState, DiskCopy};
use crate::cache::Cache;
use crate::table::PageState;
use crate::{BodyId, Engine, ReadItem};

/// A neighbour is read along if it lies so near in the file.
const BESIDE_MAX_BYTES: u64 = 32 << 10;

impl Engine {
    /// A folded page was read and is whole. It is kept until the fault that wanted it asks again, or
    /// for a while, when it was read ahead. `false`: it is not wanted any more.
    ///
    /// # Panics
    /// When `bytes` are not as many as `item` says.
    pub fn landed(&mut self, item: &ReadItem, bytes: &[u8], is_ahead: bool) -> bool {
        assert_eq!(bytes.len(), item.len as usize, "{item:?}");
        let wanted = matches!(self.cache.bodies.state(item.body), BodyState::OnDisk(_))
            && self.is_current(item);
        if wanted {
            self.cache.totals.read_ahead_pages += u64::from(is_ahead);
            // The copy in the file may have been folded otherwise than the page was last.
            self.cache.note_check(item.body, bytes);
            self.cache.landing.add(item.body, bytes, is_ahead);
        }
        wanted
    }

    /// Whether the swap file must hold this page there, as it was read or is being read. If so, and that
    /// is not what was found there, the file is damaged; if not, its place may have been written to
    /// again meanwhile.
    pub fn is_current(&self, item: &ReadItem) -> bool {
        self.cache.current_copy(item).is_some()
    }
}

impl Engine {
    /// Adds neighbours of a page that is going to be read, where they are expected to be wanted and lie near it in
    /// the same cluster. Nobody waits for them: where they end, the read may.
    pub(crate) fn plan_beside(
        &self,
        id: SpaceId,
        page: PageNo,
        free_bytes: u64,
        reads: &mut Vec<ReadItem>,
    ) {
        let space = self.spaces.get(&id).filter(|_| self.knows_blocks(id));
        let Some(space) = space.filter(|space| space.brings(page)) else {
            return;
        };
        let wanted = reads[0];
        let mut left = free_bytes;
        for page in block_of(page).pages() {
            let PageState::Away(body) = space.table.get(page) else {
                continue;
            };
            let BodyState::OnDisk(copy) = self.cache.bodies.state(body) else {
                continue;
            };
            let Some(item) = self.cache.read_item(body, copy) else {
                continue;
            };
            let is_near = item.serial == wanted.serial
                && item.offset.abs_diff(wanted.offset) <= BESIDE_MAX_BYTES
                && item.body != wanted.body;
            let has_landed = self.cache.landing.get(body).is_some();
            let bytes = u64::from(item.len);
            if is_near && !has_landed && bytes <= left {
                left -= bytes;
                reads.push(item);
            }
        }
    }
}

impl Cache {
    /// The copy of a body in the swap file, if it has one that is whole.
    pub(crate) fn disk_copy(&self, body: BodyId) -> Option<DiskCopy> {
        match self.bodies.state(body) {
            BodyState::OnDisk(copy)
            | BodyState::Clean { copy, .. }
            | BodyState::StagedClean { copy, .. } => Some(copy),
            _ => None,
        }
    }

    /// The copy that an item names, if it still is that of its body.
    pub(crate) fn current_copy(&self, item: &ReadItem) -> Option<DiskCopy> {
        let copy = self.disk_copy(item.body)?;
        (self.read_item(item.body, copy) == Some(*item)).then_some(copy)
    }

    /// What to read for it.
    pub(crate) fn read_item(&self, body: BodyId, copy: DiskCopy) -> Option<ReadItem> {
        let part = self.swap.as_ref()?.part_at(copy.extent.offset);
        Some(ReadItem {
            body,
            offset: copy.extent.offset,
            len: copy.packed.len,
            room: copy.extent.bytes,
            codec: copy.packed.codec,
            serial: part.serial,
        })
    }

    /// Plans to read a body that is in the swap file only, and what was written behind it in the same
    /// cluster, as far as the last reads and free memory suggest.
    pub(crate) fn plan_reads(&mut self, body: BodyId, free_bytes: u64, reads: &mut Vec<ReadItem>) {
        let wanted = self
            .disk_copy(body)
            .and_then(|copy| self.read_item(body, copy));
        // Asked for bodies that are `OnDisk`, and these are where there is a swap file.
        let wanted = wanted.expect("a page in the swap file");
        reads.push(wanted);
        let most = self.ahead_max();
        let start = self.position(&wanted);
        let window = self.landing.window(start, most);
        if window > 1 {
            self.plan_ahead(wanted, window, free_bytes, reads);
        }
        let end = reads.last().map_or(wanted.end(), ReadItem::end);
        self.landing.reads(start, end - wanted.offset, most);
    }

    /// Where an item lies in the order of writing: one cluster follows the other, wherever in the file
    /// there was room for it.
    fn position(&self, item: &ReadItem) -> u64 {
        let unit = self.swap.as_ref().map_or(1, |swap| swap.unit_bytes());
        let unit = u64::from(unit);
        item.serial * unit + item.offset % unit
    }

    fn ahead_max(&self) -> u32 {
        let swap = self.swap.as_ref();
        swap.map_or(1, |swap| swap.settings.ahead_max)
    }

    /// Adds up to `window - 1` pages that lie behind this one in its cluster and are not in memory.
    fn plan_ahead(
        &self,
        wanted: ReadItem,
        window: u32,
        free_bytes: u64,
        reads: &mut Vec<ReadItem>,
    ) {
        let Some(swap) = &self.swap else { return };
        let cluster = swap.written_at(wanted.offset);
        let Some(at) = cluster.iter().position(|&other| other == wanted.body) else {
            return;
        };
        let mut left = free_bytes;
        for &body in &cluster[at + 1..] {
            if reads.len() as u32 == window {
                return;
            }
            let BodyState::OnDisk(copy) = self.bodies.state(body) else {
                continue;
            };
            if !self.bodies.is_counted(body) {
                continue;
            }
            // A number may have been given to another body since.
            let Some(item) = self.read_item(body, copy) else {
                continue;
            };
            let last = reads.last().map_or(wanted.end(), ReadItem::end);
            let in_order = item.serial == wanted.serial && item.offset >= last;
            if !in_order || self.landing.get(body).is_some() {
                continue;
            }
            let bytes = u64::from(item.len);
            if left < bytes {
                return;
            }
            left -= bytes;
            reads.push(item);
        }
    }
}
