//! Write-out: clusters of the oldest folded pages, from the store to the swap file.

use crate::reclaim;
use crate::shared::{lock, Shared};
use pleat_engine::{WriteOutcome, WritePlan};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a full swap file is left alone before it is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// The life of the writing thread.
pub fn run(shared: &Arc<Shared>) {
    let Some(swap) = &shared.swap else { return };
    let mut plan = WritePlan::default();
    let mut failed_at: Option<Instant> = None;
    while !shared.is_over() {
        if failed_at.is_some_and(|at| at.elapsed() > RETRY) {
            shared.engine().resume_writes();
            failed_at = None;
        }
        let planned = {
            let mut engine = shared.engine();
            engine.write_wanted() && engine.plan_write(&mut plan)
        };
        if !planned {
            shared.writer.wait(RETRY);
            continue;
        }
        let start = Instant::now();
        let outcome = match swap.write_at(plan.offset, &plan.bytes) {
            Ok(()) => {
                let pages = plan.items.len() as u64;
                shared.pace.written(start.elapsed(), pages);
                shared.meters.swap_writes.add(1);
                shared
                    .meters
                    .swap_written_bytes
                    .add(plan.bytes.len() as u64);
                WriteOutcome::Done
            }
            Err(error) => {
                // Not the end: the pages are still in memory. If the budget cannot be kept without
                // the file, the main thread ends the job with this message.
                *lock(&shared.swap_error) = Some(error.to_string());
                failed_at = Some(Instant::now());
                WriteOutcome::Failed
            }
        };
        shared.engine().write_done(&plan, outcome);
        shared.feed_starving();
        reclaim::kick(shared);
    }
}
