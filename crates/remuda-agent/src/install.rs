//! Putting the agent on a machine, and taking it off again.
//!
//! Reads   the server's `/cacerts`, `/healthz` and `/v3/connect/agent`.
//! Writes  binary, configuration, connection info and, where there is systemd, a unit.
//! Never   touches what plans have installed, but to uninstall it.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use remuda_base::Backoff;
use remuda_names::agent::path;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    Chain,
    config::{ConfigError, ConnectionInfo},
    disk::{Context, DiskError, create_dirs, read_if_exists, remove_all, replace},
    environment::Environment,
    supervise,
};

mod distribution;
mod register;

pub use register::{RegisterError, Registration, Roles};

/// Where things are put.
#[derive(Debug, Clone)]
pub struct Layout {
    /// `/`, or what takes its place.
    pub root: PathBuf,
    /// Configuration, `/etc/rancher/agent`.
    pub config: PathBuf,
    /// State, `/var/lib/rancher/agent`.
    pub var: PathBuf,
    /// Parent of `bin`.
    pub prefix: PathBuf,
    /// Units of systemd.
    pub units: PathBuf,
    /// Name of the unit. It is that of the agent this one takes the place of, so that two never work on
    /// the same Secret.
    pub unit: String,
    /// Name of the installed binary.
    pub binary: String,
}

