//! Whose word it is that pages leave the compressed cache.
//!
//! Random histories of several spaces, of which some are empty, some at work and some stopped, under a sizing policy that
//! never asks for anything: what leaves all the same must have had to. (`driver.rs` checks at each choice of victims
//! that the cache has to give only where no space that can be asked has a page.)

use pleat_policy::{Advice, CacheView, Giver, List, Sizing};
use proptest::prelude::*;

use super::model::{apply, step, Step};
use super::script::{clusters, settings};
use super::world::World;
use crate::debt::Why;
use crate::{Parts, Settings, SwapSettings, Victims};

/// Wants all that it can get.
struct Greedy;

impl Sizing for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn may_grow(&mut self, _view: &CacheView) -> bool {
        true
    }

    fn hit(&mut self, _list: List, _view: &CacheView) -> Advice {
        Advice::Keep
    }

    fn giver(&mut self, _view: &CacheView) -> Giver {
        Giver::Uncompressed
    }
}

fn world(pages: u64) -> World {
    let swap = SwapSettings {
        fragment_bytes: 1,
        ..clusters()
    };
    let settings = Settings {
        budget_bytes: pages * 4096,
        run_max: 4,
        swap: Some(swap),
        brings_neighbours: true,
        ..settings()
    };
    let parts = Parts {
        layout: pleat_store::layout_by_name("bins", 1 << 20).unwrap(),
        sizing: Box::new(Greedy),
        admission: pleat_policy::admission_by_name("all").unwrap(),
        victims: Victims::Lives,
    };
    World::of(settings, parts)
}

/// Writes as a driver does that does what is wanted and no more: each page of it is counted under a reason, and one
/// that nobody owes goes only where all that could be taken would not be enough.
fn write_what_is_wanted(world: &mut World) {
    if !world.engine.write_wanted() {
        return;
    }
    let counters = world.engine.counters();
    let (before, plans) = (counters.forced_pages(), world.writing.len());
    let is_owed =
        world.engine.cache.debt.total() > world.engine.cache.bodies.counts().writing_bytes;
    world.plan_write();
    let planned = world.writing[plans..].iter().flat_map(|plan| &plan.items);
    let planned = planned.count() as u64;
    assert_eq!(
        world.engine.counters().forced_pages() - before,
        planned,
        "left without a reason"
    );
    let missing = 4 * 4096 + counters.over_bytes as i64 - counters.free_bytes as i64;
    let takeable = counters.resident_pages - counters.stuck_pages + counters.staged_pages;
    let is_too_little = missing > (takeable * 4096 / 4) as i64;
    assert!(
        planned == 0 || is_owed || is_too_little || world.engine.starved,
        "{takeable} pages could be taken, {missing} bytes are missing"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pages_leave_the_cache_only_by_the_policys_word_or_when_nothing_resident_can_go(
        pages in 8..120u64,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut world = world(pages);
        for step in steps {
            match step {
                Step::PlanWrite => write_what_is_wanted(&mut world),
                step => apply(&mut world, step),
            }
            prop_assert_eq!(world.engine.cache.debt.of(Why::Policy), 0, "it never asked");
            prop_assert_eq!(world.engine.violation(), None);
        }
        world.finish();
    }
}
