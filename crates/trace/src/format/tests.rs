//! What goes in comes out, and what is no trace is an error.

use super::*;
use crate::{generator, Access, ProcessNo, Reference, RegionKind, RegionNo, Source};
use pleat_types::PageNo;
use proptest::prelude::*;

fn touch(think_ns: u64, region: u32, page: u64, access: Access) -> Reference {
    Reference {
        think_ns,
        region: RegionNo(region),
        page: PageNo(page),
        access,
    }
}

fn everything_of(source: &mut dyn Source) -> Vec<Vec<(Reference, u16)>> {
    let mut all = Vec::new();
    for process in (0..source.processes()).map(ProcessNo) {
        let mut one = Vec::new();
        while let Some(reference) = source.next(process) {
            let bytes = source.compressed_bytes(reference.region, reference.page);
            one.push((reference, bytes));
        }
        all.push(one);
    }
    all
}

/// The example of `docs/traces.md`.
fn example() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let process = writer.process(0).unwrap();
    let heap = writer.region(RegionKind::Anonymous, 0).unwrap();
    let file = writer.region(RegionKind::File, 1638).unwrap();
    writer
        .reference(process, touch(1000, file.0, 0, Access::Read))
        .unwrap();
    writer
        .reference(process, touch(1000, file.0, 1, Access::Read))
        .unwrap();
    writer.size(process, heap, PageNo(100), 1500).unwrap();
    writer
        .reference(process, touch(1000, heap.0, 100, Access::Write))
        .unwrap();
    writer
        .reference(process, touch(250, heap.0, 99, Access::Write))
        .unwrap();
    writer.finish().unwrap()
}

#[test]
fn the_example_of_the_documentation_is_what_is_written() {
    let document = include_str!("../../../../docs/traces.md");
    let (_, table) = document.split_once("<!-- example -->").expect("a mark");
    let (table, _) = table.split_once("<!-- until here -->").expect("its end");
    let cells = table.lines().filter_map(|line| line.split('`').nth(1));
    let words = cells.flat_map(|cell| cell.split(' '));
    let bytes: Vec<u8> = words
        .map(|word| u8::from_str_radix(word, 16).expect(word))
        .collect();
    assert_eq!(
        bytes,
        example(),
        "docs/traces.md should have {:02X?}",
        example()
    );
}

#[test]
fn generated_traces_survive_the_file() {
    for spec in [
        "thrasher:pages=1000,passes=3",
        "zipf:pages=300,refs=30000,same=0.1,raw=0.1+scan:pages=50+zipf:pages=9,refs=9",
    ] {
        let file = copy(&mut *generator(spec).unwrap(), Vec::new()).unwrap();
        let mut reader = Reader::new(file).unwrap();
        let mut source = generator(spec).unwrap();
        assert_eq!(reader.regions(), source.regions());
        let expected = everything_of(&mut *source);
        assert!(everything_of(&mut reader) == expected, "{spec}");
        let count: usize = expected.iter().map(Vec::len).sum();
        assert_eq!(reader.references(), count as u64);
        reader.rewind();
        assert!(everything_of(&mut reader.clone()) == expected, "{spec}");
    }
}

#[test]
fn a_touch_beside_the_last_one_takes_a_byte() {
    let file = copy(
        &mut *generator("thrasher:pages=1000,passes=50").unwrap(),
        Vec::new(),
    );
    let bytes = file.unwrap().len();
    assert!((50_000..56_000).contains(&bytes), "{bytes}");
}

#[test]
fn times_become_computing_and_waiting_does_not() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let heap = writer.region(RegionKind::Anonymous, 0).unwrap();
    let process = writer.process(1_000).unwrap();
    let place = |page| (heap, PageNo(page));
    writer
        .touched(process, 1_500, place(1), Access::Read)
        .unwrap();
    writer.resumed(process, 9_000).unwrap();
    writer
        .touched(process, 9_100, place(2), Access::Read)
        .unwrap();
    // Clocks that go backwards, as those of two CPUs may.
    writer
        .touched(process, 9_050, place(3), Access::Read)
        .unwrap();
    let mut reader = Reader::new(writer.finish().unwrap()).unwrap();
    let think: Vec<u64> = std::iter::from_fn(|| reader.next(process).map(|r| r.think_ns)).collect();
    assert_eq!(think, [500, 100, 0]);
    assert_eq!(reader.started_ns(process), Some(1_000));
}

