//! Why a data directory cannot be used.

use std::{io, path::PathBuf};

use crate::seal::SealError;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{dir} is in use by process {pid}", dir = dir.display())]
    Locked { dir: PathBuf, pid: String },
    #[error(
        "{file} has format {found}, this program knows formats up to {known}: use the program that wrote it, or a newer one",
        file = file.display()
    )]
    Newer { file: PathBuf, found: u32, known: u32 },
    #[error("{file} is damaged at byte {offset}: {detail}; nothing was changed, restore the store from a backup", file = file.display())]
    Damaged { file: PathBuf, offset: u64, detail: String },
    #[error("{dir} lacks data: {detail}; nothing was changed, restore the store from a backup", dir = dir.display())]
    Incomplete { dir: PathBuf, detail: String },
    #[error("{path} is not empty", path = path.display())]
    NotEmpty { path: PathBuf },
    #[error("{file}: {source}", file = file.display())]
    Seal { file: PathBuf, source: SealError },
}

impl OpenError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(super) fn damaged(file: impl Into<PathBuf>, offset: u64, detail: impl Into<String>) -> Self {
        Self::Damaged { file: file.into(), offset, detail: detail.into() }
    }
}
