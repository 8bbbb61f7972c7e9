//! The controllers: started when the API serves, stopped before it does not.
//!
//! They use the API as any client does, only without sockets. Each component has a user, a field manager and rights
//! of its own ([`component`]): a controller that is talked into something can do no more than its work needs.
//! Whether they work, wait or fail is no concern of the API: it is ready without them.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kube::{Client, api::ApiResource};
use prometheus_client::registry::Registry;
use remuda_apiserver::ApiServer;
use remuda_auth::component;
use remuda_control::{Ctx, first_of, leases::Elector};
use remuda_names::PROGRAM;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::error;

pub use remuda_auth::component::Component;

type RunFn = Arc<dyn Fn(Arc<Ctx>, CancellationToken) -> BoxFuture<'static, ()> + Send + Sync>;

/// A group of controllers. Runs until told to stop and has ended its work when it returns. It is started again if
/// it ends otherwise.
#[derive(Clone)]
pub struct Run {
    component: Component,
    run: RunFn,
}

/// A group of controllers from the function that runs it. Its context acts as the component.
pub fn group<F>(
    component: Component,
    run: impl Fn(Arc<Ctx>, CancellationToken) -> F + Send + Sync + 'static,
) -> Run
where
    F: Future<Output = ()> + Send + 'static,
{
    Run { component, run: Arc::new(move |ctx, stop| Box::pin(run(ctx, stop))) }
}

/// The same, from the first object of these kinds on. A server that has none of them is spared the caches.
pub fn group_of<F>(
    component: Component,
    kinds: Vec<ApiResource>,
    run: impl Fn(Arc<Ctx>, CancellationToken) -> F + Send + Sync + 'static,
) -> Run
where
    F: Future<Output = ()> + Send + 'static,
{
    let (kinds, run) = (Arc::new(kinds), Arc::new(run));
    group(component, move |ctx, stop| {
        let (kinds, run) = (kinds.clone(), run.clone());
        async move {
            if first_of(&ctx.client, &kinds, &stop).await {
                run(ctx, stop).await;
            }
        }
    })
}

/// The Lease for which servers on one store compete.
const LEASE: (&str, &str) = ("kube-system", "remuda-controllers");
/// Between the end of a group that should not end and its next start.
const PAUSE: Duration = Duration::from_secs(5);

/// The contexts of all components: they share caches and leadership, and each acts as itself.
#[derive(Clone)]
pub struct Contexts {
    api: ApiServer,
    shared: Arc<Ctx>,
}

impl Contexts {
    /// The context whose requests are made as `component`.
    pub fn of(&self, component: Component) -> Arc<Ctx> {
        if component == Component::Shared {
            return self.shared.clone();
        }
        Arc::new(self.shared.acting_as(client(&self.api, component), &component.field_manager()))
    }
}

fn client(api: &ApiServer, component: Component) -> Client {
    Client::new(api.client_service(component.user()), "default")
}

/// What runs on the API in this process.
pub(crate) struct Controllers {
    pub(crate) contexts: Contexts,
    elector: Option<Elector>,
    groups: JoinSet<()>,
    election: JoinSet<()>,
    stop: CancellationToken,
    resign: CancellationToken,
}

impl Controllers {
    /// A context on this API, with nothing running yet. With an `identity` only one of the servers
    /// on the store works at a time.
    pub(crate) fn new(api: &ApiServer, identity: Option<&str>) -> Self {
        component::grant(api.policy());
        let client = client(api, Component::Shared);
        let mut ctx = Ctx::new(client.clone(), PROGRAM);
        // The caches are shared, and others ask for Machines before the controllers of Cluster API do.
        remuda_capi::prepare(&ctx.informers);
        let elector = identity.map(|identity| {
            let (namespace, name) = LEASE;
            Elector::new(client, namespace, name, identity, ctx.clock.clone(), ctx.metrics.clone())
        });
        if let Some(elector) = &elector {
            ctx = ctx.with_leadership(elector.leadership());
        }
        Self {
            contexts: Contexts { api: api.clone(), shared: Arc::new(ctx) },
            elector,
            groups: JoinSet::new(),
            election: JoinSet::new(),
            stop: CancellationToken::new(),
            resign: CancellationToken::new(),
        }
    }

    /// Starts the groups; where there are none, nobody competes for anything.
    pub(crate) fn start(&mut self, groups: Vec<Run>) {
        if groups.is_empty() {
            return;
        }
        if let Some(elector) = self.elector.take() {
            self.election.spawn(elector.run(self.resign.clone()));
        }
        for run in groups {
            self.groups.spawn(supervise(run.run, self.contexts.of(run.component), self.stop.clone()));
        }
    }

    /// Runs something beside the groups, in every server.
    pub(crate) fn keep(&mut self, run: Run) {
        self.groups.spawn(supervise(run.run, self.contexts.of(run.component), self.stop.clone()));
    }

    /// Does something until it is done or the server stops.
    pub(crate) fn attend(&mut self, chore: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.groups.spawn(async move {
            stop.run_until_cancelled(chore).await;
        });
    }

    /// The context of a component.
    pub(crate) fn ctx(&self, component: Component) -> Arc<Ctx> {
        self.contexts.of(component)
    }

    /// What the controllers count.
    pub(crate) fn metrics(&self) -> Registry {
        let mut registry = Registry::default();
        self.contexts.shared.metrics.register(&mut registry);
        registry
    }

    /// Lets reconciles end, then what is behind them, and only then others take over. Cut off where
    /// it stands when dropped.
    pub(crate) async fn shutdown(mut self) {
        self.stop.cancel();
        while self.groups.join_next().await.is_some() {}
        self.contexts.shared.stop().await;
        self.resign.cancel();
        while self.election.join_next().await.is_some() {}
    }
}

/// Runs a group again when it ends or panics without having been told to stop: the API and the other
/// groups go on meanwhile.
async fn supervise(run: RunFn, ctx: Arc<Ctx>, stop: CancellationToken) {
    let mut attempt = JoinSet::new();
    loop {
        attempt.spawn(run(ctx.clone(), stop.clone()));
        let ended = attempt.join_next().await;
        if stop.is_cancelled() {
            return;
        }
        match ended {
            Some(Err(panic)) => {
                error!(error = %panic, "a group of controllers broke down and is started again");
            }
            _ => error!("a group of controllers ended by itself and is started again"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

#[cfg(test)]
mod tests;
