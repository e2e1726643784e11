//! A slow look at all files that the kernel may believe for long: what is written to a mapping in the source
//! raises no event, nor does what is done by a name in a directory that is not watched.
#![forbid(unsafe_code)]

use super::Watcher;
use crate::tree::Suspect;

/// Rounds in which all are looked at: one minute.
const ROUNDS: usize = 120;
/// Looks in one round, a few microseconds each, for less than one percent of a CPU. So with more than 72,000
/// files it takes longer.
const LOOKS_MAX: usize = 600;

/// Numbers of files that wait for their turn.
#[derive(Default)]
pub struct Sweep {
    waiting: Vec<u64>,
    looks: usize,
}

impl Watcher {
    pub(super) fn sweep(&mut self) {
        if self.sweep.waiting.is_empty() {
            let files = self.tree.nodes().into_iter().filter(|node| node.is_file());
            self.sweep.waiting = files.map(|node| node.number()).collect();
            self.sweep.looks = self.sweep.waiting.len().div_ceil(ROUNDS).min(LOOKS_MAX);
        }
        let rest = self.sweep.waiting.len().saturating_sub(self.sweep.looks);
        for number in self.sweep.waiting.split_off(rest) {
            let Some(node) = self.tree.node(number) else {
                continue;
            };
            if self.tree.is_trusted(&node) {
                self.tree.look_at(&node, Suspect::Anything);
                self.watch_if_needed(&node);
            }
        }
    }
}
