//! Which proxy a request goes through.

use std::net::IpAddr;

use http::Uri;

use crate::environment::Environment;

/// Proxy settings of the process.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<Uri>,
    https: Option<Uri>,
    except: Vec<String>,
}

impl Proxies {
    /// Reads `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` in either case. Unreadable settings are none.
    pub fn of(environment: &Environment) -> Self {
        let parse = |name| {
            let text = environment.either_case(name)?;
            let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
            text.parse::<Uri>().ok().filter(|uri| uri.host().is_some())
        };
        let except = environment.either_case("NO_PROXY").unwrap_or_default();
        Self {
            http: parse("HTTP_PROXY"),
            https: parse("HTTPS_PROXY"),
            except: except.split(',').map(|entry| entry.trim().to_ascii_lowercase()).collect(),
        }
    }

    /// The proxy for a destination, if any. Loopback is always reached directly.
    pub fn select(&self, https: bool, host: &str, port: u16) -> Option<&Uri> {
        let proxy = if https { self.https.as_ref() } else { self.http.as_ref() }?;
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok();
        if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return None;
        }
        let excepted = self.except.iter().any(|entry| matches(entry, &host, address, port));
        (!excepted).then_some(proxy)
    }
}

fn matches(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry.is_empty() {
        return false;
    }
    if entry == "*" {
        return true;
    }
    if let Some((network, bits)) = entry.split_once('/') {
        let (Some(address), Ok(network), Ok(bits)) = (address, network.parse(), bits.parse()) else {
            return false;
        };
        return contains(network, bits, address);
    }
    if let Ok(entry) = entry.trim_matches(['[', ']']).parse::<IpAddr>() {
        return address == Some(entry);
    }
    let (entry, wanted) = match entry.rsplit_once(':') {
        Some((name, digits)) => match digits.parse::<u16>() {
            Ok(wanted) => (name.trim_matches(['[', ']']), Some(wanted)),
            Err(_) => return false,
        },
        None => (entry, None),
    };
    if wanted.is_some_and(|wanted| wanted != port) {
        return false;
    }
    let suffix = entry.trim_start_matches('*');
    match suffix.strip_prefix('.') {
        Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
        None => host == suffix || host.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.')),
    }
}

fn contains(network: IpAddr, bits: u32, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(address)) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(except: &str, host: &str, proxied: bool) {
        let environment: Environment =
            [("https_proxy", "proxy:3128"), ("NO_PROXY", except)].into_iter().collect();
        let proxies = Proxies::of(&environment);
        assert_eq!(proxies.select(true, host, 443).is_some(), proxied, "{except} {host}");
        assert!(proxies.select(false, host, 80).is_none());
    }

    #[test]
    fn exceptions_are_names_domains_addresses_and_networks() {
        check("", "example.com", true);
        check("", "localhost", false);
        check("", "127.0.0.1", false);
        check("*", "example.com", false);
        check("example.com", "example.com", false);
        check("example.com", "a.example.com", false);
        check("example.com", "badexample.com", true);
        check(".example.com", "a.example.com", false);
        check(".example.com", "example.com", true);
        check("example.com:443", "example.com", false);
        check("example.com:80", "example.com", true);
        check("10.0.0.0/8", "10.1.2.3", false);
        check("10.0.0.0/8", "11.1.2.3", true);
        check("10.0.0.0/99, fd00::/8", "fd12::1", false);
        check("0.0.0.0/0", "8.8.8.8", false);
        check("192.168.0.1", "192.168.0.1", false);
    }
}