#[test]
fn more_regions_than_a_chunk_can_name_are_no_limit() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let process = writer.process(0).unwrap();
    for _ in 0..1000 {
        writer.region(RegionKind::File, 7).unwrap();
    }
    for n in 0..3000 {
        let reference = touch(5, n % 1000, u64::from(n), Access::Read);
        writer.reference(process, reference).unwrap();
    }
    let mut reader = Reader::new(writer.finish().unwrap()).unwrap();
    for n in 0..3000 {
        let expected = touch(5, n % 1000, u64::from(n), Access::Read);
        assert_eq!(reader.next(process), Some(expected));
    }
}

#[test]
fn the_writer_refuses_what_no_reader_would_take() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let nobody = touch(0, 0, 0, Access::Read);
    assert!(writer.reference(ProcessNo(0), nobody).is_err());
    let process = writer.process(0).unwrap();
    assert!(writer.reference(process, nobody).is_err(), "no region yet");
    let heap = writer.region(RegionKind::Anonymous, 0).unwrap();
    let far = touch(0, 0, PAGE_END, Access::Read);
    assert!(writer.reference(process, far).is_err());
    assert!(writer.size(process, heap, PageNo(0), 4097).is_err());
    assert!(writer.ended(ProcessNo(9)).is_err());
    Reader::new(writer.finish().unwrap()).expect("nothing of that was written");
}

#[test]
fn every_truncation_is_seen() {
    let file = example();
    for length in 0..file.len() {
        let error = Reader::new(file[..length].to_vec()).unwrap_err();
        assert!(error.offset <= length as u64, "{length}: {error}");
        assert!(error.to_string().contains(": "), "{error}");
    }
}

#[test]
fn every_damaged_byte_is_seen() {
    let file = example();
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            Reader::new(damaged).unwrap_err();
        }
    }
}

#[test]
fn errors_say_what_to_do() {
    let error = |bytes: &[u8]| Reader::new(bytes.to_vec()).unwrap_err().to_string();
    assert!(error(b"hello").contains("pleat trace generate"));
    assert!(error(b"PLEATTR\x02").contains("version 2"));
    assert!(error(&MAGIC).contains("record or copy it again"));
    let mut more = example();
    more.push(0);
    assert!(error(&more).contains("cut it off"));
    // Announces more than there is; must not reserve it.
    let greedy = [&MAGIC[..], b"P\0T\0", &[0xFF; 9], &[1]].concat();
    assert!(error(&greedy).contains("ends too early"));
}

fn any_reference() -> impl Strategy<Value = (u32, Reference, Option<u16>)> {
    let page = prop_oneof![0..100u64, 0..PAGE_END];
    let think = prop_oneof![Just(100u64), any::<u64>()];
    let size = proptest::option::of(0..=BYTES_MAX);
    (0..3u32, 0..5u32, page, think, any::<bool>(), size).prop_map(
        |(process, region, page, think_ns, write, size)| {
            let access = match write {
                true => Access::Write,
                false => Access::Read,
            };
            (process, touch(think_ns, region, page, access), size)
        },
    )
}

/// A valid beginning, so that random bytes get past it.
fn headed(tail: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(b"P\0R\x00\x10R\x01\x20");
    bytes.extend_from_slice(&[TOUCHES, 0, tail.len() as u8 + 3, 2, 0, 1]);
    bytes.extend_from_slice(tail);
    bytes.extend_from_slice(&[END, 1, 2, 3, 0]);
    bytes
}

proptest! {
    #[test]
    fn what_is_written_is_read(history in proptest::collection::vec(any_reference(), 0..300)) {
        let mut writer = Writer::new(Vec::new()).unwrap();
        for _ in 0..3 { writer.process(0).unwrap(); }
        for _ in 0..5 { writer.region(RegionKind::File, 9).unwrap(); }
        for (process, reference, size) in &history {
            let process = ProcessNo(*process);
            if let Some(bytes) = size {
                writer.size(process, reference.region, reference.page, *bytes).unwrap();
            }
            writer.reference(process, *reference).unwrap();
        }
        let mut reader = Reader::new(writer.finish().unwrap()).unwrap();
        for (process, reference, size) in &history {
            prop_assert_eq!(reader.next(ProcessNo(*process)), Some(*reference));
            if let Some(bytes) = size {
                let found = reader.compressed_bytes(reference.region, reference.page);
                prop_assert_eq!(found, *bytes);
            }
        }
        for process in 0..4 { prop_assert_eq!(reader.next(ProcessNo(process)), None); }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        tail in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let _ = Reader::new(bytes.clone());
        let _ = Reader::new([&MAGIC[..], &bytes].concat());
        let _ = Reader::new(headed(&tail));
    }
}
