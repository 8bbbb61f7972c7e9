//! `remuda agent`: the node agent as a service, and its way onto a machine.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};
use remuda_agent::{
    environment::Environment,
    install::{self, InstallOptions, Layout, Registration, Roles},
    run::watch_signals,
    supervise::{SuperviseOptions, supervise_blocking},
};

use tokio_util::sync::CancellationToken;

use crate::{applet, failure::Failure};

#[derive(Args)]
pub(crate) struct Agent {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the agent until it is told to stop
    #[command(alias = "sentinel")]
    Run {
        /// Its configuration [default: $CATTLE_AGENT_CONFIG, else /etc/rancher/agent/config.yaml]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },

    /// Put the agent on this machine and start it
    Install(Box<Install>),

    /// Stop the agent and take it off this machine; what it installed stays
    Uninstall,

    /// Keep the agent running, where there is no systemd to do so
    #[command(hide = true)]
    Supervise,
}

#[derive(Args)]
struct Install {
    /// Register with this server
    #[arg(long, env = "CATTLE_SERVER", value_name = "URL", requires = "token")]
    server: Option<String>,

    /// Registration token of the cluster
    #[arg(long, env = "CATTLE_TOKEN", value_name = "TOKEN", hide_env_values = true, requires = "server")]
    token: Option<String>,

    /// SHA-256 of the server's certificate authority
    #[arg(long, env = "CATTLE_CA_CHECKSUM", value_name = "SHA256")]
    ca_checksum: Option<String>,

    /// Be a member of etcd
    #[arg(long)]
    etcd: bool,

    /// Run the control plane
    #[arg(long)]
    controlplane: bool,

    /// Run workloads
    #[arg(long)]
    worker: bool,

    /// Name of the node [default: the host's]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    node_name: String,

    /// Address of the node, or the interface that has it
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    address: String,

    /// The same on the private network
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    internal_address: String,

    /// Label of the node; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,

    /// Taint of the node; may be given several times
    #[arg(long, value_name = "KEY=VALUE:EFFECT")]
    taint: Vec<String>,

    /// Do not start it
    #[arg(long)]
    no_start: bool,

    /// Watch plan files in the agent's directory too
    #[arg(long)]
    local: bool,
}

impl Install {
    fn registration(self, strict: bool) -> Option<Registration> {
        let (server, token) = self.server.zip(self.token)?;
        Some(Registration {
            server,
            token,
            ca_checksum: self.ca_checksum,
            strict,
            roles: Roles { etcd: self.etcd, control_plane: self.controlplane, worker: self.worker },
            node_name: self.node_name,
            address: self.address,
            internal_address: self.internal_address,
            labels: self.label,
            taints: self.taint,
            machine_id: None,
        })
    }
}

pub(crate) fn run(agent: Agent) -> Result<(), Failure> {
    let environment = Environment::of_process();
    match agent.command.unwrap_or(Command::Run { config: None }) {
        Command::Run { config } => applet::daemon(config).map_err(|error| Failure::new(&error, None)),
        Command::Install(arguments) => {
            let strict = environment.is_true("STRICT_VERIFY");
            let mut options = InstallOptions::new(environment);
            options.start = !arguments.no_start;
            options.local |= arguments.local;
            options.registration = arguments.registration(strict);
            let stop = CancellationToken::new();
            crate::serve::runtime()?.block_on(async {
                tokio::spawn(watch_signals(stop.clone()));
                install::install(&options, &stop).await.map_err(|error| Failure::new(&error, None))
            })
        }
        Command::Uninstall => {
            install::uninstall(&Layout::of(&environment)).map_err(|error| Failure::new(&error, None))
        }
        Command::Supervise => {
            let layout = Layout::of(&environment);
            let program = std::env::current_exe().map_err(|error| Failure::new(&error, None))?;
            let command = vec![program.into_os_string(), OsString::from("agent"), OsString::from("run")];
            let mut options = SuperviseOptions::new(command, layout.pid_file());
            options.log_file = Some(layout.log_file());
            supervise_blocking(&options).map_err(|error| Failure::new(&error, None))
        }
    }
}
