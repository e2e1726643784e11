//! What the workers have to say to the watcher, which takes it in turn.
#![forbid(unsafe_code)]

use crate::tree::{Home, Node};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// For the watcher to do, in this order.
pub enum Order {
    Watch(Weak<Node>),
    Forget(u64),
    Invalidate(u64),
    Doubt(Home),
    ThinOut,
}

#[derive(Default)]
struct Orders {
    waiting: Vec<Order>,
    is_urgent: bool,
    /// `ThinOut` waits, or is being obeyed.
    is_thinning: bool,
    is_over: bool,
}

/// What the workers have to say to the watcher. They never speak to the kernel themselves: it would wait for
/// pages that wait for them.
#[derive(Default)]
pub struct Outside {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl Outside {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has fewer nodes now, or was told that it should.
    pub fn thinned_out(&self) {
        self.orders().is_thinning = false;
    }

    /// Data of this file, or names in this directory, go to the kernel.
    pub fn watch(&self, node: &Arc<Node>) {
        let mut orders = self.orders();
        orders.waiting.push(Order::Watch(Arc::downgrade(node)));
        if node.is_directory() {
            // The sooner, the more of its names are believed for long.
            orders.is_urgent = true;
            self.changed.notify_one();
        }
    }

    /// The kernel forgot this node.
    pub fn forget(&self, number: u64) {
        self.orders().waiting.push(Order::Forget(number));
    }

    /// What the kernel has of this file is old.
    pub fn invalidate(&self, number: u64) {
        let mut orders = self.orders();
        orders.waiting.push(Order::Invalidate(number));
        orders.is_urgent = true;
        self.changed.notify_one();
    }

    /// The kernel has this name, and it is not there any more.
    pub fn doubt(&self, home: Home) {
        let mut orders = self.orders();
        orders.waiting.push(Order::Doubt(home));
        orders.is_urgent = true;
        self.changed.notify_one();
    }

    /// The kernel knows too many nodes.
    pub fn thin_out(&self) {
        let mut orders = self.orders();
        if !orders.is_thinning {
            orders.is_thinning = true;
            orders.waiting.push(Order::ThinOut);
            orders.is_urgent = true;
            self.changed.notify_one();
        }
    }

    /// Ends the watcher.
    pub fn end(&self) {
        self.orders().is_over = true;
        self.changed.notify_one();
    }

    /// What there is to do, at once if it is urgent; `None` at the end.
    pub fn take(&self, limit: Duration) -> Option<Vec<Order>> {
        let idle = |orders: &mut Orders| !orders.is_urgent && !orders.is_over;
        let waited = self.changed.wait_timeout_while(self.orders(), limit, idle);
        let mut orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        orders.is_urgent = false;
        (!orders.is_over).then(|| std::mem::take(&mut orders.waiting))
    }
}
