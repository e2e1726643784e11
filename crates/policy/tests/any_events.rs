//! Whatever events come, in whatever order: no policy panics, and none lets the cache outgrow the budget.

use pleat_policy::{
    admission_by_name, sizing_by_name, Ages, Backed, CacheView, Candidate, Costs, List, Refault,
    Sizing, Tier,
};
use proptest::collection::vec;
use proptest::prelude::*;

const POLICIES: [&str; 12] = [
    "aggressive",
    "balance:60%",
    "castro03",
    "cervera99",
    "cervera99:64M",
    "cpc08:95%",
    "douglis93",
    "kaplan99",
    "pleat",
    "pleat:10%:100%",
    "sluggish",
    "static:60%",
];

/// These grow on evidence alone; others have a bound.
const UNBOUNDED: [&str; 3] = ["aggressive", "castro03", "sluggish"];

#[derive(Clone, Debug)]
enum Event {
    MayGrow,
    Giver,
    Read,
    Hit(List),
    /// So many times.
    Refault(Refault, u32),
    Costs(Costs),
}

/// Small numbers and absurd ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..10_000u64, 1 => any::<u64>()]
}

fn backed() -> impl Strategy<Value = Backed> {
    prop_oneof![Just(Backed::BySwap), Just(Backed::ByFile)]
}

fn refault() -> impl Strategy<Value = Refault> {
    let tier = prop_oneof![Just(Tier::Staged), Just(Tier::Cache), Just(Tier::Backing)];
    (tier, number(), backed(), any::<bool>(), any::<bool>()).prop_map(
        |(tier, distance_pages, backed, in_round, by_arrival)| Refault {
            tier,
            distance_pages,
            backed,
            in_round,
            by_arrival,
        },
    )
}

fn costs() -> impl Strategy<Value = Costs> {
    let four = (number(), number(), number(), number());
    four.prop_map(|(compress_ns, decompress_ns, read_ns, write_ns)| Costs {
        compress_ns,
        decompress_ns,
        read_ns,
        write_ns,
    })
}

fn event() -> impl Strategy<Value = Event> {
    let list = prop_oneof![Just(List::Expense), Just(List::Profit)];
    prop_oneof![
        Just(Event::MayGrow),
        Just(Event::Giver),
        Just(Event::Read),
        list.prop_map(Event::Hit),
        (refault(), 0..3000u32).prop_map(|(refault, times)| Event::Refault(refault, times)),
        costs().prop_map(Event::Costs),
    ]
}

fn view() -> impl Strategy<Value = CacheView> {
    let ages = vec(proptest::option::of(number()), 3);
    let sizes = (number(), number(), number(), number(), number());
    (sizes, ages).prop_map(|(sizes, ages)| CacheView {
        budget_bytes: sizes.0.saturating_mul(4096),
        cache_bytes: sizes.1.saturating_mul(4096),
        cached_pages: sizes.2,
        resident_pages: sizes.3,
        back_pages: sizes.4,
        ages: Ages {
            anonymous: ages[0],
            file: ages[1],
            compressed: ages[2],
        },
    })
}

fn apply(policy: &mut dyn Sizing, event: &Event, view: &CacheView) {
    match event {
        Event::MayGrow => drop(policy.may_grow(view)),
        Event::Giver => drop(policy.giver(view)),
        Event::Read => policy.read(view),
        Event::Hit(list) => drop(policy.hit(*list, view)),
        Event::Refault(refault, times) => (0..*times).for_each(|_| policy.refault(*refault, view)),
        Event::Costs(costs) => policy.costs(*costs),
    }
}

proptest! {
    #[test]
    fn no_sizing_policy_panics_or_lets_the_cache_outgrow_the_budget(
        name in prop::sample::select(&POLICIES[..]),
        events in vec((event(), view()), 0..50),
    ) {
        let mut policy = sizing_by_name(name).unwrap();
        for (event, view) in &events {
            apply(policy.as_mut(), event, view);
            let full = CacheView { cache_bytes: view.budget_bytes, ..*view };
            prop_assert!(UNBOUNDED.contains(&name) || !policy.may_grow(&full), "{name}");
        }
    }

    #[test]
    fn sizing_policies_decide_alike_when_the_same_happens(
        name in prop::sample::select(&POLICIES[..]),
        events in vec((event(), view()), 0..50),
    ) {
        let (mut one, mut other) = (sizing_by_name(name).unwrap(), sizing_by_name(name).unwrap());
        for (event, view) in &events {
            apply(one.as_mut(), event, view);
            apply(other.as_mut(), event, view);
            prop_assert_eq!(one.may_grow(view), other.may_grow(view));
            prop_assert_eq!(one.giver(view), other.giver(view));
        }
    }

    #[test]
    fn the_record_of_an_admission_rule_never_outgrows_its_bound(
        runs in vec((0..5u8, number(), 0..6000u64, backed(), any::<bool>()), 0..60),
    ) {
        let mut rule = admission_by_name("clean-switch:1000+pass").unwrap();
        for (what, first, times, backed, clean) in runs {
            for id in (0..times).map(|step| first.wrapping_add(step)) {
                match what {
                    0 => drop(rule.admits(Candidate { id, backed, clean })),
                    1 => rule.clean_released(),
                    2 => rule.clean_reclaimed(),
                    _ => rule.read(id),
                }
            }
            prop_assert!(rule.metadata_bytes() <= 8000);
            prop_assert_eq!(rule.clean_is_off(), rule.metadata_bytes() > 0);
            let dirty = Candidate { id: first, backed, clean: false };
            prop_assert!(rule.admits(dirty));
        }
    }
}
