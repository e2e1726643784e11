//! What others may do to a control socket, and what it costs.

use super::*;
use std::io::{BufRead, BufReader};

/// A socket in a directory of its own.
fn control() -> (tempfile::TempDir, Control) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    let place = Place::open(dir.path(), effective_user()).unwrap();
    let control = Control::listen(place, 4711).unwrap();
    (dir, control)
}

fn connect(control: &Control) -> UnixStream {
    let stream = UnixStream::connect(control.path()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream
}

/// As the main thread does, for a moment.
fn serve(control: &mut Control) -> Vec<Request> {
    let mut heard = Vec::new();
    for _ in 0..5 {
        control.serve(|request| {
            heard.push(request);
            done(Status::default())
        });
        std::thread::sleep(REQUEST_EVERY);
    }
    heard
}

fn line(stream: &UnixStream) -> String {
    let mut line = String::new();
    // What was reset has said nothing.
    let _ = BufReader::new(stream).read_line(&mut line);
    line
}

#[test]
fn a_request_in_pieces_is_answered_and_several_one_after_the_other() {
    let (_dir, mut control) = control();
    let mut stream = connect(&control);
    let text = Request::Status.line() + &Request::Set(5).line() + &Request::Stats.line();
    let (first, rest) = text.as_bytes().split_at(10);
    stream.write_all(first).unwrap();
    assert_eq!(serve(&mut control), []);
    stream.write_all(rest).unwrap();
    assert_eq!(
        serve(&mut control),
        [Request::Status, Request::Set(5), Request::Stats]
    );
    assert!(line(&stream).contains(r#""ok":true"#));
}

#[test]
fn what_is_sent_before_the_end_of_the_stream_is_answered() {
    let (_dir, mut control) = control();
    let mut stream = connect(&control);
    stream.write_all(Request::Status.line().as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(serve(&mut control), [Request::Status]);
    assert!(line(&stream).contains(r#""ok":true"#));
    assert!(control.connections.is_empty());
}

#[test]
fn nonsense_is_refused_and_costs_nobody_else_anything() {
    let (_dir, mut control) = control();
    let (mut bad, mut good) = (connect(&control), connect(&control));
    bad.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    good.write_all(Request::Status.line().as_bytes()).unwrap();
    assert_eq!(serve(&mut control), [Request::Status]);
    assert!(line(&bad).contains(r#""ok":false"#));
    assert!(line(&good).contains(r#""ok":true"#));
}

#[test]
fn a_line_without_end_is_cut_off() {
    let (_dir, mut control) = control();
    let mut bad = connect(&control);
    bad.write_all(&[b'x'; 3 * LINE_MAX]).unwrap();
    assert_eq!(serve(&mut control), []);
    assert!(line(&bad).contains("at most 4096 bytes"));
    assert!(control.connections.is_empty());
}

#[test]
fn who_does_not_read_the_answers_is_closed() {
    let (_dir, mut control) = control();
    let mut stream = connect(&control);
    stream.write_all(Request::Stats.line().as_bytes()).unwrap();
    let long = " ".repeat(16 << 20);
    control.serve(|_| long.clone());
    assert!(control.connections.is_empty());
}

/// `supervisor/detail.rs` sees to it that no answer is longer.
#[test]
fn the_longest_answer_has_room_for_who_reads_it_late() {
    let (_dir, mut control) = control();
    let mut stream = connect(&control);
    stream.write_all(Request::Detail.line().as_bytes()).unwrap();
    let long = " ".repeat(199_999) + "\n";
    control.serve(|_| long.clone());
    assert_eq!(control.connections.len(), 1);
    assert_eq!(line(&stream).len(), 200_000);
}

#[test]
fn those_who_are_silent_make_room_and_others_are_turned_away() {
    let (_dir, mut control) = control();
    let silent: Vec<UnixStream> = (0..CONNECTIONS_MAX).map(|_| connect(&control)).collect();
    control.serve(|_| String::new());
    let mut late = connect(&control);
    late.write_all(Request::Status.line().as_bytes()).unwrap();
    assert_eq!(serve(&mut control), []);
    assert_eq!(line(&late), "", "turned away");
    for one in &mut control.connections {
        one.heard -= SILENT_MIN;
    }
    std::thread::sleep(TURNED_AWAY_FOR);
    let mut late = connect(&control);
    late.write_all(Request::Status.line().as_bytes()).unwrap();
    assert_eq!(serve(&mut control), [Request::Status]);
    assert_eq!(control.connections.len(), CONNECTIONS_MAX);
    drop(silent);
}

#[test]
fn the_socket_is_its_users_alone_and_goes_with_the_job() {
    let (_dir, control) = control();
    let path = control.path();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(control);
    assert!(!path.exists());
}

#[test]
fn one_that_a_dead_supervisor_left_is_replaced_and_that_of_a_living_one_is_not() {
    let (dir, control) = control();
    let place = || Place::open(dir.path(), effective_user()).unwrap();
    assert!(Control::listen(place(), 4711).is_err());
    assert!(control.path().exists());
    // A listener that just ends leaves its file, as a process that is killed.
    drop(UnixListener::bind(place().socket(4712)).unwrap());
    Control::listen(place(), 4712).unwrap();
}
