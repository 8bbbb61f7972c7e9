//! Fetching images for a bundle.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use remuda_oci::Reference;

use crate::{
    bundle::Source,
    manifest::{Manifest, Parts},
    store::{Start, Store, StoreError},
    upstream::{Upstream, UpstreamError},
};

#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error("image {image}")]
    Upstream { image: String, source: UpstreamError },
    #[error("image {image}")]
    Keep { image: String, source: StoreError },
    #[error("image {image} is not made for linux/{architecture}")]
    Architecture { image: String, architecture: String },
}

/// Fetches an image for these architectures, and adds it to what a bundle is made of. Everything an index names for
/// other architectures is left out; the index itself stays what it is, so that its digest does.
pub async fn collect(
    upstream: &Arc<Upstream>,
    image: &Reference,
    architectures: &BTreeSet<String>,
    store: &Arc<Store>,
    directory: &Path,
    source: &mut Source,
) -> Result<(), CollectError> {
    let named = image.to_string();
    let failed = |source| CollectError::Upstream { image: named.clone(), source };
    let keep = |source| CollectError::Keep { image: named.clone(), source };
    let wanted = image.digest.as_deref().unwrap_or(&image.tag);
    let (bytes, manifest) = upstream.manifest(&image.repository, wanted).await.map_err(failed)?;
    let digest = store.put(&bytes).map_err(keep)?;
    let mut parts = vec![digest.clone()];
    let mut images: Vec<Manifest> = Vec::new();
    match &manifest.parts {
        Parts::Image(_) => images.push(manifest),
        Parts::Index(all) => {
            for architecture in architectures {
                let one = all.iter().find(|one| {
                    let platform = one.platform.as_ref();
                    platform.is_some_and(|at| at.os == "linux" && at.architecture == *architecture)
                });
                let one = one.ok_or_else(|| CollectError::Architecture {
                    image: named.clone(),
                    architecture: architecture.clone(),
                })?;
                let (bytes, manifest) =
                    upstream.manifest(&image.repository, &one.digest).await.map_err(failed)?;
                parts.push(store.put(&bytes).map_err(keep)?);
                images.push(manifest);
            }
        }
    }
    for manifest in images {
        let Parts::Image(needed) = manifest.parts else { continue };
        for part in needed {
            if store.get(&part.digest).is_none() {
                let (upstream, repository, digest) =
                    (upstream.clone(), image.repository.clone(), part.digest.clone());
                let start: Start = Arc::new(move |from| {
                    let (upstream, repository, digest) =
                        (upstream.clone(), repository.clone(), digest.clone());
                    Box::pin(async move { upstream.blob(&repository, &digest, from).await })
                });
                store.download(&part.digest, start).done().await.map_err(keep)?;
            }
            parts.push(part.digest);
        }
    }
    for part in parts {
        let path = directory.join("blobs").join(part.trim_start_matches("sha256:"));
        source.parts.insert(part, path);
    }
    source.images.insert(named, digest);
    Ok(())
}
