//! Restarting a server, from the record alone. Nothing of the record changes.

use remuda_drivers::error::Class;

use super::{Failure, Work};
use crate::state::Phase;

impl Work<'_> {
    pub(super) async fn restart(&mut self, name: &str) -> Result<(), Failure> {
        let machine = self.store.load(name)?.filter(|machine| machine.phase != Phase::Intended);
        let Some(machine) = machine else {
            return Err(Failure::new(Class::Other, format!("nothing was made of machine {name}")));
        };
        self.check_host(name, &machine)?;
        let driver = self.opened(&machine).await?;
        self.log.info(format!("Restarting machine {name}..."));
        driver.restart().await?;
        self.log.info(format!("Machine {name} restarts"));
        Ok(())
    }
}
