//! What the tests of every layer say in the same way: that they did not run, and why.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Says that the calling test, or a part of it, does not run here: a line `SKIP TEST: why` on stderr, past the test runner,
/// which would keep it to itself. Once for each, however many cases a test has. `tests/counted` counts these lines, and in CI each must
/// stand in `tests/skips.txt`.
pub fn skip(why: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let why = why.to_string().trim_end().replace('\n', "; ");
    let said = format!("{test}: {why}");
    let mut before = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !before.insert(said) {
        return;
    }
    // A line of its own: the runner has written "test NAME ... " without an end.
    let _ = writeln!(io::stderr(), "\nSKIP {test}: {why}");
}