impl Layout {
    /// As the environment says, with the usual defaults.
    pub fn of(environment: &Environment) -> Self {
        let given = |name: &str, default: &str| PathBuf::from(environment.get(name).unwrap_or(default));
        Self {
            root: PathBuf::from("/"),
            config: given("CATTLE_AGENT_CONFIG_DIR", "/etc/rancher/agent"),
            var: given(remuda_names::rancher::env::AGENT_VAR_DIR, "/var/lib/rancher/agent"),
            prefix: environment.get("CATTLE_AGENT_BIN_PREFIX").map_or_else(default_prefix, PathBuf::from),
            units: PathBuf::from("/etc/systemd/system"),
            unit: "rancher-system-agent".into(),
            binary: remuda_names::PROGRAM.into(),
        }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The installed binary.
    pub fn binary(&self) -> PathBuf {
        self.prefix.join("bin").join(&self.binary)
    }

    fn unit_file(&self, extension: &str) -> PathBuf {
        self.at(&self.units).join(format!("{}.{extension}", self.unit))
    }

    fn interlock(&self) -> PathBuf {
        self.at(&self.var).join("interlock")
    }

    /// Where the supervisor of machines without systemd notes who it is.
    pub fn pid_file(&self) -> PathBuf {
        self.at(&self.var).join("supervisor.pid")
    }

    /// Where that supervisor logs to.
    pub fn log_file(&self) -> PathBuf {
        self.at(&self.var).join("agent.log")
    }

    fn has_systemd(&self) -> bool {
        self.at(Path::new("/run/systemd/system")).is_dir()
    }

    /// A typing error must not remove half the machine.
    fn check(&self) -> Result<(), InstallError> {
        for path in [&self.config, &self.var] {
            let is_deep = path.is_absolute() && path.components().count() >= 3;
            if !is_deep || path.components().any(|part| part.as_os_str() == "..") {
                return Err(InstallError::Directory(path.clone()));
            }
        }
        Ok(())
    }
}

/// `/usr/local`, unless it is read-only or a file system of its own.
fn default_prefix() -> PathBuf {
    let usual = Path::new("/usr/local");
    let device =
        |path: &Path| fs::metadata(path).map(|metadata| std::os::unix::fs::MetadataExt::dev(&metadata)).ok();
    let is_mount = device(usual) != device(Path::new("/usr"));
    let is_writable = nix::unistd::access(usual, nix::unistd::AccessFlags::W_OK).is_ok();
    if is_writable && !is_mount { usual.to_owned() } else { PathBuf::from("/opt/rancher-system-agent") }
}

/// What to install.
#[derive(Debug, Clone)]
pub struct InstallOptions {
    /// Where to.
    pub layout: Layout,
    /// The server to register with; `None` for local plans only.
    pub registration: Option<Registration>,
    /// Watch local plan files too.
    pub local: bool,
    /// Keep what instructions leave in the work directory.
    pub preserve_work: bool,
    /// Log level of the daemon.
    pub log_level: String,
    /// The binary to install; normally the one that runs.
    pub binary: PathBuf,
    /// Its arguments that run the daemon.
    pub run: Vec<String>,
    /// Its arguments that run the supervisor, where there is no systemd.
    pub supervise: Vec<String>,
    /// Enable and start it.
    pub start: bool,
    /// How long to keep trying to reach the server.
    pub patience: Duration,
    /// Environment of the installer; proxy settings are kept for the daemon.
    pub environment: Environment,
}

impl InstallOptions {
    /// Installs the running binary.
    pub fn new(environment: Environment) -> Self {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        Self {
            layout: Layout::of(&environment),
            registration: None,
            local: environment.is_true("CATTLE_LOCAL_ENABLED"),
            preserve_work: environment.is_true("CATTLE_PRESERVE_WORKDIR"),
            log_level: environment.get("CATTLE_AGENT_LOGLEVEL").unwrap_or("info").to_owned(),
            binary: PathBuf::from("/proc/self/exe"),
            run: words("agent run"),
            supervise: words("agent supervise"),
            start: true,
            patience: Duration::from_secs(6 * 3600),
            environment,
        }
    }
}

/// Why the agent was not installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Only root may.
    #[error("installing the agent needs root")]
    NotRoot,
    /// Not a directory of its own.
    #[error("{} is not a directory the agent could have for itself", .0.display())]
    Directory(PathBuf),
    /// A plan is being applied and does not end.
    #[error("a plan is still being applied after {0} s")]
    Busy(u64),
    /// The server does not let us in.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// What the server sent is unusable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file cannot be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// systemd refuses.
    #[error("systemctl {arguments}: {reason}")]
    Systemd {
        /// What it was asked.
        arguments: String,
        /// What it said.
        reason: String,
    },
    /// The distribution does not go.
    #[error("{}: {reason}", script.display())]
    Distribution {
        /// What was to remove it.
        script: PathBuf,
        /// What came of it.
        reason: String,
    },
    /// The supervisor cannot be started.
    #[error("start the supervisor")]
    Supervisor(#[source] io::Error),
    /// Stopped from outside.
    #[error("installation was stopped")]
    Stopped,
}

/// Installs, or upgrades, the agent and starts it.
pub async fn install(options: &InstallOptions, stop: &CancellationToken) -> Result<(), InstallError> {
    let layout = &options.layout;
    layout.check()?;
    if layout.root == Path::new("/") && !nix::unistd::geteuid().is_root() {
        return Err(InstallError::NotRoot);
    }
    create_dirs(&layout.at(&layout.var), 0o700)?;
    create_dirs(&layout.interlock(), 0o700)?;
    create_dirs(&layout.at(&layout.config), 0o700)?;
    let deadline = Instant::now() + options.patience;
    let _pending = hold_plans(layout, stop).await?;

    let connection = match &options.registration {
        None => None,
        Some(registration) => {
            let id = machine_id(layout, registration)?;
            let trust =
                until(deadline, stop, "server", || registration.establish_trust(&options.environment))
                    .await?;
            Some((registration, id, trust))
        }
    };
    stop_service(layout)?;
    install_binary(options)?;
    if let Some((registration, id, trust)) = connection {
        let request = || registration.connection_info(&id, &trust, &options.environment);
        let raw = until(deadline, stop, "registration", request).await?;
        let target = layout.at(&layout.var).join(path::CONNECTION_INFO);
        let temporary = layout.at(&layout.var).join(format!("{}.tmp", path::CONNECTION_INFO));
        replace(&temporary, &raw, 0o600)?;
        ConnectionInfo::load(&temporary).inspect_err(|_| drop(remove_all(&temporary)))?;
        fs::rename(&temporary, &target).on("rename", &target)?;
    }
    let config = layout.at(&layout.config).join("config.yaml");
    replace(&config, config_file(options).as_bytes(), 0o600)?;
    if layout.has_systemd() {
        replace(&layout.unit_file("service"), unit(options).as_bytes(), 0o644)?;
        replace(&layout.unit_file("env"), environment_file(options).as_bytes(), 0o600)?;
        if options.start {
            systemctl(&["daemon-reload"])?;
            systemctl(&["enable", &layout.unit])?;
            systemctl(&["restart", &layout.unit])?;
        }
    } else if options.start {
        start_supervisor(options)?;
    }
    Ok(())
}

/// Removes the pending restart, whatever happens.
struct Pending(PathBuf);

impl Drop for Pending {
    fn drop(&mut self) {
        let _ = remove_all(&self.0);
    }
}

/// Asks a running agent to begin no new plan, and waits until the present one is applied.
async fn hold_plans(layout: &Layout, stop: &CancellationToken) -> Result<Pending, InstallError> {
    const LIMIT: u64 = 295;
    let pending = Pending(layout.interlock().join(path::RESTART_PENDING));
    replace(&pending.0, b"", 0o600)?;
    let active = layout.interlock().join(path::APPLY_ACTIVE);
    let mut waited = 0;
    // What an agent that is gone left behind would be waited for in vain.
    while active.exists() && is_running(layout) {
        if waited >= LIMIT {
            return Err(InstallError::Busy(LIMIT));
        }
        waited += 1;
        tokio::select! {
            () = stop.cancelled() => return Err(InstallError::Stopped),
            () = sleep(Duration::from_secs(1)) => {}
        }
    }
    Ok(pending)
}

fn is_running(layout: &Layout) -> bool {
    if layout.has_systemd() {
        systemctl(&["is-active", "--quiet", &layout.unit]).is_ok()
    } else {
        supervise::running(&layout.pid_file()).is_some()
    }
}

fn stop_service(layout: &Layout) -> Result<(), InstallError> {
    if layout.has_systemd() {
        if is_running(layout) {
            systemctl(&["stop", &layout.unit])?;
        }
        return Ok(());
    }
    supervise::stop(&layout.pid_file()).map_err(InstallError::Supervisor)
}

/// Repeats something until it succeeds, is refused for good, or patience runs out.
async fn until<T, F: Future<Output = Result<T, RegisterError>>>(
    deadline: Instant,
    stop: &CancellationToken,
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> Result<T, InstallError> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10)).begin();
    loop {
        let result = tokio::select! {
            () = stop.cancelled() => return Err(InstallError::Stopped),
            result = attempt() => result,
        };
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let delay = backoff.jittered(rand::random());
        if error.is_final() || Instant::now() + delay > deadline {
            return Err(error.into());
        }
        tracing::warn!(error = %Chain(&error), retry_in = delay.as_secs(), "{what} not ready");
        tokio::select! {
            () = stop.cancelled() => return Err(InstallError::Stopped),
            () = sleep(delay) => {}
        }
    }
}

