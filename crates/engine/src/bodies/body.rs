//! One body in 32 bytes: there is one for each page that is away, and they are part of the budget.

use pleat_backing::Extent;
use pleat_store::Handle;
use pleat_types::{CodecId, StagingSlot};

use super::{BodyState, DiskCopy, Packed};

/// A body with its state, which [`Body::state`] and [`Body::set_state`] pack.
///
/// ```text
/// word         the repeated word, or of the extent: offset 48 bits, bytes 16
/// marks        left_at 47 bits, counted 1, kind 4, codec of the copy 8, the high 4 bits of its length
/// lens         codec 8 bits, length 13, the rest of the length of the copy: 9
/// place        cell of the compressed cache, or staging slot
/// ```
#[derive(Clone, Copy)]
pub(super) struct Body {
    word: u64,
    marks: u64,
    lens: u32,
    place: u32,
    /// Page table entries that name this body, and clean resident pages whose copy it is.
    pub(super) references: u32,
    /// How long the page had been unused when it left memory, on the engine's clock.
    pub(super) unused_for: u32,
}

const LEFT_AT_SHIFT: u32 = 17;
const COUNTED: u64 = 1 << 16;
const KIND_SHIFT: u32 = 12;
const KIND: u64 = 15 << KIND_SHIFT;
const COPY_CODEC_SHIFT: u32 = 4;
/// Kind, codec and length of the copy.
const STATE: u64 = COUNTED - 1;
const LEN_BITS: u32 = 13;
const LEN_MAX: u32 = (1 << LEN_BITS) - 1;
const COPY_LEN_SHIFT: u32 = 8 + LEN_BITS;
const COPY_LEN_LOW_BITS: u32 = 9;
const EXTENT_BYTES_BITS: u32 = 16;

const FREE: u64 = 0;
const STAGED: u64 = 1;
const STAGED_CLEAN: u64 = 2;
const SAME: u64 = 3;
const STORED: u64 = 4;
const WRITING: u64 = 5;
const DROWNED: u64 = 6;
const CLEAN: u64 = 7;
const ON_DISK: u64 = 8;

impl Body {
    /// A staged body that is not counted as away.
    pub(super) fn new(slot: StagingSlot, references: u32) -> Body {
        let mut body = Body {
            word: 0,
            marks: 0,
            lens: 0,
            place: 0,
            references,
            unused_for: 0,
        };
        body.set_state(BodyState::Staged(slot));
        body
    }

    /// When its page left memory, on the engine's clock.
    pub(super) fn left_at(&self) -> u64 {
        self.marks >> LEFT_AT_SHIFT
    }

    /// Whether its page is away, as far as LRU distances are concerned.
    pub(super) fn is_counted(&self) -> bool {
        self.marks & COUNTED != 0
    }

    /// Its page left memory at that time; counted.
    pub(super) fn count_from(&mut self, now: u64) {
        // At a million pages a second the clock goes for four years.
        assert!(now >> (u64::BITS - LEFT_AT_SHIFT) == 0, "the clock is over");
        self.marks = now << LEFT_AT_SHIFT | COUNTED | self.marks & STATE;
    }

    /// Its page is not counted any more.
    pub(super) fn end_count(&mut self) {
        self.marks &= !COUNTED;
    }

    /// Where it is.
    pub(super) fn state(&self) -> BodyState {
        let (place, extent) = (self.place, self.extent());
        let copy = DiskCopy {
            packed: self.copy_packed(),
            extent,
        };
        let (handle, packed) = (Handle(place), self.packed());
        match (self.marks & KIND) >> KIND_SHIFT {
            FREE => BodyState::Free,
            STAGED => BodyState::Staged(StagingSlot(place)),
            STAGED_CLEAN => BodyState::StagedClean {
                slot: StagingSlot(place),
                copy,
            },
            SAME => BodyState::Same(self.word),
            STORED => BodyState::Stored { handle, packed },
            WRITING => BodyState::Writing {
                handle,
                packed,
                extent,
            },
            DROWNED => BodyState::Drowned { extent },
            CLEAN => BodyState::Clean {
                handle,
                packed,
                copy,
            },
            _ => BodyState::OnDisk(copy),
        }
    }

    /// It is there from now on.
    ///
    /// # Panics
    /// When a length, or a place in the swap file, is beyond what a page and a file can have: codecs leave no more of a
    /// page than there was, and there are numbers for 16 TiB of bodies in a file of 256 TiB.
    pub(super) fn set_state(&mut self, state: BodyState) {
        match state {
            BodyState::Free => self.set_kind(FREE),
            BodyState::Staged(slot) => {
                self.set_kind(STAGED);
                self.place = slot.0;
            }
            BodyState::StagedClean { slot, copy } => {
                self.set_kind(STAGED_CLEAN);
                self.place = slot.0;
                self.set_copy(copy);
            }
            BodyState::Same(word) => {
                self.set_kind(SAME);
                self.word = word;
            }
            BodyState::Stored { handle, packed } => {
                self.set_kind(STORED);
                self.set_stored(handle, packed);
            }
            BodyState::Writing {
                handle,
                packed,
                extent,
            } => {
                self.set_kind(WRITING);
                self.set_stored(handle, packed);
                self.set_extent(extent);
            }
            BodyState::Drowned { extent } => {
                self.set_kind(DROWNED);
                self.set_extent(extent);
            }
            BodyState::Clean {
                handle,
                packed,
                copy,
            } => {
                self.set_kind(CLEAN);
                self.set_stored(handle, packed);
                self.set_copy(copy);
            }
            BodyState::OnDisk(copy) => {
                self.set_kind(ON_DISK);
                self.set_copy(copy);
            }
        }
    }

