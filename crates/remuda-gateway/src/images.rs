//! Images of the cluster agent: made when the first machine asks, kept on disk, served from there.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use remuda_oci::{
    Architecture, Digest, Reference,
    agent::{self, AgentImageError, Build},
    archive, sha256_of,
};
use tokio::sync::Mutex;

/// Changes when the program does, or what its image is called.
type Key = (PathBuf, u64, Option<SystemTime>, String);
/// Where an archive is, and its SHA-256.
type Known = (PathBuf, Arc<str>);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ImagesError {
    #[error(transparent)]
    Agent(#[from] AgentImageError),
    #[error("keep images of the cluster agent in {}", directory.display())]
    Keep { directory: PathBuf, source: std::io::Error },
}

pub(crate) struct Images {
    directory: PathBuf,
    /// Whoever comes while one is made waits for it.
    known: Mutex<HashMap<Key, Known>>,
}

impl Images {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, known: Mutex::default() }
    }

    /// The archive of the image of a program.
    pub(crate) async fn of(
        &self,
        program: &Path,
        architecture: Architecture,
        name: &Reference,
    ) -> Result<Known, ImagesError> {
        let keep = |source| ImagesError::Keep { directory: self.directory.clone(), source };
        let metadata = tokio::fs::metadata(program).await.map_err(keep)?;
        let key = (program.to_owned(), metadata.len(), metadata.modified().ok(), name.to_string());
        let mut known = self.known.lock().await;
        if let Some(found) = known.get(&key).filter(|(path, _)| path.is_file()) {
            return Ok(found.clone());
        }
        let (directory, program, name) = (self.directory.clone(), program.to_owned(), name.clone());
        let making = move || make(&directory, &program, architecture, &name);
        let made = tokio::task::spawn_blocking(making).await;
        let made = made.map_err(|error| keep(std::io::Error::other(error)))??;
        known.retain(|(path, ..), _| *path != key.0);
        known.insert(key, made.clone());
        Ok(made)
    }
}

fn make(
    directory: &Path,
    program: &Path,
    architecture: Architecture,
    name: &Reference,
) -> Result<Known, ImagesError> {
    let keep = |source| ImagesError::Keep { directory: directory.to_owned(), source };
    let build = Build::look(program)?;
    let key = Digest::of(format!("{name} {}", agent::key(&build)?).as_bytes());
    let path = directory.join(format!("{architecture}-{}.tar", key.hex()));
    if !path.is_file() {
        fs::create_dir_all(directory).map_err(keep)?;
        let scratch = directory.join(format!(".making-{architecture}"));
        // Left behind by a server that was killed.
        let _ = fs::remove_dir_all(&scratch);
        let image = agent::build(&scratch, &build)?;
        let pending = scratch.join("archive");
        let file = File::create(&pending).map_err(keep)?;
        archive::write(&image, name, BufWriter::new(file)).map_err(keep)?;
        File::open(&pending).and_then(|file| file.sync_all()).map_err(keep)?;
        fs::rename(&pending, &path).map_err(keep)?;
        let _ = fs::remove_dir_all(&scratch);
        tracing::info!(%architecture, %name, digest = %image.digest(), "image of the cluster agent made");
        forget(directory, architecture, &path);
    }
    let (digest, _) = sha256_of(&path).map_err(keep)?;
    Ok((path, digest.hex().into()))
}

/// Archives of programs that were replaced. Whoever is being sent one has it open.
fn forget(directory: &Path, architecture: Architecture, but: &Path) {
    let prefix = format!("{architecture}-");
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path() != but && entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
