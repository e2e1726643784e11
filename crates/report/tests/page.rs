//! Files that were made up, read and shown: whatever is in them and however they end.

mod made;

use made::Made;
use pleat_report::{page, ReadError, Run};
use serde_json::json;
use std::io::{BufReader, Read};
use std::time::{Duration, Instant};

const PAGE_MAX: usize = 1 << 20;

fn read(text: &str) -> Result<Run, ReadError> {
    Run::read(&mut text.as_bytes(), "run.jsonl")
}

fn shown(made: &Made) -> String {
    page(&[read(&made.text()).unwrap()])
}

fn short() -> Made {
    Made {
        seconds: 60,
        processes: 3,
        ..Made::default()
    }
}

/// A page is whole, and has nothing in it that is no number.
fn checked(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    for wrong in ["NaN", "inf\"", "inf ", ">inf", "undefined"] {
        assert!(!html.contains(wrong), "{wrong}: {}", around(html, wrong));
    }
    for element in [
        "section", "figure", "table", "svg", "details", "div", "dl", "ul", "main", "script",
    ] {
        let (open, close) = (format!("<{element}"), format!("</{element}>"));
        let opened = html
            .match_indices(&open)
            .filter(|(at, _)| !html[at + open.len()..].starts_with(char::is_alphabetic));
        assert_eq!(opened.count(), html.matches(&close).count(), "{element}");
    }
    // Nothing is fetched: the only address is none.
    assert_eq!(html.matches("href=").count(), 1);
    assert!(html.contains("href=\"data:,\""));
    for fetched in ["http:", "https:", "src=", "@import", "url("] {
        assert!(
            !html.contains(fetched),
            "{fetched}: {}",
            around(html, fetched)
        );
    }
}

fn around<'a>(html: &'a str, what: &str) -> &'a str {
    let at = html.find(what).unwrap_or(0);
    let (from, to) = (at.saturating_sub(80), (at + 80).min(html.len()));
    html.get(from..to).unwrap_or("")
}

#[test]
fn a_run_of_half_an_hour_is_shown_with_all_its_parts_and_is_small() {
    let html = shown(&Made::default());
    checked(&html);
    assert!(html.len() < PAGE_MAX, "{} bytes", html.len());
    for part in [
        "python3 train.py --epochs 30",
        "2026-11-28 ",
        "exit status 0",
        "needed 4.5G, 2.25 times the 2G budget",
        "<h2>Memory in use</h2>",
        "<h2>Memory away from programs</h2>",
        "<h2>Pages filled</h2>",
        "<h2>Threads that waited</h2>",
        "<h2>Compression ratio</h2>",
        "<h2>Swap file</h2>",
        "<h2>How large the compressed part was</h2>",
        "<h2>How long faults took</h2>",
        "growths_denied",
        "seccomp filter",
        "Intel(R) Xeon(R) Processor",
        "report.pager.swap_read_us",
    ] {
        assert!(html.contains(part), "no {part}");
    }
}

#[test]
fn what_a_file_does_not_have_is_left_out() {
    let made = Made {
        has_latencies: false,
        needed_mb: 300,
        ..short()
    };
    let html = shown(&made);
    checked(&html);
    for part in [
        "How long faults took",
        "<h2>Swap file</h2>",
        "<h2>Memory away",
        "<h2>Compression ratio",
    ] {
        assert!(!html.contains(part), "{part}");
    }
    assert!(
        html.contains("which is within the 2G budget"),
        "{}",
        around(&html, "which is")
    );
    assert!(html.contains("<h2>Memory in use</h2>"));
}

#[test]
fn whatever_a_program_calls_itself_it_does_not_get_into_the_page() {
    let evil = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u{202e}";
    let message = format!("no room: {evil}");
    let made = Made {
        program: vec![evil.into(), evil.into()],
        name: evil.into(),
        process: evil.into(),
        ending: Some(
            json!({"kind": "stopped", "exit_code": null, "signal": null, "message": message}),
        ),
        ..short()
    };
    let text = made
        .text()
        .replace("it has a seccomp filter", &evil.replace('"', "\\\""));
    let text = text
        .replace("\"cpu\":\"Intel", "\"cpu\":\"<b>Intel")
        .replace("\"codec\":\"auto\"", "\"<i>codec\":\"<i>auto\"");
    let run = |name: &str| Run::read(&mut text.as_bytes(), name).unwrap();
    for runs in [vec![run(evil)], vec![run(evil), run("b")]] {
        let html = page(&runs);
        for wrong in ["<script>alert", "<img", "<b>Intel", "<i>"] {
            assert!(!html.contains(wrong), "{wrong}: {}", around(&html, wrong));
        }
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        assert!(html.contains("pleat ended the job (exit status 125):"));
        // Scripts are the page's own and its data, whatever else is in it.
        let scripts = html.matches("<script>").count()
            + html.matches("<script type=\"application/json\">").count();
        assert_eq!(html.matches("</script").count(), scripts);
    }
}

