//! Sizes of memory as the tests speak of them: whole mebibytes.

use std::fmt;

/// A number of mebibytes (2^20 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Megabytes(pub u64);

impl Megabytes {
    /// `percent` of this size, rounded up to a whole mebibyte.
    pub fn percent(self, percent: u64) -> Megabytes {
        Megabytes((self.0 * percent).div_ceil(100))
    }

    /// This many bytes.
    pub fn bytes(self) -> u64 {
        self.0 << 20
    }
}

/// As `pleat run --memory` takes it: `44M`.
impl fmt::Display for Megabytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}M", self.0)
    }
}
