//! The page as a browser shows it: nothing is wrong, nothing is fetched, nothing overlaps or is too wide, on a large screen and on a phone,
//! light and dark. `PLEAT_SCREENS=DIR cargo test -p pleat-report --test browser` keeps the pictures.

mod made;

use made::Made;
use pleat_report::{page, Run};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Looks at the page from within, and leaves what it sees where `--dump-dom` shows it.
const PROBE: &str = include_str!("probe.js");
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
const PHONE: (u32, u32) = (390, 844);
const WIDE: (u32, u32) = (1280, 900);

fn run(made: &Made, name: &str) -> Run {
    Run::read(&mut made.text().as_bytes(), name).unwrap()
}

fn one() -> String {
    page(&[run(&Made::default(), "train.jsonl")])
}

fn two() -> String {
    let other = Made {
        seconds: 1300,
        budget_mb: 3072,
        seed: 5,
        ..Made::default()
    };
    page(&[
        run(&Made::default(), "runs/budget-2G.jsonl"),
        run(&other, "runs/budget-3G.jsonl"),
    ])
}

fn browser() -> Option<&'static str> {
    let works = |name: &&str| {
        Command::new(name)
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success())
    };
    let found = NAMES.into_iter().find(|name| works(name));
    if found.is_none() {
        pleat_testing::skip("not installed: chromium");
    }
    found
}

/// One sight of a page.
struct Look<'a> {
    browser: &'a str,
    dir: PathBuf,
    size: (u32, u32),
    is_dark: bool,
}

impl Look<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        let (width, height) = self.size;
        // 0 is dark, 1 light, whatever the machine prefers.
        let scheme = u8::from(!self.is_dark);
        command.args([
            "60",
            self.browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--v=0",
        ]);
        command.args([
            "--no-first-run",
            "--disable-background-networking",
            "--hide-scrollbars",
        ]);
        command.arg(format!(
            "--user-data-dir={}",
            self.dir.join("profile").display()
        ));
        command.arg(format!("--window-size={width},{height}"));
        command.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
        command
    }

    /// In a frame, which is as narrow as it is told; a window is not.
    fn framed(&self, html: &str) -> String {
        let (width, height) = self.size;
        let html = html.replace('&', "&amp;").replace('"', "&quot;");
        format!(
            "<!DOCTYPE html><meta charset=\"utf-8\"><body style=\"margin:0\">\
             <iframe style=\"border:0\" width=\"{width}\" height=\"{height}\" srcdoc=\"{html}\"></iframe>"
        )
    }

    /// What the probe sees. Nothing was said on the console.
    fn probe(&self, html: &str) -> Value {
        let probed = html.replace("</body>", &format!("<script>\n{PROBE}</script></body>"));
        let frame = format!(
            "{}<pre id=\"seen\"></pre><script>addEventListener('message', function (event) {{\
             document.getElementById('seen').textContent = event.data; }});</script>",
            self.framed(&probed)
        );
        let path = self.dir.join("probed.html");
        std::fs::write(&path, frame).unwrap();
        let output = self
            .command()
            .args(["--virtual-time-budget=5000", "--dump-dom"])
            .arg(&path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let console: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .collect();
        assert!(console.is_empty(), "{console:#?}");
        let dom = String::from_utf8_lossy(&output.stdout);
        let seen = dom
            .split("<pre id=\"seen\">")
            .nth(1)
            .unwrap_or_else(|| panic!("no page: {said}"));
        let seen = seen
            .split("</pre>")
            .next()
            .unwrap()
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&");
        serde_json::from_str(&seen).unwrap_or_else(|error| panic!("{error}: {seen}: {said}"))
    }

    /// A picture, kept where PLEAT_SCREENS says.
    fn picture(&self, html: &str, name: &str) {
        let path = self.dir.join("page.html");
        std::fs::write(&path, self.framed(html)).unwrap();
        let picture = self.dir.join(name);
        let output = self
            .command()
            .arg(format!("--screenshot={}", picture.display()))
            .arg(&path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("CONSOLE"), "{said}");
        assert!(
            std::fs::metadata(&picture).is_ok_and(|file| file.len() > 10_000),
            "{said}"
        );
        if let Some(screens) = std::env::var_os("PLEAT_SCREENS") {
            std::fs::copy(&picture, Path::new(&screens).join(name)).unwrap();
        }
    }
}

/// What must hold of every sight.
fn checked(seen: &Value, size: (u32, u32)) {
    assert_eq!(seen["width"], size.0, "the window is as wide as was asked");
    for what in [
        "errors",
        "fetched",
        "overlapping",
        "beyond",
        "faint",
        "silent",
    ] {
        assert_eq!(seen[what], serde_json::json!([]), "{what}");
    }
    assert!(seen["charts"].as_u64() >= Some(7), "{seen}");
    // The values under the pointer are shown, and go again.
    assert_ne!(seen["rest"], seen["pointed"], "{seen}");
    assert_eq!(seen["rest"], seen["left"]);
    assert!(seen["at"].as_str().unwrap().starts_with("at "), "{seen}");
}

#[test]
fn a_page_is_as_it_should_be_wide_and_narrow_light_and_dark() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (name, html) in [("one", one()), ("two", two())] {
        for (size_name, size) in [("wide", WIDE), ("phone", PHONE)] {
            for is_dark in [false, true] {
                let look = Look {
                    browser,
                    dir: dir.path().to_owned(),
                    size,
                    is_dark,
                };
                let seen = look.probe(&html);
                checked(&seen, size);
                let paper = if is_dark {
                    "rgb(13, 17, 23)"
                } else {
                    "rgb(255, 255, 255)"
                };
                assert_eq!(seen["paper"], paper, "{name} {size_name}");
            }
        }
    }
}

#[test]
fn pictures_are_made_of_it() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (name, html, size, is_dark) in [
        ("report-wide.png", one(), (1280, 5200), false),
        ("report-dark.png", one(), (1280, 5200), true),
        ("report-two.png", two(), (1600, 5200), false),
        ("report-phone.png", one(), (PHONE.0, 7000), false),
    ] {
        let look = Look {
            browser,
            dir: dir.path().to_owned(),
            size,
            is_dark,
        };
        look.picture(&html, name);
    }
}
