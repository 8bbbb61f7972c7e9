//! Settings of this server, as they are now.

use http::{HeaderMap, header, uri::Authority};
use remuda_api::management::Setting;
use remuda_control::{Ctx, Informer, ObjectKey, Scope};
use remuda_install::ca_checksum;
use remuda_names::rancher::setting;

#[derive(Debug, Clone)]
pub(crate) struct Settings(Informer<Setting>);

/// Where machines and agents reach this server, and what they trust it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) url: String,
    /// PEM; empty if certificates of the system will do.
    pub(crate) ca: String,
    pub(crate) strict: bool,
}

impl Server {
    pub(crate) fn ca_checksum(&self) -> Option<String> {
        Some(ca_checksum(&self.ca)).filter(|checksum| !checksum.is_empty())
    }
}

impl Settings {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        Self(ctx.informers.of(Scope::all()))
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.0.is_synced()
    }

    /// The effective value; empty if there is none.
    pub(crate) fn get(&self, name: &str) -> String {
        let found = self.0.get(&ObjectKey::cluster_wide(name));
        found.map(|setting| setting.effective().to_owned()).unwrap_or_default()
    }

    /// What a setting is by default, while nobody has set it.
    pub(crate) fn default_of(&self, name: &str) -> Option<String> {
        let found = self.0.get(&ObjectKey::cluster_wide(name))?;
        (found.effective() == found.default && !found.default.is_empty()).then(|| found.default.clone())
    }

    /// As told by the settings; a server nobody gave an address is where the caller found it.
    pub(crate) fn server(&self, headers: &HeaderMap, authority: Option<&Authority>) -> Server {
        let url = self.get(setting::SERVER_URL);
        let url = url.trim().trim_end_matches('/');
        let strict = self.get(setting::AGENT_TLS_MODE) != "system-store";
        let (cacerts, internal) = (self.get(setting::CACERTS), self.get(setting::INTERNAL_CACERTS));
        if !url.is_empty() {
            return Server { url: url.to_owned(), strict: strict && !cacerts.is_empty(), ca: cacerts };
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.and_then(|host| host.parse::<Authority>().ok());
        let host = host.as_ref().or(authority).map(Authority::as_str);
        // Somebody else's name and password have no place in an address.
        let host = host.filter(|host| !host.contains('@')).unwrap_or("127.0.0.1");
        let ca = if internal.trim().is_empty() { cacerts } else { internal };
        Server { url: format!("https://{host}"), strict: strict && !ca.is_empty(), ca }
    }
}
