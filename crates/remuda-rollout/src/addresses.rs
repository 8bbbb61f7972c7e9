//! Which addresses a pool has, and which of them a claim is given.
//!
//! A claim is answered with an IPAddress of its own name, so its name does not keep two servers from giving one address
//! to two claims. What does is a promise on the pool: it is written on the condition that the pool is as it was read,
//! *before* the IPAddresses were listed, and it stays until the IPAddress is there. An address that is neither given
//! nor promised then is free.

mod set;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use remuda_schema::FieldError;
use serde_json::{Value, json};

pub use self::set::{Malformed, Range, Set};

/// A pool as it is written.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    pub addresses: Vec<String>,
    pub excluded: Vec<String>,
    pub prefix: i64,
    /// Empty if there is none.
    pub gateway: String,
    /// Whether the first address of the network is given, and for IPv4 the last.
    pub reserved: bool,
}

impl Spec {
    /// Of an object that its schema has not seen yet.
    pub fn of(pool: &Value) -> Self {
        let spec = &pool["spec"];
        let list = |key: &str| -> Vec<String> {
            // What is no text is refused by the schema.
            let items = spec[key].as_array().into_iter().flatten();
            items.map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
        };
        Self {
            addresses: list("addresses"),
            excluded: list("excludedAddresses"),
            prefix: spec["prefix"].as_i64().unwrap_or(-1),
            gateway: spec["gateway"].as_str().unwrap_or_default().to_owned(),
            reserved: spec["allocateReservedIPAddresses"] == true,
        }
    }
}

/// A pool whose parts fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    usable: Set,
    pub prefix: i32,
    pub gateway: Option<IpAddr>,
}

const MIXED: &str = "provided addresses are of mixed IP families";

impl Pool {
    /// Reads a pool, or tells everything that is wrong with it.
    pub fn read(spec: &Spec) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        if spec.addresses.is_empty() {
            errors.push(FieldError::required("spec.addresses", "addresses is required"));
        }
        let addresses = ranges("spec.addresses", &spec.addresses, &mut errors);
        let excluded = ranges("spec.excludedAddresses", &spec.excluded, &mut errors);
        let is_v4 = addresses.first().map(|(_, range)| range.first().is_ipv4());
        let other = |address: IpAddr| is_v4.is_some_and(|is_v4| address.is_ipv4() != is_v4);
        for (field, list, whole) in [
            ("spec.addresses", &addresses, &spec.addresses),
            ("spec.excludedAddresses", &excluded, &spec.excluded),
        ] {
            if list.iter().any(|(_, range)| other(range.first())) {
                errors.push(FieldError::invalid(field, &json!(whole), MIXED));
            }
        }
        let gateway = match spec.gateway.as_str() {
            "" => None,
            written => match written.parse::<IpAddr>() {
                Ok(gateway) if other(gateway) => {
                    let detail = "provided gateway and addresses are of mixed IP families";
                    errors.push(FieldError::invalid("spec.gateway", &json!(written), detail));
                    None
                }
                Ok(gateway) => Some(gateway),
                Err(_) => {
                    errors.push(FieldError::invalid(
                        "spec.gateway",
                        &json!(written),
                        "not a valid IP address",
                    ));
                    None
                }
            },
        };
        let usable: Set = addresses.iter().map(|(_, range)| *range).collect();
        let bits = u32::try_from(spec.prefix).ok();
        let network = usable.first().zip(bits).and_then(|(first, bits)| Range::network(first, bits));
        if network.is_none() && usable.first().is_some() {
            let detail = "provided prefix is not valid";
            errors.push(FieldError::invalid("spec.prefix", &json!(spec.prefix), detail));
        }
        let Some(network) = network.filter(|_| errors.is_empty()) else { return Err(errors) };
        for (place, range) in &addresses {
            if !network.contains(range) {
                let detail = "provided address belongs to a different subnet than others";
                let written = json!(spec.addresses.get(*place));
                errors.push(FieldError::invalid(format!("spec.addresses[{place}]"), &written, detail));
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let one = |address: IpAddr| Range::network(address, if address.is_ipv4() { 32 } else { 128 });
        let mut left_out: Vec<Range> = excluded.iter().map(|(_, range)| *range).collect();
        left_out.extend(gateway.and_then(one));
        if !spec.reserved {
            left_out.extend(one(network.first()));
            left_out.extend(one(network.last()).filter(|range| range.last().is_ipv4()));
        }
        let usable = usable.without(&left_out.into_iter().collect());
        Ok(Self { usable, prefix: i32::try_from(spec.prefix).unwrap_or_default(), gateway })
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.usable.contains(address)
    }

    /// What there is of the pool, given the addresses that are in use.
    pub fn counts(&self, given: &[Option<IpAddr>]) -> Counts {
        let total = self.usable.count();
        let inside: BTreeSet<IpAddr> =
            given.iter().flatten().copied().filter(|address| self.contains(*address)).collect();
        let outside: BTreeSet<IpAddr> =
            given.iter().flatten().copied().filter(|address| !self.contains(*address)).collect();
        Counts {
            total: shown(total),
            free: shown(total.saturating_sub(inside.len() as u128)),
            used: shown(given.len() as u128),
            out_of_range: shown(outside.len() as u128),
        }
    }
}

/// Ranges that could be read, with their places in the list.
fn ranges(field: &str, list: &[String], errors: &mut Vec<FieldError>) -> Vec<(usize, Range)> {
    let mut found = Vec::new();
    for (place, written) in list.iter().enumerate() {
        match Range::parse(written) {
            Ok(range) => found.push((place, range)),
            Err(malformed) => {
                let field = format!("{field}[{place}]");
                errors.push(FieldError::invalid(field, &json!(written), &malformed.to_string()));
            }
        }
    }
    found
}

fn shown(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Numbers of a pool, as far as they can be shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub total: i64,
    pub free: i64,
    pub used: i64,
    /// In use, and not of the pool any more.
    pub out_of_range: i64,
}

/// Who asks for an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// An IPAddress of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub namespace: String,
    pub name: String,
    /// `None` if it is none.
    pub address: Option<IpAddr>,
}

