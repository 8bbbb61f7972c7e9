//! Slows down those who guess passwords: per address, and per user at an address, longer with every failure.
//!
//! Failures at one address never keep out the right password from another. What a user has failed everywhere
//! only shortens how many guesses each address has, never to less than one.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use parking_lot::Mutex;
use remuda_base::Backoff;
use tokio::time::Instant;

/// Failures of a user at an address before anybody has to wait there: people mistype.
const FREE_PER_USER: u32 = 5;
/// The same for a user whom many addresses guess at.
const FREE_IN_CROWD: u32 = 1;
/// Failures of a user everywhere that make a crowd.
const CROWD: u32 = 50;
/// Many people may share an address.
const FREE_PER_ADDRESS: u32 = 20;
/// Codes of six digits a user may fail, everywhere together: few enough not to be guessed.
const CODES: u32 = 100;
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// Failures are forgotten after this much time without another.
const MEMORY: Duration = Duration::from_secs(3600);
/// Users, addresses and users at addresses remembered, each.
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
            Some(over) => BACKOFF.delay(over.saturating_add(1)),
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

    /// Failures that are not forgotten.
    fn count(&self, key: &K, now: Instant) -> u32 {
        let known = self.0.get(key).filter(|failures| now.saturating_duration_since(failures.last) < MEMORY);
        known.map_or(0, |failures| failures.count)
    }

    /// Takes one failure back.
    fn forgive(&mut self, key: &K) {
        if let Some(failures) = self.0.get_mut(key) {
            failures.count = failures.count.saturating_sub(1);
        }
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

#[derive(Default)]
struct Tables {
    pairs: Table<(String, IpAddr)>,
    addresses: Table<IpAddr>,
    users: Table<String>,
    codes: Table<String>,
}

/// Who failed to log in how often.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<Tables>);

impl Throttle {
    /// An attempt begins. Fails with how long to wait before the next one. It counts as a failure until it is
    /// said to have [succeeded](Throttle::succeeded), so that many at once are not tried for the price of one.
    pub(crate) fn enter(&self, username: &str, address: IpAddr) -> Result<(), Duration> {
        let now = Instant::now();
        let (username, address) = (user(username), network(address));
        let tables = &mut *self.0.lock();
        let crowd = tables.users.count(&username, now) >= CROWD;
        let free = if crowd { FREE_IN_CROWD } else { FREE_PER_USER };
        let pair = (username.clone(), address);
        let left =
            tables.pairs.left(&pair, free, now).max(tables.addresses.left(&address, FREE_PER_ADDRESS, now));
        if !left.is_zero() {
            return Err(left);
        }
        tables.pairs.failed(pair, now);
        tables.addresses.failed(address, now);
        tables.users.failed(username, now);
        Ok(())
    }

    /// As [`Throttle::enter`], where nobody says who they are yet.
    pub(crate) fn enter_from(&self, address: IpAddr) -> Result<(), Duration> {
        let now = Instant::now();
        let address = network(address);
        let addresses = &mut self.0.lock().addresses;
        let left = addresses.left(&address, FREE_PER_ADDRESS, now);
        if !left.is_zero() {
            return Err(left);
        }
        addresses.failed(address, now);
        Ok(())
    }

    pub(crate) fn succeeded_from(&self, address: IpAddr) {
        // Only this attempt: somebody with one good password must not be able to guess others for ever.
        self.0.lock().addresses.forgive(&network(address));
    }

    pub(crate) fn succeeded(&self, username: &str, address: IpAddr) {
        self.0.lock().pairs.0.remove(&(user(username), network(address)));
        self.0.lock().users.forgive(&user(username));
        self.succeeded_from(address);
    }

    /// An attempt was none: nothing was guessed.
    pub(crate) fn forgive(&self, username: &str, address: IpAddr) {
        let (username, address) = (user(username), network(address));
        let tables = &mut *self.0.lock();
        tables.users.forgive(&username);
        tables.addresses.forgive(&address);
        tables.pairs.forgive(&(username, address));
    }

    /// A code of a second factor is about to be tried, by a caller who knows the password. It counts as a failure
    /// until it [succeeded](Throttle::code_succeeded).
    pub(crate) fn enter_code(&self, username: &str) -> Result<(), Duration> {
        let now = Instant::now();
        let username = user(username);
        let codes = &mut self.0.lock().codes;
        if codes.count(&username, now) >= CODES {
            let last = codes.0.get(&username).map_or(now, |failures| failures.last);
            return Err(MEMORY.saturating_sub(now.saturating_duration_since(last)));
        }
        codes.failed(username, now);
        Ok(())
    }

    pub(crate) fn code_succeeded(&self, username: &str) {
        self.0.lock().codes.0.remove(&user(username));
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
        assert!(throttle.enter("ann", HERE).unwrap_err() <= BACKOFF.longest);
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
        let tables = &*throttle.0.lock();
        let sizes = [tables.users.0.len(), tables.addresses.0.len(), tables.pairs.0.len()];
        assert!(sizes.iter().all(|size| *size <= MOST), "{sizes:?}");
    }

    fn there(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + (number << 8)).into())
    }

    #[tokio::test(start_paused = true)]
    async fn failures_at_one_address_do_not_keep_out_another() {
        let throttle = Throttle::default();
        while throttle.enter("ann", HERE).is_ok() {}
        assert_eq!(throttle.enter("ann", there(1)), Ok(()));
        throttle.succeeded("ann", there(1));
        assert!(throttle.enter("ann", HERE).is_err(), "whoever guesses waits all the same");
        // Even if the whole world guesses: everybody has one attempt.
        for number in 2..500 {
            assert_eq!(throttle.enter("ann", there(number)), Ok(()), "{number}");
        }
        assert!(throttle.enter("ann", there(499)).is_err(), "and then fewer than usual");
    }

    #[tokio::test(start_paused = true)]
    async fn asking_for_the_second_factor_is_no_guess() {
        let throttle = Throttle::default();
        for _ in 0..100 {
            assert_eq!(throttle.enter("ann", HERE), Ok(()));
            throttle.forgive("ann", HERE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn codes_cannot_be_guessed_by_many_together() {
        let throttle = Throttle::default();
        for _ in 0..CODES {
            assert_eq!(throttle.enter_code("ann"), Ok(()));
        }
        assert!(throttle.enter_code("ann").unwrap_err() <= MEMORY);
        assert_eq!(throttle.enter_code("bob"), Ok(()));
        tokio::time::advance(MEMORY).await;
        assert_eq!(throttle.enter_code("ann"), Ok(()));
        throttle.code_succeeded("ann");
    }
}
