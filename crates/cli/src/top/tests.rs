//! What is seen of jobs that were made up, at several sizes, and what keys do.

use super::draw::draw;
use super::look::{Look, Palette};
use super::model::Model;
use super::screen::{Screen, Step};
use crate::jobs::News;
use crate::pager::control::{Detail, Managed, Row, Status, Tiers, Totals};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const PLAIN: Look = Look::new(Palette::None, false);

/// A job as it answers after so many seconds.
fn answer(pid: i32, name: &str, processes: i32, seconds: u64) -> Detail {
    let row = |at: i32| Row {
        pid: pid + 1 + at,
        ppid: if at == 0 { pid } else { pid + 1 + (at - 1) / 2 },
        name: format!("{name}-{at}"),
        managed: match at {
            3 => Managed::No,
            4 => Managed::Later,
            _ => Managed::Yes,
        },
        why: (at == 3).then(|| "its own seccomp filter refuses ioctl to all its threads".into()),
        resident_bytes: MIB * (processes - at) as u64,
        away_bytes: MIB * at as u64,
        unfoldable_bytes: if at == 3 { 5 * MIB } else { 0 },
        stall_us: seconds * 1000 * at as u64,
        rests: at == 5,
    };
    Detail {
        status: Status {
            pid,
            name: name.into(),
            command: vec!["./".to_owned() + name, "--with".into(), "arguments".into()],
            budget_bytes: 100 * MIB,
            used_bytes: 90 * MIB,
            pages_away: 25600,
            processes: processes as u64,
            started_unix_s: pid as u64,
            wall_us: 1_000_000 * (100 + seconds),
            ..Status::default()
        },
        tiers: Tiers {
            uncompressed_bytes: 40 * MIB,
            staged_bytes: MIB,
            compressed_bytes: 19 * MIB,
            raw_bytes: 10 * MIB,
            file_bytes: 5 * MIB,
            unfoldable_bytes: 9 * MIB,
            own_bytes: 6 * MIB,
            swap_bytes: 30 * MIB,
            swap_file_bytes: 12 * MIB,
        },
        totals: Totals {
            faults: 1000 * seconds,
            compressed_pages: 800 * seconds,
            swap_pages: 150 * seconds,
            zero_pages: 50 * seconds,
            stall_us: 120_000 * seconds,
            swap_read_bytes: 3 * MIB * seconds,
            swap_written_bytes: MIB * seconds,
            kept_pages: 10_000,
            kept_bytes: 10_000 * 4096 / 2,
            ..Totals::default()
        },
        rows: (0..processes).map(row).collect(),
        rows_left_out: 0,
    }
}

fn look_at(model: &mut Model, detail: Detail) -> Option<String> {
    let pid = detail.status.pid;
    model.hear(vec![(pid, 0, News::Looked(Box::new(detail)))])
}

/// Two jobs, looked at for a minute.
fn model(processes: i32) -> Model {
    let mut model = Model::default();
    for seconds in 0..=60 {
        look_at(&mut model, answer(1000, "train", processes, seconds));
        look_at(&mut model, answer(5000, "serve", 2, seconds));
    }
    model
}

fn screen() -> Screen {
    Screen::new(Duration::from_secs(1), None)
}

/// What is seen, a text a line.
fn seen(
    model: &Model,
    screen: &mut Screen,
    (width, height): (u16, u16),
    look: Look,
) -> Vec<String> {
    let buffer = drawn(model, screen, (width, height), look);
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

fn drawn(model: &Model, screen: &mut Screen, (width, height): (u16, u16), look: Look) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    screen.follow(model);
    draw(area, &mut buffer, model, screen, look);
    buffer
}

fn press(screen: &mut Screen, model: &mut Model, code: KeyCode) -> Step {
    screen.press(KeyEvent::new(code, KeyModifiers::NONE), model)
}

fn line_of<'a>(lines: &'a [String], text: &str) -> &'a str {
    let found = lines.iter().find(|line| line.contains(text));
    found.unwrap_or_else(|| panic!("no {text} in\n{}", lines.join("\n")))
}

