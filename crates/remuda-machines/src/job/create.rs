//! Making a server, or going on with one.

use std::{collections::BTreeSet, os::unix::fs::FileTypeExt, path::Path, sync::Arc, time::Duration};

use remuda_drivers::{
    driver::{Bootstrap, Config, Delivery, Driver, State},
    error::{Class, Error as DriverError},
    flags::{Flag, Flags, Kind, Value},
    generic,
    secret::names_a_secret,
    ssh::{Session, Target},
};
use tokio::time::{Instant, timeout};

use super::{Create, Failure, Work, userdata};
use crate::{
    flags::{hidden_variable, variable},
    state::{Machine, Phase, write_private},
};

/// How often a driver is asked how far it got.
const PROGRESS: Duration = Duration::from_secs(1);
/// Where the script is put on a server that is reached over SSH.
const SCRIPT: &str = "/tmp/install_script.sh";
/// The name a server is given over SSH. One that was there before keeps the name it has: others know it by that.
fn new_name<'a>(driver: &str, hostname: &'a str) -> Option<&'a str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    (driver != generic::NAME && !hostname.is_empty() && hostname.bytes().all(plain)).then_some(hostname)
}

/// Drivers whose machines are not servers.
const NO_SERVER: &[&str] = &["none", "noop", "ci-test"];

