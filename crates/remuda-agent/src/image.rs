//! Installer images: where they come from and how they are unpacked.

use std::path::{Path, PathBuf};

/// Where images come from.
#[derive(Debug, Clone, Default)]
pub struct Images {
    pub directory: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("none")]
pub struct ImageError;

impl Images {
    pub async fn stage(&self, _destination: &Path, _reference: &str) -> Result<(), ImageError> {
        Err(ImageError)
    }
}