#[test]
fn a_file_without_an_end_and_a_last_line_that_was_cut_are_shown_as_far_as_they_go() {
    let killed = Made {
        ending: None,
        ..short()
    };
    let text = killed.text();
    let html = page(&[read(&text).unwrap()]);
    checked(&html);
    assert!(html.contains("it still runs, or pleat was killed"));
    assert!(html.contains("no end line"));
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    let begin = text.find('\n').unwrap() + 1;
    for cut in [
        text.len() - 1,
        text.len() - 2,
        last + 30,
        last + 1,
        begin + 3,
    ] {
        let run = read(&text[..cut]).unwrap_or_else(|error| panic!("{cut}: {error}"));
        let html = page(&[run]);
        checked(&html);
        assert_eq!(
            html.contains("the last line was cut short"),
            cut < text.len() - 1,
            "{cut}"
        );
    }
    // After a power failure there may be zeros.
    let zeros = format!("{}{}", &text[..last + 30], "\0".repeat(500));
    assert!(page(&[read(&zeros).unwrap()]).contains("the last line was cut short"));
}

#[test]
fn a_job_that_ended_before_its_first_sample_is_told_of_without_charts() {
    let never = Made {
        seconds: 0,
        ending: Some(
            json!({"kind": "not_started", "exit_code": null, "signal": null, "message": "no such program"}),
        ),
        ..Made::default()
    };
    for text in [never.text(), never.start() + "\n", never.start()] {
        let html = page(&[read(&text).unwrap()]);
        checked(&html);
        assert!(!html.contains("<svg") || html.contains("How long faults took"));
    }
    let html = shown(&never);
    assert!(html.contains("pleat did not start it:</strong> no such program"));
    // A single sample is a line already.
    let one = Made {
        seconds: 1,
        needed_mb: 300,
        ..Made::default()
    };
    let html = shown(&one);
    checked(&html);
    assert!(html.contains("<h2>Memory in use</h2>"));
}

#[test]
fn what_is_no_series_is_refused_in_a_line_with_the_remedy() {
    let good = short().text();
    let newer = good.replacen("\"format\":1", "\"format\":2", 1);
    let mut lines: Vec<&str> = good.lines().collect();
    lines[7] = "{\"kind\":\"sample\",\"wall";
    let damaged = lines.join("\n");
    let stats = json!({"pleat_version": "0.2.0", "program": ["x"], "ending": {}, "report": {"wall_us": 1}, "profile": null});
    let cases = [
        ("".to_owned(), "is empty"),
        ("{\"kind\":\"start\",\"form".to_owned(), "is empty"),
        ("{\"ki".to_owned(), "is empty"),
        (serde_json::to_string_pretty(&stats).unwrap(), "--stats"),
        (stats.to_string(), "--stats"),
        ("<!DOCTYPE html>\n<html>".to_owned(), "no series"),
        ("\u{7f}ELF\u{0}\u{1}".to_owned(), "no series"),
        ("{}\n".to_owned(), "no series"),
        ("[1,2]\n".to_owned(), "no series"),
        (
            json!({"pid": 7, "tiers": {}, "rates": {}}).to_string(),
            "no series",
        ),
        (good.lines().nth(1).unwrap().to_owned(), "no series"),
        (newer, "format 2"),
        (damaged, "line 8 of run.jsonl is damaged"),
        (
            good.replacen("\"wall_us\":1000", "\"wall_us\":-1000", 1),
            "line 2 of run.jsonl is damaged",
        ),
        (format!("{good}{good}"), "begins another job"),
    ];
    for (text, said) in cases {
        let error = read(&text)
            .err()
            .unwrap_or_else(|| panic!("read: {said}"))
            .to_string();
        assert!(
            error.contains(said) && !error.contains('\n'),
            "{said}: {error}"
        );
        let remedies = [
            "give a file",
            "record it again",
            "use pleat 0.2.0",
            "head -n",
        ];
        assert!(
            remedies.iter().any(|remedy| error.contains(remedy)),
            "{error}"
        );
    }
    // A line without an end is not read for ever.
    let mut endless = BufReader::new(std::io::repeat(b'a'));
    assert!(matches!(
        Run::read(&mut endless, "x"),
        Err(ReadError::Foreign(_))
    ));
    let start = short().start() + "\n";
    let mut endless = BufReader::new(start.as_bytes().chain(std::io::repeat(b'a')));
    assert!(matches!(
        Run::read(&mut endless, "x"),
        Err(ReadError::Damaged { line: 2, .. })
    ));
}

