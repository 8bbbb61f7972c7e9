//! Whether a machine would be given an image, without giving it to one.

use std::{path::PathBuf, sync::Arc};

use futures::TryStreamExt;
use remuda_oci::Reference;

use super::{Asked, Content, Refused, Registry, Served, What};
use crate::{
    bundle::Bundle,
    manifest::{Descriptor, LARGEST, Manifest, Parts},
};

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// All of it is in bundles; this is the one with its manifest.
    Bundled(PathBuf),
    /// It was fetched from a registry, and all of it is on this disk.
    Kept,
    /// A mirrored registry has it. Some of its parts are fetched when a machine asks for them.
    Mirrored,
    /// It is there, but not for this architecture.
    OtherArchitecture,
}

impl Registry {
    /// Finds out whether a machine of an architecture would be given an image. Of a mirrored registry it asks for
    /// manifests and a configuration, which are small; layers are left where they are.
    ///
    /// # Errors
    /// As [`Registry::serve`] would answer.
    pub async fn look(self: &Arc<Self>, image: &Reference, architecture: &str) -> Result<Found, Refused> {
        let bundles = self.bundles().await;
        let asked = |digest: Option<String>| Asked {
            reference: Reference { digest: digest.or_else(|| image.digest.clone()), ..image.clone() },
            what: What::Manifest,
        };
        let mut digest = None;
        let mut found = self.read(&asked(None), &bundles, &mut digest).await?;
        let named = digest.clone();
        if let Parts::Index(images) = &found.parts {
            let wanted = |one: &&Descriptor| {
                let platform = one.platform.as_ref();
                platform.is_some_and(|at| at.os == "linux" && at.architecture == architecture)
            };
            let Some(one) = images.iter().find(wanted) else { return Ok(Found::OtherArchitecture) };
            let from_bundle = bundle_with(&bundles, named.as_deref()).is_some();
            found = match self.read(&asked(Some(one.digest.clone())), &bundles, &mut digest).await {
                Ok(found) => found,
                // A bundle keeps an index as it was, also where it has not all that it names.
                Err(Refused::NotMirrored(_)) if from_bundle => return Ok(Found::OtherArchitecture),
                Err(error) => return Err(error),
            };
        }
        let Parts::Image(parts) = found.parts else {
            return Err(Refused::Failed(format!("{} is an index in an index", asked(digest).shown())));
        };
        // The last one is the configuration. Old images say nothing in it.
        if let Some(config) = parts.last() {
            let text = self.small(&asked(None), &config.digest, &bundles).await?;
            let config: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            if config["architecture"].as_str().is_some_and(|made| !made.is_empty() && made != architecture) {
                return Ok(Found::OtherArchitecture);
            }
        }
        let bundled = |part: &Descriptor| bundle_with(&bundles, Some(&part.digest)).is_some();
        let kept = |part: &Descriptor| {
            bundled(part) || self.store.as_ref().is_some_and(|store| store.get(&part.digest).is_some())
        };
        let manifest = bundle_with(&bundles, named.as_deref()).filter(|_| parts.iter().all(bundled));
        Ok(match manifest {
            Some(bundle) => Found::Bundled(bundle.path().to_owned()),
            None if parts.iter().all(kept) => Found::Kept,
            None => Found::Mirrored,
        })
    }

    /// Whether a bundle names an image. No registry is asked.
    pub async fn is_bundled(self: &Arc<Self>, image: &Reference) -> bool {
        self.bundles().await.iter().any(|bundle| bundle.image(image).is_some())
    }

    /// A manifest, and its digest.
    async fn read(
        self: &Arc<Self>,
        asked: &Asked,
        bundles: &[Bundle],
        digest: &mut Option<String>,
    ) -> Result<Manifest, Refused> {
        let served = self.manifest(asked, bundles).await?;
        let header = served.headers.iter().find(|(name, _)| *name == "docker-content-digest");
        *digest = header.map(|(_, digest)| digest.clone());
        let bytes = collect(served).await?;
        Manifest::parse(&bytes).map_err(|error| Refused::Failed(error.to_string()))
    }

    async fn small(
        self: &Arc<Self>,
        asked: &Asked,
        digest: &str,
        bundles: &[Bundle],
    ) -> Result<Vec<u8>, Refused> {
        collect(self.blob(asked, digest, bundles, 0).await?).await
    }
}

fn bundle_with<'a>(bundles: &'a [Bundle], digest: Option<&str>) -> Option<&'a Bundle> {
    let digest = digest?;
    bundles.iter().find(|bundle| bundle.place(digest).is_some())
}

/// All of something small.
async fn collect(served: Served) -> Result<Vec<u8>, Refused> {
    let mut pieces = match served.content {
        Content::Bytes(bytes) => return Ok(bytes.to_vec()),
        Content::Stream(pieces) => pieces,
    };
    let mut all = Vec::new();
    while let Some(piece) = pieces.try_next().await.map_err(|error| Refused::Failed(error.to_string()))? {
        if all.len() + piece.len() > LARGEST {
            return Err(Refused::Failed("a configuration is larger than they are".to_owned()));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all)
}
