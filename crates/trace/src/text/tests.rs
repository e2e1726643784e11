//! Text in, trace out, and back; and every mistake an error that names its line.

use super::*;
use crate::{copy, generator, Access, ProcessNo, Reader, Reference, RegionKind, RegionNo, Source};
use pleat_types::PageNo;
use proptest::prelude::*;

fn read(text: &str) -> Reader {
    let file = import(text.as_bytes(), 1000, Vec::new()).unwrap_or_else(|e| panic!("{e}"));
    Reader::new(file).unwrap()
}

fn error(text: &str) -> String {
    import(text.as_bytes(), 0, Vec::new())
        .unwrap_err()
        .to_string()
}

fn lackey(text: &str) -> Result<Reader, ImportError> {
    let settings = Lackey {
        instruction_ps: 500,
        bytes: 1000,
    };
    let file = import_lackey(text.as_bytes(), settings, Vec::new())?;
    Ok(Reader::new(file).unwrap())
}

fn all(reader: &mut Reader) -> Vec<(u32, u64, char, u64)> {
    let short = |r: Reference| {
        let access = match r.access {
            Access::Read => 'r',
            Access::Write => 'w',
        };
        (r.region.0, r.page.0, access, r.think_ns)
    };
    std::iter::from_fn(|| reader.next(ProcessNo(0)).map(short)).collect()
}

#[test]
fn the_documented_example_is_a_trace() {
    let mut reader = read(
        "# process  region  page  access  [think_ns]  [size=bytes]\n\
         0          -       17    w       1200        size=900\n\
         0          libc    0x2a  r   # as before\n\n\
         cc1        -stack  3     w       80\n\
         cc1        -       3     w       size=5\n",
    );
    use RegionKind::{Anonymous, File};
    assert_eq!(reader.regions(), [Anonymous, File, Anonymous, Anonymous]);
    assert_eq!(all(&mut reader), [(0, 17, 'w', 1200), (1, 42, 'r', 1200)]);
    assert_eq!(reader.compressed_bytes(RegionNo(0), PageNo(17)), 900);
    assert_eq!(reader.compressed_bytes(RegionNo(1), PageNo(42)), 1000);
    reader.next(ProcessNo(1));
    let second = reader.next(ProcessNo(1)).unwrap();
    assert_eq!((second.region, second.think_ns), (RegionNo(3), 80));
    assert_eq!(reader.compressed_bytes(RegionNo(3), PageNo(3)), 5);
}

#[test]
fn anonymous_memory_is_each_processs_own_and_files_are_shared() {
    let reader = read("a - 1 r\nb - 1 r\na lib 1 r\nb lib 1 r\n");
    assert_eq!(reader.regions().len(), 3);
}

#[test]
fn mistakes_name_their_line_and_what_to_write() {
    for (text, line, wanted) in [
        ("0 - 1 r\n0 - 1\n", 2, "process region page r|w"),
        ("0 - one r", 1, "0x2a"),
        ("0 - 4503599627370496 r", 1, "below 2^52"),
        ("0 - 1 x", 1, "r or w"),
        ("0 - 1 r fast", 1, "size=bytes"),
        ("0 - 1 r 5 size=4097", 1, "size=4096"),
        ("0 - 1 r size=1 size=2", 1, "no more than"),
        ("\n\n0 - 0x+1 r", 3, "0x2a"),
        ("\u{fffd}", 1, "lacks something"),
    ] {
        let error = error(text);
        assert!(error.starts_with(&format!("line {line}: ")), "{error}");
        assert!(error.contains(wanted), "{error}");
    }
    assert!(error("# nothing\n").contains("no reference"));
    assert!(error(&"x".repeat(100_000)).contains("longer than"));
}

#[test]
fn what_is_dumped_can_be_imported() {
    let spec = "zipf:pages=50,refs=500,same=0.1+scan:pages=9,passes=2+thrasher:pages=3";
    let mut text = Vec::new();
    dump(&mut *generator(spec).unwrap(), &mut text).unwrap();
    let file = import(&text[..], 0, Vec::new()).unwrap();
    let mut again = Vec::new();
    dump(&mut Reader::new(file.clone()).unwrap(), &mut again).unwrap();
    assert!(text == again);
    let original = copy(&mut *generator(spec).unwrap(), Vec::new()).unwrap();
    let [mut a, mut b] = [original, file].map(|file| Reader::new(file).unwrap());
    assert_eq!(all(&mut a), all(&mut b));
}

#[test]
fn lackeys_references_to_the_page_touched_last_are_merged() {
    let mut reader = lackey(
        "==123== Lackey, an example Valgrind tool\n\
         I  04001090,3\n\
         \x20L 1ffefffe78,8\n\
         I  04001093,5\n\
         I  04001098,2\n\
         \x20L 1ffefffe70,8\n\
         \x20S 1ffefffe78,8\n\
         \x20M 1ffefffe78,8\n\
         I  04001ffe,4\n\
         ==123== \n",
    )
    .unwrap();
    use RegionKind::{Anonymous, File};
    assert_eq!(reader.regions(), [File, Anonymous]);
    let (code, data) = (0x4001, 0x1f_feff_fe78 >> 12);
    assert_eq!(
        all(&mut reader),
        [
            (0, code, 'r', 0),
            (1, data, 'r', 0),
            // The first write; three instructions of half a nanosecond in all.
            (1, data, 'w', 1),
            // Across the end of a page.
            (0, code + 1, 'r', 1),
        ]
    );
}

#[test]
fn what_lackey_did_not_write_is_an_error() {
    for text in [
        "I 04001090",
        "X 04001090,3",
        "I 0400109z,3",
        "I +4,3",
        " L 1000,0",
        "hello",
    ] {
        let error = lackey(text).unwrap_err().to_string();
        assert!(
            error.contains("line 1") && error.contains("--trace-mem"),
            "{error}"
        );
    }
    assert!(
        lackey("I ffffffffffffffff,4096").is_err(),
        "beyond all addresses"
    );
    assert!(lackey("==1== nothing\n")
        .unwrap_err()
        .to_string()
        .contains("--trace-mem"));
}

proptest! {
    #[test]
    fn no_text_makes_an_importer_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        text in "([0-9a-fx\\-,=# ISLMrw]{0,12}[ \n]){0,30}",
    ) {
        for input in [&bytes[..], text.as_bytes()] {
            let _ = import(input, 0, Vec::new());
            let _ = import_lackey(input, Lackey::default(), Vec::new());
        }
    }
}
