//! The node's own part: its Node object, its heartbeat, and the processes of its Pods.

pub mod channels;
pub mod containers;
pub mod env;
pub mod exec;
pub mod forward;
pub mod image;
pub mod live;
pub mod log;
pub mod node;
pub mod over_spdy;
pub mod pod;
pub mod probe;
pub mod process;
pub mod pty;
pub mod remote;
pub mod serve;
pub mod status;
pub mod volumes;

use std::{collections::HashMap, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Client, ResourceExt, core::PartialObjectMeta};
use parking_lot::Mutex;
use remuda_control::{Action, Controller, Ctx, Informer, ObjectKey, Scope, drive_keys};
use remuda_names::node as names;
use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::debug;

use self::{live::Live, serve::Endpoint};
use crate::{
    balance::Backends,
    config::Settings,
    files::{self, FileError, PRIVATE},
    listen::{self, ListenError},
    pki::Issued,
    tls::{self, Clients, TlsError},
};

#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// What a kubelet needs.
pub struct Kubelet {
    pub settings: Settings,
    /// As the node.
    pub client: Client,
    /// Where Pods find the API.
    pub api: (IpAddr, u16),
    /// An agent's way to the servers.
    pub backends: Option<Backends>,
    /// In words, on servers.
    pub datastore: Option<String>,
    /// Name and address of the member of etcd here.
    pub etcd_member: Option<(String, String)>,
    /// The server here has keys for Secrets, and tells which.
    pub encryption: bool,
    /// `host:port` of the API here, on servers.
    pub api_address: Option<String>,
    pub serving: Serving,
}

/// What a kubelet shows to those who come to it, and whom it believes.
pub struct Serving {
    pub certificate: Issued,
    pub client_ca: String,
}

/// A kubelet that runs.
pub struct Handle {
    work: JoinSet<()>,
    /// Streams of clients.
    streams: TaskTracker,
}

impl Handle {
    /// Returns when all processes have ended.
    pub async fn ended(mut self) {
        while self.work.join_next().await.is_some() {}
        self.streams.close();
        self.streams.wait().await;
    }
}

/// Shared by everything on the node.
pub struct Shared {
    pub kubelet: Kubelet,
    pub ctx: Arc<Ctx>,
    /// The program that becomes a Pod's process.
    pub program: Option<PathBuf>,
    pub address: IpAddr,
    /// Where this kubelet answers.
    pub port: u16,
    pub live: Live,
    pub stop: CancellationToken,
}

impl Kubelet {
    pub async fn start(self, stop: CancellationToken) -> Result<Handle, KubeletError> {
        files::private_dir(&self.settings.paths.pods())?;
        let ctx = Arc::new(Ctx::new(self.client.clone(), "kubelet"));
        let address = crate::address::of_node(&self.settings);
        let program = self.settings.launcher.clone().or_else(|| std::env::current_exe().ok());
        let listener = listen::bind(self.settings.bind, self.settings.ports.kubelet).await?;
        let port = listener.local_addr().map_or(self.settings.ports.kubelet, |address| address.port());
        let clients = Clients::new(&self.serving.client_ca)?;
        let tls = tls::kubelet_config(&self.serving.certificate, clients.clone())?;
        let live = Live::default();
        let shared =
            Arc::new(Shared { kubelet: self, ctx, program, address, port, live, stop: stop.clone() });
        let mut work = JoinSet::new();
        let streams = TaskTracker::new();
        let endpoint = Endpoint::new(shared.clone(), pods_of(&shared), clients, streams.clone());
        work.spawn(listen::serve(listener, tls, endpoint, stop, streams.clone()));
        work.spawn(node::run(shared.clone()));
        if shared.kubelet.backends.is_some() {
            work.spawn(follow_servers(shared.clone()));
        }
        work.spawn(run_pods(shared));
        Ok(Handle { work, streams })
    }
}

/// The Pods of this node, each in a task of its own.
struct Pods {
    shared: Arc<Shared>,
    informer: Informer<Pod>,
    running: Mutex<HashMap<String, pod::Handle>>,
    tasks: TaskTracker,
}

/// The Pods of this node, as the API has them.
fn pods_of(shared: &Shared) -> Informer<Pod> {
    let field = format!("spec.nodeName={}", shared.kubelet.settings.node_name);
    shared.ctx.informers.of(Scope::all().with_fields(field))
}

async fn run_pods(shared: Arc<Shared>) {
    let ctx = shared.ctx.clone();
    let informer = pods_of(&shared);
    let stop = shared.stop.clone();
    forget_strangers(&shared, &informer).await;
    let controller = Controller::on("kubelet", &ctx, informer.clone()).grace(Duration::from_secs(1));
    let pods = Arc::new(Pods { shared, informer, running: Mutex::default(), tasks: TaskTracker::new() });
    let reconcile = |key: ObjectKey, pods: Arc<Pods>| async move {
        pods.sync(&key);
        Ok::<_, std::convert::Infallible>(Action::AwaitChange)
    };
    drive_keys(controller, reconcile, pods.clone(), stop).await;
    pods.tasks.close();
    pods.tasks.wait().await;
    ctx.stop().await;
}

/// Removes what Pods of a former life have left, once it is known which Pods there are.
async fn forget_strangers(shared: &Shared, informer: &Informer<Pod>) {
    tokio::select! {
        () = shared.stop.cancelled() => return,
        () = informer.wait_synced() => {}
    }
    let known: Vec<String> = informer.list().iter().filter_map(|pod| pod.uid()).collect();
    let entries = std::fs::read_dir(shared.kubelet.settings.paths.pods());
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !known.contains(&name) {
            volumes::remove(&entry.path());
        }
    }
}

impl Pods {
    /// Tells the Pod's task what is so now.
    fn sync(&self, key: &ObjectKey) {
        let current = self.informer.get(key);
        let uid = current.as_ref().and_then(|pod| pod.uid()).unwrap_or_default();
        let mut running = self.running.lock();
        running.retain(|_, handle| !handle.is_over());
        // A Pod of the same name and another uid takes the place of one that is gone.
        for (known, handle) in running.iter() {
            if handle.key == *key && *known != uid {
                handle.gone();
            }
        }
        let Some(pod) = current else { return };
        match running.get(&uid) {
            Some(handle) => handle.update(pod),
            None => {
                debug!(pod = %key, "pod is new here");
                let handle = pod::start(self.shared.clone(), key.clone(), pod, &self.tasks);
                running.insert(uid, handle);
            }
        }
    }
}

/// Keeps an agent's list of servers up to date, and on disk for the next start.
async fn follow_servers(shared: Arc<Shared>) {
    let Some(backends) = shared.kubelet.backends.clone() else { return };
    let nodes: Informer<PartialObjectMeta<Node>> = shared.ctx.informers.metadata::<Node>(Scope::all());
    let (told, mut changed) = tokio::sync::watch::channel(());
    let _subscription = nodes.subscribe(move |_| told.send_modify(|()| {}));
    let file = shared.kubelet.settings.paths.agent("etc/sandbox-load-balancer.json");
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return,
            changed = changed.changed() => if changed.is_err() { return },
        }
        if !nodes.is_synced() {
            continue;
        }
        let servers =
            nodes.list().iter().filter_map(|node| node.annotations().get(names::API).cloned()).collect();
        if backends.replace(servers) {
            let text = serde_json::to_string(&backends.list()).unwrap_or_default();
            let _ = files::keep(&file, text.as_bytes(), PRIVATE);
        }
    }
}
