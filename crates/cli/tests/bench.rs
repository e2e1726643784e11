//! `pleat bench` as a user meets it: files of pages in, figures out, and one line for each mistake.

mod program;

use program::{pleat, stdout};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

fn bench(args: &[&str]) -> Output {
    pleat(&[&["bench"], args].concat())
}

/// A file of 8 pages: one zero, one of noise, six of numbers.
fn pages_file(dir: &Path, name: &str) -> String {
    let mut noise = 1u32;
    let pages = (0..8u32).flat_map(|page| {
        (0..1024u32).map(move |word| match page {
            0 => 0,
            1 => {
                noise ^= noise << 13;
                noise ^= noise >> 17;
                noise ^= noise << 5;
                noise
            }
            _ => word % (16 << page),
        })
    });
    let bytes: Vec<u8> = pages.flat_map(u32::to_le_bytes).collect();
    let file = dir.join(name);
    fs::write(&file, bytes).unwrap();
    file.into_os_string().into_string().expect("UTF-8")
}

#[test]
fn every_codec_has_a_line_for_each_file_and_one_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (
        pages_file(dir.path(), "a.pages"),
        pages_file(dir.path(), "b.pages"),
    );
    let output = bench(&["codec", &a, &b]);
    let table = stdout(&output);
    for name in pleat_codec::Choice::names() {
        let lines = table
            .lines()
            .filter(|l| l.split_whitespace().nth(1) == Some(name));
        assert_eq!(lines.count(), 3, "{name}: {table}");
    }
    let only = bench(&["codec", "--codec", "lz4,lz4", "--codec", "lz4", &a]);
    let lines = stdout(&only).lines().filter(|line| line.starts_with("a "));
    assert_eq!(lines.count(), 1, "{only:?}");
}

#[test]
fn json_is_one_object_a_line_with_means_per_page() {
    let dir = tempfile::tempdir().unwrap();
    let file = pages_file(dir.path(), "mine.pages");
    let output = bench(&["codec", "--json", &file]);
    let mut codecs = Vec::new();
    for line in stdout(&output).lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["pool"], "mine");
        for (field, expected) in [("pages", 8), ("same_pages", 1)] {
            assert_eq!(line[field], expected, "{line}");
        }
        assert!(line["raw_pages"].as_u64() >= Some(1), "{line}");
        for field in ["compress_ns", "decompress_ns"] {
            assert!(line[field].as_f64() > Some(0.0), "{line}");
        }
        let bytes = line["bytes"].as_f64().unwrap();
        assert!((512.0..3584.0).contains(&bytes), "{line}");
        codecs.push(line["codec"].as_str().unwrap().to_owned());
    }
    assert_eq!(codecs, pleat_codec::Choice::names());
}

#[test]
fn a_part_of_a_file_can_be_measured_and_plotted() {
    let dir = tempfile::tempdir().unwrap();
    let file = pages_file(dir.path(), "mine.pages");
    let svg = dir.path().join("plot.svg");
    let output = bench(&[
        "codec",
        "--json",
        "--pages",
        "4",
        "--codec",
        "lz4",
        "--svg",
        svg.to_str().unwrap(),
        &file,
    ]);
    let line: serde_json::Value = serde_json::from_str(stdout(&output)).expect("one line");
    assert_eq!(line["pages"], 4);
    assert!(fs::read_to_string(svg).unwrap().contains(">lz4</text>"));
}

#[test]
fn a_mistake_costs_one_line_that_names_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let good = pages_file(dir.path(), "good.pages");
    let write = |name: &str, bytes: &[u8]| {
        let file = dir.path().join(name);
        fs::write(&file, bytes).unwrap();
        file.into_os_string().into_string().unwrap()
    };
    let (odd, empty) = (write("odd", &[1; 4097]), write("empty", &[]));
    let empty_dir = tempfile::tempdir_in(dir.path()).unwrap();
    let empty_dir = empty_dir.path().to_str().unwrap();
    let unmade = dir.path().join("no/such.pages");
    let unmade = unmade.to_str().unwrap();
    let cases: [(&[&str], &str); 15] = [
        (&["codec", &odd], "has 4097 bytes"),
        (&["codec", &empty], "pleat bench dump PID FILE"),
        (&["codec", unmade], "pleat bench dump PID FILE"),
        (&["codec", "--codec", "lz5", &good], "choose from auto"),
        (&["codec", &good, &good], "rename one"),
        (
            &["codec", "--pages", "0", &good],
            "pleat bench codec --help",
        ),
        (&["codec"], "FILE"),
        (&["codec", "--svg", unmade, &good], "choose another"),
        (&["swap", &odd], "has 4097 bytes"),
        (&["swap", empty_dir], "name files instead"),
        (&["swap", "--preset", "magic", &good], "choose from pleat"),
        (&["dump", "2000000000", unmade], "ps"),
        (&["dump", "-5", unmade], "pleat bench dump --help"),
        (
            &["dump", &std::process::id().to_string(), unmade],
            "choose another",
        ),
        (
            &["dump", &std::process::id().to_string(), &good],
            "choose another",
        ),
    ];
    for (args, remedy) in cases {
        let output = bench(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(
            stderr.starts_with("pleat: ") && stderr.contains(remedy),
            "{args:?}: {stderr}"
        );
    }
}

