//! Any page, folded by every choice and as either kind of page: it comes back the same.
//!
//! The input is the beginning of the page; the rest is zeros.
#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use pleat_codec::{Choice, Folded, Folder, PageKind, KEEP_BYTES_MAX};
use pleat_types::{CodecId, Page, PAGE_SIZE};

thread_local! {
    // One folder of each choice for all inputs, as a thread of the pager has.
    static FOLDERS: RefCell<Vec<(&'static str, Folder)>> = RefCell::new(
        Choice::names()
            .iter()
            .map(|name| (*name, Folder::new(&Arc::new(Choice::parse(name).expect("listed")))))
            .collect(),
    );
}

fuzz_target!(|input: &[u8]| {
    // On the heap, each in a block of its own: there the address sanitizer sees a byte too far.
    let mut page = Box::new([0; PAGE_SIZE]);
    let len = input.len().min(PAGE_SIZE);
    page[..len].copy_from_slice(&input[..len]);
    FOLDERS.with_borrow_mut(|folders| {
        for (name, folder) in folders {
            for kind in [PageKind::Anonymous, PageKind::File] {
                round_trip(name, folder, &page, kind);
            }
        }
    });
});

fn round_trip(name: &str, folder: &mut Folder, page: &Page, kind: PageKind) {
    let (mut out, mut back) = (Box::new([0; PAGE_SIZE]), Box::new([0x5A; PAGE_SIZE]));
    match folder.fold(page, kind, &mut out) {
        Folded::Same(word) => folder.fill_same(word, &mut back),
        Folded::Bytes { codec, len } => {
            assert!(
                codec == CodecId::RAW || len <= KEEP_BYTES_MAX,
                "{name}: {len}"
            );
            let bytes = out[..len].to_vec();
            if let Err(error) = folder.unfold(codec, &bytes, &mut back) {
                panic!("{name} refuses its own bytes: {error}");
            }
        }
    }
    assert!(*back == *page, "{name} changed the page");
}
