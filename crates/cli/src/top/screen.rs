//! What the user looks at: which line is chosen, in which order, what is open.

use super::lines::{lines, Key, Line, Order, Sort};
use super::model::Model;
use std::time::{Duration, Instant};

/// A message is shown for so long.
const TOLD_FOR: Duration = Duration::from_secs(8);

/// What the user looks at.
pub struct Screen {
    pub interval: Duration,
    pub order: Order,
    pub chosen: Option<Key>,
    /// The job that is shown alone.
    pub opened: Option<i32>,
    pub has_help: bool,
    /// Nothing moves, until the user wants it to.
    pub is_still: bool,
    /// The first line that is seen.
    pub first: usize,
    /// How many lines there are room for, as of the last drawing.
    pub room: usize,
    told: Option<(Instant, String)>,
}

/// What a key asks for beside another view.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Stay,
    Quit,
    /// Stop this process, as Ctrl-Z does elsewhere.
    Sleep,
    SetBudget {
        pid: i32,
        bytes: u64,
    },
}

impl Screen {
    pub fn new(interval: Duration, opened: Option<i32>) -> Screen {
        Screen {
            interval,
            order: Order {
                sort: Sort::Memory,
                is_reversed: false,
                is_tree: false,
                has_processes: true,
            },
            chosen: None,
            opened,
            has_help: false,
            is_still: false,
            first: 0,
            room: 1,
            told: None,
        }
    }

    /// Shows a message for a while.
    pub fn tell(&mut self, message: Option<String>) {
        if let Some(message) = message {
            self.told = Some((Instant::now(), message));
        }
    }

    /// The message that is to be shown.
    pub fn message(&self) -> Option<&str> {
        let told = self.told.as_ref();
        let told = told.filter(|(at, _)| at.elapsed() < TOLD_FOR);
        told.map(|(_, message)| message.as_str())
    }

    /// The message has been read.
    pub fn hush(&mut self) {
        self.told = None;
    }

    /// The lines as they are to be shown.
    pub fn lines<'a>(&self, model: &'a Model) -> Vec<Line<'a>> {
        lines(model, &self.order, self.opened)
    }

    /// The chosen line may have gone: then the one in its place is chosen, and it is seen.
    pub fn follow(&mut self, model: &Model) {
        let keys: Vec<Key> = self.lines(model).iter().map(Line::key).collect();
        self.choose(&keys, 0);
    }

    /// Chooses the line so many below.
    pub fn step(&mut self, model: &Model, by: isize) {
        let keys: Vec<Key> = self.lines(model).iter().map(Line::key).collect();
        self.choose(&keys, by);
    }

    fn choose(&mut self, keys: &[Key], by: isize) {
        let is_chosen = |key: &Key| Some(*key) == self.chosen;
        let of_job = |key: &Key| self.chosen.is_some_and(|chosen| chosen.job == key.job);
        let at = keys.iter().position(is_chosen);
        let at = at.or_else(|| keys.iter().position(of_job)).unwrap_or(0);
        let at = at
            .saturating_add_signed(by)
            .min(keys.len().saturating_sub(1));
        self.chosen = keys.get(at).copied();
        self.show(at, keys.len());
    }

    /// So much is scrolled that this line is seen, and no room is left empty that lines could have.
    fn show(&mut self, at: usize, lines: usize) {
        let room = self.room.max(1);
        if at < self.first {
            self.first = at;
        } else if at >= self.first + room {
            self.first = at + 1 - room;
        }
        self.first = self.first.min(lines.saturating_sub(room));
    }

    /// There is room for so many lines.
    pub fn resize(&mut self, room: usize, lines: &[Line<'_>]) {
        if self.room != room {
            self.room = room;
            let is_chosen = |line: &Line<'_>| Some(line.key()) == self.chosen;
            let at = lines.iter().position(is_chosen).unwrap_or(0);
            self.show(at, lines.len());
        }
    }

    /// The job that keys are about.
    pub fn job(&self) -> Option<i32> {
        self.opened.or(self.chosen.map(|key| key.job))
    }
}
