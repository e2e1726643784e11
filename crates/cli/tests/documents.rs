//! Documents that can go stale without anybody noticing, compared with what they describe.

use std::collections::BTreeSet;
use std::path::Path;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
/// Around the tables that are made from the definitions of the counters.
const GENERATED: [&str; 2] = [
    "<!-- generated from the definitions -->\n",
    "<!-- until here -->",
];

/// First column of every table row of `document` that is in backticks.
fn rows(document: &str) -> BTreeSet<&str> {
    let cells = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    cells.map(|(name, _)| name).collect()
}

#[test]
fn every_dependency_is_explained_and_none_that_is_gone() {
    let manifest = include_str!("../../../Cargo.toml");
    let section = manifest
        .split("[workspace.dependencies]")
        .nth(1)
        .expect("a section");
    let section = section.split("\n[").next().expect("its text");
    let used: BTreeSet<&str> = section
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.trim())
        .filter(|name| !name.starts_with("pleat-"))
        .collect();
    assert!(used.contains("libc"), "the section is read: {used:?}");
    assert_eq!(rows(include_str!("../../../docs/dependencies.md")), used);
}

/// Where a group of counters is defined, and what its fields are called in the JSON.
struct Group {
    heading: &'static str,
    prefix: &'static str,
    source: &'static str,
    begins: &'static str,
}

const GROUPS: [Group; 7] = [
    Group {
        heading: "The run as a whole",
        prefix: "report.",
        source: include_str!("../../pager/src/report.rs"),
        begins: "pub struct Report {",
    },
    Group {
        heading: "Faults by the tier that answered them",
        prefix: "report.hits.",
        source: include_str!("../../pager/src/report.rs"),
        begins: "pub struct Hits {",
    },
    Group {
        heading: "How long faults took",
        prefix: "report.latencies.",
        source: include_str!("../../pager/src/latency.rs"),
        begins: "\nsources! {",
    },
    Group {
        heading: "The pager",
        prefix: "report.pager.",
        source: include_str!("../../pager/src/meters.rs"),
        begins: "\nmeters! {",
    },
    Group {
        heading: "The engine",
        prefix: "report.engine.",
        source: include_str!("../../engine/src/counters.rs"),
        begins: "pub struct Counters {",
    },
    Group {
        heading: "The parts of a fault",
        prefix: "profile.faults.",
        source: include_str!("../../pager/src/profile/mod.rs"),
        begins: "\nparts! { FaultPart, FaultParts,",
    },
    Group {
        heading: "The parts of an eviction",
        prefix: "profile.evictions.",
        source: include_str!("../../pager/src/profile/mod.rs"),
        begins: "\nparts! { EvictionPart, EvictionParts,",
    },
];

#[test]
fn every_counter_is_explained_in_the_words_of_its_definition() {
    let path = Path::new(DOCS).join("stats.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page
        .split_once(GENERATED[0])
        .expect("a mark before the tables");
    let (tables, after) = rest
        .split_once(GENERATED[1])
        .expect("a mark after the tables");
    let defined = GROUPS.iter().map(table).collect::<String>() + "\n";
    if std::env::var_os("PLEAT_UPDATE_DOCS").is_some() {
        let [begin, end] = GENERATED;
        std::fs::write(path, format!("{before}{begin}{defined}{end}{after}")).unwrap();
    } else {
        assert!(
            tables == defined,
            "docs/stats.md is stale; PLEAT_UPDATE_DOCS=1 cargo test -p pleat-cli --test documents mends it"
        );
    }
}

fn table(group: &Group) -> String {
    let (_, body) = group
        .source
        .split_once(group.begins)
        .expect("the definition is there");
    let (body, _) = body.split_once("\n}").expect("and it ends");
    let rows: String = fields(body)
        .iter()
        .map(|(name, doc)| format!("| `{}{name}` | {doc} |\n", group.prefix))
        .collect();
    assert!(!rows.is_empty(), "{} has fields", group.begins);
    format!(
        "\n### {}\n\n| field | meaning |\n|---|---|\n{rows}\n",
        group.heading
    )
}

/// Name and text of every number among the fields; nested structures are groups of their own.
fn fields(body: &str) -> Vec<(&str, String)> {
    let (mut fields, mut doc) = (Vec::new(), Vec::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
        } else if let Some(field) = line.strip_suffix(',') {
            let field = field.strip_prefix("pub ").unwrap_or(field);
            // A part of a profile has another name in the code.
            let field = field.split_once(" = ").map_or(field, |(field, _)| field);
            let (name, kind) = field.split_once(": ").unwrap_or((field, "u64"));
            let text = std::mem::take(&mut doc).join(" ");
            if ["u64", "f64"].contains(&kind) {
                fields.push((name, text));
            }
        }
    }
    fields
}

/// `a.b` for every field of an object; those of objects in an array are named as if there were one.
fn fields_of(prefix: &str, value: &serde_json::Value, into: &mut BTreeSet<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let name = format!("{prefix}{name}");
        let below = value
            .as_array()
            .and_then(|all| all.first())
            .unwrap_or(value);
        fields_of(&format!("{name}."), below, into);
        if !value.is_object() {
            into.insert(name);
        }
    }
}

#[test]
fn every_field_of_an_answer_over_the_control_socket_is_explained() {
    use pleat_pager::control::{Detail, Row};
    let detail = Detail {
        rows: vec![Row::default()],
        ..Detail::default()
    };
    let mut told = BTreeSet::new();
    fields_of("", &serde_json::to_value(detail).unwrap(), &mut told);
    let page = include_str!("../../../docs/control.md");
    let explained: BTreeSet<String> = rows(page).into_iter().map(str::to_owned).collect();
    assert!(
        told.contains("tiers.raw_bytes") && told.contains("rows.why"),
        "{told:?}"
    );
    assert_eq!(explained, told);
}
