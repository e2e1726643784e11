//! `pleat bench`: what codecs cost on the user's own pages, what a swap file holds of them, and how to
//! get at such pages.
//!
//! Measuring itself is `pleat_codec::measure` and `pleat_sim::density`; here are only the ways in (files,
//! a running process) and out (table, JSON, plot).

mod codec;
mod dump;
mod sizes;
mod svg;
mod swap;

use crate::args::Bench;
use crate::exit::{Exit, Stop};

/// Does what one of the subcommands of `pleat bench` says.
pub fn bench(what: Bench) -> Exit {
    let done = match what {
        Bench::Codec(raw) if raw.sizes => sizes::sizes(&raw),
        Bench::Codec(raw) => codec::codec(&raw),
        Bench::Swap(raw) => swap::swap(&raw),
        Bench::Dump(raw) => dump::dump(&raw),
    };
    Stop::exit(done)
}
