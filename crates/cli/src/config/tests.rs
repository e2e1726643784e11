//! What counts for more, end to end: words, variables and a file in, arguments or a message out.

use super::*;
use crate::args::{AttachArgs, MountArgs, RunArgs};
use std::path::Path;

/// A user's surroundings.
#[derive(Default)]
struct Around<'a> {
    file: Option<&'a str>,
    variables: &'a [(&'a str, &'a str)],
    is_inside: bool,
}

impl Around<'_> {
    fn parse(&self, line: &str) -> Result<Args, String> {
        let typed: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let look = |name: &str| {
            let found = self.variables.iter().find(|(one, _)| *one == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let surroundings = |reads_own: bool| {
            let own = self.file.filter(|_| reads_own);
            Ok(Surroundings {
                own: own.map(|text| ("/home/pleat.toml".into(), text.to_owned())),
                user: effective_user(),
                is_inside: self.is_inside,
            })
        };
        parse_with(&typed, &look, &surroundings).map_err(|refusal| match refusal {
            Refusal::Config(error) => error.to_string(),
            Refusal::Parser(error, given) => {
                blame(&given, &error, error.to_string().replace('\n', " "))
            }
        })
    }

    fn run(&self, line: &str) -> RunArgs {
        match self.parse(line).expect(line).command {
            Command::Run(raw) => raw,
            other => panic!("{line} is {other:?}"),
        }
    }

    fn refusal(&self, line: &str) -> String {
        self.parse(line).expect_err("must be refused")
    }
}

fn of_file(file: &str) -> Around<'_> {
    Around {
        file: Some(file),
        ..Around::default()
    }
}

const FILE: &str = "\
memory = '1G'
codec = 'lz4'
name = 'top'
[run]
codec = 'zstd'
name = 'run'
[profile.ci]
name = 'ci'
";

#[test]
fn the_command_line_counts_most_then_variable_profile_command_and_top() {
    let variables = [("PLEAT_NAME", "variable")];
    let around = of_file(FILE);
    let with_variable = Around {
        variables: &variables,
        ..of_file(FILE)
    };
    let name = |raw: RunArgs| raw.name.unwrap_or_default();
    let typed = "pleat run --name typed --use ci -- true";
    assert_eq!(name(with_variable.run(typed)), "typed");
    assert_eq!(
        name(with_variable.run("pleat run --use ci -- true")),
        "variable"
    );
    assert_eq!(name(around.run("pleat run --use ci -- true")), "ci");
    assert_eq!(name(around.run("pleat run -- true")), "run");
    let raw = around.run("pleat run -- true --memory 9");
    assert_eq!(raw.memory.as_deref(), Some("1G"));
    assert_eq!(raw.codec.as_deref(), Some("zstd"));
    assert_eq!(raw.program, ["true", "--memory", "9"]);
}

#[test]
fn each_command_takes_what_it_knows() {
    let around = of_file("memory = '1G'\nhard = true\nread-only = true\n[mount]\nmemory = '2G'\n");
    let Command::Mount(MountArgs {
        memory, read_only, ..
    }) = around.parse("pleat mount /a /b").unwrap().command
    else {
        panic!("a mount");
    };
    assert_eq!((memory.as_deref(), read_only), (Some("2G"), true));
    let Command::Attach(AttachArgs { memory, pids, .. }) =
        around.parse("pleat attach 7 8").unwrap().command
    else {
        panic!("an attach");
    };
    assert_eq!((memory.as_deref(), pids), (Some("1G"), vec![7, 8]));
    assert!(around.run("pleat run -- true").hard);
    // A file that is wrong is not even looked at by others.
    let broken = of_file("memry = 1");
    assert!(broken.parse("pleat list").is_ok());
    assert!(broken.parse("pleat run -- true").is_err());
}

#[test]
fn a_typed_flag_takes_its_contrary_out_of_the_file() {
    let around = of_file(
        "quiet = true\nno-swap = true\nhard = true\nmount = '/a:/b'\nswap-plain = true\nrecompress = true\n",
    );
    let raw = around.run("pleat run -v --swap-dir /var/tmp --cgroup never --record x -- true");
    assert!(raw.verbose && !raw.quiet, "clap's own conflicts");
    assert!(
        raw.mount.is_empty() && raw.record.is_some(),
        "from the other side, too"
    );
    assert!(!raw.no_swap && raw.swap_plain, "those that settings decide");
    assert!(!raw.hard && raw.recompress);
    assert!(around.run("pleat run --cgroup auto -- true").hard);
    let raw = of_file("[profile.disk]\nswap-dir = '/x'\n[run]\nno-swap = true\n")
        .run("pleat run --use disk -- true");
    assert!(
        raw.swap_dir.is_some() && !raw.no_swap,
        "between layers of a file"
    );
    let message = of_file("quiet = true\nverbose = true\n").refusal("pleat run -- true");
    assert!(message.starts_with("/home/pleat.toml:"), "{message}");
}

