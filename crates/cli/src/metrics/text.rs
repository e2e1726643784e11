//! The figures in the text format of OpenMetrics 1.0, by Prometheus' conventions: seconds and bytes, `_total` for what only grows.
//!
//! What a figure is called and means comes from its one definition (`Tiers`, `Totals`).

use crate::pager::control::{Detail, Figure, Managed, Row, Status, Tiers, Totals};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{text, DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// A job.
#[derive(Debug)]
pub struct Seen {
    /// Its supervisor.
    pub pid: i32,
    /// Whose it is.
    pub uid: u32,
    /// What it has answered, if it did.
    pub detail: Option<Detail>,
}

/// The figures of these jobs, to the mark at the end.
pub fn encode(jobs: Vec<Seen>) -> String {
    let mut registry = Registry::with_prefix("pleat");
    registry.register_collector(Box::new(Snapshot(jobs)));
    let mut out = String::new();
    // Only writing to the string could fail, and that does not.
    let _ = text::encode(&mut out, &registry);
    out
}

#[derive(Debug)]
struct Snapshot(Vec<Seen>);

type Labels = Vec<(&'static str, String)>;

/// Totals that go down, too.
const KEPT: &str = "kept_";

const fn figure<T>(name: &'static str, meaning: &'static str, of: fn(&T) -> u64) -> Figure<T> {
    Figure { name, meaning, of }
}

/// What is told of a job by its status.
const JOB: &[Figure<Status>] = &[
    figure("budget_bytes", "The memory budget.", |job| job.budget_bytes),
    figure(
        "used_bytes",
        "Memory in use of the budget: the tiers in memory together.",
        |job| job.used_bytes,
    ),
    figure("processes", "Processes of the job.", |job| job.processes),
    figure(
        "pages_away",
        "Pages of 4096 bytes that are compressed or in the swap file.",
        |job| job.pages_away,
    ),
];

/// What is told of each process. Only `PROCESS_TOTAL` never goes down.
const PROCESS: &[Figure<Row>] = &[
    figure(
        "process_resident_bytes",
        "Memory of the process that can be compressed, and is not.",
        |row| row.resident_bytes,
    ),
    figure(
        "process_away_bytes",
        "Memory of the process that is compressed or in the swap file, before compression.",
        |row| row.away_bytes,
    ),
    figure(
        "process_unfoldable_bytes",
        "Memory of the process that cannot be compressed. Shared memory counts whole in each process.",
        |row| row.unfoldable_bytes,
    ),
    figure(
        "process_managed",
        "1 where pages of the process can be taken away now, else 0.",
        |row| (row.managed == Managed::Yes) as u64,
    ),
    figure(
        PROCESS_TOTAL,
        "Microseconds that threads of the process waited for pages.",
        |row| row.stall_us,
    ),
];

const PROCESS_TOTAL: &str = "process_stall_us";

impl Seen {
    fn labels(&self) -> Labels {
        let mut labels = vec![
            ("job_pid", self.pid.to_string()),
            ("uid", self.uid.to_string()),
        ];
        if let Some(detail) = &self.detail {
            labels.push(("name", detail.status.name.clone()));
        }
        labels
    }
}

impl Snapshot {
    fn answered(&self) -> impl Iterator<Item = (&Seen, &Detail)> {
        let jobs = self.0.iter();
        jobs.filter_map(|job| Some((job, job.detail.as_ref()?)))
    }

    /// One family, with a sample of each job that has answered.
    fn put<T>(
        &self,
        encoder: &mut DescriptorEncoder,
        (kind, figure): (MetricType, &Figure<T>),
        part: fn(&Detail) -> &T,
    ) -> fmt::Result {
        let samples = self
            .answered()
            .map(|(job, detail)| (job.labels(), (figure.of)(part(detail))));
        family(encoder, (kind, figure.name, figure.meaning), samples)
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let encoder = &mut encoder;
        let up = self.0.iter();
        let up = up.map(|job| (job.labels(), u64::from(job.detail.is_some())));
        let meaning = "1 where the job has answered, 0 where it has not: it may be stopped.";
        family(encoder, (MetricType::Gauge, "job_up", meaning), up)?;
        for figure in JOB {
            self.put(encoder, (MetricType::Gauge, figure), |d| &d.status)?;
        }
        let limited = self.answered();
        let limited =
            limited.filter_map(|(job, detail)| Some((job.labels(), detail.status.limit_bytes?)));
        let meaning = "The limit of the job's own memory cgroup, where it has one.";
        family(
            encoder,
            (MetricType::Gauge, "limit_bytes", meaning),
            limited,
        )?;
        for figure in Tiers::FIGURES {
            self.put(encoder, (MetricType::Gauge, figure), |d| &d.tiers)?;
        }
        for figure in Totals::FIGURES {
            let kind = match figure.name.starts_with(KEPT) {
                true => MetricType::Gauge,
                false => MetricType::Counter,
            };
            self.put(encoder, (kind, figure), |d| &d.totals)?;
        }
        for figure in PROCESS {
            let kind = match figure.name == PROCESS_TOTAL {
                true => MetricType::Counter,
                false => MetricType::Gauge,
            };
            let rows = self.answered().flat_map(|(job, detail)| {
                let rows = detail.rows.iter();
                rows.map(move |row| (process_labels(job, row), (figure.of)(row)))
            });
            family(encoder, (kind, figure.name, figure.meaning), rows)?;
        }
        Ok(())
    }
}

fn process_labels(job: &Seen, row: &Row) -> Labels {
    let mut labels = job.labels();
    labels.extend([("pid", row.pid.to_string()), ("comm", row.name.clone())]);
    labels
}

/// A figure by its name here: microseconds become seconds.
fn family(
    encoder: &mut DescriptorEncoder,
    (kind, name, meaning): (MetricType, &str, &str),
    samples: impl Iterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let (name, unit) = match name.rsplit_once('_') {
        Some((name, "us")) => (name, Some(Unit::Seconds)),
        Some((name, "bytes")) => (name, Some(Unit::Bytes)),
        _ => (name, None),
    };
    let help = meaning.trim().replace("Microseconds", "Seconds");
    let mut metric = encoder.encode_descriptor(name, &help, unit.as_ref(), kind)?;
    for (labels, value) in samples {
        sample(metric.encode_family(&labels)?, kind, unit.as_ref(), value)?;
    }
    Ok(())
}

fn sample(
    mut metric: MetricEncoder,
    kind: MetricType,
    unit: Option<&Unit>,
    value: u64,
) -> fmt::Result {
    match (kind, unit) {
        (MetricType::Counter, Some(Unit::Seconds)) => {
            metric.encode_counter::<NoLabelSet, f64, f64>(&(value as f64 / 1e6), None)
        }
        (MetricType::Counter, _) => metric.encode_counter::<NoLabelSet, u64, f64>(&value, None),
        _ => metric.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Seen {
        let detail = Detail {
            status: Status {
                name: "a\"b\\c\nd".into(),
                budget_bytes: 100 << 20,
                used_bytes: 99 << 20,
                ..Status::default()
            },
            tiers: Tiers {
                compressed_bytes: 4096,
                ..Tiers::default()
            },
            totals: Totals {
                faults: 7,
                stall_us: 1_500_000,
                kept_pages: 3,
                ..Totals::default()
            },
            rows: vec![Row {
                pid: 12,
                name: "hold".into(),
                managed: Managed::Yes,
                ..Row::default()
            }],
            ..Detail::default()
        };
        Seen {
            pid: 11,
            uid: 1000,
            detail: Some(detail),
        }
    }

    #[test]
    fn figures_have_their_units_and_say_what_only_grows() {
        let text = encode(vec![job()]);
        let labels = r#"job_pid="11",uid="1000",name="a\"b\\c\nd""#;
        for line in [
            "# TYPE pleat_compressed_bytes gauge".to_owned(),
            "# UNIT pleat_compressed_bytes bytes".to_owned(),
            format!("pleat_compressed_bytes{{{labels}}} 4096"),
            "# TYPE pleat_faults counter".to_owned(),
            format!("pleat_faults_total{{{labels}}} 7"),
            format!("pleat_stall_seconds_total{{{labels}}} 1.5"),
            "# TYPE pleat_kept_pages gauge".to_owned(),
            format!("pleat_process_managed{{{labels},pid=\"12\",comm=\"hold\"}} 1"),
            "# HELP pleat_stall_seconds Seconds that threads of the job waited for pages, all threads added up.".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_job_that_does_not_answer_is_down_and_has_no_figures() {
        let silent = Seen {
            pid: 5,
            uid: 0,
            detail: None,
        };
        let text = encode(vec![silent]);
        assert!(text.contains("pleat_job_up{job_pid=\"5\",uid=\"0\"} 0\n"));
        assert!(!text.contains("pleat_used_bytes{"));
    }

    #[test]
    fn every_family_is_told_once_and_explained() {
        let text = encode(vec![job(), job()]);
        let names = text.lines().filter_map(|line| line.strip_prefix("# HELP "));
        let mut names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(text.matches("# TYPE ").count(), count);
        assert!(!text.contains("Microseconds"));
    }
}
