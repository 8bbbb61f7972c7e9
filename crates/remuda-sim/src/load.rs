//! Load on a running server: many clusters at once, and how long they take.
//!
//! The server is somebody else's; providers and workload clusters run here, behind one listener.

mod options;
mod report;
mod steps;
mod tracker;

use std::{sync::Arc, time::Duration};

use remuda_control::{Ctx, clock::SystemClock};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

pub use self::{
    options::{After, LoadOptions, Progress, Stage},
    report::{LoadReport, Percentiles},
};
use self::{steps::Run, tracker::Tracker};
use crate::{
    define::DefineError,
    objects::Shape,
    providers,
    workload::{Workloads, listen},
};

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("listen on {address}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error("{verb} {what}")]
    Api { verb: &'static str, what: String, source: kube::Error },
    #[error(transparent)]
    Define(#[from] DefineError),
    #[error("{done} of {total} clusters were there after {after:?}; {example}")]
    TimedOut { done: usize, total: usize, after: Duration, example: String },
    #[error("no Machine came of a changed template within {after:?}")]
    NoNewMachine { after: Duration },
    #[error("MachineDeployment {name} did not replace its Machines within {after:?}")]
    NotRolledOut { name: String, after: Duration },
    #[error("told to stop")]
    Stopped,
}

/// Puts load on the server behind `options.client`, and tells how it took it.
pub async fn run_load(options: LoadOptions) -> Result<LoadReport, LoadError> {
    let address = options.listen;
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|source| LoadError::Listen { address, source })?;
    let stop = CancellationToken::new();
    let ctx = Arc::new(Ctx::new(options.client.clone(), "remuda-sim"));
    let workloads = Workloads::new(options.providers.seed, Arc::new(SystemClock));
    let outer = options.stop.clone();
    let mut run = Run::new(options, ctx.clone(), workloads.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn({
        let (workloads, stop) = (workloads.clone(), stop.clone());
        async move {
            if let Err(error) = listen::serve(workloads, listener, stop).await {
                tracing::error!(%error, "workload listener failed");
            }
        }
    });
    while workloads.address().is_none() {
        tokio::task::yield_now().await;
    }
    let work = async {
        run.install().await?;
        let (ctx, options) = (ctx.clone(), run.options.providers.clone());
        tasks.spawn(providers::run(ctx, options, workloads.clone(), stop.clone()));
        run.all().await
    };
    let result = tokio::select! {
        // Being told to stop is how a held run ends well.
        biased;
        result = work => result,
        () = outer.cancelled() => Err(LoadError::Stopped),
    };
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    ctx.stop().await;
    result
}

impl Run {
    async fn all(&mut self) -> Result<LoadReport, LoadError> {
        let tracker = Arc::new(Tracker::new(self.shapes()));
        let followed = tracker.follow(&self.ctx);
        let before = self.revision().await?;
        let mut report = self.provision(&tracker).await?;
        report.store_writes = self.revision().await?.checked_sub(before);
        if !self.options.idle.is_zero() {
            self.idle(&mut report).await?;
        }
        if self.options.template_changes > 0 {
            report.template_change = Some(self.change_templates(0).await?);
        }
        if self.options.unreachable > 0.0 {
            report.unreachable = self.cut_off();
            self.pause(Stage::CutOff, self.options.unreachable_for).await;
            if self.options.template_changes > 0 {
                report.template_change_while_unreachable =
                    Some(self.change_templates(self.options.template_changes).await?);
            }
            self.reconnect();
        }
        report.workload_requests = self.workloads.requests();
        match self.options.after {
            After::Keep => {}
            After::Hold(duration) => tokio::select! {
                () = self.pause(Stage::Hold, duration) => {}
                () = self.options.stop.cancelled() => {}
            },
            After::Delete => self.delete(&mut report).await?,
        }
        drop(followed);
        Ok(report)
    }

    pub(crate) fn shapes(&self) -> Vec<Shape> {
        let options = &self.options;
        (0..options.clusters)
            .map(|number| {
                let name = format!("{}-{number}", options.prefix);
                Shape::new(&options.namespace, &name, options.control_planes, options.workers)
            })
            .collect()
    }
}
