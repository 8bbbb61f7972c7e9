//! Connections whose client has not logged in, and how many of them may be open.
//!
//! Every connection begins as one of these, and anybody can open one, so they must not take the
//! places of clients that are logged in. They share a part of all connections, with a bound for
//! each address. Where there is no room, the one that has been idle longest makes it: whoever only
//! holds connections open loses them, and whoever has something to ask gets to ask it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// The bounds.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections of all who have not logged in.
    pub total: usize,
    /// Of one address, or of one /64 network.
    pub per_address: usize,
    /// From the handshake to the first request.
    pub first: Duration,
    /// From one request to the next.
    pub idle: Duration,
}

impl Bounds {
    /// A quarter of all connections is kept for clients that are logged in.
    pub fn of(connections: usize) -> Self {
        Self {
            total: (connections - connections / 4).max(1),
            per_address: 256,
            first: Duration::from_secs(10),
            idle: Duration::from_secs(30),
        }
    }
}

pub(super) struct Unauthenticated {
    bounds: Bounds,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Orders the times at which connections became idle.
    turn: u64,
    count: usize,
    idle: BTreeMap<u64, (IpAddr, CancellationToken)>,
    addresses: HashMap<IpAddr, Address>,
}

#[derive(Default)]
struct Address {
    count: usize,
    /// Turns of its idle connections.
    idle: BTreeSet<u64>,
}

impl Unauthenticated {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, table: Mutex::default() })
    }

    /// Admits a connection, idle for now, closing another one if it must. `None`: there is no room,
    /// and all others are being served.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Guest> {
        let address = network(address);
        let mut table = self.table.lock();
        if table.addresses.get(&address).is_some_and(|found| found.count >= self.bounds.per_address) {
            let oldest = table.addresses.get(&address).and_then(|found| found.idle.first().copied());
            table.evict(oldest?);
        }
        if table.count >= self.bounds.total {
            let oldest = table.idle.keys().next().copied();
            table.evict(oldest?);
        }
        table.count += 1;
        table.addresses.entry(address).or_default().count += 1;
        let evicted = CancellationToken::new();
        let turn = table.idle(address, evicted.clone());
        drop(table);
        let state = State { place: Place::Idle { turn }, since: None, served: false };
        let state = Mutex::new(state);
        Some(Guest { pool: self.clone(), address, evicted, state, changed: Notify::new() })
    }
}

impl Table {
    fn idle(&mut self, address: IpAddr, evicted: CancellationToken) -> u64 {
        self.turn += 1;
        self.idle.insert(self.turn, (address, evicted));
        self.addresses.entry(address).or_default().idle.insert(self.turn);
        self.turn
    }

    /// Whether it was still idle: an evicted one is not.
    fn busy(&mut self, turn: u64) -> bool {
        let Some((address, _)) = self.idle.remove(&turn) else { return false };
        if let Some(found) = self.addresses.get_mut(&address) {
            found.idle.remove(&turn);
        }
        true
    }

    fn evict(&mut self, turn: u64) {
        let Some((address, evicted)) = self.idle.get(&turn).cloned() else { return };
        self.busy(turn);
        self.leave(address);
        evicted.cancel();
    }

    fn leave(&mut self, address: IpAddr) {
        self.count -= 1;
        if let Some(found) = self.addresses.get_mut(&address) {
            found.count -= 1;
            if found.count == 0 {
                self.addresses.remove(&address);
            }
        }
    }
}

/// A connection, as long as its client has not logged in.
pub(super) struct Guest {
    pool: Arc<Unauthenticated>,
    address: IpAddr,
    evicted: CancellationToken,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    place: Place,
    /// `None` until the handshake is done, which has its own time.
    since: Option<Instant>,
    /// There was a request.
    served: bool,
}

enum Place {
    Idle {
        turn: u64,
    },
    Busy {
        requests: usize,
    },
    /// Not in the table: logged in, or evicted.
    Out,
}

impl Guest {
    /// The handshake is done.
    pub(super) fn connected(&self) {
        self.state.lock().since = Some(Instant::now());
        self.changed.notify_one();
    }

    /// A request has begun. It has ended when what this returns is dropped.
    pub(super) fn serve(self: &Arc<Self>) -> Serving {
        let mut state = self.state.lock();
        state.served = true;
        match &mut state.place {
            Place::Idle { turn } => {
                let there = self.pool.table.lock().busy(*turn);
                state.place = if there { Place::Busy { requests: 1 } } else { Place::Out };
            }
            Place::Busy { requests } => *requests += 1,
            Place::Out => {}
        }
        drop(state);
        self.changed.notify_one();
        Serving(self.clone())
    }

    /// The client has logged in: the connection is none of ours any more.
    pub(super) fn logged_in(&self) {
        self.leave();
        self.changed.notify_one();
    }

