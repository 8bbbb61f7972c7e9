//! Fair shares: no client may take all of the server.
//!
//! A request needs a place among all (reads or writes) and one among its own user's. Places are
//! handed out in order, so a flood waits behind its own requests, not before everybody's. The
//! server's own controllers, health checks and watches need none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::status::{ApiError, ApiResult};

/// Bounds on what a request may cost.
#[derive(Debug, Clone)]
pub struct Limits {
    pub body_bytes: usize,
    pub concurrent_reads: usize,
    pub concurrent_writes: usize,
    /// Requests of one user under way at once, of each sort.
    pub per_user: usize,
    /// Requests of one user that may wait for a place.
    pub queue_per_user: usize,
    pub request_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 3 << 20,
            concurrent_reads: 400,
            concurrent_writes: 200,
            per_user: 100,
            queue_per_user: 400,
            request_timeout: Duration::from_secs(60),
        }
    }
}

pub(crate) struct Throttle {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    users: Mutex<std::collections::HashMap<String, Arc<UserShare>>>,
    per_user: usize,
    queue: usize,
}

struct UserShare {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Held while a request is under way.
pub(crate) struct Place {
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
}

/// Users remembered before idle ones are forgotten.
const REMEMBERED: usize = 4096;

impl Throttle {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            reads: Arc::new(Semaphore::new(limits.concurrent_reads)),
            writes: Arc::new(Semaphore::new(limits.concurrent_writes)),
            users: Mutex::default(),
            per_user: limits.per_user.max(1),
            queue: limits.queue_per_user,
        }
    }

    fn share(&self, user: &str) -> Arc<UserShare> {
        let mut users = self.users.lock();
        if let Some(share) = users.get(user) {
            return share.clone();
        }
        if users.len() >= REMEMBERED {
            let per_user = self.per_user;
            let idle = |places: &Semaphore| places.available_permits() == per_user;
            users.retain(|_, share| !idle(&share.reads) || !idle(&share.writes));
        }
        let places = || Arc::new(Semaphore::new(self.per_user));
        let share = Arc::new(UserShare { reads: places(), writes: places(), waiting: 0.into() });
        users.insert(user.to_owned(), share.clone());
        share
    }

    /// Waits for a place, at most so long. Who finds the queue full, or waits in vain, is told to
    /// come back.
    pub(crate) async fn enter(&self, user: &str, mutating: bool, patience: Duration) -> ApiResult<Place> {
        let share = self.share(user);
        let (own, all) = if mutating { (&share.writes, &self.writes) } else { (&share.reads, &self.reads) };
        if let Ok(own) = own.clone().try_acquire_owned()
            && let Ok(shared) = all.clone().try_acquire_owned()
        {
            return Ok(Place { _own: own, _shared: shared });
        }
        let _waiting = Waiting::enter(&share, self.queue)?;
        let places = async {
            let own = own.clone().acquire_owned().await?;
            let shared = all.clone().acquire_owned().await?;
            Ok(Place { _own: own, _shared: shared })
        };
        match tokio::time::timeout(patience, places).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(tokio::sync::AcquireError { .. })) => {
                Err(ApiError::unavailable("the server is shutting down"))
            }
            Err(_) => Err(too_many()),
        }
    }
}

fn too_many() -> ApiError {
    ApiError::too_many_requests("Too many requests, please try again later.", 1)
}

struct Waiting<'a>(&'a UserShare);

impl<'a> Waiting<'a> {
    fn enter(share: &'a UserShare, limit: usize) -> ApiResult<Self> {
        if share.waiting.fetch_add(1, Ordering::Relaxed) >= limit {
            share.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(too_many());
        }
        Ok(Self(share))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_flood_fills_its_own_share_and_no_more() {
        let limits = Limits { per_user: 2, queue_per_user: 1, concurrent_reads: 3, ..Default::default() };
        let throttle = Arc::new(Throttle::new(&limits));
        let _a = throttle.enter("flood", false, PATIENCE).await.unwrap();
        let _b = throttle.enter("flood", false, PATIENCE).await.unwrap();
        let mut queued = tokio::task::JoinSet::new();
        let waiting = throttle.clone();
        queued.spawn(async move { waiting.enter("flood", false, PATIENCE).await.map(drop) });
        tokio::task::yield_now().await;
        assert_eq!(throttle.enter("flood", false, PATIENCE).await.map(drop).unwrap_err().code, 429);
        throttle.enter("quiet", false, PATIENCE).await.unwrap();
        drop(_a);
        queued.join_next().await.unwrap().unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_to_come_back() {
        let throttle = Throttle::new(&Limits { concurrent_writes: 1, ..Default::default() });
        let _held = throttle.enter("a", true, PATIENCE).await.unwrap();
        let refused = throttle.enter("b", true, PATIENCE).await.map(drop).unwrap_err();
        assert_eq!((refused.code, refused.retry_after), (429, Some(1)));
        throttle.enter("b", false, PATIENCE).await.unwrap();
    }

    #[tokio::test]
    async fn slow_writes_do_not_hold_up_reads_of_the_same_user() {
        let throttle = Throttle::new(&Limits { per_user: 1, ..Default::default() });
        let _held = throttle.enter("a", true, PATIENCE).await.unwrap();
        throttle.enter("a", false, PATIENCE).await.unwrap();
    }
}
