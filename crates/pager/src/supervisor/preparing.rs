//! Getting a process ready: what its agent is handed, and what is done with the userfaultfd that it makes.
//!
//! The agent makes the userfaultfd, for it is of the memory of who makes it. All that takes a privilege is done here,
//! by the supervisor: it has the device open, and makes the handshake, over which the kernel decides whether forks
//! are reported. What a process may do itself, after it gave up root or shut itself in, so does not matter.
//!
//! The order: handshake; staging area and beacon registered; a thread reads events; the process is told that it is
//! followed, and rings doorbells from then on; only then is its memory registered, and taken later still.

use super::conversations::ring_frames;
use super::unmanaged::Obstacle;
use super::Supervisor;
use crate::census::{Lent, Stage};
use crate::link::STAGING_LEN;
use crate::ports::Userfault;
use crate::rings::Slots;
use pleat_sys::channel::Channel;
use pleat_sys::grant::Grant;
use pleat_sys::ring::Ring;
use pleat_sys::uffd::Uffd;
use pleat_wire::message::{self, Prepare, Prepared, Word, DOORBELLS};
use pleat_wire::{control, PAGE};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// The first address that no program has.
pub(super) const ADDRESSES_END: u64 = 1 << 47;
/// Bytes of the beacon and the doorbells.
pub(super) const BEACON_LEN: u64 = ((1 + DOORBELLS) * PAGE) as u64;

impl Supervisor<'_> {
    /// Sends a process that is ready for it what it needs to be managed: with `uffd`, which its fork made.
    pub(super) fn hand_over(&mut self, pid: i32, uffd: Option<Arc<dyn Userfault>>) {
        let frames = ring_frames(self.budget.bytes);
        let (ring, memory) = match Ring::shared(frames) {
            Ok(made) => made,
            Err(error) => return self.unmanageable(pid, &Obstacle::Supervisor(error)),
        };
        let device = self.grant.device();
        let profile = self.shared.profile.as_ref();
        let command = Prepare {
            kind: message::PREPARE,
            ring_frames: frames,
            has_uffd: u32::from(uffd.is_some()),
            has_device: u32::from(device.is_some()),
            slow_ticks: profile.map_or(0, |profile| profile.slow_ticks()),
        };
        let mut descriptors = vec![memory.as_raw_fd()];
        descriptors.extend(uffd.as_ref().map(|uffd| uffd.descriptor()));
        descriptors.extend(device);
        let Some(process) = self.census.processes.get_mut(&pid) else {
            return;
        };
        let Stage::Ready(channel) = &process.stage else {
            return;
        };
        // If it fails the process is just ending; the next look finds it gone.
        if channel
            .send_with(pleat_sys::bytes_of(&command), &descriptors)
            .is_err()
        {
            return;
        }
        let is_forked = uffd.is_some();
        let before = std::mem::replace(&mut process.stage, Stage::Silent);
        if let Stage::Ready(channel) = before {
            process.stage = Stage::Preparing(channel, Lent { ring, is_forked });
        }
    }

    /// Takes out what a process was made ready with.
    pub(super) fn take_prepared(&mut self, pid: i32) -> Option<(Channel, Ring)> {
        let process = self.census.processes.get_mut(&pid)?;
        match std::mem::replace(&mut process.stage, Stage::Silent) {
            Stage::Preparing(channel, lent) => Some((channel, lent.ring)),
            other => {
                process.stage = other;
                None
            }
        }
    }
}

/// Sets up the userfaultfd that an agent has made, and registers with it what is the agent's own: the answer was looked at
/// by [`are_its_own`]. Answers, too, whether forks are reported.
///
/// Nothing is registered before the handshake is made, and nothing of the program's before this is done.
pub(super) fn follow(
    grant: &Grant,
    answer: &Prepared,
    descriptors: Vec<OwnedFd>,
) -> Result<(Uffd, bool), Obstacle> {
    let [sent] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| Obstacle::Nonsense)?;
    let uffd = Uffd::from_peer(sent).map_err(|_| Obstacle::Nonsense)?;
    let forks = grant.shake_hands(&uffd).map_err(Obstacle::Handshake)?;
    let refused = |error| match uffd.is_dead() {
        true => Obstacle::Gone,
        false => Obstacle::Registration(error),
    };
    uffd.register_read_only(answer.staging, STAGING_LEN)
        .map_err(refused)?;
    uffd.register_read_only(answer.beacon, BEACON_LEN)
        .map_err(refused)?;
    Ok((uffd, forks))
}

/// Whether what an agent names is where an agent would have it. (Whatever it is, it is of that process's memory.)
pub(super) fn are_its_own(answer: &Prepared, (start, end): (u64, u64)) -> bool {
    let is_aligned = |address: u64| address.is_multiple_of(PAGE as u64);
    let is_staging_inside = answer.staging >= start
        && answer.staging < ADDRESSES_END
        && answer.staging + STAGING_LEN <= end;
    let is_beacon_somewhere = (PAGE as u64..ADDRESSES_END - BEACON_LEN).contains(&answer.beacon);
    is_aligned(answer.staging)
        && is_aligned(answer.beacon)
        && is_staging_inside
        && is_beacon_somewhere
}

/// Tells a process that it is followed: its threads see it in the control page from the next fork on, its agent by
/// the message.
pub(super) fn announce(channel: &Channel, slots: &Slots, fork_events: bool) {
    let word = match fork_events {
        true => control::FOLLOWED_WITH_FORKS,
        false => control::FOLLOWED_WITHOUT_FORKS,
    };
    let followed = &slots.ring.control().followed;
    followed.store(word, Ordering::Release);
    let message = Word {
        kind: message::FOLLOWED,
        error: 0,
    };
    // If it fails the process is just ending, which its space's thread finds out.
    let _ = channel.send(pleat_sys::bytes_of(&message), None);
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: (u64, u64) = (0x7000_0000_0000, 0x7000_0010_0000);

    fn prepared(staging: u64, beacon: u64) -> Prepared {
        Prepared {
            staging,
            beacon,
            ..Prepared::default()
        }
    }

    #[test]
    fn what_is_registered_for_an_agent_is_its_own() {
        let (start, end) = AREA;
        assert!(are_its_own(&prepared(start, 0x5000), AREA));
        assert!(are_its_own(&prepared(end - STAGING_LEN, 0x5000), AREA));
        let wrong = [
            prepared(start - 4096, 0x5000),
            prepared(end - STAGING_LEN + 4096, 0x5000),
            prepared(start + 1, 0x5000),
            prepared(u64::MAX - 4095, 0x5000),
            prepared(start, 0),
            prepared(start, 0x5001),
            prepared(start, u64::MAX - 4095),
            prepared(start, ADDRESSES_END - 4096),
        ];
        for answer in wrong {
            assert!(!are_its_own(&answer, AREA), "{answer:x?}");
        }
        assert!(!are_its_own(&prepared(0, 0x5000), (0, u64::MAX)) || STAGING_LEN < ADDRESSES_END);
    }
}
