//! The records of a chunk of touches, decoded one by one. Checking a file and replaying it go through
//! here, so that what has been checked is what is replayed.

use super::bytes::{unzigzag, Cursor};
use super::{
    Flaw, Malformed, BYTES_MAX, LONG, PAGE_END, SIZE_RECORD, SLOTS_MAX, SLOT_BIT, THINK_BIT,
    WRITE_BIT,
};
use crate::{Access, Reference, RegionNo};
use pleat_types::PageNo;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Touch(Reference),
    Size {
        region: RegionNo,
        page: PageNo,
        bytes: u16,
    },
}

/// A region that the chunk refers to, and what differences in it are relative to.
#[derive(Clone, Copy, Debug)]
struct Slot {
    region: RegionNo,
    touched: u64,
    sized: u64,
}

/// A place in a chunk, and what the next record is relative to. Keeps no reference to the file, whose
/// bytes are passed in, so that a reader can own both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    at: usize,
    end: usize,
    slot: usize,
    think_ns: u64,
    slots: Vec<Slot>,
}

impl Records {
    /// Goes to the beginning of a chunk, which lies in `file` from `start` to `end`. `regions` have
    /// been declared.
    pub(crate) fn enter(
        &mut self,
        file: &[u8],
        (start, end): (usize, usize),
        regions: usize,
    ) -> Result<(), Malformed> {
        let mut cursor = Cursor {
            bytes: &file[..end],
            at: start,
        };
        let slots = usize::from(cursor.byte()?);
        if !(1..=SLOTS_MAX).contains(&slots) {
            return Err(Flaw::OutOfRange("number of slots").at(start));
        }
        self.slots.clear();
        for _ in 0..slots {
            let at = cursor.at;
            let region = cursor.varint("region")?;
            if region >= regions as u64 {
                return Err(Flaw::OutOfRange("region").at(at));
            }
            self.slots.push(Slot {
                region: RegionNo(region as u32),
                touched: 0,
                sized: 0,
            });
        }
        (self.at, self.end, self.slot, self.think_ns) = (cursor.at, end, 0, 0);
        Ok(())
    }

    /// The next record; `None` at the end of the chunk. Budget: 10 ns for a touch in one byte.
    #[inline]
    pub(crate) fn next(&mut self, file: &[u8]) -> Result<Option<Record>, Malformed> {
        if self.at >= self.end {
            return Ok(None);
        }
        let mut cursor = Cursor {
            bytes: &file[..self.end],
            at: self.at,
        };
        let tag = cursor.byte()?;
        let record = match tag {
            SIZE_RECORD => self.size(&mut cursor)?,
            _ => self.touch(tag, &mut cursor)?,
        };
        self.at = cursor.at;
        Ok(Some(record))
    }

    #[inline]
    fn touch(&mut self, tag: u8, cursor: &mut Cursor) -> Result<Record, Malformed> {
        let at = cursor.at - 1;
        if tag & SLOT_BIT != 0 {
            self.slot = usize::from(cursor.byte()?);
        }
        let code = match tag >> 3 {
            LONG => cursor.varint("page difference")?,
            31 => return Err(Flaw::UnknownKind("record", tag).at(at)),
            short => u64::from(short),
        };
        if tag & THINK_BIT != 0 {
            self.think_ns = cursor.varint("think time")?;
        }
        let slot = self.slots.get_mut(self.slot);
        let slot = slot.ok_or(Flaw::OutOfRange("slot").at(at))?;
        slot.touched = moved(slot.touched, code).ok_or(Flaw::OutOfRange("page").at(at))?;
        Ok(Record::Touch(Reference {
            think_ns: self.think_ns,
            region: slot.region,
            page: PageNo(slot.touched),
            access: match tag & WRITE_BIT {
                0 => Access::Read,
                _ => Access::Write,
            },
        }))
    }

    fn size(&mut self, cursor: &mut Cursor) -> Result<Record, Malformed> {
        let at = cursor.at - 1;
        let slot = usize::from(cursor.byte()?);
        let code = cursor.varint("page difference")?;
        let bytes = cursor.up_to(u64::from(BYTES_MAX), "compressed size")? as u16;
        let slot = self.slots.get_mut(slot);
        let slot = slot.ok_or(Flaw::OutOfRange("slot").at(at))?;
        slot.sized = moved(slot.sized, code).ok_or(Flaw::OutOfRange("page").at(at))?;
        Ok(Record::Size {
            region: slot.region,
            page: PageNo(slot.sized),
            bytes,
        })
    }
}

/// The page that far from `page`, if it is one.
#[inline]
fn moved(page: u64, code: u64) -> Option<u64> {
    // Wrapping is harmless: whatever comes out is compared with the range of pages.
    let moved = page.wrapping_add_signed(unzigzag(code));
    (moved < PAGE_END).then_some(moved)
}
