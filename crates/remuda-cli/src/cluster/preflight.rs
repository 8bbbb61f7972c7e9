//! `remuda cluster preflight`: can each machine get what its next plan needs, before anything is touched.
//!
//! The server says what it has ([`Answer`]); which machines that concerns follows from both ([`needs`]).

mod need;

use std::collections::BTreeSet;

use clap::Args;
use http::Method;
use remuda_distro::wanted::Wanted;
use remuda_names::{capi, path};
use serde_json::Value;

use self::need::{
    Answer, Machine, Need, OWN, State, document, hints, is_known, machine, needs, table, worst,
};
use crate::{
    api::{self, Which},
    failure::{Code, Failure},
    gather,
    generate::{Distribution, full_version},
    object::Object,
    output::Format,
    session::Session,
    token::send,
    versions,
};

#[derive(Args, Debug)]
pub struct Preflight {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,

    /// As if it were to have this version, such as v1.35.2+k3s1, 1.35 or stable [default: the one it has]
    #[arg(long = "to", visible_aliases = ["version", "kubernetes-version"], value_name = "VERSION")]
    pub to: Option<String>,

    /// Machines reach this server and nothing else: what they would get elsewhere counts as missing
    #[arg(long)]
    pub offline: bool,

    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// Asks the server.
async fn ask(
    session: &Session,
    namespace: &str,
    name: &str,
    version: Option<&str>,
    machines: &[Machine],
) -> Result<Answer, Failure> {
    let platforms = machines.iter().map(|machine| machine.platform.as_str()).filter(|one| is_known(one));
    let mut platforms: BTreeSet<&str> = platforms.collect();
    // What is not known yet is most likely what the server is.
    if machines.iter().all(|machine| !is_known(&machine.platform))
        || machines.iter().any(|machine| machine.platform.is_empty())
    {
        platforms.insert(OWN);
    }
    let platforms: Vec<&str> = platforms.into_iter().collect();
    let mut uri =
        format!("{}?namespace={namespace}&cluster={name}&platform={}", path::PREFLIGHT, platforms.join(","));
    if let Some(version) = version {
        uri.push_str(&format!("&version={}", version.replace('+', "%2B")));
    }
    let answer = send(session, "look at what the cluster needs", Method::GET, &uri, &Value::Null).await?;
    serde_json::from_value(answer)
        .map_err(|error| Failure::new(Code::Other, format!("the server's answer cannot be read: {error}")))
}

async fn look(
    session: &Session,
    name: &str,
    version: Option<&str>,
    offline: bool,
) -> Result<(Answer, Vec<(Machine, Vec<Need>)>), Failure> {
    let namespace = session.namespace.as_str();
    let labels = format!("{}={name}", capi::label::CLUSTER_NAME);
    let machines = api::capi("Machine");
    let found = api::seen(&session.client, &machines, Some(namespace), Which::Labels(&labels)).await;
    let mut machines: Vec<Machine> = match found {
        Ok(seen) => seen.objects.iter().map(machine).collect(),
        Err(failure) if failure.code == Code::NotFound => Vec::new(),
        Err(failure) => return Err(failure),
    };
    let answer = ask(session, namespace, name, version, &machines).await?;
    if machines.is_empty() {
        machines.push(Machine { name: FUTURE.to_owned(), platform: String::new(), is_local: false });
    }
    let all = machines.into_iter().map(|machine| {
        let needs = needs(&machine, &answer, OWN, offline);
        (machine, needs)
    });
    let all = all.collect();
    Ok((answer, all))
}

/// Stands for machines of a cluster that has none yet.
const FUTURE: &str = "(machines to come)";

/// The whole version that is meant.
async fn version(session: &Session, cluster: &Object, to: &str) -> Result<String, Failure> {
    let distribution = Distribution::of(cluster.text("/spec/kubernetesVersion"));
    let stay = Some(distribution).filter(|_| !to.contains('+'));
    let version = full_version(Some(to), stay)?;
    match Wanted::parse(&version) {
        Some(Wanted::Alias { alias, distro }) => {
            versions::resolve(session, &alias, distro.unwrap_or(distribution.distro())).await
        }
        _ => Ok(version),
    }
}

pub(super) async fn run(session: &Session, arguments: &Preflight) -> Result<(), Failure> {
    let name = arguments.name.as_str();
    let cluster = gather::existing(session, &session.namespace, name).await?;
    if !cluster.has("/spec/rkeConfig") {
        return Err(Failure::invalid(format!("cluster {name} was imported: no plans are made for it")));
    }
    let to = match &arguments.to {
        Some(to) => Some(version(session, &cluster, to).await?),
        None => None,
    };
    let (answer, all) = look(session, name, to.as_deref(), arguments.offline).await?;
    let worst = worst(&all);
    match arguments.output {
        Format::Json | Format::Yaml => {
            session.out.document(&document(name, &answer, &all), arguments.output)?;
        }
        Format::Name => {
            let bad = all.iter().filter(|(_, needs)| needs.iter().any(|need| need.state == State::Missing));
            bad.for_each(|(machine, _)| session.out.line(&machine.name));
        }
        Format::Table | Format::Wide => {
            session.out.table(&table(&all, arguments.output == Format::Wide), arguments.output);
            for hint in hints(&all) {
                session.out.note(&format!("hint: {hint}"));
            }
        }
    }
    match worst {
        State::Missing => {
            let failure = Failure::new(
                Code::Blocked,
                format!("cluster {name}: machines cannot get all that {} needs", answer.version),
            );
            Err(failure)
        }
        State::Elsewhere | State::Ready => Ok(()),
    }
}

/// Says before an upgrade what its machines will not get. It does not hold the upgrade up: a server that does not know
/// the question, or a caller who may not ask, is no reason either.
pub(super) async fn warn(session: &Session, name: &str, version: &str) {
    let Ok((_, all)) = look(session, name, Some(version), false).await else { return };
    let mut said = BTreeSet::new();
    for (_, needs) in &all {
        for need in needs.iter().filter(|need| need.state == State::Missing) {
            if said.insert(&need.name) {
                session.out.note(&format!("warning: {}: {}", need.name, need.message));
                if let Some(hint) = &need.hint {
                    session.out.note(&format!("  hint: {hint}"));
                }
            }
        }
    }
    if !said.is_empty() {
        session
            .out
            .note(&format!("  remuda cluster preflight {name} --to {version} shows it machine by machine"));
    }
}
