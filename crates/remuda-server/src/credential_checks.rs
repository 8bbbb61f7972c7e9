//! The action `test` of the list API on cloud credentials: the provider is asked from here.

use std::{collections::BTreeMap, time::Duration};

use futures::future::BoxFuture;
use remuda_door::Refusal;
use remuda_drivers::{
    builtin::{Context, Registry},
    log::Log,
};
use remuda_machines::credential;
use remuda_steve::{CredentialChecks, Verdict};
use tokio::sync::Semaphore;

/// For the provider to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Providers that are asked at the same time.
const AT_ONCE: usize = 4;

/// Drivers that come with the program and speak to a provider.
pub(crate) struct Checks {
    drivers: Registry,
    turns: Semaphore,
}

impl Checks {
    pub(crate) fn new() -> Self {
        Self { drivers: Registry::standard(), turns: Semaphore::new(AT_ONCE) }
    }
}

impl CredentialChecks for Checks {
    fn offers(&self, driver: &str) -> bool {
        credential::is_tried(&self.drivers, driver)
    }

    fn check<'a>(
        &'a self,
        driver: &'a str,
        fields: BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<Verdict, Refusal>> {
        Box::pin(async move {
            let Ok(_turn) = self.turns.try_acquire() else {
                return Err(Refusal::not_yet("other credentials are being tested"));
            };
            let context = Context::new(Log::tracing());
            let told = credential::try_out(&self.drivers, context, driver, &fields, PATIENCE).await;
            Ok(match told {
                Ok(()) => Verdict::default(),
                Err(error) => Verdict { failure: Some((error.class().as_str(), error.to_string())) },
            })
        })
    }
}
