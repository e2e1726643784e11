//! Choosing what goes and telling the agents.
//!
//! Any thread may call [`kick`] whenever memory may have run short; it never waits.

use crate::allowance::Left;
use crate::ends::{Misuse, Unservable};
use crate::keeping;
use crate::profile::{EvictionPart, Stopwatch};
use crate::shared::{lock, AgentLink, Link, Shared};
use pleat_sys::ticks::ticks;
use pleat_types::{PageNo, SpaceId};
use pleat_wire::message::{Take, TakeItem, TAKE, TAKE_MAX};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Victims chosen with one hold of the engine's lock.
const AT_ONCE: usize = 8;
/// A command under way for longer is not waited for, nor a space whose commands were held back for longer: a stopped
/// process ends it when it goes on. Others take a millisecond, or as long as the agent waits for a CPU.
const OVERDUE: Duration = Duration::from_millis(100);

/// A space that may be sent a command, with the generation its command will be good for.
struct Taker {
    link: Arc<Link>,
    agent: AgentLink,
    room: usize,
    // Read when the space was reserved, that is before victims are chosen and not while events are
    // being applied: if events come after, the agent finds another generation and does nothing.
    generation: u64,
}

/// Sends take-away commands to idle agents if the engine wants memory.
pub fn kick(shared: &Shared) {
    if shared.engine().frames_wanted() == 0 {
        return;
    }
    let may_take = match shared.may_take.left() {
        Left::Pages(pages) => pages,
        Left::Spent(is_to_ask) => {
            if is_to_ask {
                shared.main_bell.ring();
            }
            return;
        }
        Left::None => {
            let mut engine = shared.engine();
            engine.give_instead();
            if engine.write_wanted() {
                drop(engine);
                shared.writer.open();
            }
            return;
        }
    };
    let mut clock = shared.stopwatch();
    let links = lock(&shared.links);
    let now = shared.machine.now();
    let takers = links.iter().filter_map(reserve);
    let takers: Vec<Taker> = takers.collect();
    let of_takers = takers
        .iter()
        .map(|taker| (taker.link.id, taker.room as u32));
    let mut limits: Vec<(SpaceId, u32)> = of_takers.collect();
    let holders = shared.holders();
    if !takers.is_empty() || !holders.is_empty() {
        // Who is at work has old pages all the same.
        let at_work = links.iter().filter(|link| is_at_work(link, &takers, now));
        limits.extend(at_work.map(|link| (link.id, 0)));
    }
    drop(links);
    let holders = holders.iter().map(|holder| (holder, holder.reserve()));
    let holders: Vec<_> = holders.collect();
    limits.extend(
        holders
            .iter()
            .map(|(holder, room)| (holder.space(), room.unwrap_or(0))),
    );
    let most = limits.iter().map(|&(_, room)| room as usize).sum::<usize>();
    let most = most.min(may_take);
    if most == 0 {
        return;
    }
    let mut victims = choose(shared, &mut limits, most);
    shared.may_take.take(victims.len());
    // Ascending, so that neighbours are moved by one call.
    victims.sort_unstable();
    let of = |space: SpaceId| -> Vec<PageNo> {
        let pages = victims.iter().filter(|(id, _)| *id == space);
        pages.map(|&(_, page)| page).collect()
    };
    for taker in takers {
        send(shared, &taker, &of(taker.link.id), &mut clock);
    }
    for (holder, _) in holders.iter().filter(|(_, room)| room.is_some()) {
        holder.take(of(holder.space()));
    }
}

/// Chooses up to `most` victims, a few at a time, for meanwhile a fault may wait for the engine.
fn choose(shared: &Shared, limits: &mut [(SpaceId, u32)], most: usize) -> Vec<(SpaceId, PageNo)> {
    let mut victims = Vec::new();
    let mut left = most;
    while left > 0 {
        let mut engine = shared.engine();
        left = left.min(engine.frames_wanted() as usize);
        let first = victims.len();
        engine.choose_some_victims(limits, left, AT_ONCE, &mut victims);
        drop(engine);
        let chosen = &victims[first..];
        for (space, room) in limits.iter_mut() {
            let count = chosen.iter().filter(|(id, _)| id == space).count();
            *room -= count as u32;
        }
        if chosen.len() < AT_ONCE {
            break;
        }
        left -= chosen.len();
        shared.let_in();
    }
    victims
}

/// Whether a space is taking pages away already, and is going to say so: its process may be stopped.
fn is_at_work(link: &Arc<Link>, takers: &[Taker], now: Instant) -> bool {
    if takers.iter().any(|taker| Arc::ptr_eq(&taker.link, link))
        || link.ended.load(Ordering::Acquire)
    {
        return false;
    }
    let take = lock(&link.take);
    // A forked child's commands are held back from its birth; its agent comes.
    (take.agent.is_some() || take.is_held()) && !take.is_overdue(OVERDUE, now)
}

/// Claims the right to send a command to an idle space with room in its ring.
fn reserve(link: &Arc<Link>) -> Option<Taker> {
    let mut take = lock(&link.take);
    if !take.is_free() || link.ended.load(Ordering::Acquire) {
        return None;
    }
    let agent = take.agent.clone()?;
    let room = agent.slots.available().min(TAKE_MAX);
    if room == 0 {
        return None;
    }
    take.reserve();
    // Under the lock: `held` and with it the next generation come after (see `space::events`).
    let generation = agent
        .slots
        .ring
        .control()
        .generation
        .load(Ordering::Acquire);
    drop(take);
    Some(Taker {
        link: link.clone(),
        agent,
        room,
        generation,
    })
}

fn send(shared: &Shared, taker: &Taker, pages: &[PageNo], clock: &mut Stopwatch) {
    let mut command = Take {
        kind: TAKE,
        count: 0,
        has_leftovers: 0,
        reserved: 0,
        generation: taker.generation,
        items: [TakeItem::default(); TAKE_MAX],
    };
    let mut take = lock(&taker.link.take);
    if pages.is_empty() {
        take.unreserve();
        drop(take);
        // It may have had to wait for this.
        return keeping::send_next(&taker.link, &*taker.agent.channel, shared.machine.now());
    }
    let control = taker.agent.slots.ring.control();
    for progress in &control.progress {
        progress.store(0, Ordering::Relaxed);
    }
    let mut items = Vec::with_capacity(pages.len());
    for (item, page) in command.items.iter_mut().zip(pages) {
        // There is room: frames are only claimed here, and the space was reserved.
        let Some(frame) = taker.agent.slots.claim() else {
            break;
        };
        *item = TakeItem {
            address: page.address(),
            slot: frame,
            reserved: 0,
        };
        items.push((*page, frame));
        command.count += 1;
    }
    assert_eq!(
        command.count as usize,
        pages.len(),
        "victims exceed the ring's room"
    );
    shared.meters.take_commands.add(1);
    clock.lap_each(EvictionPart::Choose, pages.len());
    let sent_ticks = shared.profile.as_ref().map_or(0, |_| ticks());
    command.has_leftovers = take.send(items, shared.machine.now(), sent_ticks).into();
    // It counts as under way from here on, and nobody else sends one.
    drop(take);
    let sent = taker
        .agent
        .channel
        .send(pleat_sys::bytes_of(&command), None);
    clock.skip();
    match sent {
        Ok(()) => {}
        // It does not read what it is told, which is never much.
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            taker.link.condemn(Unservable::Misuse(Misuse::Unread));
        }
        // The process is gone or going; its thread finds out and drops the space with these pages.
        Err(_) => taker.link.bell.ring(),
    }
}
