//! Tests of `fold`: every level makes the same bytes and gets every page back. What every codec has
//! to stand is in `testing.rs`.

use super::*;
use crate::testing::{self, any_page};
use proptest::prelude::*;

fn levels() -> Vec<Level> {
    let best = Level::of_this_cpu();
    let below = match best {
        Level::Portable => vec![],
        Level::Avx2 => vec![Level::Portable],
        Level::Avx512 => vec![Level::Portable, Level::Avx2],
    };
    if below.len() < 2 {
        pleat_testing::skip(format!("the rest: this CPU has no more than {best:?}"));
    }
    below.into_iter().chain([best]).collect()
}

/// Compresses at every level and decompresses what each made at every other.
fn compress_everywhere(page: &Page, room: usize) -> Option<Vec<u8>> {
    let mut forms = Vec::new();
    for level in levels() {
        let mut out = vec![0xA5; room];
        let len = Fold::with_level(level).compress(page, &mut out);
        forms.push((level, len.map(|len| out[..len].to_vec())));
    }
    let (_, first) = forms.remove(0);
    for (level, form) in forms {
        assert!(form == first, "{level:?} makes other bytes");
    }
    if let Some(data) = &first {
        for level in levels() {
            let mut back = [0x5A; PAGE_SIZE];
            let result = Fold::with_level(level).decompress(data, &mut back);
            assert_eq!(result, Ok(()), "{level:?}");
            assert!(back == *page, "{level:?} gets another page back");
        }
    }
    first
}

/// Decompresses, which may fail, at every level: all fail, or all give the same page.
fn decompress_everywhere(data: &[u8]) {
    let mut results = levels().into_iter().map(|level| {
        let mut page = [0; PAGE_SIZE];
        let result = Fold::with_level(level).decompress(data, &mut page);
        (level, result.map(|()| page))
    });
    let (_, first) = results.next().expect("there is a level");
    for (level, result) in results {
        assert!(result == first, "{level:?} decodes otherwise");
    }
}

/// A page of numbers of `BYTES` bytes.
fn page_of<const BYTES: usize>(number: impl FnMut(usize) -> [u8; BYTES]) -> Page {
    let bytes: Vec<u8> = (0..PAGE_SIZE / BYTES).flat_map(number).collect();
    bytes.try_into().expect("a page")
}

fn page_of_words(mut word: impl FnMut(usize) -> u64) -> Page {
    page_of(|i| word(i).to_le_bytes())
}

fn page_of_numbers(mut number: impl FnMut(usize) -> u32) -> Page {
    page_of(|i| number(i).to_le_bytes())
}

/// Words as heaps hold them: each of a kind that some stage treats in its own way.
fn heap_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0u64),
        2 => 1..16u64,
        1 => any::<u8>().prop_map(u64::from),
        1 => any::<u16>().prop_map(u64::from),
        1 => 1..1u64 << 24,
        1 => any::<u32>().prop_map(u64::from),
        4 => (0..512u64).prop_map(|at| 0x7F3A_1200_0000 + 8 * at),
        2 => any::<u32>().prop_map(|at| 0x5555_0000_0000 | u64::from(at) & !7),
        2 => prop::sample::select(vec![0x009A_E840u64, u64::MAX, 0x0000_0001_0000_0001, 1 << 63]),
        1 => prop::array::uniform8(0x20..0x7Fu8).prop_map(u64::from_le_bytes),
        1 => any::<u32>().prop_map(|hash| u64::from(hash) << 32 | 0xE001_2345),
        1 => any::<u64>(),
    ]
}

fn heap_page() -> impl Strategy<Value = Page> {
    let words = prop::collection::vec(heap_word(), PAGE_SIZE / 8);
    prop_oneof![
        words.prop_map(|words| page_of_words(|i| words[i])),
        // Objects of one size, in which each field is of one kind.
        (prop::collection::vec(heap_word(), 1..20), any::<u64>()).prop_map(|(fields, step)| {
            let step = step & 0xFF8;
            page_of_words(|i| {
                let field = fields[i % fields.len()];
                field.wrapping_add(step * (i / fields.len()) as u64 * (field >> 20 & 1))
            })
        }),
    ]
}

fn text_page() -> impl Strategy<Value = Page> {
    let word = prop::sample::select(vec![
        "the ",
        "page",
        "is folded",
        " and, ",
        "ä",
        "\n",
        "0x7f3a",
        "    ",
        "fault",
        "=",
        "a",
    ]);
    prop::collection::vec(word, PAGE_SIZE).prop_map(|words| {
        let text = words.concat().into_bytes();
        text[..PAGE_SIZE].try_into().expect("a page")
    })
}

