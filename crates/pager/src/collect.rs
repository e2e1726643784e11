//! Collecting the swap file: what is still wanted of mostly dead clusters is read, to be written together
//! elsewhere.
//!
//! ```text
//!         plan_collect           all spans read            write_done
//!  Idle ----------------> Reading --------------> Writing ------------> Idle
//!    ^                       |        plan_move
//!    +-----------------------+ nothing of it is wanted any more
//! ```
//!
//! The writing thread (`write.rs`) drives this between its other writes, on its own queue. Pages may be
//! given up, and the job may read them, at any time: `space/reads.rs` says why that is harmless, and the
//! engine moves only what is still wanted when everything was read.

use crate::ends::Failure;
use crate::shared::Shared;
use crate::store::{Spares, SwapStore};
use pleat_backing::{Completion, Queue, Request, Transfer};
use pleat_engine::{ReadItem, WritePlan};
use std::ops::Range;
use std::time::Duration;

/// Pages with less than this between them are read together: the disk takes longer to find a place than
/// to read so much.
const GAP_MAX: u64 = 64 << 10;
/// Most bytes read at once.
const SPAN_MAX: u64 = 256 << 10;
/// Reads under way at once. Collection is in no hurry, and memory is short.
pub const READS_MAX: usize = 2;

/// A read under way.
struct Read {
    id: u64,
    items: Vec<ReadItem>,
    waited: Duration,
}

/// Where a collection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Reading,
    Writing,
}

/// The collection of mostly dead clusters.
pub struct Collection {
    stage: Stage,
    /// What has to be read.
    items: Vec<ReadItem>,
    /// Those of them that were not asked for yet.
    rest: Range<usize>,
    under_way: Vec<Read>,
    /// Folded pages that were read, one after the other.
    bytes: Vec<u8>,
    found: Vec<(ReadItem, Range<usize>)>,
}

impl Collection {
    /// None under way.
    pub fn new() -> Collection {
        Collection {
            stage: Stage::Idle,
            items: Vec::new(),
            rest: 0..0,
            under_way: Vec::new(),
            bytes: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Whether another may begin.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// Begins one, if there is something to gain.
    pub fn begin(&mut self, shared: &Shared) -> bool {
        assert!(self.is_idle(), "one collection at a time");
        if !shared.engine().plan_collect(&mut self.items) {
            return false;
        }
        self.rest = 0..self.items.len();
        self.bytes.clear();
        self.found.clear();
        self.stage = Stage::Reading;
        true
    }

    /// Asks for more of what is to be read, as far as few reads are under way. Requests are numbered
    /// from `next_id` on.
    pub fn read_on(
        &mut self,
        store: &SwapStore,
        queue: &mut dyn Queue,
        spares: &mut Spares,
        next_id: &mut u64,
    ) {
        while self.under_way.len() < READS_MAX && !self.rest.is_empty() {
            let items = first_span(&self.items[self.rest.clone()]).to_vec();
            self.rest.start += items.len();
            let (offset, len) = store.span(&items);
            let id = *next_id;
            *next_id += 1;
            queue.submit(Request {
                id,
                transfer: Transfer::Read,
                offset,
                buffer: spares.take(len),
            });
            let waited = Duration::ZERO;
            self.under_way.push(Read { id, items, waited });
        }
    }

    /// How long each read has been under way.
    pub fn waited(&mut self) -> impl Iterator<Item = &mut Duration> {
        self.under_way.iter_mut().map(|read| &mut read.waited)
    }

    /// First byte of one of the reads under way.
    pub fn offset_of(&self, index: usize, store: &SwapStore) -> u64 {
        store.span(&self.under_way[index].items).0
    }

    /// One of its reads has ended.
    ///
    /// # Errors
    /// Why the job has to end: a page that is wanted is not there.
    pub fn take(
        &mut self,
        shared: &Shared,
        store: &SwapStore,
        done: &mut Completion,
    ) -> Result<(), Failure> {
        let at = self.under_way.iter().position(|read| read.id == done.id);
        let read = self.under_way.remove(at.expect("a read ends once"));
        let mut error = std::mem::replace(&mut done.result, Ok(())).err();
        shared
            .meters
            .swap_collected_bytes
            .add(done.buffer.len() as u64);
        for item in read.items {
            let folded = match &error {
                None => store.unseal(&item, done.offset, &mut done.buffer),
                Some(_) => None,
            };
            match folded {
                Some(folded) => {
                    let start = self.bytes.len();
                    self.bytes.extend_from_slice(folded);
                    self.found.push((item, start..self.bytes.len()));
                }
                None if !shared.engine().is_current(&item) => {}
                None => {
                    return Err(match error.take() {
                        Some(error) => error.into(),
                        None => store.damaged(&item),
                    })
                }
            }
        }
        Ok(())
    }

    /// When everything was read: plans to write what is still wanted. `false`: it is not time for that, or
    /// nothing is wanted, and the collection is over.
    pub fn plan_move(&mut self, shared: &Shared, plan: &mut WritePlan) -> bool {
        let is_read = self.rest.is_empty() && self.under_way.is_empty();
        if self.stage != Stage::Reading || !is_read {
            return false;
        }
        let found = self.found.iter();
        let found: Vec<_> = found
            .map(|(item, range)| (*item, &self.bytes[range.clone()]))
            .collect();
        let planned = shared.engine().plan_move(&found, plan);
        drop(found);
        // Of pages that compress well a cluster holds thousands, and the next collection may be a long way off.
        (self.items, self.bytes, self.found) = (Vec::new(), Vec::new(), Vec::new());
        self.stage = match planned {
            true => Stage::Writing,
            false => Stage::Idle,
        };
        planned
    }

    /// What was planned was written, or could not be.
    pub fn end(&mut self, shared: &Shared) {
        self.stage = Stage::Idle;
        shared.meters.swap_collections.add(1);
    }
}

/// As many of these as are worth reading at once.
fn first_span(items: &[ReadItem]) -> &[ReadItem] {
    let start = items.first().map_or(0, |item| item.offset);
    let goes_on = |pair: &[ReadItem]| {
        let (end, next) = (pair[0].end(), &pair[1]);
        next.offset >= end && next.offset - end <= GAP_MAX && next.end() - start <= SPAN_MAX
    };
    let more = items.windows(2).take_while(|pair| goes_on(pair)).count();
    &items[..(1 + more).min(items.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleat_engine::BodyId;
    use pleat_types::CodecId;

    fn item(offset: u64) -> ReadItem {
        ReadItem {
            body: BodyId(0),
            offset,
            len: 1000,
            room: 1024,
            codec: CodecId::RAW,
            serial: 1,
        }
    }

    #[test]
    fn pages_are_read_together_up_to_a_gap_a_step_back_or_a_limit() {
        let spans = |offsets: &[u64]| {
            let items: Vec<_> = offsets.iter().map(|&offset| item(offset)).collect();
            let (mut rest, mut lengths) = (&items[..], Vec::new());
            while !rest.is_empty() {
                lengths.push(first_span(rest).len());
                rest = &rest[lengths[lengths.len() - 1]..];
            }
            lengths
        };
        let kib = |kib: u64| kib << 10;
        assert_eq!(spans(&[0, kib(1), kib(40), kib(41)]), [4]);
        assert_eq!(spans(&[0, kib(66), kib(67)]), [1, 2]);
        assert_eq!(spans(&[kib(8), kib(9), 0, kib(1)]), [2, 2]);
        let dense: Vec<u64> = (0..12).map(|at| kib(50 * at)).collect();
        assert_eq!(spans(&dense), [6, 6]);
    }
}
