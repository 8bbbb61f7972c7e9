//! `remuda machine`.

mod delete;
mod enter;
mod logs;
mod node;
mod orphans;
mod ssh;

use clap::{Args, Subcommand};
use jiff::{Timestamp, tz::TimeZone};
use remuda_names::{capi, rancher::label};

use crate::{
    age, api,
    cluster::conditions,
    denied::Denied,
    evidence::{Evidence, Roles, kind},
    failure::{Code, Failure},
    follow::interruptible,
    gather::{self, Depth},
    list::{self, Item, Listing},
    near,
    object::Object,
    output::{Format, paint},
    progress::tone,
    session::{Global, Session},
    table::{Cell, Table, shown},
    why,
};

pub use self::{delete::DeleteMachine, node::Drain, orphans::FindOrphans};

#[derive(Args, Debug)]
pub struct Machine {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: MachineCommand,
}

/// `remuda machines`.
#[derive(Args, Debug)]
pub struct Machines {
    #[command(flatten)]
    pub global: Global,
    #[command(flatten)]
    pub list: MachineList,
}

#[derive(Subcommand, Debug)]
pub enum MachineCommand {
    /// List machines
    #[command(
        visible_alias = "ls",
        after_help = "Examples:
  remuda machine list
  remuda machine list --cluster demo -o wide
  remuda machine list --watch
  remuda machine list -A -o json"
    )]
    List(MachineList),

    /// Show all there is to know about a machine
    #[command(after_help = "Examples:
  remuda machine describe demo-workers-x8k2p-abcde")]
    Describe {
        #[arg(value_name = "MACHINE")]
        name: String,
    },

    /// Print what was written while the machine's server was made or removed
    #[command(after_help = "The logs of machines that are gone are kept for a while.

Examples:
  remuda machine logs demo-workers-x8k2p-abcde
  remuda machine logs demo-workers-x8k2p-abcde --follow --tail 20")]
    Logs {
        #[arg(value_name = "MACHINE")]
        name: String,
        /// Go on printing what is added
        #[arg(long, short)]
        follow: bool,
        /// Only the last so many lines
        #[arg(long, value_name = "LINES")]
        tail: Option<usize>,
    },

    /// Get into a machine, or run something there
    #[command(after_help = "Machines on this host are entered directly, others over SSH.

Examples:
  remuda machine shell demo-servers-x8k2p-abcde
  remuda machine shell demo-servers-x8k2p-abcde -- journalctl -u k3s -n 50")]
    Shell(Enter),

    /// Get into a machine over SSH, or run something there
    #[command(after_help = "The key is the one the driver made for the machine. Needs the ssh program.

Examples:
  remuda machine ssh prod-workers-x8k2p-abcde
  remuda machine ssh prod-workers-x8k2p-abcde -- uptime")]
    Ssh(Enter),

    /// Delete machines with their servers; pools make others in their place
    #[command(
        visible_alias = "rm",
        after_help = "Examples:
  remuda machine delete demo-workers-x8k2p-abcde --wait
  remuda machine delete demo-workers-x8k2p-abcde --yes"
    )]
    Delete(DeleteMachine),

    /// Have a machine's node take no new pods
    #[command(after_help = "Examples:
  remuda machine cordon demo-workers-x8k2p-abcde")]
    Cordon {
        #[arg(value_name = "MACHINE")]
        name: String,
    },

    /// Have a machine's node take pods again
    #[command(after_help = "Examples:
  remuda machine uncordon demo-workers-x8k2p-abcde")]
    Uncordon {
        #[arg(value_name = "MACHINE")]
        name: String,
    },

    /// Have a machine's node take no new pods, and evict those it has
    #[command(
        after_help = "Pods of DaemonSets, static pods and the cluster agent stay; budgets are kept. MachineDrainRules count when
a machine is deleted, not here.

Examples:
  remuda machine drain demo-workers-x8k2p-abcde --timeout 5m
  remuda machine uncordon demo-workers-x8k2p-abcde"
    )]
    Drain(Drain),

    /// Restart a machine's server, or start it if it does not run
    #[command(
        after_help = "Machines on this host are restarted directly, running or not. Others are told over SSH, and have to run.

Examples:
  remuda machine restart demo-workers-x8k2p-abcde"
    )]
    Restart {
        #[arg(value_name = "MACHINE")]
        name: String,
    },

    /// Be a driver plugin: serve a built-in driver to docker-machine, rancher-machine or another server
    #[command(
        after_help = "The program that uses the plugin starts it; so it does with a copy of this program named
docker-machine-driver-NAME.

Examples:
  remuda machine serve-driver digitalocean"
    )]
    ServeDriver { name: String },

    /// List servers that providers have and that belong to no machine
    #[command(after_help = "Examples:
  remuda machine orphans
  remuda machine orphans --driver digitalocean --credential do -o json
  remuda machine orphans --driver amazonec2 --flag amazonec2-region=eu-central-1")]
    Orphans(FindOrphans),
}

