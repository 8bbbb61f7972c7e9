//! Sets of addresses of one family, as ranges: a pool may be a whole IPv6 network.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Addresses from one to another, both included and of the same family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    first: IpAddr,
    last: IpAddr,
}

/// A text that is neither an address, nor FIRST-LAST, nor ADDRESS/BITS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("provided address is not a valid IP, range, nor CIDR")]
pub struct Malformed;

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The address of this number in the family of `like`.
fn address(like: IpAddr, number: u128) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Range {
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let read = |text: &str| text.parse::<IpAddr>().map_err(|_| Malformed);
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (read(first)?, read(last)?);
            let ordered = first.is_ipv4() == last.is_ipv4() && first <= last;
            return if ordered { Ok(Self { first, last }) } else { Err(Malformed) };
        }
        if let Some((start, bits)) = text.split_once('/') {
            let plain = bits == "0" || bits.starts_with(|c: char| matches!(c, '1'..='9'));
            let bits: u32 = bits.parse().ok().filter(|_| plain).ok_or(Malformed)?;
            return Self::network(read(start)?, bits).ok_or(Malformed);
        }
        let only = read(text)?;
        Ok(Self { first: only, last: only })
    }

    /// The network an address is in; `None` if the family has not that many bits.
    pub fn network(inside: IpAddr, bits: u32) -> Option<Self> {
        let host = width(inside).checked_sub(bits)?;
        let mask = if host == 128 { u128::MAX } else { (1 << host) - 1 };
        let first = number(inside) & !mask;
        Some(Self { first: address(inside, first), last: address(inside, first | mask) })
    }

    pub fn first(&self) -> IpAddr {
        self.first
    }

    pub fn last(&self) -> IpAddr {
        self.last
    }

    pub fn contains(&self, other: &Range) -> bool {
        self.first.is_ipv4() == other.first.is_ipv4() && self.first <= other.first && other.last <= self.last
    }
}

/// Addresses in their order. Ranges are sorted and do not overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set(Vec<Range>);

impl FromIterator<Range> for Set {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut ranges: Vec<Range> = ranges.into_iter().collect();
        ranges.sort_by_key(|range| (range.first, range.last));
        let mut joined: Vec<Range> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(known)
                    if known.first.is_ipv4() == range.first.is_ipv4() && range.first <= known.last =>
                {
                    known.last = known.last.max(range.last);
                }
                _ => joined.push(range),
            }
        }
        Self(joined)
    }
}

impl Set {
    pub fn first(&self) -> Option<IpAddr> {
        self.0.first().map(|range| range.first)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let after = self.0.partition_point(|range| range.first <= address);
        let one = Range { first: address, last: address };
        after.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|range| range.contains(&one))
    }

    /// The set without these ranges.
    #[must_use]
    pub fn without(&self, taken: &Set) -> Set {
        let mut left = Vec::new();
        for range in &self.0 {
            let mut rest = Some(*range);
            let same = |other: &&Range| other.first.is_ipv4() == range.first.is_ipv4();
            for hole in taken.0.iter().filter(same) {
                let Some(part) = rest else { break };
                if hole.last < part.first || part.last < hole.first {
                    continue;
                }
                if part.first < hole.first {
                    left.push(Range { last: address(part.first, number(hole.first) - 1), ..part });
                }
                rest = (hole.last < part.last)
                    .then(|| Range { first: address(part.first, number(hole.last) + 1), ..part });
            }
            left.extend(rest);
        }
        Set(left)
    }

    /// How many addresses; more than can be told are the most that can be told.
    pub fn count(&self) -> u128 {
        let sizes = self.0.iter().map(|range| (number(range.last) - number(range.first)).saturating_add(1));
        sizes.fold(0, u128::saturating_add)
    }

    /// The first address that is not taken. Takes as many steps as addresses are taken.
    pub fn first_but(&self, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        self.0.iter().find_map(|range| {
            let mut next = number(range.first);
            for known in taken.range(range.first..=range.last) {
                if number(*known) != next {
                    break;
                }
                next = next.checked_add(1)?;
            }
            (next <= number(range.last)).then(|| address(range.first, next))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> Set {
        text.split_whitespace().map(|range| Range::parse(range).unwrap()).collect()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_read_in_three_forms() {
        for (text, first, last) in [
            ("10.0.0.7", "10.0.0.7", "10.0.0.7"),
            ("10.0.0.7-10.0.1.2", "10.0.0.7", "10.0.1.2"),
            ("10.0.0.7/30", "10.0.0.4", "10.0.0.7"),
            ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
            ("fd00::1", "fd00::1", "fd00::1"),
            ("fd00::a-fd00::ff", "fd00::a", "fd00::ff"),
            ("fd00::/126", "fd00::", "fd00::3"),
            ("::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            let range = Range::parse(text).unwrap();
            assert_eq!((range.first(), range.last()), (ip(first), ip(last)), "{text}");
        }
        for text in [
            "",
            "-",
            "/",
            "10.0.0",
            "10.0.0.01",
            " 10.0.0.1",
            "10.0.0.2-10.0.0.1",
            "10.0.0.1-fd00::1",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "10.0.0.0/",
            "fd00::/129",
            "fe80::1%eth0",
            "1-2-3",
        ] {
            assert_eq!(Range::parse(text), Err(Malformed), "{text:?}");
        }
    }

    #[test]
    fn counts_do_not_overflow() {
        assert_eq!(set("10.0.0.1-10.0.0.5 10.0.0.3-10.0.0.9 10.0.1.1").count(), 10);
        assert_eq!(set("::/0").count(), u128::MAX);
        assert_eq!(set("::/1").count(), 1 << 127);
    }

    #[test]
    fn the_last_address_of_all_is_found_and_nothing_after_it() {
        for text in ["255.255.255.254/31", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"] {
            let range = Range::parse(text).unwrap();
            let set: Set = [range].into_iter().collect();
            let mut taken = BTreeSet::from([range.first()]);
            assert_eq!(set.first_but(&taken), Some(range.last()));
            taken.insert(range.last());
            assert_eq!(set.first_but(&taken), None);
        }
    }

    fn small() -> impl Strategy<Value = Vec<(u8, u8)>> {
        prop::collection::vec((any::<u8>(), any::<u8>()), 0..6)
    }

    fn built(pairs: &[(u8, u8)]) -> (Set, BTreeSet<IpAddr>) {
        let at = |low: u8| IpAddr::V4(Ipv4Addr::new(10, 0, 0, low));
        let pairs = pairs.iter().map(|(a, b)| (*a.min(b), *a.max(b)));
        let ranges = pairs.clone().map(|(first, last)| Range { first: at(first), last: at(last) });
        (ranges.collect(), pairs.flat_map(|(first, last)| (first..=last).map(at)).collect())
    }

    proptest! {
        /// The same as with every address written down.
        #[test]
        fn sets_are_sets(all in small(), taken in small()) {
            let (set, known) = built(&all);
            let (holes, gone) = built(&taken);
            let left = set.without(&holes);
            let expected: BTreeSet<IpAddr> = known.difference(&gone).copied().collect();
            prop_assert_eq!(left.count(), expected.len() as u128);
            for low in 0..=255 {
                let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, low));
                prop_assert_eq!(left.contains(address), expected.contains(&address));
            }
            prop_assert_eq!(set.first_but(&gone), expected.first().copied());
            prop_assert_eq!(left.first(), expected.first().copied());
        }
    }
}