#[test]
fn a_narrow_screen_shows_each_job_with_its_processes() {
    let lines = seen(&model(6), &mut screen(), (80, 24), PLAIN);
    assert!(
        lines[0].starts_with("pleat top  2 jobs, 8 processes, 180M of 200M"),
        "{}",
        lines[0]
    );
    assert!(lines[0].ends_with("by memory, every 1 s"), "{}", lines[0]);
    let job = line_of(&lines, " train ");
    // 100 MiB of budget in 20 cells.
    assert!(job.contains("90M   100M ########====%%f!!p.."), "{job}");
    assert!(job.ends_with("100M    12%    1000"), "{job}");
    let process = line_of(&lines, "train-3");
    assert!(process.starts_with("   1004   train-3"), "{process}");
    assert!(process.contains("8M     no #!"), "{process}");
    assert!(line_of(&lines, "train-4").contains(" later "));
    assert!(line_of(&lines, "train-5").contains(" rests "));
    assert!(lines[23].contains("q quit"), "{}", lines[23]);
}

#[test]
fn a_wide_screen_shows_commands_and_reasons_too() {
    let lines = seen(&model(6), &mut screen(), (200, 60), PLAIN);
    let head = line_of(&lines, "SWAP-RD");
    assert!(head.contains("NOCOMP") && head.contains("RATIO"), "{head}");
    let job = line_of(&lines, " train ");
    assert!(job.contains("./train --with arguments"), "{job}");
    assert!(job.contains("  2.0      3M      1M"), "{job}");
    assert!(line_of(&lines, "train-3")
        .ends_with("its own seccomp filter refuses ioctl to all its threads"));
}

#[test]
fn nothing_is_drawn_outside_of_any_screen_however_small_or_large() {
    let mut model = model(200);
    for size in [
        (1, 1),
        (49, 9),
        (50, 10),
        (79, 23),
        (80, 24),
        (132, 43),
        (200, 60),
        (500, 200),
    ] {
        let mut screen = screen();
        for key in ['t', 'p', 'p', 'h'] {
            seen(&model, &mut screen, size, PLAIN);
            press(&mut screen, &mut model, KeyCode::Char(key));
        }
        seen(&model, &mut screen, size, PLAIN);
        press(&mut screen, &mut model, KeyCode::Esc);
        press(&mut screen, &mut model, KeyCode::Enter);
        assert!(screen.opened.is_some());
        seen(&model, &mut screen, size, Look::new(Palette::Wide, true));
    }
    assert!(seen(&model, &mut screen(), (49, 24), PLAIN)[0].contains("needs 50 columns"));
}

#[test]
fn without_colours_there_are_none_and_with_them_the_letters_stay() {
    let model = model(6);
    for size in [(80, 24), (200, 60)] {
        let plain = drawn(&model, &mut screen(), size, PLAIN);
        let colours =
            |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
        assert!(!plain.content.iter().any(colours));
        let wide = drawn(&model, &mut screen(), size, Look::new(Palette::Wide, false));
        assert!(wide.content.iter().any(colours));
        let letters = |buffer: &Buffer| -> String {
            buffer.content.iter().map(|cell| cell.symbol()).collect()
        };
        assert_eq!(letters(&plain), letters(&wide));
    }
}

#[test]
fn letters_alone_do_where_there_are_no_blocks() {
    let (mut model, mut screen) = (model(6), screen());
    screen.follow(&model);
    press(&mut screen, &mut model, KeyCode::Enter);
    for size in [(80, 24), (200, 60)] {
        let lines = seen(&model, &mut screen, size, PLAIN).join("\n");
        assert!(lines.is_ascii(), "{lines}");
    }
}

#[test]
fn one_job_is_shown_with_its_tiers_and_its_last_minute() {
    let (mut model, mut screen) = (model(6), screen());
    screen.follow(&model);
    press(&mut screen, &mut model, KeyCode::Enter);
    let lines = seen(&model, &mut screen, (80, 24), PLAIN);
    assert!(
        lines[1].starts_with("job 1000 train  user 0  runs for 2m40s  budget 100M"),
        "{}",
        lines[1]
    );
    assert!(line_of(&lines, "not compressible").contains(" 9M "));
    assert!(line_of(&lines, "in the swap file").contains("30M  as 12M on disk; away in all 100M"));
    for head in [
        "memory 90M of 100M",
        "stall 12%",
        "compressed 800",
        "swap file 150",
    ] {
        line_of(&lines, head);
    }
    // A minute of the same load: all columns are as high.
    let load = lines
        .iter()
        .filter(|line| line.contains("#######################################"))
        .count();
    assert!(load >= 4, "{}", lines.join("\n"));
    let lines = seen(&model, &mut screen, (200, 60), PLAIN);
    for text in [
        "compression 2.00 : 1",
        "swap/s, read 3M written 1M",
        "train-0",
        "WHY",
    ] {
        line_of(&lines, text);
    }
}