/// The id this machine registers under, made once.
fn machine_id(layout: &Layout, registration: &Registration) -> Result<String, InstallError> {
    let path = layout.at(&layout.config).join(path::MACHINE_ID);
    if let Some(id) = registration.machine_id.as_ref().filter(|id| !id.is_empty()) {
        return Ok(id.clone());
    }
    let known = read_if_exists(&path, 4096)?.map(|raw| String::from_utf8_lossy(&raw).trim().to_owned());
    if let Some(known) = known.filter(|known| !known.is_empty()) {
        return Ok(known);
    }
    let mut id = remuda_plan::digest::hex(rand::random::<[u8; 32]>());
    id.truncate(63);
    replace(&path, format!("{id}\n").as_bytes(), 0o600)?;
    Ok(id)
}

fn install_binary(options: &InstallOptions) -> Result<(), InstallError> {
    let target = options.layout.at(&options.layout.binary());
    let source = options.binary.canonicalize().on("find", &options.binary)?;
    if target.canonicalize().is_ok_and(|target| target == source) {
        return Ok(());
    }
    if let Some(parent) = target.parent() {
        create_dirs(parent, 0o755)?;
    }
    // Copied beside and renamed: the binary in place may be running.
    let temporary = target.with_extension("new");
    let copied = fs::copy(&source, &temporary)
        .and_then(|_| fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&temporary, &target));
    if copied.is_err() {
        let _ = remove_all(&temporary);
    }
    Ok(copied.on("install", &target)?)
}

