//! Addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use nix::{ifaddrs::getifaddrs, net::if_::InterfaceFlags};

use crate::config::Settings;

/// The address other machines most likely reach this one by.
pub fn primary() -> IpAddr {
    routed().or_else(configured).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The address packets to elsewhere leave from. Nothing is sent.
fn routed() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

/// A machine may have a network and no way out of it.
fn configured() -> Option<IpAddr> {
    let mut addresses = getifaddrs().ok()?.filter_map(|interface| {
        let usable = interface.flags.contains(InterfaceFlags::IFF_UP)
            && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        let address = interface.address.filter(|_| usable)?;
        Some(IpAddr::V4(address.as_sockaddr_in()?.ip()))
    });
    addresses.next()
}

/// The address of a node: as configured, or the machine's.
pub fn of_node(settings: &Settings) -> IpAddr {
    settings
        .advertise_address
        .or(settings.node_ips.first().copied())
        .or(settings.bind)
        .unwrap_or_else(primary)
}

/// `host:port`, with IPv6 addresses in brackets.
pub fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
