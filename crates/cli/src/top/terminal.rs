//! The terminal as a whole screen, and back as it was: also when something panics.

use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use crossterm::terminal::{
    disable_raw_mode, enable_raw_mode, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{cursor, execute};
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::io::{self, Stdout};
use std::time::Duration;

/// The terminal, taken. Dropping it gives it back.
pub struct Terminal {
    inner: ratatui::Terminal<CrosstermBackend<Stdout>>,
}

/// What the user has done.
#[derive(Default)]
pub struct Keys {
    pub pressed: Vec<KeyEvent>,
    is_resized: bool,
}

impl Keys {
    /// Whether there is anything new to draw.
    pub fn is_any(&self) -> bool {
        self.is_resized || !self.pressed.is_empty()
    }
}

impl Terminal {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn enter() -> io::Result<Terminal> {
        take()?;
        let said = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            said(panic);
        }));
        let inner = ratatui::Terminal::new(CrosstermBackend::new(io::stdout()));
        match inner {
            Ok(inner) => Ok(Terminal { inner }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Draws what has changed since the last time.
    pub fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        self.inner
            .draw(|frame| draw(frame.area(), frame.buffer_mut()))
            .map(|_| ())
    }

    /// What was pressed since this was last asked. Does not wait.
    pub fn keys(&mut self) -> io::Result<Keys> {
        let mut keys = Keys::default();
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => keys.pressed.push(key),
                Event::Resize(..) => keys.is_resized = true,
                _ => {}
            }
        }
        Ok(keys)
    }

    /// Stops this process as Ctrl-Z does, with the terminal as it was meanwhile.
    pub fn sleep(&mut self) -> io::Result<()> {
        give_back();
        pleat_sys::signals::stop_self();
        take()?;
        self.inner.clear()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, cursor::Hide).inspect_err(|_| give_back())
}

/// A terminal that has gone away need not be given back.
fn give_back() {
    let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
