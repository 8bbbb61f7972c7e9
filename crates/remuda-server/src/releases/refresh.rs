//! Keeps the release data of a server.
//!
//! Reads: the setting `rke-metadata-config`, the ConfigMap with the last good document.
//! Writes: that ConfigMap (the leader), the release data of this process (every server).
//! Never: forgets a good document because its source is gone.
//!
//! While the setting names no URL nothing is fetched and no timer runs.

use std::{collections::BTreeMap, io::Read, sync::Arc, time::Duration};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::management::Setting;
use remuda_base::Backoff;
use remuda_control::{Chain, Ctx, Informer, ObjectKey, Scope};
use remuda_distro::{
    Catalog, Current,
    document::{self, DocumentError},
    release::Source,
};
use remuda_names::{
    provisioning::release_data,
    rancher::{name::SYSTEM, setting::RELEASE_DATA},
};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    fetch::{FetchError, Fetched, fetch},
    setting::Config,
};

/// After a failure; doubles up to the interval, or an hour.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(60), Duration::from_secs(60 * 60));
/// For the cache to have what was written.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a document may unpack to.
const MAX_UNPACKED: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("read the document of {url}")]
    Document { url: String, source: DocumentError },
    #[error("pack the document")]
    Pack(#[source] std::io::Error),
    #[error("write ConfigMap {SYSTEM}/{}", release_data::CONFIG_MAP)]
    Write(#[source] kube::Error),
}

/// What is kept of a document that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    url: String,
    etag: Option<String>,
    /// When it was last seen to be what is there.
    checked: Option<Timestamp>,
    packed: Vec<u8>,
}

impl Kept {
    fn of(object: &ConfigMap) -> Option<Kept> {
        let text = |key: &str| object.data.as_ref()?.get(key).cloned();
        Some(Kept {
            url: text(release_data::URL)?,
            etag: text(release_data::ETAG).filter(|etag| !etag.is_empty()),
            checked: text(release_data::CHECKED).and_then(|text| text.parse().ok()),
            packed: object.binary_data.as_ref()?.get(release_data::DOCUMENT)?.0.clone(),
        })
    }

    fn catalog(&self) -> Result<Catalog, DocumentError> {
        let mut document = Vec::new();
        let unpacked = GzDecoder::new(self.packed.as_slice()).take(MAX_UNPACKED).read_to_end(&mut document);
        unpacked.map_err(|error| DocumentError::Yaml(error.to_string()))?;
        let date = self.checked.map(|time| time.to_zoned(TimeZone::UTC).date());
        let catalog = document::read(&document, Source::Url(self.url.clone()), date)?;
        Ok(catalog.completed_by(&Catalog::shipped()))
    }
}

/// Follows the setting and what was fetched, until told to stop. `fallback` is what counts without a URL.
pub(crate) async fn run(
    ctx: Arc<Ctx>,
    current: Current,
    fallback: Option<Arc<Catalog>>,
    stop: CancellationToken,
) {
    let settings: Informer<Setting> = ctx.informers.of(Scope::all());
    let fields = format!("metadata.name={}", release_data::CONFIG_MAP);
    let kept: Informer<ConfigMap> = ctx.informers.of(Scope::namespace(SYSTEM).with_fields(fields));
    let changed = Arc::new(Notify::new());
    let (one, other) = (changed.clone(), changed.clone());
    let _settings = settings.subscribe(move |change| {
        if change.object().is_some_and(|setting| setting.name_any() == RELEASE_DATA) {
            one.notify_one();
        }
    });
    let _kept = kept.subscribe(move |_| other.notify_one());
    let synced = async { tokio::join!(settings.wait_synced(), kept.wait_synced()) };
    if stop.run_until_cancelled(synced).await.is_none() {
        return;
    }
    let (mut loaded, mut is_readable): (Option<Kept>, bool) = (None, false);
    let mut pace = Pace::default();
    while !stop.is_cancelled() {
        let setting = settings.get(&ObjectKey::cluster_wide(RELEASE_DATA));
        let value = setting.map(|setting| setting.effective().to_owned()).unwrap_or_default();
        let config = Config::parse(&value).unwrap_or_else(|reason| {
            warn!(setting = RELEASE_DATA, reason, "release data is not fetched");
            None
        });
        let known = kept.get(&ObjectKey::namespaced(SYSTEM, release_data::CONFIG_MAP));
        let known = known.and_then(|object| Kept::of(&object)).filter(|_| config.is_some());
        if known != loaded {
            is_readable = load(&current, known.as_ref(), fallback.as_ref());
            loaded.clone_from(&known);
        } else if known.is_none() {
            current.set(fallback.clone());
        }
        let Some(config) = config else {
            pace = Pace::default();
            tokio::select! {
                () = stop.cancelled() => {}
                () = changed.notified() => {}
            }
            continue;
        };
        let due = pace.due(&config, known.as_ref().filter(|_| is_readable), ctx.clock.now());
        if due.is_zero() && ctx.leadership.is_ours() {
            let refreshed = refresh(&ctx, &config, known.as_ref());
            match stop.run_until_cancelled(refreshed).await {
                None => {}
                Some(Ok(version)) => {
                    pace = Pace::default();
                    // Who looks at a cache from before the write would fetch again.
                    kept.wait_for(&version, PATIENCE).await;
                }
                Some(Err(error)) => {
                    pace.failed(&config, ctx.clock.now());
                    warn!(error = %Chain(&error), "release data was not refreshed; what is known stays");
                }
            }
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = changed.notified() => {}
            () = tokio::time::sleep(due), if !due.is_zero() => {}
            () = ctx.leadership.gained(), if !ctx.leadership.is_ours() => {}
        }
    }
}

