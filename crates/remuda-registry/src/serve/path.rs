//! What a path below `/v2/` asks for.

use remuda_oci::{Reference, reference::is_digest};

use super::Refused;

/// What is asked for, and of which image.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) reference: Reference,
    pub(super) what: What,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    Manifest,
    Blob { digest: String },
}

/// The registry when none is named, as with container tools.
const DEFAULT: &str = "docker.io";

/// Reads `/v2/<repository>/manifests/<tag or digest>` or `/v2/<repository>/blobs/<digest>`; nothing for `/v2/` alone.
pub(super) fn parse(path: &str, namespace: Option<&str>) -> Result<Option<Asked>, Refused> {
    let rest = path.strip_prefix("/v2").ok_or(Refused::Path("not below /v2/"))?;
    let rest = match rest.strip_prefix('/') {
        None if rest.is_empty() => return Ok(None),
        None => return Err(Refused::Path("not below /v2/")),
        Some("") => return Ok(None),
        Some(rest) => rest,
    };
    let (before, last) =
        rest.rsplit_once('/').ok_or(Refused::Path("manifests and blobs can be read here"))?;
    let (repository, kind) =
        before.rsplit_once('/').ok_or(Refused::Path("manifests and blobs can be read here"))?;
    let registry = namespace.filter(|namespace| !namespace.is_empty()).unwrap_or(DEFAULT);
    let is_host = |symbol: char| symbol.is_ascii_alphanumeric() || ".:-[]".contains(symbol);
    if registry.len() > 255 || !registry.chars().all(is_host) {
        return Err(Refused::Path("ns is the host of a registry"));
    }
    // Not put together as text and taken apart again: a name must not become part of a host.
    let parsed = |tag: &str, digest: Option<&str>| {
        let suffix = digest.map_or_else(|| format!(":{tag}"), |digest| format!("@{digest}"));
        let reference = Reference::parse(&format!("registry.invalid/{repository}{suffix}"));
        let mut reference =
            reference.map_err(|_| Refused::Path("not the name of a repository and a tag or digest"))?;
        if reference.registry != "registry.invalid" || reference.repository != repository {
            return Err(Refused::Path("not the name of a repository"));
        }
        reference.registry = if registry == DEFAULT {
            remuda_oci::reference::DOCKER_HUB.to_owned()
        } else {
            registry.to_owned()
        };
        Ok(reference)
    };
    match kind {
        "manifests" if is_digest(last) => {
            Ok(Some(Asked { reference: parsed("", Some(last))?, what: What::Manifest }))
        }
        "manifests" => Ok(Some(Asked { reference: parsed(last, None)?, what: What::Manifest })),
        "blobs" if is_digest(last) => {
            let reference = parsed("", Some(last))?;
            Ok(Some(Asked { reference, what: What::Blob { digest: last.to_owned() } }))
        }
        "blobs" => Err(Refused::Path("blobs have a digest, sha256: and 64 hexadecimal digits")),
        _ => Err(Refused::Path("manifests and blobs can be read here")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_name_an_image_and_a_part_of_it() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let asked = parse("/v2/rancher/a/manifests/v1", Some("docker.io")).unwrap().unwrap();
        assert_eq!(
            (asked.reference.to_string().as_str(), asked.what),
            ("docker.io/rancher/a:v1", What::Manifest)
        );
        let asked = parse(&format!("/v2/a/b/c/blobs/{digest}"), Some("r.example:5000")).unwrap().unwrap();
        assert_eq!(
            (asked.reference.namespace(), asked.reference.repository.as_str()),
            ("r.example:5000", "a/b/c")
        );
        assert_eq!(asked.what, What::Blob { digest: digest.clone() });
        let asked = parse(&format!("/v2/a/manifests/{digest}"), None).unwrap().unwrap();
        assert_eq!(asked.reference.digest, Some(digest));
        assert_eq!(parse("/v2/", None).unwrap(), None);
        assert_eq!(parse("/v2", None).unwrap(), None);
    }

    #[test]
    fn paths_in_disguise_are_refused() {
        for path in [
            "/v2x",
            "/v2/a",
            "/v2/a/tags/list",
            "/v2/_catalog",
            "/v2/../manifests/v1",
            "/v2/a/../b/manifests/v1",
            "/v2//manifests/v1",
            "/v2/a//b/manifests/v1",
            "/v2/A/manifests/v1",
            "/v2/a/manifests/",
            "/v2/a/manifests/x@y",
            "/v2/a/blobs/sha256:short",
            "/v2/a/blobs/uploads/",
            "/v2/a%2fb/manifests/v1",
            "/v2/a:1/manifests/v1",
            "/v2/h.example/a@sha256:x/manifests/v1",
            "/v2/a/manifests/v1?x",
        ] {
            assert!(parse(path, None).is_err(), "{path}");
        }
        for namespace in ["a/b", "a b", "user@host", "host?x", "a\n", "#"] {
            assert!(parse("/v2/a/manifests/v1", Some(namespace)).is_err(), "{namespace}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_is_below_a_repository(path in "/v2/[a-zA-Z0-9./:@_%-]{0,80}", ns in "[a-z.:/@0-9]{0,20}") {
            if let Ok(Some(asked)) = parse(&path, Some(&ns)) {
                let repository = &asked.reference.repository;
                prop_assert!(!repository.split('/').any(|part| part.is_empty() || part == ".."), "{repository}");
                prop_assert!(!asked.reference.registry.contains(['/', '@', '?']));
            }
        }
    }
}
