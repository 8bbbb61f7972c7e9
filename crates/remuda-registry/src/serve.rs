//! The reading half of the OCI distribution API, for machines: what bundles have, and what configured registries have.
//!
//! Nothing else can be reached through it: an image is asked for at a registry only if that registry and the image's
//! repository are configured.

mod look;
mod path;

use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Weak},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};
use remuda_oci::Reference;
use tokio_util::io::ReaderStream;

pub use self::look::Found;
use self::path::{Asked, What};
use crate::{
    bundle::Bundle,
    manifest::Manifest,
    store::{Start, Store, StoreError},
    upstream::{Upstream, UpstreamError},
};

/// A tag is not asked for again so soon.
const FRESH: Duration = Duration::from_secs(60);
/// Tags whose age is known; more are asked for again.
const TAGS: usize = 4096;
const BUNDLE: &str = "bundle";
const GRAIN: Duration = Duration::from_secs(1);

/// A registry that is mirrored.
#[derive(Debug)]
pub struct Mirror {
    /// Asked in this order; the first that has it gives it.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Repositories that may be asked for: a name, or the beginning of one with `/*` behind it.
    pub repositories: Vec<String>,
}

impl Mirror {
    fn has(&self, repository: &str) -> bool {
        self.repositories.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some("") => true,
            Some(prefix) => prefix.ends_with('/') && repository.starts_with(prefix),
            None => repository == pattern,
        })
    }
}

/// Registries by their names.
pub type Mirrors = BTreeMap<String, Mirror>;

/// An answer.
pub struct Served {
    pub status: StatusCode,
    pub headers: Vec<(&'static str, String)>,
    pub content: Content,
}

pub enum Content {
    Bytes(Bytes),
    Stream(Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("{0}")]
    Path(&'static str),
    #[error("{0} is in no bundle, and its registry is not mirrored here for it")]
    NotMirrored(String),
    #[error("{0} is in no bundle, and no registry has it")]
    Unknown(String),
    #[error("{what}: {reason}")]
    Upstream { what: String, reason: String, after: Option<Duration> },
    #[error("{0}")]
    Failed(String),
}

impl Refused {
    /// The HTTP status and code of the distribution API.
    pub fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Refused::Path(_) => (StatusCode::NOT_FOUND, "NAME_INVALID"),
            Refused::NotMirrored(_) => (StatusCode::NOT_FOUND, "NAME_UNKNOWN"),
            Refused::Unknown(_) => (StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN"),
            Refused::Upstream { after: Some(_), .. } => (StatusCode::TOO_MANY_REQUESTS, "TOOMANYREQUESTS"),
            Refused::Upstream { .. } => (StatusCode::BAD_GATEWAY, "UNAVAILABLE"),
            Refused::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN"),
        }
    }
}

#[derive(Default)]
struct Bundles {
    /// When the directory was read, by its own clock.
    read: Option<SystemTime>,
    all: Arc<Vec<Bundle>>,
}

/// Held by the request that asks a registry for a tag; other requests for the tag wait for it.
type Turn = tokio::sync::Mutex<()>;
/// By tag: when it was asked for, and who asks for it now.
type AskedTags = HashMap<String, (Option<Instant>, Weak<Turn>)>;

/// Bundles and a cache, as one registry.
pub struct Registry {
    directory: PathBuf,
    bundles: RwLock<Bundles>,
    store: Option<Arc<Store>>,
    mirrors: RwLock<Arc<Mirrors>>,
    asked: Mutex<AskedTags>,
}

impl Registry {
    /// `directory` is where people put bundles.
    pub fn new(directory: &Path, store: Option<Arc<Store>>) -> Registry {
        Registry {
            directory: directory.to_owned(),
            bundles: RwLock::default(),
            store,
            mirrors: RwLock::default(),
            asked: Mutex::default(),
        }
    }

    pub fn set_mirrors(&self, mirrors: Mirrors) {
        *self.mirrors.write() = Arc::new(mirrors);
        self.asked.lock().clear();
    }

    /// The bundles there are. Those that are new are read to their end first, so this may take a while, and one that is
    /// not whole is left out, with the name of the part in the log.
    pub async fn bundles(self: &Arc<Self>) -> Arc<Vec<Bundle>> {
        let registry = self.clone();
        let read = tokio::task::spawn_blocking(move || registry.reread()).await;
        read.unwrap_or_default()
    }

