//! `pleat sim` as a user meets it: a workload in, a table, JSON or a plot out, and one line for each
//! mistake.

mod program;

use program::{pleat, stdout};
use serde_json::Value;
use std::fs;
use std::process::Output;

const CYCLE: &str = "thrasher:pages=3000,passes=4,ratio=0.25";

fn sim(args: &[&str]) -> Output {
    pleat(&[&["sim"], args].concat())
}

/// The line on standard error of a mistake.
fn mistake(args: &[&str]) -> String {
    let output = sim(args);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(output.stdout.is_empty());
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn json(args: &[&str]) -> Vec<Value> {
    let output = sim(args);
    let lines = stdout(&output).lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn the_table_has_a_block_for_each_size_and_compares_with_none() {
    let output = sim(&[
        "--workload",
        CYCLE,
        "--memory",
        "8M,16M",
        "--preset",
        "castro03,castro03,pleat/run=4",
    ]);
    let table = stdout(&output);
    assert_eq!(table.matches("memory ").count(), 2, "{table}");
    for preset in ["none", "castro03", "pleat/run=4"] {
        let lines = table
            .lines()
            .filter(|line| line.split_whitespace().next() == Some(preset));
        assert_eq!(lines.count(), 2, "{preset}: {table}");
    }
}

#[test]
fn json_is_one_object_a_line_and_the_same_every_time() {
    let args = ["--workload", CYCLE, "--memory", "8M", "--json"];
    let lines = json(&args);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["preset"], "none");
    assert_eq!(lines[1]["preset"], "pleat");
    let (none, pleat) = (&lines[0], &lines[1]);
    assert_eq!(pleat["references"], 12_000);
    assert_eq!(pleat["memory_bytes"], 8 << 20);
    let elapsed = |line: &Value| line["elapsed_ns"].as_f64().unwrap();
    let speedup = pleat["speedup"].as_f64().unwrap();
    assert!(speedup > 2.0, "{speedup}");
    assert!((speedup - elapsed(none) / elapsed(pleat)).abs() < 1e-9);
    for (group, field) in [("cpu", "compress_ns"), ("engine", "taken_pages")] {
        assert!(pleat[group][field].as_u64() > Some(0), "{group}.{field}");
    }
    assert_eq!(json(&args)[1]["elapsed_ns"], pleat["elapsed_ns"]);
}

#[test]
fn cpus_devices_and_hosts_matter() {
    let elapsed = |more: &[&str]| {
        let mut args = vec!["--workload", CYCLE, "--memory", "8M", "--json"];
        args.extend(more);
        json(&args)[0]["elapsed_ns"].as_u64().unwrap()
    };
    let usual = elapsed(&[]);
    assert!(elapsed(&["--device", "hdd"]) > usual);
    assert!(elapsed(&["--cpu", "p2"]) > usual);
    assert!(elapsed(&["--host", "pager"]) > usual);
    let two = format!("{CYCLE}+{CYCLE}");
    let run = |cpus: &str| {
        let args = ["--workload", &two, "--memory", "64M", "--json"];
        json(&[&args, &["--cpus", cpus][..]].concat())[0]["elapsed_ns"].as_u64()
    };
    assert!(run("2") < run("1"));
}

#[test]
fn a_device_can_come_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let path = file.to_str().expect("UTF-8");
    let args = [
        "--workload",
        CYCLE,
        "--memory",
        "8M",
        "--json",
        "--device",
        path,
    ];
    let text = "read_latency_us = 80\nwrite_latency_us = 20\nread_mb_per_s = 3000\n\
                write_mb_per_s = 3000\ndepth = 32\n";
    fs::write(&file, text).unwrap();
    let named = ["--workload", CYCLE, "--memory", "8M", "--json"];
    assert_eq!(json(&args)[0]["elapsed_ns"], json(&named)[0]["elapsed_ns"]);
    fs::write(&file, text.replace("depth", "queue")).unwrap();
    let line = mistake(&args);
    assert!(
        line.contains("queue") && line.contains("mine.toml"),
        "{line}"
    );
}

#[test]
fn the_plot_has_a_line_for_each_preset() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sweep.svg");
    let path = file.to_str().expect("UTF-8");
    let args = ["--workload", CYCLE, "--memory", "16M,8M", "--svg", path];
    stdout(&sim(&args));
    let svg = fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
}

#[test]
fn mistakes_are_one_line_with_what_there_is() {
    let good = ["--workload", CYCLE, "--memory", "8M"];
    for (more, expected) in [
        (["--preset", "magic"], "castro03"),
        (["--device", "tape"], "hdd2003"),
        (["--device", "none.toml"], "none.toml"),
        (["--cpu", "z80"], "modern"),
        (["--memory", "many"], "340M"),
        (["--preset", "pleat/codec=zstd:19"], "lzo"),
        (["--trace", "x.trace"], "--workload"),
        (["--svg", "no/such/dir.svg"], "--svg"),
    ] {
        let line = mistake(&[&good[..], &more[..]].concat());
        assert!(line.contains(expected), "{more:?}: {line}");
    }
    for (args, expected) in [
        (["--workload", "magic", "--memory", "8M"], "thrasher"),
        (["--trace", "no.trace", "--memory", "8M"], "no.trace"),
        (["--workload", CYCLE, "--memory", "64K"], "give at least"),
    ] {
        let line = mistake(&args);
        assert!(line.contains(expected), "{args:?}: {line}");
    }
    let line = mistake(&["--memory", "8M"]);
    assert!(
        line.contains("--trace") || line.contains("--workload"),
        "{line}"
    );
}

#[test]
fn the_help_lists_workloads_devices_and_cpus() {
    let output = sim(&["--help"]);
    let help = stdout(&output);
    for name in ["thrasher", "hdd2003", "decstation", "Examples:"] {
        assert!(help.contains(name), "{name}");
    }
}

#[test]
fn misses_are_counted_for_the_policies_and_each_preset_and_compared_with_lru_and_opt() {
    let spec = "zipf:pages=500,refs=20k";
    let args = ["--misses", "--workload", spec, "--memory", "50%,400K"];
    let table = sim(&args);
    let table = stdout(&table);
    assert!(
        table.starts_with("memory 1000K (250 frames), pages 500"),
        "{table}"
    );
    assert_eq!(table.matches("policy ").count(), 2, "{table}");
    let args = [&args[..], &["--json", "--preset", "castro03,staged:25"]].concat();
    let rows = json(&args);
    let names: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["policy"].as_str())
        .collect();
    let one = [
        "opt",
        "lru",
        "clock",
        "fifo",
        "staged:10",
        "castro03",
        "staged:25",
    ];
    assert_eq!(names, [one, one].concat());
    for row in &rows {
        assert_eq!(
            row["misses"].as_u64().unwrap() - row["refaults"].as_u64().unwrap(),
            500
        );
        assert!(row["of_opt"].as_f64().unwrap() >= 1.0, "{row}");
    }
    assert_eq!(rows[1]["of_lru"], 1.0);
    assert_eq!(
        rows[3]["misses"], rows[5]["misses"],
        "castro03 sees no use: FIFO"
    );
}

#[test]
fn mistakes_in_what_misses_are_counted_of_say_what_there_is() {
    let of = |memory, preset| {
        let workload = "zipf:pages=500,refs=20k";
        let known = ["--misses", "--workload", workload];
        mistake(&[&known[..], &["--memory", memory, "--preset", preset]].concat())
    };
    assert!(of("120%", "pleat").contains("1% to 100%"));
    assert!(of("1M", "lrux").contains("ramzswap09"));
    assert!(of("1M", "staged:100").contains("1 to 99"));
}
