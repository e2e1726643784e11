//! The boundary between the tree of files and what is done with their contents.
#![forbid(unsafe_code)]

use crate::notify::Notifier;
use crate::tree::Node;
use std::io;
use std::ops::Range;

/// Given to each READ and WRITE when it is taken from the queue; means something to its [`Content`] only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// What a mount does with the contents of files. One value for the whole mount.
///
/// The caller guarantees: each ticket comes back in one `read` or `write` at most, and then in `answered`;
/// sizes are at most 1 MiB; `write` and the `change` of `alter` run inside the node's
/// [`crate::OwnChange`], so they are not taken for changes from outside.
pub trait Content: Send + Sync {
    /// The mount exists, and nothing was asked of it yet.
    fn mounted(&self, notifier: &Notifier) {
        let _ = notifier;
    }

    /// A READ or WRITE was taken from the queue, before any other thread may take the next one. Must not
    /// wait.
    fn received(&self, node: u64, is_write: bool, offset: u64, size: u32) -> Ticket;

    /// The request of this ticket was answered: the kernel has the answer. Comes for every ticket exactly
    /// once, also where the request came to nothing: its node is unknown, or the message is damaged.
    fn answered(&self, ticket: Ticket) {
        let _ = ticket;
    }

    /// Appends at most `size` bytes of the file from `offset` on; fewer only at its end. What `out` holds
    /// already stays as it is, even after an error.
    ///
    /// # Errors
    /// What the source file answered; its number reaches the program.
    fn read(
        &self,
        node: &Node,
        ticket: Ticket,
        offset: u64,
        size: u32,
        out: &mut Vec<u8>,
    ) -> io::Result<()>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// What the source file answered; its number reaches the program.
    fn write(&self, node: &Node, ticket: Ticket, offset: u64, data: &[u8]) -> io::Result<()>;

    /// `change` alters size or content of the file (truncate, fallocate): pages of `range` (bytes) are not
    /// what they were. Runs `change` exactly once, in between whatever it needs.
    ///
    /// # Errors
    /// Those of `change`.
    fn alter(
        &self,
        node: &Node,
        range: Range<u64>,
        change: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()>;

    /// Everything of the file that was written must be on disk (fsync of the source file).
    ///
    /// # Errors
    /// Something of it may be lost.
    fn sync(&self, node: &Node, data_only: bool) -> io::Result<()>;

    /// The file was changed from outside. The kernel is told afterwards, so that what it reads then is new.
    fn changed_outside(&self, node: &Node);

    /// The kernel forgot the node: nothing of it is in its page cache. The same number comes back for the
    /// same host file later, with the same [`crate::Stamp`] unless the file changed meanwhile.
    /// Runs while the table of nodes is locked: must neither wait nor call the [`crate::Tree`].
    fn forgotten(&self, node: &Node);

    /// The last link is gone and the kernel forgot it: its pages are of no use. Comes instead of
    /// `forgotten`, without any lock; until it returns the number is not given to another file.
    fn removed(&self, node: &Node);

    /// Answer to [`Notifier::retrieve`]; fewer bytes than were asked for where the kernel has no pages.
    fn retrieved(&self, unique: u64, node: u64, offset: u64, data: &[u8]);
}
