//! Addresses of a node: which it uses, shows and answers on.

use std::net::IpAddr;

use remuda_names::{
    driver::{Addresses, facts},
    rancher::annotation,
};
use serde_json::{Value, json};

use super::{Unrenderable, config::Config, values};
use crate::{driver::Driver, entry::Entry};

#[derive(Default)]
struct Known {
    internal: Vec<String>,
    external: Vec<String>,
    ipv6: String,
    driver: String,
}

pub(super) fn add(entry: &Entry<'_>, config: &mut Config) -> Result<(), Unrenderable> {
    let known = known(entry)?;
    node_addresses(&known, config);
    if !entry.roles.only_worker() {
        advertise(config);
    }
    Ok(())
}

fn known(entry: &Entry<'_>) -> Result<Known, Unrenderable> {
    let mut known = Known {
        internal: split(entry.annotation(annotation::INTERNAL_ADDRESS)),
        external: split(entry.annotation(annotation::ADDRESS)),
        ..Known::default()
    };
    if !known.internal.is_empty() && !known.external.is_empty() {
        return Ok(known);
    }
    let unsaved = || Unrenderable::DriverConfig {
        namespace: entry.machine.namespace.clone(),
        machine: entry.machine.name.clone(),
    };
    let saved = match &entry.machine.driver {
        Driver::None => return Ok(known),
        Driver::Unsaved => return Err(unsaved()),
        Driver::Saved(saved) => saved,
    };
    let addresses = [&saved.ip_address, &saved.private_ip_address, &saved.ipv6_address];
    let nowhere = known.internal.is_empty() && known.external.is_empty();
    if nowhere && addresses.iter().all(|address| address.is_empty()) && !entry.machine.infrastructure_ready {
        // The store is saved once before the server has addresses. A plan made now would lack them, and the
        // node would restart as soon as they are known.
        return Err(unsaved());
    }
    if known.external.is_empty() {
        known.external = split_one(&saved.ip_address);
    }
    if known.internal.is_empty() {
        known.internal = split_one(&saved.private_ip_address);
    }
    known.ipv6.clone_from(&saved.ipv6_address);
    known.driver.clone_from(&saved.driver);
    Ok(known)
}

