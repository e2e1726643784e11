//! `pleat doctor`: what this machine allows, one line a check, each missing thing with the one
//! command that mends it.
//!
//! Looking is apart from judging: `userfaultfd` and `machine` gather facts and turn them into
//! [`Check`]s by pure functions; this file only prints them. `pleat run` asks the same checks for an
//! obstacle before it starts, so both always give the same remedy.

mod machine;
mod surroundings;
mod userfaultfd;

use crate::exit::Exit;
use std::fmt;
use std::io::Write;

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// As it should be.
    Ok,
    /// `pleat run` cannot work without it.
    Missing,
    /// Works, but worth knowing.
    Note,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    verdict: Verdict,
    name: &'static str,
    finding: String,
    /// One command, or one thing to do.
    remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Check {
        Check {
            verdict: Verdict::Ok,
            name,
            finding: finding.into(),
            remedy: None,
        }
    }

    fn note(name: &'static str, finding: impl Into<String>) -> Check {
        Check {
            verdict: Verdict::Note,
            name,
            finding: finding.into(),
            remedy: None,
        }
    }

    fn missing(name: &'static str, finding: impl Into<String>, remedy: &str) -> Check {
        Check {
            verdict: Verdict::Missing,
            name,
            finding: finding.into(),
            remedy: None,
        }
        .mended_by(remedy)
    }

    fn mended_by(self, remedy: &str) -> Check {
        Check {
            remedy: Some(remedy.to_owned()),
            ..self
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Missing => "MISSING",
            Verdict::Note => "note",
        };
        write!(f, "{verdict:8} {:12} {}", self.name, self.finding)?;
        match &self.remedy {
            Some(remedy) => write!(f, ": {remedy}"),
            None => Ok(()),
        }
    }
}

/// Prints every check; the exit status says whether `pleat run` can work.
pub fn doctor() -> Exit {
    let mut checks = basics();
    if first_missing(checks.clone()).is_none() || machine::has_proc() {
        checks.extend(machine::checks());
    }
    let mut stdout = std::io::stdout().lock();
    let mut print = || {
        checks
            .iter()
            .try_for_each(|check| writeln!(stdout, "{check}"))?;
        stdout.flush()
    };
    match print() {
        // Who closes a pipe has read enough, which changes nothing about the verdict.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            return crate::fail(&format!("cannot print: {error}"), Exit::Failed);
        }
        _ => {}
    }
    match first_missing(checks) {
        Some(_) => Exit::Unfit,
        None => Exit::Program(0),
    }
}

/// What would keep a job from being managed, with its remedy, if anything does.
///
/// Cheap enough to ask before every run: a handful of system calls.
pub fn obstacle() -> Option<String> {
    first_missing(basics()).map(|check| {
        format!(
            "cannot manage memory here: {}: {}",
            check.finding,
            check.remedy.unwrap_or_default()
        )
    })
}

/// What is needed to manage memory at all. Without /proc the rest cannot be told.
fn basics() -> Vec<Check> {
    if !machine::has_proc() {
        return vec![Check::missing(
            "proc",
            "/proc is not mounted",
            "mount -t proc proc /proc",
        )];
    }
    let mut checks = vec![machine::kernel()];
    checks.extend(userfaultfd::checks());
    checks
}

fn first_missing(checks: Vec<Check>) -> Option<Check> {
    checks
        .into_iter()
        .find(|check| check.verdict == Verdict::Missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_one_line_that_ends_in_its_remedy() {
        let check = Check::missing("kernel", "is 5.4", "sudo apt-get install a-newer-one");
        let line = check.to_string();
        assert_eq!(
            line,
            "MISSING  kernel       is 5.4: sudo apt-get install a-newer-one"
        );
    }

    #[test]
    fn notes_do_not_make_a_machine_unfit() {
        let fit = vec![Check::ok("a", "b"), Check::note("c", "d").mended_by("e")];
        assert_eq!(first_missing(fit.clone()), None);
        let missing = Check::missing("f", "g", "h");
        let unfit = [fit, vec![missing.clone()]].concat();
        assert_eq!(first_missing(unfit), Some(missing));
    }
}
