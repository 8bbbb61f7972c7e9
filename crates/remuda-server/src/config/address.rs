//! Addresses: where to listen, and what to tell others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::ConfigError;

/// Where to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bind {
    /// Every address of the machine, IPv6 and IPv4, or IPv4 alone where there is no IPv6.
    Any {
        port: u16,
    },
    At(SocketAddr),
}

impl Bind {
    pub fn any(port: u16) -> Bind {
        Bind::Any { port }
    }

    pub(super) fn parse(text: &str) -> Result<Bind, ConfigError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(match address.ip() {
                IpAddr::V6(ip) if ip == Ipv6Addr::UNSPECIFIED => Bind::Any { port: address.port() },
                _ => Bind::At(address),
            });
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(ConfigError::invalid("bind", format!("{text:?} has no port")));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(ConfigError::invalid("bind", format!("{text:?} is not ADDRESS:PORT")));
        };
        let port: u16 = port.parse().map_err(|_| {
            ConfigError::invalid("bind", format!("{port:?} is not a port number (0 to 65535)"))
        })?;
        match host {
            "" | "*" => Ok(Bind::Any { port }),
            "localhost" => Ok(Bind::At(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))),
            _ => Err(ConfigError::invalid("bind", format!("{host:?} is not an IP address of this machine"))),
        }
    }

    /// What to try, in order.
    pub(crate) fn candidates(self) -> Vec<SocketAddr> {
        match self {
            Bind::At(address) => vec![address],
            Bind::Any { port } => vec![
                SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port),
                SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port),
            ],
        }
    }
}

/// Where other servers reach this one: an address, and a port if it is not the one listened on.
pub(super) fn parse_peer(text: &str) -> Result<SocketAddr, ConfigError> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let parsed = text.parse().ok().or_else(|| Some(SocketAddr::new(bare.parse().ok()?, 0)));
    match parsed {
        Some(address) if !address.ip().is_unspecified() => Ok(address),
        Some(address) => {
            Err(ConfigError::invalid("peer-address", format!("nobody can connect to {}", address.ip())))
        }
        None => Err(ConfigError::invalid("peer-address", format!("{text:?} is not ADDRESS[:PORT]"))),
    }
}

/// What clients and agents are told to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertise {
    pub host: String,
    /// The port listened on unless said otherwise.
    pub port: Option<u16>,
}

impl Advertise {
    pub(super) fn parse(text: &str) -> Result<Advertise, ConfigError> {
        let invalid = |reason: String| ConfigError::invalid("advertise", reason);
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Advertise::new(address.ip().to_string(), Some(address.port()));
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Advertise::new(ip.to_string(), None);
        }
        let (host, port) = match text.rsplit_once(':') {
            None => (text, None),
            Some((host, port)) => {
                let port = port.parse().map_err(|_| invalid(format!("{port:?} is not a port number")))?;
                (host, Some(port))
            }
        };
        if !is_dns_name(host) {
            return Err(invalid(format!("{host:?} is neither an IP address nor a host name")));
        }
        Advertise::new(host.to_owned(), port)
    }

    fn new(host: String, port: Option<u16>) -> Result<Advertise, ConfigError> {
        if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
            return Err(ConfigError::invalid("advertise", format!("nobody can connect to {host}")));
        }
        if port == Some(0) {
            return Err(ConfigError::invalid("advertise", "port 0 cannot be connected to"));
        }
        Ok(Advertise { host, port })
    }
}

/// `host:port`, with the brackets an IPv6 address needs.
pub(crate) fn join(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

pub(crate) fn check_san(san: &str) -> Result<(), ConfigError> {
    let name = san.strip_prefix("*.").unwrap_or(san);
    if san.parse::<IpAddr>().is_ok() || is_dns_name(name) {
        return Ok(());
    }
    Err(ConfigError::invalid("tls-san", format!("{san:?} is neither an IP address nor a DNS name")))
}

fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.strip_suffix('.').unwrap_or(name).split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn bind(text: &str, expected: &str) {
        let actual = match Bind::parse(text) {
            Ok(Bind::Any { port }) => format!("any {port}"),
            Ok(Bind::At(address)) => format!("at {address}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(actual, expected, "{text}");
    }

    #[test]
    fn a_listening_address_is_an_address_and_a_port() {
        bind("127.0.0.1:8443", "at 127.0.0.1:8443");
        bind("0.0.0.0:8443", "at 0.0.0.0:8443");
        bind("[::]:1", "any 1");
        bind("[::1]:1", "at [::1]:1");
        bind(":0", "any 0");
        bind("localhost:9", "at 127.0.0.1:9");
        bind("8443", "invalid --bind: \"8443\" is not ADDRESS:PORT");
        bind("127.0.0.1", "invalid --bind: \"127.0.0.1\" has no port");
        bind("127.0.0.1:70000", "invalid --bind: \"70000\" is not a port number (0 to 65535)");
        bind("example.org:1", "invalid --bind: \"example.org\" is not an IP address of this machine");
    }

    #[track_caller]
    fn advertise(text: &str, expected: &str) {
        let actual = match Advertise::parse(text) {
            Ok(advertise) => join(&advertise.host, advertise.port.unwrap_or(8443)),
            Err(error) => error.to_string(),
        };
        assert_eq!(actual, expected, "{text}");
    }

    #[test]
    fn an_advertised_address_is_one_that_can_be_dialled() {
        advertise("example.org", "example.org:8443");
        advertise("example.org:443", "example.org:443");
        advertise("10.0.0.1", "10.0.0.1:8443");
        advertise("fd00::1", "[fd00::1]:8443");
        advertise("[fd00::1]", "[fd00::1]:8443");
        advertise("[fd00::1]:1", "[fd00::1]:1");
        advertise("0.0.0.0", "invalid --advertise: nobody can connect to 0.0.0.0");
        advertise("a b", "invalid --advertise: \"a b\" is neither an IP address nor a host name");
        advertise("a:x", "invalid --advertise: \"x\" is not a port number");
    }

    #[test]
    fn certificate_names_may_be_wildcards() {
        assert!(check_san("*.example.org").is_ok());
        assert!(check_san("fd00::1").is_ok());
        assert!(check_san("a..b").is_err());
        assert!(check_san("").is_err());
    }
}
