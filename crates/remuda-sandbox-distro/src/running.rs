//! A node that runs, and how it stops.

use std::{sync::Arc, time::Duration};

use remuda_apiserver::ApiServer;
use remuda_store::Store;
use rustls::ServerConfig;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{
    config::Settings,
    control::Control,
    kubelet,
    listen::{self, Health, ListenError},
};

/// What runs behind a node, while it is being put together.
#[derive(Default)]
pub struct Background {
    /// Everything that is no listener ends.
    pub stop: CancellationToken,
    /// Listeners end, after those who need them.
    pub serving: CancellationToken,
    /// Cancelled when the node cannot go on.
    pub failed: CancellationToken,
    /// Connections of the listeners.
    pub tasks: TaskTracker,
    pub control: Option<Control>,
    pub kubelet: Option<kubelet::Handle>,
    /// Where the health of components is, with the ports that were chosen.
    pub health_ports: Vec<(&'static str, u16)>,
    work: TaskTracker,
}

impl Background {
    pub fn new(stop: CancellationToken) -> Background {
        Background { stop, ..Background::default() }
    }

    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.work.spawn(task);
    }

    /// Answers for a component on a port of the loopback addresses.
    pub async fn health(
        &mut self,
        name: &'static str,
        port: u16,
        tls: Option<Arc<ServerConfig>>,
        health: Health,
    ) -> Result<(), ListenError> {
        let listeners = listen::bind_local(port).await?;
        let port =
            listeners.first().and_then(|listener| listener.local_addr().ok()).map_or(port, |at| at.port());
        self.health_ports.push((name, port));
        for listener in listeners {
            let (stop, tasks) = (self.serving.clone(), self.tasks.clone());
            self.spawn(listen::serve_health(listener, tls.clone(), health.clone(), stop, tasks));
        }
        Ok(())
    }
}

/// A running node.
pub struct Running {
    pub settings: Settings,
    pub api_port: u16,
    pub supervisor_port: u16,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) etcd: JoinSet<()>,
    pub(crate) end_etcd: Option<CancellationToken>,
    api: Option<ApiServer>,
    background: Background,
}

/// Stopping takes no longer than what service managers wait, whatever others do.
const KUBELET: Duration = Duration::from_secs(30);
const CONTROL: Duration = Duration::from_secs(3);
const CONNECTIONS: Duration = Duration::from_secs(3);
const STORE: Duration = Duration::from_secs(2);
const ETCD: Duration = Duration::from_secs(6);

impl Running {
    pub(crate) fn new(
        settings: Settings,
        background: Background,
        api_port: u16,
        supervisor_port: u16,
        api: Option<ApiServer>,
    ) -> Running {
        Running {
            settings,
            api_port,
            supervisor_port,
            store: None,
            etcd: JoinSet::new(),
            end_etcd: None,
            api,
            background,
        }
    }

    /// The API of a server that has one of its own.
    pub fn api(&self) -> Option<&ApiServer> {
        self.api.as_ref()
    }

    /// The port on which a component's health is.
    pub fn health_port(&self, name: &str) -> Option<u16> {
        self.background.health_ports.iter().find(|(known, _)| *known == name).map(|(_, port)| *port)
    }

    /// Returns when the node cannot go on.
    pub async fn failed(&self) {
        self.background.failed.cancelled().await;
    }

    /// Ends pods' processes, controllers, connections, the store and etcd, in this order.
    pub async fn shutdown(mut self) {
        info!("stopping");
        self.background.stop.cancel();
        if let Some(kubelet) = self.background.kubelet.take()
            && timeout(KUBELET, kubelet.ended()).await.is_err()
        {
            warn!("some processes of pods did not end in time");
        }
        if let Some(control) = self.background.control.take()
            && timeout(CONTROL, control.shutdown()).await.is_err()
        {
            warn!("some controllers did not end in time");
        }
        self.background.serving.cancel();
        self.background.work.close();
        self.background.tasks.close();
        let ended = async {
            if let Some(api) = &self.api {
                api.shutdown().await;
            }
            self.background.work.wait().await;
            self.background.tasks.wait().await;
        };
        if let Some(end) = self.end_etcd.as_ref().filter(|_| self.store.is_none()) {
            end.cancel();
        }
        if timeout(CONNECTIONS, ended).await.is_err() {
            warn!("some connections did not end in time and are cut");
        }
        if let Some(store) = &self.store
            && timeout(STORE, store.close()).await.is_err()
        {
            warn!("the store is slow to close; what was acknowledged is safe");
        }
        if let Some(end) = &self.end_etcd {
            end.cancel();
        }
        let ended = async { while self.etcd.join_next().await.is_some() {} };
        if timeout(ETCD, ended).await.is_err() {
            warn!("etcd did not end in time");
        }
    }
}
