//! The node driver `local`.
//!
//! One flag, `local-user-data`: a file with what the machine does at its first start, as with any cloud. The
//! record is docker-machine's base fields and `RemudaID`, the identity under which the machine is found again
//! whatever happened to the process that made it.

mod boot;

use std::sync::Arc;

use parking_lot::Mutex;
use remuda_drivers::{
    driver::{Addresses, Base, Config, Driver, Owned, Pending, Ssh, State},
    error::{Class, Error as DriverError, Result},
    flags::{Flag, Flags},
    log::Log,
};
use remuda_names::sandbox as names;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::{
    error::{Error, chain},
    machines::{MachineState, NewMachine, Options, Sandbox},
};

pub const NAME: &str = names::DRIVER;
const USER_DATA: &str = names::USER_DATA_FLAG;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Record {
    #[serde(flatten)]
    base: Base,
    user_data_file: String,
    #[serde(rename = "RemudaID")]
    remuda_id: String,
}

/// The driver; see the module.
#[derive(Debug)]
pub struct Local {
    sandbox: Sandbox,
    log: Log,
    record: Mutex<Record>,
}

/// The driver for the machines of a data directory.
pub fn driver(options: Options, log: Log) -> Arc<dyn Driver> {
    Arc::new(Local { sandbox: Sandbox::new(options), log, record: Mutex::default() })
}

/// The settings a machine of this driver has.
pub fn flags() -> Vec<Flag> {
    vec![Flag::string(
        USER_DATA,
        names::USER_DATA_VARIABLE,
        "",
        "File with a script or cloud-config that the machine runs at its first start",
    )]
}

fn failed(error: &Error) -> DriverError {
    let text = chain(error);
    match error {
        Error::NotFound(_) => DriverError::not_found(text),
        Error::Busy { .. } => DriverError::new(Class::Timeout, text),
        _ => DriverError::other(text),
    }
}

impl Local {
    /// Does something with the machine on a thread that may block.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Sandbox, &str) -> crate::error::Result<T> + Send + 'static,
    ) -> Result<T> {
        let id = self.record.lock().remuda_id.clone();
        if id.is_empty() {
            let name = self.record.lock().base.machine_name.clone();
            return Err(DriverError::not_found(format!("machine {name} not found")));
        }
        let sandbox = self.sandbox.clone();
        let done = tokio::task::spawn_blocking(move || work(&sandbox, &id)).await;
        let done = done.map_err(|_| DriverError::crash("the work on the machine was aborted"))?;
        done.map_err(|error| failed(&error))
    }

    async fn make(&self) -> Result<()> {
        let record = self.record.lock().clone();
        record.base.check_name()?;
        if record.remuda_id.is_empty() {
            return Err(DriverError::other("the machine has not been configured"));
        }
        let user_data = match record.user_data_file.as_str() {
            "" => String::new(),
            path => tokio::fs::read_to_string(path)
                .await
                .map_err(|error| DriverError::other(format!("read --{USER_DATA} {path}: {error}")))?,
        };
        self.log.info("Creating the machine's namespaces...");
        let new = NewMachine { id: record.remuda_id, name: record.base.machine_name, user_data };
        let machine = self.with(move |sandbox, _| sandbox.create(&new)).await?;
        self.log.info(format!("The machine runs at {}.", machine.address));
        self.record.lock().base.ip_address = machine.address.to_string();
        Ok(())
    }
}

impl Driver for Local {
    fn name(&self) -> &str {
        NAME
    }

    fn flags(&self) -> Pending<'_, Vec<Flag>> {
        Box::pin(async { Ok(flags()) })
    }

    fn load(&self, config: Config) -> Pending<'_, ()> {
        Box::pin(async {
            let mut record = self.record.lock();
            let Ok(Json::Object(mut fields)) = serde_json::to_value(&*record) else {
                return Err(DriverError::other("the record cannot be written"));
            };
            fields.extend(config.0.into_iter().filter(|(_, value)| !value.is_null()));
            *record = serde_json::from_value(Json::Object(fields))
                .map_err(|_| DriverError::other("a field of the driver record has the wrong type"))?;
            Ok(())
        })
    }

    fn config(&self) -> Pending<'_, Config> {
        Box::pin(async {
            match serde_json::to_value(&*self.record.lock()) {
                Ok(Json::Object(fields)) => Ok(Config(fields)),
                _ => Err(DriverError::other("the record cannot be written")),
            }
        })
    }

    fn configure(&self, values: Flags) -> Pending<'_, ()> {
        Box::pin(async move {
            let mut record = self.record.lock();
            values.str(USER_DATA).clone_into(&mut record.user_data_file);
            record.base.ssh_user = "root".into();
            if record.remuda_id.is_empty() {
                record.remuda_id = uuid::Uuid::new_v4().simple().to_string();
            }
            Ok(())
        })
    }

    fn machine_name(&self) -> Pending<'_, String> {
        Box::pin(async { Ok(self.record.lock().base.machine_name.clone()) })
    }

    fn pre_create_check(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.record.lock().base.check_name()?;
            self.with(|sandbox, _| sandbox.check()).await
        })
    }

    fn create(&self) -> Pending<'_, ()> {
        Box::pin(self.make())
    }

    fn remove(&self) -> Pending<'_, ()> {
        Box::pin(async {
            // Without an identity nothing was ever made.
            if self.record.lock().remuda_id.is_empty() {
                return Ok(());
            }
            self.with(Sandbox::remove).await
        })
    }

    fn state(&self) -> Pending<'_, State> {
        Box::pin(async {
            let machine = self.with(Sandbox::get).await?;
            Ok(match machine.state {
                MachineState::Running => State::Running,
                MachineState::Disconnected => State::Error,
                MachineState::Stopped => State::Stopped,
                MachineState::Removing => State::Stopping,
            })
        })
    }

    fn addresses(&self) -> Pending<'_, Addresses> {
        Box::pin(async {
            let ip = self.record.lock().base.ip_address.clone();
            Ok(Addresses { private: ip.clone(), ip, ipv6: String::new() })
        })
    }

    fn url(&self) -> Pending<'_, String> {
        Box::pin(async { Ok(format!("tcp://{}:2376", self.record.lock().base.ip_address)) })
    }

    fn ssh(&self) -> Pending<'_, Ssh> {
        Box::pin(async {
            let record = self.record.lock();
            Ok(Ssh {
                host: record.base.ip_address.clone(),
                port: record.base.ssh_port,
                user: "root".into(),
                key_path: String::new(),
            })
        })
    }

    fn booted(&self) -> Pending<'_, ()> {
        Box::pin(self.follow_boot())
    }

    fn start(&self) -> Pending<'_, ()> {
        Box::pin(self.with(Sandbox::start))
    }

    fn stop(&self) -> Pending<'_, ()> {
        Box::pin(self.with(Sandbox::stop))
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(self.with(Sandbox::restart))
    }

    fn kill(&self) -> Pending<'_, ()> {
        Box::pin(self.with(Sandbox::kill))
    }

    fn inventory(&self) -> Pending<'_, Vec<Owned>> {
        Box::pin(async {
            let sandbox = self.sandbox.clone();
            let all = tokio::task::spawn_blocking(move || sandbox.list()).await;
            let all = all.map_err(|_| DriverError::crash("listing machines was aborted"))?;
            let all = all.map_err(|error| failed(&error))?;
            let owned = all.into_iter().map(|machine| Owned {
                kind: "machine".to_owned(),
                identity: machine.id.clone(),
                id: machine.id,
                name: machine.name,
            });
            Ok(owned.collect())
        })
    }
}
