//! `remuda backup`, `remuda restore` and `remuda rotate-keys`.
//!
//! A running server is asked over HTTPS, since it holds the store; without one the command works
//! on the data directory itself.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use remuda_names::file;
use remuda_server::{
    admin::{Admin, AdminError, Rotated},
    config, kubeconfig, offline,
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
        });
    }
    let place = Place::of(&arguments.target)?;
    let progress = progress();
    serve::runtime()?.block_on(async {
        match &place {
            Place::Running(kubeconfig) => {
                progress.set_message("the server is making the backup");
                let mut admin = connect(kubeconfig).await?;
                let received = admin.backup(output, |done, total| show(&progress, done, total)).await;
                received.map_err(|error| {
                    // Half a backup looks like one.
                    if !matches!(error, AdminError::Archive(_)) {
                        let _ = std::fs::remove_file(output);
                    }
                    Failure::new(&error, error.hint())
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
            Place::Running(kubeconfig) => {
                let rotated = connect(kubeconfig).await?.rotate_keys().await;
                rotated.map_err(|error| Failure::new(&error, error.hint()))
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
    /// The server this kubeconfig leads to.
    Running(PathBuf),
    Directory(PathBuf),
}

impl Place {
    fn of(target: &Target) -> Result<Place, Failure> {
        if let Some(kubeconfig) = &target.kubeconfig {
            return Ok(Place::Running(kubeconfig.clone()));
        }
        let data_dir = data_dir(target.data_dir.as_deref())?;
        Ok(match remuda_server::datadir::DataDir::is_locked(&data_dir) {
            true => Place::Running(data_dir.join(file::ADMIN_KUBECONFIG)),
            false => Place::Directory(data_dir),
        })
    }
}

async fn connect(kubeconfig: &Path) -> Result<Admin, Failure> {
    let access = kubeconfig::read(kubeconfig).map_err(|error| Failure::new(&error, None))?;
    Admin::connect(&access).await.map_err(|error| Failure::new(&error, error.hint()))
}

fn data_dir(given: Option<&Path>) -> Result<PathBuf, Failure> {
    match given {
        Some(dir) => Ok(dir.to_owned()),
        None => config::default_data_dir().map_err(|error| Failure::new(&error, error.hint())),
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