#[test]
fn runs_stand_beside_each_other_with_the_same_scales() {
    let small = Made {
        seconds: 300,
        budget_mb: 1024,
        seed: 2,
        ..Made::default()
    };
    let runs = [
        read(&Made::default().text()).unwrap(),
        read(&small.text()).unwrap(),
    ];
    let html = page(&runs);
    checked(&html);
    assert!(html.contains("<h3>Different settings</h3>"));
    assert!(
        html.contains("2 runs compared") && html.contains("-83%"),
        "{}",
        around(&html, "Time")
    );
    let axis = |chart: &str, number: usize| {
        let at = html
            .find(&format!("id=\"{chart}-{number}-t\""))
            .unwrap_or_else(|| panic!("{chart} {number}"));
        let end = html[at..].find("</figure>").unwrap() + at;
        let labels = html[at..end].split("<span class=\"").skip(1);
        labels
            .map(|label| label.split('<').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for chart in ["memory", "away", "faults", "stall", "swap", "sizing"] {
        assert_eq!(axis(chart, 0), axis(chart, 1), "{chart}");
        assert!(axis(chart, 0).len() > 5, "{chart}");
    }
    let dozen: Vec<Run> = (0..12)
        .map(|seed| {
            read(
                &Made {
                    seed,
                    ..Made::default()
                }
                .text(),
            )
            .unwrap()
        })
        .collect();
    let html = page(&dozen);
    checked(&html);
    assert!(html.len() < 3 * PAGE_MAX, "{} bytes", html.len());
}

#[test]
fn ids_on_a_page_are_unique() {
    let runs = [
        read(&short().text()).unwrap(),
        read(&short().text()).unwrap(),
    ];
    let html = page(&runs);
    let mut ids: Vec<&str> = html
        .split(" id=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    for used in html
        .split("aria-labelledby=\"")
        .skip(1)
        .flat_map(|rest| rest.split('"').next().unwrap().split(' '))
    {
        assert!(ids.contains(&used), "{used}");
    }
}

/// Gives a series away as it is read, so that no test holds a week of it.
struct Stream<I> {
    lines: I,
    rest: Vec<u8>,
}

impl<I: Iterator<Item = String>> Read for Stream<I> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.rest.is_empty() {
            if let Some(line) = self.lines.next() {
                self.rest = line.into_bytes();
                self.rest.push(b'\n');
            }
        }
        let length = self.rest.len().min(into.len());
        into[..length].copy_from_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Ok(length)
    }
}

#[test]
fn a_week_takes_bounded_time_and_makes_no_larger_page() {
    let week = Made {
        seconds: 7 * 86_400,
        interval: 10,
        processes: 2,
        ..Made::default()
    };
    let begun = Instant::now();
    let lines = std::iter::once(week.start()).chain(week.samples());
    let stream = Stream {
        lines,
        rest: Vec::new(),
    };
    let run = Run::read(&mut BufReader::new(stream), "week.jsonl").unwrap();
    let html = page(&[run]);
    checked(&html);
    assert!(html.len() < PAGE_MAX, "{} bytes", html.len());
    assert!(html.contains("7 d"), "{}", around(&html, "<h1>"));
    // Most of it is the making of the series.
    assert!(
        begun.elapsed() < Duration::from_secs(240),
        "{:?}",
        begun.elapsed()
    );
}
