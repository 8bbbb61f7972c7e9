//! Commands for people: `remuda assets`, `capi`, `cluster`, `machine`, `generate`, `get`, `kubeconfig`, `login`,
//! `logout`, `snapshot`, `token`, `user`, `versions` and `why`.
//!
//! They speak to any server through a `kube::Client` and know nothing of what is behind it. [`Command`] is what
//! can be asked for and [`run`] does it; the program adds both to its own command line and gives [`Hooks`] for
//! what only it can do, such as getting into a machine. [`why::decide`] and [`progress::Snapshot`] are pure
//! functions over [`Evidence`], so that other commands can say the same things in the same words.
//!
//! Results go to standard output, remarks and progress to standard error. Exit codes are a promise; they are
//! listed at [`Code`].

mod age;
mod api;
pub mod assets;
pub mod capi;
pub mod cluster;
mod confirm;
mod denied;
mod evidence;
mod failure;
mod follow;
mod gather;
pub mod generate;
mod hooks;
pub mod kubeconfig;
mod list;
mod locate;
pub mod login;
pub mod machine;
mod names;
mod near;
mod object;
mod output;
mod plan;
pub mod progress;
mod quote;
mod session;
pub mod snapshot;
mod table;
pub mod token;
pub mod user;
pub mod versions;
pub mod why;

use clap::{Args, Subcommand};

pub use self::{
    confirm::{confirm, counted},
    denied::Denied,
    evidence::{Evidence, Subject},
    failure::{Code, Failure},
    hooks::{
        Hooks, HostState, JobLog, JobLogs, MachineTarget, Orphan, OrphanQuery, OrphanReport, Orphans,
        ServedLogs, Shell,
    },
    locate::{Located, Origin},
    names::{Named, names},
    object::{Condition, Object},
    output::{Format, Out},
    session::{Global, Session, cache_dir, config, default_data_dir},
};

/// What commands end with; see [`Code`].
const EXIT_CODES: &str = "Exit codes:
  0 done   1 failed   2 makes no sense or was refused   3 not found   4 no server   5 not allowed
  6 exists or was changed meanwhile   7 not done in time   10 waiting   11 blocked   130 interrupted";

/// What people can ask for.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Create, look at, change and delete clusters
    #[command(after_help = EXIT_CODES)]
    Cluster(cluster::Cluster),
    /// Give the server agents for machines of other architectures
    #[command(after_help = EXIT_CODES)]
    Assets(assets::Assets),
    /// Work with Cluster API: the server's place in it, and providers beside the server
    #[command(after_help = EXIT_CODES)]
    Capi(capi::Capi),
    /// Look at machines, read their logs and get into them
    #[command(after_help = EXIT_CODES)]
    Machine(machine::Machine),
    /// As remuda cluster list, for who is used to plurals
    #[command(
        hide = true,
        after_help = "Examples:
  remuda clusters -A"
    )]
    Clusters(cluster::Clusters),
    /// As remuda machine list
    #[command(
        hide = true,
        after_help = "Examples:
  remuda machines --cluster demo"
    )]
    Machines(machine::Machines),
    /// Print manifests
    Generate(generate::Generate),
    /// Get things out of the server
    Get(kubeconfig::Get),
    /// Work on kubeconfig files
    Kubeconfig(kubeconfig::Kubeconfig),
    /// Log in to a server: other commands go there from then on, and kubectl has a context for it
    #[command(
        after_help = "The server is remembered in ~/.config/remuda/server.kubeconfig, apart from what kubectl uses, so
switching contexts changes nothing for remuda. With --into only that file is written.

Examples:
  remuda login https://remuda.example:8443
  remuda login https://10.0.0.5:8443 --username ann --ca-file ca.pem
  remuda login https://remuda.example --sso       with a browser
  echo \"$PASSWORD\" | remuda login --password-stdin --into ~/.kube/remuda"
    )]
    Login(login::Login),
    /// End the login that was remembered, and forget the server
    #[command(
        after_help = "Contexts in kubeconfig files stay; what they lead to with this login is refused from then on.

