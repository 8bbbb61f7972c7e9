//! Pushing images to registries: what `remuda image push` does.
//!
//! What a registry has already is not sent again. Layers go from disk to the network in pieces, and are never in memory
//! as a whole.

use std::{io, path::PathBuf, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use remuda_oci::{
    Digest, Image, Reference,
    image::{INDEX_TYPE, MANIFEST_TYPE, index},
};
use tokio::{fs::File, io::AsyncRead};

use super::{
    registries::{Endpoint, Registries, is_loopback},
    registry::{Actions, PullError, Session, refused},
};
use crate::{
    Chain,
    client::{Client, HttpError, Request, Response, Timeouts, percent_encode},
    environment::Environment,
    probe::resolve,
};

/// A layer is there after this, or the registry is too slow.
const UPLOAD: Duration = Duration::from_secs(30 * 60);
const PIECE: usize = 1 << 17;

/// Why an image is not pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The registry refused, or did not answer.
    #[error(transparent)]
    Registry(#[from] PullError),
    /// Neither way of speaking to it works.
    #[error("no connection to the registry: {0}")]
    Unreachable(String),
    /// A layer cannot be read.
    #[error("read layer {}", path.display())]
    Read {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The registry has something else under the name.
    #[error("the registry calls what was pushed {found}, and it is {expected}")]
    Digest {
        /// What the registry says.
        found: String,
        /// What was sent.
        expected: String,
    },
}

impl From<HttpError> for PushError {
    fn from(error: HttpError) -> Self {
        Self::Registry(error.into())
    }
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// By which the name can be pinned.
    pub digest: Digest,
    /// Blobs that were sent.
    pub sent: usize,
    /// Blobs the registry had.
    pub known: usize,
}

/// Pushes an image, or an index of several for different architectures. Without TLS only where `plain` allows it, or to
/// this host.
pub async fn push(
    images: &[Image],
    reference: &Reference,
    registries: &Registries,
    environment: &Environment,
    plain: bool,
) -> Result<Pushed, PushError> {
    let schemes: &[&'static str] =
        if plain || is_loopback(&reference.registry) { &["https", "http"] } else { &["https"] };
    let mut errors = Vec::new();
    for scheme in schemes {
        let endpoint = Endpoint {
            scheme,
            host: reference.registry.clone(),
            prefix: "/v2".into(),
            repository: reference.repository.clone(),
            namespace: None,
        };
        let session = Session::new(endpoint, registries, environment, Actions::Push);
        let mut push = Push { session, sent: 0, known: 0 };
        match push.all(images, &reference.tag).await {
            // Nobody there who speaks so. Who was given a password is not asked again without TLS.
            Err(PushError::Registry(PullError::Http(error)))
                if push.sent + push.known == 0 && push.session.authorization.is_none() =>
            {
                errors.push(format!("{scheme}: {}", Chain(&error)));
            }
            Err(error) => return Err(error),
            Ok(digest) => return Ok(Pushed { digest, sent: push.sent, known: push.known }),
        }
    }
    Err(PushError::Unreachable(errors.join("; ")))
}

struct Push<'a> {
    session: Session<'a>,
    sent: usize,
    known: usize,
}

/// Where the bytes of a request are.
#[derive(Clone)]
enum Content {
    Memory(Bytes),
    File { path: PathBuf, size: u64 },
}

impl Push<'_> {
    async fn all(&mut self, images: &[Image], tag: &str) -> Result<Digest, PushError> {
        for image in images {
            for layer in &image.layers {
                let content = Content::File { path: layer.path.clone(), size: layer.size };
                self.blob(&layer.digest, content).await?;
            }
            self.blob(&Digest::of(&image.config), Content::Memory(image.config.clone().into())).await?;
        }
        match images {
            [image] => self.manifest(tag, MANIFEST_TYPE, &image.manifest).await,
            images => {
                for image in images {
                    self.manifest(&image.digest().to_string(), MANIFEST_TYPE, &image.manifest).await?;
                }
                self.manifest(tag, INDEX_TYPE, &index(images)).await
            }
        }
    }

    /// Sends a blob unless the registry has it.
    async fn blob(&mut self, digest: &Digest, content: Content) -> Result<(), PushError> {
        let what = format!("blob {digest}");
        let nothing = Content::Memory(Bytes::new());
        let uri = self.address(&format!("blobs/{digest}"))?;
        let head = self.send(Method::HEAD, &uri, HeaderMap::new(), &nothing).await?;
        match head.status {
            StatusCode::NOT_FOUND => {}
            status if status.is_success() || status.is_redirection() => {
                self.known += 1;
                return Ok(());
            }
            _ => return Err(refused(head, &what).await.into()),
        }
        let uri = self.address("blobs/uploads/")?;
        let begun = self.send(Method::POST, &uri, HeaderMap::new(), &nothing).await?;
        if begun.status != StatusCode::ACCEPTED {
            return Err(refused(begun, &what).await.into());
        }
        let location = begun.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
        let to = location.and_then(|location| resolve(&uri, location));
        let to = to.ok_or_else(|| PullError::Unusable("registry says not where to upload".into()))?;
        let separator = if to.query().is_some() { '&' } else { '?' };
        let to = parsed(format!("{to}{separator}digest={}", percent_encode(&digest.to_string())))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/octet-stream"));
        let done = self.send(Method::PUT, &to, headers, &content).await?;
        if !done.status.is_success() {
            return Err(refused(done, &what).await.into());
        }
        self.sent += 1;
        Ok(())
    }

    async fn manifest(&mut self, name: &str, kind: &'static str, bytes: &[u8]) -> Result<Digest, PushError> {
        let uri = self.address(&format!("manifests/{name}"))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
        let done =
            self.send(Method::PUT, &uri, headers, &Content::Memory(Bytes::copy_from_slice(bytes))).await?;
        if !done.status.is_success() {
            return Err(refused(done, &format!("manifest {name}")).await.into());
        }
        let expected = Digest::of(bytes);
        let found = done.headers.get("docker-content-digest").and_then(|value| value.to_str().ok());
        match found.filter(|found| *found != expected.to_string()) {
            Some(found) => Err(PushError::Digest { found: found.to_owned(), expected: expected.to_string() }),
            None => Ok(expected),
        }
    }

    fn address(&self, path: &str) -> Result<Uri, HttpError> {
        let Endpoint { scheme, host, prefix, repository, .. } = &self.session.endpoint;
        parsed(format!("{scheme}://{host}{prefix}/{repository}/{path}"))
    }

    /// One request, answering a challenge if there is one.
    async fn send(
        &mut self,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        content: &Content,
    ) -> Result<Response, PushError> {
        let response = self.attempt(&method, uri, &headers, content).await?;
        if response.status != StatusCode::UNAUTHORIZED || !self.is_own(uri) {
            return Ok(response);
        }
        self.session.authorization = Some(self.session.authorize(&response.headers).await?);
        self.attempt(&method, uri, &headers, content).await
    }

    /// Storage behind a registry must not see its credentials.
    fn is_own(&self, uri: &Uri) -> bool {
        let Endpoint { scheme, host, .. } = &self.session.endpoint;
        uri.scheme_str() == Some(scheme) && uri.authority().is_some_and(|own| own.as_str() == host)
    }

    async fn attempt(
        &mut self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        content: &Content,
    ) -> Result<Response, PushError> {
        if self.session.endpoint.scheme == "https" && uri.scheme_str() != Some("https") {
            return Err(PullError::Unusable(format!("registry wants an upload without TLS: {uri}")).into());
        }
        let mut request =
            Request { method: method.clone(), headers: headers.clone(), ..Request::get(uri.clone()) };
        if let Some(authorization) = self.session.authorization.clone().filter(|_| self.is_own(uri)) {
            request = request.header(header::AUTHORIZATION, &authorization);
        }
        let client = self.session.client(uri)?;
        let timeouts = Timeouts { response: UPLOAD, ..client.timeouts };
        Ok(match content {
            Content::Memory(bytes) => client.send_with(request, Full::new(bytes.clone())).await?,
            Content::File { path, size } => {
                let client = Client { timeouts, ..client.clone() };
                let file = File::open(path).await;
                let file = file.map_err(|source| PushError::Read { path: path.clone(), source })?;
                client.send_with(request, FileBody { file, left: *size }).await?
            }
        })
    }
}

fn parsed(text: String) -> Result<Uri, HttpError> {
    let uri = text.parse();
    uri.map_err(|_| HttpError::Address { uri: text, reason: "not an address" })
}

/// A file on its way, piece by piece.
struct FileBody {
    file: File,
    left: u64,
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        use std::task::Poll;
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let most = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
        let mut piece = vec![0; most];
        let mut buffer = tokio::io::ReadBuf::new(&mut piece);
        match std::pin::Pin::new(&mut self.file).poll_read(cx, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
            Poll::Ready(Ok(())) => {
                let length = buffer.filled().len();
                if length == 0 {
                    let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the layer became shorter");
                    return Poll::Ready(Some(Err(error)));
                }
                piece.truncate(length);
                self.left -= length as u64;
                Poll::Ready(Some(Ok(Frame::data(piece.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
