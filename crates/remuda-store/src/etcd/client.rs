//! Talking to the members of an etcd cluster.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::uri::PathAndQuery;
use parking_lot::Mutex;
use remuda_base::chain::chain;
use tonic::{
    Code, Status,
    client::Grpc,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_prost::ProstCodec;

use super::proto::{
    CompactionRequest, CompactionResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
    WatchRequest, WatchResponse,
};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A page of large objects or the events of a busy second are larger than the default.
const MESSAGE_LIMIT: usize = 1 << 30;

/// Certificates as PEM files.
#[derive(Debug, Clone, Default)]
pub struct EtcdTls {
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// The name to expect in the server's certificate, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    #[error("no etcd endpoints are configured")]
    NoEndpoints,
    #[error("etcd endpoint {endpoint}: {source}")]
    Endpoint { endpoint: String, source: tonic::transport::Error },
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("etcd: {0}")]
    Request(String),
    #[error("etcd holds something unexpected under {key}: {detail}")]
    Foreign { key: String, detail: String },
    #[error(transparent)]
    Seal(#[from] crate::seal::SealError),
    /// See [`crate::Shared`].
    #[error("the shared secret is not the one the identity in etcd was stored with")]
    WrongSecret,
    #[error("etcd holds objects, but not the identity of the servers that wrote them")]
    Unshared,
    #[error("the identity in etcd is gone or was stored anew")]
    IdentityChanged,
}

pub(super) struct Client {
    members: Vec<Member>,
    /// The member requests go to, until one fails.
    preferred: AtomicUsize,
}

struct Member {
    endpoint: Endpoint,
    channel: Mutex<Option<Channel>>,
}

impl Client {
    pub(super) fn new(endpoints: &[String], tls: Option<&EtcdTls>) -> Result<Self, EtcdError> {
        let tls = tls.map(tls_config).transpose()?;
        let member = |text: &String| {
            let build = || {
                let endpoint = Endpoint::from_shared(text.clone())?
                    .connect_timeout(CONNECT_TIMEOUT)
                    .tcp_nodelay(true)
                    .http2_keep_alive_interval(Duration::from_secs(10))
                    .keep_alive_timeout(Duration::from_secs(5))
                    .keep_alive_while_idle(true);
                match &tls {
                    Some(tls) if text.starts_with("https") => endpoint.tls_config(tls.clone()),
                    _ => Ok(endpoint),
                }
            };
            match build() {
                Ok(endpoint) => Ok(Member { endpoint, channel: Mutex::default() }),
                Err(source) => Err(EtcdError::Endpoint { endpoint: text.clone(), source }),
            }
        };
        let members = endpoints.iter().map(member).collect::<Result<Vec<_>, _>>()?;
        if members.is_empty() {
            return Err(EtcdError::NoEndpoints);
        }
        Ok(Self { members, preferred: AtomicUsize::new(0) })
    }

    /// Next time another member is asked.
    pub(super) fn avoid_current(&self) {
        let current = self.preferred.load(Ordering::Relaxed);
        self.avoid(current);
    }

    fn avoid(&self, index: usize) {
        let next = (index + 1) % self.members.len();
        let _ = self.preferred.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        // Connected anew, so that a name is looked up anew.
        *self.members[index].channel.lock() = None;
    }

    /// A connection to the first member that takes one.
    async fn channel(&self) -> Result<(usize, Channel), Status> {
        let mut failure = Status::unavailable("no member can be reached");
        for _ in 0..self.members.len() {
            let index = self.preferred.load(Ordering::Relaxed);
            let member = &self.members[index];
            let known = member.channel.lock().clone();
            if let Some(channel) = known {
                return Ok((index, channel));
            }
            match member.endpoint.connect().await {
                Ok(channel) => {
                    *member.channel.lock() = Some(channel.clone());
                    return Ok((index, channel));
                }
                Err(error) => {
                    failure = Status::unavailable(format!("{}: {}", member.endpoint.uri(), chain(&error)));
                    self.avoid(index);
                }
            }
        }
        Err(failure)
    }

    async fn unary<Q, R>(&self, request: Q, path: &'static str) -> Result<R, Failure>
    where
        Q: prost::Message + Send + Sync + 'static,
        R: prost::Message + Default + Send + Sync + 'static,
    {
        let (index, channel) = self.channel().await.map_err(|status| Failure { status, sent: false })?;
        let call = async {
            let mut grpc = Grpc::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
            grpc.ready()
                .await
                .map_err(|error| Failure { status: Status::unavailable(chain(&error)), sent: false })?;
            let codec = ProstCodec::<Q, R>::default();
            grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec)
                .await
                .map(tonic::Response::into_inner)
                .map_err(|status| Failure { status, sent: true })
        };
        let result = match tokio::time::timeout(REQUEST_TIMEOUT, call).await {
            Ok(result) => result,
            Err(_) => Err(Failure { status: Status::deadline_exceeded("no answer in time"), sent: true }),
        };
        if let Err(failure) = &result
            && !failure.is_definite()
        {
            self.avoid(index);
        }
        result
    }

    /// Reads, which may be repeated: every member gets a chance.
    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        let mut attempts = 0;
        loop {
            match self.unary(request.clone(), "/etcdserverpb.KV/Range").await {
                Ok(response) => return Ok(response),
                Err(failure) => {
                    attempts += 1;
                    if failure.is_definite() && failure.sent || attempts > self.members.len() {
                        return Err(failure.status);
                    }
                }
            }
        }
    }

    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Failure> {
        self.unary(request, "/etcdserverpb.KV/Txn").await
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), Status> {
        let request = CompactionRequest { revision };
        let done = self.unary::<_, CompactionResponse>(request, "/etcdserverpb.KV/Compact").await;
        match done {
            // Someone else was faster.
            Err(failure) if failure.status.code() == Code::OutOfRange => Ok(()),
            other => other.map(|_| ()).map_err(|failure| failure.status),
        }
    }

    pub(super) async fn watch(
        &self,
        request: WatchRequest,
    ) -> Result<tonic::Streaming<WatchResponse>, Status> {
        let (index, channel) = self.channel().await?;
        let mut grpc = Grpc::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
        let open = async {
            grpc.ready().await.map_err(|error| Status::unavailable(chain(&error)))?;
            // The sending side stays open: etcd ends the watch when it closes.
            let requests = futures::stream::iter([request]);
            let requests = futures::StreamExt::chain(requests, futures::stream::pending());
            let mut request = tonic::Request::new(requests);
            // Ends the stream when the member is cut off from the others.
            request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            grpc.streaming(request, path, codec).await
        };
        let result = match tokio::time::timeout(REQUEST_TIMEOUT, open).await {
            Ok(result) => result.map(tonic::Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded("no answer in time")),
        };
        if result.is_err() {
            self.avoid(index);
        }
        result
    }
}

/// Why a request got no answer, and whether it may have had an effect.
pub(super) struct Failure {
    pub(super) status: Status,
    sent: bool,
}

impl Failure {
    /// The server refused it, or never saw it.
    pub(super) fn is_definite(&self) -> bool {
        !self.sent
            || matches!(
                self.status.code(),
                Code::InvalidArgument
                    | Code::ResourceExhausted
                    | Code::PermissionDenied
                    | Code::Unauthenticated
                    | Code::FailedPrecondition
                    | Code::OutOfRange
                    | Code::NotFound
                    | Code::Unimplemented
            )
    }
}

fn tls_config(tls: &EtcdTls) -> Result<ClientTlsConfig, EtcdError> {
    let read =
        |path: &PathBuf| std::fs::read(path).map_err(|source| EtcdError::File { path: path.clone(), source });
    let mut config = ClientTlsConfig::new();
    if let Some(ca) = &tls.ca {
        config = config.ca_certificate(Certificate::from_pem(read(ca)?));
    }
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name.clone());
    }
    Ok(config)
}