#[test]
fn lines_are_sorted_turned_and_made_a_tree() {
    let (mut model, mut screen) = (model(6), screen());
    let order = |model: &Model, screen: &mut Screen| -> Vec<String> {
        let lines = seen(model, screen, (80, 24), PLAIN);
        let names = lines
            .iter()
            .filter_map(|line| line.split_whitespace().nth(1));
        let names = names.filter(|name| name.starts_with("train-"));
        names.map(|name| name[6..].to_owned()).collect()
    };
    // 3 has what cannot be compressed besides.
    assert_eq!(order(&model, &mut screen).concat(), "301245");
    press(&mut screen, &mut model, KeyCode::Char('s'));
    assert_eq!(order(&model, &mut screen).concat(), "543210", "away");
    press(&mut screen, &mut model, KeyCode::Char('s'));
    assert_eq!(order(&model, &mut screen).concat(), "543210", "stall");
    press(&mut screen, &mut model, KeyCode::Char('r'));
    assert_eq!(order(&model, &mut screen).concat(), "012345", "reversed");
    press(&mut screen, &mut model, KeyCode::Char('r'));
    press(&mut screen, &mut model, KeyCode::Char('s'));
    press(&mut screen, &mut model, KeyCode::Char('t'));
    assert_eq!(
        order(&model, &mut screen).concat(),
        "013425",
        "tree by name"
    );
    press(&mut screen, &mut model, KeyCode::Char('p'));
    assert!(order(&model, &mut screen).is_empty());
}

#[test]
fn parents_in_a_circle_are_shown_once_each() {
    let (mut model, mut screen) = (Model::default(), screen());
    let mut detail = answer(1000, "train", 3, 0);
    detail.rows[0].ppid = detail.rows[2].pid;
    detail.rows[2].ppid = detail.rows[0].pid;
    look_at(&mut model, detail);
    press(&mut screen, &mut model, KeyCode::Char('t'));
    let lines = seen(&model, &mut screen, (80, 24), PLAIN).join("\n");
    for name in ["train-0", "train-1", "train-2"] {
        assert_eq!(lines.matches(name).count(), 1, "{lines}");
    }
}

#[test]
fn two_hundred_processes_are_scrolled_and_the_chosen_one_is_seen() {
    let (mut model, mut screen) = (model(200), screen());
    seen(&model, &mut screen, (80, 24), PLAIN);
    for _ in 0..50 {
        press(&mut screen, &mut model, KeyCode::Down);
        let process = screen.chosen.and_then(|key| key.process);
        let lines = seen(&model, &mut screen, (80, 24), PLAIN);
        if let Some(pid) = process {
            line_of(&lines, &format!("{pid} "));
        }
    }
    press(&mut screen, &mut model, KeyCode::End);
    let lines = seen(&model, &mut screen, (80, 24), PLAIN);
    assert!(lines[22].contains("serve-1"), "{}", lines.join("\n"));
    press(&mut screen, &mut model, KeyCode::Home);
    // A larger screen shows more and leaves no gap.
    press(&mut screen, &mut model, KeyCode::End);
    let lines = seen(&model, &mut screen, (80, 60), PLAIN);
    assert!(
        lines[58].contains("serve-1") && lines[3].contains("train-"),
        "{}",
        lines.join("\n")
    );
}

#[test]
fn the_chosen_process_says_why_it_is_not_managed() {
    let (mut model, mut screen) = (model(6), screen());
    seen(&model, &mut screen, (80, 24), PLAIN);
    press(&mut screen, &mut model, KeyCode::Down);
    let lines = seen(&model, &mut screen, (80, 24), PLAIN);
    assert!(
        lines[23].starts_with("train-3 (1004): its own seccomp filter"),
        "{}",
        lines[23]
    );
}

#[test]
fn budgets_go_up_and_down_by_a_16th_and_presses_add_up() {
    let (mut model, mut screen) = (model(2), screen());
    seen(&model, &mut screen, (80, 24), PLAIN);
    let set = |bytes| Step::SetBudget { pid: 1000, bytes };
    assert_eq!(
        press(&mut screen, &mut model, KeyCode::Char('+')),
        set(107 * MIB)
    );
    assert_eq!(
        press(&mut screen, &mut model, KeyCode::Char('+')),
        set(114 * MIB)
    );
    assert_eq!(
        press(&mut screen, &mut model, KeyCode::Char('-')),
        set(106 * MIB)
    );
    let refused = News::Set(Err(
        "60 MiB of the job cannot be folded: give at least --memory 70M".into(),
    ));
    let told = model.hear(vec![(1000, 0, refused)]);
    screen.tell(told);
    let lines = seen(&model, &mut screen, (80, 24), PLAIN);
    assert!(
        lines[23].starts_with("job 1000 (train): 60 MiB of the job"),
        "{}",
        lines[23]
    );
    // From what it has.
    assert_eq!(
        press(&mut screen, &mut model, KeyCode::Char('-')),
        set(93 * MIB)
    );
}