/// Numbers that follow one another.
fn number_page() -> impl Strategy<Value = Page> {
    let noise = || any::<u64>().prop_map(testing::noise);
    prop_oneof![
        (any::<u64>(), any::<u64>(), noise(), 0..64u32).prop_map(|(first, step, noise, bits)| {
            page_of_words(|i| {
                let by = (u64::from(noise[i]) * u64::from(noise[i + 512])) << bits;
                first
                    .wrapping_add(step.wrapping_mul(i as u64))
                    .wrapping_add(by)
            })
        }),
        (any::<u32>(), any::<u32>(), noise(), 0..32u32).prop_map(
            move |(first, step, noise, bits)| {
                page_of_numbers(|i| {
                    let by = u32::from(noise[i]) << bits;
                    first
                        .wrapping_add(step.wrapping_mul(i as u32))
                        .wrapping_add(by)
                })
            }
        ),
        (-1e9..1e9f64, noise()).prop_map(|(first, noise)| {
            page_of_words(|i| (first + f64::from(noise[i]) / 7.0).to_bits())
        }),
    ]
}

/// Records of 32-bit numbers, in which each field is of one kind.
fn record_page() -> impl Strategy<Value = Page> {
    let fields = prop::collection::vec((0..6u8, any::<u32>()), 1..10);
    (fields, any::<u64>().prop_map(testing::noise)).prop_map(|(fields, noise)| {
        page_of_numbers(|i| {
            let (kind, some) = fields[i % fields.len()];
            let any = u32::from_le_bytes([noise[i], noise[i + 1024], noise[i + 2048], 0]);
            match kind {
                0 => some,
                1 => some.wrapping_add((i / fields.len()) as u32),
                2 => some.wrapping_add(any & 0xFF),
                3 => any & 0xFF,
                4 => some & 0xFF00_0000 | any,
                _ => some ^ any << 8,
            }
        })
    })
}

fn text_of_16_bits() -> impl Strategy<Value = Page> {
    text_page().prop_map(|text| std::array::from_fn(|i| if i % 2 == 0 { text[i / 2] } else { 0 }))
}

/// Any page that some method is made for.
fn page() -> impl Strategy<Value = Page> {
    prop_oneof![
        any_page(),
        heap_page(),
        text_page(),
        number_page(),
        record_page(),
        text_of_16_bits()
    ]
}

#[test]
fn the_methods_are_chosen_by_what_they_are_good_at() {
    let objects = page_of_words(|i| match i % 6 {
        0 => 0x7F12_3400_0000 + 48 * i as u64,
        1 => 0x9AE840,
        2 => i as u64,
        _ => 0,
    });
    let words = compress_everywhere(&objects, PAGE_SIZE).expect("compresses");
    assert_eq!(words[0], WORDS);
    assert!(words.len() < 800, "{} bytes", words.len());

    let line = b"2026-11-21T17:05:33 host pager[412]: page 77123 folded to 911 bytes\n";
    let log: Page =
        std::array::from_fn(|i| line[i % line.len()].wrapping_add((i % 997 == 0).into()));
    let lz = compress_everywhere(&log, PAGE_SIZE).expect("compresses");
    assert_eq!(lz[0], LZ);
    assert!(lz.len() < 300, "{} bytes", lz.len());

    let utf16: Page = std::array::from_fn(|i| if i % 2 == 0 { log[i / 2] } else { 0 });
    let lz = compress_everywhere(&utf16, PAGE_SIZE).expect("compresses");
    assert_eq!(lz[0], LZ_16);
    assert!(lz.len() < 400, "{} bytes", lz.len());

    let times = page_of_words(|i| 1_763_712_000_000 + 60_000 * i as u64);
    let steps = compress_everywhere(&times, PAGE_SIZE).expect("compresses");
    assert_eq!((steps[0], steps.len()), (DELTAS_8, 1 + 2 * 8 + 32));
    let count = |i: usize| 1_000_000 + 3 * i as u32 + (i * i % 7) as u32;
    let counts: Page = std::array::from_fn(|i| count(i / 4).to_le_bytes()[i % 4]);
    let steps = compress_everywhere(&counts, PAGE_SIZE).expect("compresses");
    assert_eq!(steps[0], DELTAS_4);
    assert!(steps.len() < 700, "{} bytes", steps.len());

    // Nodes of a tree: two links or none, and where its text begins.
    let noise = testing::noise(6);
    let tree = page_of_numbers(|i| match i % 3 {
        2 => 3_000_000 + i as u32 / 3,
        _ if noise[i] & 1 == 0 => 0x8000_0000,
        _ => 0x4000_0000 | u32::from_le_bytes([noise[i], noise[i + 1024], noise[i + 2048], 0]),
    });
    let records = compress_everywhere(&tree, PAGE_SIZE).expect("compresses");
    assert_eq!(records[0], RECORDS);
    // What links there are take three bytes each, the classes 384, and nothing else anything.
    let links = (0..1024)
        .filter(|i| i % 3 != 2 && noise[*i] & 1 == 1)
        .count();
    let least = 1 + 8 + 384 + 3 * links;
    assert!(
        (least..least + 8).contains(&records.len()),
        "{} bytes",
        records.len()
    );

    assert_eq!(compress_everywhere(&testing::noise(5), PAGE_SIZE), None);
}

