//! Dropping from the kernel's cache the pages of a WRITE, where older content may have got meanwhile
//! (`ledger.rs` says how).
//!
//! The kernel waits for the page's lock. Reads that were received before the WRITE may hold it; they bring
//! the old content, and have to be waited for. When there are none (any more), dropping takes no time - but
//! where the kernel did not have the page, and the WRITE covers part of it only, the page stays locked
//! until the WRITE is answered. Then there is nothing to mend. So a thread of its own does the dropping,
//! and the answer does not wait for it much longer than for those reads.
#![forbid(unsafe_code)]

use crate::notify::Notifier;
use std::sync::mpsc::{channel, sync_channel, Sender, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long dropping takes at most that nothing holds up: a thread has to be woken.
const PATIENCE: Duration = Duration::from_millis(50);

struct Order {
    notifier: Notifier,
    node: u64,
    offset: u64,
    len: u64,
    /// Called when the pages are dropped.
    end: Box<dyn FnOnce() + Send>,
    done: SyncSender<()>,
}

/// The dropping threads: one for each order that waits, kept for the next.
#[derive(Default)]
pub(super) struct Mender {
    idle: Mutex<Vec<Sender<Order>>>,
}

impl Mender {
    /// Drops; returns when that is done, or is not going to be before the WRITE is answered. As long as
    /// `may_wait` says so there is something to wait for. `end` is called when the pages are dropped, be it
    /// later.
    pub(super) fn drop_again(
        &self,
        notifier: &Notifier,
        (node, offset, len): (u64, u64, u64),
        may_wait: impl Fn() -> bool,
        end: Box<dyn FnOnce() + Send>,
    ) {
        let (done, is_done) = sync_channel(1);
        let mut order = Order {
            notifier: notifier.clone(),
            node,
            offset,
            len,
            end,
            done,
        };
        let idle = |mender: &Mender| {
            let mut idle = mender.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.pop()
        };
        let worker = loop {
            let Some(worker) = idle(self).or_else(start) else {
                // No thread to be had. Better to wait than to let old content be read.
                let _ = order.notifier.inval_inode(node, offset, len);
                return (order.end)();
            };
            match worker.send(order) {
                Ok(()) => break worker,
                // It has ended.
                Err(back) => order = back.0,
            }
        };
        loop {
            // Asked before the time begins in which nothing is to hold it up.
            let waits = may_wait();
            match is_done.recv_timeout(PATIENCE) {
                Ok(()) => break,
                Err(_) if waits => {}
                // Its thread ends when it is done, and nobody has another order for it.
                Err(_) => return,
            }
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(worker);
    }
}

fn start() -> Option<Sender<Order>> {
    let (sender, orders) = channel::<Order>();
    let builder = std::thread::Builder::new()
        .name("pleat-mend".into())
        .stack_size(128 << 10);
    let thread = builder.spawn(move || {
        for order in orders {
            // An error: the kernel forgot the file, and nobody can read what is old.
            let _ = order
                .notifier
                .inval_inode(order.node, order.offset, order.len);
            (order.end)();
            let _ = order.done.send(());
        }
    });
    thread.ok().map(|_| sender)
}
