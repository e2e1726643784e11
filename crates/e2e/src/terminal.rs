//! A terminal with a program in it: what is on its screen, and keys for it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::machine::eventually;
use crate::sys;

/// What is to be seen is seen within this time, on a machine with much else to do.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// A program that has a terminal of its own. Dropping it kills the program.
pub struct Terminal {
    child: Child,
    outer: File,
    parser: Arc<Mutex<vt100::Parser>>,
    bytes: Arc<AtomicUsize>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts a program on a screen of so many columns and lines.
    pub fn start(mut command: Command, size: (u16, u16)) -> Terminal {
        let (outer, inner) = sys::open_terminal(size).expect("there are terminals");
        let side = || Stdio::from(inner.try_clone().expect("descriptors are to be had"));
        command.stdin(side()).stdout(side()).stderr(side());
        sys::lead_terminal(&mut command);
        let child = command.spawn().expect("the program is there");
        let parser = Arc::new(Mutex::new(vt100::Parser::new(size.1, size.0, 0)));
        let mut from = outer.try_clone().expect("descriptors are to be had");
        let to = parser.clone();
        let bytes_of_all = Arc::new(AtomicUsize::new(0));
        let all = bytes_of_all.clone();
        // Ends when no program has the terminal any more.
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let mut parser = to.lock().unwrap_or_else(PoisonError::into_inner);
                parser.process(&bytes[..count]);
                all.fetch_add(count, Ordering::Relaxed);
            }
        });
        Terminal {
            child,
            outer,
            parser,
            bytes: bytes_of_all,
            reader: Some(reader),
        }
    }

    /// The program's process.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("pids are positive")
    }

    /// Types this.
    pub fn press(&self, keys: &str) {
        let typed = (&self.outer).write_all(keys.as_bytes());
        typed.expect("the terminal takes keys");
    }

    /// Gives the screen another size.
    pub fn resize(&self, size: (u16, u16)) {
        self.look(|parser| parser.screen_mut().set_size(size.1, size.0));
        sys::resize_terminal(&self.outer, size).expect("a terminal has a size");
    }

    fn look<T>(&self, look: impl FnOnce(&mut vt100::Parser) -> T) -> T {
        look(&mut self.parser.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.look(|parser| parser.screen().contents())
    }

    /// How many bytes have been written to it, gone from the screen or not.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The screen as SVG, with its colours.
    pub fn svg(&self) -> String {
        self.look(|parser| svg::of(parser.screen()))
    }

    /// Whether anything on the screen has a colour.
    pub fn has_colours(&self) -> bool {
        self.look(|parser| {
            let screen = parser.screen();
            let (lines, columns) = screen.size();
            let cells = (0..lines).flat_map(|y| (0..columns).map(move |x| (y, x)));
            let mut cells = cells.filter_map(|(y, x)| screen.cell(y, x));
            cells.any(|cell| cell.fgcolor() != vt100::Color::Default)
        })
    }

    /// Whether the program has a screen of its own and hides the cursor.
    pub fn is_taken(&self) -> bool {
        self.look(|parser| parser.screen().alternate_screen() && parser.screen().hide_cursor())
    }

    /// Waits until the screen shows this; the screen.
    pub fn wait_for(&self, what: &str) -> String {
        self.wait_until(what, |screen| screen.contains(what))
    }

    /// Waits until the screen is so.
    pub fn wait_until(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let is_seen = eventually(SEEN_WITHIN, || is(&self.screen()));
        let screen = self.screen();
        assert!(is_seen, "never seen: {what}; but:\n{screen}");
        screen
    }

    /// Waits for the program's end.
    pub fn wait(&mut self) -> ExitStatus {
        let ended = eventually(SEEN_WITHIN, || matches!(self.child.try_wait(), Ok(Some(_))));
        assert!(ended, "it does not end:\n{}", self.screen());
        let status = self.child.wait().expect("it is our child");
        // What it said last is here.
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A screen as a picture.
mod svg {
    use std::fmt::Write;

    const CELL: (u16, u16) = (8, 17);
    const TEXT: &str = "#dddddd";
    const GROUND: &str = "#1c1c1c";

    pub fn of(screen: &vt100::Screen) -> String {
        let (lines, columns) = screen.size();
        let (width, height) = ((columns + 2) * CELL.0, (lines + 1) * CELL.1);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"monospace\" font-size=\"13\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"{GROUND}\"/>\n"
        );
        for y in 0..lines {
            let mut x = 0;
            while x < columns {
                x += run(&mut svg, screen, (x, y));
            }
        }
        svg + "</svg>\n"
    }

    /// Cells of one look, from here on; how many.
    fn run(svg: &mut String, screen: &vt100::Screen, (first, y): (u16, u16)) -> u16 {
        let look = |x: u16| {
            let cell = screen.cell(y, x)?;
            Some((cell.fgcolor(), cell.inverse(), cell.bold()))
        };
        let (_, columns) = screen.size();
        let (mut text, mut x) = (String::new(), first);
        while x < columns && look(x) == look(first) {
            let letter = screen.cell(y, x).map_or(" ", |cell| cell.contents());
            text.push_str(if letter.is_empty() { " " } else { letter });
            x += 1;
        }
        let Some((colour, is_inverse, is_bold)) = look(first) else {
            return x - first;
        };
        let (left, top) = ((first + 1) * CELL.0, y * CELL.1 + CELL.1 / 2);
        let mut ink = ink(colour);
        if is_inverse {
            let wide = (x - first) * CELL.0;
            let high = CELL.1;
            let _ = writeln!(
                svg,
                "<rect x=\"{left}\" y=\"{top}\" width=\"{wide}\" height=\"{high}\" fill=\"{ink}\"/>"
            );
            ink = GROUND.into();
        }
        if !text.trim().is_empty() {
            let escaped = text
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;");
            let weight = if is_bold { " font-weight=\"bold\"" } else { "" };
            let (base, long) = (top + 13, (x - first) * CELL.0);
            let _ = writeln!(
                svg,
                "<text x=\"{left}\" y=\"{base}\" fill=\"{ink}\"{weight} xml:space=\"preserve\" \
                 textLength=\"{long}\">{escaped}</text>"
            );
        }
        x - first
    }

    /// A colour of the 256, as a terminal has them by default.
    fn ink(colour: vt100::Color) -> String {
        const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
        match colour {
            vt100::Color::Idx(at @ 16..=231) => {
                let at = usize::from(at) - 16;
                let part = |of: usize| STEPS[of % 6];
                format!("#{:02x}{:02x}{:02x}", part(at / 36), part(at / 6), part(at))
            }
            vt100::Color::Idx(at @ 232..) => {
                let grey = 8 + 10 * (at - 232);
                format!("#{grey:02x}{grey:02x}{grey:02x}")
            }
            _ => TEXT.into(),
        }
    }
}
