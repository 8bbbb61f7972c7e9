//! What every driver can do, built in or plugged in.

use std::{fmt, future::Future, pin::Pin};

use remuda_names::driver::{Facts, facts};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::{
    error::{Error, Result},
    flags::{Flag, Flags},
};

/// A driver call under way. Dropping it abandons the call, not what it already did.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Creates, watches and removes one machine.
///
/// The order is that of docker-machine: [`load`](Driver::load) with at least the machine's name and store
/// path, [`configure`](Driver::configure) with the flags, [`pre_create_check`](Driver::pre_create_check),
/// save [`config`](Driver::config), [`create`](Driver::create), save again. Later lives start with `load` of
/// what was saved.
///
/// What was saved before `create` is enough for `remove`: built-in drivers tag whatever they make with an
/// identity that `configure` puts into the record, and find it again by that tag. `config` may be read while
/// `create` runs and shows how far it got.
pub trait Driver: Send + Sync {
    /// The driver's name, the prefix of its flags.
    fn name(&self) -> &str;
    /// What others have to know of it, beside its flags.
    fn facts(&self) -> &'static Facts {
        facts(self.name())
    }
    fn flags(&self) -> Pending<'_, Vec<Flag>>;
    /// Takes over the record of a machine; missing fields keep their defaults.
    fn load(&self, config: Config) -> Pending<'_, ()>;
    /// The record of the machine, with credentials in clear.
    fn config(&self) -> Pending<'_, Config>;
    /// Takes over flag values for a machine that is about to be created.
    fn configure(&self, values: Flags) -> Pending<'_, ()>;
    /// Takes over credentials that are newer than the machine's record, from values that hold nothing else.
    fn renew(&self, values: Flags) -> Pending<'_, ()> {
        drop(values);
        Box::pin(async { Ok(()) })
    }
    fn machine_name(&self) -> Pending<'_, String> {
        Box::pin(async { Ok(self.config().await?.str("MachineName").to_owned()) })
    }
    /// Finds mistakes before anything is made.
    fn pre_create_check(&self) -> Pending<'_, ()>;
    /// Makes the machine and waits until it has an address. Calling it again after a failure continues.
    fn create(&self) -> Pending<'_, ()>;
    /// Removes everything `create` may have made. What is gone already is no error.
    fn remove(&self) -> Pending<'_, ()>;
    fn state(&self) -> Pending<'_, State>;
    /// Those of the record.
    fn addresses(&self) -> Pending<'_, Addresses> {
        Box::pin(async { Ok(self.config().await?.addresses()) })
    }
    /// The Docker endpoint, as old tools ask for it.
    fn url(&self) -> Pending<'_, String> {
        Box::pin(async {
            let host = self.ssh().await?.host;
            Ok(if host.contains(':') { format!("tcp://[{host}]:2376") } else { format!("tcp://{host}:2376") })
        })
    }
    /// What the record says.
    fn ssh(&self) -> Pending<'_, Ssh> {
        Box::pin(async { Ok(self.config().await?.ssh()) })
    }
    /// Whether [`create`](Driver::create) goes on where an interrupted one stopped. If not, what was begun is
    /// removed before another attempt.
    fn resumes(&self) -> bool {
        true
    }
    /// How the script a machine is to run at its first start gets there.
    fn delivery(&self) -> Delivery {
        Delivery::Standard
    }
    /// Runs the script in the machine, for drivers whose [`delivery`](Driver::delivery) is their own. Called
    /// when the machine runs, and again if nobody knows whether it was done.
    fn deliver(&self, bootstrap: Bootstrap) -> Pending<'_, ()> {
        drop(bootstrap);
        let name = self.name().to_owned();
        Box::pin(async move { Err(Error::unsupported(format!("driver {name} runs no scripts itself"))) })
    }
    /// Waits until what the machine was given as user data has run, and fails if that did. A driver that cannot
    /// see into its machines returns at once.
    fn booted(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }
    fn start(&self) -> Pending<'_, ()>;
    fn stop(&self) -> Pending<'_, ()>;
    fn restart(&self) -> Pending<'_, ()>;
    fn kill(&self) -> Pending<'_, ()>;
    fn upgrade(&self) -> Pending<'_, ()> {
        let name = self.name().to_owned();
        Box::pin(async move { Err(Error::unsupported(format!("driver {name} has no upgrade"))) })
    }
    /// Whether there is anything at a provider that would be left behind.
    fn makes_servers(&self) -> bool {
        true
    }
    /// Flags that say where [`inventory`](Driver::inventory) looks, once [`flags`](Driver::flags) was asked for:
    /// a provider may have to be asked once per region.
    fn places(&self) -> Vec<String> {
        Vec::new()
    }
    /// Every machine of ours the provider has for these credentials, also those no record knows.
    fn inventory(&self) -> Pending<'_, Vec<Owned>> {
        let name = self.name().to_owned();
        Box::pin(async move { Err(Error::unsupported(format!("driver {name} cannot list its machines"))) })
    }
}

