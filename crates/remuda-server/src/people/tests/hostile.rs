//! A hostile cluster behind a tunnel, and people who read it through a whole server.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use remuda_apiserver::ApiServer;
use remuda_auth::identity::{GROUP_MASTERS, User};
use remuda_store::Memory;
use remuda_tunnel::{
    client,
    dial::{BoxIo, Inbound},
    session::SessionOptions,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{io::DuplexStream, net::TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::Site;
use crate::{Server, config::Options, kubeconfig};

const ADDRESS: &str = "10.43.0.1:443";
const AGENT: &str = "agent-token";
/// What its API server would do is not bounded by anything here.
type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// An ordinary API, but for its ConfigMaps: they have no end.
#[derive(Clone)]
struct Hostile {
    api: ApiServer,
    acceptor: TlsAcceptor,
    ca: String,
    taken: Arc<AtomicUsize>,
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

impl Hostile {
    async fn start() -> Self {
        let mut config = remuda_testkit::config();
        config.static_tokens.insert(AGENT, User::new("agent", [GROUP_MASTERS]));
        let api = ApiServer::start(config, Arc::new(Memory::default())).await.unwrap();
        let made = rcgen::generate_simple_self_signed(["10.43.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let tls = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        Self { api, acceptor, ca: made.cert.pem(), taken: Arc::default() }
    }

    /// 700 MiB, if the server takes them.
    fn flood(&self) -> Response<Sent> {
        let taken = self.taken.clone();
        let row = r#"{"object":{"metadata":{"name":"m"}}},"#;
        let piece = Bytes::from(row.repeat((1 << 18) / row.len()));
        let pieces =
            std::iter::once(Bytes::from_static(br#"{"rows":["#)).chain(std::iter::repeat_n(piece, 2800));
        let pieces = pieces.map(move |piece| {
            taken.fetch_add(piece.len(), Ordering::SeqCst);
            Ok(Frame::data(piece))
        });
        Response::new(StreamBody::new(stream::iter(pieces)).boxed_unsync())
    }

    async fn serve(self, io: DuplexStream) {
        let Ok(stream) = self.acceptor.accept(io).await else { return };
        let service = service_fn(move |request: Request<Incoming>| {
            let cluster = self.clone();
            async move {
                let query = request.uri().query().unwrap_or_default();
                if request.uri().path() == "/api/v1/configmaps" && query.contains("limit=") {
                    return Ok::<_, io::Error>(cluster.flood());
                }
                let answer = cluster.api.handle(request).await;
                Ok(answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()))
            }
        });
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    }

    /// Connects its agent, which stays until it is told to leave.
    async fn connect(&self, site: &Site, token: &str, stop: CancellationToken) {
        let access = kubeconfig::read(site.server.kubeconfig()).unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&access.ca) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let tls = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address = site.server.address();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::from(address.ip());
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
        let params = json!({"cluster": {
            "address": ADDRESS, "token": AGENT, "caCert": BASE64_STANDARD.encode(&self.ca),
        }});
        let mut headers = HeaderMap::new();
        headers.insert("x-api-tunnel-token", token.parse().unwrap());
        headers.insert("x-api-tunnel-params", BASE64_STANDARD.encode(params.to_string()).parse().unwrap());
        let uri = format!("wss://{address}/v3/connect/register").parse().unwrap();
        let socket = client::handshake(stream, &uri, &headers).await.unwrap();
        let cluster = self.clone();
        let tasks = TaskTracker::new();
        let of_streams = tasks.clone();
        let inbound = Inbound::all(move |_: String, _: String| {
            let (cluster, tasks) = (cluster.clone(), of_streams.clone());
            async move {
                let (near, far) = tokio::io::duplex(64 << 10);
                tasks.spawn(cluster.serve(far));
                Ok(Box::new(near) as BoxIo)
            }
        });
        tasks.spawn(async move { client::serve(socket, inbound, SessionOptions::default(), &stop).await });
    }
}

async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never happened: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_cluster_does_not_fill_the_server_through_its_readers() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        bind: Some("127.0.0.1:0".to_owned()),
        data_dir: Some(dir.path().to_owned()),
        ..Options::default()
    };
    let server = Server::start(options.resolve().unwrap()).await.unwrap();
    let site = Site { server, dir };
    let first = site.server.first_user().unwrap().clone();
    let token = site.login(&first.username, &first.password).await.body["token"].as_str().unwrap().to_owned();
    let get = async |path: &str| site.send(Some(&token), "GET", path, &[], json!(null)).await;

    let clusters = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";
    let cluster = json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": "evil"}, "spec": {},
    });
    let made = site.send(Some(&token), "POST", clusters, &[], cluster).await;
    assert_eq!(made.code.as_u16(), 201, "{}", made.text);
    let mut id = String::new();
    until("it has a management Cluster", async || {
        let found = get(&format!("{clusters}/evil")).await;
        id = found.body["status"]["clusterName"].as_str().unwrap_or_default().to_owned();
        !id.is_empty()
    })
    .await;
    let mut agent = String::new();
    until("it has a registration token", async || {
        let secrets = get(&format!("/api/v1/namespaces/{id}/secrets")).await;
        let items = secrets.body["items"].as_array().cloned().unwrap_or_default();
        let data = |secret: &Value| secret["data"]["token"].as_str().map(|data| BASE64_STANDARD.decode(data));
        let token = items.iter().find_map(|secret| data(secret)?.ok());
        agent = token.and_then(|token| String::from_utf8(token).ok()).unwrap_or_default();
        !agent.is_empty()
    })
    .await;
    let (hostile, stop) = (Hostile::start().await, CancellationToken::new());
    hostile.connect(&site, &agent, stop.clone()).await;
    until("it can be read", async || {
        get(&format!("/k8s/clusters/{id}/v1/namespaces")).await.code.as_u16() == 200
    })
    .await;

    hostile.taken.store(0, Ordering::SeqCst);
    let flooded = get(&format!("/k8s/clusters/{id}/v1/configmaps")).await;
    assert_eq!(flooded.code.as_u16(), 502, "{}", flooded.text);
    let message = flooded.body["message"].as_str().unwrap();
    assert!(message.ends_with("/api/v1/configmaps is larger than 16 MiB"), "{message}");
    let taken = hostile.taken.load(Ordering::SeqCst);
    assert!(taken < 120 << 20, "{taken} bytes were read");
    // It can be read on, and so can everything else.
    assert_eq!(get(&format!("/k8s/clusters/{id}/v1/namespaces")).await.code.as_u16(), 200);
    assert_eq!(get("/v1/namespaces").await.code.as_u16(), 200);
    stop.cancel();
    site.stop().await;
}
