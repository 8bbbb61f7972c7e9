//! Installer images: where they come from and how they are unpacked.
//!
//! A tarball in the images directory that carries the tag wins; otherwise the image is pulled from its
//! registry or a mirror of it. The flattened file system ends up in the work directory of an instruction.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use remuda_oci::reference::{Reference, ReferenceError};

use crate::{config::Config, disk::DiskError, environment::Environment, kube::Kube};

pub mod extract;
pub mod push;
pub mod registries;
pub mod registry;
pub mod tarball;

use extract::ExtractError;
use registries::{Registries, RegistriesError};
use registry::PullError;

/// Where images come from.
#[derive(Debug, Clone, Default)]
pub struct Images {
    directory: PathBuf,
    config: Config,
    environment: Environment,
    /// The server the plans come from, which may have images, too.
    server: Option<Arc<Kube>>,
}

/// Why an image is not there.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Its name is none.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The registry settings are unusable.
    #[error(transparent)]
    Registries(#[from] RegistriesError),
    /// No registry has it.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// It cannot be unpacked.
    #[error("unpack")]
    Extract(#[from] ExtractError),
    /// The disk refuses.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The agent is short of threads.
    #[error("unpacking was aborted")]
    Aborted,
}

impl Images {
    /// As configured.
    pub fn new(config: &Config, environment: &Environment) -> Self {
        Self {
            directory: config.images(),
            config: config.clone(),
            environment: environment.clone(),
            server: None,
        }
    }

    /// The server is asked before registries are.
    #[must_use]
    pub fn with_server(self, server: Arc<Kube>) -> Self {
        Self { server: Some(server), ..self }
    }

    /// Unpacks an image into a directory.
    pub async fn stage(&self, destination: &Path, image: &str) -> Result<(), ImageError> {
        let reference = Reference::parse(image)?;
        if reference.digest.is_none() {
            let (directory, wanted, to) = (self.directory.clone(), reference.clone(), destination.to_owned());
            let unpack = move || match tarball::find(&directory, &wanted)? {
                Some(found) => {
                    tracing::info!(tarball = %found.path.display(), "image found locally");
                    found.unpack(&to).map(|()| true)
                }
                None => Ok(false),
            };
            if blocking(unpack).await?? {
                return Ok(());
            }
        }
        let registries = Registries::load(self.config.registries().as_deref())?;
        let layers = destination.with_extension("layers");
        let pulled = match Box::pin(self.server_layers(&reference, &layers)).await? {
            Some(paths) => Ok(paths),
            None => registry::pull(&reference, &registries, &self.environment, &layers).await,
        };
        let result = match pulled {
            Ok(paths) => {
                let to = destination.to_owned();
                blocking(move || extract::layers(&paths, &to)).await?.map_err(ImageError::from)
            }
            Err(error) => Err(error.into()),
        };
        crate::disk::remove_all(&layers)?;
        result
    }
}

impl Images {
    /// The layers, if the server has the image. If not, it is pulled from where it is, as without a server.
    async fn server_layers(
        &self,
        reference: &Reference,
        layers: &Path,
    ) -> Result<Option<Vec<PathBuf>>, ImageError> {
        let Some(server) = self.server.as_ref().and_then(|server| server.registry()) else { return Ok(None) };
        match registry::pull_from_server(reference, server, &self.environment, layers).await {
            Ok(paths) => {
                tracing::info!(image = %reference, "image pulled from the server");
                Ok(Some(paths))
            }
            Err(PullError::Disk(error)) => Err(error.into()),
            Err(error) => {
                tracing::debug!(image = %reference, error = %crate::Chain(&error), "the server does not have the image");
                Ok(None)
            }
        }
    }
}

/// Off the one thread that also watches the Secret.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ImageError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ImageError::Aborted)
}