fn config_file(options: &InstallOptions) -> String {
    let below =
        |name: &str| serde_json::json!(options.layout.var.join(name).display().to_string()).to_string();
    let (remote, local, preserve) = (options.registration.is_some(), options.local, options.preserve_work);
    let mut text = format!(
        "workDirectory: {}\n\
         appliedPlanDirectory: {}\n\
         remoteEnabled: {remote}\n\
         localEnabled: {local}\n\
         localPlanDirectory: {}\n\
         interlockDirectory: {}\n\
         preserveWorkDirectory: {preserve}\n",
        below("work"),
        below("applied"),
        below("plans"),
        below("interlock"),
    );
    if remote {
        text.push_str(&format!("connectionInfoFile: {}\n", below(path::CONNECTION_INFO)));
    }
    text
}

/// The unit. Only the agent itself is killed with it: an instruction under way goes on and is found
/// again by the next agent.
fn unit(options: &InstallOptions) -> String {
    let layout = &options.layout;
    let (unit, units) = (&layout.unit, layout.units.display());
    let level: String = options.log_level.chars().filter(char::is_ascii_alphanumeric).collect();
    let strict = options.registration.as_ref().is_some_and(|registration| registration.strict);
    format!(
        "[Unit]\n\
         Description=Remuda node agent\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n\
         \n\
         [Service]\n\
         EnvironmentFile=-/etc/default/{unit}\n\
         EnvironmentFile=-/etc/sysconfig/{unit}\n\
         EnvironmentFile=-{units}/{unit}.env\n\
         Type=simple\n\
         Restart=always\n\
         RestartSec=5s\n\
         KillMode=process\n\
         Environment=CATTLE_LOGLEVEL={level}\n\
         Environment=CATTLE_AGENT_CONFIG={}/config.yaml\n\
         Environment=CATTLE_AGENT_STRICT_VERIFY={strict}\n\
         ExecStart={} {}\n",
        layout.config.display(),
        layout.binary().display(),
        options.run.join(" "),
    )
}

fn environment_file(options: &InstallOptions) -> String {
    let mut text = String::new();
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"] {
        for name in [name.to_owned(), name.to_ascii_lowercase()] {
            if let Some(value) = options.environment.get(&name).filter(|value| !value.contains(['\n', '\r']))
            {
                text.push_str(&format!("{name}={value}\n"));
            }
        }
    }
    if options.layout.prefix != Path::new("/usr/local") {
        let path = options.environment.get("PATH").unwrap_or("/usr/sbin:/usr/bin:/sbin:/bin");
        let more = options.environment.get("CATTLE_AGENT_FALLBACK_PATH").unwrap_or("/opt/rke2/bin:/opt/bin");
        text.push_str(&format!("PATH={path}:{more}\n"));
    }
    text
}

