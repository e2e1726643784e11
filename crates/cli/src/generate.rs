//! `pleat completions`, and `pleat generate` for `make install`: completions and man pages, all from the one definition of flags.

use crate::args::{self, CompletionsArgs, GenerateAllArgs};
use crate::exit::{Exit, Stop};
use crate::output::print;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Where shells look for the completions of a command, below a directory such as /usr/share.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/pleat"),
    (Shell::Zsh, "zsh/site-functions/_pleat"),
    (Shell::Fish, "fish/vendor_completions.d/pleat.fish"),
];

/// Prints the completions of a shell.
pub fn completions(raw: &CompletionsArgs) -> Exit {
    Stop::exit(print(&String::from_utf8_lossy(&completions_of(raw.shell))))
}

fn completions_of(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "pleat", &mut text);
    text
}

/// Writes all there is to install below a directory.
pub fn generate(raw: &GenerateAllArgs) -> Exit {
    let done = write_all(&raw.dir);
    let why = |error| Stop::failure(format!("cannot write to {}: {error}", raw.dir.display()));
    Stop::exit(done.map_err(why))
}

fn write_all(dir: &Path) -> io::Result<()> {
    for (shell, name) in COMPLETIONS {
        write(&dir.join(name), &completions_of(shell))?;
    }
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    pages(&command, &mut |name, page| {
        write(&dir.join(format!("man/man1/{name}.1")), page)
    })
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// A page for each command, as pleat-bench-codec.
fn pages(
    command: &Command,
    keep: &mut impl FnMut(&str, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    keep(name, &page(command.clone())?)?;
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        pages(one, keep)?;
    }
    Ok(())
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let text = |text: Option<&clap::builder::StyledStr>| {
        text.map(|text| text.to_string()).unwrap_or_default()
    };
    let examples = text(command.get_before_help());
    let rest = text(command.get_after_help());
    // Both go into sections of their own, with their lines as they are.
    let man = Man::new(command.before_help("").after_help(""));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    verbatim(
        &mut page,
        "EXAMPLES",
        examples.trim_start_matches("Examples:\n"),
    );
    man.render_options_section(&mut page)?;
    match rest.split_once("Exit status:\n") {
        Some((before, status)) => {
            verbatim(&mut page, "NOTES", before);
            verbatim(&mut page, "EXIT STATUS", status);
        }
        None => verbatim(&mut page, "NOTES", &rest),
    }
    Ok(page)
}

/// A section whose lines are not filled.
fn verbatim(page: &mut Vec<u8>, heading: &str, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    page.extend(format!(".SH {heading}\n.nf\n").bytes());
    for line in text.trim_end().lines() {
        let escaped = line.replace('\\', "\\e").replace('-', "\\-");
        // A line that begins with either of these is a command of roff's.
        let guard = if escaped.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        page.extend(format!("{guard}{escaped}\n").bytes());
    }
    page.extend(b".fi\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command as Program;

    fn generated() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path()).unwrap();
        dir
    }

    /// Runs a program on a file where it is installed: it finds nothing wrong.
    fn checked(program: &str, args: &[&str], file: &Path) {
        match Program::new(program).args(args).arg(file).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(
                    output.status.success() && said.is_empty(),
                    "{}: {said}",
                    file.display()
                );
            }
            Err(_) => pleat_testing::skip(format!("not installed: {program}")),
        }
    }

    #[test]
    fn completions_are_scripts_of_their_shells_and_know_the_flags() {
        let dir = generated();
        for (_, name) in COMPLETIONS {
            let text = fs::read_to_string(dir.path().join(name)).unwrap();
            for word in ["memory", "swap-dir", "doctor", "interval"] {
                assert!(text.contains(word), "no {word} in {name}");
            }
        }
        checked("bash", &["-n"], &dir.path().join(COMPLETIONS[0].1));
    }

    #[test]
    fn bash_completes_flags_and_commands() {
        let dir = generated();
        let script = format!(
            "source {}; COMP_WORDS=(pleat run --swap-d); COMP_CWORD=2; _pleat pleat --swap-d run; \
             echo \"${{COMPREPLY[@]}}\"",
            dir.path().join(COMPLETIONS[0].1).display()
        );
        let output = Program::new("bash").args(["-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            said.trim(),
            "--swap-dir",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    #[test]
    fn there_is_a_man_page_for_each_command_and_its_examples_keep_their_lines() {
        let dir = generated();
        let pages = dir.path().join("man/man1");
        for name in [
            "pleat",
            "pleat-run",
            "pleat-top",
            "pleat-stat",
            "pleat-bench-codec",
        ] {
            let path = pages.join(format!("{name}.1"));
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(".SH EXAMPLES\n.nf\n"), "{name}: {text}");
        }
        let run = fs::read_to_string(pages.join("pleat-run.1")).unwrap();
        let line = "      pleat run \\-\\-memory 2G \\-\\- python3 train.py\n";
        assert!(
            run.contains(line) && run.contains(".SH \"EXIT STATUS\"")
                || run.contains(".SH EXIT STATUS"),
            "{run}"
        );
        assert!(!pages.join("pleat-generate.1").exists());
    }
}