#[test]
fn a_job_inside_another_is_not_given_more_than_its_share() {
    let (mut model, mut screen) = (Model::default(), screen());
    look_at(&mut model, answer(1000, "outer", 1, 0));
    let mut inner = answer(5000, "inner", 1, 0);
    inner.status.inside_pid = Some(1000);
    inner.status.budget_bytes = 88 * MIB;
    look_at(&mut model, inner);
    screen.opened = Some(5000);
    assert_eq!(
        press(&mut screen, &mut model, KeyCode::Char('+')),
        Step::Stay
    );
    let lines = seen(&model, &mut screen, (80, 24), PLAIN);
    assert!(
        lines[23].contains("it can be given 90M at most"),
        "{}",
        lines[23]
    );
}

#[test]
fn a_job_that_ends_leaves_the_list_and_stays_where_it_is_looked_at() {
    let (mut model, mut screen) = (model(2), screen());
    screen.follow(&model);
    press(&mut screen, &mut model, KeyCode::Enter);
    let told = model.hear(vec![(1000, 0, News::Ended)]);
    screen.tell(told);
    model.forget_ended(screen.opened);
    let lines = seen(&model, &mut screen, (80, 24), PLAIN);
    assert!(lines[1].contains("HAS ENDED"), "{}", lines[1]);
    assert!(
        lines[23].contains("job 1000 (train) has ended"),
        "{}",
        lines[23]
    );
    assert_eq!(
        press(&mut screen, &mut model, KeyCode::Char('+')),
        Step::Stay
    );
    press(&mut screen, &mut model, KeyCode::Esc);
    model.forget_ended(screen.opened);
    let lines = seen(&model, &mut screen, (80, 24), PLAIN);
    assert!(lines[0].contains("1 job,"), "{}", lines[0]);
}

#[test]
fn a_job_that_is_silent_keeps_its_last_figures_and_says_so() {
    let (mut model, mut screen) = (model(2), screen());
    let silent = News::Silent("it does not answer; it may be stopped".into());
    assert_eq!(model.hear(vec![(1000, 0, silent)]), None);
    let lines = seen(&model, &mut screen, (80, 24), PLAIN);
    assert!(
        lines[23].contains("job 1000 (train): it does not answer"),
        "{}",
        lines[23]
    );
    assert!(line_of(&lines, " train ").contains("90M"));
}

#[test]
fn a_job_that_was_never_heard_of_is_told_of_once() {
    let mut model = Model::default();
    let mut hear = |why: &str| model.hear(vec![(7, 0, News::Silent(why.into()))]);
    assert_eq!(
        hear("too many ask it"),
        Some("job 7: too many ask it".into())
    );
    assert_eq!(hear("too many ask it"), None);
    assert_eq!(hear("another reason"), Some("job 7: another reason".into()));
}

#[test]
fn keys_that_end_and_keys_that_help() {
    let (mut model, mut screen) = (model(2), screen());
    press(&mut screen, &mut model, KeyCode::Char('h'));
    let lines = seen(&model, &mut screen, (80, 24), PLAIN).join("\n");
    assert!(
        lines.contains("change the budget of the job by a 16th") && lines.contains("Any key"),
        "{lines}"
    );
    assert_eq!(
        press(&mut screen, &mut model, KeyCode::Char('q')),
        Step::Stay,
        "the help goes"
    );
    assert_eq!(
        press(&mut screen, &mut model, KeyCode::Char('q')),
        Step::Quit
    );
    let control = |key| KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
    assert_eq!(screen.press(control('c'), &mut model), Step::Quit);
    assert_eq!(screen.press(control('z'), &mut model), Step::Sleep);
}

#[test]
fn names_cannot_command_the_terminal() {
    let (mut model, mut screen) = (Model::default(), screen());
    let mut detail = answer(1000, "x\u{1b}[2J\u{9b}y", 1, 0);
    detail.rows[0].name = "\u{1b}]0;z\u{7}".into();
    look_at(&mut model, detail);
    let lines = seen(&model, &mut screen, (200, 60), PLAIN).join("\n");
    assert!(
        !lines.contains(|letter: char| letter.is_control() && letter != '\n'),
        "{lines:?}"
    );
    assert!(lines.contains("x?[2J?y"), "{lines}");
}
