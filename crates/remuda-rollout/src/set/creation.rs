//! How fast Machines are made: whatever goes wrong elsewhere, servers that cost money do not multiply.
//!
//! As many Machines as a pool wants are made at once, however many that is. Only what is made beyond that within
//! [`WINDOW`] counts as made again: a pool may do so as often as it takes to replace all its Machines once
//! ([`SPARE_OF_POOL`] for small pools) and then waits longer each time, from [`FIRST_DELAY`] up to [`WINDOW`]. What
//! a cluster may make again is a fixed number: beyond it nothing is made until the window has moved on.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

/// Creations are counted over this time.
const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// How many Machines a pool may make again in [`WINDOW`] before it waits, at least.
const SPARE_OF_POOL: usize = 10;
/// How many Machines a cluster may make again in [`WINDOW`], at least.
const SPARE_OF_CLUSTER: usize = 30;
/// How long a pool waits with the first Machine beyond that; each further one waits twice as long.
const FIRST_DELAY: SignedDuration = SignedDuration::from_secs(30);

/// What a set asks for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `namespace/name` of the Cluster.
    pub cluster: &'a str,
    /// The MachineDeployment, or the set if it has none. A name, not a UID: what is made again and again has a new
    /// UID each time.
    pub pool: &'a str,
    /// How many Machines the pool should have.
    pub wanted_in_pool: usize,
    /// How many Machines the cluster should have.
    pub wanted_in_cluster: usize,
    /// How many are missing.
    pub missing: usize,
}

/// How many Machines may be made now, and why not all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    pub count: usize,
    pub held: Option<Throttle>,
}

/// Machines are made again too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Throttle {
    pub scope: Scope,
    /// How many were made in the window.
    pub made: usize,
    /// How many there should be.
    pub wanted: usize,
    pub until: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Pool,
    Cluster,
}

impl Throttle {
    pub fn after(&self, now: Timestamp) -> Duration {
        Duration::try_from(self.until.duration_since(now)).unwrap_or_default()
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.scope {
            Scope::Pool => "pool",
            Scope::Cluster => "cluster",
        };
        let Throttle { made, wanted, .. } = self;
        // Whole seconds: the text is kept in a condition.
        let until = Timestamp::from_second(self.until.as_second()).unwrap_or(self.until);
        write!(
            f,
            "{made} Machines were created within {} minutes for a {scope} of {wanted}; the next one is created \
             after {until}",
            WINDOW.as_mins()
        )
    }
}

/// What was made in the window.
#[derive(Debug, Default)]
struct Ledger {
    made: VecDeque<Timestamp>,
    /// The most that was wanted while something of this was made.
    wanted: usize,
}

impl Ledger {
    fn look(&mut self, wanted: usize, now: Timestamp) {
        self.forget(now);
        self.wanted = if self.made.is_empty() { wanted } else { self.wanted.max(wanted) };
    }

    fn forget(&mut self, now: Timestamp) {
        // A clock that was set back must not hold anything up for longer than the window.
        self.made.retain(|at| {
            let age = now.duration_since(*at);
            age < WINDOW && age > -WINDOW
        });
    }

    fn free(&self, spare: usize) -> usize {
        self.wanted.saturating_add(self.wanted.max(spare))
    }

    fn of_pool(&self, missing: usize, now: Timestamp) -> Permit {
        let free = self.free(SPARE_OF_POOL);
        let made = self.made.len();
        if made < free {
            let count = missing.min(free - made);
            return self.permit(Scope::Pool, count, missing, now + FIRST_DELAY);
        }
        let doublings = u32::try_from(made - free).unwrap_or(u32::MAX).min(16);
        let delay = FIRST_DELAY.checked_mul(1 << doublings).unwrap_or(WINDOW).min(WINDOW);
        let last = self.made.back().copied().unwrap_or(now);
        let due = last.checked_add(delay).unwrap_or(now);
        if due > now {
            return self.permit(Scope::Pool, 0, missing, due);
        }
        self.permit(Scope::Pool, missing.min(1), missing, now + FIRST_DELAY)
    }

    fn of_cluster(&self, missing: usize, now: Timestamp) -> Permit {
        let free = self.free(SPARE_OF_CLUSTER);
        let count = missing.min(free.saturating_sub(self.made.len()));
        let oldest = self.made.front().copied().unwrap_or(now);
        let due = oldest.checked_add(WINDOW).unwrap_or(now);
        self.permit(Scope::Cluster, count, missing, due)
    }

    fn permit(&self, scope: Scope, count: usize, missing: usize, until: Timestamp) -> Permit {
        let throttle = Throttle { scope, made: self.made.len(), wanted: self.wanted, until };
        Permit { count, held: (count < missing).then_some(throttle) }
    }
}

/// Everything that was made lately, by cluster and by pool.
#[derive(Debug, Default)]
pub struct Creations {
    clusters: BTreeMap<String, Ledger>,
    pools: BTreeMap<String, Ledger>,
    swept: Option<Timestamp>,
}

