//! Asks a driver's program for its flags, in a process that is good for nothing else: programs of drivers are not
//! started by the server itself, which is root and has everybody's keys.

use std::{
    path::Path,
    process::{ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use remuda_drivers::{
    builtin::Registry,
    error::{Class, Error as DriverError},
    flags::Flag,
    log::Log,
};
use remuda_names::env;
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncReadExt, process::Command, time::timeout};

use super::{Args, Environment, Failure, Output, confine};
use crate::runner;

/// For the start of the program and the answer.
const PATIENCE: Duration = Duration::from_secs(90);
/// No driver has more to say about its flags.
const LONGEST: u64 = 4 << 20;

/// What the process writes to standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Answer {
    Flags(Vec<Flag>),
    Failed { class: String, message: String },
}

/// Runs this program to ask.
pub(crate) async fn ask(
    program: &Path,
    data_dir: &Path,
    driver: &str,
    url: &str,
    checksum: &str,
) -> Result<Vec<Flag>, DriverError> {
    let failed = |error: std::io::Error| DriverError::other(format!("ask driver {driver}: {error}"));
    let mut command = Command::new(program);
    command
        .args(["machine", &format!("--driver-download-url={url}"), &format!("--driver-hash={checksum}")])
        .args(["flags", driver])
        .env_clear()
        .envs(runner::inherited())
        .env(env::DATA_DIR, data_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let job = child.id();
    let mut answer = Vec::new();
    let read = async {
        if let Some(output) = child.stdout.take() {
            output.take(LONGEST).read_to_end(&mut answer).await.map_err(failed)?;
        }
        child.wait().await.map_err(failed)
    };
    let ended = timeout(PATIENCE, read).await;
    if let Some(job) = job {
        let late = ended.is_err();
        let swept = tokio::task::spawn_blocking(move || match i32::try_from(job) {
            Ok(pid) if late => runner::end(pid),
            _ => confine::end_leftovers(job),
        });
        let _ = swept.await;
    }
    let _ = child.wait().await;
    let status = match ended {
        Err(_) => {
            return Err(DriverError::timeout(format!(
                "driver {driver} did not name its flags within {PATIENCE:?}"
            )));
        }
        Ok(status) => status?,
    };
    match serde_json::from_slice(&answer) {
        Ok(Answer::Flags(flags)) => Ok(flags),
        Ok(Answer::Failed { class, message }) => Err(DriverError::new(Class::parse(&class), message)),
        Err(_) => {
            Err(DriverError::crash(format!("driver {driver} could not be asked for its flags: {status}")))
        }
    }
}

/// The process that asks.
pub(super) async fn answer(
    args: &Args,
    environment: &Environment,
    drivers: &Registry,
    driver: &str,
) -> ExitCode {
    let log = Log::new(Arc::new(Output::errors()));
    let answer = match flags(args, environment, drivers, driver, &log).await {
        Ok(flags) => Answer::Flags(flags),
        Err(failure) => Answer::Failed {
            class: failure.class().as_str().to_owned(),
            message: log.redactor().scrub(&failure.message).into_owned(),
        },
    };
    let text = serde_json::to_vec(&answer).unwrap_or_default();
    match std::io::Write::write_all(&mut std::io::stdout().lock(), &text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

async fn flags(
    args: &Args,
    environment: &Environment,
    drivers: &Registry,
    driver: &str,
    log: &Log,
) -> Result<Vec<Flag>, Failure> {
    let confined = match environment.confines {
        true => confine::enter(args, environment, drivers, None).await?,
        false => None,
    };
    let (environment, program) = match confined {
        Some(confined) => (confined.environment, confined.program),
        None => (environment.clone(), None),
    };
    let opened = super::open(driver, args, &environment, drivers, program.as_ref(), log.clone()).await;
    let flags = match opened {
        Ok(opened) => opened.flags().await.map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    confine::leave(&environment);
    flags
}
