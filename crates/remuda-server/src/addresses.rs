//! The names and addresses of this machine.

use std::{collections::BTreeSet, fs, net::IpAddr};

use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};

/// The machine's name, if it has a usable one.
pub(crate) fn hostname() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_ascii_lowercase();
    (!name.is_empty() && name != "(none)").then_some(name)
}

/// All addresses of interfaces that are up. Link-local ones are left out: nobody dials them by number.
pub(crate) fn interfaces() -> BTreeSet<IpAddr> {
    let Ok(addresses) = getifaddrs() else { return BTreeSet::new() };
    let up = addresses.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP));
    let ips = up.filter_map(|interface| {
        let address = interface.address?;
        if let Some(v4) = address.as_sockaddr_in() {
            return Some(IpAddr::V4(v4.ip()));
        }
        address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()))
    });
    ips.filter(|ip| !is_link_local(*ip) && !ip.is_unspecified()).collect()
}

/// The address others most likely reach this machine at.
pub(crate) fn primary() -> Option<IpAddr> {
    let interfaces = interfaces();
    let outside = || interfaces.iter().filter(|ip| !ip.is_loopback());
    outside().find(|ip| ip.is_ipv4()).or_else(|| outside().next()).copied()
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback_address() {
        assert!(interfaces().contains(&IpAddr::from([127, 0, 0, 1])));
        assert!(primary().is_none_or(|ip| !ip.is_loopback()));
    }
}
