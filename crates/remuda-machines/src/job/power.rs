//! Stopping and starting a server. Whether it is stopped is recorded, for those who may not ask its provider.

use std::sync::Arc;

use remuda_drivers::{
    driver::{Driver, State as Server},
    error::Class,
};
use tokio::time::Instant;

use super::{Failure, Work};
use crate::state::Phase;

impl Work<'_> {
    pub(super) async fn power(&mut self, name: &str, on: bool) -> Result<(), Failure> {
        let machine = self.store.load(name)?.filter(|machine| machine.phase != Phase::Intended);
        let Some(mut machine) = machine else {
            return Err(Failure::new(Class::Other, format!("nothing was made of machine {name}")));
        };
        self.check_host(name, &machine)?;
        let driver = self.opened(&machine).await?;
        self.log.info(format!("{} machine {name}...", if on { "Starting" } else { "Stopping" }));
        match on {
            true => self.start(&driver, name).await?,
            false => self.stop(&driver, name).await?,
        }
        machine.stopped = !on;
        self.record(name, &machine).await?;
        self.log.info(format!("Machine {name} {}", if on { "runs" } else { "is stopped" }));
        Ok(())
    }

    async fn start(&self, driver: &Arc<dyn Driver>, name: &str) -> Result<(), Failure> {
        if driver.state().await? != Server::Running {
            driver.start().await?;
        }
        match self.reaches(driver, Server::Running).await? {
            None => Ok(()),
            Some(state) => Err(not_reached(name, "running", state)),
        }
    }

    /// Services are given their time to end; what goes on then is ended.
    async fn stop(&self, driver: &Arc<dyn Driver>, name: &str) -> Result<(), Failure> {
        if driver.state().await? == Server::Stopped {
            return Ok(());
        }
        driver.stop().await?;
        if self.reaches(driver, Server::Stopped).await?.is_none() {
            return Ok(());
        }
        self.log.warn(format!("Machine {name} does not end by itself"));
        driver.kill().await?;
        match self.reaches(driver, Server::Stopped).await? {
            None => Ok(()),
            Some(state) => Err(not_reached(name, "stopped", state)),
        }
    }

    /// Waits for a state; the one it is in after all patience otherwise. A server that is gone is not waited for.
    async fn reaches(&self, driver: &Arc<dyn Driver>, wanted: Server) -> Result<Option<Server>, Failure> {
        let pace = self.environment.pace;
        let end = Instant::now() + pace.patience;
        loop {
            let state = driver.state().await?;
            if state == wanted {
                return Ok(None);
            }
            if state == Server::NotFound || Instant::now() >= end {
                return Ok(Some(state));
            }
            tokio::time::sleep(pace.poll).await;
        }
    }
}

fn not_reached(name: &str, wanted: &str, state: Server) -> Failure {
    let class = if state == Server::NotFound { Class::Other } else { Class::Network };
    Failure::new(class, format!("machine {name} is not {wanted}: its state is {:?}", state.as_str()))
}
