//! `remuda cluster`.

mod apply_config;
mod change;
mod create;
mod delete;
mod describe;
mod differences;
mod edit;
mod fields;
mod life;
mod list;
mod logs;
mod preflight;
mod protect;
mod register;

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::{
    age,
    failure::Failure,
    follow::interruptible,
    output::Format,
    progress::{self, ClusterKey, Goal},
    session::{Global, Session},
};

pub(crate) use self::describe::conditions;
pub use self::{
    apply_config::ApplyConfig,
    change::{Scale, Upgrade},
    create::{Create, create, ensure},
    delete::{Delete, all_named, delete_all},
    differences::differences,
    life::{Expire, Hibernate},
    preflight::Preflight,
    protect::Protect,
    register::{NodeRole, Register},
};

#[derive(Args, Debug)]
pub struct Cluster {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// `remuda clusters`.
#[derive(Args, Debug)]
pub struct Clusters {
    #[command(flatten)]
    pub global: Global,
    #[command(flatten)]
    pub list: List,
}

#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Create a cluster
    #[command(after_help = "Examples:
  remuda cluster create demo --wait
  remuda cluster create demo --servers 3 --workers 5 --version v1.35.1+rke2r1
  remuda cluster create prod --driver digitalocean --credential cattle-global-data:do \\
    --pool name=servers,roles=server,count=3 --pool name=workers,roles=worker,count=5,config.size=s-4vcpu-8gb
  remuda cluster create edge --custom             then: remuda cluster registration-command edge
  remuda cluster create -f cluster.yaml --wait --timeout 20m
  remuda cluster create demo --dry-run -o yaml    ask the server what it would make of it")]
    Create(Box<Create>),

    /// List clusters
    #[command(
        visible_alias = "ls",
        after_help = "Examples:
  remuda cluster list
  remuda cluster list -A -o wide
  remuda cluster list --watch
  remuda cluster list -o json"
    )]
    List(List),

    /// Show one cluster
    #[command(after_help = "Examples:
  remuda cluster get demo
  remuda cluster get demo -o yaml")]
    Get {
        #[arg(value_name = "CLUSTER")]
        name: String,
        /// How to print it
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },

    /// Show all there is to know about a cluster
    #[command(after_help = "Examples:
  remuda cluster describe demo")]
    Describe {
        #[arg(value_name = "CLUSTER")]
        name: String,
    },

    /// Delete clusters with all their machines
    #[command(
        visible_alias = "rm",
        after_help = "A cluster that is not there counts as deleted.

Examples:
  remuda cluster delete demo --wait
  remuda cluster delete demo --yes                 asks nothing, as in scripts
  remuda cluster delete --all -n team"
    )]
    Delete(Delete),

    /// Keep a cluster, or one of its pools, from being deleted
    #[command(
        after_help = "What is protected is deleted by nobody, in no way, before the protection is taken off; a
protected pool is not removed or scaled to 0 either.

Examples:
  remuda cluster protect prod
  remuda cluster protect prod --pool workers"
    )]
    Protect(Protect),

    /// Give the machines of a cluster new certificates, one machine after the other
    #[command(after_help = "Examples:
  remuda cluster rotate-certificates demo --wait
  remuda cluster rotate-certificates demo --service etcd --service kubelet")]
    RotateCertificates {
        /// Name of the cluster
        #[arg(value_name = "CLUSTER")]
        name: String,
        /// Only this one, such as etcd, kubelet or api-server; any number of times [default: all]
        #[arg(long = "service", value_name = "SERVICE")]
        services: Vec<String>,
        #[command(flatten)]
        wait: Wait,
    },

    /// Give a cluster another key for its Secrets, and encrypt all of them with it
    #[command(
        after_help = "For clusters with secrets-encryption. A snapshot is taken first; then all servers are
restarted three times, one after the other. One that fails says in which state it left the
Secrets, and the next one goes on from there.

Examples:
  remuda cluster rotate-encryption-keys demo --wait
  remuda cluster rotate-encryption-keys demo --yes   asks nothing, as in scripts
  remuda cluster rotate-encryption-keys demo --no-snapshot"
    )]
    RotateEncryptionKeys {
        /// Name of the cluster
        #[arg(value_name = "CLUSTER")]
        name: String,
        /// Take no snapshot before; it is noted that there is none
        #[arg(long)]
        no_snapshot: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        wait: Wait,
    },

    /// Stop all machines of a cluster, and keep them
    #[command(
        after_help = "A snapshot is taken first; then workers, the control plane and etcd are stopped, in this
order. Nothing is replaced meanwhile. For machines of drivers that can stop and start servers.
A schedule is five fields of cron and a time zone, in quotes: '0 20 * * 1-5 Europe/Berlin'.

Examples:
  remuda cluster hibernate demo --wait
  remuda cluster hibernate demo --yes --no-snapshot
  remuda cluster hibernate demo --schedule @daily
  remuda cluster hibernate demo --no-schedule"
    )]
    Hibernate(Hibernate),

    /// Start the machines of a hibernated cluster again
    #[command(after_help = "Examples:
  remuda cluster wake demo --wait")]
    Wake {
        /// Name of the cluster
        #[arg(value_name = "CLUSTER")]
        name: String,
        #[command(flatten)]
        wait: Wait,
    },

    /// Say when a cluster is deleted, or move that
    #[command(
        after_help = "It is told for a week before, by remuda why, events and webhooks, and for an hour at least. A
protected cluster stays. Needs the right to delete the cluster.

Examples:
  remuda cluster expire demo --in 30d
  remuda cluster expire demo --at 2026-12-24T18:00:00Z
  remuda cluster expire demo --never"
    )]
    Expire(Expire),

    /// Take the protection against deletion off
    #[command(after_help = "Needs the right to delete the cluster.

