//! What a controller is handed.

use std::sync::Arc;

use kube::Client;

use crate::{
    clock::{Clock, SystemClock},
    events::Recorder,
    informer::{Informers, Options},
    leases::Leadership,
    metrics::Metrics,
};

/// The outside world, as controllers see it. Made once per API and shared by its controllers.
#[derive(Clone)]
pub struct Ctx {
    pub client: Client,
    pub clock: Arc<dyn Clock>,
    pub informers: Informers,
    pub recorder: Recorder,
    pub leadership: Leadership,
    pub metrics: Metrics,
    /// Owns the fields we apply.
    pub field_manager: Arc<str>,
}

impl Ctx {
    /// A context on the API behind `client`, where nobody else runs the same controllers. `name`
    /// is our name as a field manager and as the reporter of events.
    pub fn new(client: Client, name: &str) -> Self {
        let metrics = Metrics::default();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Self {
            informers: Informers::new(client.clone(), Options::default(), metrics.clone()),
            recorder: Recorder::start(client.clone(), clock.clone(), name, &metrics),
            leadership: Leadership::always(),
            field_manager: name.into(),
            client,
            clock,
            metrics,
        }
    }

    /// The same with another clock. Call it before anything is recorded.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        let name = self.field_manager.clone();
        self.recorder = Recorder::start(self.client.clone(), clock.clone(), &name, &self.metrics);
        self.clock = clock;
        self
    }

    /// The same, at work only while `leadership` is ours.
    #[must_use]
    pub fn with_leadership(mut self, leadership: Leadership) -> Self {
        self.leadership = leadership;
        self
    }

    /// The same caches and leadership, for writes through another client and under another name: a controller's
    /// requests are made with its own rights.
    #[must_use]
    pub fn acting_as(&self, client: Client, field_manager: &str) -> Self {
        Self { client, field_manager: field_manager.into(), ..self.clone() }
    }

    /// Stops what runs behind the context, after its controllers have returned.
    pub async fn stop(&self) {
        self.informers.stop().await;
        self.recorder.stop().await;
    }
}

impl std::fmt::Debug for Ctx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ctx").field("field_manager", &self.field_manager).finish_non_exhaustive()
    }
}