/// Takes over what is kept; `false` if there is nothing or it cannot be read.
fn load(current: &Current, kept: Option<&Kept>, fallback: Option<&Arc<Catalog>>) -> bool {
    let catalog = kept.and_then(|kept| match kept.catalog() {
        Ok(catalog) => {
            let (k3s, rke2) = (catalog.k3s.list().len(), catalog.rke2.list().len());
            info!(source = %catalog.source, k3s, rke2, "release data loaded");
            Some(Arc::new(catalog))
        }
        Err(error) => {
            warn!(error = %Chain(&error), url = kept.url, "the release data that was kept cannot be read");
            None
        }
    });
    let is_readable = catalog.is_some();
    current.set(catalog.or_else(|| fallback.cloned()));
    is_readable
}

/// When to look again.
#[derive(Debug, Default)]
struct Pace {
    failures: u32,
    retry_at: Option<(String, Timestamp)>,
}

impl Pace {
    fn due(&self, config: &Config, kept: Option<&Kept>, now: Timestamp) -> Duration {
        let until = match (&self.retry_at, kept.filter(|kept| kept.url == config.url)) {
            (Some((url, at)), _) if *url == config.url => Some(*at),
            (_, Some(kept)) => kept.checked.and_then(|checked| checked.checked_add(config.interval).ok()),
            _ => None,
        };
        let left = until.map_or(SignedDuration::ZERO, |until| until.duration_since(now));
        // A clock that was set back does not keep anything away for longer than an interval.
        left.unsigned_abs().min(config.interval) * u32::from(left.is_positive())
    }

    fn failed(&mut self, config: &Config, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        let delay = BACKOFF.delay(self.failures).min(config.interval);
        self.retry_at = now.checked_add(delay).ok().map(|at| (config.url.clone(), at));
    }
}

/// Fetches the document, checks it and keeps it; returns the version it was written with.
async fn refresh(ctx: &Ctx, config: &Config, kept: Option<&Kept>) -> Result<String, RefreshError> {
    let same = kept.filter(|kept| kept.url == config.url);
    let fetched = fetch(&config.url, same.and_then(|kept| kept.etag.as_deref())).await?;
    let now = ctx.clock.now();
    let mut object = ConfigMap::default();
    object.metadata.name = Some(release_data::CONFIG_MAP.to_owned());
    let (etag, packed) = match (fetched, same) {
        (Fetched::Unchanged, Some(kept)) => (kept.etag.clone(), kept.packed.clone()),
        (Fetched::Unchanged, None) => {
            let (url, code) = (config.url.clone(), StatusCode::NOT_MODIFIED);
            return Err(FetchError::Status { url, code }.into());
        }
        (Fetched::Document { bytes, etag }, _) => {
            let invalid = |source| RefreshError::Document { url: config.url.clone(), source };
            let source = Source::Url(config.url.clone());
            document::read(&bytes, source, None).map_err(invalid)?;
            let reduced = document::reduce(&bytes).unwrap_or(bytes);
            (etag, pack(&reduced).map_err(RefreshError::Pack)?)
        }
    };
    object.data = Some(BTreeMap::from([
        (release_data::URL.to_owned(), config.url.clone()),
        (release_data::ETAG.to_owned(), etag.unwrap_or_default()),
        (release_data::CHECKED.to_owned(), now.to_string()),
    ]));
    object.binary_data = Some(BTreeMap::from([(release_data::DOCUMENT.to_owned(), ByteString(packed))]));
    write(ctx, &object).await.map_err(RefreshError::Write)
}

fn pack(document: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::Write;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(document)?;
    encoder.finish()
}

async fn write(ctx: &Ctx, object: &ConfigMap) -> Result<String, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), SYSTEM);
    let params = PatchParams::apply(&ctx.field_manager).force();
    let mut body = json!(object);
    body["apiVersion"] = json!("v1");
    body["kind"] = json!("ConfigMap");
    let written = api.patch(&object.name_any(), &params, &Patch::Apply(body)).await?;
    Ok(written.resource_version().unwrap_or_default())
}

#[cfg(test)]
mod tests;
