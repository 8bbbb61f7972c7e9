//! Removing a server, from the record alone.

use std::sync::Arc;

use remuda_drivers::{driver::Driver, flags::Flags};

use super::{Failure, Work};
use crate::{
    flags::{hidden_variable, variable},
    state::{Machine, Phase},
};

impl Work<'_> {
    pub(super) async fn remove(&mut self, name: &str) -> Result<(), Failure> {
        let Some(machine) = self.store.load(name)? else {
            // The intent is recorded before anything is made.
            self.log.info(format!("Nothing is recorded of machine {name}, so nothing was made"));
            return Ok(());
        };
        if machine.phase == Phase::Intended {
            self.log.info(format!("Nothing was made of machine {name} yet"));
        } else {
            self.check_host(name, &machine)?;
            let driver = self.opened(&machine).await?;
            self.log.info(format!("Removing machine {name}..."));
            match driver.remove().await {
                Err(error) if error.is_gone() => {
                    self.log.info(format!("Machine {name} is gone already: {error}"));
                }
                outcome => outcome?,
            }
        }
        self.store.forget(name)?;
        self.remote.save(None).await?;
        self.log.info(format!("Machine {name} is removed"));
        Ok(())
    }

    /// The driver with what is recorded of a machine, and with credentials as they are now.
    pub(super) async fn opened(&self, machine: &Machine) -> Result<Arc<dyn Driver>, Failure> {
        let driver = self.open(&machine.driver_name).await?;
        driver.load(machine.driver.clone()).await?;
        let flags = driver.flags().await?;
        let mut newer = Flags::default();
        let secret = |name: &str| variable(&self.environment.variables, name);
        newer.apply_env(&flags, secret)?;
        for flag in &flags {
            if let Some(text) = self.environment.variables.get(&hidden_variable(&flag.name)) {
                newer.set(flag.name.clone(), flag.parse(text)?);
            }
        }
        self.confine_all(&flags, &newer)?;
        driver.renew(newer).await?;
        Ok(driver)
    }
}
