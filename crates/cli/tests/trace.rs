//! `pleat trace` and `pleat model` as a user meets them: a description or a text in, a trace out, and
//! one line for each mistake.

mod program;

use program::{pleat, stdout};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The one line that a failure prints.
fn complaint(output: &Output, status: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("pleat: "), "{stderr}");
    stderr
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A trace of that description, in a directory that is kept as long as the first value.
fn generated(spec: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("it.trace");
    stdout(&pleat(&["trace", "generate", spec, text(&file)]));
    (dir, file)
}

#[test]
fn a_generated_trace_tells_what_it_holds() {
    let (_dir, file) = generated("thrasher:pages=512,passes=4,write=0,ratio=0.25+scan:pages=256");
    let output = pleat(&["trace", "info", text(&file)]);
    let table = stdout(&output);
    let row = |name: &str| {
        let is_it = |line: &&str| line.split_whitespace().next() == Some(name);
        let line = table
            .lines()
            .find(is_it)
            .unwrap_or_else(|| panic!("{table}"));
        line.split_whitespace().skip(1).collect::<Vec<_>>()
    };
    assert_eq!(row("0"), ["2048", "25.0", "%", "512", "2.0", "0.002"]);
    assert_eq!(row("1"), ["256", "0.0", "%", "256", "1.0", "0.000"]);
    assert_eq!(row("all")[..5], ["2304", "22.2", "%", "768", "3.0"]);
    assert!(table.contains("2 regions"), "{table}");

    let output = pleat(&["trace", "info", "--json", text(&file)]);
    let info: serde_json::Value = serde_json::from_str(stdout(&output)).expect("JSON");
    assert_eq!(info["references"], 2304);
    assert_eq!(info["footprint_mib"], 3.0);
    assert_eq!(info["processes"][0]["pages"], 512);
    let share = info["compressed_share"].as_f64().unwrap();
    assert!((0.28..0.32).contains(&share), "2 x 0.25 + 0.4: {share}");
}

#[test]
fn what_is_dumped_can_be_imported_again() {
    let (dir, file) = generated("zipf:pages=40,refs=300");
    let dumped = pleat(&["trace", "dump", text(&file)]);
    let references = dir.path().join("references.txt");
    fs::write(&references, stdout(&dumped)).unwrap();
    let again = dir.path().join("again.trace");
    stdout(&pleat(&[
        "trace",
        "import",
        text(&references),
        text(&again),
    ]));
    assert_eq!(
        stdout(&pleat(&["trace", "dump", text(&again)])),
        stdout(&dumped)
    );
}

#[test]
fn the_example_of_the_help_works() {
    let dir = tempfile::tempdir().unwrap();
    let (references, file) = (dir.path().join("references.txt"), dir.path().join("x"));
    fs::write(&references, "0 - 17 w 1200 size=900\n0 libc 4 r\n").unwrap();
    stdout(&pleat(&["trace", "import", text(&references), text(&file)]));
    let output = pleat(&["trace", "dump", text(&file)]);
    let lines: Vec<&str> = stdout(&output).lines().skip(1).collect();
    assert_eq!(
        lines,
        ["0 -0 17 w 1200 size=900", "0 file1 4 r 1200 size=1638"]
    );
}

#[test]
fn lackeys_output_comes_in_through_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ls.trace");
    let flags = ["--lackey", "--instruction-ns", "2", "--ratio", "0.5"];
    let mut pleat_process = Command::new(env!("CARGO_BIN_EXE_pleat"))
        .args(["trace", "import"])
        .args(flags)
        .args(["-", text(&file)])
        .stdin(Stdio::piped())
        .spawn()
        .expect("pleat runs");
    let input = b"==1== Lackey\nI  04001090,3\nI  04001093,3\n S 1ffefffe78,8\n";
    let mut stdin = pleat_process.stdin.take().expect("a pipe");
    stdin.write_all(input).unwrap();
    drop(stdin);
    assert!(pleat_process.wait().unwrap().success());
    let output = pleat(&["trace", "dump", text(&file)]);
    let lines: Vec<&str> = stdout(&output).lines().skip(1).collect();
    assert_eq!(
        lines,
        ["0 file0 16385 r 2 size=2048", "0 -1 33550335 w 2 size=2048"]
    );
}

#[test]
fn every_mistake_is_one_line_with_its_remedy() {
    let (dir, file) = generated("scan:pages=3");
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (bad, out, missing) = (path("bad.txt"), path("out"), path("missing"));
    fs::write(&bad, "0 - 1 r\n0 - 1 x\n").unwrap();
    let whole = fs::read(&file).unwrap();
    fs::write(path("cut"), &whole[..whole.len() - 3]).unwrap();
    let cut = path("cut");
    let cases: [(&[&str], &str); 11] = [
        (&["generate", "nosuch", &out], "choose one of thrasher"),
        (&["generate", "scan:page=3", &out], "it has pages="),
        (
            &["generate", "scan:pages=3", "/nonexistent/x"],
            "choose another",
        ),
        (
            &["import", &bad, &out],
            "line 2: 'x' is no access: write r or w",
        ),
        (
            &["import", "--lackey", &bad, &out],
            "line 1: is no reference",
        ),
        (&["import", "--ratio", "2", &bad, &out], "from 0 to 1"),
        (&["import", &missing, &out], "- for standard input"),
        (&["info", &missing], "give a trace"),
        (&["info", &bad], "at byte 0: this is no trace"),
        (&["dump", &cut], "ends too early"),
        (&["import", "--instruction-ns", "1", &bad, &out], "--lackey"),
    ];
    for (args, wanted) in cases {
        let args = [&["trace"], args].concat();
        let line = complaint(&pleat(&args), 2);
        assert!(line.contains(wanted), "{args:?}: {line}");
    }
    assert!(!Path::new(&out).exists(), "nothing half-written is left");
    let full = pleat(&["trace", "generate", "scan:pages=9000", "/dev/full"]);
    complaint(&full, 125);
}

#[test]
fn help_lists_every_generator_and_parameter() {
    let output = pleat(&["trace", "generate", "--help"]);
    let help = stdout(&output);
    for generator in pleat_trace::generators() {
        assert!(help.contains(generator.name), "{}", generator.name);
        for parameter in generator.parameters {
            let wanted = format!("{}=", parameter.name);
            assert!(help.contains(&wanted), "{wanted}");
        }
    }
}

#[test]
fn the_model_is_tables_json_and_a_picture() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("figure.svg");
    let output = pleat(&["model", "--svg", text(&svg)]);
    let tables = stdout(&output);
    assert!(
        tables.contains("(a) ") && tables.contains("(b) "),
        "{tables}"
    );
    assert!(fs::read_to_string(&svg).unwrap().starts_with("<svg "));

    let output = pleat(&["model", "--figure", "1b", "--json"]);
    for line in stdout(&output).lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["figure"], "1b");
        let [left, speed, speedup] =
            ["left", "relative_speed", "speedup"].map(|field| line[field].as_f64().unwrap());
        if left <= 0.5 {
            assert!((speedup - speed * 4.0 / 3.0).abs() < 1e-9, "linear: {line}");
        }
    }
    let wrong = complaint(&pleat(&["model", "--figure", "2"]), 2);
    assert!(wrong.contains("1a, 1b"), "{wrong}");
}
