//! What the main thread answers to who asks over the control socket.

use super::Supervisor;
use crate::control::{done, refused, Control, Request, Status};
use crate::job::Subject;
use pleat_engine::Counters;
use pleat_sys::procfs;
use serde::Serialize;
use serde_json::json;

/// So many bytes of a command line are told.
const COMMAND_BYTES_MAX: usize = 4096;

/// What is answered when the budget was changed.
#[derive(Serialize)]
struct Changed {
    previous_budget_bytes: u64,
    #[serde(flatten)]
    status: Status,
}

impl Supervisor<'_> {
    /// Listens, where that is possible; the job runs in any case.
    pub(super) fn open_control(&mut self) {
        let Some(known) = &self.job.known else { return };
        match Control::open() {
            Ok(control) => {
                self.control = Some(control);
                known.listening.iter().for_each(|start| start());
            }
            Err(why) if known.is_told => self.warn(&format!(
                "the job has no control socket, so `pleat list` does not show it ({why})"
            )),
            Err(_) => {}
        }
    }

    pub(super) fn hear_control(&mut self) {
        let has_waiting = self.control.as_ref().is_some_and(Control::has_waiting);
        if !has_waiting && !std::mem::take(&mut self.is_asked) {
            return;
        }
        let Some(mut control) = self.control.take() else {
            return;
        };
        control.serve(|request| self.answer_request(request));
        self.control = Some(control);
    }

    fn answer_request(&mut self, request: Request) -> String {
        match request {
            Request::Status => done(self.status()),
            Request::Detail => self.detail_line(),
            Request::Stats => done(json!({ "stats": self.stats() })),
            Request::Detach => match self.start_leaving() {
                Ok(()) => done(self.status()),
                Err(why) => refused(&why),
            },
            Request::Set(_) if self.is_leaving() => refused("its processes are being left"),
            Request::Set(bytes) => {
                let previous_budget_bytes = self.budget.bytes;
                self.detail_told.forget();
                match self.set_budget(bytes) {
                    Ok(()) => done(Changed {
                        previous_budget_bytes,
                        status: self.status(),
                    }),
                    Err(why) => refused(&why),
                }
            }
        }
    }

    fn stats(&self) -> serde_json::Value {
        let profile = self.shared.profile.as_ref();
        let profile = profile.map(|profile| profile.report());
        let known = self.job.known.as_ref();
        known.map_or(serde_json::Value::Null, |known| {
            (known.stats)(&self.report(), profile.as_ref())
        })
    }

    fn status(&self) -> Status {
        let counters = self.shared.engine().counters();
        self.status_with(&counters, self.least_budget(self.budget.bytes).0)
    }

    pub(super) fn status_with(&self, counters: &Counters, budget_min_bytes: u64) -> Status {
        let known = self.job.known.as_ref();
        Status {
            pid: std::process::id() as i32,
            program_pid: self.program,
            name: known.map_or(String::new(), |known| known.name.clone()),
            command: self.command(),
            budget_bytes: self.budget.bytes,
            used_bytes: self.used_bytes,
            settled: self.is_settled(),
            budget_min_bytes,
            budget_max_bytes: self.budget_max_bytes,
            limit_bytes: self
                .own_group
                .as_ref()
                .and_then(|group| group.limit_bytes()),
            compressed_bytes: counters.store_frames_bytes + counters.store_metadata_bytes,
            pages_away: counters.contents_away(),
            swap_bytes: counters.swap_used_bytes,
            processes: self.census.processes.len() as u64,
            started_unix_s: self.started_unix_s,
            wall_us: self.start.elapsed().as_micros() as u64,
            attached_pids: self.family.roots().iter().map(|root| root.pid).collect(),
            detaching: self.is_leaving(),
            inside_pid: known.and_then(|known| known.inside_pid),
        }
    }

    /// Program and arguments, as many as fit; of processes that were running before, those of the first.
    fn command(&self) -> Vec<String> {
        let words = match &self.job.subject {
            Subject::Program(words) => words.clone(),
            Subject::Running(_) => procfs::command_line(self.program),
        };
        let mut left = COMMAND_BYTES_MAX;
        let words = words.iter().map(|word| word.to_string_lossy());
        words
            .take_while(|word| {
                let fits = word.len() < left;
                left = left.saturating_sub(word.len() + 1);
                fits
            })
            .map(|word| word.into_owned())
            .collect()
    }
}
