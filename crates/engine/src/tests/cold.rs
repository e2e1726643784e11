//! Compressing cold pages once more: which, and what may happen to one meanwhile.

use pleat_codec::Folded;
use pleat_types::CodecId;

use super::script::{settings, Script, CODEC};
use crate::{ColdPage, FaultAnswer, FillItem, WriteOutcome};

const TIGHT: CodecId = CodecId(10);

/// `pages` pages of 1000 bytes, so that a quarter of them, the newest, is on the expense list.
fn stored(pages: u64) -> Script {
    let mut script = Script::new(settings(), "static:60%");
    script.store(pages, 1000);
    script
}

fn choose(script: &mut Script) -> Option<ColdPage> {
    let mut page = ColdPage::default();
    script.engine.choose_cold(&mut page).then_some(page)
}

/// Brings back `len` bytes, each one more than the old ones.
fn bring_tighter(script: &mut Script, page: &ColdPage, len: usize) {
    let (codec, bytes) = (TIGHT, vec![page.bytes[0] + 100; len]);
    let result = Folded::Bytes { codec, len };
    script.engine.recompressed(page, result, &bytes);
    assert_eq!(script.engine.violation(), None);
}

/// How a page would be filled.
fn packed(script: &mut Script, page: u64) -> (CodecId, Vec<u8>) {
    let (answer, plan) = script.fault(page);
    assert_eq!(answer, FaultAnswer::Fill);
    match plan.items[..] {
        [FillItem::Packed { codec, .. }] => (codec, plan.bytes),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn pages_of_the_profit_list_are_chosen_once_the_oldest_first() {
    let mut script = stored(8);
    let chosen = std::iter::from_fn(|| choose(&mut script)).map(|page| page.bytes[0]);
    assert_eq!(chosen.collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn shorter_bytes_take_the_place_of_the_old_ones_and_longer_ones_do_not() {
    let mut script = stored(8);
    let (first, second) = (choose(&mut script).unwrap(), choose(&mut script).unwrap());
    bring_tighter(&mut script, &first, 400);
    bring_tighter(&mut script, &second, 1000);
    let counters = script.engine.counters();
    assert_eq!(counters.payload_bytes, 7400);
    assert_eq!(counters.recompressed_saved_bytes, 600);
    assert_eq!(packed(&mut script, 0), (TIGHT, vec![100; 400]));
    assert_eq!(packed(&mut script, 1), (CODEC, vec![1; 1000]));
}

#[test]
fn a_page_that_left_and_whose_number_was_given_to_another_is_not_touched() {
    let mut script = stored(8);
    let old = choose(&mut script).unwrap();
    script.bring_back(0);
    let chosen = script.choose(1);
    assert_eq!(chosen, [0]);
    let body = script.take(0).unwrap();
    script.fold(body, 77, 1000);
    bring_tighter(&mut script, &old, 400);
    assert_eq!(packed(&mut script, 0), (CODEC, vec![77; 1000]));
    assert_eq!(script.engine.counters().recompressed_void_pages, 1);
}

#[test]
fn a_page_that_is_being_written_is_written_as_it_was() {
    let mut script = stored(8);
    let old = choose(&mut script).unwrap();
    let plan = script.plan_write().unwrap();
    bring_tighter(&mut script, &old, 400);
    assert_eq!(packed(&mut script, 0), (CODEC, vec![0; 1000]));
    script.engine.write_done(&plan, WriteOutcome::Done);
    assert_eq!(script.engine.violation(), None);
}