    fn ended(&self) {
        let mut state = self.state.lock();
        state.since = Some(Instant::now());
        match &mut state.place {
            Place::Busy { requests: 1 } => {
                let turn = self.pool.table.lock().idle(self.address, self.evicted.clone());
                state.place = Place::Idle { turn };
            }
            Place::Busy { requests } => *requests -= 1,
            Place::Idle { .. } | Place::Out => {}
        }
        drop(state);
        self.changed.notify_one();
    }

    fn leave(&self) {
        let mut state = self.state.lock();
        let mut table = self.pool.table.lock();
        let there = match state.place {
            Place::Idle { turn } => table.busy(turn),
            Place::Busy { .. } => true,
            Place::Out => false,
        };
        if there {
            table.leave(self.address);
        }
        state.place = Place::Out;
    }

    /// When it has been idle for too long, if nothing happens until then.
    fn deadline(&self) -> Option<Instant> {
        let state = self.state.lock();
        let bounds = &self.pool.bounds;
        match state.place {
            Place::Idle { .. } => Some(state.since? + if state.served { bounds.idle } else { bounds.first }),
            Place::Busy { .. } | Place::Out => None,
        }
    }

    /// Returns when the connection must be closed. Sets no timer while its client is being served or
    /// is logged in.
    pub(super) async fn overstayed(&self) {
        loop {
            let changed = self.changed.notified();
            let deadline = self.deadline();
            let idle = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.evicted.cancelled() => return,
                () = idle => return,
                () = changed => {}
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A request of a guest.
pub(super) struct Serving(Arc<Guest>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Whose address it is: networks of IPv6 are given out as a whole.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(total: usize, per_address: usize) -> Arc<Unauthenticated> {
        Unauthenticated::new(Bounds { total, per_address, ..Bounds::of(0) })
    }

    fn enter(pool: &Arc<Unauthenticated>, address: &str) -> Option<Arc<Guest>> {
        pool.enter(address.parse().unwrap()).map(Arc::new)
    }

    fn open(guest: &Guest) -> bool {
        !guest.evicted.is_cancelled()
    }

    #[test]
    fn the_one_idle_longest_of_an_address_makes_room() {
        let pool = pool(100, 2);
        let (first, second) = (enter(&pool, "10.0.0.1").unwrap(), enter(&pool, "10.0.0.1").unwrap());
        let other = enter(&pool, "10.0.0.2").unwrap();
        drop(first.serve());
        let third = enter(&pool, "10.0.0.1").unwrap();
        assert!(open(&first) && !open(&second) && open(&third) && open(&other));
        // Who is being served is left alone.
        let _busy = (first.serve(), third.serve());
        assert!(enter(&pool, "10.0.0.1").is_none());
        assert!(enter(&pool, "10.0.0.3").is_some());
        assert!(open(&first) && open(&third));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let pool = pool(100, 1);
        let first = enter(&pool, "2001:db8:1:2::1").unwrap();
        let _second = enter(&pool, "2001:db8:1:2:ffff::1").unwrap();
        assert!(!open(&first));
        let mapped = enter(&pool, "::ffff:10.0.0.1").unwrap();
        let _same = enter(&pool, "10.0.0.1").unwrap();
        assert!(!open(&mapped));
    }

    #[test]
    fn who_logs_in_makes_room_and_nothing_is_forgotten() {
        let pool = pool(2, 2);
        let first = enter(&pool, "10.0.0.1").unwrap();
        let request = first.serve();
        first.logged_in();
        drop(request);
        let (second, third) = (enter(&pool, "10.0.0.1").unwrap(), enter(&pool, "10.0.0.1").unwrap());
        let fourth = enter(&pool, "10.0.0.2").unwrap();
        assert!(open(&first) && !open(&second) && open(&third) && open(&fourth));
        drop((first, second, third, fourth));
        let table = pool.table.lock();
        assert_eq!((table.count, table.idle.len(), table.addresses.len()), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_gets_seconds_and_one_that_is_served_gets_its_time() {
        let pool = pool(10, 10);
        let guest = enter(&pool, "10.0.0.1").unwrap();
        guest.connected();
        let started = Instant::now();
        guest.overstayed().await;
        assert_eq!(started.elapsed().as_secs(), 10);
        let served = enter(&pool, "10.0.0.1").unwrap();
        let request = served.serve();
        let long = Duration::from_secs(3600);
        assert!(tokio::time::timeout(long, served.overstayed()).await.is_err());
        drop(request);
        let started = Instant::now();
        served.overstayed().await;
        assert_eq!(started.elapsed().as_secs(), 30);
        served.logged_in();
        assert!(tokio::time::timeout(long, served.overstayed()).await.is_err());
    }
}
