//! Slows down those who guess passwords: per user and per address, longer with every failure.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Failures before anybody has to wait: people mistype.
const FREE_PER_USER: u32 = 5;
/// Many people may share an address.
const FREE_PER_ADDRESS: u32 = 20;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
/// Failures are forgotten after this much time without another.
const MEMORY: Duration = Duration::from_secs(3600);
/// Users and addresses remembered, each.
const MOST: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Failures {
    fn wait(self, free: u32) -> Duration {
        match self.count.checked_sub(free) {
            None => Duration::ZERO,
            Some(over) => FIRST.saturating_mul(1 << over.min(16)).min(LONGEST),
        }
    }
}

struct Table<K>(HashMap<K, Failures>);

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash + Clone> Table<K> {
    fn left(&self, key: &K, free: u32, now: Instant) -> Duration {
        let Some(failures) = self.0.get(key) else { return Duration::ZERO };
        failures.wait(free).saturating_sub(now.saturating_duration_since(failures.last))
    }

    fn failed(&mut self, key: K, now: Instant) {
        if self.0.len() >= MOST && !self.0.contains_key(&key) {
            self.0.retain(|_, failures| now.saturating_duration_since(failures.last) < MEMORY);
            // Still full of fresh ones: those with the fewest failures have the least to lose.
            while self.0.len() >= MOST {
                let least = self.0.values().map(|failures| failures.count).min().unwrap_or_default();
                self.0.retain(|_, failures| failures.count > least);
            }
        }
        let failures = self.0.entry(key).or_insert(Failures { count: 0, last: now });
        if now.saturating_duration_since(failures.last) >= MEMORY {
            failures.count = 0;
        }
        *failures = Failures { count: failures.count.saturating_add(1), last: now };
    }
}

/// Who failed to log in how often.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<(Table<String>, Table<IpAddr>)>);

impl Throttle {
    /// An attempt begins. Fails with how long to wait before the next one. It counts as a failure until it is
    /// said to have [succeeded](Throttle::succeeded), so that many at once are not tried for the price of one.
    pub(crate) fn enter(&self, username: &str, address: IpAddr) -> Result<(), Duration> {
        let now = Instant::now();
        let (username, address) = (user(username), network(address));
        let (users, addresses) = &mut *self.0.lock();
        let left =
            users.left(&username, FREE_PER_USER, now).max(addresses.left(&address, FREE_PER_ADDRESS, now));
        if !left.is_zero() {
            return Err(left);
        }
        users.failed(username, now);
        addresses.failed(address, now);
        Ok(())
    }

    /// As [`Throttle::enter`], where nobody says who they are yet.
    pub(crate) fn enter_from(&self, address: IpAddr) -> Result<(), Duration> {
        let now = Instant::now();
        let address = network(address);
        let (_, addresses) = &mut *self.0.lock();
        let left = addresses.left(&address, FREE_PER_ADDRESS, now);
        if !left.is_zero() {
            return Err(left);
        }
        addresses.failed(address, now);
        Ok(())
    }

    pub(crate) fn succeeded_from(&self, address: IpAddr) {
        let (_, addresses) = &mut *self.0.lock();
        // Only this attempt: somebody with one good password must not be able to guess others for ever.
        if let Some(failures) = addresses.0.get_mut(&network(address)) {
            failures.count = failures.count.saturating_sub(1);
        }
    }

    pub(crate) fn succeeded(&self, username: &str, address: IpAddr) {
        self.0.lock().0.0.remove(&user(username));
        self.succeeded_from(address);
    }
}

/// Long names are cut: they are nobody's, and kept.
fn user(name: &str) -> String {
    name.chars().take(64).flat_map(char::to_lowercase).collect()
}

/// Whoever has one IPv6 address has the whole network.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            Some(four) => IpAddr::V4(four),
            None => IpAddr::V6(Ipv6Addr::from(u128::from(six) & !u128::from(u64::MAX))),
        },
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test(start_paused = true)]
    async fn guesses_take_longer_and_longer() {
        let throttle = Throttle::default();
        for _ in 0..5 {
            assert_eq!(throttle.enter("Ann", HERE), Ok(()));
        }
        assert_eq!(throttle.enter("ann", HERE), Err(Duration::from_secs(1)));
        assert_eq!(throttle.enter("bob", HERE), Ok(()), "others do not wait");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(throttle.enter("ANN", HERE), Ok(()));
        assert_eq!(throttle.enter("ann", HERE), Err(Duration::from_secs(2)));
        for _ in 0..20 {
            tokio::time::advance(Duration::from_secs(300)).await;
            let _ = throttle.enter("ann", HERE);
        }
        assert!(throttle.enter("ann", HERE).unwrap_err() <= LONGEST);
        tokio::time::advance(Duration::from_secs(300)).await;
        throttle.succeeded("ann", HERE);
        assert_eq!(throttle.enter("ann", HERE), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_cannot_try_many_users() {
        let throttle = Throttle::default();
        let address = |last: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
        for i in 0..20 {
            assert_eq!(throttle.enter(&format!("user{i}"), address(i)), Ok(()));
        }
        assert!(throttle.enter("another", address(999)).is_err());
        assert_eq!(throttle.enter("another", HERE), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let throttle = Throttle::default();
        for i in 0..(MOST as u32 + 500) {
            let _ = throttle.enter(&format!("user{i}"), IpAddr::V4((i << 8).into()));
        }
        let (users, addresses) = &*throttle.0.lock();
        assert!(users.0.len() <= MOST && addresses.0.len() <= MOST);
    }
}