fn start_supervisor(options: &InstallOptions) -> Result<(), InstallError> {
    let layout = &options.layout;
    let log = layout.log_file();
    let open = || fs::OpenOptions::new().append(true).create(true).open(&log).on("open", &log);
    let strict = options.registration.as_ref().is_some_and(|registration| registration.strict);
    let spawned = Command::new(layout.at(&layout.binary()))
        .args(&options.supervise)
        .env(remuda_names::agent::env::LOG_LEVEL, &options.log_level)
        .env(remuda_names::agent::env::CONFIG, layout.at(&layout.config).join("config.yaml"))
        .env(remuda_names::agent::env::STRICT_VERIFY, strict.to_string())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(open()?)
        .stderr(open()?)
        .spawn();
    spawned.map(drop).map_err(InstallError::Supervisor)
}

fn systemctl(arguments: &[&str]) -> Result<(), InstallError> {
    let failed = |reason: String| InstallError::Systemd { arguments: arguments.join(" "), reason };
    let output = Command::new("systemctl").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Removes what plans have installed, unless it is to stay, and the agent with everything it kept. Goes on after
/// failures and reports the first.
pub fn uninstall(layout: &Layout, keep_distribution: bool) -> Result<(), InstallError> {
    layout.check()?;
    if layout.root == Path::new("/") && !nix::unistd::geteuid().is_root() {
        return Err(InstallError::NotRoot);
    }
    // The agent first: it would put back what it finds missing.
    let mut results = vec![stop_service(layout)];
    if !keep_distribution {
        results.push(distribution::remove(layout));
    }
    supervise::kill_instructions(&layout.at(&layout.var).join("journal"));
    if layout.has_systemd() {
        // Not being enabled, or never having failed, is as good.
        let _ = systemctl(&["disable", &layout.unit]);
        let _ = systemctl(&["reset-failed", &layout.unit]);
    }
    let paths = [
        layout.unit_file("service"),
        layout.unit_file("env"),
        layout.at(&layout.var),
        layout.at(&layout.config),
        layout.at(&layout.binary()),
        // As the script names them that registers servers.
        layout.at(&layout.prefix.join("bin").join(crate::command::NAME)),
        layout.at(&layout.prefix.join("bin").join(format!("{}-uninstall.sh", crate::command::NAME))),
    ];
    results.extend(paths.iter().map(|path| Ok(remove_all(path)?)));
    if layout.has_systemd() {
        results.push(systemctl(&["daemon-reload"]));
    }
    results.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> InstallOptions {
        let environment: Environment =
            [("https_proxy", "http://p:1"), ("PATH", "/bin")].into_iter().collect();
        let mut options = InstallOptions::new(environment);
        options.layout.prefix = "/opt/x".into();
        options
    }

    #[test]
    fn the_unit_restarts_the_agent_but_leaves_instructions_alone() {
        let unit = unit(&options());
        for line in [
            "ExecStart=/opt/x/bin/remuda agent run",
            "KillMode=process",
            "Restart=always",
            "RestartSec=5s",
            "Environment=CATTLE_AGENT_CONFIG=/etc/rancher/agent/config.yaml",
            "Environment=CATTLE_AGENT_STRICT_VERIFY=false",
            "EnvironmentFile=-/etc/systemd/system/rancher-system-agent.env",
        ] {
            assert!(unit.lines().any(|found| found == line), "{line}\n{unit}");
        }
    }

    #[test]
    fn proxy_settings_and_paths_are_kept() {
        assert_eq!(
            environment_file(&options()),
            "https_proxy=http://p:1\nPATH=/bin:/opt/rke2/bin:/opt/bin\n"
        );
    }

    #[test]
    fn directories_that_hold_more_than_the_agent_are_refused() {
        for bad in ["/", "/etc", "relative/path", "/var/lib/../.."] {
            let layout = Layout { var: bad.into(), ..options().layout };
            assert!(matches!(uninstall(&layout, false), Err(InstallError::Directory(_))), "{bad}");
        }
    }
}
