//! What a job's process finds when it starts: its command line, variables, token and files.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    batch::v1::Job,
    core::v1::{PodSpec, Secret, ServiceAccount},
};
use kube::{Api, ResourceExt, api::PostParams};
use remuda_names::{env, machines, rancher::label};

use super::{Runner, status::State};
use crate::{driver::kinds::driver_of, error::Error, flags::variable_prefix, state::write_private};

/// File with the id of the process.
pub(super) const PID: &str = "pid";
/// File with its output.
pub(super) const LOG: &str = "log";
/// File with its last word.
pub(super) const RESULT: &str = "result";
/// File that says that programs the process started end with it.
pub(super) const ENDS_PROGRAMS: &str = "ends-programs";
const TOKEN: &str = "token";
const CA: &str = "ca.crt";
const VOLUMES: &str = "volumes";
const SCRATCH: &str = "scratch";

/// How long a token is good: longer than any job.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// What of the server's environment a job gets.
const INHERITED: &[&str] =
    &["PATH", "HOME", "USER", "LANG", "TMPDIR", "TZ", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// That part of this process' environment.
pub(crate) fn inherited() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| INHERITED.contains(&name.as_str()))
}

/// How to start a process.
#[derive(Debug)]
pub(super) struct Plan {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub variables: BTreeMap<String, String>,
    /// Where it starts: a place without files.
    pub directory: PathBuf,
    /// Whether programs it started end with it. Not where these are machines of this host, and what they share.
    pub ends_programs: bool,
}

/// A process that ended is forgotten before another takes its place.
pub(super) fn forget_process(directory: &Path) {
    for file in [PID, RESULT] {
        let _ = fs::remove_file(directory.join(file));
    }
}

pub(super) async fn prepare(
    runner: &Runner,
    job: &Job,
    directory: &Path,
    state: &State,
) -> Result<Plan, Error> {
    let failed = || Error::file(format!("set up a job in {}", directory.display()));
    let io = |error: crate::state::Error| std::io::Error::other(remuda_control::Chain(&error).to_string());
    forget_process(directory);
    for part in [VOLUMES, SCRATCH] {
        let path = directory.join(part);
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed())?;
    }
    if state.failed > 0 {
        let line = format!("--- attempt {}\n", u32::from(state.failed) + 1);
        let log = fs::OpenOptions::new().create(true).append(true).open(directory.join(LOG));
        log.and_then(|mut log| std::io::Write::write_all(&mut log, line.as_bytes())).map_err(failed())?;
    }
    let namespace = job.namespace().unwrap_or_default();
    let empty = PodSpec::default();
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).unwrap_or(&empty);
    let secrets: Api<Secret> = Api::namespaced(runner.ctx.client.clone(), &namespace);

    let mut places = Vec::new();
    for volume in pod.volumes.iter().flatten() {
        let Some(name) = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_deref()) else {
            continue;
        };
        let place = directory.join(VOLUMES).join(plain(&volume.name));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&place).map_err(failed())?;
        let secret = read(&secrets, name).await?;
        for (key, value) in secret.data.into_iter().flatten() {
            write_private(&place.join(plain(&key)), &value.0).map_err(|error| failed()(io(error)))?;
        }
        places.push((volume.name.clone(), place.to_string_lossy().into_owned()));
    }
    let container = pod.containers.first().cloned().unwrap_or_default();
    let mounts = container.volume_mounts.unwrap_or_default();
    let mut arguments = vec!["machine".to_owned()];
    for argument in container.args.unwrap_or_default() {
        let place = mounts.iter().fold(argument, |argument, mount| {
            match places.iter().find(|(name, _)| *name == mount.name) {
                Some((_, place)) => argument.replace(&mount.mount_path, place),
                None => argument,
            }
        });
        arguments.push(place);
    }

    let driver = job.labels().get(label::INFRA_MACHINE_KIND).and_then(|kind| driver_of(kind));
    let mut variables: BTreeMap<String, String> = inherited().collect();
    for source in container.env_from.iter().flatten() {
        if let Some(reference) = &source.secret_ref {
            let secret = read(&secrets, &reference.name).await?;
            for (key, value) in secret.data.into_iter().flatten() {
                if let Ok(value) = String::from_utf8(value.0)
                    && is_allowed(runner, driver.as_deref(), &key)
                    && !value.contains('\0')
                {
                    variables.insert(key, value);
                }
            }
        }
    }
    let token = token(runner, &namespace, pod).await?;
    write_private(&directory.join(TOKEN), token.as_bytes()).map_err(|error| failed()(io(error)))?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let options = &runner.options;
    if let Some(ca) = &options.server_ca {
        write_private(&directory.join(CA), ca.as_bytes()).map_err(|error| failed()(io(error)))?;
        variables.insert(machines::env::CA_FILE.to_owned(), text(directory.join(CA)));
    }
    variables.insert(machines::env::SERVER.to_owned(), options.server_url.clone());
    variables.insert(machines::env::TOKEN_FILE.to_owned(), text(directory.join(TOKEN)));
    variables.insert(machines::env::RESULT_FILE.to_owned(), text(directory.join(RESULT)));
    variables.insert(machines::env::FILES.to_owned(), text(directory.join(VOLUMES)));
    variables.insert(machines::env::SCRATCH.to_owned(), text(directory.join(SCRATCH)));
    if let Some(driver) = &driver {
        variables.insert(machines::env::DRIVER.to_owned(), driver.clone());
    }
    if let Some(host) = runner.host.as_ref().filter(|_| job.labels().contains_key(machines::label::HOST)) {
        variables.insert(machines::env::HOST.to_owned(), host.variable());
    }
    variables.insert(env::DATA_DIR.to_owned(), text(options.data_dir.clone()));
    variables.extend(options.job_environment.iter().cloned());
    let program = match &options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(failed())?,
    };
    let ends_programs = !driver.is_some_and(|driver| options.drivers_of_host.contains(&driver));
    Ok(Plan { program, arguments, variables, directory: directory.join(SCRATCH), ends_programs })
}

async fn read(secrets: &Api<Secret>, name: &str) -> Result<Secret, Error> {
    let found = secrets.get_opt(name).await.map_err(Error::api("read Secret", name))?;
    found.ok_or_else(|| Error::NoSecret { name: name.to_owned() })
}

/// Whether a variable may come from a Secret. Others could make the process do something else.
fn is_allowed(runner: &Runner, driver: Option<&str>, name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let ours = name.starts_with(machines::env::FLAG_PREFIX);
    let known = runner.options.environment.iter().any(|(known, _)| known == name);
    plain && (ours || known || driver.is_some_and(|driver| name.starts_with(&variable_prefix(driver))))
}

/// A name as the name of a file; the API allows no others, but it is not ours to rely on.
fn plain(name: &str) -> String {
    name.replace(['/', '\0'], "_").trim_start_matches('.').to_owned()
}

/// A token for the Job's ServiceAccount.
async fn token(runner: &Runner, namespace: &str, pod: &PodSpec) -> Result<String, Error> {
    let account = pod.service_account_name.as_deref().unwrap_or("default");
    let accounts: Api<ServiceAccount> = Api::namespaced(runner.ctx.client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let granted = accounts.create_token_request(account, &PostParams::default(), &request).await;
    let granted = granted.map_err(Error::api("request a token for ServiceAccount", account))?;
    Ok(granted.status.map(|status| status.token).unwrap_or_default())
}
