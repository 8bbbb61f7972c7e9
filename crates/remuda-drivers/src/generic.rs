//! Servers that exist already and are reached over SSH.
//!
//! Flags and record are those of rancher-machine, beyond them `SSHHostKey`: the host's key, pinned when the
//! driver first logs in. Creating makes nothing and removing removes nothing.

use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, time::timeout};

use crate::{
    builtin::Context,
    driver::{Base, Config, Driver, Pending, Ssh, State, from_config, to_config},
    error::{Class, Error, Result},
    flags::{Flag, Flags},
    keys,
    ssh::{Session, Target},
};

pub const NAME: &str = "generic";

/// A host that does not take a connection for so long is down.
const REACH: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Record {
    #[serde(flatten)]
    base: Base,
    engine_port: i64,
    #[serde(rename = "SSHKey")]
    ssh_key: String,
    #[serde(rename = "SSHHostKey")]
    ssh_host_key: String,
}

/// The driver; see the module.
#[derive(Debug)]
pub struct Generic {
    context: Context,
    record: Mutex<Record>,
}

impl Generic {
    pub fn new(context: Context) -> Self {
        Self { context, record: Mutex::default() }
    }

    fn facts(&self) -> Ssh {
        to_config(&*self.record.lock()).ssh()
    }

    /// Logs in; the first time, with the user's own key file, and remembers the host.
    async fn log_in(&self) -> Result<Session> {
        let (mut facts, host_key, given) = {
            let facts = self.facts();
            let record = self.record.lock();
            (facts, record.ssh_host_key.clone(), record.ssh_key.clone())
        };
        if !std::path::Path::new(&facts.key_path).exists() && !given.is_empty() {
            facts.key_path = given;
        }
        let session = Session::connect(&Target::new(&facts, &host_key)?).await?;
        self.record.lock().ssh_host_key = session.host_key().to_owned();
        Ok(session)
    }

    async fn adopt(&self) -> Result<()> {
        let (given, path) = {
            let record = self.record.lock();
            record.base.check_name()?;
            (record.ssh_key.clone(), record.base.store_file("id_rsa"))
        };
        self.context.log.info("Importing SSH key...");
        keys::copy(&given, &path).await?;
        self.record.lock().base.ssh_key_path = path;
        self.log_in().await.map(drop)
    }

    async fn reboot(&self) -> Result<()> {
        let session = self.log_in().await?;
        let command = "sudo shutdown -r now";
        match session.run_logged(command, b"", Duration::from_secs(30), &self.context.log).await {
            // The host hangs up as it goes down.
            Err(error) if error.class() == Class::Network => Ok(()),
            outcome => outcome,
        }
    }

    fn unsupported(&self, what: &'static str) -> Pending<'_, ()> {
        Box::pin(async move { Err(Error::unsupported(format!("generic driver does not support {what}"))) })
    }
}

fn flags() -> Vec<Flag> {
    vec![
        Flag::int("generic-engine-port", "GENERIC_ENGINE_PORT", 2376, "Port of the Docker engine"),
        Flag::string("generic-ip-address", "GENERIC_IP_ADDRESS", "", "Address of the server"),
        Flag::string("generic-ssh-user", "GENERIC_SSH_USER", "root", "User to log in as"),
        Flag::string("generic-ssh-key", "GENERIC_SSH_KEY", "", "Private key file to log in with"),
        Flag::int("generic-ssh-port", "GENERIC_SSH_PORT", 22, "Port of the SSH server"),
    ]
}

impl Driver for Generic {
    fn name(&self) -> &str {
        NAME
    }

    fn flags(&self) -> Pending<'_, Vec<Flag>> {
        Box::pin(async { Ok(flags()) })
    }

    fn load(&self, config: Config) -> Pending<'_, ()> {
        Box::pin(async {
            let mut record = self.record.lock();
            *record = from_config(&*record, config)?;
            Ok(())
        })
    }

    fn config(&self) -> Pending<'_, Config> {
        Box::pin(async { Ok(to_config(&*self.record.lock())) })
    }

    fn configure(&self, values: Flags) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut record = self.record.lock();
            record.engine_port = values.int("generic-engine-port");
            record.base.ip_address = values.str("generic-ip-address").into();
            record.base.ssh_user = values.str("generic-ssh-user").into();
            record.ssh_key = values.str("generic-ssh-key").into();
            record.base.ssh_port = values.port("generic-ssh-port")?;
            if record.base.ip_address.is_empty() {
                return Err(Error::other("generic driver requires the --generic-ip-address option"));
            }
            if record.ssh_key.is_empty() {
                return Err(Error::other("generic driver requires the --generic-ssh-key option"));
            }
            Ok(())
        })
    }

    fn pre_create_check(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.record.lock().base.check_name()?;
            self.log_in().await.map(drop)
        })
    }

    fn create(&self) -> Pending<'_, ()> {
        Box::pin(self.adopt())
    }

    fn remove(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn state(&self) -> Pending<'_, State> {
        Box::pin(async {
            let facts = self.facts();
            let reached = timeout(REACH, TcpStream::connect((facts.host.as_str(), facts.port))).await;
            Ok(if matches!(reached, Ok(Ok(_))) { State::Running } else { State::Stopped })
        })
    }

    fn makes_servers(&self) -> bool {
        false
    }

    fn url(&self) -> Pending<'_, String> {
        Box::pin(async {
            let record = self.record.lock();
            Ok(format!("tcp://{}:{}", record.base.ip_address, record.engine_port))
        })
    }

    fn start(&self) -> Pending<'_, ()> {
        self.unsupported("start")
    }

    fn stop(&self) -> Pending<'_, ()> {
        self.unsupported("stop")
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(self.reboot())
    }

    fn kill(&self) -> Pending<'_, ()> {
        self.unsupported("kill")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fake::ssh::SshServer, log::Log};

    #[tokio::test]
    async fn an_existing_host_is_adopted_pinned_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("my-key");
        let public = keys::ensure(key.to_str().unwrap(), "me").await.unwrap();
        let server = SshServer::start(&public).await;
        let context = Context::new(Log::tracing());
        let driver = Generic::new(context.clone());
        driver.load(Config::named("m1", dir.path().to_str().unwrap())).await.unwrap();
        let mut values = Flags::defaults(&flags());
        assert!(driver.configure(values.clone()).await.is_err());
        values.set("generic-ip-address", "127.0.0.1");
        values.set("generic-ssh-key", key.to_str().unwrap());
        values.set("generic-ssh-port", i64::from(server.port));
        driver.configure(values).await.unwrap();
        driver.pre_create_check().await.unwrap();
        driver.create().await.unwrap();
        assert_eq!(driver.state().await.unwrap(), State::Running);
        let facts = driver.ssh().await.unwrap();
        assert!(facts.key_path.ends_with("machines/m1/id_rsa"), "{facts:?}");

        let later = Generic::new(context);
        let config = driver.config().await.unwrap();
        assert!(config.str("SSHHostKey").starts_with("ssh-ed25519 "));
        later.load(config.clone()).await.unwrap();
        later.log_in().await.unwrap();
        assert!(later.stop().await.unwrap_err().is_unsupported());
        later.remove().await.unwrap();

        // The address now belongs to another host.
        let other = SshServer::start(&public).await;
        let mut moved = config;
        moved.0.insert("SSHPort".into(), other.port.into());
        later.load(moved).await.unwrap();
        assert!(later.pre_create_check().await.unwrap_err().to_string().contains("has changed"));
        drop((server, other));
        assert_eq!(later.state().await.unwrap(), State::Stopped);
    }
}