/// How a machine gets the script it is to run at its first start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// As user data where the driver has a flag for it, otherwise over SSH.
    Standard,
    /// By [`Driver::deliver`].
    Driver,
}

/// What a machine is to run at its first start.
#[derive(Clone, PartialEq, Eq)]
pub struct Bootstrap {
    /// A shell script; it holds credentials.
    pub script: String,
    /// The host name the machine is to have.
    pub hostname: String,
}

impl fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bootstrap").field("hostname", &self.hostname).finish_non_exhaustive()
    }
}

/// Something at the provider that carries an identity of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// What it is: `droplet`, `instance`.
    pub kind: String,
    /// The provider's id.
    pub id: String,
    /// The machine's name when it was made.
    pub name: String,
    /// `RemudaID` of the record it was made for.
    pub identity: String,
}

/// The state of a machine, numbered as on the plugin wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    None,
    Running,
    Paused,
    Saved,
    Stopped,
    Stopping,
    Starting,
    Error,
    Timeout,
    NotFound,
}

impl State {
    const ALL: [Self; 10] = [
        Self::None,
        Self::Running,
        Self::Paused,
        Self::Saved,
        Self::Stopped,
        Self::Stopping,
        Self::Starting,
        Self::Error,
        Self::Timeout,
        Self::NotFound,
    ];

    pub fn from_wire(number: i64) -> Option<Self> {
        usize::try_from(number).ok().and_then(|index| Self::ALL.get(index)).copied()
    }

    pub fn to_wire(self) -> i64 {
        self as i64
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Running => "Running",
            Self::Paused => "Paused",
            Self::Saved => "Saved",
            Self::Stopped => "Stopped",
            Self::Stopping => "Stopping",
            Self::Starting => "Starting",
            Self::Error => "Error",
            Self::Timeout => "Timeout",
            Self::NotFound => "Not Found",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a machine can be reached. Empty while unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Public, or the only one.
    pub ip: String,
    pub private: String,
    pub ipv6: String,
}

/// How to log in to a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ssh {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub key_path: String,
}

/// A machine's record: the JSON object docker-machine keeps under `Driver` in `config.json`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config(pub Map<String, Json>);

impl Config {
    /// The record of a machine of which only the name is known.
    pub fn named(machine: &str, store_path: &str) -> Self {
        let mut fields = Map::new();
        fields.insert("MachineName".into(), machine.into());
        fields.insert("StorePath".into(), store_path.into());
        Self(fields)
    }

    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        // The parser's message may quote the record, which holds credentials.
        serde_json::from_slice(bytes).map_err(|error| {
            let place = format!("line {} column {}", error.line(), error.column());
            Error::other(format!("driver record is not a JSON object ({place})"))
        })
    }

    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("a JSON object with string keys always serialises")
    }

    pub fn str(&self, field: &str) -> &str {
        self.0.get(field).and_then(Json::as_str).unwrap_or_default()
    }

    /// Where the machine can be reached, as far as recorded.
    pub fn addresses(&self) -> Addresses {
        Addresses {
            ip: self.str("IPAddress").to_owned(),
            private: self.str("PrivateIPAddress").to_owned(),
            ipv6: self.str("IPv6Address").to_owned(),
        }
    }

    /// How to log in, as far as recorded.
    pub fn ssh(&self) -> Ssh {
        let base = from_config(&Base::default(), self.clone()).unwrap_or_default();
        Ssh { key_path: base.key_path(), host: base.ip_address, port: base.ssh_port, user: base.ssh_user }
    }

    /// Puts `self` over `base`, field by field: what is absent keeps its default.
    pub(crate) fn over(self, mut base: Map<String, Json>) -> Map<String, Json> {
        // Go writes empty slices and pointers as null, which means the default.
        base.extend(self.0.into_iter().filter(|(_, value)| !value.is_null()));
        base
    }
}

/// Shows which fields there are, not what they hold.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The fields all drivers' records share, in docker-machine's spelling.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Base {
    #[serde(rename = "IPAddress")]
    pub ip_address: String,
    #[serde(rename = "IPv6Address")]
    pub ipv6_address: String,
    pub machine_name: String,
    #[serde(rename = "SSHUser")]
    pub ssh_user: String,
    #[serde(rename = "SSHPort")]
    pub ssh_port: u16,
    #[serde(rename = "SSHKeyPath")]
    pub ssh_key_path: String,
    pub store_path: String,
    pub swarm_master: bool,
    pub swarm_host: String,
    pub swarm_discovery: String,
}