Examples:
  remuda logout"
    )]
    Logout(login::Logout),
    /// Take, look at, restore and delete snapshots of clusters
    #[command(after_help = EXIT_CODES)]
    Snapshot(snapshot::Snapshot),
    /// Make, list and revoke tokens for programs
    #[command(after_help = EXIT_CODES)]
    Token(token::Token),
    /// Make, list and keep out users, and give them roles
    #[command(after_help = EXIT_CODES)]
    User(user::User),
    /// List the releases of K3s and RKE2 clusters can have
    #[command(after_help = "Examples:
  remuda versions
  remuda versions --channel stable
  remuda versions --all --distribution rke2
  remuda versions --channel stable --distribution k3s -o name")]
    Versions(versions::Versions),
    /// Say why a cluster or a machine is not ready, and what to do about it
    #[command(
        after_help = "The exit code is 0 if it is ready, 10 if it only takes time, 11 if somebody has to act. Without a name
all clusters are looked at, in all namespaces unless one is given, and it is that of the worst of them.

Examples:
  remuda why
  remuda why demo
  remuda why demo-workers-x8k2p-abcde
  remuda why demo -o json | jq -r .cause"
    )]
    Why(Why),
}

#[derive(Args, Debug)]
pub struct Why {
    /// Name of a cluster, or else of a machine [default: all clusters that are not well]
    #[arg(value_name = "CLUSTER|MACHINE")]
    pub name: Option<String>,

    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,

    #[command(flatten)]
    pub global: Global,
}

/// Does what was asked for.
pub async fn run(command: Command, hooks: &Hooks) -> Result<(), Failure> {
    let global = match &command {
        Command::Generate(generate) => return generate::run(&generate.command),
        Command::Login(login) => return Box::pin(login::run(login)).await,
        Command::Logout(logout) => return Box::pin(login::logout(logout)).await,
        Command::Versions(arguments) if arguments.shipped => return versions::shipped(arguments),
        Command::Versions(versions) => &versions.global,
        Command::Cluster(cluster) => &cluster.global,
        Command::Assets(assets) => &assets.global,
        Command::Capi(capi) => &capi.global,
        Command::Machine(machine) => &machine.global,
        Command::Clusters(clusters) => &clusters.global,
        Command::Machines(machines) => &machines.global,
        Command::Get(get) => &get.global,
        Command::Kubeconfig(kubeconfig) => {
            if let kubeconfig::KubeconfigCommand::Credential(arguments) = &kubeconfig.command {
                return Box::pin(kubeconfig::credential(&kubeconfig.global, arguments)).await;
            }
            &kubeconfig.global
        }
        Command::Snapshot(snapshot) => &snapshot.global,
        Command::Token(token) => &token.global,
        Command::User(user) => &user.global,
        Command::Why(why) => &why.global,
    };
    let session = global.connect(hooks).await?;
    let server = session.server.clone().unwrap_or_default();
    Box::pin(run_on(&session, command)).await.map_err(|failure| failure.at(server))
}

/// Does what was asked for on a server that is known already.
pub async fn run_on(session: &Session, command: Command) -> Result<(), Failure> {
    match command {
        Command::Generate(generate) => generate::run(&generate.command),
        Command::Cluster(cluster) => Box::pin(cluster::run(session, cluster.command)).await,
        Command::Assets(assets) => Box::pin(assets::run(session, assets.command)).await,
        Command::Capi(capi) => Box::pin(capi::run(session, capi)).await,
        Command::Machine(machine) => Box::pin(machine::run(session, machine.command)).await,
        Command::Clusters(clusters) => {
            Box::pin(cluster::run(session, cluster::ClusterCommand::List(clusters.list))).await
        }
        Command::Machines(machines) => {
            Box::pin(machine::run(session, machine::MachineCommand::List(machines.list))).await
        }
        Command::Get(get) => Box::pin(kubeconfig::get(session, get.command)).await,
        Command::Kubeconfig(kubeconfig) => Box::pin(kubeconfig::run(session, kubeconfig.command)).await,
        Command::Login(login) => Box::pin(login::run(&login)).await,
        Command::Logout(logout) => Box::pin(login::logout(&logout)).await,
        Command::Snapshot(snapshot) => Box::pin(snapshot::run(session, snapshot.command)).await,
        Command::Token(token) => Box::pin(token::run(session, token.command)).await,
        Command::User(user) => Box::pin(user::run(session, user.command)).await,
        Command::Versions(arguments) => Box::pin(versions::run(session, &arguments)).await,
        Command::Why(arguments) => Box::pin(why::run(session, &arguments)).await,
    }
}
