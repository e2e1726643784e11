//! Filling pages of programs that use guards.
//!
//! A guard (MADV_GUARD_INSTALL, Linux 6.13) is a mark in the page table where no page is. Who touches it gets SIGSEGV, and no
//! fault; but a page filled there from outside takes its place. So the page table is looked at before
//! a page is filled: before one that nobody has touched, which comes along with another, and before a wanted one, for a guard may
//! have been put there since a thread asked for it. Only where the program has ever asked for guards, which its library tells before they are installed:
//! looking takes about a microsecond. (What is away where one is installed is given up by the library; a guard that is lost
//! between this look and the filling is put back by it, `agent/src/guards.rs`.)

use super::Space;
use crate::ports::PageTableView;
use pleat_types::PageNo;
use std::sync::atomic::Ordering;

impl Space {
    /// Cuts the planned run behind its first page, which is wanted, where something is in the page table.
    pub(super) fn cut_run_at_guards(&mut self, first: PageNo) {
        let beside = self.plan.items.len().saturating_sub(1);
        if beside > 0 {
            let free = self.free_of_guards(first.plus(1), beside);
            self.plan.items.truncate(1 + free);
        }
    }

    /// How many pages from this one on have nothing in the page table, in a row; `most` where there are no guards.
    pub(super) fn free_of_guards(&mut self, first: PageNo, most: usize) -> usize {
        if !self.may_have_guards() {
            return most;
        }
        // Where it cannot be seen nothing comes along.
        let table = self.look_at_page_table();
        let free = table.and_then(|table| table.free_run(first.address(), most).ok());
        free.unwrap_or(0)
    }

    /// Whether a guard was put where a page is wanted, since a thread asked for it: that is to look again, and get its
    /// SIGSEGV. (One that is put there after this look is lost to the page, and put back: its event is read after the filling.)
    pub(super) fn is_guarded(&mut self, page: PageNo) -> bool {
        if !self.may_have_guards() {
            return false;
        }
        let table = self.look_at_page_table();
        let marked = table.and_then(|table| table.is_marked(page.address()).ok());
        marked.unwrap_or(false)
    }

    fn look_at_page_table(&mut self) -> Option<&dyn PageTableView> {
        if self.page_table.is_none() {
            let pid = self.link.pid.load(Ordering::Acquire);
            self.page_table = self.shared.machine.page_table(pid).ok();
        }
        self.page_table.as_deref()
    }

    /// A forked child whose agent is not known yet may have its parent's.
    fn may_have_guards(&self) -> bool {
        let agent = self.agent.as_ref();
        agent.is_none_or(|agent| {
            let used = &agent.slots.ring.control().guards_used;
            used.load(Ordering::Acquire) != 0
        })
    }
}
