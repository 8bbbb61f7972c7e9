//! The model: what is known of the releases of both distributions.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, OnceLock},
};

use jiff::civil::Date;
use semver::Version;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Distro, table,
    version::{self, Minor},
};

/// Arguments by name.
pub type Arguments = BTreeMap<Arc<str>, Argument>;
/// Features, charts or images, and the version of each.
pub type Versions = BTreeMap<Arc<str>, Arc<str>>;

/// Channels there always are, as far as there are releases.
pub mod channel {
    /// What is recommended.
    pub const STABLE: &str = "stable";
    /// The newest release.
    pub const LATEST: &str = "latest";
    /// Under which clients of Rancher look for what to propose.
    pub const DEFAULT: &str = "default";
}

/// What an argument of a server or an agent takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Argument {
    /// `string`, `array`, `boolean`, `enum` and others.
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Value>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nullable: bool,
}

impl Argument {
    pub fn is_boolean(&self) -> bool {
        self.kind == "boolean"
    }
}

/// One release of a distribution. What several releases have in common is shared.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    /// As it is written, such as `v1.35.1+k3s1`.
    pub version: String,
    pub parsed: Version,
    pub date: Option<Date>,
    pub server_args: Arc<Arguments>,
    pub agent_args: Arc<Arguments>,
    pub features: Arc<Versions>,
    pub charts: Arc<Versions>,
    /// Images below `rancher/` and their tags, where they are known.
    pub images: Arc<Versions>,
}

impl Release {
    pub fn minor(&self) -> Minor {
        Minor::of(&self.parsed)
    }

    pub fn facts(&self) -> Facts {
        Facts {
            server_args: self.server_args.clone(),
            agent_args: self.agent_args.clone(),
            features: self.features.clone(),
        }
    }
}

/// What the planner decides by.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Facts {
    #[serde(with = "arguments")]
    pub server_args: Arc<Arguments>,
    #[serde(with = "arguments")]
    pub agent_args: Arc<Arguments>,
    #[serde(with = "versions")]
    pub features: Arc<Versions>,
}

