//! Names of images.

use std::fmt;

/// A name taken apart, with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Host and port of the registry.
    pub registry: String,
    /// Name below it.
    pub repository: String,
    /// Tag; `latest` unless given.
    pub tag: String,
    /// Digest, which wins over the tag.
    pub digest: Option<String>,
}

/// Docker Hub under the name its API has.
pub const DOCKER_HUB: &str = "index.docker.io";

/// Why text is no image name.
#[derive(Debug, thiserror::Error)]
#[error("image name {name:?}: {reason}")]
pub struct ReferenceError {
    name: String,
    reason: &'static str,
}

impl Reference {
    /// Reads a name as container tools write it.
    pub fn parse(name: &str) -> Result<Self, ReferenceError> {
        let refuse = |reason| Err(ReferenceError { name: name.chars().take(256).collect(), reason });
        let (rest, digest) = match name.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (name, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return refuse("digest must be sha256: and 64 hexadecimal digits");
        }
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, tag),
            _ => (rest, "latest"),
        };
        let (registry, repository) = match path.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => (DOCKER_HUB, path),
        };
        let registry = if registry == "docker.io" { DOCKER_HUB } else { registry };
        let is_tag_char = |symbol: char| symbol.is_ascii_alphanumeric() || "_.-".contains(symbol);
        if tag.is_empty() || tag.len() > 128 || !tag.chars().all(is_tag_char) {
            return refuse("tag may hold letters, digits, _ . and - only");
        }
        let is_name_char =
            |symbol: char| symbol.is_ascii_lowercase() || symbol.is_ascii_digit() || "_.-".contains(symbol);
        let is_part =
            |part: &str| !part.is_empty() && part != "." && part != ".." && part.chars().all(is_name_char);
        if repository.len() > 255 || !repository.split('/').all(is_part) {
            return refuse("repository may hold lower-case letters, digits, _ . - and / only");
        }
        if !registry.chars().all(|symbol| symbol.is_ascii_alphanumeric() || ".:-_[]".contains(symbol)) {
            return refuse("registry is not a host");
        }
        let repository = if registry == DOCKER_HUB && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        Ok(Self {
            registry: registry.to_owned(),
            repository,
            tag: tag.to_owned(),
            digest: digest.map(str::to_owned),
        })
    }

    /// Whether both name the same tag of the same repository.
    pub fn same_tag(&self, other: &Self) -> bool {
        (&self.registry, &self.repository, &self.tag) == (&other.registry, &other.repository, &other.tag)
    }

    /// The registry as people and mirrors call it.
    pub fn namespace(&self) -> &str {
        if self.registry == DOCKER_HUB { "docker.io" } else { &self.registry }
    }
}

/// As containerd and Docker write it in full.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace(), self.repository, self.tag)
    }
}

/// Whether text is a digest this agent can check.
pub fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_filled_in() {
        for (name, expected) in [
            ("busybox", "index.docker.io library/busybox latest"),
            ("rancher/a:v1", "index.docker.io rancher/a v1"),
            ("docker.io/rancher/a", "index.docker.io rancher/a latest"),
            ("localhost/a/b:1", "localhost a/b 1"),
            ("r.example.com:5000/a", "r.example.com:5000 a latest"),
            ("127.0.0.1:5000/a:2", "127.0.0.1:5000 a 2"),
        ] {
            let reference = Reference::parse(name).unwrap();
            assert_eq!(
                format!("{} {} {}", reference.registry, reference.repository, reference.tag),
                expected
            );
        }
        let digest = format!("sha256:{}", "a".repeat(64));
        assert_eq!(Reference::parse(&format!("x@{digest}")).unwrap().digest, Some(digest));
    }

    #[test]
    fn nonsense_is_refused() {
        for name in ["", "A", "a:", "a@sha256:1", "a/../b", "a//b", "a b", "x.y/", "ho st.x/a", "a:b c", "/a"]
        {
            assert!(Reference::parse(name).is_err(), "{name}");
        }
    }
}