impl Creations {
    /// How many Machines may be made now.
    pub fn permit(&mut self, request: &Request<'_>, now: Timestamp) -> Permit {
        self.sweep(now);
        let pool = self.pools.entry(pool_key(request.cluster, request.pool)).or_default();
        pool.look(request.wanted_in_pool, now);
        let of_pool = pool.of_pool(request.missing, now);
        let cluster = self.clusters.entry(request.cluster.to_owned()).or_default();
        cluster.look(request.wanted_in_cluster, now);
        let of_cluster = cluster.of_cluster(request.missing, now);
        if of_cluster.count < of_pool.count { of_cluster } else { of_pool }
    }

    /// A Machine was made.
    pub fn made(&mut self, cluster: &str, pool: &str, now: Timestamp) {
        self.pools.entry(pool_key(cluster, pool)).or_default().made.push_back(now);
        self.clusters.entry(cluster.to_owned()).or_default().made.push_back(now);
    }

    /// Forgets what made nothing lately, so that pools that came and went leave nothing behind.
    fn sweep(&mut self, now: Timestamp) {
        if self.swept.is_some_and(|swept| now.duration_since(swept).abs() < WINDOW) {
            return;
        }
        self.swept = Some(now);
        for ledgers in [&mut self.clusters, &mut self.pools] {
            ledgers.retain(|_, ledger| {
                ledger.forget(now);
                !ledger.made.is_empty()
            });
        }
    }
}

fn pool_key(cluster: &str, pool: &str) -> String {
    format!("{cluster}/{pool}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::at;

    fn request(wanted: usize, missing: usize) -> Request<'static> {
        let (wanted_in_pool, wanted_in_cluster) = (wanted, wanted);
        Request { cluster: "ns/demo", pool: "workers", wanted_in_pool, wanted_in_cluster, missing }
    }

    /// Makes whatever may be made at `second`, and tells how much that was.
    fn make(creations: &mut Creations, wanted: usize, missing: usize, second: i64) -> usize {
        let permit = creations.permit(&request(wanted, missing), at(second));
        for _ in 0..permit.count {
            creations.made("ns/demo", "workers", at(second));
        }
        permit.count
    }

    #[test]
    fn first_machines_are_made_at_once_however_many() {
        let mut creations = Creations::default();
        assert_eq!(make(&mut creations, 500, 500, 0), 500);
        // Growing is no repetition either.
        assert_eq!(make(&mut creations, 1_000, 500, 1), 500);
        let permit = creations.permit(&request(1_000, 0), at(2));
        assert_eq!(permit, Permit { count: 0, held: None });
    }

    #[test]
    fn a_pool_may_be_replaced_once_and_then_waits_longer_each_time() {
        let mut creations = Creations::default();
        assert_eq!(make(&mut creations, 3, 3, 0), 3);
        assert_eq!(make(&mut creations, 3, 3, 1), 3);
        assert_eq!(make(&mut creations, 3, 30, 2), 7);
        let permit = creations.permit(&request(3, 1), at(3));
        assert_eq!(permit.count, 0);
        assert_eq!(
            permit.held.unwrap().to_string(),
            "13 Machines were created within 10 minutes for a pool of 3; the next one is created after \
             1970-01-01T00:00:32Z"
        );
        assert_eq!(make(&mut creations, 3, 3, 31), 0);
        assert_eq!(make(&mut creations, 3, 3, 32), 1);
        assert_eq!(make(&mut creations, 3, 3, 91), 0);
        assert_eq!(make(&mut creations, 3, 3, 92), 1);
        assert_eq!(make(&mut creations, 3, 3, 211), 0);
        assert_eq!(make(&mut creations, 3, 3, 212), 1);
    }

    #[test]
    fn whoever_was_quiet_for_a_while_begins_anew() {
        let mut creations = Creations::default();
        make(&mut creations, 3, 100, 0);
        assert_eq!(make(&mut creations, 3, 3, 5), 0);
        assert_eq!(make(&mut creations, 3, 3, 601), 3);
    }

    #[test]
    fn pools_of_ever_new_names_share_the_budget_of_their_cluster() {
        let mut creations = Creations::default();
        let mut total = 0;
        for pool in 0..100 {
            let pool = format!("pool-{pool}");
            let request = Request {
                cluster: "ns/demo",
                pool: &pool,
                wanted_in_pool: 2,
                wanted_in_cluster: 2,
                missing: 2,
            };
            let permit = creations.permit(&request, at(1));
            for _ in 0..permit.count {
                creations.made("ns/demo", &pool, at(1));
            }
            total += permit.count;
        }
        assert_eq!(total, 2 + SPARE_OF_CLUSTER);
        let held = creations.permit(&request(2, 2), at(2)).held.unwrap();
        assert_eq!((held.scope, held.until), (Scope::Cluster, at(601)));
    }

    #[test]
    fn whatever_happens_a_day_has_few_machines() {
        let mut creations = Creations::default();
        let mut total = 0;
        // Everything is deleted every second.
        for second in 0..86_400 {
            total += make(&mut creations, 2, 2, second);
        }
        let windows = 86_400 / 600;
        assert!(total <= windows * (2 + SPARE_OF_CLUSTER), "{total}");
    }

    #[test]
    fn nothing_is_kept_of_what_is_long_gone() {
        let mut creations = Creations::default();
        for pool in 0..50 {
            creations.made("ns/demo", &format!("pool-{pool}"), at(0));
        }
        make(&mut creations, 1, 1, 2_000);
        assert_eq!((creations.pools.len(), creations.clusters.len()), (1, 1));
    }
}
