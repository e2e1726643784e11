//! The take-away traffic of one space: at most one command is under way, and each is made, sent and answered in that order.
//!
//! No clock and no lock of its own: callers say what time it is.

use crate::keeping::Ranges;
use crate::link::AgentLink;
use pleat_types::PageNo;
use std::time::{Duration, Instant};

/// Pages of a command and the ring frames that they go to.
pub type Items = Vec<(PageNo, u32)>;

/// A command that was sent.
#[derive(Debug)]
pub struct Sent {
    /// What it is to take.
    pub items: Items,
    /// When it was sent.
    pub at: Instant,
    /// The same, for a profile.
    pub ticks: u64,
}

/// The command of a space.
#[derive(Debug, Default)]
enum Command {
    /// There is none.
    #[default]
    None,
    /// Somebody has the right to make one, and is choosing its pages.
    Reserved,
    /// The agent has it, and is to answer.
    Sent(Sent),
    /// It was ended without its agent (`space/revoke.rs`), which is still to answer.
    Revoked,
}

impl Command {
    /// Whether it may be followed by that. A command that is made while another is under way would write to its frames; one
    /// that is forgotten before it was answered, or answered twice, loses the pages that it has taken.
    fn may_become(&self, next: &Command) -> bool {
        matches!(
            (self, next),
            // Chosen to make one; nothing was found to take; sent.
            (Command::None, Command::Reserved)
                | (Command::Reserved, Command::None | Command::Sent(_))
                // Answered; the agent is stopped with it.
                | (Command::Sent(_), Command::None | Command::Revoked)
                // The agent goes on, and answers.
                | (Command::Revoked, Command::None)
        )
    }
}

/// The take-away traffic of one space.
#[derive(Default)]
pub struct TakeState {
    /// The agent, once it is ready.
    pub agent: Option<AgentLink>,
    command: Command,
    /// The command before was revoked, and the next is to have the agent clear up.
    has_leftovers: bool,
    /// Since when no new command may be made, for events are being applied or a fork is announced.
    held: Option<Instant>,
    /// The process is being left: no command is made any more.
    is_closed: bool,
    /// Its agent is told to end, and that cannot be taken back.
    is_over: bool,
    /// What is to be kept and was not sent (`keeping.rs`), and since when what was sent is not answered.
    kept: Ranges,
    keeping: Option<Instant>,
}

impl TakeState {
    fn become_command(&mut self, next: Command) -> Command {
        assert!(
            self.command.may_become(&next),
            "a command is {:?}, and to be {next:?}",
            self.command
        );
        std::mem::replace(&mut self.command, next)
    }

    /// No new command may be made until [`TakeState::release`].
    pub fn hold(&mut self, now: Instant) {
        self.held.get_or_insert(now);
    }

    /// Commands may be made again.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// No command is made from now on, or some are again, unless it is too late for that.
    pub fn close(&mut self, is_closed: bool) {
        self.is_closed = is_closed || self.is_over;
    }

    /// The agent is about to be told to end: no command is made any more, whatever is said about leaving meanwhile. (One that was made
    /// between this look and the telling would be obeyed, and what it takes be lost with the userfaultfd.) `false`: something is under
    /// way or held back, or the process stays.
    pub fn end(&mut self) -> bool {
        let is_at_rest = self.is_quiet() && !self.is_held() && !self.is_keeping();
        self.is_over = self.is_closed && is_at_rest;
        self.is_over
    }

    /// It could not be told.
    pub fn resume(&mut self) {
        self.is_over = false;
    }

    /// Whether none is.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether no new command may be made.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether a command may be made: there is an agent that is at rest, and nothing holds commands back.
    pub fn is_free(&self) -> bool {
        let is_at_rest = matches!(self.command, Command::None) && self.agent.is_some();
        is_at_rest && !self.is_held() && !self.is_closed && !self.is_keeping()
    }

    /// Ranges are to be kept.
    pub fn add_kept(&mut self, ranges: Ranges) {
        self.kept.extend(ranges);
    }

    /// Whether some are, and that is not done.
    pub fn is_keeping(&self) -> bool {
        self.keeping.is_some() || !self.kept.is_empty()
    }

    /// What is to be sent of them: not while a command may wait behind it, or those before are not answered.
    pub fn next_kept(&mut self, most: usize, now: Instant) -> Option<Ranges> {
        if self.kept.is_empty() || self.keeping.is_some() || !self.is_quiet() {
            return None;
        }
        self.keeping = Some(now);
        let rest = self.kept.split_off(self.kept.len().min(most));
        Some(std::mem::replace(&mut self.kept, rest))
    }

    /// What was sent is kept. `false`: nothing was.
    pub fn end_keeping(&mut self) -> bool {
        self.keeping.take().is_some()
    }

    /// Whether no command is under way, nor being made, so that nothing is about to leave.
    pub fn is_quiet(&self) -> bool {
        matches!(self.command, Command::None | Command::Revoked)
    }

    /// Whether one is being made.
    pub fn is_reserved(&self) -> bool {
        matches!(self.command, Command::Reserved)
    }

    /// What is under way.
    pub fn sent(&self) -> Option<&Sent> {
        match &self.command {
            Command::Sent(sent) => Some(sent),
            _ => None,
        }
    }

