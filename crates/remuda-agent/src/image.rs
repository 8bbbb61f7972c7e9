//! Installer images: where they come from and how they are unpacked.

use std::path::{Path, PathBuf};

use crate::{config::Config, environment::Environment};

/// Where images come from.
#[derive(Debug, Clone, Default)]
pub struct Images {
    pub directory: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("none")]
pub struct ImageError;

impl Images {
    pub fn new(config: &Config, _environment: &Environment) -> Self {
        Self { directory: config.images() }
    }

    pub async fn stage(&self, _destination: &Path, _reference: &str) -> Result<(), ImageError> {
        Err(ImageError)
    }
}
