//! What each call of the engine costs with a million pages: `cargo run --release --example engine_speed`.
//!
//! The driver holds a lock around every call, so these are the times faults wait for each other.
//! Half of the pages are resident, half in the compressed cache; the order is random.

use std::time::Instant;

use pleat_codec::Folded;
use pleat_engine::{preset, Engine, FillPlan, Settings, WriteOut};
use pleat_types::{CodecId, PageNo, PageRange, SpaceId, StagingSlot};

const PAGES: u64 = 1 << 20;
const ROUNDS: u64 = 200_000;
const FOLDED_BYTES: usize = 1500;
const BATCH: usize = 64;

/// A page of the space in an order without pattern (multiplication by an odd number permutes).
fn scattered(index: u64) -> PageNo {
    PageNo(index.wrapping_mul(0x9E37_79B9_7F4A_7C15) % PAGES)
}

fn report(what: &str, started: Instant, calls: u64) {
    println!(
        "{what:<34} {:>7.0} ns",
        started.elapsed().as_nanos() as f64 / calls as f64
    );
}

fn take_and_fold(engine: &mut Engine, space: SpaceId, count: usize) {
    let (mut chosen, bytes) = (Vec::new(), [7; FOLDED_BYTES]);
    engine.choose_victims(&[(space, u32::MAX)], count, &mut chosen);
    for (space, page) in chosen {
        if let Some(body) = engine.taken(space, page, StagingSlot(0)) {
            let result = Folded::Bytes {
                codec: CodecId(1),
                len: FOLDED_BYTES,
            };
            engine.folded(body, result, &bytes);
        }
    }
}

fn main() {
    let budget_bytes = PAGES * 4096;
    let settings = Settings {
        budget_bytes,
        reserve_bytes: 1 << 20,
        floor_bytes: 0,
        run_max: 16,
        swap: None,
        tracks_writes: false,
        write_out: WriteOut::OnDemand,
    };
    let parts = preset("pleat").and_then(|preset| preset.parts(budget_bytes));
    let mut engine = Engine::new(settings, parts.expect("the default preset"));
    let space = engine.add_space();
    for index in 0..PAGES {
        engine.adopt(space, PageRange::new(scattered(index), 1));
    }
    take_and_fold(&mut engine, space, PAGES as usize / 2);

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
        engine.folded(body, result, &bytes);
    }
    report("folded, 1500 bytes copied", started, bodies.len() as u64);

    let started = Instant::now();
    engine.fork_space(space);
    report("fork_space, per page", started, PAGES);

    let started = Instant::now();
    engine.end_space(space);
    report("end_space, per page", started, PAGES);
}
