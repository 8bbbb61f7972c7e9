//! The document Rancher's metadata service publishes, as JSON (`data.json`) or YAML (`channels.yaml`).
//!
//! ```text
//! k3s, rke2      one part each; a YAML file of one distribution is that part itself
//!   channels     name, latest
//!   releases     version, serverArgs, agentArgs, featureVersions, charts
//!   appDefaults  which minor version is proposed
//! ```
//!
//! What else is in it is passed over. For which servers a release is meant (`minChannelServerVersion`) is about
//! Rancher's versions and says nothing here.

use std::{collections::BTreeMap, sync::Arc};

use jiff::civil::Date;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::{
    Distro,
    release::{Argument, Arguments, Catalog, Release, Releases, Source, Versions, channel},
    version::{self, Minor},
};

/// More releases than there will be in a lifetime.
const MAX_RELEASES: usize = 10_000;
/// Arguments, charts or features of one release.
const MAX_ENTRIES: usize = 1_000;
/// Of names and versions.
const MAX_TEXT: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("not a JSON document")]
    Json(#[source] serde_json::Error),
    #[error("not a YAML document: {0}")]
    Yaml(String),
    #[error("it names no release of K3s or RKE2")]
    NoReleases,
    #[error("release {version:?}: {what}")]
    Release { version: String, what: &'static str },
    #[error("{} has more than {MAX_RELEASES} releases", .0.title())]
    TooMany(Distro),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    #[serde(deserialize_with = "or_default")]
    k3s: Part,
    #[serde(deserialize_with = "or_default")]
    rke2: Part,
    /// Of a file that is about one distribution.
    #[serde(flatten)]
    alone: Part,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Part {
    #[serde(deserialize_with = "or_default")]
    releases: Vec<Entry>,
    #[serde(deserialize_with = "or_default")]
    channels: Vec<Channel>,
    #[serde(deserialize_with = "or_default")]
    app_defaults: Vec<AppDefaults>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Channel {
    name: String,
    latest: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AppDefaults {
    #[serde(deserialize_with = "or_default")]
    defaults: Vec<AppDefault>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AppDefault {
    default_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Entry {
    version: String,
    #[serde(deserialize_with = "or_default")]
    server_args: BTreeMap<String, Value>,
    #[serde(deserialize_with = "or_default")]
    agent_args: BTreeMap<String, Value>,
    #[serde(deserialize_with = "or_default")]
    feature_versions: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    charts: BTreeMap<String, Chart>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Chart {
    version: String,
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(input).map(Option::unwrap_or_default)
}

/// Reads a document and checks it: what would leave clusters without arguments is refused as a whole.
pub fn read(document: &[u8], source: Source, date: Option<Date>) -> Result<Catalog, DocumentError> {
    let first = document.iter().find(|byte| !byte.is_ascii_whitespace());
    let document: Document = match first {
        Some(b'{') => serde_json::from_slice(document).map_err(DocumentError::Json)?,
        _ => {
            let text =
                std::str::from_utf8(document).map_err(|error| DocumentError::Yaml(error.to_string()))?;
            let yaml = |error: serde_saphyr::Error| DocumentError::Yaml(error.without_snippet().to_string());
            serde_saphyr::from_str_with_options(text, serde_saphyr::options! { budget: Some(budget()) })
                .map_err(yaml)?
        }
    };
    let Document { mut k3s, mut rke2, alone } = document;
    match alone.releases.first().map(|entry| Distro::of(&entry.version)) {
        Some(Distro::K3s) => k3s = alone,
        Some(Distro::Rke2) => rke2 = alone,
        None => {}
    }
    if k3s.releases.is_empty() && rke2.releases.is_empty() {
        return Err(DocumentError::NoReleases);
    }
    Ok(Catalog { source, date, k3s: part(Distro::K3s, k3s)?, rke2: part(Distro::Rke2, rke2)? })
}

/// These files repeat a few anchors for hundreds of releases; what that unpacks to has limits of its own.
fn budget() -> serde_saphyr::Budget {
    let mut budget = serde_saphyr::Budget::default();
    budget.enforce_alias_anchor_ratio = false;
    budget
}

fn part(distro: Distro, part: Part) -> Result<Releases, DocumentError> {
    if part.releases.len() > MAX_RELEASES {
        return Err(DocumentError::TooMany(distro));
    }
    let mut shared = Shared::default();
    let mut list = Vec::with_capacity(part.releases.len());
    for entry in part.releases {
        list.push(release(distro, entry, &mut shared)?);
    }
    let without = BTreeMap::new();
    let usable = |release: &Release| !release.server_args.is_empty() && !release.agent_args.is_empty();
    if let (Some(last), false) = (list.last(), list.iter().any(usable)) {
        let version = last.version.clone();
        return Err(DocumentError::Release { version, what: "neither it nor any other names its arguments" });
    }
    let known = |version: &str| list.iter().any(|release| release.version == version);
    let mut channels: BTreeMap<String, String> = part
        .channels
        .into_iter()
        .filter(|channel| known(&channel.latest) && !channel.name.is_empty())
        .map(|channel| (channel.name, channel.latest))
        .collect();
    // `default` is kept for old clients there; the minor version that is proposed is among the defaults.
    channels.remove(channel::DEFAULT);
    let proposed = part.app_defaults.iter().flat_map(|of| &of.defaults).last();
    let proposed = proposed.and_then(|default| Minor::parse(default.default_version.trim_end_matches(".x")));
    let releases = Releases::new(list, channels.clone(), without.clone());
    let stable = proposed.and_then(|minor| releases.channel(&format!("v{minor}")).map(str::to_owned));
    if let (Some(stable), false) = (stable, channels.contains_key(channel::STABLE)) {
        channels.insert(channel::STABLE.to_owned(), stable);
        return Ok(Releases::new(releases.list().to_vec(), channels, without));
    }
    Ok(releases)
}

/// Most releases have what the one before them has.
#[derive(Default)]
struct Shared {
    arguments: Vec<Arc<Arguments>>,
    versions: Vec<Arc<Versions>>,
}

fn share<T: PartialEq>(known: &mut Vec<Arc<T>>, value: T) -> Arc<T> {
    // The last few are enough: what is shared is shared by neighbours.
    const NEIGHBOURS: usize = 8;
    if let Some(same) = known.iter().rev().take(NEIGHBOURS).find(|other| ***other == value) {
        return same.clone();
    }
    let value = Arc::new(value);
    known.push(value.clone());
    value
}

fn release(distro: Distro, entry: Entry, shared: &mut Shared) -> Result<Release, DocumentError> {
    let invalid = |what| {
        let version: String = entry.version.chars().take(MAX_TEXT).collect();
        DocumentError::Release { version, what }
    };
    let parsed = version::parse(&entry.version).filter(|_| entry.version.len() <= MAX_TEXT);
    let parsed = parsed.ok_or_else(|| invalid("not a version"))?;
    if Distro::of(&entry.version) != distro {
        return Err(invalid("not of the distribution it is listed under"));
    }
    let counts =
        [entry.server_args.len(), entry.agent_args.len(), entry.feature_versions.len(), entry.charts.len()];
    if counts.iter().any(|count| *count > MAX_ENTRIES) {
        return Err(invalid("too many arguments, features or charts"));
    }
    let server_args = share(&mut shared.arguments, arguments(&entry.server_args));
    let agent_args = share(&mut shared.arguments, arguments(&entry.agent_args));
    let features = versions(entry.feature_versions.iter());
    let charts = versions(entry.charts.iter().map(|(name, chart)| (name, &chart.version)));
    let features = share(&mut shared.versions, features);
    let charts = share(&mut shared.versions, charts);
    let images = Arc::default();
    Ok(Release {
        version: entry.version,
        parsed,
        date: None,
        server_args,
        agent_args,
        features,
        charts,
        images,
    })
}

fn versions<'a>(entries: impl Iterator<Item = (&'a String, &'a String)>) -> Versions {
    entries.map(|(name, version)| (name.as_str().into(), version.as_str().into())).collect()
}

/// What is of another shape is an argument of which nothing is known.
fn arguments(args: &BTreeMap<String, Value>) -> Arguments {
    let read = |value: &Value| Argument::deserialize(value).unwrap_or_default();
    args.iter().map(|(name, value)| (name.as_str().into(), read(value))).collect()
}

/// The parts of a document that are read, as JSON: what is kept of one that was fetched.
pub fn reduce(document: &[u8]) -> Option<Vec<u8>> {
    let document: Value = serde_json::from_slice(document).ok()?;
    serde_json::to_vec(&json!({"k3s": document["k3s"], "rke2": document["rke2"]})).ok()
}

/// A release as the same document has it; `repo` of charts is the one they are in at present.
pub fn written(release: &Release) -> Value {
    let repo = "rancher-rke2-charts";
    let charts: serde_json::Map<String, Value> = match Distro::of(&release.version) {
        // Those of K3s are part of its program.
        Distro::K3s => serde_json::Map::new(),
        Distro::Rke2 => {
            let one = |(name, version): (&Arc<str>, &Arc<str>)| {
                (name.to_string(), json!({"repo": repo, "version": &**version}))
            };
            release.charts.iter().map(one).collect()
        }
    };
    let arguments = |args: &Arguments| -> Value {
        args.iter().map(|(name, argument)| (name.to_string(), json!(argument))).collect()
    };
    let features: Value =
        release.features.iter().map(|(name, version)| (name.to_string(), json!(&**version))).collect();
    json!({
        "version": release.version,
        "serverArgs": arguments(&release.server_args),
        "agentArgs": arguments(&release.agent_args),
        "featureVersions": features,
        "charts": charts,
    })
}