#[test]
fn a_switch_is_turned_off_by_what_counts_more() {
    let file = "no-swap = true\n[profile.disk]\nno-swap = false\n";
    assert!(of_file(file).run("pleat run -- true").no_swap);
    assert!(!of_file(file).run("pleat run --use disk -- true").no_swap);
    let around = Around {
        variables: &[("PLEAT_NO_SWAP", "0")],
        ..of_file(file)
    };
    assert!(!around.run("pleat run -- true").no_swap);
    assert!(around.run("pleat run --no-swap -- true").no_swap);
}

#[test]
fn repeated_flags_of_one_source_replace_those_of_another() {
    let around = of_file("mount = ['/a:/b', '/c:/d:ro']\n");
    assert_eq!(around.run("pleat run -- true").mount, ["/a:/b", "/c:/d:ro"]);
    let typed = around.run("pleat run --mount /e:/f -- true");
    assert_eq!(typed.mount, ["/e:/f"]);
}

#[test]
fn what_needs_another_flag_waits_for_it() {
    let around = of_file("record-resident = '4M'\n");
    assert!(around.run("pleat run -- true").record_resident.is_none());
    let raw = around.run("pleat run --record x -- true");
    assert_eq!(raw.record_resident.as_deref(), Some("4M"));
    let around = Around {
        variables: &[("PLEAT_RECORD", "x")],
        ..Around::default()
    };
    let raw = around.run("pleat run --record-resident 1M -- true");
    assert!(raw.record.is_some() && raw.record_resident.is_some());
}

#[test]
fn inside_a_job_what_is_about_one_job_is_the_outer_ones() {
    let variables = [
        ("PLEAT_MEMORY", "1G"),
        ("PLEAT_STATS", "x.json"),
        ("PLEAT_NO_SWAP", "1"),
    ];
    let around = Around {
        file: Some("name = 'x'\ncodec = 'lz4'\n[profile.p]\nname = 'p'\n"),
        variables: &variables,
        is_inside: true,
    };
    let raw = around.run("pleat run -- true");
    assert_eq!(
        (raw.memory, raw.reports.stats, raw.name),
        (None, None, None)
    );
    assert!(raw.no_swap && raw.codec.is_some());
    let raw = around.run("pleat run --use p --memory 2G -- true");
    assert_eq!(raw.name.as_deref(), Some("p"));
    assert_eq!(raw.memory.as_deref(), Some("2G"));
}

#[test]
fn no_file_is_read_when_that_is_said() {
    let around = of_file("memory = '1G'\n");
    assert!(around.run("pleat run --no-config -- true").memory.is_none());
    let variables = [
        ("PLEAT_NO_CONFIG", "1"),
        ("PLEAT_USE", "x"),
        ("PLEAT_CODEC", "lz4"),
    ];
    let around = Around {
        variables: &variables,
        ..of_file("memory = '1G'\n")
    };
    let raw = around.run("pleat run -- true");
    assert!(
        raw.memory.is_none() && raw.codec.is_some(),
        "variables count"
    );
}

#[test]
fn a_named_file_is_read_instead_of_the_users_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.toml");
    std::fs::write(&path, "memory = '2G'\n").unwrap();
    let path = path.to_str().unwrap();
    let around = of_file("memory = '1G'\ncodec = 'lz4'\n");
    let raw = around.run(&format!("pleat run --config {path} -- true"));
    assert_eq!((raw.memory.as_deref(), raw.codec), (Some("2G"), None));
    assert_eq!(raw.config.given.file.as_deref(), Some(Path::new(path)));
    let variables = [("PLEAT_CONFIG", path)];
    let around = Around {
        variables: &variables,
        ..of_file("memory = '1G'\n")
    };
    assert_eq!(
        around.run("pleat run -- true").memory.as_deref(),
        Some("2G")
    );
    assert!(around.run("pleat run --no-config -- true").memory.is_none());
    let message = around.refusal("pleat run --config /nonexistent/x.toml -- true");
    assert!(
        message.contains("/nonexistent/x.toml") && message.contains("--no-config"),
        "{message}"
    );
}

