//! Images: layers, a configuration, and a manifest that names them by their digests.

use std::{collections::BTreeMap, fs, io, path::Path};

use serde_json::{Value, json};

use crate::{
    digest::Digest,
    executable::Architecture,
    layer::{self, Entry, Layer},
};

pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
pub const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// When everything in an image was made, as far as it says: the day it was really made is no part of it.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// What an image is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    pub architecture: Architecture,
    /// The lowest first: files by their paths, without a slash in front.
    pub layers: Vec<BTreeMap<String, Entry>>,
    pub entrypoint: Vec<String>,
    pub command: Vec<String>,
    pub env: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

/// An image whose layers are on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub architecture: Architecture,
    pub layers: Vec<Layer>,
    pub config: Vec<u8>,
    pub manifest: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("write the image below {directory}")]
    Write { directory: String, source: io::Error },
}

impl Image {
    /// Makes an image; its layers are written into `directory`.
    pub fn build(directory: &Path, parts: &Parts) -> Result<Image, ImageError> {
        let failed = |source| ImageError::Write { directory: directory.display().to_string(), source };
        fs::create_dir_all(directory).map_err(failed)?;
        let layers: Result<Vec<Layer>, _> =
            parts.layers.iter().map(|entries| layer::build(directory, entries)).collect();
        let layers = layers.map_err(failed)?;
        let config = config(parts, &layers).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": descriptor(CONFIG_TYPE, &Digest::of(&config), config.len() as u64),
            "layers": layers
                .iter()
                .map(|layer| descriptor(LAYER_TYPE, &layer.digest, layer.size))
                .collect::<Vec<_>>(),
        });
        let manifest = manifest.to_string().into_bytes();
        Ok(Image { architecture: parts.architecture, layers, config, manifest })
    }

    /// By which the image is known: that of its manifest.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// The image as an index names it.
    pub fn descriptor(&self) -> Value {
        let mut descriptor = descriptor(MANIFEST_TYPE, &self.digest(), self.manifest.len() as u64);
        descriptor["platform"] = json!({"architecture": self.architecture.name(), "os": "linux"});
        descriptor
    }

    /// Bytes a registry has to keep of it, compressed.
    pub fn size(&self) -> u64 {
        let parts = (self.config.len() + self.manifest.len()) as u64;
        self.layers.iter().map(|layer| layer.size).sum::<u64>() + parts
    }
}

/// Images of several architectures under one name.
pub fn index(images: &[Image]) -> Vec<u8> {
    let manifests: Vec<Value> = images.iter().map(Image::descriptor).collect();
    json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests}).to_string().into_bytes()
}

fn descriptor(kind: &str, digest: &Digest, size: u64) -> Value {
    json!({"mediaType": kind, "digest": digest.to_string(), "size": size})
}

fn config(parts: &Parts, layers: &[Layer]) -> Value {
    let diff_ids: Vec<String> = layers.iter().map(|layer| layer.diff_id.to_string()).collect();
    let history: Vec<Value> =
        layers.iter().map(|_| json!({"created": CREATED, "created_by": "remuda"})).collect();
    json!({
        "created": CREATED,
        "architecture": parts.architecture.name(),
        "os": "linux",
        "config": {
            "Entrypoint": parts.entrypoint,
            "Cmd": parts.command,
            "Env": parts.env,
            "Labels": parts.labels,
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": history,
    })
}
