//! `remuda up` and `remuda down`: a server with a cluster on machines of this host, and the end of both.

mod ports;
mod real;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use nix::{sys::signal, unistd::Pid};
use remuda_cli::{
    Code, Failure, Global, Session,
    cluster::{all_named, create, delete_all, differences},
    confirm, counted,
    generate::ClusterShape,
    kubeconfig,
    progress::{self, ClusterKey, Goal},
};
use remuda_names::{env, file, rancher::name::FLEET_DEFAULT};
use remuda_sandbox::machines::Sandbox;
use remuda_server::{
    Running, Server,
    config::{LocalMachines, LogFormat, Logging, Options, default_data_dir},
    datadir::DataDir,
};
use tokio::time::Instant;

use crate::{failure, local, log, output, people, serve, undumped};

/// What a demonstration has when nothing else is asked for.
const SERVERS: u32 = 1;
const WORKERS: u32 = 2;
/// What people are not to expect of it.
const SANDBOX: &str = "these machines are namespaces of this host with Remuda's sandbox distribution: the Kubernetes API is \
                       real, Pods run as processes, and there are no containers, images, pod network or volumes";
/// The kinds of a driver are there a moment after the server.
const KINDS: Duration = Duration::from_secs(30);

#[derive(Args)]
pub(crate) struct Up {
    /// Name of the cluster
    #[arg(default_value = "demo")]
    name: String,

    #[command(flatten)]
    shape: ClusterShape,

    #[command(flatten)]
    real: real::Arguments,

    /// A port of this host that leads to a port of the cluster's machines; can be repeated
    ///
    /// The first machine that listens there is taken. A Service of type LoadBalancer and an ingress of K3s listen on
    /// their ports on every machine.
    #[arg(long = "port", value_name = "[ADDRESS:]HOST:NODE", help_heading = "Machines")]
    ports: Vec<ports::Mapping>,

    /// Give up on the cluster after so many seconds; the server goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,

    /// End when the cluster is ready instead of serving on
    #[arg(long, hide = true)]
    exit_when_ready: bool,

    #[command(flatten)]
    server: Options,
}

#[derive(Args)]
pub(crate) struct Down {
    /// The server's data directory [default: /var/lib/remuda as root, else ~/.local/share/remuda]
    #[arg(long, env = env::DATA_DIR, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,

    /// Delete the clusters but keep the server's data
    #[arg(long)]
    keep_data: bool,

    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
}

