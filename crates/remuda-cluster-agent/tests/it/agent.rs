//! A running agent.

use std::time::Duration;

use remuda_cluster_agent::{Config, Options, serve};
use remuda_tunnel::client::{Backoff, Link};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::world::soon;

pub(crate) struct Agent {
    link: watch::Receiver<Link>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Agent {
    /// With no more patience than tests have.
    pub(crate) fn start(config: Config) -> Agent {
        let moment = Duration::from_millis(1);
        let options = Options {
            backoff: Backoff { first: moment, max: 4 * moment, settled: moment },
            refresh: Duration::from_millis(40),
            ..Options::default()
        };
        let (sender, link) = watch::channel(Link::default());
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(serve(config, options, sender, stop.clone()));
        Agent { link, stop, task }
    }

    /// The reason it gives for not being connected.
    pub(crate) async fn complaint(&mut self) -> String {
        let state = soon(self.link.wait_for(|link| matches!(link, Link::Waiting { .. }))).await.unwrap();
        match &*state {
            Link::Waiting { error, .. } => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn connected(&mut self) {
        soon(self.link.wait_for(|link| matches!(link, Link::Connected))).await.unwrap();
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        soon(self.task.join_next()).await.unwrap().unwrap();
    }
}
