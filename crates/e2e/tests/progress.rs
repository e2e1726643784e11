//! Commands that take long say on a terminal how far they are, and nowhere else; nothing of it stays.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use pleat_e2e::{Machine, Terminal};

/// As long as nothing is shown, and a little.
const LONG: Duration = Duration::from_millis(2500);

fn command(machine: &Machine, args: &[&str]) -> Command {
    let mut command = Command::new(machine.pleat());
    command.args(args).env("TERM", "xterm-256color");
    command
}

/// A pipe that `pleat trace import` reads for as long as it is held open, and the command.
fn import(machine: &Machine) -> (PathBuf, Command) {
    let (text, trace) = (
        machine.scratch().join("text"),
        machine.scratch().join("trace"),
    );
    let made = Command::new("mkfifo").arg(&text).status();
    assert!(made.expect("mkfifo is there").success());
    let mut command = command(machine, &["trace", "import"]);
    command.arg(&text).arg(trace);
    (text, command)
}

/// Opens it, which waits for who reads, and writes a reference.
fn feed(text: &PathBuf) -> File {
    let mut pipe = File::options().write(true).open(text).expect("it is read");
    pipe.write_all(b"0 - 17 w\n").expect("it is read");
    pipe
}

#[test]
fn a_command_that_takes_long_says_so_and_takes_it_back() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let (text, command) = import(&machine);
    let mut terminal = Terminal::start(command, (64, 24));
    let pipe = feed(&text);
    let screen = terminal.wait_for("so far");
    assert_eq!(screen.lines().count(), 1, "{screen}");
    assert!(screen.starts_with("pleat: reading, "), "{screen}");
    drop(pipe);
    assert!(terminal.wait().success(), "{}", terminal.screen());
    assert_eq!(terminal.screen(), "");
}

#[test]
fn what_is_left_is_estimated_and_ctrl_c_leaves_nothing_on_the_screen() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let sizes = ["1M"; 200].join(",");
    let workload = "thrasher:pages=4096,passes=40";
    let sim = ["sim", "--workload", workload, "--memory", &sizes];
    let mut terminal = Terminal::start(command(&machine, &sim), (80, 24));
    let screen = terminal.wait_for("left");
    assert!(screen.starts_with("pleat: simulating ["), "{screen}");
    assert!(screen.contains("%, about "), "{screen}");
    assert_eq!(screen.lines().count(), 1, "{screen}");
    terminal.press("\x03");
    assert_eq!(terminal.wait().signal(), Some(2), "as without a line");
    assert_eq!(terminal.screen(), "");
}

#[test]
fn a_short_command_and_one_without_a_terminal_show_nothing() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let trace = machine.scratch().join("short");
    let spec = "thrasher:pages=10,passes=1";
    let mut short = command(&machine, &["trace", "generate", spec]);
    short.arg(&trace);
    let mut terminal = Terminal::start(short, (80, 24));
    assert!(terminal.wait().success());
    assert_eq!(terminal.bytes(), 0, "not for a moment");
    assert!(fs::metadata(trace).expect("it was written").len() > 0);

    let (text, mut command) = import(&machine);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("pleat is there");
    let pipe = feed(&text);
    // Nothing is to be seen, so there is nothing to wait for.
    thread::sleep(LONG);
    drop(pipe);
    let output = child.wait_with_output().expect("it is our child");
    assert!(output.status.success());
    assert_eq!((output.stdout.len(), output.stderr.len()), (0, 0));
}

#[test]
fn a_dumb_terminal_shows_nothing() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let (text, mut command) = import(&machine);
    command.env("TERM", "dumb");
    let mut terminal = Terminal::start(command, (80, 24));
    let pipe = feed(&text);
    thread::sleep(LONG);
    drop(pipe);
    assert!(terminal.wait().success());
    assert_eq!(terminal.bytes(), 0);
}
