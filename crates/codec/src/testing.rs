//! What the tests of every codec share: pages to compress, and the checks that any codec must pass.

use proptest::prelude::*;

use pleat_types::{Page, PAGE_SIZE};

use crate::Codec;

/// Makes a new value of the codec under test.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Codec>;

/// A page between two guards, to see writes past either end.
#[repr(C)]
struct Guarded {
    before: [u8; 64],
    page: Page,
    after: [u8; 64],
}

/// Bytes without any pattern.
pub fn noise(seed: u64) -> Page {
    let mut x = seed | 1;
    std::array::from_fn(|_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    })
}

/// `noise_bytes` of noise, the rest zeros.
pub fn partly_noise(seed: u64, noise_bytes: usize) -> Page {
    let mut page = noise(seed);
    page[noise_bytes..].fill(0);
    page
}

/// Few symbols with many short repetitions, as in text, and zeros in between.
pub fn text_page(seed: u64) -> Page {
    let mut x = seed | 1;
    std::array::from_fn(|i| {
        if i % 5 == 0 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
        }
        if i % 256 >= 160 {
            return 0;
        }
        b"abcdefgh"[(x >> 61) as usize] + (i % 5) as u8
    })
}

/// Small numbers, zeros and words that differ in their low bits, as in structures with pointers.
pub fn pointer_page(seed: u64) -> Page {
    let noise = noise(seed);
    let mut page = [0; PAGE_SIZE];
    for (word, bytes) in page.chunks_exact_mut(4).zip(noise.chunks_exact(4)) {
        let value = match bytes[0] % 8 {
            0..=2 => 0,
            3 | 4 => 0x7F12_3400 + (u32::from(bytes[1]) << 2),
            5 => 0x0056_7800,
            6 => u32::from(bytes[1]),
            _ => u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    page
}

/// Any of the kinds of pages above, and a few more.
pub fn any_page() -> impl Strategy<Value = Page> {
    prop_oneof![
        any::<u64>().prop_map(noise),
        any::<u64>().prop_map(text_page),
        any::<u64>().prop_map(pointer_page),
        (any::<u64>(), 0..PAGE_SIZE).prop_map(|(seed, bytes)| partly_noise(seed, bytes)),
        // A short period, as in arrays of structures.
        (any::<u64>(), 1..300usize).prop_map(|(seed, period)| {
            let noise = noise(seed);
            std::array::from_fn(|i| noise[i % period])
        }),
        // Few symbols without a period, as in text.
        (any::<u64>(), 1..200u8).prop_map(|(seed, symbols)| noise(seed).map(|b| b % symbols)),
    ]
}

/// Every 16th page of real memory, from the directory `PLEAT_CORPUS` or the one beside the project;
/// none, and a line that says so, where there is no such directory.
pub fn corpus_pages() -> Vec<Page> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");
    let dir = std::env::var("PLEAT_CORPUS").unwrap_or_else(|_| beside.into());
    let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
    let files = entries.filter(|e| e.path().extension().is_some_and(|x| x == "pages"));
    let mut pages = Vec::new();
    for file in files {
        let bytes = std::fs::read(file.path()).expect("readable");
        let chosen = bytes.chunks_exact(PAGE_SIZE).step_by(16);
        pages.extend(chosen.map(|page| Page::try_from(page).expect("a page long")));
    }
    if pages.is_empty() {
        pleat_testing::skip(format!("no NAME.pages in {dir}"));
    }
    pages
}

/// What the codec makes of `page` when there is room enough; `None` when it does not try, which it
/// may not say of pages with a pattern.
pub fn compressed_if_tried(make: Make, page: &Page) -> Option<Vec<u8>> {
    let mut out = vec![0; 2 * PAGE_SIZE];
    let len = make().compress(page, &mut out)?;
    out.truncate(len);
    Some(out)
}

/// As [`compressed_if_tried`], for a page that has to be.
pub fn compressed(make: Make, page: &Page) -> Vec<u8> {
    compressed_if_tried(make, page).expect("two pages always suffice")
}

/// The page that `data` stands for; `None` when it is damaged.
pub fn decompressed(make: Make, data: &[u8]) -> Option<Page> {
    let mut guarded = Guarded {
        before: [0xA5; 64],
        page: [0x5A; PAGE_SIZE],
        after: [0xA5; 64],
    };
    let result = make().decompress(data, &mut guarded.page);
    assert_eq!(guarded.before, [0xA5; 64]);
    assert_eq!(guarded.after, [0xA5; 64]);
    result.ok().map(|()| guarded.page)
}

/// Everything that any codec must keep to.
pub fn check(make: Make) {
    every_page_comes_back(make);
    odd_lengths_are_damage(make);
    output_without_room_is_none_and_stays_in_bounds(make);
    results_do_not_depend_on_the_pages_before(make);
    damaged_data_stays_in_bounds(make);
}

fn every_page_comes_back(make: Make) {
    let comes_back = |page: &Page| {
        compressed_if_tried(make, page).is_none_or(|data| decompressed(make, &data) == Some(*page))
    };
    for page in corpus_pages() {
        assert!(
            comes_back(&page),
            "a page of the corpus came back different"
        );
    }
    proptest!(|(page in any_page())| {
        prop_assert!(comes_back(&page));
    });
}

fn odd_lengths_are_damage(make: Make) {
    let mut data = compressed(make, &text_page(1));
    data.push(0);
    for data in [&data[..], &[], &[0; 2 * PAGE_SIZE + 1]] {
        assert!(decompressed(make, data).is_none(), "{} bytes", data.len());
    }
}

fn output_without_room_is_none_and_stays_in_bounds(make: Make) {
    for page in [text_page(2), pointer_page(2), noise(2)] {
        let Some(data) = compressed_if_tried(make, &page) else {
            continue;
        };
        let need = data.len();
        let mut out = [0xA5; 2 * PAGE_SIZE];
        for room in (0..40).chain([need / 2, need - 17, need - 2, need - 1]) {
            // A codec with more than one method may know a shorter form that it did not prefer.
            if let Some(len) = make().compress(&page, &mut out[..room]) {
                assert!(decompressed(make, &out[..len]) == Some(page));
                out[..room].fill(0xA5);
            }
            assert!(out[room..].iter().all(|&byte| byte == 0xA5), "room {room}");
        }
    }
}

fn results_do_not_depend_on_the_pages_before(make: Make) {
    let mut used = make();
    let mut out = [0; 2 * PAGE_SIZE];
    for seed in 0..200 {
        let page = match seed % 4 {
            0 => text_page(seed * 77),
            1 => pointer_page(seed),
            2 => partly_noise(seed, 1000),
            _ => noise(seed % 8),
        };
        // A page that is given up half-way must leave no trace either.
        used.compress(&noise(seed), &mut out[..100]);
        let again = used
            .compress(&page, &mut out)
            .map(|len| out[..len].to_vec());
        assert_eq!(again, compressed_if_tried(make, &page));
    }
}

fn damaged_data_stays_in_bounds(make: Make) {
    proptest!(|(data in proptest::collection::vec(any::<u8>(), 0..5000))| {
        decompressed(make, &data);
    });
    proptest!(|(page in any_page(), keep in 0.0..1.0f64)| {
        let Some(data) = compressed_if_tried(make, &page) else { return Ok(()) };
        let keep = (data.len() as f64 * keep) as usize;
        prop_assert!(decompressed(make, &data[..keep]).is_none());
    });
    let flips = || proptest::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..20);
    proptest!(|(page in any_page(), flips in flips())| {
        let Some(mut data) = compressed_if_tried(make, &page) else { return Ok(()) };
        for (at, bit) in flips {
            let at = at.index(data.len());
            data[at] ^= 1 << bit;
        }
        decompressed(make, &data);
    });
}
