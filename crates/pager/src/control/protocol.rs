//! What is said over a control socket: a JSON object a line, each way. `docs/control.md` shows it.

use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

/// The version of the protocol, in every request and every answer.
pub const VERSION: u64 = 1;

/// What somebody wants of a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// How the job stands.
    Status,
    /// The job is to have this budget, in bytes.
    Set(u64),
    /// Processes that were running before are to be left, with all their memory.
    Detach,
    /// The same with its tiers, totals and processes.
    Detail,
    /// Every counter, as `--stats` writes them at the end.
    Stats,
}

impl Request {
    /// What a line asks for.
    ///
    /// # Errors
    /// What is wrong with it, with the remedy.
    pub fn parse(line: &[u8]) -> Result<Request, String> {
        let request: Value = serde_json::from_slice(line).map_err(|_| {
            r#"this is no JSON object: write {"version":1,"do":"status"} and a line feed"#
                .to_owned()
        })?;
        match request["version"].as_u64() {
            Some(VERSION) => {}
            Some(other) => {
                return Err(format!(
                    "version {other} of the protocol is not known here: speak version {VERSION}"
                ))
            }
            None => return Err(r#"there is no version: begin with "version":1"#.into()),
        }
        match request["do"].as_str() {
            Some("status") => Ok(Request::Status),
            Some("detail") => Ok(Request::Detail),
            Some("stats") => Ok(Request::Stats),
            Some("detach") => Ok(Request::Detach),
            Some("set") => request["memory_bytes"].as_u64().map(Request::Set).ok_or(
                r#"set needs the new budget in bytes, a whole number: add "memory_bytes":209715200"#.into(),
            ),
            _ => Err(r#"nothing known is to be done: choose "do" from "status", "detail", "set", "stats" and "detach""#.into()),
        }
    }

    /// As a line, with its end.
    pub fn line(&self) -> String {
        let request = match self {
            Request::Status => json!({"version": VERSION, "do": "status"}),
            Request::Detail => json!({"version": VERSION, "do": "detail"}),
            Request::Stats => json!({"version": VERSION, "do": "stats"}),
            Request::Detach => json!({"version": VERSION, "do": "detach"}),
            Request::Set(bytes) => {
                json!({"version": VERSION, "do": "set", "memory_bytes": bytes})
            }
        };
        format!("{request}\n")
    }
}

/// How a job stands. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The supervisor.
    pub pid: i32,
    /// The program's process, which may have ended.
    pub program_pid: i32,
    /// The job's name.
    pub name: String,
    /// Program and arguments, cut off where they are very long.
    pub command: Vec<String>,
    /// The budget.
    pub budget_bytes: u64,
    /// What the job uses of it, pleat included.
    pub used_bytes: u64,
    /// Whether the job is within the budget, and its own limit, if it has one, is that of the budget.
    pub settled: bool,
    /// The least budget that the job can be given now, as far as is known.
    pub budget_min_bytes: u64,
    /// The largest that it can be given.
    pub budget_max_bytes: u64,
    /// The limit of the job's own memory cgroup, the supervisor not included; null where it has none.
    pub limit_bytes: Option<u64>,
    /// Memory of compressed pages.
    pub compressed_bytes: u64,
    /// Pages that are away from programs: compressed, or in the swap file.
    pub pages_away: u64,
    /// Bytes of the swap file in use.
    pub swap_bytes: u64,
    /// Processes of the job.
    pub processes: u64,
    /// When the job began, in seconds since 1970.
    pub started_unix_s: u64,
    /// For how long it has run, in microseconds.
    pub wall_us: u64,
    /// The processes that were running before (pleat attach); none where this one has started the program.
    #[serde(default)]
    pub attached_pids: Vec<i32>,
    /// Whether they are being left: what is away comes back.
    #[serde(default)]
    pub detaching: bool,
    /// The supervisor of the job around this one; null where there is none.
    pub inside_pid: Option<i32>,
}

#[derive(Serialize)]
struct Done<T> {
    version: u64,
    ok: bool,
    #[serde(flatten)]
    body: T,
}

/// The line that answers a request with `body`, an object.
pub fn done(body: impl Serialize) -> String {
    let answer = Done {
        version: VERSION,
        ok: true,
        body,
    };
    let text = serde_json::to_string(&answer);
    text.unwrap_or_else(|error| refused(&format!("the answer cannot be written: {error}"))) + "\n"
}

/// The line that refuses one.
pub fn refused(why: &str) -> String {
    let answer = json!({"version": VERSION, "ok": false, "error": why});
    format!("{answer}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_is_written() {
        let all = [
            Request::Status,
            Request::Detail,
            Request::Stats,
            Request::Detach,
            Request::Set(7 << 30),
        ];
        for request in all {
            let line = request.line();
            assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
            assert_eq!(Request::parse(line.as_bytes()), Ok(request));
        }
    }

    #[test]
    fn whatever_else_is_said_is_refused_with_what_to_say() {
        let deep = "[".repeat(10_000);
        for (line, remedy) in [
            ("", "no JSON object"),
            ("hello", r#""do":"status""#),
            ("\u{0}", "no JSON object"),
            (&deep, "no JSON object"),
            ("[]", "no version"),
            ("{}", "no version"),
            (r#"{"version":2,"do":"status"}"#, "version 2"),
            (r#"{"version":"1","do":"status"}"#, "no version"),
            (r#"{"version":1}"#, r#""stats""#),
            (r#"{"version":1,"do":"quit"}"#, r#""stats""#),
            (r#"{"version":1,"do":"set"}"#, "memory_bytes"),
            (
                r#"{"version":1,"do":"set","memory_bytes":-1}"#,
                "memory_bytes",
            ),
            (
                r#"{"version":1,"do":"set","memory_bytes":1.5}"#,
                "memory_bytes",
            ),
            (
                r#"{"version":1,"do":"set","memory_bytes":1e99}"#,
                "memory_bytes",
            ),
            (
                r#"{"version":1,"do":"set","memory_bytes":"100M"}"#,
                "memory_bytes",
            ),
        ] {
            let why = Request::parse(line.as_bytes()).unwrap_err();
            assert!(why.contains(remedy), "{line}: {why}");
        }
    }

    #[test]
    fn answers_say_whether_it_was_done() {
        let status = Status {
            pid: 7,
            ..Status::default()
        };
        let line = done(&status);
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (read["version"].as_u64(), read["ok"].as_bool()),
            (Some(1), Some(true))
        );
        assert_eq!(serde_json::from_value::<Status>(read).unwrap(), status);
        let read: Value = serde_json::from_str(&refused("no \"such\" job\n")).unwrap();
        assert_eq!(read["error"], "no \"such\" job\n");
        assert_eq!(read["ok"], false);
    }
}