    /// Takes the right to make a command.
    ///
    /// # Panics
    /// When [`TakeState::is_free`] says that there is none to be had: so for all that follow, which are called in order.
    pub fn reserve(&mut self) {
        assert!(self.is_free(), "a command is under way, or held back");
        self.become_command(Command::Reserved);
    }

    /// There is nothing to take.
    pub fn unreserve(&mut self) {
        assert!(self.is_reserved(), "nobody has the right to make a command");
        self.become_command(Command::None);
    }

    /// The command that was being made is under way. Answers whether the agent is to clear up first.
    pub fn send(&mut self, items: Items, at: Instant, ticks: u64) -> bool {
        self.become_command(Command::Sent(Sent { items, at, ticks }));
        std::mem::take(&mut self.has_leftovers)
    }

    /// The agent has answered. `None`: there was nothing to answer.
    pub fn answered(&mut self) -> Option<Sent> {
        self.sent()?;
        match self.become_command(Command::None) {
            Command::Sent(sent) => Some(sent),
            _ => None,
        }
    }

    /// The command under way is ended without its agent.
    pub fn revoke(&mut self) {
        self.become_command(Command::Revoked);
    }

    /// The agent has answered the command that was revoked.
    pub fn end_revocation(&mut self) {
        assert!(
            matches!(self.command, Command::Revoked),
            "no command was revoked"
        );
        self.become_command(Command::None);
        self.has_leftovers = true;
    }

    /// Whether whoever waits for this space's pages should look elsewhere: its command, or what holds commands
    /// back, has taken so long that its process may be stopped.
    pub fn is_overdue(&self, after: Duration, now: Instant) -> bool {
        if matches!(self.command, Command::Revoked) {
            return true;
        }
        let sent = self.sent().map(|sent| sent.at);
        let oldest = sent.into_iter().chain(self.held).chain(self.keeping).min();
        oldest.is_some_and(|since| now.saturating_duration_since(since) > after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Command; 4] {
        let sent = Sent {
            items: vec![(PageNo(1), 2)],
            at: Instant::now(),
            ticks: 0,
        };
        [
            Command::None,
            Command::Reserved,
            Command::Sent(sent),
            Command::Revoked,
        ]
    }

    #[test]
    fn a_command_is_made_then_sent_then_answered() {
        let allowed: Vec<_> = (0..4)
            .flat_map(|from| (0..4).map(move |to| (from, to)))
            .filter(|&(from, to)| all()[from].may_become(&all()[to]))
            .collect();
        assert_eq!(allowed, [(0, 1), (1, 0), (1, 2), (2, 0), (2, 3), (3, 0)]);
    }

    #[test]
    fn what_is_to_be_kept_is_sent_when_no_command_is_under_way_and_none_is_made_until_it_is_answered(
    ) {
        let now = Instant::now();
        let mut take = TakeState::default();
        assert!(!take.end_keeping(), "nothing was sent");
        take.command = Command::Reserved;
        take.add_kept((1..=5).map(|page| (page << 12, 8)).collect());
        assert_eq!(take.next_kept(3, now), None, "a command is being made");
        take.send(vec![(PageNo(1), 0)], now, 0);
        assert_eq!(take.next_kept(3, now), None, "it is under way");
        take.answered().unwrap();
        let sent = |take: &mut TakeState| take.next_kept(3, now).map(|ranges| ranges.len());
        assert_eq!(sent(&mut take), Some(3));
        assert_eq!(sent(&mut take), None, "the first are not answered");
        let later = now + Duration::from_secs(9);
        assert!(
            take.is_keeping() && !take.is_free() && take.is_overdue(Duration::from_secs(1), later)
        );
        assert!(take.end_keeping());
        assert_eq!(sent(&mut take), Some(2));
        assert!(take.end_keeping() && !take.is_keeping());
        assert!(!take.is_overdue(Duration::from_secs(1), later));
    }

    #[test]
    fn an_agent_that_is_told_to_end_is_given_no_command_whatever_is_said_about_leaving() {
        let mut take = TakeState::default();
        assert!(!take.end(), "its process stays");
        take.close(true);
        take.add_kept(vec![(1 << 12, 8)]);
        assert!(!take.end(), "something is to be kept first");
        assert!(take.next_kept(1, Instant::now()).is_some() && take.end_keeping());
        assert!(take.end());
        take.close(false);
        assert!(take.is_closed(), "it has been told");
        take.resume();
        take.close(false);
        assert!(!take.is_closed());
    }

    #[test]
    #[should_panic(expected = "a command is")]
    fn none_is_sent_that_was_not_made() {
        TakeState::default().send(Vec::new(), Instant::now(), 0);
    }

    #[test]
    fn who_holds_commands_back_for_long_is_overdue() {
        let (mut take, start) = (TakeState::default(), Instant::now());
        let after = Duration::from_millis(100);
        take.hold(start);
        take.hold(start + after);
        assert!(!take.is_overdue(after, start + after));
        assert!(take.is_overdue(after, start + after * 2));
        take.release();
        assert!(!take.is_overdue(after, start + after * 2) && take.answered().is_none());
    }
}
