//! `pleat bench`: what codecs cost on the user's own pages, and how to get at such pages.
//!
//! Measuring itself is `pleat_codec::measure`; here are only the ways in (files, a running process)
//! and out (table, JSON, plot).

mod codec;
mod dump;
mod svg;

use crate::args::Bench;
use crate::exit::Exit;

/// Why there is no result: what to tell the user, and with which exit status.
#[derive(Debug)]
struct Stop {
    exit: Exit,
    message: String,
}

impl Stop {
    /// What the user asked for cannot be.
    fn mistake(message: impl Into<String>) -> Stop {
        Stop {
            exit: Exit::Usage,
            message: message.into(),
        }
    }

    /// pleat failed.
    fn failure(message: impl Into<String>) -> Stop {
        Stop {
            exit: Exit::Failed,
            message: message.into(),
        }
    }
}

/// Does what one of the subcommands of `pleat bench` says.
pub fn bench(what: Bench) -> Exit {
    let done = match what {
        Bench::Codec(raw) => codec::codec(&raw),
        Bench::Dump(raw) => dump::dump(&raw),
    };
    match done {
        Ok(()) => Exit::Program(0),
        Err(stop) => crate::fail(&stop.message, stop.exit),
    }
}