    fn reread(&self) -> Arc<Vec<Bundle>> {
        // A file that is put there changes its directory.
        let changed = std::fs::metadata(&self.directory).and_then(|metadata| metadata.modified()).ok();
        let known = self.bundles.read();
        if known.read == changed {
            return known.all.clone();
        }
        drop(known);
        let mut bundles = self.bundles.write();
        if bundles.read == changed {
            return bundles.all.clone();
        }
        // Times have a grain: what is put there right after this look could have the same one.
        let is_settled = changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > GRAIN);
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != BUNDLE) {
                continue;
            }
            let known = bundles.all.iter().find(|bundle| bundle.path() == path);
            let opened = Bundle::open(&path).and_then(|bundle| {
                // What was read once is not read again, unless it is another file now.
                if known.is_none_or(|known| known.stamp() != bundle.stamp()) {
                    bundle.verify(None)?;
                    tracing::info!(path = %path.display(), images = bundle.index().images.len(), "bundle loaded");
                }
                Ok(bundle)
            });
            match opened {
                Ok(bundle) => all.push(bundle),
                Err(error) => {
                    tracing::warn!(error = %remuda_base::Chain(&error), "a bundle is not used");
                }
            }
        }
        all.sort_by(|one, other| one.path().cmp(other.path()));
        *bundles = Bundles { read: changed.filter(|_| is_settled), all: Arc::new(all) };
        bundles.all.clone()
    }

    /// Answers `GET` or `HEAD` of a path below `/v2/`. `range` is the offset of a `Range` header.
    pub async fn serve(
        self: &Arc<Self>,
        path: &str,
        namespace: Option<&str>,
        range: Option<u64>,
    ) -> Result<Served, Refused> {
        let Some(asked) = path::parse(path, namespace)? else {
            return Ok(Served {
                status: StatusCode::OK,
                headers: Vec::new(),
                content: Content::Bytes("{}".into()),
            });
        };
        let bundles = self.bundles().await;
        match &asked.what {
            What::Manifest => self.manifest(&asked, &bundles).await,
            What::Blob { digest } => self.blob(&asked, digest, &bundles, range.unwrap_or_default()).await,
        }
    }

    async fn manifest(&self, asked: &Asked, bundles: &[Bundle]) -> Result<Served, Refused> {
        for bundle in bundles {
            let digest = match &asked.reference.digest {
                Some(digest) => Some(digest.as_str()),
                None => bundle.image(&asked.reference),
            };
            if let Some(digest) = digest.filter(|digest| bundle.place(digest).is_some()) {
                let bytes = bundle.small(digest).map_err(|error| Refused::Failed(error.to_string()))?;
                return manifest(digest, bytes);
            }
        }
        let (mirrors, store) = self.mirror(asked)?;
        let mirror = &mirrors[asked.reference.namespace()];
        if let Some(digest) = &asked.reference.digest {
            if let Some(bytes) = store.small(digest) {
                return manifest(digest, bytes);
            }
            let (bytes, _) = first(mirror, asked, digest).await?;
            store.put(&bytes).map_err(|error| failed(&error))?;
            return manifest(digest, bytes);
        }
        let name = asked.reference.to_string();
        // Many machines ask for the same tag at the same time, and the registry is asked once.
        let turn = self.turn(&name);
        let _turn = turn.lock().await;
        let known = || store.tag(&name).and_then(|digest| Some((store.small(&digest)?, digest)));
        let is_fresh =
            self.asked.lock().get(&name).and_then(|(at, _)| *at).is_some_and(|at| at.elapsed() < FRESH);
        if let Some((bytes, digest)) = known().filter(|_| is_fresh) {
            return manifest(&digest, bytes);
        }
        match first(mirror, asked, &asked.reference.tag).await {
            Ok((bytes, _)) => {
                let digest = store.put(&bytes).map_err(|error| failed(&error))?;
                store.set_tag(&name, &digest).map_err(|error| failed(&error))?;
                self.asked.lock().insert(name, (Some(Instant::now()), Arc::downgrade(&turn)));
                manifest(&digest, bytes)
            }
            // While no upstream answers, the manifest the tag stood for last is served.
            Err(error @ Refused::Upstream { .. }) => match known() {
                Some((bytes, digest)) => {
                    tracing::warn!(name, %error, "a tag is answered from the cache");
                    manifest(&digest, bytes)
                }
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    fn turn(&self, name: &str) -> Arc<Turn> {
        let mut asked = self.asked.lock();
        if asked.len() > TAGS {
            asked.retain(|_, (_, turn)| turn.strong_count() > 0);
        }
        let entry = asked.entry(name.to_owned()).or_insert_with(|| (None, Weak::new()));
        entry.1.upgrade().unwrap_or_else(|| {
            let turn = Arc::default();
            entry.1 = Arc::downgrade(&turn);
            turn
        })
    }

    async fn blob(
        &self,
        asked: &Asked,
        digest: &str,
        bundles: &[Bundle],
        from: u64,
    ) -> Result<Served, Refused> {
        for bundle in bundles {
            if let Some(place) = bundle.place(digest) {
                let path = bundle.path().to_owned();
                let opened =
                    tokio::fs::File::open(path).await.map_err(|error| Refused::Failed(error.to_string()))?;
                return piece(digest, opened, place.offset, place.size, from).await;
            }
        }
        let (mirrors, store) = self.mirror(asked)?;
        if let Some((file, size)) = store.get(digest) {
            return piece(digest, tokio::fs::File::from_std(file), 0, size, from).await;
        }
        let upstreams = mirrors[asked.reference.namespace()].upstreams.clone();
        let (repository, wanted) = (asked.reference.repository.clone(), digest.to_owned());
        let start: Start = Arc::new(move |from| {
            let (upstreams, repository, wanted) = (upstreams.clone(), repository.clone(), wanted.clone());
            Box::pin(async move {
                let mut last = None;
                for upstream in &upstreams {
                    match upstream.blob(&repository, &wanted, from).await {
                        Ok(blob) => return Ok(blob),
                        Err(error) => last = Some(error),
                    }
                }
                Err(last.unwrap_or_else(|| UpstreamError::Address(String::new())))
            })
        });
        let download = store.download(digest, start);
        let length = download.length().await.map_err(|error| failed(&error))?;
        let rest = length.map(|length| length.saturating_sub(from));
        Ok(answer(digest, length, rest, from, Content::Stream(Box::pin(download.follow(from)))))
    }

    /// The mirror of what is asked for, if there is one for it.
    fn mirror(&self, asked: &Asked) -> Result<(Arc<Mirrors>, &Arc<Store>), Refused> {
        let mirrors = self.mirrors.read().clone();
        let mirror = mirrors.get(asked.reference.namespace());
        let has = mirror.is_some_and(|mirror| mirror.has(&asked.reference.repository));
        match &self.store {
            Some(store) if has => Ok((mirrors, store)),
            _ => Err(Refused::NotMirrored(asked.shown())),
        }
    }
}

/// The first upstream that has a manifest.
async fn first(mirror: &Mirror, asked: &Asked, wanted: &str) -> Result<(Vec<u8>, Manifest), Refused> {
    let mut refused = Refused::Unknown(asked.shown());
    for upstream in &mirror.upstreams {
        match upstream.manifest(&asked.reference.repository, wanted).await {
            Ok(found) => return Ok(found),
            Err(UpstreamError::NotFound { .. }) => {}
            Err(error) => refused = upstream_failed(&asked.shown(), &error),
        }
    }
    Err(refused)
}

fn upstream_failed(what: &str, error: &UpstreamError) -> Refused {
    let after = match error {
        UpstreamError::Busy { after, .. } => Some(*after),
        _ => None,
    };
    let reason = remuda_base::Chain(error).to_string();
    Refused::Upstream { what: what.to_owned(), reason, after }
}

fn failed(error: &StoreError) -> Refused {
    match error {
        StoreError::Upstream(error) => match error.as_ref() {
            UpstreamError::NotFound { what, .. } => Refused::Unknown(what.clone()),
            error => upstream_failed("fetch", error),
        },
        StoreError::Digest { .. } | StoreError::Announced { .. } | StoreError::GivenUp { .. } => {
            Refused::Upstream { what: "fetch".to_owned(), reason: error.to_string(), after: None }
        }
        StoreError::Disk { .. } | StoreError::TooLarge { .. } => Refused::Failed(error.to_string()),
    }
}

fn manifest(digest: &str, bytes: Vec<u8>) -> Result<Served, Refused> {
    let kind = Manifest::parse(&bytes).map_err(|error| Refused::Failed(error.to_string()))?.media_type;
    let headers = vec![
        ("content-type", kind),
        ("content-length", bytes.len().to_string()),
        ("docker-content-digest", digest.to_owned()),
    ];
    Ok(Served { status: StatusCode::OK, headers, content: Content::Bytes(bytes.into()) })
}

/// A part of a file, from an offset in it on.
async fn piece(
    digest: &str,
    mut file: tokio::fs::File,
    at: u64,
    size: u64,
    from: u64,
) -> Result<Served, Refused> {
    use tokio::io::{AsyncReadExt, AsyncSeekExt};

    let from = from.min(size);
    let sought = file.seek(io::SeekFrom::Start(at + from)).await;
    sought.map_err(|error| Refused::Failed(error.to_string()))?;
    let pieces = ReaderStream::with_capacity(file.take(size - from), 1 << 17).boxed();
    Ok(answer(digest, Some(size), Some(size - from), from, Content::Stream(pieces)))
}

fn answer(digest: &str, length: Option<u64>, rest: Option<u64>, from: u64, content: Content) -> Served {
    let mut headers = vec![
        ("content-type", "application/octet-stream".to_owned()),
        ("docker-content-digest", digest.to_owned()),
        ("accept-ranges", "bytes".to_owned()),
    ];
    headers.extend(rest.map(|rest| ("content-length", rest.to_string())));
    let mut status = StatusCode::OK;
    if from > 0
        && let Some(length) = length
    {
        status = StatusCode::PARTIAL_CONTENT;
        headers.push(("content-range", format!("bytes {from}-{}/{length}", length.saturating_sub(1))));
    }
    Served { status, headers, content }
}

/// A name as people write it, with everything in it that counts.
impl Asked {
    fn shown(&self) -> String {
        let Reference { digest, .. } = &self.reference;
        match digest {
            Some(digest) => format!("{}/{}@{digest}", self.reference.namespace(), self.reference.repository),
            None => self.reference.to_string(),
        }
    }
}
