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

/// By what the library's [`Injected`] is known from other memory.
pub const MARK: [u64; 2] = [0x7a1d_93e5_0c6b_f824, 0x51be_40d7_e29a_8c63];

/// How far a library has come that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Stage {
    /// Its constructor has not run.
    Loaded = 0,
    /// It waits for its agent.
    Waits = 1,
    /// It can do nothing here, nor in children: in another C library than it was made for, or without a supervisor. It is told so,
    /// too, by whoever puts another agent than its own into its process.
    Unfit = 2,
    /// It is at work, or has its agent.
    Works = 3,
    /// Its agent was put there from outside.
    Placed = 4,
    /// It is of no use in this process any more, for the supervisor does not serve it. In a child it may be.
    Left = 5,
}

impl Stage {
    /// All, each at its number.
    const ALL: [Stage; 6] = [
        Stage::Loaded,
        Stage::Waits,
        Stage::Unfit,
        Stage::Works,
        Stage::Placed,
        Stage::Left,
    ];
}

/// [`Stage`], and whose it is. A child has inherited that of its parent until the library has come to itself there, and nothing is
/// known of it meanwhile: it may be about to begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// How far it has come.
    pub stage: Stage,
    /// In the process of this number, as that calls itself.
    pub pid: i32,
}

impl State {
    /// Both in one word.
    pub fn word(self) -> u64 {
        self.stage as u64 | u64::from(self.pid as u32) << 32
    }

    /// From such a word; `None` for anything else.
    pub fn of_word(word: u64) -> Option<State> {
        let stage = *Stage::ALL.get(word as u32 as usize)?;
        let pid = i32::try_from(word >> 32).ok()?;
        Some(State { stage, pid })
    }
}

/// Where everything is, and how the supervisor is reached.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Injected {
    /// [`MARK`].
    pub mark: [u64; 2],
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
    /// Where the library was loaded: its [`State::word`].
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
        mark: MARK,
        name: [0; NAME_MAX],
        name_length: 0,
        image: [0; 2],
        area: 0,
        beacon: 0,
        state: 0,
        is_to_offer: 0,
        offer: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written_and_nothing_else_is_one() {
        let pids = [0, 1, 4_194_304, i32::MAX, 7, 8];
        for (number, (stage, pid)) in Stage::ALL.into_iter().zip(pids).enumerate() {
            assert_eq!(stage as usize, number);
            let state = State { stage, pid };
            assert_eq!(State::of_word(state.word()), Some(state));
        }
        for word in [6, 1 << 31, u64::MAX, 1 << 63] {
            assert_eq!(State::of_word(word), None, "{word:x}");
        }
        assert_eq!(
            Injected::NONE.state,
            State {
                stage: Stage::Loaded,
                pid: 0
            }
            .word()
        );
    }

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
