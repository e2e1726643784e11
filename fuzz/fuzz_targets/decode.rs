//! Any bytes, given to any codec: a page or an error, never a panic and never a byte outside the page.
//!
//! The first byte is the codec's id, the rest is what the codec is to undo.
#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use pleat_codec::{Choice, Folder};
use pleat_types::{CodecId, PAGE_SIZE};

thread_local! {
    // One folder for all inputs, as a thread of the pager has: its tables hold what came before.
    static FOLDER: RefCell<Folder> = RefCell::new(Folder::new(&Arc::new(
        Choice::parse(Choice::names()[0]).expect("listed"),
    )));
}

fuzz_target!(|input: &[u8]| {
    let Some((&codec, bytes)) = input.split_first() else {
        return;
    };
    // On the heap, each in a block of its own: there the address sanitizer sees a byte too far.
    let (bytes, mut page) = (bytes.to_vec(), Box::new([0; PAGE_SIZE]));
    FOLDER.with_borrow_mut(|folder| {
        // Damaged bytes may be refused or give any page.
        let _ = folder.unfold(CodecId(codec), &bytes, &mut page);
    });
});