/// Addresses that are promised to claims whose IPAddress may not be there yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Promises(BTreeMap<Claim, IpAddr>);

/// What is written on the pool cannot be read, so it is not known what is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what is promised of the pool cannot be read")]
pub struct Unreadable;

impl Promises {
    pub fn read(written: Option<&str>) -> Result<Self, Unreadable> {
        let Some(written) = written.filter(|written| !written.is_empty()) else { return Ok(Self::default()) };
        let entries: BTreeMap<String, IpAddr> = serde_json::from_str(written).map_err(|_| Unreadable)?;
        let claim = |(key, address): (String, IpAddr)| {
            let mut parts = key.split('/').map(str::to_owned);
            match (parts.next(), parts.next(), parts.next(), parts.next()) {
                (Some(namespace), Some(name), Some(uid), None) => {
                    Ok((Claim { namespace, name, uid }, address))
                }
                _ => Err(Unreadable),
            }
        };
        Ok(Self(entries.into_iter().map(claim).collect::<Result<_, _>>()?))
    }

    /// As it is written; `None` if nothing is promised.
    pub fn text(&self) -> Option<String> {
        let key = |claim: &Claim| format!("{}/{}/{}", claim.namespace, claim.name, claim.uid);
        let entries: BTreeMap<String, IpAddr> =
            self.0.iter().map(|(claim, address)| (key(claim), *address)).collect();
        (!entries.is_empty()).then(|| json!(entries).to_string())
    }

    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.0.keys()
    }

    /// Promises that are kept, as their IPAddress is there, or those of claims that are gone, are taken back.
    pub fn settle(&mut self, given: &[Given], is_gone: impl Fn(&Claim) -> bool) {
        let kept: BTreeSet<(&str, &str)> =
            given.iter().map(|given| (given.namespace.as_str(), given.name.as_str())).collect();
        self.0.retain(|claim, _| {
            !kept.contains(&(claim.namespace.as_str(), claim.name.as_str())) && !is_gone(claim)
        });
    }
}

/// What becomes of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It gets this address. `promises` are on the pool before its IPAddress is made.
    Give { address: IpAddr, promises: Promises },
    /// Nothing is free.
    Exhausted,
}

/// Finds the address for a claim that has none: the one that was promised to it, or the first that is neither given
/// nor promised.
pub fn answer(pool: &Pool, claim: &Claim, given: &[Given], promises: &Promises) -> Answer {
    let mut promises = promises.clone();
    promises.settle(given, |_| false);
    let others = promises.0.iter().filter(|(other, _)| *other != claim).map(|(_, address)| *address);
    let taken: BTreeSet<IpAddr> = given.iter().filter_map(|given| given.address).chain(others).collect();
    let promised = promises.0.get(claim).copied();
    let promised = promised.filter(|address| pool.contains(*address) && !taken.contains(address));
    match promised.or_else(|| pool.usable.first_but(&taken)) {
        Some(address) => {
            promises.0.insert(claim.clone(), address);
            Answer::Give { address, promises }
        }
        None => Answer::Exhausted,
    }
}

#[cfg(test)]
mod tests;