impl Work<'_> {
    pub(super) async fn create(&mut self, create: &Create) -> Result<(), Failure> {
        let name = create.name.as_str();
        let hostname = create.hostname.as_deref().unwrap_or(name);
        let script = self.script(create).await?;
        let mut driver = self.open(&create.driver).await?;
        let mut before = self.store.load(name)?;
        if let Some(machine) = &before {
            self.check_host(name, machine)?;
            match machine.phase {
                Phase::Delivered => {
                    self.log.info(format!("Machine {name} has been made"));
                    return Ok(());
                }
                Phase::Creating if !driver.resumes() => {
                    driver = self.start_over(name, create, driver, machine).await?;
                    before = None;
                }
                _ => self.log.info(format!("Going on with machine {name}")),
            }
        }
        let flags = driver.flags().await?;
        let mut values = self.values(create, &flags)?;
        let by_user_data = match &script {
            Some(script) if driver.delivery() == Delivery::Standard => {
                self.user_data(&flags, &mut values, script, hostname).await?
            }
            _ => false,
        };
        let store = self.store.path().to_string_lossy().into_owned();
        let (mut machine, phase) = match before {
            Some(machine) => (machine.clone(), machine.phase),
            None => {
                let script = create.install_script.as_deref().map(Path::to_string_lossy);
                let overridden = create.hostname.as_deref().unwrap_or_default();
                let mut machine = Machine::new(name, &create.driver, script.as_deref(), overridden);
                machine.driver = Config::named(name, &store);
                machine.host.clone_from(&self.environment.host);
                (machine, Phase::Intended)
            }
        };
        driver.load(machine.driver.clone()).await?;
        driver.configure(values).await.map_err(|error| Failure::from(error).before_creation())?;
        self.save(name, &mut machine, &*driver).await?;
        if phase == Phase::Intended {
            self.log.info("Running pre-create checks...");
            driver.pre_create_check().await.map_err(|error| Failure::from(error).before_creation())?;
            let key = self.store.path().join("machines").join(name).join("id_rsa");
            if driver.resumes() && Path::new(&driver.ssh().await?.key_path) == key {
                // The login key belongs to the intent: an attempt that goes on must have the one that was uploaded.
                remuda_drivers::keys::ensure(&key.to_string_lossy(), name).await?;
            }
            machine.phase = Phase::Creating;
            self.begin(name, &mut machine, &*driver).await?;
        }
        if phase < Phase::Created {
            self.log.info(format!("Creating machine {name}..."));
            self.make(name, &mut machine, &*driver).await?;
            machine.phase = Phase::Created;
            self.save(name, &mut machine, &*driver).await?;
        }
        if !NO_SERVER.contains(&create.driver.as_str()) {
            self.wait_until_running(&*driver).await?;
            match script {
                Some(_) if by_user_data => self.wait_until_booted(&*driver).await?,
                Some(script) => {
                    let bootstrap = Bootstrap { script, hostname: hostname.to_owned() };
                    self.deliver(name, &mut machine, &*driver, bootstrap).await?;
                }
                None => {}
            }
        }
        machine.phase = Phase::Delivered;
        self.save(name, &mut machine, &*driver).await?;
        self.log.info(format!("Machine {name} is up"));
        Ok(())
    }

    /// What an earlier attempt may have made is removed, as its driver cannot go on with it.
    async fn start_over(
        &self,
        name: &str,
        create: &Create,
        driver: Arc<dyn Driver>,
        machine: &Machine,
    ) -> Result<Arc<dyn Driver>, Failure> {
        self.log.info(format!("Removing what an earlier attempt left of machine {name}..."));
        driver.load(machine.driver.clone()).await?;
        match driver.remove().await {
            Err(error) if !error.is_gone() => {
                let doing = "remove what an earlier attempt left";
                return Err(error.context(doing).into());
            }
            _ => {}
        }
        self.store.forget(name)?;
        self.remote.save(None).await?;
        drop(driver);
        self.open(&create.driver).await
    }

    async fn script(&self, create: &Create) -> Result<Option<String>, Failure> {
        let Some(path) = &create.install_script else { return Ok(None) };
        self.confine("custom-install-script", &path.to_string_lossy())?;
        let script = tokio::fs::read_to_string(path).await.map_err(|error| {
            Failure::new(
                Class::Other,
                format!("read the script for the machine, {}: {error}", path.display()),
            )
        })?;
        for line in script.lines() {
            if let Some((name, value)) = line.trim_start_matches("export ").split_once('=')
                && names_a_secret(name)
            {
                self.log.redactor().learn(value.trim().trim_matches(['"', '\'']));
            }
        }
        Ok(Some(script))
    }

    /// Defaults, then variables, then the command line.
    fn values(&self, create: &Create, flags: &[Flag]) -> Result<Flags, Failure> {
        let mut values = Flags::defaults(flags);
        values.apply_env(flags, |name| variable(&self.environment.variables, name))?;
        for flag in flags {
            if let Some(text) = self.environment.variables.get(&hidden_variable(&flag.name)) {
                values.set(flag.name.clone(), flag.parse(text)?);
            }
        }
        let mut begun = BTreeSet::new();
        for (name, text) in &create.flags {
            let Some(flag) = flags.iter().find(|flag| flag.name == *name) else {
                let message = format!("driver {} has no flag --{name}", create.driver);
                return Err(Failure::new(Class::Other, message).before_creation());
            };
            let value = match (&flag.kind, text) {
                (Kind::Bool, None) => Value::Bool(true),
                (Kind::List(_), Some(text)) => {
                    // What is given replaces the default, and adds up.
                    let mut items = if begun.insert(name) { Vec::new() } else { values.list(name).to_vec() };
                    items.push(text.clone());
                    Value::List(items)
                }
                (_, text) => flag.parse(text.as_deref().unwrap_or_default())?,
            };
            values.set(name.clone(), value);
        }
        self.confine_all(flags, &values)?;
        Ok(values)
    }

    /// All values a driver is given, wherever they came from: credentials are written by people as well.
    pub(super) fn confine_all(&self, flags: &[Flag], values: &Flags) -> Result<(), Failure> {
        let defaults = Flags::defaults(flags);
        for (name, value) in values.iter().filter(|(name, value)| defaults.get(name) != Some(value)) {
            match value {
                Value::String(text) => self.confine(name, text)?,
                Value::List(items) => items.iter().try_for_each(|text| self.confine(name, text))?,
                Value::Bool(_) | Value::Int(_) => {}
            }
        }
        Ok(())
    }

    /// Settings are written by people who may make machines, not by those who may read this host's files.
    fn confine(&self, flag: &str, text: &str) -> Result<(), Failure> {
        let Some(allowed) = &self.environment.files else { return Ok(()) };
        // Names of disks are settings of some providers, and the host may have one of that name.
        let is_disk = |kind: std::fs::FileType| kind.is_block_device() && flag.contains("device");
        let names_a_file = |text: &str| {
            let Ok(real) = std::fs::canonicalize(text) else { return false };
            let inside = std::fs::canonicalize(allowed).is_ok_and(|allowed| real.starts_with(allowed));
            // A device is read as a file is, and has no end.
            let kind = real.metadata().map(|metadata| metadata.file_type());
            !inside && !kind.is_ok_and(|kind| kind.is_dir() || is_disk(kind))
        };
        // Some drivers take spaces at the ends for none.
        if names_a_file(text) || names_a_file(text.trim()) {
            let message = format!("--{flag} names a file of the server's host; give its content instead");
            return Err(Failure::new(Class::Other, message).before_creation());
        }
        Ok(())
    }

    /// Puts the script into the user data, if the driver takes any.
    async fn user_data(
        &self,
        flags: &[Flag],
        values: &mut Flags,
        script: &str,
        hostname: &str,
    ) -> Result<bool, Failure> {
        let Some(flag) =
            flags.iter().find(|flag| flag.is_user_data() && matches!(flag.kind, Kind::String(_)))
        else {
            return Ok(false);
        };
        let given = match values.str(&flag.name) {
            "" => String::new(),
            path => tokio::fs::read_to_string(path).await.unwrap_or_default(),
        };
        let windows =
            flags.iter().any(|flag| flag.name.ends_with("-os") && values.str(&flag.name).contains("windows"));
        let merged = userdata::merge(&given, script, hostname, windows)
            .map_err(|unfit| Failure::new(Class::Other, unfit.to_string()).before_creation())?;
        let path = self.scratch().join("userdata");
        write_private(&path, merged.as_bytes())?;
        values.set(flag.name.clone(), path.to_string_lossy().into_owned());
        Ok(true)
    }

    /// Creates, and records what the driver learns while it does: of a driver that is killed, the last of it is
    /// what its server can be found by.
    async fn make(&self, name: &str, machine: &mut Machine, driver: &dyn Driver) -> Result<(), Failure> {
        let mut creating = driver.create();
        loop {
            tokio::select! {
                done = &mut creating => {
                    if done.is_err() {
                        // Whoever removes it wants to know how far it got.
                        let _ = self.save(name, machine, driver).await;
                    }
                    return Ok(done?);
                }
                () = tokio::time::sleep(PROGRESS) => {}
            }
            if let Ok(Ok(config)) = timeout(Duration::from_secs(5), driver.config()).await {
                machine.driver = config;
                if let Err(failure) = self.record(name, machine).await {
                    self.log.warn(format!("record the progress of machine {name}: {failure}"));
                }
            }
        }
    }

    async fn wait_until_running(&self, driver: &dyn Driver) -> Result<(), Failure> {
        let deadline = Instant::now() + self.environment.pace.patience;
        loop {
            let state = driver.state().await;
            match &state {
                Ok(State::Running) => return Ok(()),
                Err(error) if error.is_not_found() => return Err(error.clone().into()),
                _ => {}
            }
            if Instant::now() >= deadline {
                let state = state.map_or_else(|error| error.to_string(), |state| state.to_string());
                return Err(Failure::new(Class::Timeout, format!("the server does not run: {state}")));
            }
            tokio::time::sleep(self.environment.pace.poll).await;
        }
    }

    async fn wait_until_booted(&self, driver: &dyn Driver) -> Result<(), Failure> {
        let patience = self.environment.pace.script;
        match timeout(patience, driver.booted()).await {
            Ok(done) => Ok(done?),
            Err(_) => {
                let message = format!("the machine's first start did not end within {patience:?}");
                Err(Failure::new(Class::Timeout, message))
            }
        }
    }

    async fn deliver(
        &self,
        name: &str,
        machine: &mut Machine,
        driver: &dyn Driver,
        bootstrap: Bootstrap,
    ) -> Result<(), Failure> {
        if driver.delivery() == Delivery::Driver {
            self.log.info("Starting the machine's first script...");
            return Ok(driver.deliver(bootstrap).await?);
        }
        self.log.info("Waiting for SSH...");
        let session = self.log_in(machine, driver).await?;
        session.host_key().clone_into(&mut machine.host_key);
        self.save(name, machine, driver).await?;
        let short = Duration::from_secs(60);
        if let Some(host) = new_name(&machine.driver_name, &bootstrap.hostname) {
            let command = format!(
                "S=; [ \"$(id -u)\" = 0 ] || S=sudo; $S hostname {host} && echo {host} | $S tee /etc/hostname >/dev/null"
            );
            // A host that keeps its name is still good.
            if let Err(error) = session.run_logged(&command, b"", short, &self.log).await {
                self.log.warn(format!("set the host name: {error}"));
            }
        }
        self.log.info("Running the machine's first script...");
        session.upload(bootstrap.script.as_bytes(), SCRIPT, 0o700, short).await?;
        let command =
            format!("S=; [ \"$(id -u)\" = 0 ] || S=sudo; $S sh {SCRIPT}; E=$?; rm -f {SCRIPT}; exit $E");
        Ok(session.run_logged(&command, b"", self.environment.pace.script, &self.log).await?)
    }

    async fn log_in(&self, machine: &Machine, driver: &dyn Driver) -> Result<Session, Failure> {
        let deadline = Instant::now() + self.environment.pace.patience;
        let pinned = match driver.config().await?.str("SSHHostKey") {
            "" => machine.host_key.clone(),
            known => known.to_owned(),
        };
        loop {
            let attempt = async {
                let facts = driver.ssh().await?;
                Session::connect(&Target::new(&facts, &pinned)?).await
            };
            let error: DriverError = match attempt.await {
                Ok(session) => return Ok(session),
                Err(error) => error,
            };
            // A host with another key than before does not become the right one.
            if Instant::now() >= deadline || error.is_host_key_changed() {
                return Err(error.context("log in to the machine").into());
            }
            tokio::time::sleep(self.environment.pace.poll).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_were_there_before_are_not_renamed() {
        assert_eq!(new_name("digitalocean", "demo-a"), Some("demo-a"));
        assert_eq!(new_name("generic", "demo-a"), None);
        assert_eq!(new_name("digitalocean", ""), None);
        assert_eq!(new_name("digitalocean", "a;reboot"), None);
    }
}
