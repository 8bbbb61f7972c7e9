//! An agent: joins a cluster and is a node of it, and nothing more.

use std::{net::IpAddr, time::Duration};

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    address,
    balance::{self, Backends},
    client::{self, ClientError},
    config::Settings,
    files::{self, FileError, PRIVATE, PUBLIC},
    join::{self, AgentRequest, AgentResponse, JoinError},
    kubelet::{Kubelet, KubeletError, Serving},
    listen::{self, ListenError},
    pki::{self, Issued, PkiError},
    running::{Background, Running},
    token,
};

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    #[error("an agent needs a server and a token")]
    Incomplete,
    #[error("stopped")]
    Stopped,
}

const RETRY: Duration = Duration::from_secs(2);

/// What an agent has from its servers.
struct Membership {
    server_ca: String,
    kubelet: Issued,
    serving: Serving,
    servers: Vec<String>,
}

pub async fn start(settings: Settings, mut background: Background) -> Result<Running, AgentError> {
    let membership = join(&settings, &background.stop).await?;
    let backends = Backends::new(membership.servers);
    // Pods reach the API here whichever server is there.
    let listener = listen::bind(Some(IpAddr::from([127, 0, 0, 1])), settings.ports.balancer).await?;
    let port = listener.local_addr().map_or(settings.ports.balancer, |address| address.port());
    let (stop, tasks) = (background.serving.clone(), background.tasks.clone());
    background.spawn(balance::run(listener, backends.clone(), stop, tasks));
    let url = format!("https://127.0.0.1:{port}");
    let client = client::connect(&url, &membership.server_ca, &membership.kubelet)?;
    let config = pki::kubeconfig(&url, &membership.server_ca, &membership.kubelet);
    files::write(&settings.paths.agent("kubelet.kubeconfig"), config.as_bytes(), PRIVATE)?;
    let kubelet = Kubelet {
        settings: settings.clone(),
        client,
        api: (IpAddr::from([127, 0, 0, 1]), port),
        backends: Some(backends),
        datastore: None,
        etcd_member: None,
        encryption: false,
        api_address: None,
        serving: membership.serving,
    };
    background.kubelet = Some(kubelet.start(background.stop.clone()).await?);
    info!(node = settings.node_name, version = settings.version, "sandbox agent runs");
    Ok(Running::new(settings, background, port, port, None))
}

/// Joins, or takes what an earlier start has left when no server answers.
async fn join(settings: &Settings, stop: &CancellationToken) -> Result<Membership, AgentError> {
    let (Some(server), Some(token)) = (&settings.server, &settings.token) else {
        return Err(AgentError::Incomplete);
    };
    let addresses = settings.node_ips.iter().chain(&settings.external_ips).map(ToString::to_string);
    let request = AgentRequest {
        node_name: settings.node_name.clone(),
        node_password: node_password(settings)?,
        addresses: addresses.chain([address::of_node(settings).to_string()]).collect(),
    };
    let mut told = false;
    loop {
        let attempt = async {
            let server = join::Server::trust(server, token, token::NODE_USER).await?;
            let response: AgentResponse =
                server.ask(&join::agent_path(settings.distribution), &request).await?;
            Ok::<_, JoinError>(response)
        };
        match attempt.await {
            Ok(response) => return keep(settings, response),
            Err(error) if error.is_final() => return Err(error.into()),
            Err(error) => {
                if !told {
                    warn!(error = %remuda_control::Chain(&error), "cannot join yet");
                    told = true;
                }
                if let Some(kept) = kept(settings)? {
                    info!("using what the last start has left");
                    return Ok(kept);
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return Err(AgentError::Stopped),
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

/// Shows that this node is the one that had its name before.
fn node_password(settings: &Settings) -> Result<String, FileError> {
    let path = settings.paths.node_password();
    if let Some(password) =
        files::read(&path)?.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    {
        return Ok(password);
    }
    let password = token::random_hex(16);
    files::write(&path, format!("{password}\n").as_bytes(), PRIVATE)?;
    Ok(password)
}

fn keep(settings: &Settings, response: AgentResponse) -> Result<Membership, AgentError> {
    let path = |file: &str| settings.paths.agent(file);
    files::write(&path("client-ca.crt"), response.client_ca.as_bytes(), PUBLIC)?;
    files::write(&path("serving-kubelet.key"), response.serving_key.as_bytes(), PRIVATE)?;
    files::write(&path("serving-kubelet.crt"), response.serving_cert.as_bytes(), PUBLIC)?;
    files::write(&path("client-kubelet.key"), response.kubelet_key.as_bytes(), PRIVATE)?;
    files::write(&path("client-kubelet.crt"), response.kubelet_cert.as_bytes(), PUBLIC)?;
    let servers = serde_json::to_string(&response.servers).unwrap_or_default();
    files::write(&path("etc/sandbox-load-balancer.json"), servers.as_bytes(), PRIVATE)?;
    // Written last: with it, the rest is there.
    files::write(&path("server-ca.crt"), response.server_ca.as_bytes(), PUBLIC)?;
    let kubelet = Issued { cert: response.kubelet_cert, key: response.kubelet_key };
    let certificate = Issued { cert: response.serving_cert, key: response.serving_key };
    let serving = Serving { certificate, client_ca: response.client_ca };
    Ok(Membership { server_ca: response.server_ca, kubelet, serving, servers: response.servers })
}

fn kept(settings: &Settings) -> Result<Option<Membership>, AgentError> {
    let path = |file: &str| settings.paths.agent(file);
    let Some(server_ca) = files::read(&path("server-ca.crt"))? else { return Ok(None) };
    let Some(kubelet) = pki::read_pair(&path("client-kubelet.crt"), &path("client-kubelet.key"))? else {
        return Ok(None);
    };
    let serving = pki::read_pair(&path("serving-kubelet.crt"), &path("serving-kubelet.key"))?;
    let Some((certificate, client_ca)) = serving.zip(files::read(&path("client-ca.crt"))?) else {
        return Ok(None);
    };
    let serving = Serving { certificate, client_ca };
    let servers: Vec<String> = files::read(&path("etc/sandbox-load-balancer.json"))?
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    Ok((!servers.is_empty()).then_some(Membership { server_ca, kubelet, serving, servers }))
}
