//! What each call of the engine costs: `cargo run --release -p pleat-engine --example engine_speed --
//! [PAGES]`, a million by default.
//!
//! The driver holds a lock around every call, so these are the times faults wait for each other.
//! Half of the pages are resident, half in the compressed cache; the order is random.

use std::sync::OnceLock;
use std::time::Instant;

use pleat_codec::Folded;
use pleat_engine::{preset, Engine, FillPlan, Settings, WriteOut};
use pleat_types::{CodecId, PageNo, PageRange, SpaceId, StagingSlot};

/// Unless given as the argument.
const PAGES: u64 = 1 << 20;
const ROUNDS: u64 = 200_000;
/// Mean length of a folded page; they are spread evenly from a third of it to five thirds.
const FOLDED_BYTES: usize = 1500;
const BATCH: usize = 64;
static CONTENT: [u8; 4096] = [7; 4096];

fn pages() -> u64 {
    static GIVEN: OnceLock<u64> = OnceLock::new();
    *GIVEN.get_or_init(|| {
        let given = std::env::args().nth(1).and_then(|text| text.parse().ok());
        given.unwrap_or(PAGES).next_power_of_two()
    })
}

/// A page of the space in an order without pattern (multiplication by an odd number permutes).
fn scattered(index: u64) -> PageNo {
    PageNo(index.wrapping_mul(0x9E37_79B9_7F4A_7C15) % pages())
}

fn report(what: &str, started: Instant, calls: u64) {
    println!(
        "{what:<34} {:>7.0} ns",
        started.elapsed().as_nanos() as f64 / calls as f64
    );
}

/// Folds a page that was taken.
fn fold(engine: &mut Engine, space: SpaceId, page: PageNo) {
    let Some(body) = engine.taken(space, page, StagingSlot(0)) else {
        return;
    };
    let third = FOLDED_BYTES / 3;
    let codec = CodecId(1);
    let len = third + page.0.wrapping_mul(0x9E37_79B9) as usize % (4 * third);
    engine
        .folded(body, Folded::Bytes { codec, len }, &CONTENT[..len])
        .expect("room");
}

fn take_and_fold(engine: &mut Engine, space: SpaceId, count: usize) {
    let mut chosen = Vec::new();
    engine.choose_victims(&[(space, u32::MAX)], count, &mut chosen);
    for (space, page) in chosen {
        fold(engine, space, page);
    }
}

/// User time of this process in ns, to 10 ms.
fn user_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: f64 = after_name
        .split(' ')
        .nth(11)
        .map_or(0.0, |ticks| ticks.parse().unwrap_or(0.0));
    ticks * 1e7
}

/// Faults at random on pages that are away, and for every 64 of them takes and folds the 64 oldest:
/// what one fault costs in all, when memory is full.
fn steady(engine: &mut Engine, space: SpaceId) {
    let mut plan = FillPlan::default();
    let (mut faults, mut hits, mut index) = (0, 0, ROUNDS);
    let (started, user) = (Instant::now(), user_ns());
    while faults < 10 * ROUNDS {
        let page = scattered(index);
        index += 1;
        if engine.touch(space, page, false) {
            hits += 1;
            continue;
        }
        engine.fault(space, page, true, &mut plan);
        engine.filled(space, PageRange::new(page, 1));
        faults += 1;
        if faults % BATCH as u64 == 0 {
            take_and_fold(engine, space, BATCH);
        }
    }
    report("fault to folded, all of the above", started, faults);
    let user = (user_ns() - user) / faults as f64;
    println!(
        "{:<34} {user:>7.0} ns",
        "... of it in the engine (user time)"
    );
    println!("({hits} hits besides)");
}

fn main() {
    let budget_bytes = pages() * 4096;
    let settings = Settings {
        budget_bytes,
        reserve_bytes: 1 << 20,
        floor_bytes: 0,
        run_max: 16,
        swap: None,
        tracks_writes: false,
        write_out: WriteOut::OnDemand,
        brings_neighbours: false,
        keeps_copies: false,
        checks: false,
    };
    let parts = preset("pleat").and_then(|preset| preset.parts(budget_bytes));
    let mut engine = Engine::new(settings, parts.expect("the default preset"));
    let space = engine.add_space();
    for index in 0..pages() {
        engine.adopt(space, PageRange::new(scattered(index), 1));
    }
    take_and_fold(&mut engine, space, pages() as usize / 2);

    let mut plan = FillPlan::default();
    let started = Instant::now();
    for index in 0..ROUNDS {
        engine.fault(space, scattered(index), true, &mut plan);
    }
    report("fault, 1500 bytes copied", started, ROUNDS);

    let started = Instant::now();
    for index in 0..ROUNDS {
        engine.filled(space, PageRange::new(scattered(index), 1));
    }
    report("filled", started, ROUNDS);

    let mut chosen = Vec::new();
    let started = Instant::now();
    for _ in 0..ROUNDS / BATCH as u64 {
        engine.choose_victims(&[(space, u32::MAX)], BATCH, &mut chosen);
    }
    report(
        "choose_victims, per page of 64",
        started,
        chosen.len() as u64,
    );

    let mut bodies = Vec::new();
    let started = Instant::now();
    for &(space, page) in &chosen {
        bodies.extend(engine.taken(space, page, StagingSlot(0)));
    }
    report("taken", started, chosen.len() as u64);

    let bytes = [7; FOLDED_BYTES];
    let started = Instant::now();
    for &body in &bodies {
        let result = Folded::Bytes {
            codec: CodecId(1),
            len: FOLDED_BYTES,
        };
        engine.folded(body, result, &bytes).expect("room");
    }
    report("folded, 1500 bytes copied", started, bodies.len() as u64);

    steady(&mut engine, space);

    let started = Instant::now();
    engine.fork_space(space);
    report("fork_space, per page", started, pages());

    let started = Instant::now();
    engine.end_space(space);
    report("end_space, per page", started, pages());
}
