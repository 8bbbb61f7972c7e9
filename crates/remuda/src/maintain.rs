//! `remuda backup`, `remuda restore` and `remuda rotate-keys`.
//!
//! A running server is asked over HTTPS, since it holds the store; without one the command works
//! on the data directory itself.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use remuda_cli::{Code, Located};
use remuda_names::file;
use remuda_server::{
    admin::{Admin, AdminError, Rotated},
    config,
    datadir::DataDir,
    kubeconfig, offline,
};

use crate::{
    command::{Backup, Restore, Target},
    failure::Failure,
    output, serve,
};

pub(crate) fn backup(arguments: &Backup) -> Result<(), Failure> {
    let output = &arguments.output;
    if output.exists() {
        return Err(Failure {
            message: format!("{} exists", output.display()),
            hint: Some("choose another name, or remove it".to_owned()),
            code: Code::Conflict,
        });
    }
    let place = Place::of(&arguments.target)?;
    let progress = progress();
    serve::runtime()?.block_on(async {
        match &place {
            Place::Running(server) => {
                progress.set_message("the server is making the backup");
                let mut admin = connect(server).await?;
                let received = admin.backup(output, |done, total| show(&progress, done, total)).await;
                received.map_err(|error| {
                    // Half a backup looks like one.
                    if !matches!(error, AdminError::Archive(_)) {
                        let _ = std::fs::remove_file(output);
                    }
                    Failure::new(&error, error.hint()).at(server)
                })?;
            }
            Place::Directory(dir) => {
                progress.set_message("writing the backup");
                let made = offline::backup(dir, output).await;
                made.map_err(|error| Failure::new(&error, error.hint()))?;
            }
        }
        Ok::<_, Failure>(())
    })?;
    progress.finish_and_clear();
    let size = std::fs::metadata(output).map_or(0, |metadata| metadata.len());
    output::line(&format!(
        "wrote {} ({}); it holds secret keys, keep it private",
        output.display(),
        HumanBytes(size)
    ));
    Ok(())
}

pub(crate) fn restore(arguments: &Restore) -> Result<(), Failure> {
    let data_dir = data_dir(arguments.data_dir.as_deref())?;
    let progress = progress();
    progress.set_message("reading the backup");
    let restored = offline::restore(&arguments.file, &data_dir);
    progress.finish_and_clear();
    let (manifest, _) = restored.map_err(|error| Failure::new(&error, error.hint()))?;
    let dir = data_dir.display();
    output::line(&format!(
        "restored the state of {} (revision {}) to {dir}",
        manifest.created, manifest.revision
    ));
    output::line(&format!("  remuda server --data-dir {dir}"));
    Ok(())
}

pub(crate) fn rotate_keys(target: &Target) -> Result<(), Failure> {
    let place = Place::of(target)?;
    let progress = progress();
    progress.set_message("encrypting with a new key");
    let rotated: Rotated = serve::runtime()?.block_on(async {
        match &place {
            Place::Running(server) => {
                let rotated = connect(server).await?.rotate_keys().await;
                rotated.map_err(|error| Failure::new(&error, error.hint()).at(server))
            }
            Place::Directory(dir) => {
                offline::rotate_keys(dir).await.map_err(|error| Failure::new(&error, error.hint()))
            }
        }
    })?;
    progress.finish_and_clear();
    let Rotated { key, retired } = rotated;
    output::line(&format!("everything is encrypted with key {key:016x} now; keys forgotten: {retired}"));
    Ok(())
}

/// Where a command is to work.
enum Place {
    Running(Box<Located>),
    /// No server works on it.
    Directory(PathBuf),
}

impl Place {
    /// A data directory no server runs on is worked on itself: one that was named, or the default one where nothing else
    /// says which server is meant.
    fn of(target: &Target) -> Result<Place, Failure> {
        let global = target.global();
        let stopped = |dir: &PathBuf| !DataDir::is_locked(dir);
        if let Some(dir) = global.data_dir.clone().filter(|_| global.kubeconfig.is_none()).filter(stopped) {
            return Ok(Place::Directory(dir));
        }
        let located = global.locate()?;
        let default = remuda_cli::default_data_dir();
        let default = default.filter(|dir| located.origin.file == dir.join(file::ADMIN_KUBECONFIG));
        Ok(match default.filter(|_| global.kubeconfig.is_none()).filter(stopped) {
            Some(dir) => Place::Directory(dir),
            None => Place::Running(Box::new(located)),
        })
    }
}

async fn connect(server: &Located) -> Result<Admin, Failure> {
    let text =
        serde_json::to_string(&server.kubeconfig).map_err(|error| Failure::new(&error, None).at(server))?;
    let origin = server.origin.file.display().to_string();
    let access =
        kubeconfig::read_text(&text, &origin).map_err(|error| Failure::new(&error, None).at(server))?;
    Admin::connect(&access).await.map_err(|error| Failure::new(&error, error.hint()).at(server))
}

fn data_dir(given: Option<&Path>) -> Result<PathBuf, Failure> {
    match given {
        Some(dir) => Ok(dir.to_owned()),
        None => Ok(config::default_data_dir()?),
    }
}

/// Shown on a terminal, and only when it takes long enough to be read.
fn progress() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn show(bar: &ProgressBar, done: u64, total: u64) {
    if bar.length().is_none() && total > 0 {
        bar.set_length(total);
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
        {
            bar.set_style(style);
        }
    }
    bar.set_position(done);
}
