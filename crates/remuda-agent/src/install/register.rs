//! Getting to know the server, and being known to it.

use std::time::Duration;

use http::{HeaderName, StatusCode, Uri, header};

use remuda_names::{agent::header as names, gateway::path};
use remuda_plan::sha256_hex;

use crate::{
    client::{Client, HttpError, Request, Timeouts},
    environment::Environment,
    proxy::Proxies,
    tls::{Trust, TrustError, certificates},
};

const ANSWER_LIMIT: usize = 4 << 20;

/// What a node is to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Roles {
    /// Member of etcd.
    pub etcd: bool,
    /// Runs the control plane.
    pub control_plane: bool,
    /// Runs workloads.
    pub worker: bool,
}

/// How this machine introduces itself.
#[derive(Clone, Default)]
pub struct Registration {
    /// Address of the server.
    pub server: String,
    /// Registration token.
    pub token: String,
    /// SHA-256 of the server's certificate authority.
    pub ca_checksum: Option<String>,
    /// Trust that authority only, even if the system trusts the server.
    pub strict: bool,
    /// What the node is to be.
    pub roles: Roles,
    /// Its name; empty for the host's.
    pub node_name: String,
    /// Its address, the name of a network interface, or a cloud's way to tell it.
    pub address: String,
    /// The same on the private network.
    pub internal_address: String,
    /// `key=value`.
    pub labels: Vec<String>,
    /// `key=value:Effect`.
    pub taints: Vec<String>,
    /// Machine id; `None` to make one.
    pub machine_id: Option<String>,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Registration({})", self.server)
    }
}

/// Why the server is not one to register with, or does not register.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Pinning without a pin.
    #[error("strict verification needs the checksum of the server's certificate authority")]
    NoChecksum,
    /// Somebody else's authority.
    #[error("certificate authority of {server} has checksum {found}, expected {expected}")]
    Checksum {
        /// Whose.
        server: String,
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// There is no authority to pin.
    #[error("{0}/cacerts is not a certificate")]
    NoCertificate(String),
    /// The server says no.
    #[error("{server} answered {status}: {message}")]
    Refused {
        /// Who.
        server: String,
        /// HTTP status.
        status: StatusCode,
        /// What it said.
        message: String,
    },
    /// The server's certificate is not trusted.
    #[error("certificate of {server} is not trusted; give the checksum of its certificate authority")]
    Untrusted {
        /// Whose.
        server: String,
        /// In detail.
        source: HttpError,
    },
    /// No answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// TLS settings are unusable.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The named interface has no address.
    #[error("no address found for {0}")]
    Address(String),
}

impl RegisterError {
    /// Whether trying again is pointless. A refusal is not final: servers answer 401 until their caches
    /// are filled, and 503 until they are ready.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Http(
                HttpError::Resolve { .. }
                    | HttpError::Connect { .. }
                    | HttpError::Timeout { .. }
                    | HttpError::Exchange { .. }
                    | HttpError::Proxy { .. }
                    | HttpError::Tls { .. }
            ) | Self::Refused { .. }
                | Self::Address(_)
        )
    }
}

impl Registration {
    fn server(&self) -> &str {
        self.server.trim_end_matches('/')
    }

    fn uri(&self, path: &str) -> Result<Uri, HttpError> {
        let address = format!("{}{path}", self.server());
        address.parse().map_err(|_| HttpError::Address { uri: address, reason: "not an address" })
    }