#[derive(Args, Debug)]
pub struct MachineList {
    /// Of this cluster only
    #[arg(long, short, value_name = "CLUSTER")]
    pub cluster: Option<String>,

    /// Of all namespaces
    #[arg(long, short = 'A', conflicts_with = "cluster")]
    pub all_namespaces: bool,

    /// How to print them
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,

    /// Go on with what changes, until Ctrl-C
    #[arg(long, short)]
    pub watch: bool,
}

#[derive(Args, Debug)]
pub struct Enter {
    /// Name of the machine
    #[arg(value_name = "MACHINE")]
    pub name: String,

    /// What to run there [default: a shell]
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

pub(crate) async fn run(session: &Session, command: MachineCommand) -> Result<(), Failure> {
    match command {
        MachineCommand::List(arguments) => list(session, &arguments).await,
        MachineCommand::Describe { name } => describe(session, &name).await,
        MachineCommand::Logs { name, follow, tail } => {
            interruptible(logs::run(session, &name, follow, tail)).await
        }
        MachineCommand::Shell(arguments) => enter::shell(session, arguments).await,
        MachineCommand::Ssh(arguments) => enter::ssh(session, arguments).await,
        MachineCommand::Delete(arguments) => delete::run(session, arguments).await,
        MachineCommand::Cordon { name } => node::cordon(session, &name, true).await,
        MachineCommand::Uncordon { name } => node::cordon(session, &name, false).await,
        MachineCommand::Drain(arguments) => interruptible(node::drain(session, arguments)).await,
        MachineCommand::Restart { name } => enter::restart(session, name).await,
        MachineCommand::ServeDriver { .. } => {
            Err(Failure::invalid("write it as the first words: remuda machine serve-driver NAME"))
        }
        MachineCommand::Orphans(arguments) => orphans::run(session, arguments).await,
    }
}

/// Said beside a list that may not be all there is.
const OTHERS: &str = "machines of clusters you have no role in are not shown";

async fn list(session: &Session, arguments: &MachineList) -> Result<(), Failure> {
    if arguments.watch {
        return interruptible(list::watch(session, arguments.output, || listing(session, arguments))).await;
    }
    list::print(&session.out, listing(session, arguments).await?, arguments.output)
}

async fn listing(session: &Session, arguments: &MachineList) -> Result<Listing, Failure> {
    let namespace = (!arguments.all_namespaces).then_some(session.namespace.as_str());
    let (mut evidence, withheld) = match &arguments.cluster {
        Some(name) => {
            gather::existing(session, &session.namespace, name).await?;
            let evidence = gather::cluster(session, &session.namespace, name, Depth::Objects).await?;
            let denied = evidence.unreadable.get(kind::MACHINES);
            let refused = |denied: &Denied| Failure::new(Code::Forbidden, format!("you may not {denied}"));
            let refused = denied.map(refused);
            (evidence, refused)
        }
        None => gather::all_machines(session, namespace).await?,
    };
    let remark = withheld.is_some().then_some(OTHERS);
    if let Some(refused) = withheld.filter(|_| evidence.machines.is_empty()) {
        let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        let message = format!("you may see no machines{place}: {}", refused.message);
        return Err(Failure { message, ..refused }.hint(gather::NO_ROLE));
    }
    evidence
        .machines
        .sort_by(|one, other| (one.namespace(), one.name()).cmp(&(other.namespace(), other.name())));
    let now = Timestamp::now();
    let (header, rows): (_, Vec<Vec<Cell>>) = match arguments.output {
        Format::Table => {
            (HEADER.to_vec(), evidence.machines.iter().map(|one| row(&evidence, one, now)).collect())
        }
        Format::Wide => {
            (WIDE.to_vec(), evidence.machines.iter().map(|one| wide(&evidence, one, now)).collect())
        }
        _ => (Vec::new(), vec![Vec::new(); evidence.machines.len()]),
    };
    let items =
        evidence.machines.into_iter().zip(rows).map(|(object, cells)| Item { object, cells }).collect();
    let empty = "there are no machines".to_owned();
    Ok(Listing { header, items, qualified: namespace.is_none(), empty, remark })
}

const HEADER: [&str; 7] = ["NAME", "CLUSTER", "ROLES", "PHASE", "NODE", "AGE", "STATE"];
const WIDE: [&str; 11] =
    ["NAME", "CLUSTER", "ROLES", "PHASE", "NODE", "AGE", "POOL", "ADDRESS", "VERSION", "PROVIDER", "STATE"];

/// Machines and how far each is.
pub(crate) fn table(evidence: &Evidence, now: Timestamp) -> Table {
    let mut table = Table::new(HEADER);
    for machine in &evidence.machines {
        table.row(row(evidence, machine, now));
    }
    table
}

fn row(evidence: &Evidence, machine: &Object, now: Timestamp) -> Vec<Cell> {
    let finding = why::of_machine(evidence, machine, now);
    vec![
        machine.name().into(),
        machine.label(capi::label::CLUSTER_NAME).into(),
        Roles::of(machine).to_string().into(),
        machine.text("/status/phase").into(),
        machine.text("/status/nodeRef/name").into(),
        age::ago(machine.created(), now).into(),
        Cell::toned(finding.brief, tone(finding.state)),
    ]
}

fn wide(evidence: &Evidence, machine: &Object, now: Timestamp) -> Vec<Cell> {
    let mut cells = row(evidence, machine, now);
    let state = cells.pop();
    cells.extend([
        machine.label(label::MACHINE_POOL_NAME).into(),
        addresses(machine).first().cloned().unwrap_or_default().into(),
        machine.text("/status/nodeInfo/kubeletVersion").into(),
        machine.text("/spec/providerID").into(),
    ]);
    cells.extend(state);
    cells
}

/// Addresses of a machine, those others reach it at first.
pub(crate) fn addresses(machine: &Object) -> Vec<String> {
    let all = machine.list("/status/addresses");
    let of = |kind: &str| {
        let fitting = all.iter().filter(move |address| address["type"] == kind);
        fitting.filter_map(|address| address["address"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let kinds = ["ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS", "Hostname"];
    kinds.iter().flat_map(|kind| of(kind)).collect()
}

/// Everything about a machine, or a failure that names similar ones.
pub(crate) async fn existing(session: &Session, name: &str, depth: Depth) -> Result<Evidence, Failure> {
    let namespace = session.namespace.as_str();
    match gather::machine(session, namespace, name, depth).await {
        Ok(Some(evidence)) => return Ok(evidence),
        Ok(None) => {}
        Err(refused) if refused.code == Code::Forbidden => {
            return Err(gather::unseen(session, &format!("machine {name}"), name, refused)
                .await
                .hint("remuda machine list -A shows those you may see"));
        }
        Err(failure) => return Err(failure),
    }
    let machines = api::list(&session.client, &api::capi("Machine"), None, api::Which::All).await?;
    let failure =
        Failure::new(Code::NotFound, format!("there is no machine {name} in namespace {namespace}"));
    if let Some(other) = machines.iter().find(|machine| machine.name() == name) {
        return Err(failure.hint(format!("there is one in namespace {0}: add -n {0}", other.namespace())));
    }
    let here = machines.iter().filter(|machine| machine.namespace() == namespace).map(Object::name);
    Err(failure.hint(near::hint(name, here, "remuda machine list -A")))
}

async fn describe(session: &Session, name: &str) -> Result<(), Failure> {
    let evidence = existing(session, name, Depth::Logs).await?;
    let now = Timestamp::now();
    session.out.text(&render(&evidence, name, now));
    let finding = why::decide(&evidence, now);
    if !finding.is_ready() {
        session.out.text(&format!("\n{}", finding.render(now, &TimeZone::system())));
    }
    Ok(())
}

fn render(evidence: &Evidence, name: &str, now: Timestamp) -> String {
    let Some(machine) = evidence.machine(name) else { return String::new() };
    let server = evidence.server(machine);
    let plan = evidence.plan(machine);
    let planned = match plan {
        Some(plan) if plan.failed => "failed".to_owned(),
        Some(plan) if plan.applied => "applied".to_owned(),
        Some(plan) if plan.delivered => "being applied".to_owned(),
        _ => String::new(),
    };
    let fields = [
        ("Name", machine.name().to_owned()),
        ("Namespace", machine.namespace().to_owned()),
        ("Cluster", machine.label(capi::label::CLUSTER_NAME).to_owned()),
        ("Pool", machine.label(label::MACHINE_POOL_NAME).to_owned()),
        ("Roles", Roles::of(machine).names().join(", ")),
        ("Phase", machine.text("/status/phase").to_owned()),
        ("Node", machine.text("/status/nodeRef/name").to_owned()),
        ("Version", machine.text("/status/nodeInfo/kubeletVersion").to_owned()),
        ("System", machine.text("/status/nodeInfo/osImage").to_owned()),
        ("Addresses", addresses(machine).join(", ")),
        ("Provider id", machine.text("/spec/providerID").to_owned()),
        ("Server", server.map(Object::reference).unwrap_or_default()),
        ("Plan", planned),
        ("Installer", plan.and_then(|plan| plan.installer.clone()).unwrap_or_default()),
        ("Created", age::ago(machine.created(), now) + " ago"),
    ];
    let mut out = String::new();
    for (name, text) in fields {
        out.push_str(&format!("{name:<12} {}\n", shown(&text)));
    }
    out.push_str(&format!("\n{}\n{}", paint::strong("Conditions"), conditions(machine, now).render("  ")));
    if let Some(server) = server.filter(|server| server.conditions().next().is_some()) {
        let title = paint::strong(&format!("Conditions of {}", server.reference()));
        out.push_str(&format!("\n{title}\n{}", conditions(server, now).render("  ")));
    }
    out
}
