//! How help is laid out, of every command: what it is, examples, then flags by subject, and at the end what the exit status means.
//!
//! All of it is made of the one definition of commands and flags. Completions and man pages (`generate`) come from the same.

use super::Args;
use clap::{Command, CommandFactory};

/// Where in the text after the flags the examples end.
const REST: [&str; 3] = [
    "\n\nExit status:",
    "\n\nThe first line is",
    "\n\nThe page is",
];
/// Examples stand before the flags.
const TEMPLATE: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}";
/// The same of pleat itself, whose commands are in groups.
const TEMPLATE_OF_ALL: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";

/// Commands by what they are for. Whichever is in no group is with the last.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Run programs in less memory",
        &["run", "attach", "detach", "mount"],
    ),
    (
        "Watch and steer what runs",
        &["top", "stat", "list", "set", "report"],
    ),
    ("This machine", &["doctor", "setup", "completions"]),
    (
        "Measure and simulate",
        &["bench", "trace", "model", "papers", "sim"],
    ),
    ("Others", &[]),
];

/// Every command, as help shows it.
pub fn command() -> Command {
    let all = Args::command();
    let text = with_commands(&all);
    let rest = "'pleat run --help' explains every flag of that command, and so on.";
    all.mut_subcommands(laid_out)
        .before_help(text)
        .after_help(rest)
        .help_template(TEMPLATE_OF_ALL)
}

fn laid_out(command: Command) -> Command {
    let after = command.get_after_help().map(|text| text.to_string());
    let after = after.unwrap_or_default();
    let end = REST.iter().filter_map(|rest| after.find(rest)).min();
    let (examples, rest) = after.split_at(end.unwrap_or(after.len()));
    let (examples, rest) = (examples.to_owned(), rest.trim_start().to_owned());
    let has_commands = command.has_subcommands();
    let command = command.mut_subcommands(laid_out).help_template(TEMPLATE);
    match (examples.is_empty(), has_commands) {
        (true, _) => command.after_help(rest),
        _ => command.before_help(examples).after_help(rest),
    }
}

/// The examples, then the commands in their groups.
fn with_commands(all: &Command) -> String {
    let mut text = super::EXAMPLES.trim_end().to_owned() + "\n";
    let shown = || all.get_subcommands().filter(|one| !one.is_hide_set());
    let widest = shown().map(|one| one.get_name().len()).max().unwrap_or(0);
    for (heading, names) in GROUPS {
        let is_of_group = |one: &&Command| match names {
            [] => !GROUPS
                .iter()
                .any(|(_, names)| names.contains(&one.get_name())),
            names => names.contains(&one.get_name()),
        };
        let mut commands: Vec<&Command> = shown().filter(is_of_group).collect();
        commands.sort_by_key(|one| names.iter().position(|name| *name == one.get_name()));
        if !commands.is_empty() {
            text += &format!("\n{heading}:\n");
        }
        for one in commands {
            let about = one.get_about().map(|about| about.to_string());
            let about = about.unwrap_or_default();
            text += &format!("  {:<widest$}  {about}\n", one.get_name());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(path: &[&str]) -> String {
        let mut command = command();
        for name in path {
            let found = command.find_subcommand(name);
            command = found.expect("there is that command").clone();
        }
        command.render_long_help().to_string()
    }

    #[test]
    fn examples_stand_before_flags_and_the_exit_status_behind() {
        for (path, flag) in [
            (&["run"][..], "--memory"),
            (&["set"], "--wait"),
            (&["stat"], "--json"),
        ] {
            let help = help(path);
            let at = |text: &str| {
                help.find(text)
                    .unwrap_or_else(|| panic!("no {text} in\n{help}"))
            };
            let flag = help[at("Exit status:") - 1..]
                .find(flag)
                .map_or(at(flag), |_| {
                    help.rfind(&format!("      {flag}"))
                        .expect("the flag's own line")
                });
            assert!(
                at("Examples:") < flag && flag < at("Exit status:"),
                "{help}"
            );
        }
    }

    #[test]
    fn flags_are_grouped_by_subject() {
        let help = help(&["run"]);
        for heading in ["Memory:", "Swap file:", "Reports:"] {
            assert!(help.contains(heading), "no {heading} in\n{help}");
        }
        let options = help.split("\nOptions:\n").nth(1).unwrap_or_default();
        let options = options.split("\nMemory:\n").next().unwrap_or_default();
        let rest: Vec<&str> = options
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with('-'))
            .collect();
        assert_eq!(rest, ["-h, --help"], "the rest is in groups");
    }

    #[test]
    fn every_command_is_shown_once_with_what_it_is_for() {
        let help = help(&[]);
        for one in Args::command().get_subcommands() {
            let about = one.get_about().map(|about| about.to_string());
            let about = about.expect("each says what it is for");
            let shown = help.matches(&format!("  {about}\n")).count();
            assert_eq!(shown, usize::from(!one.is_hide_set()), "{about}: {help}");
        }
        for (_, names) in GROUPS {
            for name in names {
                assert!(
                    Args::command().find_subcommand(name).is_some(),
                    "{name} is gone"
                );
            }
        }
    }
}