    async fn get(
        &self,
        path: &str,
        trust: &Trust,
        environment: &Environment,
        headers: &[(&'static str, String)],
    ) -> Result<Vec<u8>, RegisterError> {
        let seconds = Duration::from_secs;
        let timeouts = Timeouts { connect: seconds(60), response: seconds(130), idle: seconds(60) };
        let client =
            Client { tls: trust.config()?, server_name: None, proxies: Proxies::of(environment), timeouts };
        let mut request = Request::get(self.uri(path)?).header(header::ACCEPT, "*/*");
        for (name, value) in headers {
            if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                request = request.header(name, value);
            }
        }
        let response = client.send(request).await?;
        let status = response.status;
        let raw = response.body.read(ANSWER_LIMIT).await?;
        if status == StatusCode::OK {
            return Ok(raw);
        }
        let message = String::from_utf8_lossy(&raw[..raw.len().min(300)]).trim().to_owned();
        Err(RegisterError::Refused { server: self.server().to_owned(), status, message })
    }

    /// Finds out whom to trust as this server, and that it is there. The authority it serves counts only
    /// if its checksum is the one given; it is not used where the system trusts the server already,
    /// unless verification is strict.
    pub async fn establish_trust(&self, environment: &Environment) -> Result<Trust, RegisterError> {
        let system_bundle = environment.get("SSL_CERT_FILE").map(Into::into);
        let system = Trust { system: true, system_bundle, ..Trust::default() };
        let pinned = self.ca_checksum.as_deref().filter(|checksum| !checksum.is_empty());
        if self.strict && pinned.is_none() {
            return Err(RegisterError::NoChecksum);
        }
        if !self.strict {
            match (self.get("/healthz", &system, environment, &[]).await, pinned) {
                (Ok(_), _) => return Ok(system),
                (Err(RegisterError::Http(error)), None) if error.is_unknown_issuer() => {
                    return Err(RegisterError::Untrusted { server: self.server().to_owned(), source: error });
                }
                (Err(RegisterError::Http(HttpError::Tls { .. })), Some(_)) => {}
                (Err(error), _) => return Err(error),
            }
        }
        let expected = pinned.unwrap_or_default().to_ascii_lowercase();
        let anybody = Trust { insecure: true, ..Trust::default() };
        let raw = self.get(path::CACERTS, &anybody, environment, &[]).await?;
        if certificates(&raw).is_empty() {
            return Err(RegisterError::NoCertificate(self.server().to_owned()));
        }
        let found = sha256_hex(&raw);
        if found != expected {
            return Err(RegisterError::Checksum { server: self.server().to_owned(), found, expected });
        }
        let trust = Trust { extra: raw, ..Trust::default() };
        self.get("/healthz", &trust, environment, &[]).await?;
        Ok(trust)
    }

    /// Registers the machine; the answer is the connection info.
    pub async fn connection_info(
        &self,
        id: &str,
        trust: &Trust,
        environment: &Environment,
    ) -> Result<Vec<u8>, RegisterError> {
        let address = resolve(&self.address, environment).await?;
        let internal = resolve(&self.internal_address, environment).await?;
        let headers = [
            ("authorization", format!("Bearer {}", self.token)),
            (names::ID, id.to_owned()),
            (names::ROLE_ETCD, self.roles.etcd.to_string()),
            (names::ROLE_CONTROL_PLANE, self.roles.control_plane.to_string()),
            (names::ROLE_WORKER, self.roles.worker.to_string()),
            (names::NODE_NAME, self.node_name.clone()),
            (names::ADDRESS, address),
            (names::INTERNAL_ADDRESS, internal),
            (names::LABELS, self.labels.join(",")),
            (names::TAINTS, self.taints.join(",")),
        ];
        self.get(path::CONNECT_AGENT, trust, environment, &headers).await
    }
}

/// Ways to learn an address from a cloud: keyword, place to ask, header to ask with.
const CLOUDS: &[(&str, &str, &str)] = &[
    ("awslocal", "http://169.254.169.254/latest/meta-data/local-ipv4", ""),
    ("awspublic", "http://169.254.169.254/latest/meta-data/public-ipv4", ""),
    ("doprivate", "http://169.254.169.254/metadata/v1/interfaces/private/0/ipv4/address", ""),
    ("dopublic", "http://169.254.169.254/metadata/v1/interfaces/public/0/ipv4/address", ""),
    (
        "azprivate",
        "http://169.254.169.254/metadata/instance/network/interface/0/ipv4/ipAddress/0/privateIpAddress?api-version=2017-08-01&format=text",
        "metadata: true",
    ),
    (
        "azpublic",
        "http://169.254.169.254/metadata/instance/network/interface/0/ipv4/ipAddress/0/publicIpAddress?api-version=2017-08-01&format=text",
        "metadata: true",
    ),
    (
        "gceinternal",
        "http://metadata.google.internal/computeMetadata/v1/instance/network-interfaces/0/ip",
        "metadata-flavor: Google",
    ),
    (
        "gceexternal",
        "http://metadata.google.internal/computeMetadata/v1/instance/network-interfaces/0/access-configs/0/external-ip",
        "metadata-flavor: Google",
    ),
    ("packetlocal", "https://metadata.packet.net/2009-04-04/meta-data/local-ipv4", ""),
    ("packetpublic", "https://metadata.packet.net/2009-04-04/meta-data/public-ipv4", ""),
    ("ipify", "https://api.ipify.org", ""),
];

/// The address meant: of an interface, told by a cloud, or as given.
async fn resolve(text: &str, environment: &Environment) -> Result<String, RegisterError> {
    if text.is_empty() {
        return Ok(String::new());
    }
    if let Some(address) = of_interface(text) {
        return address.ok_or_else(|| RegisterError::Address(format!("interface {text}")));
    }
    let Some((_, address, extra)) = CLOUDS.iter().find(|(name, ..)| *name == text) else {
        return Ok(text.to_owned());
    };
    let system = Trust { system: true, ..Trust::default() };
    let seconds = Duration::from_secs(60);
    let timeouts = Timeouts { connect: seconds, response: seconds, idle: seconds };
    let client =
        Client { tls: system.config()?, server_name: None, proxies: Proxies::of(environment), timeouts };
    let mut request = Request::get(Uri::from_static(address));
    if let Some((name, value)) = extra.split_once(": ") {
        request = request.header(HeaderName::from_static(name), value);
    }
    let response = client.send(request).await?;
    let status = response.status;
    let raw = response.body.read(4096).await?;
    let answer = String::from_utf8_lossy(&raw).trim().to_owned();
    if !status.is_success() || answer.parse::<std::net::IpAddr>().is_err() {
        return Err(RegisterError::Address(text.to_owned()));
    }
    Ok(answer)
}

/// The first IPv4 address of a network interface; `None` if there is no interface of that name.
fn of_interface(name: &str) -> Option<Option<String>> {
    let interfaces: Vec<_> =
        nix::ifaddrs::getifaddrs().ok()?.filter(|interface| interface.interface_name == name).collect();
    if interfaces.is_empty() {
        return None;
    }
    Some(interfaces.iter().find_map(|interface| {
        let address = interface.address.as_ref()?.as_sockaddr_in()?;
        Some(address.ip().to_string())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_may_be_interfaces() {
        let environment = Environment::default();
        assert_eq!(resolve("lo", &environment).await.unwrap(), "127.0.0.1");
        assert_eq!(resolve("10.0.0.1,fd00::1", &environment).await.unwrap(), "10.0.0.1,fd00::1");
        assert_eq!(resolve("", &environment).await.unwrap(), "");
    }

    #[tokio::test]
    async fn strict_verification_needs_a_checksum() {
        let registration =
            Registration { server: "https://127.0.0.1:1".into(), strict: true, ..Registration::default() };
        let error = registration.establish_trust(&Environment::default()).await.unwrap_err();
        assert!(matches!(error, RegisterError::NoChecksum) && error.is_final());
        let registration = Registration { strict: false, ..registration };
        assert!(!registration.establish_trust(&Environment::default()).await.unwrap_err().is_final());
    }
}
