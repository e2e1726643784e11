//! Any bytes as a trace, as text and as lackey's output: an error or a trace, never a panic; and what
//! was imported can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pleat_trace::{text, ProcessNo, Reader, Source};

fuzz_target!(|data: &[u8]| {
    if let Ok(trace) = Reader::new(data.to_vec()) {
        walk(trace);
    }
    let imported = [
        text::import(data, 1500, Vec::new()),
        text::import_lackey(data, text::Lackey::default(), Vec::new()),
    ];
    for file in imported.into_iter().flatten() {
        walk(Reader::new(file).expect("what was written can be read"));
    }
});

fn walk(mut trace: Reader) {
    for process in 0..trace.processes() {
        while let Some(reference) = trace.next(ProcessNo(process)) {
            trace.compressed_bytes(reference.region, reference.page);
        }
    }
}
