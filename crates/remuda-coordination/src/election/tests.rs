//! What the elector promises whatever the API behind it: on a Lease in memory, under paused time.

use std::{convert::Infallible, sync::Arc};

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::*;

/// Its version is a count of writes.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Option<Lease<u64>>>>);

impl Memory {
    fn held_by(holder: &str, seconds: u64) -> Memory {
        let lease = Lease { holder: holder.to_owned(), seconds: Some(seconds), transitions: 4, version: 1 };
        Memory(Arc::new(Mutex::new(Some(lease))))
    }

    fn holder(&self) -> String {
        self.0.lock().as_ref().map(|lease| lease.holder.clone()).unwrap_or_default()
    }

    /// A write that changes nothing an elector looks at.
    fn touch(&self) {
        self.0.lock().as_mut().unwrap().version += 1;
    }
}

impl Leases for Memory {
    type Version = u64;
    type Error = Infallible;

    async fn read(&self) -> Result<Option<Lease<u64>>, Infallible> {
        Ok(self.0.lock().clone())
    }

    async fn write(&self, seen: Option<&u64>, entry: Entry<'_>) -> Result<Option<Lease<u64>>, Infallible> {
        let mut stored = self.0.lock();
        if stored.as_ref().map(|lease| lease.version) != seen.copied() {
            return Ok(None);
        }
        let before = stored.as_ref().map_or(0, |lease| lease.transitions);
        let written = Lease {
            holder: entry.holder.to_owned(),
            seconds: Some(entry.seconds),
            transitions: entry.acquired.unwrap_or(before),
            version: seen.map_or(1, |version| version + 1),
        };
        *stored = Some(written.clone());
        Ok(Some(written))
    }
}

fn elector(leases: &Memory) -> Elector<Memory> {
    Elector::new(leases.clone(), "test", "a", Timing::DEFAULT)
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_promises_years_is_respected_for_a_minute() {
    let leases = Memory::held_by("robber", u64::MAX);
    let elector = elector(&leases);
    let (leadership, stop) = (elector.leadership(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(elector.run(stop.clone()));
    let begun = Instant::now();
    tokio::time::timeout(Duration::from_secs(600), leadership.gained()).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(leases.0.lock().as_ref().unwrap().transitions, 5);
    stop.cancel();
    tasks.join_all().await;
    assert_eq!(leases.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn a_write_of_others_that_leaves_the_holder_costs_no_leadership() {
    let leases = Memory::default();
    let elector = elector(&leases);
    let (leadership, stop) = (elector.leadership(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(elector.run(stop.clone()));
    leadership.gained().await;
    for _ in 0..60 {
        leases.touch();
        assert!(tokio::time::timeout(Duration::from_secs(1), leadership.lost()).await.is_err());
    }
    // The holder changes: that is a loss at once, without waiting for the deadline.
    *leases.0.lock() =
        Some(Lease { holder: "b".to_owned(), seconds: Some(15), transitions: 1, version: 9000 });
    let begun = Instant::now();
    leadership.lost().await;
    assert!(begun.elapsed() <= Timing::DEFAULT.renew);
    stop.cancel();
    tasks.join_all().await;
    assert_eq!(leases.holder(), "b");
}
