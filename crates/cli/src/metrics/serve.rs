//! As much HTTP as a reader of figures speaks: one question a connection, one connection at a time.
//!
//! It may run in the process that answers a job's faults, so whoever connects costs little: no thread, 8 KB, and two seconds at most.

use super::Address;
use httparse::{Request, Status, EMPTY_HEADER};
use pleat_sys::local::{connect, effective_user, peer};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A question is asked, and its answer taken, within this time.
const PATIENCE: Duration = Duration::from_secs(2);
const QUESTION_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// After an error that may pass, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Listens already. Whoever drops it removes the socket's file.
pub struct Listener {
    door: Door,
}

/// Where somebody may knock.
pub enum Door {
    /// A port.
    Port(TcpListener),
    /// A socket, and its file.
    Socket(UnixListener, PathBuf),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Door::Socket(_, file) = &self.door {
            let _ = fs::remove_file(file);
        }
    }
}

impl Listener {
    /// Begins to listen. A socket is for its user alone; one that somebody has left there, and where nobody listens, is replaced.
    ///
    /// # Errors
    /// One line, with the remedy.
    pub fn open(address: &Address) -> Result<Listener, String> {
        let door = match address {
            Address::Port(address) => {
                let door = TcpListener::bind(address).map_err(|error| match error.kind() {
                    ErrorKind::AddrInUse => {
                        format!("cannot serve metrics at {address}: somebody listens there already; give another port")
                    }
                    _ => format!("cannot serve metrics at {address}: {error}"),
                })?;
                Door::Port(door)
            }
            Address::Socket(path) => {
                let why = |error: io::Error| {
                    format!("cannot serve metrics at {}: {error}", path.display())
                };
                remove_stale(path)?;
                let door = UnixListener::bind(path).map_err(why)?;
                // Who has connected before this is told from its user by who he is.
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(why)?;
                Door::Socket(door, path.clone())
            }
        };
        Ok(Listener { door })
    }

    /// For a thread that serves there.
    ///
    /// # Errors
    /// Of the system: there are too many descriptors.
    pub fn door(&self) -> io::Result<Door> {
        Ok(match &self.door {
            Door::Port(door) => Door::Port(door.try_clone()?),
            Door::Socket(door, file) => Door::Socket(door.try_clone()?, file.clone()),
        })
    }

    /// For messages.
    pub fn shown(&self) -> String {
        match &self.door {
            Door::Socket(_, file) => file.display().to_string(),
            Door::Port(door) => match door.local_addr() {
                Ok(address) => format!("http://{address}/metrics"),
                Err(error) => error.to_string(),
            },
        }
    }
}

