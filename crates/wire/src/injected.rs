//! What the supervisor leaves for an agent that it starts in a running process.
//!
//! Where the process has loaded the library, and its constructor has run, only the agent's thread is missing. Elsewhere the
//! library's code is copied into memory of the process's; nothing has told the copy anything: it has no environment of its own
//! and no constructor has run. What either needs the supervisor writes into it, before the thread starts.

/// Most bytes of the socket's name.
pub const NAME_MAX: usize = 64;

/// The symbol of the library's [`Injected`].
pub const GIVEN_SYMBOL: &str = "pleat_given";

/// The symbol of the code by which the thread is started: a `syscall` instruction, behind which the new thread begins.
pub const START_SYMBOL: &str = "pleat_start";

/// Bytes of the agent's area, which the supervisor maps behind the copy of the library.
pub const AREA_LEN: usize = super::PAGE + AREA_STACK + 2 * super::message::TAKE_MAX * super::PAGE;

/// Bytes of the agent's stack, which lies behind the area's first page.
pub const AREA_STACK: usize = 16 * super::PAGE;

/// The library has its agent, or has not come to itself.
pub const UNKNOWN: u64 = 0;
/// The library waits for its agent.
pub const WAITS: u64 = 1;
/// The library can do nothing here, in another C library than it was made for.
pub const UNFIT: u64 = 2;

/// Where everything is, and how the supervisor is reached.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Injected {
    /// The abstract socket's name.
    pub name: [u8; NAME_MAX],
    /// So many bytes of it count.
    pub name_length: u64,
    /// The copy of the library: its first address, and where it ends. Zeros where it was loaded.
    pub image: [u64; 2],
    /// First address of the area; it has [`AREA_LEN`] bytes.
    pub area: u64,
    /// Where the beacon of the process is that this one was forked from, if that was managed; else 0.
    pub beacon: u64,
    /// What the library says of itself, where it was loaded: [`UNKNOWN`], [`WAITS`] or [`UNFIT`].
    pub state: u64,
    /// Not 0: the agent is to offer a conversation, and connects only if it cannot.
    pub is_to_offer: u64,
    /// The conversation that the agent offers: [`Offer::word`]; 0: none.
    pub offer: u64,
}

/// One end of a connection, by its number in the descriptor table of the agent's thread. The supervisor takes it from there
/// (pidfd_getfd), so it matters neither which network namespace the process is in nor which files it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The agent's thread, as its process numbers it.
    pub thread: i32,
    /// Its descriptor.
    pub descriptor: i32,
}

impl Offer {
    /// Both in one word, which is not 0.
    pub fn word(self) -> u64 {
        u64::from(self.thread as u32) | (u64::from(self.descriptor as u32) + 1) << 32
    }

    /// From such a word; `None` for anything else.
    pub fn of_word(word: u64) -> Option<Offer> {
        let thread = i32::try_from(word as u32).ok()?;
        let descriptor = i32::try_from((word >> 32).checked_sub(1)?).ok()?;
        (thread > 0).then_some(Offer { thread, descriptor })
    }
}

impl Injected {
    /// Nothing.
    pub const NONE: Injected = Injected {
        name: [0; NAME_MAX],
        name_length: 0,
        image: [0; 2],
        area: 0,
        beacon: 0,
        state: UNKNOWN,
        is_to_offer: 0,
        offer: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_read_as_it_was_written_and_nothing_else_is_one() {
        for (thread, descriptor) in [(1, 0), (4_194_304, 1), (i32::MAX, i32::MAX)] {
            let offer = Offer { thread, descriptor };
            assert_eq!(Offer::of_word(offer.word()), Some(offer));
        }
        let negative = (1 << 31) | (1 << 32);
        let wrong = [0, 5, 1 << 32, u64::MAX, (1 << 63) + (1 << 32) + 7, negative];
        for word in wrong {
            assert_eq!(Offer::of_word(word), None, "{word:x}");
        }
    }
}