/// Shared arguments as data.
mod arguments {
    use std::{collections::BTreeMap, sync::Arc};

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Argument, Arguments};

    pub(super) fn serialize<S: Serializer>(arguments: &Arguments, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(arguments.iter().map(|(name, argument)| (&**name, argument)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Arc<Arguments>, D::Error> {
        let arguments = BTreeMap::<String, Argument>::deserialize(input)?;
        Ok(Arc::new(arguments.into_iter().map(|(name, argument)| (name.into(), argument)).collect()))
    }
}

/// Shared versions as data.
mod versions {
    use std::{collections::BTreeMap, sync::Arc};

    use serde::{Deserialize, Deserializer, Serializer};

    use super::Versions;

    pub(super) fn serialize<S: Serializer>(versions: &Versions, out: S) -> Result<S::Ok, S::Error> {
        out.collect_map(versions.iter().map(|(name, version)| (&**name, &**version)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Arc<Versions>, D::Error> {
        let versions = BTreeMap::<String, String>::deserialize(input)?;
        Ok(Arc::new(versions.into_iter().map(|(name, version)| (name.into(), version.into())).collect()))
    }
}

impl Facts {
    /// Whether the arguments are there to decide by.
    pub fn is_usable(&self) -> bool {
        !self.server_args.is_empty() && !self.agent_args.is_empty()
    }

    /// What an argument takes; `None` if a node must not be given it.
    pub fn argument(&self, name: &str, server: bool) -> Option<&Argument> {
        let agent = self.agent_args.get(name);
        if server { agent.or_else(|| self.server_args.get(name)) } else { agent }
    }
}

/// The releases of one distribution.
#[derive(Debug, Clone, Default)]
pub struct Releases {
    /// Oldest first; one of each version.
    list: Vec<Release>,
    /// What channels stand for, where the source says so.
    channels: BTreeMap<String, String>,
    /// The last day on which Kubernetes is maintained.
    end_of_life: BTreeMap<Minor, Date>,
    union: OnceLock<Facts>,
}

impl Releases {
    pub(crate) fn new(
        mut list: Vec<Release>,
        channels: BTreeMap<String, String>,
        end_of_life: BTreeMap<Minor, Date>,
    ) -> Self {
        // The later of two entries of one version is the one that was corrected.
        list.reverse();
        list.sort_by(|a, b| version::compare(&a.parsed, &b.parsed).then_with(|| a.version.cmp(&b.version)));
        list.dedup_by(|a, b| a.version == b.version);
        Self { list, channels, end_of_life, union: OnceLock::new() }
    }

    /// Oldest first.
    pub fn list(&self) -> &[Release] {
        &self.list
    }

    pub fn find(&self, version: &str) -> Option<&Release> {
        let parsed = version::parse(version)?;
        let found = self.list.binary_search_by(|release| {
            version::compare(&release.parsed, &parsed).then_with(|| release.version.as_str().cmp(version))
        });
        found.ok().map(|index| &self.list[index])
    }

    /// The newest release that passes, no preview unless there is nothing else.
    pub fn newest(&self, passes: impl Fn(&Release) -> bool) -> Option<&Release> {
        let passing = || self.list.iter().rev().filter(|release| passes(release));
        passing().find(|release| release.parsed.pre.is_empty()).or_else(|| passing().next())
    }

    /// What a channel stands for: `stable`, `latest`, `default`, `v1.35` and those the source names.
    pub fn channel(&self, name: &str) -> Option<&str> {
        if let Some(version) = self.channels.get(name) {
            return Some(version);
        }
        let newest = match name {
            channel::LATEST => self.newest(|_| true),
            channel::STABLE => return self.channel(channel::LATEST),
            channel::DEFAULT => return self.channel(channel::STABLE),
            name => {
                let minor = Minor::parse(name)?;
                self.newest(|release| release.minor() == minor)
            }
        };
        newest.map(|release| release.version.as_str())
    }

    /// All channels and what they stand for; minor versions last, oldest first.
    pub fn channels(&self) -> Vec<(String, &str)> {
        let mut names =
            vec![channel::DEFAULT.to_owned(), channel::STABLE.to_owned(), channel::LATEST.to_owned()];
        let own = self.channels.keys().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>();
        names.extend(own);
        names.extend(self.minors().into_iter().map(|minor| format!("v{minor}")));
        names.dedup();
        let known = names.into_iter().filter_map(|name| {
            let version = self.channel(&name)?;
            Some((name, version))
        });
        known.collect()
    }

    /// Minor versions there are releases of, oldest first.
    pub fn minors(&self) -> Vec<Minor> {
        let mut minors: Vec<Minor> = self.list.iter().map(Release::minor).collect();
        minors.dedup();
        minors
    }

    pub fn end_of_life(&self, minor: Minor) -> Option<Date> {
        self.end_of_life.get(&minor).copied()
    }

    /// Of the exact release, else of all together and without features, so that custom builds can be installed.
    fn facts(&self, version: &str) -> Facts {
        if let Some(release) = self.find(version) {
            return release.facts();
        }
        let union = self.union.get_or_init(|| {
            let (mut server, mut agent) = (Arguments::new(), Arguments::new());
            for release in &self.list {
                let copy = |args: &Arguments| -> Vec<(Arc<str>, Argument)> {
                    args.iter().map(|(name, argument)| (name.clone(), argument.clone())).collect()
                };
                server.extend(copy(&release.server_args));
                agent.extend(copy(&release.agent_args));
            }
            Facts { server_args: server.into(), agent_args: agent.into(), features: Arc::default() }
        });
        union.clone()
    }
}

/// Where the data is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// What comes with this program.
    Shipped,
    File(String),
    Url(String),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Shipped => f.write_str("shipped with this program"),
            Source::File(path) => f.write_str(path),
            Source::Url(url) => f.write_str(url),
        }
    }
}

/// All that is known of releases.
#[derive(Debug)]
pub struct Catalog {
    pub source: Source,
    /// When its facts were gathered or fetched.
    pub date: Option<Date>,
    pub k3s: Releases,
    pub rke2: Releases,
}

impl Catalog {
    /// What comes with this program, read when it is first asked for.
    pub fn shipped() -> Arc<Catalog> {
        static SHIPPED: LazyLock<Arc<Catalog>> = LazyLock::new(|| {
            // The text is part of the program and a test reads it; a process without it still serves.
            Arc::new(table::read(table::SHIPPED).unwrap_or_else(|_| Catalog::empty()))
        });
        SHIPPED.clone()
    }

    fn empty() -> Catalog {
        Catalog { source: Source::Shipped, date: None, k3s: Releases::default(), rke2: Releases::default() }
    }

    pub fn of(&self, distro: Distro) -> &Releases {
        match distro {
            Distro::K3s => &self.k3s,
            Distro::Rke2 => &self.rke2,
        }
    }

    pub fn find(&self, version: &str) -> Option<&Release> {
        self.of(Distro::of(version)).find(version)
    }

    /// What the planner decides by, for any version.
    pub fn facts(&self, version: &str) -> Facts {
        self.of(Distro::of(version)).facts(version)
    }

    /// The last day on which the Kubernetes of this version is maintained, if that is known.
    pub fn end_of_life(&self, version: &str) -> Option<Date> {
        let minor = Minor::of(&version::parse(version)?);
        self.of(Distro::of(version)).end_of_life(minor)
    }

    /// Whether that day is over.
    pub fn is_past_end_of_life(&self, version: &str, today: Date) -> bool {
        self.end_of_life(version).is_some_and(|last| last < today)
    }

    /// Takes over what `other` knows and this does not: ends of life, which documents of others do not say, and a
    /// distribution that a document is not about.
    pub fn completed_by(mut self, other: &Catalog) -> Self {
        for (own, other) in [(&mut self.k3s, &other.k3s), (&mut self.rke2, &other.rke2)] {
            if own.list.is_empty() {
                *own = other.clone();
            }
            for (minor, date) in &other.end_of_life {
                own.end_of_life.entry(*minor).or_insert(*date);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests;