#[test]
fn an_unknown_profile_is_answered_with_the_known_ones() {
    let around = of_file("[profile.ci]\n[profile.laptop]\n");
    let message = around.refusal("pleat run --use lap -- true");
    assert_eq!(
        message,
        "there is no profile 'lap' in /home/pleat.toml: choose from ci, laptop"
    );
    let message = of_file("").refusal("pleat run --use ci -- true");
    assert!(message.contains("[profile.ci]"), "{message}");
    let message = Around::default().refusal("pleat run --use ci -- true");
    assert!(message.contains("no file"), "{message}");
}

#[test]
fn a_value_that_the_parser_refuses_is_told_with_its_place() {
    let message = of_file("\ncgroup = 'maybe'\n").refusal("pleat run -- true");
    assert!(message.starts_with("/home/pleat.toml:2:10: "), "{message}");
    assert!(message.contains("never"), "{message}");
    let around = Around {
        variables: &[("PLEAT_METRICS", "nowhere")],
        ..Around::default()
    };
    let message = around.refusal("pleat run -- true");
    assert!(message.starts_with("$PLEAT_METRICS: "), "{message}");
    let message = around.refusal("pleat run --metrics here -- true");
    assert!(!message.contains("PLEAT_METRICS"), "{message}");
    let message = around.refusal("pleat run");
    assert!(!message.contains("lists"), "{message}");
}

#[test]
fn what_is_not_typed_is_told_with_its_source() {
    let around = Around {
        variables: &[("PLEAT_CODEC", "lz4")],
        ..of_file(FILE)
    };
    let raw = around.run("pleat run --use ci -- true");
    assert_eq!(
        raw.config.given.lines(),
        [
            "settings of /home/pleat.toml, profile ci",
            "codec = lz4 ($PLEAT_CODEC)",
            "name = ci (/home/pleat.toml:8:8)",
            "memory = 1G (/home/pleat.toml:1:10)",
        ]
    );
    assert!(Around::default()
        .run("pleat run -- true")
        .config
        .given
        .lines()
        .is_empty());
}

#[test]
fn a_value_that_settings_refuse_is_told_with_its_place() {
    let given = of_file("memory = 'lots'\n")
        .run("pleat run -- true")
        .config
        .given;
    let error = crate::settings::parse_memory("lots").unwrap_err();
    let message = given.blame_settings(&error);
    assert!(
        message.starts_with("/home/pleat.toml:1:10: --memory: 'lots'"),
        "{message}"
    );
    let typed = of_file("memory = '1G'\n").run("pleat run --memory lots -- true");
    let message = typed.config.given.blame_settings(&error);
    assert!(message.starts_with("--memory: 'lots'"), "{message}");
}

#[test]
fn the_file_to_begin_with_is_right_and_its_profiles_are_documented() {
    let text = include_str!("../../../../contrib/pleat.toml");
    let layout = Layout::parse(Path::new("contrib/pleat.toml"), text).unwrap();
    let page = include_str!("../../../../docs/config.md");
    assert!(layout.profiles.len() > 2, "{:?}", layout.profiles);
    for (name, settings) in &layout.profiles {
        let rows = page
            .lines()
            .filter(|line| line.starts_with(&format!("| `{name}` |")));
        let rows: Vec<&str> = rows.collect();
        assert!(!rows.is_empty(), "nothing about {name}");
        for one in settings {
            assert!(
                rows[0].contains(&format!("`{}", one.flag)),
                "{name} has {}",
                one.flag
            );
        }
        of_file(text).run(&format!("pleat run --use {name} -- true"));
    }
    // With the comment signs of its examples taken away it is right, too.
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let layout = Layout::parse(Path::new("contrib/pleat.toml"), &uncommented).unwrap();
    assert!(!layout.top.is_empty() && !layout.commands["mount"].is_empty());
}

#[test]
fn the_example_of_the_page_is_right() {
    let page = include_str!("../../../../docs/config.md");
    let lines = page
        .lines()
        .skip_while(|line| !line.contains("# ~/.config"));
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    let text: String = lines
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    let raw = of_file(&text).run("pleat run --use ci -- make");
    assert!(raw.hard && raw.kill_on_exit && raw.swap_dir.is_some());
    assert_eq!((raw.memory.as_deref(), raw.mount.len()), (Some("4G"), 1));
    assert_eq!(
        raw.config.given.settings[1].origin.to_string(),
        "/home/pleat.toml:13:8"
    );
}
