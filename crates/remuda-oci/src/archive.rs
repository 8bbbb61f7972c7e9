//! An image as one file: an OCI layout with the `manifest.json` of `docker save` beside it.
//!
//! containerd, and with it K3s and RKE2, reads the layout; Docker reads either.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
};

use serde_json::json;
use tar::{Builder, EntryType, Header};

use crate::{
    digest::Digest,
    image::{INDEX_TYPE, Image},
    reference::Reference,
};

/// Writes the archive of one image, which is called `name` where it is imported.
pub fn write(image: &Image, name: &Reference, out: impl Write) -> io::Result<()> {
    let mut tar = Builder::new(out);
    for directory in ["blobs/", "blobs/sha256/"] {
        let mut header = header(0, 0o755);
        header.set_entry_type(EntryType::Directory);
        tar.append_data(&mut header, directory, io::empty())?;
    }
    let documents: BTreeMap<Digest, &[u8]> = [&image.config, &image.manifest]
        .into_iter()
        .map(|document| (Digest::of(document), document.as_slice()))
        .collect();
    for (digest, document) in documents {
        tar.append_data(&mut header(document.len() as u64, 0o644), blob(&digest), document)?;
    }
    for layer in &image.layers {
        let file = File::open(&layer.path)?;
        if file.metadata()?.len() != layer.size {
            return Err(io::Error::other(format!("layer {} was changed on disk", layer.digest)));
        }
        tar.append_data(&mut header(layer.size, 0o644), blob(&layer.digest), file)?;
    }
    for (path, document) in [
        ("index.json", index(image, name)),
        ("manifest.json", docker(image, name)),
        ("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string()),
    ] {
        tar.append_data(&mut header(document.len() as u64, 0o644), path, document.as_bytes())?;
    }
    tar.into_inner()?.flush()
}

fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn header(size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn index(image: &Image, name: &Reference) -> String {
    let mut descriptor = image.descriptor();
    // The first is what containerd calls it, the second what the specification has for it.
    descriptor["annotations"] = json!({
        "io.containerd.image.name": name.to_string(),
        "org.opencontainers.image.ref.name": name.tag,
    });
    json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [descriptor]}).to_string()
}

fn docker(image: &Image, name: &Reference) -> String {
    let layers: Vec<String> = image.layers.iter().map(|layer| blob(&layer.digest)).collect();
    let config = blob(&Digest::of(&image.config));
    json!([{"Config": config, "RepoTags": [name.to_string()], "Layers": layers}]).to_string()
}

#[cfg(test)]
mod tests;
