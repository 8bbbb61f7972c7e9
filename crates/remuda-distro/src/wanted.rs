//! From what people write as a version to a release.

use crate::{
    Distro,
    release::{Catalog, channel},
    version::{self, Minor},
};

/// What a cluster is to run, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A complete version with build metadata, `v` in front.
    Exact(String),
    /// Something a release is looked up for.
    Alias { alias: Alias, distro: Option<Distro> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alias {
    /// `stable`, `latest` or `default`.
    Channel(String),
    /// `1.35`: its newest release.
    Minor(Minor),
    /// `1.35.2`: its newest build.
    Patch(semver::Version),
}

/// Why no release was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    #[error("is not a version: write one such as v1.35.1+k3s1, a minor version such as 1.35, or stable")]
    NotAVersion,
    #[error("{} {what} is not in the release data: write the whole version, such as v1.35.1+{}", .distro.title(), .distro.first_build())]
    Unknown { distro: Distro, what: String },
}

impl Wanted {
    /// `v1.35.1+k3s1`, or `stable`, `latest`, `1.35`, `1.35.2`, each with `+k3s` or `+rke2` behind it if wanted.
    pub fn parse(text: &str) -> Option<Wanted> {
        let (head, distro) = match text.split_once('+') {
            None => (text, None),
            Some((head, build)) => match Distro::named(build) {
                Some(distro) => (head, Some(distro)),
                // Builds of others can be installed, if their image is there.
                None => {
                    let version = version::parse(text)?;
                    return Some(Wanted::Exact(format!("v{version}")));
                }
            },
        };
        let alias = if [channel::STABLE, channel::LATEST, channel::DEFAULT].contains(&head) {
            Alias::Channel(head.to_owned())
        } else if let Some(minor) = Minor::parse(head) {
            Alias::Minor(minor)
        } else {
            let version = version::parse(head)?;
            if !version.pre.is_empty() && distro.is_none() {
                return Some(Wanted::Exact(format!("v{version}")));
            }
            Alias::Patch(version)
        };
        Some(Wanted::Alias { alias, distro })
    }

    /// The release meant. An alias that names no distribution stays with `distro`.
    pub fn resolve(&self, catalog: &Catalog, stay: Distro) -> Result<String, Unresolved> {
        let (alias, distro) = match self {
            Wanted::Exact(version) => return Ok(version.clone()),
            Wanted::Alias { alias, distro } => (alias, distro.unwrap_or(stay)),
        };
        let releases = catalog.of(distro);
        let found = match alias {
            Alias::Channel(name) => releases.channel(name).map(str::to_owned),
            Alias::Minor(minor) => releases.channel(&format!("v{minor}")).map(str::to_owned),
            Alias::Patch(version) => {
                let same = |release: &crate::release::Release| release.parsed.cmp_precedence(version).is_eq();
                releases.newest(same).map(|release| release.version.clone())
            }
        };
        found.ok_or_else(|| Unresolved::Unknown { distro, what: alias.to_string() })
    }
}

/// Reads and resolves in one step.
pub fn resolve(text: &str, catalog: &Catalog, stay: Distro) -> Result<String, Unresolved> {
    Wanted::parse(text).ok_or(Unresolved::NotAVersion)?.resolve(catalog, stay)
}

impl std::fmt::Display for Alias {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Alias::Channel(name) => f.write_str(name),
            Alias::Minor(minor) => write!(f, "{minor}"),
            Alias::Patch(version) => write!(f, "{version}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, stay: Distro, expected: &str) {
        let found = match resolve(text, &Catalog::shipped(), stay) {
            Ok(version) => version,
            Err(error) => format!("! {error}"),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn aliases_become_releases_and_complete_versions_stay() {
        use Distro::{K3s, Rke2};
        check("v1.35.2+k3s1", Rke2, "v1.35.2+k3s1");
        check("1.35.2+k3s1", Rke2, "v1.35.2+k3s1");
        check("v9.9.9+custom", K3s, "v9.9.9+custom");
        check("stable", K3s, "v1.36.3+k3s1");
        check("stable", Rke2, "v1.35.7+rke2r1");
        check("latest+rke2", K3s, "v1.36.3+rke2r1");
        check("1.34", Rke2, "v1.34.10+rke2r1");
        check("v1.33+k3s", Rke2, "v1.33.13+k3s2");
        check("1.35.0", K3s, "v1.35.0+k3s3");
        check("v1.35.3+rke2", K3s, "v1.35.3+rke2r3");
    }

    #[test]
    fn what_is_no_version_or_not_known_is_refused_with_what_to_write() {
        let what =
            "! is not a version: write one such as v1.35.1+k3s1, a minor version such as 1.35, or stable";
        for odd in ["", "newest", "v1", "1.35.x", "stable+", "+k3s", "v1.35.1+", "１.35", "1.35.1+k3s1+k3s"]
        {
            check(odd, Distro::K3s, what);
        }
        check(
            "1.12",
            Distro::Rke2,
            "! RKE2 1.12 is not in the release data: write the whole version, such as v1.35.1+rke2r1",
        );
    }
}
