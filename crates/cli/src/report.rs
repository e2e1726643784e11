//! `pleat report`: the page of one job or of several, from the series that they recorded.

use crate::args::ReportArgs;
use crate::exit::{Exit, Stop};
use crate::output::print;
use pleat_report::{page, Run};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// More are not told apart by whoever looks at them.
const FILES_MAX: usize = 50;

/// Reads series and writes the page.
pub fn report(raw: &ReportArgs) -> Exit {
    Stop::exit(try_report(raw))
}

fn try_report(raw: &ReportArgs) -> Result<(), Stop> {
    let inputs: Vec<&Path> = raw.files.iter().map(PathBuf::as_path).collect();
    let stdins = inputs.iter().filter(|path| is_dash(path)).count();
    if stdins > 1 {
        return Err(Stop::mistake(
            "standard input holds one series only: give '-' once",
        ));
    }
    if inputs.len() > FILES_MAX {
        return Err(Stop::mistake(format!(
            "{} files are more than one page can show: give {FILES_MAX} at most",
            inputs.len()
        )));
    }
    let output = raw.output.clone().unwrap_or_else(|| beside(inputs[0]));
    let is_printed = is_dash(&output);
    if let Some(input) = inputs
        .iter()
        .find(|input| !is_printed && is_same(input, &output))
    {
        return Err(Stop::mistake(format!(
            "the page would take the place of {}: choose another file for --output",
            input.display()
        )));
    }
    let runs = inputs
        .iter()
        .map(|input| read(input))
        .collect::<Result<Vec<Run>, Stop>>()?;
    let html = page(&runs);
    match is_printed {
        true => print(&html),
        false => replace(&output, &html),
    }
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Where the page goes if nobody says so.
fn beside(input: &Path) -> PathBuf {
    match is_dash(input) {
        true => "-".into(),
        false => input.with_extension("html"),
    }
}

/// Whether both are one file, whatever they are called.
fn is_same(input: &Path, output: &Path) -> bool {
    if is_dash(input) {
        return false;
    }
    match (fs::metadata(input), fs::metadata(output)) {
        (Ok(input), Ok(output)) => (input.dev(), input.ino()) == (output.dev(), output.ino()),
        _ => input == output,
    }
}

fn read(path: &Path) -> Result<Run, Stop> {
    if is_dash(path) {
        return read_from(&mut io::stdin().lock(), "standard input");
    }
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| {
        Stop::mistake(format!(
            "cannot read {name}: {error}: give a file of 'pleat run --trace-stats'"
        ))
    })?;
    read_from(&mut BufReader::with_capacity(1 << 18, file), &name)
}

fn read_from(input: &mut impl BufRead, name: &str) -> Result<Run, Stop> {
    Run::read(input, name).map_err(|error| Stop::mistake(error.to_string()))
}

/// Puts the page where it belongs in one step: who looks at it meanwhile sees the old one or the new one, and a full disk leaves the
/// old one.
fn replace(path: &Path, html: &str) -> Result<(), Stop> {
    // A pipe or a device is written to, and stays what it is.
    if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        let written = File::options()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(html.as_bytes()));
        return written.map_err(|error| cannot_write(path, &error));
    }
    // A link goes on pointing to where it does.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let Some(name) = target.file_name().filter(|_| !target.is_dir()) else {
        let text = "it is a directory";
        return Err(Stop::mistake(format!(
            "cannot write {}: {text}: choose a file for --output",
            path.display()
        )));
    };
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = target.with_file_name(temporary);
    let written = write_new(&temporary, html).and_then(|()| fs::rename(&temporary, &target));
    written.map_err(|error| {
        // It may not be there.
        let _ = fs::remove_file(&temporary);
        cannot_write(path, &error)
    })
}

fn write_new(path: &Path, html: &str) -> io::Result<()> {
    File::create_new(path)?.write_all(html.as_bytes())
}

