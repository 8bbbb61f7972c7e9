//! Where objects are stored.

use std::{net::IpAddr, path::PathBuf};

use super::{ConfigError, readable};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Datastore {
    /// A durable store in the data directory, for one server.
    Embedded,
    /// Nothing is kept after the end.
    Memory,
    /// An etcd cluster, which several servers may share.
    Etcd { endpoints: Vec<String>, prefix: String, tls: ClientTls },
}

/// How to talk TLS to etcd. Without any of the files the connection is plain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    pub ca: Option<PathBuf>,
    /// Certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl ClientTls {
    pub fn is_plain(&self) -> bool {
        self.ca.is_none() && self.identity.is_none()
    }
}

const ETCD_PORT: u16 = 2379;
/// Everything is stored below this key unless `?prefix=` says otherwise.
const ETCD_PREFIX: &str = "/remuda";

pub(super) fn resolve(
    text: &str,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Datastore, ConfigError> {
    let invalid = |reason: String| ConfigError::invalid("datastore", reason);
    let tls = client_tls(ca, cert, key)?;
    let rest = match text {
        "embedded" | "memory" => {
            if !tls.is_plain() {
                return Err(invalid(format!("{text} takes no certificates; those are for etcd")));
            }
            return Ok(if text == "memory" { Datastore::Memory } else { Datastore::Embedded });
        }
        _ => text.strip_prefix("etcd://").ok_or_else(|| invalid(format!("{text:?} is not known")))?,
    };
    let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut prefix = ETCD_PREFIX.to_owned();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("prefix", value)) if value.starts_with('/') && value.len() > 1 && !value.ends_with('/') => {
                prefix = value.to_owned();
            }
            Some(("prefix", value)) => {
                return Err(invalid(format!("prefix {value:?} must begin with / and not end with it")));
            }
            _ => return Err(invalid(format!("{pair:?} is not known; there is only prefix=/PATH"))),
        }
    }
    let scheme = if tls.is_plain() { "http" } else { "https" };
    let mut endpoints = Vec::new();
    for host in hosts.trim_end_matches('/').split(',') {
        let address =
            with_port(host.trim()).ok_or_else(|| invalid(format!("{host:?} is not HOST[:PORT]")))?;
        endpoints.push(format!("{scheme}://{address}"));
    }
    Ok(Datastore::Etcd { endpoints, prefix, tls })
}

fn client_tls(
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<ClientTls, ConfigError> {
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => {
            readable("datastore-cert", &cert)?;
            readable("datastore-key", &key)?;
            Some((cert, key))
        }
        (None, None) => None,
        (Some(_), None) => return Err(ConfigError::together("datastore-cert", "datastore-key")),
        (None, Some(_)) => return Err(ConfigError::together("datastore-key", "datastore-cert")),
    };
    if let Some(ca) = &ca {
        readable("datastore-ca", ca)?;
    }
    Ok(ClientTls { ca, identity })
}

fn with_port(host: &str) -> Option<String> {
    if host.is_empty() || host.contains(['/', '@', ' ']) {
        return None;
    }
    if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Some(super::address::join(&ip.to_string(), ETCD_PORT));
    }
    match host.rsplit_once(':') {
        None => Some(format!("{host}:{ETCD_PORT}")),
        Some((name, port)) => {
            port.parse::<u16>().ok().filter(|port| *port != 0)?;
            (!name.is_empty()).then(|| host.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let actual = match resolve(text, None, None, None) {
            Ok(Datastore::Embedded) => "embedded".to_owned(),
            Ok(Datastore::Memory) => "memory".to_owned(),
            Ok(Datastore::Etcd { endpoints, prefix, .. }) => format!("{} at {prefix}", endpoints.join(" ")),
            Err(error) => error.to_string(),
        };
        assert_eq!(actual, expected);
    }

    #[test]
    fn a_datastore_is_a_word_or_a_list_of_etcd_members() {
        check("embedded", "embedded");
        check("memory", "memory");
        check("etcd://a", "http://a:2379 at /remuda");
        check(
            "etcd://a:1,10.0.0.2,[fd00::1]:5/",
            "http://a:1 http://10.0.0.2:2379 http://[fd00::1]:5 at /remuda",
        );
        check("etcd://a?prefix=/x", "http://a:2379 at /x");
    }

    #[test]
    fn anything_else_is_refused_with_what_is_wrong() {
        check("sqlite", "invalid --datastore: \"sqlite\" is not known");
        check("etcd://", "invalid --datastore: \"\" is not HOST[:PORT]");
        check("etcd://a:x", "invalid --datastore: \"a:x\" is not HOST[:PORT]");
        check("etcd://a?prefix=x", "invalid --datastore: prefix \"x\" must begin with / and not end with it");
        check("etcd://a?ca=x", "invalid --datastore: \"ca=x\" is not known; there is only prefix=/PATH");
    }
}