    /// Of this kind, with nothing known of lengths.
    fn set_kind(&mut self, kind: u64) {
        self.marks = self.marks & !STATE | kind << KIND_SHIFT;
        self.lens = 0;
    }

    fn packed(&self) -> Packed {
        Packed {
            codec: CodecId(self.lens as u8),
            len: self.lens >> 8 & LEN_MAX,
        }
    }

    fn set_stored(&mut self, handle: Handle, packed: Packed) {
        assert!(packed.len <= LEN_MAX, "{packed:?} is longer than a page");
        self.place = handle.0;
        self.lens |= u32::from(packed.codec.0) | packed.len << 8;
    }

    fn copy_packed(&self) -> Packed {
        let high = (self.marks as u32 & 15) << COPY_LEN_LOW_BITS;
        let low = self.lens >> COPY_LEN_SHIFT & ((1 << COPY_LEN_LOW_BITS) - 1);
        Packed {
            codec: CodecId((self.marks >> COPY_CODEC_SHIFT) as u8),
            len: high | low,
        }
    }

    fn set_copy(&mut self, copy: DiskCopy) {
        let Packed { codec, len } = copy.packed;
        assert!(len <= LEN_MAX, "{copy:?} is longer than a page");
        let low = len & ((1 << COPY_LEN_LOW_BITS) - 1);
        self.marks |= u64::from(codec.0) << COPY_CODEC_SHIFT | u64::from(len >> COPY_LEN_LOW_BITS);
        self.lens |= low << COPY_LEN_SHIFT;
        self.set_extent(copy.extent);
    }

    fn extent(&self) -> Extent {
        Extent {
            offset: self.word >> EXTENT_BYTES_BITS,
            bytes: (self.word & ((1 << EXTENT_BYTES_BITS) - 1)) as u32,
        }
    }

    fn set_extent(&mut self, extent: Extent) {
        let fits = extent.bytes >> EXTENT_BYTES_BITS == 0
            && extent.offset >> (u64::BITS - EXTENT_BYTES_BITS) == 0;
        assert!(fits, "{extent:?} is no room for a page");
        self.word = extent.offset << EXTENT_BYTES_BITS | u64::from(extent.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(codec: u8, len: u32) -> Packed {
        Packed {
            codec: CodecId(codec),
            len,
        }
    }

    fn states() -> Vec<BodyState> {
        let mut states = vec![BodyState::Free, BodyState::Same(u64::MAX)];
        let lens = [0, 1, 511, 512, 4095, 4096, LEN_MAX];
        let offsets = [0, 4096, (1 << 48) - 1];
        for (nth, &len) in lens.iter().enumerate() {
            let (slot, handle) = (StagingSlot(u32::MAX - nth as u32), Handle(nth as u32));
            let stored = packed(255 - nth as u8, len);
            states.push(BodyState::Staged(slot));
            states.push(BodyState::Stored {
                handle,
                packed: stored,
            });
            for offset in offsets {
                let extent = Extent {
                    offset,
                    bytes: 65_535 - nth as u32,
                };
                let copy = DiskCopy {
                    packed: packed(nth as u8, lens[lens.len() - 1 - nth]),
                    extent,
                };
                states.push(BodyState::StagedClean { slot, copy });
                states.push(BodyState::Writing {
                    handle,
                    packed: stored,
                    extent,
                });
                states.push(BodyState::Drowned { extent });
                states.push(BodyState::Clean {
                    handle,
                    packed: stored,
                    copy,
                });
                states.push(BodyState::OnDisk(copy));
            }
        }
        states
    }

    #[test]
    fn a_body_has_32_bytes() {
        assert_eq!(size_of::<Body>(), 32);
    }

    #[test]
    fn every_state_survives_packing_after_every_other() {
        let mut body = Body::new(StagingSlot(7), 3);
        body.count_from((1 << 47) - 1);
        for before in states() {
            for state in states() {
                body.set_state(before);
                body.set_state(state);
                assert_eq!(body.state(), state);
            }
        }
        assert_eq!(
            (body.left_at(), body.is_counted(), body.references),
            ((1 << 47) - 1, true, 3)
        );
    }

    #[test]
    fn counting_leaves_the_state_alone() {
        for state in states() {
            let mut body = Body::new(StagingSlot(0), 1);
            body.set_state(state);
            body.count_from(12_345);
            assert_eq!((body.state(), body.left_at()), (state, 12_345));
            body.end_count();
            assert_eq!((body.state(), body.left_at()), (state, 12_345));
            assert!(!body.is_counted());
        }
    }

    #[test]
    #[should_panic(expected = "longer than a page")]
    fn what_does_not_fit_is_not_kept() {
        let mut body = Body::new(StagingSlot(0), 1);
        body.set_state(BodyState::Stored {
            handle: Handle(0),
            packed: packed(0, LEN_MAX + 1),
        });
    }
}
