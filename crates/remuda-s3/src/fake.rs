//! A store on an address of this host, over TLS and with signatures checked, for tests. Objects are files below a
//! directory. It can be told to refuse, to hang, and to do the work but lose the answer.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use hyper::{
    Request, StatusCode,
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use s3s::{
    Body, HttpResponse,
    auth::SimpleAuth,
    service::{S3Service, S3ServiceBuilder},
};
use s3s_fs::FileSystem;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::config::Config;

pub const ACCESS_KEY: &str = "AKIACANARY";
pub const SECRET_KEY: &str = "canary-secret-key";

/// What happens to a call instead of the ordinary.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The work is done, then the connection breaks.
    LoseAnswer,
    /// No answer ever comes.
    Hang,
    /// Answered with this status and error code, nothing done.
    Refuse(u16, &'static str),
}

#[derive(Default)]
struct Controls {
    calls: Mutex<Vec<String>>,
    /// For calls whose line begins so.
    faults: Mutex<VecDeque<(String, Fault)>>,
}

/// A running store. Dropping it stops it.
pub struct FakeStore {
    address: SocketAddr,
    certificate: String,
    directory: PathBuf,
    answers: Answers,
    tasks: Mutex<JoinSet<()>>,
}

/// What every connection needs.
#[derive(Clone)]
struct Answers {
    tls: TlsAcceptor,
    service: S3Service,
    controls: Arc<Controls>,
}

impl FakeStore {
    /// Listens at this address of the host. Buckets are the directories below `directory`.
    pub async fn start(ip: IpAddr, directory: &Path) -> io::Result<FakeStore> {
        let file_system =
            FileSystem::new(directory).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let mut builder = S3ServiceBuilder::new(file_system);
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let issued = rcgen::generate_simple_self_signed([ip.to_string()]).map_err(io::Error::other)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der()));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|tls| tls.with_no_client_auth().with_single_cert(vec![issued.cert.der().clone()], key))
            .map_err(io::Error::other)?;
        let listener = TcpListener::bind((ip, 0)).await?;
        let address = listener.local_addr()?;
        let answers = Answers {
            tls: TlsAcceptor::from(Arc::new(tls)),
            service,
            controls: Arc::new(Controls::default()),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, answers.clone()));
        let (certificate, directory) = (issued.cert.pem(), directory.to_owned());
        Ok(FakeStore { address, certificate, directory, answers, tasks: Mutex::new(tasks) })
    }

    /// Answers here as well: in another network, at the same address.
    pub fn listen(&self, listener: std::net::TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        self.tasks.lock().spawn(accept(listener, self.answers.clone()));
        Ok(())
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes a bucket.
    pub fn make(&self, bucket: &str) -> io::Result<()> {
        std::fs::create_dir_all(self.directory.join(bucket))
    }

    /// What leads to a bucket.
    pub fn config(&self, bucket: &str) -> Config {
        Config {
            endpoint: self.endpoint(),
            bucket: bucket.to_owned(),
            access_key: ACCESS_KEY.to_owned(),
            secret_key: SECRET_KEY.to_owned(),
            endpoint_ca: self.certificate.clone(),
            ..Config::default()
        }
    }

    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Names of the files of a folder of a bucket.
    pub fn names(&self, bucket: &str, folder: &str) -> Vec<String> {
        let entries =
            std::fs::read_dir(self.directory.join(bucket).join(folder)).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.path().is_file());
        let mut names: Vec<String> =
            files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    /// The next call whose line (`METHOD path`) begins so goes wrong.
    pub fn fault(&self, call: &str, fault: Fault) {
        self.answers.controls.faults.lock().push_back((call.to_owned(), fault));
    }

    /// Every call so far, as `METHOD path`.
    pub fn calls(&self) -> Vec<String> {
        self.answers.controls.calls.lock().clone()
    }
}

async fn accept(listener: TcpListener, answers: Answers) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let Answers { tls, service, controls } = answers.clone();
        connections.spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let answer = service_fn(|request| answer(service.clone(), controls.clone(), request));
            // A connection that breaks is what some tests want.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    service: S3Service,
    controls: Arc<Controls>,
    request: Request<Incoming>,
) -> Result<HttpResponse, io::Error> {
    let line = format!("{} {}", request.method(), request.uri().path());
    controls.calls.lock().push(line.clone());
    let fault = {
        let mut faults = controls.faults.lock();
        let at = faults.iter().position(|(call, _)| line.starts_with(call.as_str()));
        at.and_then(|at| faults.remove(at)).map(|(_, fault)| fault)
    };
    match fault {
        None => service
            .call(request.map(Body::from))
            .await
            .map_err(|error| io::Error::other(format!("{error:?}"))),
        Some(Fault::LoseAnswer) => {
            let _ = service.call(request.map(Body::from)).await;
            Err(io::Error::other("the answer is lost"))
        }
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Refuse(status, code)) => {
            // A client that still sends would lose the connection instead of reading the answer.
            let mut body = std::pin::pin!(request.into_body());
            while let Some(Ok(_)) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {}
            let text =
                format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>no</Message></Error>");
            let mut response = HttpResponse::new(Body::from(text));
            *response.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
            Ok(response)
        }
    }
}
