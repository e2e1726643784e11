//! Parameters of generators: one definition of each, from which the field, its default, its range,
//! its help and its parsing come.

use super::SpecError;
use crate::contents::Contents;

/// The most pages a region of a generator may have: 4 PiB.
pub(crate) const PAGES_MAX: u64 = 1 << 40;
/// The most of anything else that is counted.
pub(crate) const COUNT_MAX: u64 = 1 << 60;

/// What one parameter is called and means.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// As it is written in a specification.
    pub name: &'static str,
    /// Its value when it is not given, as text.
    pub default: String,
    /// What it means.
    pub help: &'static str,
}

/// Settings that can be changed by name.
pub trait Parameters {
    /// All of them, in the order of their definition.
    fn list(&self) -> Vec<Parameter>;
    /// Sets one: `None` when there is none of that name, an error saying what is expected when the
    /// text is not a value for it.
    fn set(&mut self, name: &str, text: &str) -> Option<Result<(), String>>;
    /// Whether every value is in its range; the name of the first that is not, and what it may be.
    fn check(&self) -> Result<(), (&'static str, String)>;
}

/// A kind of value that a parameter can have.
pub(crate) trait Value: Sized + PartialOrd + std::fmt::Display {
    /// The value that was written, if it is one.
    fn read(text: &str) -> Option<Self>;
}

impl Value for u64 {
    /// A whole number; K, M and G after it count in 1024s.
    fn read(text: &str) -> Option<u64> {
        let (digits, unit) = match text.chars().last()?.to_ascii_lowercase() {
            'k' => (&text[..text.len() - 1], 1 << 10),
            'm' => (&text[..text.len() - 1], 1 << 20),
            'g' => (&text[..text.len() - 1], 1 << 30),
            _ => (text, 1),
        };
        digits.parse::<u64>().ok()?.checked_mul(unit)
    }
}

impl Value for f64 {
    fn read(text: &str) -> Option<f64> {
        text.parse().ok()
    }
}

/// Defines a struct of parameters: each field with its help, type, default and range.
macro_rules! parameters {
    (
        $(#[doc = $about:literal])*
        pub struct $name:ident {
            $( $(#[doc = $help:literal])+ $field:ident: $kind:ty = $default:literal in $range:expr, )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $help])+ pub $field: $kind, )*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $( $field: $default, )* }
            }
        }

        impl $crate::generate::parameters::Parameters for $name {
            fn list(&self) -> Vec<$crate::generate::parameters::Parameter> {
                vec![$( $crate::generate::parameters::Parameter {
                    name: stringify!($field),
                    default: self.$field.to_string(),
                    help: concat!($($help),+).trim(),
                }, )*]
            }

            fn set(&mut self, name: &str, text: &str) -> Option<Result<(), String>> {
                $( if name == stringify!($field) {
                    let read = <$kind as $crate::generate::parameters::Value>::read(text);
                    return Some(match read.filter(|value| ($range).contains(value)) {
                        Some(value) => {
                            self.$field = value;
                            Ok(())
                        }
                        None => Err($crate::generate::parameters::expected(&$range)),
                    });
                } )*
                None
            }

            fn check(&self) -> Result<(), (&'static str, String)> {
                $( if !($range).contains(&self.$field) {
                    let expected = $crate::generate::parameters::expected(&$range);
                    return Err((stringify!($field), expected));
                } )*
                Ok(())
            }
        }
    };
}
pub(crate) use parameters;

/// What a value out of its range should have been.
pub(crate) fn expected<V: Value>(range: &std::ops::RangeInclusive<V>) -> String {
    format!("a number from {} to {}", range.start(), range.end())
}

parameters! {
    /// What every generator has.
    pub struct Common {
        /// Which of all possible traces; the same seed gives the same trace.
        seed: u64 = 1 in 0..=u64::MAX,
        /// Mean compressed size, as a share of a page.
        ratio: f64 = 0.4 in 0.0..=1.0,
        /// How far compressed sizes lie from the mean at most, as a share of a page.
        spread: f64 = 0.15 in 0.0..=1.0,
        /// Share of the pages that do not compress at all.
        raw: f64 = 0.0 in 0.0..=1.0,
        /// Share of the pages that are one repeated word.
        same: f64 = 0.0 in 0.0..=1.0,
        /// CPU time before each reference, in nanoseconds.
        think_ns: u64 = 1000 in 0..=COUNT_MAX,
    }
}

impl Common {
    /// The compressed sizes that these describe.
    pub(crate) fn contents(&self) -> Result<Contents, SpecError> {
        Contents::new(self.seed, self.ratio, self.spread, self.raw, self.same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units_and_ranges() {
        let mut common = Common::default();
        assert_eq!(common.set("think_ns", "2k"), Some(Ok(())));
        assert_eq!(common.think_ns, 2048);
        assert_eq!(common.set("pages", "2"), None);
        for (name, text) in [
            ("ratio", "1.1"),
            ("ratio", "NaN"),
            ("seed", "-1"),
            ("seed", ""),
        ] {
            assert!(common.set(name, text).unwrap().is_err(), "{name}={text}");
        }
        assert_eq!(u64::read("99999999999999999999"), None);
        assert_eq!(u64::read("99999999999G"), None);
        assert_eq!(u64::read("é"), None);
    }

    #[test]
    fn every_parameter_has_help_and_its_default() {
        for parameter in Common::default().list() {
            assert!(parameter.help.ends_with('.'), "{parameter:?}");
            let mut common = Common::default();
            assert_eq!(common.set(parameter.name, &parameter.default), Some(Ok(())));
            assert_eq!(common, Common::default());
        }
    }
}
