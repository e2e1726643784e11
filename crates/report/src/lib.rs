//! How a job went, as a page to look at: reads the series that `pleat run --trace-stats FILE` has recorded, and writes one HTML file
//! that needs nothing else.
//!
//! ```
//! let series = concat!(
//!     r#"{"kind":"start","format":1,"pleat_version":"0.1.0","started_unix_ms":1764400000000,"program":["./train"]}"#, "\n",
//!     r#"{"kind":"sample","wall_us":1000000,"budget_bytes":1048576,"used_bytes":524288,"tiers":{"uncompressed_bytes":524288}}"#, "\n",
//! );
//! let run = pleat_report::Run::read(&mut series.as_bytes(), "train.jsonl")?;
//! let page = pleat_report::page(&[run]);
//! assert!(page.starts_with("<!DOCTYPE html>") && page.contains("./train"));
//! # Ok::<(), pleat_report::ReadError>(())
//! ```
//!
//! A series is read line by line (`line`, `read`), and reduced meanwhile (`series`, `processes`), so that a week takes no more memory than an
//! hour. `figures` and `latency` are what can be told in numbers; `page` shows it all.
#![forbid(unsafe_code)]

mod figures;
mod latency;
mod line;
mod page;
mod processes;
mod read;
mod series;
mod unit;

pub use page::page;
pub use read::{ReadError, Run};