impl Door {
    /// Answers whoever asks, with what `figures` makes then; for ever.
    pub fn serve(&self, figures: &mut dyn FnMut() -> String) -> ! {
        loop {
            let served = match self {
                Door::Port(door) => door
                    .accept()
                    .and_then(|(stream, _)| answer(&mut Hasty::new(stream), figures)),
                Door::Socket(door, _) => door.accept().and_then(|(stream, _)| {
                    let user = peer(&stream)?.uid;
                    match user == 0 || user == effective_user() {
                        true => answer(&mut Hasty::new(stream), figures),
                        false => Ok(()),
                    }
                }),
            };
            // Of one who goes away, or is slow, nobody need hear.
            let is_lasting = served.is_err_and(|error| {
                !matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset
                        | ErrorKind::ConnectionAborted
                        | ErrorKind::BrokenPipe
                        | ErrorKind::UnexpectedEof
                        | ErrorKind::TimedOut
                        | ErrorKind::WouldBlock
                        | ErrorKind::Interrupted
                )
            });
            if is_lasting {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// A connection that is over when its time is, however its bytes are spread over that.
struct Hasty<S> {
    stream: S,
    end: Instant,
}

/// What can be told how long to wait.
trait Limited: Read + Write {
    fn limit(&self, left: Duration) -> io::Result<()>;
}

impl Limited for TcpStream {
    fn limit(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl Limited for UnixStream {
    fn limit(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl<S: Limited> Hasty<S> {
    fn new(stream: S) -> Hasty<S> {
        Hasty {
            stream,
            end: Instant::now() + PATIENCE,
        }
    }

    fn limit(&self) -> io::Result<()> {
        match self.end.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => self.stream.limit(left),
            _ => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl<S: Limited> Read for Hasty<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.read(into)
    }
}

impl<S: Limited> Write for Hasty<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Removes a socket that nobody listens at; nothing else.
fn remove_stale(path: &Path) -> Result<(), String> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let shown = path.display();
    if !found.file_type().is_socket() {
        return Err(format!(
            "cannot serve metrics at {shown}: something is there that is no socket; give another path"
        ));
    }
    // Without waiting: who listens there may be stopped.
    match connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|error| format!("cannot serve metrics at {shown}: {error}")),
        Err(error) if error.kind() != ErrorKind::WouldBlock => {
            Err(format!("cannot serve metrics at {shown}: {error}"))
        }
        _ => Err(format!(
            "cannot serve metrics at {shown}: somebody listens there already; give another path"
        )),
    }
}

/// One question, and its answer.
fn answer<S: Read + Write>(stream: &mut S, figures: &mut dyn FnMut() -> String) -> io::Result<()> {
    let (status, kind, body, has_body) = match question(stream)? {
        Some((method, path)) => {
            let is_read = method == "GET" || method == "HEAD";
            let (status, kind, body) = match path.split('?').next() {
                _ if !is_read => ("405 Method Not Allowed", PLAIN, "GET is answered.\n".into()),
                Some("/metrics") => ("200 OK", OPENMETRICS, figures()),
                Some("/") => (
                    "200 OK",
                    PLAIN,
                    "pleat: the figures are at /metrics\n".into(),
                ),
                _ => (
                    "404 Not Found",
                    PLAIN,
                    "The figures are at /metrics.\n".into(),
                ),
            };
            (status, kind, body, method != "HEAD")
        }
        None => (
            "400 Bad Request",
            PLAIN,
            "No question of HTTP.\n".into(),
            true,
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if has_body {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// What is asked: method and path; `None` where that is no question.
fn question(stream: &mut impl Read) -> io::Result<Option<(String, String)>> {
    let (mut text, mut bytes) = (Vec::new(), [0; 1024]);
    while text.len() < QUESTION_MAX {
        match stream.read(&mut bytes)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => text.extend_from_slice(&bytes[..count]),
        }
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut request = Request::new(&mut headers);
        match request.parse(&text) {
            Ok(Status::Complete(_)) => {
                let [method, path] = [request.method, request.path];
                return Ok(method.zip(path).map(|(m, p)| (m.to_owned(), p.to_owned())));
            }
            Ok(Status::Partial) => {}
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that says this.
    struct Said<'a>(&'a [u8], Vec<u8>);

    impl Read for Said<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            // In small pieces, as a network does.
            let count = into.len().min(7);
            self.0.read(&mut into[..count])
        }
    }

    impl Write for Said<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ask(question: &[u8]) -> Result<String, ErrorKind> {
        let mut said = Said(question, Vec::new());
        answer(&mut said, &mut || "figures\n".into()).map_err(|error| error.kind())?;
        Ok(String::from_utf8(said.1).unwrap())
    }

    #[test]
    fn figures_are_where_readers_look_for_them() {
        let answer = ask(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "figures\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
        assert!(head.contains("Content-Length: 8\r\n"));
        let head = ask(b"HEAD /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(head.contains("Content-Length: 8\r\n") && head.ends_with("\r\n\r\n"));
    }

    #[test]
    fn other_questions_are_answered_by_what_is_wrong_with_them() {
        let status = |text: &[u8]| ask(text).map(|answer| answer[9..12].to_owned());
        assert_eq!(status(b"GET / HTTP/1.0\r\n\r\n"), Ok("200".into()));
        assert_eq!(
            status(b"GET /etc/passwd HTTP/1.1\r\n\r\n"),
            Ok("404".into())
        );
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), Ok("405".into()));
        assert_eq!(status(b"\x16\x03\x01\x02\x00\x01"), Ok("400".into()));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert_eq!(status(many.as_bytes()), Ok("400".into()));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(QUESTION_MAX));
        assert_eq!(status(long.as_bytes()), Ok("400".into()));
        assert_eq!(status(b"GET /met"), Err(ErrorKind::UnexpectedEof));
    }

    #[test]
    fn a_socket_takes_the_place_of_a_dead_one_and_of_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics");
        let address = Address::Socket(path.clone());
        let first = Listener::open(&address).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = Listener::open(&address).err().unwrap();
        assert!(error.contains("somebody listens there already"), "{error}");
        drop(first);
        assert!(!path.exists());
        // Of one that was killed.
        drop(UnixListener::bind(&path).unwrap());
        drop(Listener::open(&address).unwrap());
        fs::write(&path, "").unwrap();
        let error = Listener::open(&address).err().unwrap();
        assert!(error.contains("no socket"), "{error}");
    }

    #[test]
    fn who_says_a_byte_now_and_then_is_not_waited_for_longer() {
        let (mut slow, stream) = UnixStream::pair().unwrap();
        let slow = std::thread::spawn(move || {
            // For ten times as long as anybody is waited for.
            let pause = PATIENCE / 10;
            (0..100).all(|_| {
                std::thread::sleep(pause);
                slow.write_all(b"G").is_ok()
            })
        });
        let start = Instant::now();
        let error = answer(&mut Hasty::new(stream), &mut String::new).unwrap_err();
        let is_late = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock);
        assert!(is_late, "{error}");
        assert!(start.elapsed() >= PATIENCE && start.elapsed() < PATIENCE * 3);
        // It is hung up on.
        assert!(!slow.join().unwrap());
    }
}
