//! Manifests and indices of images, as far as their parts have to be found.

use remuda_oci::{Digest, reference::is_digest};
use serde::Deserialize;

/// No manifest is larger.
pub(crate) const LARGEST: usize = 4 << 20;
/// No image has more layers, and no index more images.
const MOST: usize = 512;
/// Layers a registry does not have itself.
const FOREIGN: [&str; 2] = ["nondistributable", "foreign"];

pub(crate) const INDICES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const IMAGES: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];

/// What a registry is asked for.
pub(crate) fn accepted() -> String {
    [INDICES, IMAGES].concat().join(", ")
}

/// A part of an image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub digest: String,
    pub size: u64,
    #[serde(default)]
    pub media_type: String,
    #[serde(default)]
    pub platform: Option<Platform>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

/// A manifest that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub media_type: String,
    /// Images of an index, or configuration and layers of an image.
    pub parts: Parts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parts {
    Index(Vec<Descriptor>),
    Image(Vec<Descriptor>),
}

/// Why bytes are no manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("a manifest has more than {LARGEST} bytes")]
    TooLarge,
    #[error("not a manifest: {0}")]
    Json(#[from] serde_json::Error),
    #[error("a manifest of the kind {0:?}, which is not known")]
    Kind(String),
    #[error("a manifest with more than {MOST} parts")]
    TooMany,
    #[error("a part has the digest {0:?}, and only sha256 is known")]
    Digest(String),
}

impl Manifest {
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        if bytes.len() > LARGEST {
            return Err(ManifestError::TooLarge);
        }
        // A list would be read as a manifest without anything in it.
        let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(bytes)?;
        let raw: Raw = serde_json::from_value(fields.into())?;
        let default = if raw.config.is_some() { IMAGES[0] } else { INDICES[0] };
        let media_type = raw.media_type.unwrap_or_else(|| default.to_owned());
        let is_index = INDICES.contains(&media_type.as_str());
        if !is_index && !IMAGES.contains(&media_type.as_str()) {
            return Err(ManifestError::Kind(media_type.chars().take(128).collect()));
        }
        let mut parts = if is_index { raw.manifests } else { raw.layers };
        if !is_index {
            parts.retain(|layer| !FOREIGN.iter().any(|kind| layer.media_type.contains(kind)));
            parts.extend(raw.config);
        }
        if parts.len() > MOST {
            return Err(ManifestError::TooMany);
        }
        if let Some(part) = parts.iter().find(|part| !is_digest(&part.digest)) {
            return Err(ManifestError::Digest(part.digest.chars().take(128).collect()));
        }
        Ok(Manifest { media_type, parts: if is_index { Parts::Index(parts) } else { Parts::Image(parts) } })
    }
}

/// Whether bytes have this digest.
pub(crate) fn has_digest(bytes: &[u8], digest: &str) -> bool {
    Digest::of(bytes).to_string() == digest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn digest(of: &str) -> String {
        Digest::of(of.as_bytes()).to_string()
    }

    #[test]
    fn parts_of_images_and_indices_are_found() {
        let part = |of: &str, kind: &str| json!({"digest": digest(of), "size": 3, "mediaType": kind});
        let image = json!({"mediaType": IMAGES[1], "config": part("c", ""), "layers": [
            part("a", "layer"), part("b", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")]});
        let Parts::Image(parts) = Manifest::parse(image.to_string().as_bytes()).unwrap().parts else {
            panic!()
        };
        let found: Vec<&str> = parts.iter().map(|part| part.digest.as_str()).collect();
        assert_eq!(found, [digest("a"), digest("c")]);
        let index = json!({"mediaType": INDICES[0], "manifests": [part("m", IMAGES[0])]});
        assert!(matches!(Manifest::parse(index.to_string().as_bytes()).unwrap().parts, Parts::Index(_)));
        // Old ones say nothing.
        let bare = json!({"config": part("c", ""), "layers": []});
        assert_eq!(Manifest::parse(bare.to_string().as_bytes()).unwrap().media_type, IMAGES[0]);
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
        let refused =
            |value: serde_json::Value| Manifest::parse(value.to_string().as_bytes()).unwrap_err().to_string();
        assert!(refused(json!({"mediaType": "x/y"})).contains("not known"));
        assert!(refused(json!({"manifests": [{"digest": "md5:x", "size": 1}]})).contains("only sha256"));
        assert!(refused(json!([])).starts_with("not a manifest"));
        let many = vec![json!({"digest": digest("a"), "size": 1}); MOST + 1];
        assert!(refused(json!({"manifests": many})).contains("more than"));
        assert!(matches!(Manifest::parse(&vec![b' '; LARGEST + 1]), Err(ManifestError::TooLarge)));
    }

    proptest! {
        #[test]
        fn reading_never_fails_badly(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Manifest::parse(&bytes);
        }
    }
}