#[test]
fn a_page_that_no_word_method_shortens_is_left_to_lempel_ziv() {
    // A quarter zeros, so that words are tried, and the rest noise that repeats.
    let noise = testing::noise(9);
    let page: Page = std::array::from_fn(|i| if i < 1100 { 0 } else { noise[i % 701] });
    let data = compress_everywhere(&page, PAGE_SIZE).expect("compresses");
    assert_eq!(data[0], LZ);
    assert!(data.len() < 900, "{} bytes", data.len());
}

#[test]
fn numbers_of_20_bits_are_stored_by_their_differences_where_words_do_not_fit() {
    let noise = testing::noise(11);
    let page: Page = std::array::from_fn(|i| match i % 4 {
        0 | 1 => noise[i],
        2 => noise[i] & 0xF,
        _ => 0,
    });
    let data = compress_everywhere(&page, crate::KEEP_BYTES_MAX).expect("compresses");
    assert_eq!(data[0], DELTAS_4);
    assert!(data.len() < 2900, "{} bytes", data.len());
}

#[test]
fn long_matches_and_long_literals_come_back() {
    let noise = testing::noise(3);
    for period in [1, 2, 3, 7, 15, 16, 17, 63, 64, 100, 700] {
        let page: Page = std::array::from_fn(|i| b'a' + noise[i % period] % 26);
        assert!(compress_everywhere(&page, PAGE_SIZE).is_some(), "{period}");
    }
    for literals in [15, 16, 31, 32, 33, 62, 63, 64, 65, 1000, 2500] {
        let page: Page = std::array::from_fn(|i| if i < literals { noise[i] | 1 } else { b'x' });
        assert!(
            compress_everywhere(&page, PAGE_SIZE).is_some(),
            "{literals}"
        );
    }
}

#[test]
fn every_level_stands_what_every_codec_has_to() {
    for level in levels() {
        testing::check(&|| Box::new(Fold::with_level(level)));
    }
}

#[test]
fn real_pages_come_back_at_every_level() {
    for page in testing::corpus_pages() {
        compress_everywhere(&page, PAGE_SIZE);
    }
}

proptest! {
    #[test]
    fn pages_come_back_at_every_level(
        page in page(),
        room in prop_oneof![Just(PAGE_SIZE), 0..PAGE_SIZE],
    ) {
        compress_everywhere(&page, room);
    }

    #[test]
    fn pages_before_leave_no_trace(pages in prop::collection::vec(page(), 1..8)) {
        for level in levels() {
            let mut used = Fold::with_level(level);
            let (mut out, mut fresh, mut back) = ([0; PAGE_SIZE], [0; PAGE_SIZE], [0; PAGE_SIZE]);
            for page in &pages {
                let len = used.compress(page, &mut out);
                prop_assert_eq!(len, Fold::with_level(level).compress(page, &mut fresh));
                let Some(len) = len else { continue };
                prop_assert!(out[..len] == fresh[..len]);
                prop_assert_eq!(used.decompress(&out[..len], &mut back), Ok(()));
                prop_assert!(back == *page);
            }
        }
    }

    #[test]
    fn damage_is_found_alike_at_every_level(
        page in page(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..6),
        keep in 0.0..1.0f64,
    ) {
        let Some(mut data) = compress_everywhere(&page, PAGE_SIZE) else { return Ok(()) };
        decompress_everywhere(&data[..(data.len() as f64 * keep) as usize]);
        for (at, bit) in flips {
            let at = at.index(data.len());
            data[at] ^= 1 << bit;
        }
        decompress_everywhere(&data);
    }

    #[test]
    fn random_bytes_decode_alike_at_every_level(
        method in 0..8u8,
        mut data in prop::collection::vec(any::<u8>(), 1..6000),
    ) {
        data[0] = method;
        decompress_everywhere(&data);
    }
}
