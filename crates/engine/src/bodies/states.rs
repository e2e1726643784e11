//! Where a body can be, and from where it can go where.

use pleat_backing::Extent;
use pleat_store::Handle;
use pleat_types::{CodecId, StagingSlot};

/// How a page was folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) codec: CodecId,
    /// Exact length in bytes.
    pub(crate) len: u32,
}

/// A copy of a body in the swap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskCopy {
    pub(crate) packed: Packed,
    pub(crate) extent: Extent,
}

/// Where a body is.
///
/// ```text
///   taken                folded               plan_write            write_done
///  -------> Staged ----------------> Stored ------------> Writing ------------> OnDisk <--+
///              |                       ^                   |   |  \                       |
///              +------> Same           +---- failed -------+   |   +--> Clean -- dropped -+
///                                                              |          ^               |
///                                      nobody wants it any more|   folded |               | taken
///                                                              v          +- StagedClean <+
///                                                           Drowned --- write_done ---> (free)
/// ```
///
/// The diagram leaves out: a `Stored` body that is compressed again has another place there. A `StagedClean` one that
/// has changed is `Staged`, one that is one word `Same`, and one that does not compress may be `OnDisk` at once. What
/// is moved within the swap file stays what it is. [`BodyState::may_become`] is the whole table.
///
/// A body that loses its last reference is freed at once, save for two that others still work on:
/// a staged one until it is folded, one being written until the write is done.
///
/// A body that a page of a file left behind has a home (the page) and never goes to the swap file:
/// instead of being written it is dropped, and the page is unknown again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyState {
    /// A slot of the slab without a body.
    Free,
    /// In the staging ring, to be folded.
    Staged(StagingSlot),
    /// In the staging ring, to be folded, and unchanged since it was written to the swap file.
    StagedClean { slot: StagingSlot, copy: DiskCopy },
    /// One word, repeated; takes no room anywhere.
    Same(u64),
    /// In the compressed cache.
    Stored { handle: Handle, packed: Packed },
    /// In the compressed cache, a copy is being written.
    Writing {
        handle: Handle,
        packed: Packed,
        extent: Extent,
    },
    /// Wanted by nobody, but its room in the swap file is being written to.
    Drowned { extent: Extent },
    /// In the compressed cache and in the swap file: it can be dropped at any time.
    Clean {
        handle: Handle,
        packed: Packed,
        copy: DiskCopy,
    },
    /// In the swap file.
    OnDisk(DiskCopy),
}

impl BodyState {
    /// Whether a body that is here may be there next. A place that it keeps must be the same before
    /// and after: nothing is lost by the way, and nothing taken for what it is not.
    pub(crate) fn may_become(self, next: BodyState) -> bool {
        use BodyState::*;
        match (self, next) {
            // Taken.
            (Free, Staged(_)) => true,
            // Nobody wants it any more, or it is the page of a file and dropped. One that is being written has to
            // wait as `Drowned`.
            (Free | Writing { .. }, Free) => false,
            (_, Free) => true,
            // Folded. A copy in the swap file is kept, or is needless beside one word.
            (Staged(_), Same(_) | Stored { .. }) | (StagedClean { .. }, Same(_)) => true,
            (StagedClean { .. }, Clean { .. } | OnDisk(_)) => self.copy() == next.copy(),
            // Compared, and found changed.
            (StagedClean { slot, .. }, Staged(same)) => slot == same,
            // Compressed again.
            (Stored { packed, .. }, Stored { packed: new, .. }) => new.len < packed.len,
            // Chosen to be written, and the write failed.
            (Stored { .. }, Writing { .. }) | (Writing { .. }, Stored { .. }) => {
                self.cached() == next.cached()
            }
            // Written, and kept in the cache or not.
            (Writing { .. }, Clean { .. }) => {
                self.cached() == next.cached() && self.copy() == next.copy()
            }
            (Writing { .. }, OnDisk(_)) => self.copy() == next.copy(),
            // Nobody wants it any more, but the write goes on.
            (Writing { extent, .. }, Drowned { extent: same }) => extent == same,
            // Its memory is needed, or its page is back; taken again, unchanged as far as is known.
            (Clean { .. }, OnDisk(_)) | (OnDisk(_), StagedClean { .. }) => {
                self.copy() == next.copy()
            }
            // Moved within the swap file.
            (
                StagedClean { slot, copy },
                StagedClean {
                    slot: same,
                    copy: moved,
                },
            ) => slot == same && copy.packed == moved.packed,
            (Clean { copy, .. }, Clean { copy: moved, .. }) => {
                self.cached() == next.cached() && copy.packed == moved.packed
            }
            (OnDisk(copy), OnDisk(moved)) => copy.packed == moved.packed,
            _ => false,
        }
    }

