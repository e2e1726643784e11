//! What keys do.

use super::model::Model;
use super::screen::{Screen, Step};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A page of lines keeps so many of the one before.
const KEPT: usize = 1;

impl Screen {
    /// A key was pressed.
    pub fn press(&mut self, key: KeyEvent, model: &mut Model) -> Step {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Step::Quit,
                KeyCode::Char('z') => Step::Sleep,
                _ => Step::Stay,
            };
        }
        if self.has_help {
            // Any key, and `q` no less, only takes the help away.
            self.has_help = false;
            return Step::Stay;
        }
        let page = self.room.saturating_sub(KEPT).max(1) as isize;
        match key.code {
            KeyCode::Char('q') => return Step::Quit,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.has_help = true,
            KeyCode::Up | KeyCode::Char('k') => self.step(model, -1),
            KeyCode::Down | KeyCode::Char('j') => self.step(model, 1),
            KeyCode::PageUp => self.step(model, -page),
            KeyCode::PageDown => self.step(model, page),
            KeyCode::Home | KeyCode::Char('g') => self.step(model, isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(model, isize::MAX),
            KeyCode::Enter | KeyCode::Right => {
                self.opened = self.opened.or(self.chosen.map(|key| key.job));
            }
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.close(),
            KeyCode::Char('s') => self.order.sort = self.order.sort.next(),
            KeyCode::Char('r') => self.order.is_reversed = !self.order.is_reversed,
            KeyCode::Char('t') => self.order.is_tree = !self.order.is_tree,
            KeyCode::Char('p') => self.order.has_processes = !self.order.has_processes,
            KeyCode::Char(' ') => self.is_still = !self.is_still,
            KeyCode::Char('+' | '=') => return self.step_budget(model, true),
            KeyCode::Char('-' | '_') => return self.step_budget(model, false),
            _ => return Step::Stay,
        }
        self.follow(model);
        Step::Stay
    }

    /// Back to all jobs; what was said has been read.
    fn close(&mut self) {
        self.hush();
        if let Some(job) = self.opened.take() {
            self.chosen = Some(super::lines::Key { job, process: None });
        }
    }

    fn step_budget(&mut self, model: &mut Model, is_up: bool) -> Step {
        let Some(pid) = self.job() else {
            return Step::Stay;
        };
        match model.budget_beside(pid, is_up) {
            Ok(bytes) => Step::SetBudget { pid, bytes },
            Err(why) => {
                self.tell(Some(format!("job {pid}: {why}")));
                Step::Stay
            }
        }
    }
}
