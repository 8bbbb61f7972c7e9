//! How a machine reaches the management server.
//!
//! Inside a machine the server's URL works as it is: the machine listens at the URL's address itself and
//! passes every connection through a Unix socket to the relay, which lives in the host's network and calls
//! the server.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// Where names of the server lead inside a machine: an address of the loopback network that nothing else
/// listens at.
pub(crate) const ALIAS: Ipv4Addr = Ipv4Addr::new(127, 94, 0, 1);

/// Said to the relay by a machine that wants to hear where the server is, now and later.
pub(crate) const WATCH: &str = "watch";
/// Said to the relay by a server that has published its address.
pub(crate) const PUBLISHED: &str = "published";

/// The server's address, as machines know it and as it is from here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAddress {
    /// The `server-url` setting: `https://127.0.0.1:8443`.
    pub url: String,
    /// Host and port at which the server really listens, if that differs from the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<String>,
}

/// Host and port of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// What a machine does so that the endpoint leads to the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// Must be added to the loopback interface first.
    pub(crate) foreign: Option<Ipv4Addr>,
    /// Must be in `/etc/hosts`.
    pub(crate) name: Option<String>,
}

impl Endpoint {
    /// Reads `https://host:port/path`. The port defaults to the scheme's.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let (default, rest) = match url.split_once("://") {
            Some(("https", rest)) => (443, rest),
            Some(("http", rest)) => (80, rest),
            Some(_) => return None,
            None => (443, url),
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let authority = authority.rsplit('@').next()?;
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, rest) = v6.split_once(']')?;
                (host, rest.strip_prefix(':'))
            }
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'_');
        let port = match port {
            Some(text) => text.parse().ok().filter(|port| *port != 0)?,
            None => default,
        };
        let fine = !host.is_empty() && host.len() <= 253 && host.bytes().all(plain);
        fine.then(|| Self { host: host.to_owned(), port })
    }

    pub(crate) fn listen(&self) -> Listen {
        let port = self.port;
        let plain = |address: IpAddr| Listen { address, port, foreign: None, name: None };
        match self.host.parse::<IpAddr>() {
            Ok(address) if address.is_loopback() => plain(address),
            Ok(IpAddr::V4(address)) => Listen { foreign: Some(address), ..plain(address.into()) },
            // A foreign address of the newer kind would have to be added too; nothing asks for it yet, and
            // listening there fails with a clear message.
            Ok(address) => plain(address),
            Err(_) if self.host == "localhost" => plain(Ipv4Addr::LOCALHOST.into()),
            Err(_) => Listen { name: Some(self.host.clone()), ..plain(ALIAS.into()) },
        }
    }
}

impl ServerAddress {
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        Endpoint::parse(&self.url)
    }

    /// Host and port to call from the host's network.
    pub(crate) fn target(&self) -> Option<Endpoint> {
        match &self.connect {
            Some(address) => Endpoint::parse(address),
            None => self.endpoint(),
        }
    }
}

/// The server's URL in an install script, for hosts on which no server has said where it is.
pub(crate) fn url_in_script(script: &str) -> Option<String> {
    let line = script.lines().find_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("export ").unwrap_or(line).trim_start().strip_prefix("CATTLE_SERVER=")
    })?;
    let url = line.trim().trim_matches(['"', '\'']);
    Endpoint::parse(url).map(|_| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Option<(String, u16)> {
        Endpoint::parse(url).map(|endpoint| (endpoint.host, endpoint.port))
    }

    #[test]
    fn urls_of_servers_are_read() {
        assert_eq!(endpoint("https://127.0.0.1:8443"), Some(("127.0.0.1".into(), 8443)));
        assert_eq!(endpoint("https://remuda.example.com/path"), Some(("remuda.example.com".into(), 443)));
        assert_eq!(endpoint("https://[::1]:8443/"), Some(("::1".into(), 8443)));
        assert_eq!(endpoint("10.0.0.1:99"), Some(("10.0.0.1".into(), 99)));
        for bad in
            ["", "https://", "ftp://x", "https://a b", "https://x:0", "https://x:70000", "https://[::1"]
        {
            assert_eq!(endpoint(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_kind_of_address_gets_its_place_in_the_machine() {
        let listen = |url: &str| Endpoint::parse(url).unwrap().listen();
        assert_eq!(listen("https://127.0.0.1:8443").address, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(listen("https://localhost:8443").address, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(listen("https://192.168.1.5").foreign, Some(Ipv4Addr::new(192, 168, 1, 5)));
        let named = listen("https://remuda.example.com");
        assert_eq!((named.address, named.name.as_deref()), (ALIAS.into(), Some("remuda.example.com")));
    }

    #[test]
    fn the_install_script_gives_the_server_away() {
        let script = "#!/usr/bin/env sh\nexport A='b'\n\nCATTLE_SERVER=https://127.0.0.1:8443\nCATTLE_X=1\n";
        assert_eq!(url_in_script(script).as_deref(), Some("https://127.0.0.1:8443"));
        assert_eq!(url_in_script("CATTLE_SERVER=\"https://a\"").as_deref(), Some("https://a"));
        assert_eq!(url_in_script("CATTLE_SERVER=$(x)"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_an_endpoint_or_not(text in "\\PC{0,60}") {
            let _ = Endpoint::parse(&text);
            let _ = url_in_script(&text);
        }
    }
}
