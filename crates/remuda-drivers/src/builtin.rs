//! The drivers that come with us, and which of them a program has.

use std::{collections::BTreeMap, fmt, sync::Arc};

use uuid::Uuid;

use crate::{
    amazonec2::AmazonEc2,
    azure::Azure,
    digitalocean::DigitalOcean,
    driver::Driver,
    generic::Generic,
    google::Google,
    hetzner::Hetzner,
    http::{Connections, Pace},
    log::Log,
    proxmoxve::ProxmoxVe,
};

/// What built-in drivers need from their surroundings. Clones share connections.
#[derive(Debug, Clone)]
pub struct Context {
    pub log: Log,
    pub pace: Pace,
    /// Where DigitalOcean's API is, if [`DIGITALOCEAN_API`] says nothing else. EC2 has a flag for its own.
    pub digitalocean: String,
    /// Where APIs are that are not at their public address, by driver. Nothing that people write gets here: the
    /// server's network is not for everybody who has a credential.
    pub elsewhere: BTreeMap<String, String>,
    pub connections: Connections,
}

impl Context {
    pub fn new(log: Log) -> Self {
        Self {
            log,
            pace: Pace::default(),
            digitalocean: "https://api.digitalocean.com".into(),
            elsewhere: BTreeMap::new(),
            connections: Connections::default(),
        }
    }

    /// Where the API of a driver is.
    pub(crate) fn endpoint<'a>(&'a self, driver: &str, public: &'a str) -> &'a str {
        self.elsewhere.get(driver).map_or(public, String::as_str)
    }

    /// The same, as the variables of a machine say. A credential may have them as any other variable.
    #[must_use]
    pub fn with_variables<'a>(mut self, variable: impl Fn(&str) -> Option<&'a str>) -> Self {
        if let Some(url) = variable(DIGITALOCEAN_API).filter(|url| !url.is_empty()) {
            url.clone_into(&mut self.digitalocean);
        }
        self
    }
}

/// Variable with the address of DigitalOcean's API, as DigitalOcean's own tools read it.
pub const DIGITALOCEAN_API: &str = "DIGITALOCEAN_API_URL";

type Open = Arc<dyn Fn(Context) -> Arc<dyn Driver> + Send + Sync>;

/// The drivers inside a program, by name. Clones share them.
#[derive(Clone, Default)]
pub struct Registry(BTreeMap<String, Entry>);

#[derive(Clone)]
struct Entry {
    active: bool,
    open: Open,
}

impl Registry {
    /// All but those that need more of the program; only `generic` is in use without being asked for.
    pub fn standard() -> Self {
        Self::default()
            .with("amazonec2", false, |context| Arc::new(AmazonEc2::new(context)))
            .with("azure", false, |context| Arc::new(Azure::new(context)))
            .with("digitalocean", false, |context| Arc::new(DigitalOcean::new(context)))
            .with("generic", true, |context| Arc::new(Generic::new(context)))
            .with("google", false, |context| Arc::new(Google::new(context)))
            .with("hetzner", false, |context| Arc::new(Hetzner::new(context)))
            .with("proxmoxve", false, |context| Arc::new(ProxmoxVe::new(context)))
    }

    /// The same with one more, or with another of that name. `active` says whether it is in use without being
    /// asked for.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        active: bool,
        open: impl Fn(Context) -> Arc<dyn Driver> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(name.to_owned(), Entry { active, open: Arc::new(open) });
        self
    }

    /// A fresh driver of that name.
    pub fn open(&self, name: &str, context: Context) -> Option<Arc<dyn Driver>> {
        self.0.get(name).map(|entry| (entry.open)(context))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Names, and whether they are in use without being asked for.
    pub fn names(&self) -> impl Iterator<Item = (&str, bool)> {
        self.0.iter().map(|(name, entry)| (name.as_str(), entry.active))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A new identity for a machine, put into its record before anything is made and into everything that is.
pub(crate) fn identity() -> String {
    Uuid::new_v4().simple().to_string()
}

/// A name that is unique to the machine but still tells people whose it is.
pub(crate) fn unique_name(machine: &str, identity: &str) -> String {
    let short = identity.get(..12).unwrap_or(identity);
    let kept: String = machine.chars().take(200).collect();
    format!("{kept}-{short}")
}