impl Default for Base {
    fn default() -> Self {
        Self {
            ip_address: String::new(),
            ipv6_address: String::new(),
            machine_name: String::new(),
            ssh_user: String::new(),
            ssh_port: 22,
            ssh_key_path: String::new(),
            store_path: String::new(),
            swarm_master: false,
            swarm_host: String::new(),
            swarm_discovery: String::new(),
        }
    }
}

impl Base {
    /// The machine's own file in its store.
    pub fn store_file(&self, name: &str) -> String {
        format!("{}/machines/{}/{name}", self.store_path, self.machine_name)
    }

    /// The login key: the recorded one, else the default place in the store.
    pub fn key_path(&self) -> String {
        if self.ssh_key_path.is_empty() { self.store_file("id_rsa") } else { self.ssh_key_path.clone() }
    }

    /// A name that is safe in paths, host names and provider tags.
    pub fn check_name(&self) -> Result<()> {
        let name = self.machine_name.as_bytes();
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        let fine = name.first().is_some_and(u8::is_ascii_alphanumeric)
            && name.len() <= 255
            && name.iter().all(allowed)
            && !self.machine_name.contains("..");
        if fine {
            return Ok(());
        }
        Err(Error::other(format!("machine name {:?} is not letters, digits, - and .", self.machine_name)))
    }
}

/// Values that may be credentials: shown by name only.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Hidden(pub Map<String, Json>);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A record with typed fields; how built-in drivers implement `load` and `config`.
pub(crate) fn to_config<T: Serialize>(record: &T) -> Config {
    match serde_json::to_value(record) {
        Ok(Json::Object(fields)) => Config(fields),
        other => unreachable!("records are structs of plain fields, got {:?}", other.is_ok()),
    }
}

/// Reads a record over the current one. Field values are not repeated in the error.
pub(crate) fn from_config<T>(current: &T, config: Config) -> Result<T>
where
    T: Serialize + for<'de> Deserialize<'de>,
{
    let merged = config.over(to_config(current).0);
    let mut wrong = None;
    match serde_json::from_value(Json::Object(merged.clone())) {
        Ok(record) => Ok(record),
        Err(_) => {
            // Find the field to blame by trying each alone; the parser's own text could quote a secret.
            for (name, value) in merged {
                let mut one = to_config(current).0;
                one.insert(name.clone(), value);
                if serde_json::from_value::<T>(Json::Object(one)).is_err() {
                    wrong = Some(name);
                    break;
                }
            }
            let field = wrong.unwrap_or_else(|| "(unknown)".into());
            Err(Error::other(format!("driver record field {field} has the wrong type")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_keep_their_wire_numbers() {
        assert_eq!(State::from_wire(1), Some(State::Running));
        assert_eq!(State::from_wire(9), Some(State::NotFound));
        assert_eq!(State::from_wire(10), None);
        assert_eq!(State::from_wire(-1), None);
        assert_eq!(State::Stopped.to_wire(), 4);
        assert_eq!(State::parse("not found"), Some(State::NotFound));
    }

    #[test]
    fn a_record_shows_names_only_and_blames_the_field() {
        let mut config = Config::named("m1", "/s");
        config.0.insert("AccessToken".into(), "canary".into());
        assert_eq!(format!("{config:?}"), r#"{"AccessToken", "MachineName", "StorePath"}"#);
        config.0.insert("SSHPort".into(), "canary".into());
        let error = from_config(&Base::default(), config).unwrap_err();
        assert_eq!(error.to_string(), "driver record field SSHPort has the wrong type");
        let error = Config::from_json(b"[\"canary\"]").unwrap_err();
        assert!(!error.to_string().contains("canary"));
    }

    #[test]
    fn null_means_the_default() {
        let config = Config::from_json(br#"{"MachineName":"m1","SSHPort":null}"#).unwrap();
        let base = from_config(&Base::default(), config).unwrap();
        assert_eq!((base.ssh_port, base.machine_name.as_str()), (22, "m1"));
    }

    #[test]
    fn names_that_leave_the_store_are_refused() {
        let named = |name: &str| Base { machine_name: name.into(), ..Base::default() }.check_name().is_ok();
        assert!(named("demo-cp-1.example"));
        for bad in ["", "../x", "a/b", "-x", "a b", "a..b"] {
            assert!(!named(bad), "{bad}");
        }
    }
}