Examples:
  remuda cluster unprotect prod
  remuda cluster unprotect prod --pool workers")]
    Unprotect(Protect),

    /// Change how many machines pools have
    #[command(after_help = "Examples:
  remuda cluster scale demo workers=5
  remuda cluster scale demo servers=3 workers=10 --wait")]
    Scale(Scale),

    /// Change the version of Kubernetes
    #[command(after_help = "Machines stay; nodes are changed one tier after the other.

Examples:
  remuda cluster upgrade demo --to v1.35.2+k3s1 --wait
  remuda cluster upgrade demo --to 1.35.2
  remuda cluster upgrade demo --to stable          what remuda versions shows")]
    Upgrade(Upgrade),

    /// Say whether each machine can get what its next plan needs: installer, agent, images
    #[command(
        after_help = "Nothing is touched. What is `ready` comes from the server; what is `elsewhere` machines fetch themselves, and
whether they reach it is not known to the server; what is `missing` they do not get, and the
command ends with 11.

Examples:
  remuda cluster preflight demo
  remuda cluster preflight demo --to stable        before an upgrade
  remuda cluster preflight demo --offline          machines reach this server and nothing else
  remuda cluster preflight demo -o json"
    )]
    Preflight(Preflight),

    /// Let edits of machine configurations replace machines
    #[command(
        after_help = "A configuration may be used by many clusters. What an edit of it would replace is told by
remuda why; nothing is replaced before this is said, unless the annotation
remuda.io/config-update-policy of the cluster or the pool is Auto (or Never, then nothing ever is).

Examples:
  remuda cluster apply-config demo --dry-run
  remuda cluster apply-config demo --pool workers --wait"
    )]
    ApplyConfig(ApplyConfig),

    /// Edit a cluster in $EDITOR
    #[command(
        after_help = "What the server refuses is opened again, with the reason on top. A file that is left as \
                      it was, or emptied, changes nothing.

Examples:
  remuda cluster edit demo
  EDITOR='code --wait' remuda cluster edit demo"
    )]
    Edit {
        #[arg(value_name = "CLUSTER")]
        name: String,
        #[command(flatten)]
        wait: Wait,
    },

    /// Print the command that registers a server with a cluster, or imports a cluster
    #[command(after_help = "Examples:
  remuda cluster registration-command edge --role all
  remuda cluster registration-command edge --role worker --node-name edge-7 --label rack=r2
  remuda cluster registration-command edge --role worker --windows")]
    RegistrationCommand(Register),

    /// Print what happened while a cluster was made
    #[command(after_help = "Examples:
  remuda cluster logs demo
  remuda cluster logs demo --follow --tail 20")]
    Logs {
        #[arg(value_name = "CLUSTER")]
        name: String,
        /// Go on printing what is added
        #[arg(long, short)]
        follow: bool,
        /// Only the last so many lines
        #[arg(long, value_name = "LINES")]
        tail: Option<usize>,
    },
}

#[derive(Args, Debug)]
pub struct List {
    /// Of all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,

    /// How to print them
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,

    /// Go on with what changes, until Ctrl-C
    #[arg(long, short)]
    pub watch: bool,
}

/// Whether a command waits for the cluster.
#[derive(Args, Debug, Clone, Copy)]
pub struct Wait {
    /// Wait until it is done, and show how it goes
    #[arg(long)]
    pub wait: bool,

    /// Give up waiting after this time
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = age::parse)]
    pub timeout: Duration,
}

impl Wait {
    /// Waits if that was asked for. `after` is said first, so that people know what they wait for.
    pub(crate) async fn until(self, session: &Session, name: &str, goal: Goal) -> Result<(), Failure> {
        if !self.wait {
            return Ok(());
        }
        let key = ClusterKey { namespace: session.namespace.clone(), name: name.to_owned() };
        progress::wait(session, &[key], goal, self.timeout).await
    }
}

pub(crate) async fn run(session: &Session, command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Create(arguments) => create::run(session, *arguments).await,
        ClusterCommand::List(arguments) => list::run(session, &arguments).await,
        ClusterCommand::Get { name, output } => list::one(session, &name, output).await,
        ClusterCommand::Describe { name } => describe::run(session, &name).await,
        ClusterCommand::Delete(arguments) => delete::run(session, arguments).await,
        ClusterCommand::Protect(arguments) => protect::run(session, &arguments, true).await,
        ClusterCommand::RotateCertificates { name, services, wait } => {
            crate::snapshot::rotate_certificates(session, &name, &services, wait).await
        }
        ClusterCommand::RotateEncryptionKeys { name, no_snapshot, yes, wait } => {
            crate::snapshot::rotate_encryption_keys(session, &name, no_snapshot, yes, wait).await
        }
        ClusterCommand::Hibernate(arguments) => life::hibernate(session, arguments).await,
        ClusterCommand::Wake { name, wait } => life::wake(session, &name, wait).await,
        ClusterCommand::Expire(arguments) => life::expire(session, arguments).await,
        ClusterCommand::Unprotect(arguments) => protect::run(session, &arguments, false).await,
        ClusterCommand::Scale(arguments) => change::scale(session, arguments).await,
        ClusterCommand::Upgrade(arguments) => change::upgrade(session, arguments).await,
        ClusterCommand::Preflight(arguments) => preflight::run(session, &arguments).await,
        ClusterCommand::ApplyConfig(arguments) => apply_config::run(session, arguments).await,
        ClusterCommand::Edit { name, wait } => edit::run(session, &name, wait).await,
        ClusterCommand::RegistrationCommand(arguments) => register::run(session, arguments).await,
        ClusterCommand::Logs { name, follow, tail } => {
            interruptible(logs::run(session, &name, follow, tail)).await
        }
    }
}