#[test]
fn a_dump_is_a_sample_of_what_the_process_holds_and_can_be_measured() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("own.pages");
    let path = file.to_str().unwrap();
    // 16 MiB that only this test has: most of what this process holds.
    let mark = b"a page of the test that is dumped";
    let held: Vec<u8> = mark.iter().copied().cycle().take(16 << 20).collect();
    let pid = std::process::id().to_string();
    let dumped = bench(&["dump", "--pages", "64", "--seed", "5", &pid, path]);
    std::hint::black_box(&held);
    if String::from_utf8_lossy(&dumped.stderr).contains("run this as root") {
        pleat_testing::skip("this machine lets no process read another's memory");
        return;
    }
    assert!(stdout(&dumped).contains("64 of the"), "{dumped:?}");
    let bytes = fs::read(&file).unwrap();
    assert_eq!(bytes.len(), 64 * 4096);
    let found = bytes
        .chunks(4096)
        .filter(|page| page.windows(mark.len()).any(|w| w == mark));
    assert!(found.count() > 32, "most pages are the test's");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o077, 0);
    assert!(stdout(&bench(&["codec", path])).contains("own"));
}

#[test]
fn help_teaches_by_example() {
    let output = bench(&["codec", "--help"]);
    let help = stdout(&output);
    for text in [
        "pleat bench dump",
        "--json",
        "--svg",
        "--codec",
        "Exit status",
    ] {
        assert!(help.contains(text), "{help}");
    }
    assert!(stdout(&bench(&["dump", "--help"])).contains("--seed"));
    let output = bench(&["swap", "--help"]);
    let help = stdout(&output);
    for text in ["pleat bench swap /tmp", "--json", "--preset", "Exit status"] {
        assert!(help.contains(text), "{help}");
    }
}

#[test]
fn sizes_are_one_number_a_line_for_every_page_that_takes_room() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (
        pages_file(dir.path(), "a.pages"),
        pages_file(dir.path(), "b.pages"),
    );
    let output = bench(&["codec", "--sizes", &a, &b]);
    let sizes: Vec<u16> = stdout(&output)
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(sizes.len(), 14, "without the two pages of zeros: {sizes:?}");
    assert_eq!((sizes[0], sizes[7]), (4096, 4096), "noise stays raw");
    assert!(sizes.iter().all(|size| (1..=4096).contains(size)));
    assert!(sizes[1] < 1000, "{sizes:?}");
    assert_eq!(sizes[..7], sizes[7..], "each file is a sample of its own");
    for (codec, others) in [("lz4,zstd", ""), ("lz4", "--json")] {
        let mut args = vec!["codec", "--sizes", "--codec", codec, &a];
        args.extend([others].iter().filter(|arg| !arg.is_empty()));
        let refused = bench(&args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&refused.stderr).lines().count(), 1);
    }
}

#[test]
fn swap_says_for_every_preset_and_file_what_the_swap_file_holds() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.pages", "b.pages", "a.txt"] {
        pages_file(dir.path(), name);
    }
    let output = bench(&["swap", dir.path().to_str().unwrap()]);
    let table = stdout(&output);
    for name in ["pleat", "douglis93", "cervera99", "castro03", "none"] {
        let lines = table
            .lines()
            .filter(|l| l.split_whitespace().nth(1) == Some(name));
        assert_eq!(lines.count(), 3, "two files and all, {name}: {table}");
    }
    let lines = table.lines().filter(|l| l.starts_with("a "));
    assert_eq!(lines.count(), 5, "{table}");
}

#[test]
fn swap_counts_pages_of_one_word_as_stored_for_nothing_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = pages_file(dir.path(), "mine.pages");
    let output = bench(&["swap", "--json", "--preset", "none,castro03,none", &file]);
    let lines = stdout(&output).lines();
    let lines: Vec<serde_json::Value> = lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let [none, castro03] = &lines[..] else {
        panic!("a line for each preset: {lines:?}");
    };
    assert_eq!(
        (&none["preset"], &none["pool"]),
        (&"none".into(), &"mine".into())
    );
    for line in &lines {
        let number = |field: &str| line[field].as_u64().unwrap_or_else(|| panic!("{line}"));
        assert_eq!(number("pages"), 8 * number("same_pages"), "{line}");
        assert_eq!(number("kept_pages"), 0, "{line}");
        assert!(number("folded_bytes") <= number("used_bytes"), "{line}");
        assert!(number("used_bytes") <= number("file_bytes"), "{line}");
    }
    assert_eq!(none["gain_without_same"], 1.0, "{none}");
    assert_eq!(none["gain"], 1.143, "{none}");
    assert_eq!(none["share_of_ideal"], 1.0, "{none}");
    assert_eq!(
        castro03["gain_without_same"], 1.0,
        "a block each: {castro03}"
    );
    assert!(
        castro03["share_of_ideal"].as_f64() < Some(0.6),
        "{castro03}"
    );
}
