//! WRITE: to the source file first, and then whatever was kept of these pages is out of date.

use super::ledger::pages_of;
use super::{lock, Cached};
use crate::content::Ticket;
use crate::tree::Node;
use pleat_pager::kick;
use pleat_types::PAGE_SIZE;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

impl Cached {
    pub(super) fn write_pages(
        &self,
        node: &Node,
        ticket: Ticket,
        offset: u64,
        data: &[u8],
    ) -> io::Result<()> {
        let source = node.writing();
        let written = source.and_then(|source| {
            source.file().write_all_at(data, offset)?;
            self.janitor.wrote(&source);
            Ok(())
        });
        let is_to_be_dropped = self.note_write(node, ticket, offset, data.len(), written.is_ok());
        self.landed.notify_all();
        written?;
        self.meters.writes.add(1);
        self.meters.written_bytes.add(data.len() as u64);
        if is_to_be_dropped {
            if let Some(notifier) = self.notifier.get() {
                self.meters.mended_writes.add(1);
                let may_wait = || self.ledger().follows_read(ticket.0);
                let (number, len) = (node.number(), data.len() as u64);
                let order = self.ledger().begin_drop(number, pages_of(offset, len));
                let ledger = self.ledger.clone();
                let end = move || lock(&ledger).end_drop(order);
                let place = (number, offset, len);
                self.mender
                    .drop_again(notifier, place, may_wait, Box::new(end));
            }
        }
        Ok(())
    }

    /// The file has it, or some part of it only.
    fn note_write(
        &self,
        node: &Node,
        ticket: Ticket,
        offset: u64,
        len: usize,
        is_whole: bool,
    ) -> bool {
        let pages = pages_of(offset, len as u64);
        let covered = whole_pages(offset, len as u64);
        let number = node.number();
        let mut ledger = self.ledger();
        self.wake(&mut ledger, node);
        let mut ranges = Vec::new();
        ledger.place(node.name(), &pages, &mut ranges);
        // The kernel may have had no page there, and has the part now that was written; after an error
        // it takes its page for out of date.
        ledger.set_unsure(number, &pages, true);
        if is_whole {
            ledger.set_unsure(number, &covered, false);
        }
        let mut engine = self.shared.engine();
        for range in ranges {
            engine.overwritten(self.space, range);
        }
        let is_wanted = engine.frames_wanted() > 0;
        drop(engine);
        let is_to_be_dropped = ledger.landed(ticket.0);
        drop(ledger);
        if is_wanted {
            kick(&self.shared);
        }
        is_to_be_dropped
    }
}

/// The pages that these bytes cover from end to end.
fn whole_pages(offset: u64, bytes: u64) -> Range<u64> {
    let page = PAGE_SIZE as u64;
    let first = offset.div_ceil(page);
    first..((offset + bytes) / page).max(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_written_from_end_to_end_are_whole() {
        assert_eq!(whole_pages(0, 4096), 0..1);
        assert_eq!(whole_pages(1, 4096), 1..1);
        assert_eq!(whole_pages(4095, 4098), 1..2);
        assert_eq!(whole_pages(100, 50), 1..1);
        assert_eq!(pages_of(4095, 2), 0..2);
        assert_eq!(pages_of(0, 0), 0..0);
    }
}
