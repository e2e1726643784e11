//! What the agent answers.

use super::{End, Space};
use crate::ends::Misuse;
use crate::folds::FoldJob;
use crate::keeping;
use crate::profile::EvictionPart;
use crate::reclaim;
use crate::shared::{lock, AgentLink};
use crate::take::Sent;
use pleat_codec::PageKind;
use pleat_engine::Refusal;
use pleat_sys::channel::Received;
use pleat_types::PageNo;
use pleat_wire::message::{self, Taken, Word};

impl Space {
    /// Takes the agent's answer; `false`: there is none.
    pub(super) fn hear_agent(&mut self) -> Result<bool, End> {
        let Some(agent) = &self.agent else {
            return Ok(false);
        };
        let mut packet = [0u8; message::PACKET_MAX];
        match agent.channel.receive(&mut packet) {
            Received::Nothing => Ok(false),
            Received::Closed => {
                self.agent_gone = true;
                Ok(false)
            }
            Received::Garbled => Err(self.misused(Misuse::Garbled)),
            Received::Packet(length, _) => {
                let packet = &packet[..length];
                let kind = packet.first_chunk().map(|kind| u32::from_ne_bytes(*kind));
                let is = |wanted| kind == Some(wanted);
                let taken = pleat_sys::read_plain::<Taken>(packet);
                if let Some(taken) = taken.filter(|_| is(message::TAKEN)) {
                    self.apply_taken(&taken)?;
                    self.send_kept();
                    return Ok(true);
                }
                let done = pleat_sys::read_plain::<Word>(packet);
                if done.is_some() && is(message::KEPT) {
                    return self.hear_kept().map(|()| true);
                }
                match done.filter(|_| is(message::DONE)) {
                    Some(done) => self.hear_done(&done).map(|()| true),
                    None => Err(self.misused(Misuse::Unknown)),
                }
            }
        }
    }

    /// What must stay stays. Pages may be taken again.
    fn hear_kept(&mut self) -> Result<(), End> {
        if !lock(&self.link.take).end_keeping() {
            return Err(self.misused(Misuse::Unasked));
        }
        self.send_kept();
        reclaim::kick(&self.shared);
        Ok(())
    }

    /// Sends what is to stay and could not be sent before.
    fn send_kept(&self) {
        if let Some(agent) = &self.agent {
            keeping::send_next(&self.link, &*agent.channel, self.now());
        }
    }

    fn apply_taken(&mut self, taken: &Taken) -> Result<(), End> {
        let Some(agent) = self.agent.clone() else {
            return Ok(());
        };
        if let Some(pages) = self.revoked {
            return self.end_revocation(&agent, pages, taken);
        }
        let answered = lock(&self.link.take).answered();
        let answered = answered.filter(|sent| sent.items.len() == taken.count as usize);
        let Some(Sent { items, ticks, .. }) = answered else {
            return Err(self.misused(Misuse::Unasked));
        };
        self.note_forbidden(&taken.status[..items.len()]);
        if let Some(profile) = &self.shared.profile {
            profile.taken(ticks, taken);
        }
        for ((page, _), status) in items.iter().zip(taken.status) {
            if status == message::GONE {
                self.check_gone(*page)?;
            }
        }
        self.put_away(&agent, &items, &taken.status);
        Ok(())
    }

    /// What became of these pages that were on their way out.
    pub(super) fn put_away(&mut self, agent: &AgentLink, items: &[(PageNo, u32)], status: &[u8]) {
        let mut clock = self.shared.stopwatch();
        let mut jobs = Vec::with_capacity(items.len());
        let mut engine = self.shared.engine();
        for (&(page, frame), &status) in items.iter().zip(status) {
            let refusal = match status {
                message::TOOK | message::TOOK_SHARED => {
                    if status == message::TOOK_SHARED {
                        // The other side of the fork keeps the memory that this page had.
                        engine.unshare(1, true);
                    }
                    let slot = agent.slots.name(frame);
                    match engine.taken_to_compare(self.link.id, page, slot) {
                        Some((body, was)) => jobs.push(FoldJob {
                            body,
                            was,
                            page: (self.link.id, page),
                            kind: PageKind::Anonymous,
                            slots: agent.slots.clone(),
                            frame,
                        }),
                        None => agent.slots.release(frame),
                    }
                    continue;
                }
                message::BUSY => Refusal::Busy,
                message::GONE => Refusal::Gone,
                message::STALE => Refusal::Stale,
                _ => Refusal::Unmovable,
            };
            engine.refused(self.link.id, page, refusal);
            agent.slots.release(frame);
        }
        drop(engine);
        self.link.taken_pages.add(jobs.len() as u64);
        clock.lap_each(EvictionPart::Stage, jobs.len());
        self.shared.folds.push(jobs);
    }
}
