//! The last line of the terminal, for [`indicatif`], which knows how to draw on one.
//!
//! Its own way to a terminal fills the line, so that what is typed meanwhile, `^C` too, comes on the next one, and what
//! is erased then is that. Here a little of the line is left, for it to be erased with the rest.

use indicatif::TermLike;
use std::io::{self, stderr, Write};

/// What is left free: `^C`, and the cursor.
const FREE: u16 = 3;
/// Where nobody knows how wide a terminal is.
const USUAL_COLUMNS: u16 = 80;
const ERASE: &str = "\r\x1b[2K";

/// Standard error, as a terminal.
#[derive(Debug)]
pub struct Line;

impl TermLike for Line {
    fn width(&self) -> u16 {
        let columns = crossterm::terminal::size().map_or(0, |(columns, _)| columns);
        match columns {
            0 => USUAL_COLUMNS - FREE,
            columns => columns.saturating_sub(FREE),
        }
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        go(lines, 'A')
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        go(lines, 'B')
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        go(columns, 'C')
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        go(columns, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        writeln!(stderr(), "{text}")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        write!(stderr(), "{text}")
    }

    fn clear_line(&self) -> io::Result<()> {
        write!(stderr(), "{ERASE}")
    }

    fn flush(&self) -> io::Result<()> {
        stderr().flush()
    }
}

fn go(steps: usize, direction: char) -> io::Result<()> {
    match steps {
        0 => Ok(()),
        steps => write!(stderr(), "\x1b[{steps}{direction}"),
    }
}
