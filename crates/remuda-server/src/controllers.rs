//! The controllers: started when the API serves, stopped before it does not.
//!
//! They use the API as any client does, only without sockets and as a user who may do everything.
//! Whether they work, wait or fail is no concern of the API: it is ready without them.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kube::{Client, api::ApiResource};
use prometheus_client::registry::Registry;
use remuda_apiserver::ApiServer;
use remuda_auth::identity::{GROUP_AUTHENTICATED, User};
use remuda_control::{Ctx, first_of, leases::Elector};
use remuda_names::{PROGRAM, user};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// A group of controllers. Runs until told to stop and has ended its work when it returns. It is started again if
/// it ends otherwise.
pub type Run = Arc<dyn Fn(Arc<Ctx>, CancellationToken) -> BoxFuture<'static, ()> + Send + Sync>;

/// A group of controllers from the function that runs it.
pub fn group<F>(run: impl Fn(Arc<Ctx>, CancellationToken) -> F + Send + Sync + 'static) -> Run
where
    F: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |ctx, stop| Box::pin(run(ctx, stop)))
}

/// The same, from the first object of these kinds on. A server that has none of them is spared the caches.
pub fn group_of<F>(
    kinds: Vec<ApiResource>,
    run: impl Fn(Arc<Ctx>, CancellationToken) -> F + Send + Sync + 'static,
) -> Run
where
    F: Future<Output = ()> + Send + 'static,
{
    let (kinds, run) = (Arc::new(kinds), Arc::new(run));
    group(move |ctx, stop| {
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

/// What runs on the API in this process.
pub(crate) struct Controllers {
    pub(crate) ctx: Arc<Ctx>,
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
        let who = User::new(user::CONTROLLERS, [user::MASTERS, GROUP_AUTHENTICATED]);
        let client = Client::new(api.client_service(who), "default");
        let mut ctx = Ctx::new(client.clone(), PROGRAM);
        let elector = identity.map(|identity| {
            let (namespace, name) = LEASE;
            Elector::new(client, namespace, name, identity, ctx.clock.clone(), ctx.metrics.clone())
        });
        if let Some(elector) = &elector {
            ctx = ctx.with_leadership(elector.leadership());
        }
        Self {
            ctx: Arc::new(ctx),
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
            self.groups.spawn(supervise(run, self.ctx.clone(), self.stop.clone()));
        }
    }

    /// Runs something beside the groups, in every server.
    pub(crate) fn keep(&mut self, run: Run) {
        self.groups.spawn(supervise(run, self.ctx.clone(), self.stop.clone()));
    }

    /// Does something until it is done or the server stops.
    pub(crate) fn attend(&mut self, chore: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.groups.spawn(async move {
            stop.run_until_cancelled(chore).await;
        });
    }

    /// What the controllers count.
    pub(crate) fn metrics(&self) -> Registry {
        let mut registry = Registry::default();
        self.ctx.metrics.register(&mut registry);
        registry
    }

    /// Lets reconciles end, then what is behind them, and only then others take over. Cut off where
    /// it stands when dropped.
    pub(crate) async fn shutdown(mut self) {
        self.stop.cancel();
        while self.groups.join_next().await.is_some() {}
        self.ctx.stop().await;
        self.resign.cancel();
        while self.election.join_next().await.is_some() {}
    }
}

/// Runs a group again when it ends or panics without having been told to stop: the API and the other
/// groups go on meanwhile.
async fn supervise(run: Run, ctx: Arc<Ctx>, stop: CancellationToken) {
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
