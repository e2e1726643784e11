//! Letters and colours. Nothing is told by colour alone: each kind of memory has a letter, too, and the colours are those of Okabe and
//! Ito, which people tell apart however they see colours.

use ratatui::style::{Color, Modifier, Style};

/// How things are to look on this terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    palette: Palette,
    /// Whether it shows block characters; else graphs are made of letters.
    pub has_blocks: bool,
}

/// Which colours there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// None: `NO_COLOR` is set.
    None,
    /// Sixteen, which the user has chosen.
    Basic,
    /// 256.
    Wide,
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Uncompressed,
    Compressed,
    Raw,
    File,
    Unfoldable,
    Own,
    Free,
}

impl Kind {
    /// All that are used memory, in the order of bars.
    pub const USED: [Kind; 6] = [
        Kind::Uncompressed,
        Kind::Compressed,
        Kind::Raw,
        Kind::File,
        Kind::Unfoldable,
        Kind::Own,
    ];

    /// Its letter in bars.
    pub fn letter(self) -> char {
        match self {
            Kind::Uncompressed => '#',
            Kind::Compressed => '=',
            Kind::Raw => '%',
            Kind::File => 'f',
            Kind::Unfoldable => '!',
            Kind::Own => 'p',
            Kind::Free => '.',
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Uncompressed => "uncompressed",
            Kind::Compressed => "compressed",
            Kind::Raw => "raw",
            Kind::File => "files",
            Kind::Unfoldable => "not compressible",
            Kind::Own => "pleat",
            Kind::Free => "free",
        }
    }
}

impl Look {
    /// A look of these properties.
    #[cfg(test)]
    pub const fn new(palette: Palette, has_blocks: bool) -> Look {
        Look {
            palette,
            has_blocks,
        }
    }

    /// As the environment says.
    pub fn of_environment() -> Look {
        Look::by(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn by(variable: impl Fn(&str) -> Option<String>) -> Look {
        let has = |name: &str, part: &str| variable(name).is_some_and(|value| value.contains(part));
        let palette = match () {
            () if variable("NO_COLOR").is_some() => Palette::None,
            () if has("TERM", "256color") || variable("COLORTERM").is_some() => Palette::Wide,
            () => Palette::Basic,
        };
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(variable);
        let locale = locale.unwrap_or_default().to_lowercase();
        Look {
            palette,
            has_blocks: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    fn colour(self, basic: Color, wide: u8) -> Style {
        match self.palette {
            Palette::None => Style::new(),
            Palette::Basic => Style::new().fg(basic),
            Palette::Wide => Style::new().fg(Color::Indexed(wide)),
        }
    }

    /// A kind of memory.
    pub fn kind(self, kind: Kind) -> Style {
        match kind {
            Kind::Uncompressed => self.colour(Color::Blue, 32),
            Kind::Compressed => self.colour(Color::Yellow, 214),
            Kind::Raw => self.colour(Color::Magenta, 175),
            Kind::File => self.colour(Color::Cyan, 80),
            Kind::Unfoldable => self.colour(Color::Red, 166),
            Kind::Own => self.colour(Color::Gray, 246),
            Kind::Free => self.faint(),
        }
    }

    /// What is not to catch the eye.
    pub fn faint(self) -> Style {
        match self.palette {
            Palette::None => Style::new(),
            _ => Style::new().add_modifier(Modifier::DIM),
        }
    }

    /// Names of jobs, heads of parts.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The line that is chosen, and heads of columns.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// What the user should see.
    pub fn warning(self) -> Style {
        self.colour(Color::Red, 166).add_modifier(Modifier::BOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(variables: &[(&str, &str)]) -> Look {
        Look::by(|name| {
            let found = variables.iter().find(|(one, _)| *one == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_says_which_colours_and_letters_there_are() {
        let look = by(&[("TERM", "xterm-256color"), ("LANG", "de_DE.UTF-8")]);
        assert_eq!(look, Look::new(Palette::Wide, true));
        let look = by(&[("TERM", "linux"), ("LC_ALL", "C"), ("LANG", "C.UTF-8")]);
        assert_eq!(look, Look::new(Palette::Basic, false));
        let look = by(&[("TERM", "xterm-256color"), ("NO_COLOR", "1")]);
        assert_eq!(look, Look::new(Palette::None, false));
    }

    #[test]
    fn no_two_kinds_share_a_letter_or_a_colour_and_without_colours_there_is_none() {
        let all = [Kind::USED.as_slice(), &[Kind::Free]].concat();
        let (wide, none) = (
            Look::new(Palette::Wide, true),
            Look::new(Palette::None, true),
        );
        for (at, one) in all.iter().enumerate() {
            assert_eq!(none.kind(*one), Style::new());
            for other in &all[at + 1..] {
                assert_ne!(one.letter(), other.letter());
                assert_ne!(wide.kind(*one), wide.kind(*other));
            }
        }
        assert_eq!(none.warning().fg, None);
    }
}
