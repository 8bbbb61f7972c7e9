//! Fair shares: no client may take all of the server.
//!
//! A request needs a place among all (reads or writes) and one among its own user's. Places are
//! handed out in order, so a flood waits behind its own requests, not before everybody's. The
//! server's own controllers, health checks and watches need none.
//!
//! A body is received before its request takes a place (see `receive`): whoever sends slowly holds
//! only what is their own, and a share of memory that is bounded for each user and for all.

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
    /// How long a body may take to begin, and to stop for; a steady trickle gets more (see `receive`).
    pub body_patience: Duration,
    /// Memory for bodies that are being received or handled, of all users.
    pub bodies_bytes: usize,
    /// The same for one user.
    pub bodies_bytes_per_user: usize,
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
            body_patience: Duration::from_secs(10),
            bodies_bytes: 128 << 20,
            bodies_bytes_per_user: 16 << 20,
        }
    }
}

pub(crate) struct Throttle {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    users: Mutex<std::collections::HashMap<String, Arc<UserShare>>>,
    per_user: usize,
    queue: usize,
    /// Memory for small bodies, and for what large ones need beyond that, in [`UNIT`]s.
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    large_per_user: usize,
}

struct UserShare {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    /// Bodies being received, and the memory of large ones.
    bodies: Arc<Semaphore>,
    large: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// What memory for bodies is counted in.
const UNIT: usize = 1 << 10;
/// Bodies up to this size do not compete with larger ones for memory.
const SMALL: usize = 64 << 10;

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
            small: Arc::new(Semaphore::new(limits.bodies_bytes / UNIT)),
            // The largest body must fit.
            large: Arc::new(Semaphore::new(units(limits.bodies_bytes.max(limits.body_bytes)))),
            large_per_user: units(limits.bodies_bytes_per_user.max(limits.body_bytes)),
        }
    }

    fn share(&self, user: &str) -> Arc<UserShare> {
        let mut users = self.users.lock();
        if let Some(share) = users.get(user) {
            return share.clone();
        }
        if users.len() >= REMEMBERED {
            // Whoever is under way has it, too.
            users.retain(|_, share| Arc::strong_count(share) > 1 || !self.is_idle(share));
        }
        let places = || Arc::new(Semaphore::new(self.per_user));
        let share = Arc::new(UserShare {
            reads: places(),
            writes: places(),
            bodies: places(),
            large: Arc::new(Semaphore::new(self.large_per_user)),
            waiting: 0.into(),
        });
        users.insert(user.to_owned(), share.clone());
        share
    }

    fn is_idle(&self, share: &UserShare) -> bool {
        let places = [&share.reads, &share.writes, &share.bodies];
        places.iter().all(|places| places.available_permits() == self.per_user)
            && share.large.available_permits() == self.large_per_user
    }

    /// Lets a body of this user be received, as one of not too many.
    pub(crate) async fn receive(&self, user: &str) -> ApiResult<BodyShare> {
        let share = self.share(user);
        let own = match share.bodies.clone().try_acquire_owned() {
            Ok(own) => own,
            Err(_) => {
                let _waiting = Waiting::enter(&share, self.queue)?;
                share.bodies.clone().acquire_owned().await.map_err(closed)?
            }
        };
        Ok(BodyShare { own: Some(own), user: share, small: None, large: None, taken: 0 })
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
            Ok(Err(error)) => Err(closed(error)),
            Err(_) => Err(too_many()),
        }
    }
}

/// The memory of one body, held until its request is done.
pub(crate) struct BodyShare {
    /// One of the user's bodies being received.
    own: Option<OwnedSemaphorePermit>,
    user: Arc<UserShare>,
    small: Option<OwnedSemaphorePermit>,
    large: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
    taken: usize,
}

impl BodyShare {
    /// Makes room for a body that has grown to `size`, and will not exceed `most`.
    ///
    /// A small body takes what it has sent and never waits. A large one takes all it may need at
    /// once, so that no two wait for each other with half of what they need.
    pub(crate) async fn grow(&mut self, throttle: &Throttle, size: usize, most: usize) -> ApiResult<()> {
        let wanted = units(size.min(SMALL));
        if wanted > self.taken {
            let more = throttle.small.clone().try_acquire_many_owned((wanted - self.taken) as u32);
            let more = more.map_err(|_| too_many())?;
            match &mut self.small {
                Some(small) => small.merge(more),
                None => self.small = Some(more),
            }
            self.taken = wanted;
        }
        if size > SMALL && self.large.is_none() {
            let beyond = units(most - SMALL.min(most)).max(1) as u32;
            let own = self.user.large.clone().acquire_many_owned(beyond).await.map_err(closed)?;
            let shared = throttle.large.clone().acquire_many_owned(beyond).await.map_err(closed)?;
            self.large = Some((own, shared));
        }
        Ok(())
    }

    /// The body is here, and this large: what it did not need is free again.
    pub(crate) fn received(&mut self, size: usize) {
        self.own = None;
        let beyond = units(size.saturating_sub(SMALL));
        if let Some((own, shared)) = &mut self.large {
            for permit in [own, shared] {
                drop(permit.split(permit.num_permits().saturating_sub(beyond)));
            }
        }
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT).min(u32::MAX as usize)
}

fn closed(_: tokio::sync::AcquireError) -> ApiError {
    ApiError::unavailable("the server is shutting down")
}

pub(crate) fn too_many() -> ApiError {
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
