//! `remuda machine`.

mod enter;
mod logs;
mod orphans;
mod ssh;

use clap::{Args, Subcommand};
use jiff::{Timestamp, tz::TimeZone};
use remuda_names::{capi, rancher::label};
use serde_json::Value;

use crate::{
    age, api,
    cluster::conditions,
    evidence::{Evidence, Roles},
    failure::{Code, Failure},
    gather::{self, Depth},
    near,
    object::Object,
    output::{self, Format, paint},
    progress::tone,
    session::{Global, Session},
    table::{Cell, Table, shown},
    why,
};

pub use self::orphans::FindOrphans;

#[derive(Args, Debug)]
pub struct Machine {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: MachineCommand,
}

#[derive(Subcommand, Debug)]
pub enum MachineCommand {
    /// List machines
    #[command(
        visible_alias = "ls",
        after_help = "Examples:
  remuda machine list
  remuda machine list --cluster demo -o wide
  remuda machine list -A -o json"
    )]
    List(MachineList),

    /// Show all there is to know about a machine
    #[command(after_help = "Examples:
  remuda machine describe demo-workers-x8k2p-abcde")]
    Describe { name: String },

    /// Print what was written while the machine's server was made or removed
    #[command(after_help = "The logs of machines that are gone are kept for a while.

Examples:
  remuda machine logs demo-workers-x8k2p-abcde
  remuda machine logs demo-workers-x8k2p-abcde --follow --tail 20")]
    Logs {
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
    #[arg(long, short, value_name = "NAME")]
    pub cluster: Option<String>,

    /// Of all namespaces
    #[arg(long, short = 'A', conflicts_with = "cluster")]
    pub all_namespaces: bool,

    /// How to print them
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

#[derive(Args, Debug)]
pub struct Enter {
    /// Name of the machine
    pub name: String,

    /// What to run there [default: a shell]
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

pub(crate) async fn run(session: &Session, command: MachineCommand) -> Result<(), Failure> {
    match command {
        MachineCommand::List(arguments) => list(session, &arguments).await,
        MachineCommand::Describe { name } => describe(session, &name).await,
        MachineCommand::Logs { name, follow, tail } => logs::run(session, &name, follow, tail).await,
        MachineCommand::Shell(arguments) => enter::shell(session, arguments).await,
        MachineCommand::Ssh(arguments) => enter::ssh(session, arguments).await,
        MachineCommand::ServeDriver { .. } => {
            Err(Failure::invalid("write it as the first words: remuda machine serve-driver NAME"))
        }
        MachineCommand::Orphans(arguments) => orphans::run(session, arguments).await,
    }
}

async fn list(session: &Session, arguments: &MachineList) -> Result<(), Failure> {
    let namespace = (!arguments.all_namespaces).then_some(session.namespace.as_str());
    let mut evidence = match &arguments.cluster {
        Some(name) => {
            gather::existing(session, &session.namespace, name).await?;
            gather::cluster(session, &session.namespace, name, Depth::Objects).await?
        }
        None => gather::all_machines(session, namespace).await?,
    };
    evidence
        .machines
        .sort_by(|one, other| (one.namespace(), one.name()).cmp(&(other.namespace(), other.name())));
    match arguments.output {
        Format::Name => {
            for machine in &evidence.machines {
                match namespace {
                    Some(_) => session.out.line(machine.name()),
                    None => session.out.line(&format!("{}/{}", machine.namespace(), machine.name())),
                }
            }
            Ok(())
        }
        format @ (Format::Json | Format::Yaml) => {
            let items: Vec<Value> =
                evidence.machines.into_iter().map(|machine| machine.presentable().0).collect();
            session.out.document(&output::list(items), format)
        }
        Format::Table | Format::Wide if evidence.machines.is_empty() => {
            session.out.note("there are no machines");
            Ok(())
        }
        Format::Table => {
            session.out.text(&table(&evidence, Timestamp::now()).render(""));
            Ok(())
        }
        Format::Wide => {
            session.out.text(&wide(&evidence, Timestamp::now()).render(""));
            Ok(())
        }
    }
}

/// Machines and how far each is.
pub(crate) fn table(evidence: &Evidence, now: Timestamp) -> Table {
    let mut table = Table::new(["NAME", "CLUSTER", "ROLES", "PHASE", "NODE", "AGE", "STATE"]);
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

fn wide(evidence: &Evidence, now: Timestamp) -> Table {
    let header = [
        "NAME", "CLUSTER", "ROLES", "PHASE", "NODE", "AGE", "POOL", "ADDRESS", "VERSION", "PROVIDER", "STATE",
    ];
    let mut table = Table::new(header);
    for machine in &evidence.machines {
        let mut cells = row(evidence, machine, now);
        let state = cells.pop();
        cells.extend([
            machine.label(label::MACHINE_POOL_NAME).into(),
            addresses(machine).first().cloned().unwrap_or_default().into(),
            machine.text("/status/nodeInfo/kubeletVersion").into(),
            machine.text("/spec/providerID").into(),
        ]);
        cells.extend(state);
        table.row(cells);
    }
    table
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
    if let Some(evidence) = gather::machine(session, namespace, name, depth).await? {
        return Ok(evidence);
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
