//! `remuda cluster describe`.

use jiff::{Timestamp, tz::TimeZone};
use remuda_names::rancher::condition;

use super::{list, protect};
use crate::{
    age,
    evidence::Evidence,
    failure::Failure,
    gather::{self, Depth},
    machine,
    object::Object,
    output::paint,
    session::Session,
    table::{Cell, Table, Tone, shown},
    why,
};

pub(super) async fn run(session: &Session, name: &str) -> Result<(), Failure> {
    gather::existing(session, &session.namespace, name).await?;
    let evidence = gather::cluster(session, &session.namespace, name, Depth::Logs).await?;
    let now = Timestamp::now();
    session.out.text(&render(&evidence, now));
    let finding = why::decide(&evidence, now);
    if !finding.is_ready() {
        session.out.text(&format!("\n{}", finding.render(now, &TimeZone::system())));
    }
    Ok(())
}

fn render(evidence: &Evidence, now: Timestamp) -> String {
    let Some(cluster) = &evidence.cluster else { return String::new() };
    let managed = evidence.management.as_ref();
    let (state, ..) = list::state(cluster, managed);
    let mut out = String::new();
    let connected = managed.and_then(|managed| managed.condition(condition::CONNECTED));
    let fields = [
        ("Name", cluster.name().to_owned()),
        ("Namespace", cluster.namespace().to_owned()),
        ("State", state.to_owned()),
        ("Version", cluster.text("/spec/kubernetesVersion").to_owned()),
        ("Provider", list::provider(cluster)),
        ("Id", cluster.text("/status/clusterName").to_owned()),
        ("Kubeconfig", cluster.text("/status/clientSecretName").to_owned()),
        ("Connected", connected.map(|condition| condition.status.to_owned()).unwrap_or_default()),
        ("Protected", protect::shown(cluster)),
        ("Created", age::ago(cluster.created(), now) + " ago"),
    ];
    for (name, text) in fields {
        out.push_str(&format!("{name:<12} {}\n", shown(&text)));
    }
    let mut pools = Table::new(["POOL", "ROLES", "MACHINES", "CONFIGURATION"]);
    for pool in evidence.pools() {
        let mine = evidence.machines.iter().filter(|machine| pool.owns(machine));
        let nodes = mine.filter(|machine| !machine.text("/status/nodeRef/name").is_empty()).count();
        pools.row(vec![
            pool.name().into(),
            pool.roles().to_string().into(),
            format!("{nodes}/{}", pool.wanted()).into(),
            format!("{} {}", pool.config_kind(), pool.config_name()).into(),
        ]);
    }
    if evidence.pools().next().is_some() {
        section(&mut out, "Pools", &pools.render("  "));
    }
    if !evidence.machines.is_empty() {
        section(&mut out, "Machines", &machine::table(evidence, now).render("  "));
    }
    section(&mut out, "Conditions", &conditions(cluster, now).render("  "));
    let events = events(evidence, now);
    if let Some(events) = events {
        section(&mut out, "Events", &events.render("  "));
    }
    out
}

fn section(out: &mut String, name: &str, text: &str) {
    out.push_str(&format!("\n{}\n{text}", paint::strong(name)));
}

pub(crate) fn conditions(object: &Object, now: Timestamp) -> Table {
    let mut table = Table::new(["CONDITION", "STATUS", "SINCE", "MESSAGE"]);
    for condition in object.conditions() {
        let tone = match condition.status {
            "True" => Tone::Good,
            "False" => Tone::Bad,
            _ => Tone::Busy,
        };
        let message = match (condition.reason, condition.message) {
            (reason, "") => reason.to_owned(),
            (_, message) => message.to_owned(),
        };
        // What is true of these is no good news.
        let negative = [
            "Stalled",
            "Reconciling",
            "Deleting",
            "Paused",
            condition::SCALING_UP,
            condition::SCALING_DOWN,
            condition::ROLLING_OUT,
        ];
        let tone = if negative.contains(&condition.kind) { Tone::Plain } else { tone };
        table.row(vec![
            condition.kind.into(),
            Cell::toned(condition.status, tone),
            age::ago(condition.since, now).into(),
            message.into(),
        ]);
    }
    table
}

/// The last few events of the cluster, the newest last.
fn events(evidence: &Evidence, now: Timestamp) -> Option<Table> {
    const SHOWN: usize = 12;
    let time = |event: &Object| event.time("/lastTimestamp").or(event.time("/eventTime")).or(event.created());
    let mut events: Vec<&Object> = evidence.events.iter().collect();
    events.sort_by_key(|event| time(event));
    if events.is_empty() {
        return None;
    }
    let mut table = Table::new(["AGE", "TYPE", "OBJECT", "REASON", "MESSAGE"]);
    for event in &events[events.len().saturating_sub(SHOWN)..] {
        let kind = event.text("/type");
        let tone = if kind == "Warning" { Tone::Bad } else { Tone::Plain };
        let object = format!("{} {}", event.text("/involvedObject/kind"), event.text("/involvedObject/name"));
        table.row(vec![
            age::ago(time(event), now).into(),
            Cell::toned(kind, tone),
            object.into(),
            event.text("/reason").into(),
            event.text("/message").into(),
        ]);
    }
    Some(table)
}