fn split(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn split_one(address: &str) -> Vec<String> {
    if address.is_empty() { Vec::new() } else { vec![address.to_owned()] }
}

fn node_addresses(known: &Known, config: &mut Config) {
    let internal = match facts(&known.driver).addresses {
        Addresses::None => return,
        Addresses::ExternalIfAlone if known.internal.is_empty() => &known.external,
        Addresses::ExternalIfAlone | Addresses::Saved => &known.internal,
    };
    let family = primary_family(config);
    let mut inside = values::texts(config.get("node-ip"));
    for address in internal.iter().chain([&known.ipv6]) {
        if !address.is_empty() && !inside.contains(address) {
            inside.push(address.clone());
        }
    }
    let inside = order(inside, family);
    let provider = config.get("cloud-provider-name").map(values::text).unwrap_or_default();
    if provider.is_empty() && !inside.is_empty() {
        let mut outside = values::texts(config.get("node-external-ip"));
        for address in &known.external {
            let link_local = address.parse::<IpAddr>().is_ok_and(is_link_local);
            if !outside.contains(address) && !inside.contains(address) && !link_local {
                outside.push(address.clone());
            }
        }
        config.insert("node-external-ip".to_owned(), values::list(order(outside, family)));
    }
    config.insert("node-ip".to_owned(), values::list(inside));
}

fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

fn family(address: IpAddr) -> Family {
    if address.to_canonical().is_ipv4() { Family::V4 } else { Family::V6 }
}

/// The family of the first service range; nothing is reordered without one.
fn primary_family(config: &Config) -> Option<Family> {
    let ranges = values::texts(config.get("service-cidr"));
    let first =
        ranges.iter().flat_map(|range| range.split(',')).map(str::trim).find(|range| !range.is_empty())?;
    let (address, bits) = first.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    bits.parse::<u8>().ok().filter(|bits| *bits <= most)?;
    Some(family(address))
}

/// Addresses of the primary family, then of the other, then names; otherwise in the order given.
fn order(addresses: Vec<String>, primary: Option<Family>) -> Vec<String> {
    let Some(primary) = primary else { return addresses };
    let rank = |address: &String| match address.parse::<IpAddr>() {
        Ok(address) if family(address) == primary => 0,
        Ok(_) => 1,
        Err(_) => 2,
    };
    let mut addresses = addresses;
    addresses.sort_by_key(rank);
    addresses
}

/// Servers seen under two addresses advertise the inner one and answer to both.
fn advertise(config: &mut Config) {
    let inside = values::texts(config.get("node-ip"));
    let outside = values::texts(config.get("node-external-ip"));
    let (Some(first), false) = (inside.first(), outside.is_empty()) else { return };
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort_unstable();
        list
    };
    if sorted(&inside) == sorted(&outside) {
        return;
    }
    let first: Value = json!(first);
    let mut names = values::texts(config.get("tls-san"));
    for address in outside {
        if !names.contains(&address) {
            names.push(address);
        }
    }
    config.insert("advertise-address".to_owned(), first);
    config.insert("tls-san".to_owned(), values::list(names));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(known: &Known, config: Value, expected: Value) {
        let mut config: Config = serde_json::from_value(config).unwrap();
        node_addresses(known, &mut config);
        advertise(&mut config);
        super::super::config::prune(&mut config);
        assert_eq!(serde_json::to_value(config).unwrap(), expected);
    }

    fn known(driver: &str, internal: &str, external: &str, ipv6: &str) -> Known {
        Known {
            internal: split(internal),
            external: split(external),
            ipv6: ipv6.to_owned(),
            driver: driver.to_owned(),
        }
    }

    #[test]
    fn a_node_behind_two_addresses_advertises_the_inner_one() {
        check(
            &known("", "10.0.0.1", "1.2.3.4", ""),
            json!({"tls-san": ["me"]}),
            json!({"node-ip": ["10.0.0.1"], "node-external-ip": ["1.2.3.4"], "advertise-address": "10.0.0.1",
                   "tls-san": ["me", "1.2.3.4"]}),
        );
    }

    #[test]
    fn external_addresses_alone_are_not_shown() {
        check(&known("", "", "1.2.3.4", ""), json!({}), json!({}));
        check(&known("digitalocean", "", "1.2.3.4", ""), json!({}), json!({"node-ip": ["1.2.3.4"]}));
    }

    #[test]
    fn cloud_providers_set_external_addresses_themselves() {
        check(
            &known("", "10.0.0.1", "1.2.3.4", ""),
            json!({"cloud-provider-name": "aws"}),
            json!({"cloud-provider-name": "aws", "node-ip": ["10.0.0.1"]}),
        );
    }

    #[test]
    fn the_first_service_range_decides_which_family_comes_first() {
        check(
            &known("", "10.0.0.1,host", "", "2001:db8::1"),
            json!({"service-cidr": "2001:db8:42::/112,10.43.0.0/16"}),
            json!({"service-cidr": "2001:db8:42::/112,10.43.0.0/16",
                   "node-ip": ["2001:db8::1", "10.0.0.1", "host"]}),
        );
        check(
            &known("", "host,10.0.0.1", "", ""),
            json!({"service-cidr": "garbage"}),
            json!({"service-cidr": "garbage", "node-ip": ["host", "10.0.0.1"]}),
        );
    }

    #[test]
    fn link_local_and_known_addresses_are_not_external() {
        check(
            &known("", "10.0.0.1", "10.0.0.1,169.254.1.1,fe80::1", ""),
            json!({}),
            json!({"node-ip": ["10.0.0.1"]}),
        );
    }

    #[test]
    fn pods_are_left_alone() {
        check(&known("pod", "10.0.0.1", "1.2.3.4", ""), json!({}), json!({}));
    }
}
