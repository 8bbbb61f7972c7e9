//! Agents in clusters: one tunnel for each cluster, from the moment its API answers.
//!
//! Reads   provisioning Clusters and their registration tokens.
//! Writes  nothing: what it uploads, the server writes.

use std::{collections::HashMap, io, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use parking_lot::Mutex;
use remuda_api::provisioning::Cluster;
use remuda_control::{Action, Controller, ObjectKey, Scope, drive_keys};
use remuda_names::{
    gateway::{path::CONNECT_REGISTER, secret::TOKEN_PREFIX},
    rancher::{name::DEFAULT_TOKEN, secret_key},
};
use remuda_tunnel::{
    client::{self, Backoff, BoxError, Link, handshake},
    dial::{BoxIo, Inbound},
    server::{PARAMS_HEADER, TOKEN_HEADER},
    session::SessionOptions,
    socket::BoxSocket,
};
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Error, Fleet};
use crate::workload::{WorkloadCluster, listen};

/// Where the API of every cluster is, for its agent.
const HOST: &str = "10.43.0.1";
const PORT: u16 = 443;
/// Bytes between an agent and its cluster.
const PIPE: usize = 32 << 10;

struct Tunnels {
    fleet: Arc<Fleet>,
    identity: Identity,
    open: Mutex<HashMap<ObjectKey, CancellationToken>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// How API servers of clusters are known. All of them share a certificate, since only their agents reach them.
struct Identity {
    acceptor: TlsAcceptor,
    /// PEM.
    certificate: String,
}

impl Identity {
    fn new() -> Result<Self, BoxError> {
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(tls)), certificate: made.cert.pem() })
    }
}

pub(super) async fn run(fleet: Arc<Fleet>, stop: CancellationToken) {
    let identity = match Identity::new() {
        Ok(identity) => identity,
        Err(error) => {
            tracing::error!(%error, "no certificate for simulated clusters");
            return;
        }
    };
    let root = fleet.ctx.informers.of::<Cluster>(Scope::all());
    let controller = Controller::on("simulated-cluster-agent", &fleet.ctx, root.clone()).workers(4);
    let _ = fleet.tunnels.set(controller.enqueuer());
    let tunnels = Arc::new(Tunnels {
        fleet,
        identity,
        open: Mutex::default(),
        tasks: TaskTracker::new(),
        stop: stop.clone(),
    });
    let reconcile = move |key: ObjectKey, tunnels: Arc<Tunnels>| {
        let cluster = root.get(&key);
        async move {
            match cluster {
                Some(cluster) => tunnels.open(&key, &cluster),
                None => tunnels.close(&key),
            }
            Ok::<_, Error>(Action::AwaitChange)
        }
    };
    drive_keys(controller, reconcile, tunnels.clone(), stop).await;
    tunnels.tasks.close();
    tunnels.tasks.wait().await;
}

impl Tunnels {
    /// Starts the agent of a cluster whose API answers.
    fn open(self: &Arc<Self>, key: &ObjectKey, cluster: &Cluster) {
        let managed = cluster.status.as_ref().map(|status| status.cluster_name.clone()).unwrap_or_default();
        let Some(world) = self.fleet.workloads.get(key).filter(|world| world.is_serving()) else { return };
        if managed.is_empty() {
            return;
        }
        let mut open = self.open.lock();
        if open.contains_key(key) {
            return;
        }
        let stop = self.stop.child_token();
        open.insert(key.clone(), stop.clone());
        let tunnels = self.clone();
        self.tasks.spawn(async move {
            let inbound = tunnels.inbound(&world);
            let connector = {
                let tunnels = tunnels.clone();
                move |_: HeaderMap| {
                    let (tunnels, world, managed) = (tunnels.clone(), world.clone(), managed.clone());
                    async move { tunnels.connect(&world, &managed).await }
                }
            };
            let (session, backoff, link) =
                (SessionOptions::default(), Backoff::default(), watch::Sender::<Link>::default());
            client::run(connector, HeaderMap::new(), inbound, session, backoff, &link, &stop).await;
        });
    }

    fn close(&self, key: &ObjectKey) {
        if let Some(stop) = self.open.lock().remove(key) {
            stop.cancel();
        }
        self.fleet.control_planes.lock().remove(key);
        self.fleet.workloads.remove(key);
    }

    /// Connections the server asks for end in the cluster's API.
    fn inbound(&self, world: &Arc<WorkloadCluster>) -> Inbound {
        let (world, acceptor, tasks) =
            (Arc::downgrade(world), self.identity.acceptor.clone(), self.tasks.clone());
        Inbound::all(move |proto: String, address: String| {
            let (world, acceptor, tasks) = (world.upgrade(), acceptor.clone(), tasks.clone());
            async move {
                let here = proto == "tcp" && address == format!("{HOST}:{PORT}");
                let world = world.filter(|world| here && world.is_serving());
                let refused = || {
                    let text = format!("dial {proto} {address}: connect: connection refused");
                    io::Error::new(io::ErrorKind::ConnectionRefused, text)
                };
                let world = world.ok_or_else(refused)?;
                let (near, far) = tokio::io::duplex(PIPE);
                tasks.spawn(async move {
                    if let Ok(stream) = acceptor.accept(far).await {
                        listen::serve_one(world, stream).await;
                    }
                });
                Ok(Box::new(near) as BoxIo)
            }
        })
    }

    /// One attempt to connect, with the token as it is now.
    async fn connect(&self, world: &WorkloadCluster, managed: &str) -> Result<BoxSocket, BoxError> {
        let secrets: Api<Secret> = Api::namespaced(self.fleet.ctx.client.clone(), managed);
        let secret = secrets.get(&format!("{TOKEN_PREFIX}{DEFAULT_TOKEN}")).await?;
        let token = secret.data.as_ref().and_then(|data| data.get(secret_key::TOKEN));
        let token = token.ok_or("the registration token is not there yet")?;
        let params = json!({"cluster": {
            "address": format!("{HOST}:{PORT}"),
            "token": world.token(),
            "caCert": BASE64_STANDARD.encode(&self.identity.certificate),
        }});
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(TOKEN_HEADER), HeaderValue::from_bytes(&token.0)?);
        let params = HeaderValue::try_from(BASE64_STANDARD.encode(params.to_string()))?;
        headers.insert(HeaderName::from_static(PARAMS_HEADER), params);
        let door = &self.fleet.door;
        let uri: Uri = format!("wss://{}{CONNECT_REGISTER}", door.authority()).parse()?;
        let socket = handshake(door.open().await?, &uri, &headers).await?;
        Ok(Box::new(socket))
    }
}
