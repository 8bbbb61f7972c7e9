//! Snapshots by schedule.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use remuda_objects::cron::Schedule;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Snapshots;

/// Takes snapshots when they are due, and deletes those that are too many, until told to stop.
pub async fn run(snapshots: Arc<Snapshots>, stop: CancellationToken) {
    let args = snapshots.settings.snapshots.clone();
    let schedule = match Schedule::parse(&args.schedule) {
        Ok(schedule) if !args.disabled => schedule,
        _ => return,
    };
    loop {
        let wait = until_due(&schedule, Timestamp::now());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let s3 = snapshots.configured();
        if let Err(error) = snapshots.save(&args.name, s3.as_ref()).await {
            warn!(error = %remuda_control::Chain(&error), "no snapshot was taken");
        }
        if let Err(error) = snapshots.prune(args.retention, s3.as_ref()).await {
            warn!(error = %remuda_control::Chain(&error), "old snapshots are not deleted");
        }
    }
}

/// How long until the next time of the schedule. A schedule without one is asked again after a year.
fn until_due(schedule: &Schedule, now: Timestamp) -> Duration {
    const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);
    let wait = schedule.next(now).map(|next| next.as_millisecond() - now.as_millisecond());
    wait.map_or(YEAR, |wait| Duration::from_millis(u64::try_from(wait).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_time_is_the_next_minute_of_the_schedule() {
        let now: Timestamp = "2026-11-17T12:30:20Z".parse().unwrap();
        for (schedule, seconds) in
            [("* * * * *", 40), ("0 */12 * * *", 11 * 3600 + 29 * 60 + 40), ("@every 7s", 7)]
        {
            let schedule = Schedule::parse(schedule).unwrap();
            assert_eq!(until_due(&schedule, now), Duration::from_secs(seconds));
        }
    }
}
