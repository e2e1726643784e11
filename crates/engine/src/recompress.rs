//! Compressing pages once more that stayed in the compressed cache long enough to be on its profit
//! list, with a slower and tighter codec (as zram's recompression). Off unless the driver asks.
//!
//! The driver takes a copy of a page's bytes and brings back shorter ones. Meanwhile the page may be
//! wanted, written out, freed, and its number and its place used for another page. So a copy is
//! good only as long as nothing has been taken out of that place: [`Cache::unstore`] and the start of
//! another recompression end it, and what comes back later is dropped.

use pleat_codec::Folded;
use pleat_store::Growth;

use crate::bodies::{BodyState, Packed};
use crate::cache::Cache;
use crate::{BodyId, ColdPage, Engine};

/// A page of which a driver has a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    ticket: u64,
    body: BodyId,
}

impl Engine {
    /// The coldest page that was not compressed again yet; its bytes take the place of those in
    /// `page`. `false`: there is none. Report what became of it with `recompressed`.
    pub fn choose_cold(&mut self, page: &mut ColdPage) -> bool {
        let cache = &mut self.cache;
        while let Some(body) = cache.order.next_cold() {
            // One that is being written is about to leave.
            let BodyState::Stored { handle, packed } = cache.bodies.state(body) else {
                continue;
            };
            self.copies_made += 1;
            page.ticket = self.copies_made;
            page.codec = packed.codec;
            page.check = cache.bodies.check(body);
            page.bytes.clear();
            cache.layout.read_into(handle, &mut page.bytes);
            let ticket = page.ticket;
            cache.copied.push(Copied { ticket, body });
            return true;
        }
        false
    }

    /// A page that `choose_cold` gave was folded again, into `bytes`. Its old bytes stay if they are
    /// no longer than the new ones, or are gone.
    pub fn recompressed(&mut self, page: &ColdPage, result: Folded, bytes: &[u8]) {
        let cache = &mut self.cache;
        let copied = cache.copied.iter().position(|c| c.ticket == page.ticket);
        let Some(Copied { body, .. }) = copied.map(|at| cache.copied.swap_remove(at)) else {
            cache.totals.recompressed_void_pages += 1;
            return;
        };
        cache.totals.recompressed_pages += 1;
        if let Folded::Bytes { codec, len } = result {
            let packed = Packed {
                codec,
                len: len as u32,
            };
            cache.replace(body, packed, &bytes[..len]);
        }
    }
}

impl Cache {
    /// Puts shorter bytes in the place of a stored body's; it keeps its place in the order.
    fn replace(&mut self, body: BodyId, packed: Packed, bytes: &[u8]) {
        let BodyState::Stored {
            handle,
            packed: before,
        } = self.bodies.state(body)
        else {
            return;
        };
        if packed.len >= before.len {
            return;
        }
        // The old bytes stay until the new ones have a place.
        let place = self.layout.insert(bytes, Growth::Denied);
        let Ok(new) = place.or_else(|_| self.layout.insert(bytes, Growth::Allowed)) else {
            // To try may have compacted it.
            return self.account();
        };
        self.layout.remove(handle);
        let handle = new;
        self.own(handle, body, self.bodies.home(body).is_some());
        self.totals.recompressed_saved_bytes += u64::from(before.len - packed.len);
        let state = BodyState::Stored { handle, packed };
        self.bodies.set_state(body, state);
        self.note_check(body, bytes);
        self.debt.cap(self.payload_bytes());
        self.account();
    }

    /// What was copied of this body is not what it is any more.
    pub(crate) fn end_copies(&mut self, body: BodyId) {
        self.copied.retain(|copied| copied.body != body);
    }
}
