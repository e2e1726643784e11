//! Contents straight from the source file, without a cache of our own: the baseline of every comparison.
#![forbid(unsafe_code)]

use crate::content::{Content, Ticket};
use crate::tree::Node;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Reads and writes the source file, as each request says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

impl Content for Direct {
    fn received(&self, _: u64, _: bool, _: u64, _: u32) -> Ticket {
        Ticket::default()
    }

    fn read(
        &self,
        node: &Node,
        _: Ticket,
        offset: u64,
        size: u32,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let source = node.reading()?;
        let kept = out.len();
        let result = source.read_at(offset, size as usize, out);
        if result.is_err() {
            out.truncate(kept);
        }
        result
    }

    fn write(&self, node: &Node, _: Ticket, offset: u64, data: &[u8]) -> io::Result<()> {
        node.writing()?.file().write_all_at(data, offset)
    }

    fn alter(
        &self,
        _: &Node,
        _: Range<u64>,
        change: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        change()
    }

    fn sync(&self, node: &Node, data_only: bool) -> io::Result<()> {
        node.sync_source(data_only)
    }

    fn changed_outside(&self, _: &Node) {}

    fn forgotten(&self, _: &Node) {}

    fn removed(&self, _: &Node) {}

    fn retrieved(&self, _: u64, _: u64, _: u64, _: &[u8]) {}
}