fn other(error: failure::Failure) -> Failure {
    let failure = Failure::new(error.code, error.message);
    match error.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn wrong(doing: &str, error: &dyn std::error::Error) -> Failure {
    Failure::new(Code::Other, format!("{doing}: {}", failure::chain(error)))
}

pub(crate) fn up(arguments: Up) -> Result<(), Failure> {
    // The part of it that is a command finds out in /proc who it is; root stays root there.
    match nix::unistd::geteuid().is_root() {
        true => undumped::keep_memory(),
        false => undumped::no_cores(),
    }
    let failed = |error: remuda_server::config::ConfigError| other(error.into());
    // Whatever makes no sense is found before anything is made.
    let mut asked = arguments.shape.clone();
    let objects = asked.manifest(&arguments.name, FLEET_DEFAULT)?;
    let version = objects.last().map(|cluster| cluster.text("/spec/kubernetesVersion").to_owned());
    let mut options = arguments.server.with_file().map_err(failed)?;
    let told = arguments.real.real && real::Wanted::configure(&mut options);
    // What goes on is shown as progress; the log has the rest.
    options.log_level.get_or_insert_with(|| "warn".to_owned());
    let logging: Logging = options.logging();
    let config = options.resolve().map_err(failed)?;
    let data_dir = config.data_dir.clone();
    let mut shape = arguments.shape;
    let mut wanted = None;
    if arguments.real.real {
        let version = version.unwrap_or_default();
        let real = real::Wanted::check(&arguments.real, &shape, &version, &data_dir)?;
        real::Wanted::check_address(config.bind, told)?;
        real.shape(&mut shape);
        // A cluster that is there already is compared with what was said.
        if asked.version.is_some() {
            asked.version = Some(real.version.clone());
        }
        wanted = Some(real);
    }
    if shape.pools.is_empty() && !shape.custom {
        shape.servers.get_or_insert(SERVERS);
        shape.workers.get_or_insert(WORKERS);
    }
    if shape.driver.as_deref().is_none_or(|driver| driver == remuda_sandbox::driver::NAME) && !shape.custom {
        Sandbox::new(local::options(&data_dir, config.local_machines)).check().map_err(|error| {
            wrong("machines on this host", &error)
                .hint("or use machines elsewhere: remuda server, then remuda cluster create --driver …")
        })?;
    }
    if !arguments.ports.is_empty() {
        if DataDir::is_locked(&data_dir) {
            let message = format!("--port: a server is running on {} already", data_dir.display());
            return Err(
                Failure::new(Code::Conflict, message).hint("ports are kept by the remuda up that runs it")
            );
        }
        if shape.custom {
            return Err(Failure::new(Code::Invalid, "--port is for machines on this host"));
        }
    }
    let ports = ports::Ports::take(&arguments.ports)?;
    let objects = shape.manifest(&arguments.name, FLEET_DEFAULT)?;
    let pools =
        objects.last().map(|cluster| cluster.list("/spec/rkeConfig/machinePools")).unwrap_or_default();
    let pools =
        pools.iter().filter_map(|pool| Some(format!("{}-{}", arguments.name, pool["name"].as_str()?)));
    let pools: Vec<String> = pools.collect();
    let sandbox = Sandbox::new(local::options(&data_dir, config.local_machines));
    log::init(&logging).map_err(other)?;
    let runtime = serve::runtime().map_err(other)?;
    runtime.block_on(async {
        let mut signals = serve::Signals::new().map_err(other)?;
        let running = if DataDir::is_locked(&data_dir) {
            output::note(&format!("a server is running on {} already", data_dir.display()));
            None
        } else {
            let started = Server::start_with(config, local::groups).await;
            let running = started.map_err(|error| other(failure::Failure::new(&error, error.hint())))?;
            output::note(&format!("server is ready at {}", running.url()));
            tell_elsewhere(&data_dir);
            serve::first_user(&running);
            Some(running)
        };
        let timeout = Duration::from_secs(arguments.timeout);
        let show = async {
            if let Some(real) = &wanted {
                output::note(real::WARNING);
                // Nothing else is to be done meanwhile, but Ctrl-C is.
                tokio::task::block_in_place(|| real.place(&data_dir))?;
            }
            show(&data_dir, &arguments.name, &shape, &asked, wanted.is_some(), timeout).await
        };
        let work = async {
            let shown = tokio::select! {
                shown = Box::pin(show) => shown,
                () = signals.stop() => Err(Failure::new(Code::Interrupted, "told to stop")
                    .hint("what was begun goes on with the next remuda up; remuda down removes it")),
            };
            finish(shown, running, arguments.exit_when_ready, &logging, &mut signals).await
        };
        tokio::select! {
            ended = Box::pin(work) => ended,
            // It never ends by itself.
            () = ports.serve(sandbox, pools) => Ok(()),
        }
    })
}

/// Says how it ended, and serves on where that makes sense.
async fn finish(
    shown: Result<(), Failure>,
    running: Option<Running>,
    leave: bool,
    logging: &Logging,
    signals: &mut serve::Signals,
) -> Result<(), Failure> {
    let Some(running) = running else { return shown };
    match shown {
        Err(failure) if failure.code == Code::TimedOut && !leave => drop(failure.report()),
        Err(failure) => {
            running.shutdown().await;
            return Err(failure);
        }
        Ok(()) => {}
    }
    if leave {
        running.shutdown().await;
        return Ok(());
    }
    if logging.format == LogFormat::Text {
        output::note("Ctrl-C stops the server; machines and data stay. remuda down removes everything.");
    }
    serve::stay(running, signals).await.map_err(other)
}

/// The administrator of the server on a data directory.
async fn session(data_dir: &Path) -> Result<Session, Failure> {
    let global = Global { data_dir: Some(data_dir.to_owned()), ..Global::default() };
    global.connect(&people::hooks()).await
}

/// Says how commands reach this server if they would go to another.
fn tell_elsewhere(data_dir: &Path) {
    let ours = data_dir.join(file::ADMIN_KUBECONFIG);
    let ours = std::path::absolute(&ours).unwrap_or(ours);
    let told = std::env::var_os(env::DATA_DIR).map(PathBuf::from);
    match (Global { data_dir: told, ..Global::default() }).locate() {
        Ok(located) if located.origin.file != ours => {
            output::note(&format!(
                "other commands go to {located}; for this server add --data-dir {}",
                data_dir.display()
            ));
        }
        _ => {}
    }
}

async fn show(
    data_dir: &Path,
    name: &str,
    shape: &ClusterShape,
    asked: &ClusterShape,
    is_real: bool,
    timeout: Duration,
) -> Result<(), Failure> {
    let session = session(data_dir).await?;
    let objects = shape.manifest(name, &session.namespace)?;
    let began = Instant::now();
    loop {
        match create(&session, &objects, false).await {
            Ok(_) => break,
            // It is there since an earlier start.
            Err(failure) if failure.code == Code::Conflict => {
                output::note(&format!("cluster {name} is there already"));
                for difference in differences(&session, name, asked).await? {
                    output::note(&format!("  not changed: {difference}"));
                }
                break;
            }
            Err(failure) if failure.code == Code::NotFound && began.elapsed() < KINDS => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(failure) => return Err(failure),
        }
    }
    if shape.custom {
        output::line(&format!("register servers with: remuda cluster registration-command {name}"));
        return Ok(());
    }
    let key = ClusterKey { namespace: session.namespace.clone(), name: name.to_owned() };
    progress::wait(&session, &[key], Goal::Ready, timeout).await?;
    output::note(&format!("cluster {name} is ready after {:.1} s", began.elapsed().as_secs_f64()));
    if !is_real && shape.driver.as_deref().is_none_or(|driver| driver == remuda_sandbox::driver::NAME) {
        output::note(SANDBOX);
    }
    let path = data_dir.join(format!("{name}.kubeconfig"));
    let text = kubeconfig::read(&session, name).await?;
    remuda_server::datadir::write_private(&path, text.as_bytes())
        .map_err(|error| wrong("write the kubeconfig", &error))?;
    output::line(&format!("  export KUBECONFIG={}", path.display()));
    output::line("  kubectl get nodes");
    Ok(())
}

pub(crate) fn down(arguments: &Down) -> Result<(), Failure> {
    let data_dir = match &arguments.data_dir {
        Some(data_dir) => data_dir.clone(),
        None => default_data_dir().map_err(|error| other(error.into()))?,
    };
    if !data_dir.join(file::LOCK).exists() {
        output::note(&format!("{} has no server: nothing to do", data_dir.display()));
        return Ok(());
    }
    let logging = Logging { level: "warn".to_owned(), format: LogFormat::Text };
    log::init(&logging).map_err(other)?;
    let runtime = serve::runtime().map_err(other)?;
    runtime.block_on(async {
        let running = if DataDir::is_locked(&data_dir) {
            None
        } else {
            let options = Options {
                data_dir: Some(data_dir.clone()),
                bind: Some("127.0.0.1:0".to_owned()),
                ..Options::default()
            };
            let config = options.resolve().map_err(|error| other(error.into()))?;
            let started = Server::start_with(config, local::groups).await;
            Some(started.map_err(|error| other(failure::Failure::new(&error, error.hint())))?)
        };
        let session = session(&data_dir).await?;
        if let Err(refused) = agree(&session, arguments, &data_dir).await {
            if let Some(running) = running {
                running.shutdown().await;
            }
            return Err(refused);
        }
        let deleted = delete_all(&session, Duration::from_secs(arguments.timeout)).await;
        if let Some(running) = running {
            running.shutdown().await;
        }
        let deleted = deleted?;
        output::note(&format!("{} deleted", counted(deleted, "cluster")));
        if !arguments.keep_data {
            end(&data_dir).await?;
            forget(&data_dir)?;
            output::note(&format!("{} is gone", data_dir.display()));
        }
        Ok(())
    })
}

/// There is no way back, so what goes is named first.
async fn agree(session: &Session, arguments: &Down, data_dir: &Path) -> Result<(), Failure> {
    let mut what = all_named(session).await?;
    if !arguments.keep_data {
        what.push(format!("all data of the server on {}", data_dir.display()));
    }
    match what.split_last() {
        None => Ok(()),
        Some((last, [])) => confirm(&format!("deletes {last}"), arguments.yes),
        Some((last, others)) => confirm(&format!("deletes {} and {last}", others.join(", ")), arguments.yes),
    }?;
    if arguments.yes {
        what.iter().for_each(|what| output::note(&format!("deleting {what}")));
    }
    Ok(())
}

/// Ends a server that runs elsewhere on the directory.
async fn end(data_dir: &Path) -> Result<(), Failure> {
    let began = Instant::now();
    let mut told = false;
    while DataDir::is_locked(data_dir) {
        let pid = fs::read_to_string(data_dir.join(file::LOCK)).ok();
        let pid = pid.and_then(|pid| pid.trim().parse().ok()).filter(|pid| *pid > 1);
        if let (Some(pid), false) = (pid, told) {
            told = signal::kill(Pid::from_raw(pid), signal::Signal::SIGTERM).is_ok();
        }
        if began.elapsed() > Duration::from_secs(15) {
            let message = format!("the server on {} does not end", data_dir.display());
            return Err(Failure::new(Code::Other, message).hint("end it, and try again"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Removes what is left of machines, then the directory.
fn forget(data_dir: &Path) -> Result<(), Failure> {
    Sandbox::new(local::options(data_dir, LocalMachines::default()))
        .remove_all()
        .map_err(|error| wrong("remove what is left of machines", &error))?;
    fs::remove_dir_all(data_dir).map_err(|error| wrong(&format!("remove {}", data_dir.display()), &error))
}