    /// Its place in the compressed cache.
    fn cached(self) -> Option<(Handle, Packed)> {
        match self {
            BodyState::Stored { handle, packed }
            | BodyState::Writing { handle, packed, .. }
            | BodyState::Clean { handle, packed, .. } => Some((handle, packed)),
            _ => None,
        }
    }

    /// Its place in the swap file, also while it is being written there.
    fn copy(self) -> Option<DiskCopy> {
        match self {
            BodyState::Writing { packed, extent, .. } => Some(DiskCopy { packed, extent }),
            BodyState::StagedClean { copy, .. }
            | BodyState::Clean { copy, .. }
            | BodyState::OnDisk(copy) => Some(copy),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) use tests::everywhere;

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: StagingSlot = StagingSlot(3);
    const HANDLE: Handle = Handle(5);

    fn packed(len: u32) -> Packed {
        Packed {
            codec: CodecId(1),
            len,
        }
    }

    fn copy_at(offset: u64) -> DiskCopy {
        let extent = Extent {
            offset,
            bytes: 1024,
        };
        DiskCopy {
            packed: packed(900),
            extent,
        }
    }

    fn stored(handle: Handle, len: u32) -> BodyState {
        BodyState::Stored {
            handle,
            packed: packed(len),
        }
    }

    fn writing(handle: Handle, copy: DiskCopy) -> BodyState {
        BodyState::Writing {
            handle,
            packed: copy.packed,
            extent: copy.extent,
        }
    }

    fn clean(handle: Handle, copy: DiskCopy) -> BodyState {
        BodyState::Clean {
            handle,
            packed: packed(900),
            copy,
        }
    }

    /// One body wherever it can be; the last is what the stored one is once it is compressed again.
    pub(crate) fn everywhere() -> [BodyState; 10] {
        let copy = copy_at(0);
        [
            BodyState::Free,
            BodyState::Staged(SLOT),
            BodyState::StagedClean { slot: SLOT, copy },
            BodyState::Same(7),
            stored(HANDLE, 900),
            writing(HANDLE, copy),
            BodyState::Drowned {
                extent: copy.extent,
            },
            clean(HANDLE, copy),
            BodyState::OnDisk(copy),
            stored(Handle(6), 899),
        ]
    }

    #[test]
    fn a_body_goes_where_the_table_says_and_nowhere_else() {
        let rows = everywhere().map(|from| {
            let arrows = everywhere().map(|to| if from.may_become(to) { 'x' } else { '.' });
            String::from_iter(arrows)
        });
        assert_eq!(
            rows,
            [
                ".x........", // Free
                "x..xx....x", // Staged
                "xxxx...xx.", // StagedClean
                "x.........", // Same
                "x....x...x", // Stored
                "....x.xxx.", // Writing
                "x.........", // Drowned
                "x......xx.", // Clean
                "x.x.....x.", // OnDisk
                "x.........", // Stored, shorter: what the others keep of it is longer
            ]
        );
    }

    #[test]
    fn what_a_body_keeps_is_the_same_before_and_after() {
        let (copy, other) = (copy_at(0), copy_at(4096));
        let (on_disk, elsewhere) = (BodyState::OnDisk(copy), BodyState::OnDisk(other));
        let restaged = |slot, copy| BodyState::StagedClean { slot, copy };
        let another = Handle(6);
        let wrong = [
            (restaged(SLOT, copy), BodyState::Staged(StagingSlot(4))),
            (restaged(SLOT, copy), restaged(StagingSlot(4), other)),
            (restaged(SLOT, copy), clean(HANDLE, other)),
            (restaged(SLOT, copy), elsewhere),
            (stored(HANDLE, 900), writing(another, copy)),
            (stored(HANDLE, 900), stored(HANDLE, 900)),
            (stored(HANDLE, 900), stored(HANDLE, 901)),
            (writing(HANDLE, copy), stored(another, 900)),
            (writing(HANDLE, copy), clean(another, copy)),
            (writing(HANDLE, copy), clean(HANDLE, other)),
            (writing(HANDLE, copy), elsewhere),
            (clean(HANDLE, copy), clean(another, other)),
            (clean(HANDLE, copy), elsewhere),
            (on_disk, restaged(SLOT, other)),
        ];
        for (from, to) in wrong {
            assert!(!from.may_become(to), "{from:?} to {to:?}");
        }
        let right = [
            (stored(HANDLE, 900), stored(another, 899)),
            (restaged(SLOT, copy), restaged(SLOT, other)),
            (clean(HANDLE, copy), clean(HANDLE, other)),
            (on_disk, elsewhere),
        ];
        for (from, to) in right {
            assert!(from.may_become(to), "{from:?} to {to:?}");
        }
    }
}
