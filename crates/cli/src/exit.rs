//! The exit status of `pleat`: one enum for everything a shell may see.
//!
//! A program's own status passes through unchanged, so a script cannot tell `pleat run -- x` from
//! `x`; pleat's own failures use the numbers that `env` and `timeout` use.

use std::process::ExitCode;

/// How pleat ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The program ended with this status, or pleat itself succeeded (0).
    Program(i32),
    /// The program was killed by this signal.
    Signal(i32),
    /// What the user asked for cannot be: wrong flag, size, preset or directory.
    Usage,
    /// `pleat doctor` found something missing.
    Unfit,
    /// pleat failed, or had to stop the job.
    Failed,
    /// The program exists but cannot be executed.
    CannotExecute,
    /// There is no such program.
    NotFound,
}

impl Exit {
    /// The number a shell sees in `$?`.
    pub fn code(self) -> u8 {
        match self {
            Exit::Program(code) => code as u8,
            Exit::Signal(signal) => 128u8.wrapping_add(signal as u8),
            Exit::Unfit => 1,
            Exit::Usage => 2,
            Exit::Failed => 125,
            Exit::CannotExecute => 126,
            Exit::NotFound => 127,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why there is no result: what to tell the user, and with which exit status.
#[derive(Debug)]
pub struct Stop {
    pub exit: Exit,
    pub message: String,
}

impl Stop {
    /// What the user asked for cannot be.
    pub fn mistake(message: impl Into<String>) -> Stop {
        Stop {
            exit: Exit::Usage,
            message: message.into(),
        }
    }

    /// pleat failed.
    pub fn failure(message: impl Into<String>) -> Stop {
        Stop {
            exit: Exit::Failed,
            message: message.into(),
        }
    }

    /// Tells the user, if there is something to tell, and gives the exit status.
    pub fn exit(done: Result<(), Stop>) -> Exit {
        match done {
            Ok(()) => Exit::Program(0),
            Err(stop) => crate::fail(&stop.message, stop.exit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_status_passes_through() {
        for code in 0..=255 {
            assert_eq!(Exit::Program(code).code(), code as u8);
        }
    }

    #[test]
    fn a_signal_is_reported_as_a_shell_does() {
        assert_eq!(Exit::Signal(libc::SIGKILL).code(), 137);
        assert_eq!(Exit::Signal(libc::SIGSEGV).code(), 139);
        assert_eq!(Exit::Signal(libc::SIGTERM).code(), 143);
    }

    #[test]
    fn pleats_own_failures_have_the_documented_numbers() {
        let codes = [
            Exit::Unfit,
            Exit::Usage,
            Exit::Failed,
            Exit::CannotExecute,
            Exit::NotFound,
        ];
        assert_eq!(codes.map(Exit::code), [1, 2, 125, 126, 127]);
    }
}
