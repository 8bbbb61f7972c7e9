//! Images of a bundle as one file that containerd imports and node agents unpack: an OCI layout with the
//! `manifest.json` of `docker save` beside it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
};

use serde_json::{Value, json};
use tar::{Builder, Header};

use super::{Bundle, BundleError, part};
use crate::manifest::{Descriptor, Parts};

/// One image, for one architecture.
struct One {
    name: String,
    /// Of its manifest.
    digest: String,
    size: u64,
    media_type: String,
    layers: Vec<Descriptor>,
    config: Descriptor,
}

impl Bundle {
    /// Writes images, by their names in this bundle, into a file, which has its name when it is whole. All users of
    /// the host may read it.
    ///
    /// # Errors
    /// If one of them is not in the bundle for this architecture, or the file cannot be written.
    pub fn archive(&self, images: &[&str], architecture: &str, path: &Path) -> Result<(), BundleError> {
        let mut all = Vec::new();
        for name in images {
            all.push(self.one(name, architecture)?);
        }
        let mut pending = path.file_name().unwrap_or_default().to_owned();
        pending.push(".pending");
        let pending = path.with_file_name(pending);
        let written = self.pack(&all, &pending).and_then(|()| fs::rename(&pending, path));
        if written.is_err() {
            let _ = fs::remove_file(&pending);
        }
        written.map_err(|source| BundleError::Write { path: path.to_owned(), source })
    }

    fn one(&self, name: &str, architecture: &str) -> Result<One, BundleError> {
        let other = || BundleError::Architecture {
            path: self.path.clone(),
            image: name.to_owned(),
            architecture: architecture.to_owned(),
        };
        let named = self.index.images.get(name).ok_or_else(|| part(&self.path, name, "is not in it"))?;
        let mut digest = named.clone();
        let mut manifest = self.manifest(&digest)?;
        if let Parts::Index(images) = &manifest.parts {
            let wanted = |one: &&Descriptor| {
                let platform = one.platform.as_ref();
                platform.is_some_and(|at| at.os == "linux" && at.architecture == architecture)
                    && self.places.contains_key(&one.digest)
            };
            digest = images.iter().find(wanted).ok_or_else(other)?.digest.clone();
            manifest = self.manifest(&digest)?;
        }
        let Parts::Image(mut layers) = manifest.parts else {
            return Err(part(&self.path, &digest, "is an index in an index"));
        };
        // The last one is the configuration.
        let config = layers.pop().ok_or_else(|| part(&self.path, &digest, "has no configuration"))?;
        let made: Value = serde_json::from_slice(&self.small(&config.digest)?).unwrap_or_default();
        if made["architecture"].as_str().is_some_and(|made| !made.is_empty() && made != architecture) {
            return Err(other());
        }
        let size = self.place(&digest).map_or(0, |place| place.size);
        Ok(One { name: name.to_owned(), digest, size, media_type: manifest.media_type, layers, config })
    }

    fn pack(&self, all: &[One], path: &Path) -> io::Result<()> {
        let mut tar = Builder::new(BufWriter::with_capacity(1 << 20, File::create(path)?));
        let parts = |one: &One| -> Vec<String> {
            let layers = one.layers.iter().map(|layer| layer.digest.clone());
            layers.chain([one.digest.clone(), one.config.digest.clone()]).collect()
        };
        // Images share layers.
        let digests: BTreeSet<String> = all.iter().flat_map(parts).collect();
        for digest in &digests {
            let place = self.place(digest).ok_or_else(|| io::Error::other(format!("{digest} is missing")))?;
            tar.append_data(&mut header(place.size), blob(digest), self.reader(place)?)?;
        }
        for (name, document) in [
            ("index.json", layout(all)),
            ("manifest.json", docker(all)),
            ("oci-layout", json!({"imageLayoutVersion": "1.0.0"})),
        ] {
            let text = document.to_string();
            tar.append_data(&mut header(text.len() as u64), name, text.as_bytes())?;
        }
        let mut out = tar.into_inner()?;
        out.flush()?;
        out.get_ref().sync_all()
    }
}

fn header(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header
}

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{}", digest.trim_start_matches("sha256:"))
}

fn layout(all: &[One]) -> Value {
    let manifests: Vec<Value> = all
        .iter()
        .map(|one| {
            let tag = one.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
            json!({
                "mediaType": one.media_type, "digest": one.digest, "size": one.size,
                // The first is what containerd calls it, the second what the specification has for it.
                "annotations": BTreeMap::from([
                    ("io.containerd.image.name", one.name.as_str()),
                    ("org.opencontainers.image.ref.name", tag),
                ]),
            })
        })
        .collect();
    json!({"schemaVersion": 2, "mediaType": crate::manifest::INDICES[0], "manifests": manifests})
}

fn docker(all: &[One]) -> Value {
    let images: Vec<Value> = all
        .iter()
        .map(|one| {
            let layers: Vec<String> = one.layers.iter().map(|layer| blob(&layer.digest)).collect();
            json!({"Config": blob(&one.config.digest), "RepoTags": [one.name], "Layers": layers})
        })
        .collect();
    json!(images)
}