fn cannot_write(path: &Path, error: &io::Error) -> Stop {
    Stop::failure(format!(
        "cannot write {}: {error}: choose another file for --output",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: &str = concat!(
        r#"{"kind":"start","format":1,"pleat_version":"0.2.0","started_unix_ms":1764400000000,"program":["./train"]}"#,
        "\n",
        r#"{"kind":"sample","wall_us":1000000,"budget_bytes":1048576,"used_bytes":5,"tiers":{"uncompressed_bytes":5}}"#,
        "\n"
    );

    fn try_with(files: &[&Path], output: Option<&Path>) -> Result<(), Stop> {
        try_report(&ReportArgs {
            output: output.map(Path::to_owned),
            files: files.iter().map(|path| path.to_path_buf()).collect(),
        })
    }

    fn refused(files: &[&Path], output: Option<&Path>) -> String {
        let stop = try_with(files, output).unwrap_err();
        assert_eq!(stop.exit, Exit::Usage, "{}", stop.message);
        assert!(!stop.message.contains('\n'), "{}", stop.message);
        stop.message
    }

    fn names(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn the_page_is_beside_the_series_unless_it_is_to_be_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let (series, other) = (dir.path().join("run.jsonl"), dir.path().join("other.html"));
        fs::write(&series, SERIES).unwrap();
        try_with(&[&series], None).unwrap();
        try_with(&[&series, &series], Some(&other)).unwrap();
        assert_eq!(names(dir.path()), ["other.html", "run.html", "run.jsonl"]);
        assert!(fs::read_to_string(dir.path().join("run.html"))
            .unwrap()
            .contains("./train"));
        assert!(fs::read_to_string(&other)
            .unwrap()
            .contains("2 runs compared"));
        // Once more: what was there is replaced.
        fs::write(&other, "old").unwrap();
        try_with(&[&series], Some(&other)).unwrap();
        assert!(fs::read_to_string(&other)
            .unwrap()
            .starts_with("<!DOCTYPE html>"));
        assert_eq!(fs::read_to_string(&series).unwrap(), SERIES);
    }

    #[test]
    fn no_series_is_overwritten_however_it_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let (series, link) = (dir.path().join("run.html"), dir.path().join("link"));
        fs::write(&series, SERIES).unwrap();
        std::os::unix::fs::symlink(&series, &link).unwrap();
        for output in [None, Some(series.as_path()), Some(&link)] {
            let message = refused(&[&series], output);
            assert!(message.contains("--output"), "{message}");
        }
        assert_eq!(fs::read_to_string(&series).unwrap(), SERIES);
        assert_eq!(names(dir.path()), ["link", "run.html"]);
    }

    #[test]
    fn a_link_is_followed_and_nothing_is_left_when_writing_fails() {
        let dir = tempfile::tempdir().unwrap();
        let (series, link, target) = (
            dir.path().join("run.jsonl"),
            dir.path().join("link"),
            dir.path().join("target"),
        );
        fs::write(&series, SERIES).unwrap();
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        try_with(&[&series], Some(&link)).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&target)
            .unwrap()
            .starts_with("<!DOCTYPE html>"));
        let message = refused(&[&series], Some(dir.path()));
        assert!(message.contains("directory"), "{message}");
        let missing = dir.path().join("no/such/page.html");
        let stop = try_with(&[&series], Some(&missing)).unwrap_err();
        assert_eq!(stop.exit, Exit::Failed);
        assert!(
            stop.message.contains("page.html") && stop.message.contains("--output"),
            "{}",
            stop.message
        );
        // A device stays what it is.
        try_with(&[&series], Some(Path::new("/dev/null"))).unwrap();
        let stop = try_with(&[&series], Some(Path::new("/dev/full"))).unwrap_err();
        assert_eq!(stop.exit, Exit::Failed);
        assert_eq!(names(dir.path()), ["link", "run.jsonl", "target"]);
    }

    #[test]
    fn what_cannot_be_read_is_a_mistake_and_no_page_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (series, other) = (dir.path().join("run.jsonl"), dir.path().join("other.json"));
        fs::write(&series, SERIES).unwrap();
        fs::write(
            &other,
            "{\n \"pleat_version\": \"0.2.0\",\n \"report\": null\n}\n",
        )
        .unwrap();
        let missing = dir.path().join("missing.jsonl");
        for (path, said) in [
            (&missing, "missing.jsonl"),
            (&other, "--stats"),
            (&dir.path().to_owned(), "cannot read"),
        ] {
            let message = refused(&[&series, path], None);
            assert!(message.contains(said), "{message}");
        }
        let dash = Path::new("-");
        assert!(refused(&[dash, &series, dash], None).contains("once"));
        assert!(refused(&vec![series.as_path(); 51], None).contains("50 at most"));
        assert_eq!(names(dir.path()), ["other.json", "run.jsonl"]);
    }
}
