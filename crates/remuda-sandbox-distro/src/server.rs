//! A server: the datastore, the API on it, the control plane, and a node like every other.

pub mod front;
pub mod kubelets;
pub mod state;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use jiff::Timestamp;
use kube::Client;
use remuda_apiserver::{ApiServer, Config, Controllers, Limits};
use remuda_auth::{
    identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, GROUP_NODES, NODE_PREFIX, User},
    jwt::{DEFAULT_ISSUER, LEGACY_ISSUER, issue::Issuer, verify::Verifier},
    tokens::StaticTokens,
};
use remuda_names::user;
use remuda_store::Store;
use tokio::net::TcpListener;
use tracing::{info, warn};

use self::{
    front::{Front, Parts},
    kubelets::Connections,
    state::{Mode, State, StateError},
};
use crate::{
    address,
    balance::{self, Backends},
    client,
    config::{ComponentArgs, Settings},
    control::{self, Control},
    deploy,
    distribution::Distribution,
    encryption::{
        self, Encryption,
        server::{Kept, Rotation},
    },
    etcd::{EtcdError, Members},
    files::{self, FileError, PRIVATE, PUBLIC},
    kubelet::{self, Kubelet},
    listen::{self, Health, ListenError},
    pki::{self, Issued, Pki, PkiError},
    running::{Background, Running},
    snapshot::{self, Bundle, Snapshots, Source, bundle},
    tls::{self, Clients, Serving, TlsError},
    token::{self, Token},
    webhook::{self, Webhook},
};

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("start the API")]
    Api(#[source] remuda_apiserver::StartError),
    #[error("use the service-account key")]
    Key(#[source] remuda_auth::keys::KeyError),
    #[error(transparent)]
    Token(#[from] token::TokenError),
    #[error(transparent)]
    Client(#[from] client::ClientError),
    #[error(transparent)]
    Kubelet(#[from] kubelet::KubeletError),
    #[error(transparent)]
    Webhook(#[from] webhook::WebhookError),
    #[error("keep the identity of the cluster with its state")]
    Bundle(#[from] EtcdError),
}

/// Names in the serving certificate from the start. Addresses clients come to are added.
pub fn serving_names(settings: &Settings) -> BTreeSet<String> {
    let fixed = [
        "localhost",
        "127.0.0.1",
        "::1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        settings.distribution.service_address(),
        settings.node_name.as_str(),
    ];
    let addresses = settings.node_ips.iter().chain(&settings.external_ips).map(ToString::to_string);
    let mut names: BTreeSet<String> = fixed.into_iter().map(str::to_owned).chain(addresses).collect();
    names.insert(address::of_node(settings).to_string());
    names.extend(settings.tls_sans.iter().cloned());
    names
}

/// The listeners of a server, with the ports they got.
struct Doors {
    api: TcpListener,
    supervisor: Option<TcpListener>,
    api_port: u16,
    supervisor_port: u16,
}

impl Doors {
    async fn open(settings: &Settings) -> Result<Doors, ListenError> {
        let port = |listener: &TcpListener| listener.local_addr().map_or(0, |address| address.port());
        let api = listen::bind(settings.bind, settings.ports.api).await?;
        let apart = settings.distribution == Distribution::Rke2;
        let supervisor = match apart {
            true => Some(listen::bind(settings.bind, settings.ports.supervisor).await?),
            false => None,
        };
        let (api_port, supervisor_port) = (port(&api), supervisor.as_ref().map(port));
        Ok(Doors { api, supervisor, api_port, supervisor_port: supervisor_port.unwrap_or(api_port) })
    }
}

pub async fn start(settings: Settings, background: Background) -> Result<Running, ServerError> {
    let doors = Doors::open(&settings).await?;
    let mut state = state::open(&settings, &background.failed, &background.stop).await?;
    info!(mode = %state.mode.describe(&settings.node_name), "datastore");
    let started = match state.store.clone() {
        Some(store) => Box::pin(serve(settings, doors, &state, store, background)).await,
        None => follow(settings, doors, &state, background).await,
    };
    let mut running = match started {
        Ok(running) => running,
        Err(error) => {
            if let Some(store) = &state.store {
                store.close().await;
            }
            state.end_etcd.cancel();
            while state.etcd.join_next().await.is_some() {}
            return Err(error);
        }
    };
    running.store = state.store;
    running.end_etcd = Some(state.end_etcd);
    running.etcd = state.etcd;
    Ok(running)
}

/// Serves the API on a store.
async fn serve(
    settings: Settings,
    doors: Doors,
    state: &State,
    store: Arc<dyn Store>,
    mut background: Background,
) -> Result<Running, ServerError> {
    let pki = state.pki.clone();
    let host = address::of_node(&settings).to_string();
    let serving = Serving::new(pki.clone(), &settings.paths, serving_names(&settings))?;
    let clients = Clients::new(&pki.client_ca.certificate_pem())?;
    let tls = tls::api_config(serving.clone(), clients.clone())?;
    let alone = matches!(state.mode, Mode::Holder);
    let identity = (!alone).then(|| format!("{}_{}", settings.node_name, token::random_hex(4)));
    let advertise = address::join(&host, doors.api_port);
    let api =
        ApiServer::start(api_config(&pki, &settings.version, &advertise, identity.clone())?, store.clone())
            .await
            .map_err(ServerError::Api)?;
    let to_kubelets =
        tls::client_config(Some(&pki.server_ca.certificate_pem()), Some(&pki.api_server(Timestamp::now())?))?;
    let (tasks, stop) = (background.tasks.clone(), background.serving.clone());
    api.reach_kubelets(Arc::new(Connections { tls: to_kubelets, tasks, stop }));
    if let Some(args) = &settings.webhook {
        api.ask_remote(Arc::new(Webhook::load(args)?));
    }
    let masters = User::new(user::CONTROLLERS, [GROUP_MASTERS, GROUP_AUTHENTICATED]);
    let client = Client::new(api.client_service(masters), "default");
    let (server_password, agent_password) = write_tokens(&settings, &pki)?;
    let etcd = match (&state.own, &state.mode) {
        (Some(own), _) => vec![own.local_url()],
        (None, Mode::Client { endpoints }) => endpoints.clone(),
        _ => Vec::new(),
    };
    let snapshots = snapshots(&settings, state, &server_password, &client).await?;
    let encryption = rotation(&settings, state, &server_password, &client, etcd.clone(), &background)?;
    let parts = Parts {
        snapshots: snapshots.clone(),
        encryption: encryption.clone(),
        settings: settings.clone(),
        api: api.clone(),
        client: client.clone(),
        clients,
        serving,
        pki: pki.clone(),
        server_password,
        agent_password,
        host,
        api_port: doors.api_port,
        supervisor_port: doors.supervisor_port,
        own: state.own.clone(),
        etcd: etcd.clone(),
    };
    let front = Front(Arc::new(parts));
    for listener in [Some(doors.api), doors.supervisor].into_iter().flatten() {
        let (stop, tasks) = (background.serving.clone(), background.tasks.clone());
        background.spawn(listen::serve(listener, tls.clone(), front.clone(), stop, tasks));
    }
    let admin = pki.write_clients(settings.distribution.name(), Timestamp::now())?;
    write_kubeconfig(&settings, &pki, &admin, doors.api_port)?;
    open_health(&settings, store_health(&state.mode, &store), &mut background).await?;
    if alone {
        write_member_name(&settings)?;
    }

    control::bootstrap(&client, &settings, &state.mode).await;
    if let Some(snapshots) = snapshots {
        let stop = background.stop.clone();
        background.spawn(async move {
            // Files may have come and gone while the server was down, and a restore brings an old catalogue.
            let s3 = snapshots.configured();
            tokio::select! {
                () = snapshots.tell(s3.as_ref()) => {}
                () = stop.cancelled() => return,
            }
            snapshot::run_schedule(snapshots, stop).await;
        });
    }
    if let Some(encryption) = encryption {
        background.spawn(encryption.resume());
    }
    let control = Control::new(client.clone(), identity.as_deref());
    let options = control::Options {
        distribution: settings.distribution,
        scheduler: true,
        paths: settings.paths.clone(),
        etcd,
        members: state.members.clone(),
        holder: alone.then(|| settings.node_name.clone()),
    };
    if state.own.is_some() || state.members.is_some() {
        let what = (state.own.clone(), state.members.clone(), state.peers.clone());
        let following =
            state::follow_members(control.nodes(), settings.clone(), what, background.stop.clone());
        background.spawn(following);
    }
    background.control = Some(control.start(options));
    background.spawn(deploy::run(client, settings.clone(), background.stop.clone()));

    let node = User::new(format!("{NODE_PREFIX}{}", settings.node_name), [GROUP_NODES, GROUP_AUTHENTICATED]);
    let node_client = Client::new(api.client_service(node), "default");
    start_kubelet(&settings, node_client, state, doors.api_port, &mut background).await?;
    info!(%advertise, node = settings.node_name, version = settings.version, "sandbox server runs");
    Ok(Running::new(settings, background, doors.api_port, doors.supervisor_port, Some(api)))
}

/// Passes everything on to the server that keeps the state.
async fn follow(
    settings: Settings,
    doors: Doors,
    state: &State,
    mut background: Background,
) -> Result<Running, ServerError> {
    let Mode::Follower { holder, api_port, supervisor_port } = &state.mode else {
        unreachable!("every other mode has a store")
    };
    let pki = state.pki.clone();
    let ports = [(Some(doors.api), *api_port), (doors.supervisor, *supervisor_port)];
    for (listener, port) in ports.into_iter().filter_map(|(listener, port)| Some((listener?, port))) {
        let backends = Backends::new(vec![address::join(holder, port)]);
        let (stop, tasks) = (background.serving.clone(), background.tasks.clone());
        background.spawn(balance::run(listener, backends, stop, tasks));
    }
    write_tokens(&settings, &pki)?;
    let admin = pki.write_clients(settings.distribution.name(), Timestamp::now())?;
    write_kubeconfig(&settings, &pki, &admin, doors.api_port)?;
    open_health(&settings, listen::well(HEALTHY), &mut background).await?;
    write_member_name(&settings)?;

    let url = format!("https://127.0.0.1:{}", doors.api_port);
    let ca = pki.server_ca.certificate_pem();
    let client = client::connect(&url, &ca, &admin)?;
    background.spawn(deploy::run(client, settings.clone(), background.stop.clone()));
    let user = format!("{NODE_PREFIX}{}", settings.node_name);
    let kubelet = pki.client(&user, &[GROUP_NODES], Timestamp::now())?;
    let node_client = client::connect(&url, &ca, &kubelet)?;
    start_kubelet(&settings, node_client, state, doors.api_port, &mut background).await?;
    info!(holder, node = settings.node_name, "sandbox server runs");
    Ok(Running::new(settings, background, doors.api_port, doors.supervisor_port, None))
}

/// What takes snapshots on this server, if it keeps state. The identity of the cluster goes with the state.
async fn snapshots(
    settings: &Settings,
    state: &State,
    password: &str,
    client: &Client,
) -> Result<Option<Arc<Snapshots>>, ServerError> {
    let name = bundle::name(password);
    let mut files = state.pki.shared()?;
    let (source, bundle) = match (&state.own, &state.embedded) {
        (Some(own), _) => {
            let endpoint = own.local_url();
            let etcd = Members::new(&settings.paths, vec![endpoint.clone()])?;
            let stored = etcd.get(&name).await?;
            let known = stored.and_then(|stored| bundle::open(password, &stored).ok());
            // Another server may have changed the keys for Secrets since this one took them over.
            for (name, text) in known.iter().filter_map(encryption::server::of_identity).flatten() {
                match text {
                    Some(text) => files.insert(name.to_owned(), text),
                    None => files.remove(name),
                };
            }
            if known.as_ref() != Some(&files) {
                etcd.put(&name, &bundle::seal(password, &files)).await?;
            }
            (Source::Etcd { endpoint }, None)
        }
        (None, Some(store)) => {
            let bundle = Bundle { pki: state.pki.clone(), password: password.to_owned() };
            (Source::Store(store.clone()), Some(bundle))
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(Arc::new(Snapshots::new(settings.clone(), source, bundle, client.clone()))))
}

/// What changes the keys for Secrets on this server, if it has such keys and keeps state.
fn rotation(
    settings: &Settings,
    state: &State,
    password: &str,
    client: &Client,
    etcd: Vec<String>,
    background: &Background,
) -> Result<Option<Arc<Rotation>>, ServerError> {
    let kept = match (&state.embedded, &state.in_etcd) {
        (Some(store), _) => Kept::Own(store.clone()),
        (None, Some(store)) => Kept::Etcd { store: store.clone(), endpoints: etcd },
        (None, None) => return Ok(None),
    };
    if Encryption::read(&settings.paths).map_err(StateError::from)?.is_none() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Rotation {
        settings: settings.clone(),
        pki: state.pki.clone(),
        kept,
        client: client.clone(),
        password: password.to_owned(),
        stop: background.stop.clone(),
        tasks: background.tasks.clone(),
        alone: tokio::sync::Mutex::default(),
    })))
}

async fn start_kubelet(
    settings: &Settings,
    client: Client,
    state: &State,
    api_port: u16,
    background: &mut Background,
) -> Result<(), ServerError> {
    let kubelet = Kubelet {
        settings: settings.clone(),
        client,
        api: (IpAddr::from([127, 0, 0, 1]), api_port),
        backends: None,
        datastore: Some(state.mode.describe(&settings.node_name)),
        etcd_member: etcd_member(settings, state),
        encryption: state.store.is_some(),
        api_address: Some(address::join(&address::of_node(settings).to_string(), api_port)),
        serving: kubelet::Serving {
            certificate: state.pki.serving(
                &settings.node_name,
                &kubelet_names(settings),
                Timestamp::now(),
            )?,
            client_ca: state.pki.client_ca.certificate_pem(),
        },
    };
    background.kubelet = Some(kubelet.start(background.stop.clone()).await?);
    Ok(())
}

/// Names in the certificate of the kubelet.
fn kubelet_names(settings: &Settings) -> BTreeSet<String> {
    let addresses = settings.node_ips.iter().chain(&settings.external_ips).map(ToString::to_string);
    addresses.chain([address::of_node(settings).to_string(), settings.node_name.clone()]).collect()
}

/// What the Node says about etcd: the member's name and its address.
fn etcd_member(settings: &Settings, state: &State) -> Option<(String, String)> {
    let address = address::of_node(settings).to_string();
    match (&state.own, &state.mode) {
        _ if settings.disabled.etcd => None,
        (Some(own), _) => Some((own.name.clone(), address)),
        (None, Mode::Holder | Mode::Follower { .. }) => Some((front::single_member(settings), address)),
        _ => None,
    }
}

fn api_config(
    pki: &Pki,
    version: &str,
    advertise: &str,
    identity: Option<String>,
) -> Result<Config, ServerError> {
    let public = pki.service.public().map_err(ServerError::Key)?;
    let issuers = vec![DEFAULT_ISSUER.to_owned(), LEGACY_ISSUER.to_owned()];
    let verifier = Verifier::new(vec![public], issuers, vec![DEFAULT_ISSUER.to_owned()]);
    Ok(Config {
        advertise: advertise.to_owned(),
        root_ca_pem: pki.server_ca.certificate_pem(),
        issuer: Issuer::new(pki.service.clone(), DEFAULT_ISSUER),
        verifier: Arc::new(verifier),
        signer: Some(pki.client_ca.clone()),
        static_tokens: StaticTokens::default(),
        anonymous: true,
        audit: None,
        limits: Limits::default(),
        hooks: Vec::new(),
        conversions: BTreeMap::new(),
        version: Some(version.to_owned()),
        descriptions: None,
        controllers: match identity {
            None => Controllers::Always,
            Some(identity) => Controllers::Elected { identity },
        },
        clock: Timestamp::now,
        former_manager: |_| None,
        strict_fields: |_, _| false,
        watch_observer: None,
    })
}

/// Settles the tokens of the cluster and writes them where K3s does. Returns the passwords for
/// servers and for agents.
fn write_tokens(settings: &Settings, pki: &Pki) -> Result<(String, String), ServerError> {
    let paths = &settings.paths;
    let ca = pki.server_ca.certificate_pem();
    let server = state::password(settings)?.unwrap_or_else(|| token::random_hex(16));
    let agent = match &settings.agent_token {
        Some(token) => Token::parse(token)?.password,
        None => server.clone(),
    };
    let line = |user: &str, password: &str| format!("{}\n", token::full(&ca, user, password));
    files::keep(&paths.server("token"), line(token::SERVER_USER, &server).as_bytes(), PRIVATE)?;
    files::keep(&paths.server("node-token"), line(token::SERVER_USER, &server).as_bytes(), PRIVATE)?;
    files::keep(&paths.server("agent-token"), line(token::NODE_USER, &agent).as_bytes(), PRIVATE)?;
    Ok((server, agent))
}

/// A member by name only, where no etcd writes its own: plans read it on every etcd node, and find the address at
/// which others join a server without an API by it.
fn write_member_name(settings: &Settings) -> Result<(), ServerError> {
    if settings.disabled.etcd {
        return Ok(());
    }
    let name = front::single_member(settings);
    Ok(files::keep(&settings.paths.etcd().join("name"), format!("{name}\n").as_bytes(), PUBLIC)?)
}

fn write_kubeconfig(settings: &Settings, pki: &Pki, admin: &Issued, port: u16) -> Result<(), ServerError> {
    let url = format!("https://127.0.0.1:{port}");
    let text = pki::kubeconfig(&url, &pki.server_ca.certificate_pem(), admin);
    files::write(&settings.paths.server("cred/admin.kubeconfig"), text.as_bytes(), PRIVATE)?;
    // The directory may be one the node may not write to; the API is of use all the same.
    if let Err(error) = files::write(&settings.kubeconfig, text.as_bytes(), settings.kubeconfig_mode) {
        warn!(error = %remuda_control::Chain(&error), "the kubeconfig is not written");
    }
    Ok(())
}

const HEALTHY: &str = "{\"health\":\"true\",\"reason\":\"\"}";

/// Where no etcd answers for itself, the store does in its place.
fn store_health(mode: &Mode, store: &Arc<dyn Store>) -> Health {
    if matches!(mode, Mode::Member { .. }) {
        return listen::well(HEALTHY);
    }
    let store = store.clone();
    Arc::new(move || {
        let store = store.clone();
        Box::pin(async move {
            match store.health().await {
                Ok(()) => Ok(HEALTHY.to_owned()),
                Err(error) => Err(format!("{{\"health\":\"false\",\"reason\":{:?}}}", error.to_string())),
            }
        })
    })
}

/// The health of the components, on the ports probes look at.
async fn open_health(
    settings: &Settings,
    store: Health,
    background: &mut Background,
) -> Result<(), ServerError> {
    let disabled = settings.disabled;
    let components = [
        (
            "kube-controller-manager",
            disabled.controller_manager,
            &settings.controller_manager,
            settings.ports.controller_manager,
        ),
        ("kube-scheduler", disabled.scheduler, &settings.scheduler, settings.ports.scheduler),
    ];
    for (name, off, args, port) in components {
        if off {
            continue;
        }
        let issued = component_certificate(settings, name, args)?;
        let tls = tls::health_config(&issued)?;
        // Given ports are of no use where several nodes are in one process.
        let port = if port == 0 { 0 } else { args.secure_port.unwrap_or(port) };
        background.health(name, port, Some(tls), listen::well("ok")).await?;
    }
    let etcd_answers = settings.paths.tls("etcd/server-client.crt").exists();
    if !disabled.etcd && !etcd_answers {
        background.health("etcd", settings.ports.etcd_health, None, store).await?;
    }
    Ok(())
}

/// The certificate a component shows: the one its arguments name, or its own, made anew.
fn component_certificate(
    settings: &Settings,
    name: &str,
    args: &ComponentArgs,
) -> Result<Issued, ServerError> {
    let own = |extension: &str| {
        let dir = args.cert_dir.clone().unwrap_or_else(|| settings.paths.tls(name));
        dir.join(format!("{name}.{extension}"))
    };
    if let (Some(cert), Some(key)) = (&args.cert_file, &args.key_file)
        && let Some(issued) = pki::read_pair(cert, key)?
    {
        return Ok(issued);
    }
    let cert = args.cert_file.clone().unwrap_or_else(|| own("crt"));
    let key = args.key_file.clone().unwrap_or_else(|| own("key"));
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let issued = pki::self_signed(name, &names)?;
    files::write(&key, issued.key.as_bytes(), PRIVATE)?;
    files::write(&cert, issued.cert.as_bytes(), PUBLIC)?;
    Ok(issued)
}
