//! `remuda snapshot`: snapshots of clusters, and clusters from snapshots.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use remuda_names::{
    provisioning::annotation::ROTATE_KEYS_WITHOUT_SNAPSHOT,
    rancher::{annotation, condition, label},
};
use remuda_snapshot::Report;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    age,
    api::{self, Which},
    cluster::Wait,
    confirm::confirm,
    failure::{Code, Failure},
    gather,
    object::Object,
    output::{Format, list as objects},
    progress::Goal,
    session::{Global, Session},
    table::{Cell, Table, Tone},
};

#[derive(Args, Debug)]
pub struct Snapshot {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: SnapshotCommand,
}

#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Take a snapshot of a cluster on all of its servers with etcd
    #[command(after_help = "Examples:
  remuda snapshot create demo --wait")]
    Create {
        /// Name of the cluster
        #[arg(value_name = "CLUSTER")]
        cluster: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// Snapshots, the newest first
    #[command(after_help = "Examples:
  remuda snapshot list
  remuda snapshot list demo -o json")]
    List {
        /// Name of a cluster [default: all]
        #[arg(value_name = "CLUSTER")]
        cluster: Option<String>,
        /// How to print it
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Say what is known of a snapshot, and what was found when it was read
    #[command(after_help = "Examples:
  remuda snapshot describe demo-local-on-demand-demo-cp-1700000000-abcdef")]
    Describe {
        /// Name of the snapshot
        #[arg(value_name = "SNAPSHOT")]
        name: String,
        /// How to print it
        #[arg(long, short, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Make a cluster what it was when a snapshot was taken
    #[command(
        after_help = "The file is read on the server that holds it before anything is touched. Everything the cluster
was told since then is lost; its machines stay.

Examples:
  remuda snapshot restore demo demo-local-on-demand-demo-cp-1700000000-abcdef --wait
  remuda snapshot restore demo SNAPSHOT --mode kubernetes-version --yes"
    )]
    Restore(Restore),
    /// Delete snapshots and their files
    #[command(after_help = "Examples:
  remuda snapshot delete demo-local-on-demand-demo-cp-1700000000-abcdef")]
    Delete {
        /// Names of snapshots
        #[arg(required = true, value_name = "SNAPSHOT")]
        names: Vec<String>,
        /// Without asking
        #[arg(long, short)]
        yes: bool,
        /// Wait until the files are gone
        #[arg(long)]
        wait: bool,
        /// Give up waiting after this time
        #[arg(long, value_name = "TIME", default_value = "15m", value_parser = age::parse)]
        timeout: Duration,
    },
}

#[derive(Args, Debug)]
pub struct Restore {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,

    /// Name of the snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub name: String,

    /// What is restored beside the data
    #[arg(long, value_enum, default_value_t = Mode::None)]
    pub mode: Mode,

    /// Without asking
    #[arg(long, short)]
    pub yes: bool,

    #[command(flatten)]
    pub wait: Wait,
}

/// What of the cluster's specification returns as well.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The data alone
    None,
    /// The version of Kubernetes too
    KubernetesVersion,
    /// The version and the configuration too
    All,
}

impl Mode {
    fn field(self) -> &'static str {
        match self {
            Mode::None => "none",
            Mode::KubernetesVersion => "kubernetesVersion",
            Mode::All => "all",
        }
    }
}

pub(crate) async fn run(session: &Session, command: SnapshotCommand) -> Result<(), Failure> {
    match command {
        SnapshotCommand::Create { cluster, wait } => create(session, &cluster, wait).await,
        SnapshotCommand::List { cluster, output } => list(session, cluster.as_deref(), output).await,
        SnapshotCommand::Describe { name, output } => describe(session, &name, output).await,
        SnapshotCommand::Restore(arguments) => restore(session, arguments).await,
        SnapshotCommand::Delete { names, yes, wait, timeout } => {
            delete(session, &names, yes, wait.then_some(timeout)).await
        }
    }
}

/// Writes the next generation of an operation into a cluster, and says which one it is.
async fn ask(session: &Session, cluster: &str, field: &str, value: Value) -> Result<i64, Failure> {
    ask_and(session, cluster, field, value, |_, _| {}).await
}

/// The same, with something else that is said in the same write.
async fn ask_and(
    session: &Session,
    cluster: &str,
    field: &str,
    mut value: Value,
    mut also: impl FnMut(&mut Object, i64),
) -> Result<i64, Failure> {
    let namespace = session.namespace.as_str();
    gather::existing(session, namespace, cluster).await?;
    let mut generation = 0;
    let change = |object: &mut Object| {
        let config = &mut object.0["spec"]["rkeConfig"];
        if !config.is_object() {
            return Err(Failure::invalid(format!(
                "cluster {cluster} was not made here: it has no etcd of ours"
            )));
        }
        generation = config[field]["generation"].as_i64().unwrap_or_default() + 1;
        value["generation"] = generation.into();
        config[field] = value.clone();
        also(object, generation);
        Ok(true)
    };
    let clusters = api::provisioning_clusters();
    api::change(&session.client, &clusters, Some(namespace), cluster, false, change).await?;
    Ok(generation)
}

/// Waits until an operation of the control plane has ended.
async fn ended(
    session: &Session,
    cluster: &str,
    (field, condition): (&str, &str),
    generation: i64,
    timeout: Duration,
) -> Result<(), Failure> {
    let (deadline, mut said) = (Instant::now() + timeout, String::new());
    let kind = api::rke("RKEControlPlane");
    loop {
        let found = api::get(&session.client, &kind, Some(&session.namespace), cluster).await?;
        if let Some(found) = found {
            let own = found.number(&format!("/status/{field}/generation")) == Some(generation);
            let phase = found.text(&format!("/status/{field}Phase")).to_owned();
            match phase.as_str() {
                "Finished" | "Done" if own => return Ok(()),
                "Failed" if own => {
                    let told = found.condition(condition).map(|told| told.message.to_owned());
                    let failure = Failure::new(Code::Other, told.unwrap_or_else(|| "it failed".to_owned()));
                    return Err(failure.hint(format!("remuda why {cluster} says how the cluster is")));
                }
                _ if own && phase != said => {
                    session.out.note(&format!("cluster {cluster}: {phase}"));
                    said = phase;
                }
                _ => {}
            }
        }
        if Instant::now() > deadline {
            let failure = Failure::new(Code::TimedOut, format!("cluster {cluster}: not done in time"));
            return Err(failure.hint(format!("remuda why {cluster}")));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn create(session: &Session, cluster: &str, wait: Wait) -> Result<(), Failure> {
    let before = of(session, Some(cluster)).await?;
    let asked = Timestamp::now();
    let generation = ask(session, cluster, "etcdSnapshotCreate", json!({})).await?;
    session.out.line(&format!("cluster {cluster}: a snapshot was asked for"));
    if !wait.wait {
        return Ok(());
    }
    let what = ("etcdSnapshotCreate", condition::SNAPSHOT_CREATED);
    ended(session, cluster, what, generation, wait.timeout).await?;
    uploaded(session, cluster, &before, asked).await?;
    session.out.line(&format!("cluster {cluster}: the snapshot was taken"));
    Ok(())
}

/// Waits until the copies in S3 are listed, if there are to be any. One that is not there is a failure: a user who
/// relies
/// on it has no other when the servers are lost.
async fn uploaded(
    session: &Session,
    cluster: &str,
    before: &[Object],
    asked: Timestamp,
) -> Result<(), Failure> {
    const LISTED: Duration = Duration::from_secs(30);
    /// Clocks of nodes differ by about so much.
    const SKEW: Duration = Duration::from_secs(5);
    let clusters = api::provisioning_clusters();
    let found = api::get(&session.client, &clusters, Some(&session.namespace), cluster).await?;
    if !found.is_some_and(|found| found.0["spec"]["rkeConfig"]["etcd"]["s3"].is_object()) {
        return Ok(());
    }
    // After a restore, copies of before are listed anew.
    let file = |one: &Object| one.text("/snapshotFile/name").to_owned();
    let is_since = |one: &Object| {
        let created = one.time("/snapshotFile/createdAt");
        created.is_none_or(|created| created >= asked - SKEW)
    };
    let is_new = |one: &&Object| is_since(one) && !before.iter().any(|old| file(old) == file(one));
    let deadline = Instant::now() + LISTED;
    loop {
        let all = of(session, Some(cluster)).await?;
        let (new, here): (Vec<&Object>, Vec<&Object>) =
            all.iter().filter(is_new).partition(|one| storage(one) == "s3");
        if let Some(failed) = new.iter().find(|one| one.text("/snapshotFile/status") == "failed") {
            let why = failed.text("/snapshotFile/message");
            let told = format!("cluster {cluster}: the snapshot was taken, and is not in S3: {why}");
            return Err(Failure::new(Code::Other, told));
        }
        // One for each server.
        if !new.is_empty() && new.len() >= here.len() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let told = format!("cluster {cluster}: the snapshot was taken, and is not listed in S3 yet");
            return Err(Failure::new(Code::TimedOut, told).hint(format!("remuda snapshot list {cluster}")));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Where a snapshot is: `local` or `s3`.
fn storage(snapshot: &Object) -> &str {
    snapshot.annotation(annotation::SNAPSHOT_STORAGE)
}

/// `remuda cluster rotate-certificates`.
pub(crate) async fn rotate_certificates(
    session: &Session,
    cluster: &str,
    services: &[String],
    wait: Wait,
) -> Result<(), Failure> {
    let generation = ask(session, cluster, "rotateCertificates", json!({"services": services})).await?;
    session.out.line(&format!("cluster {cluster}: its certificates are being rotated"));
    if !wait.wait {
        return Ok(());
    }
    let deadline = Instant::now() + wait.timeout;
    let kind = api::rke("RKEControlPlane");
    loop {
        let found = api::get(&session.client, &kind, Some(&session.namespace), cluster).await?;
        let at = found.and_then(|found| found.number("/status/certificateRotationGeneration"));
        if at == Some(generation) {
            break;
        }
        if Instant::now() > deadline {
            let failure = Failure::new(Code::TimedOut, format!("cluster {cluster}: not done in time"));
            return Err(failure.hint(format!("remuda why {cluster}")));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    wait.until(session, cluster, Goal::Ready).await
}

/// `remuda cluster rotate-encryption-keys`.
pub(crate) async fn rotate_encryption_keys(
    session: &Session,
    cluster: &str,
    no_snapshot: bool,
    yes: bool,
    wait: Wait,
) -> Result<(), Failure> {
    gather::existing(session, &session.namespace, cluster).await?;
    let first = match no_snapshot {
        false => format!("takes a snapshot of cluster {cluster}"),
        true => format!("takes NO snapshot of cluster {cluster}, so that there may be no way back"),
    };
    let doing = format!(
        "{first}, changes the key of its Secrets and restarts all its servers three times, one after the other; its \
         machines are not changed meanwhile"
    );
    confirm(&doing, yes)?;
    let declined = |object: &mut Object, generation: i64| {
        if no_snapshot {
            let annotations = &mut object.0["metadata"]["annotations"];
            annotations[ROTATE_KEYS_WITHOUT_SNAPSHOT] = generation.to_string().into();
        }
    };
    let generation = ask_and(session, cluster, "rotateEncryptionKeys", json!({}), declined).await?;
    session.out.line(&format!("cluster {cluster}: the key of its Secrets is being rotated"));
    if !wait.wait {
        return Ok(());
    }
    let what = ("rotateEncryptionKeys", condition::ENCRYPTION_KEYS_ROTATED);
    ended(session, cluster, what, generation, wait.timeout).await?;
    wait.until(session, cluster, Goal::Ready).await
}

async fn of(session: &Session, cluster: Option<&str>) -> Result<Vec<Object>, Failure> {
    let only = cluster.map(|cluster| format!("{}={cluster}", label::CLUSTER_NAME));
    let which = only.as_deref().map_or(Which::All, Which::Labels);
    let kind = api::rke("ETCDSnapshot");
    let mut found = api::list(&session.client, &kind, Some(&session.namespace), which).await?;
    found.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.time("/snapshotFile/createdAt")));
    Ok(found)
}

/// What was found when the file was read.
fn report(snapshot: &Object) -> Option<Report> {
    serde_json::from_str(snapshot.annotation(annotation::SNAPSHOT_VERIFICATION)).ok()
}

fn state(snapshot: &Object) -> Cell {
    match (snapshot.is_deleting(), snapshot.text("/snapshotFile/status"), report(snapshot)) {
        (true, ..) => Cell::toned("deleting", Tone::Busy),
        (_, "failed", _) => Cell::toned("failed", Tone::Bad),
        (_, _, Some(report)) if report.is_proven() => Cell::toned("verified", Tone::Good),
        (_, _, Some(report)) => Cell::toned(report.code, Tone::Bad),
        _ => Cell::from("taken"),
    }
}

async fn list(session: &Session, cluster: Option<&str>, output: Format) -> Result<(), Failure> {
    if let Some(cluster) = cluster {
        gather::existing(session, &session.namespace, cluster).await?;
    }
    let found = of(session, cluster).await?;
    match output {
        Format::Json | Format::Yaml => {
            session.out.document(&objects(found.into_iter().map(|one| one.0).collect()), output)
        }
        Format::Name => {
            found.iter().for_each(|one| session.out.line(one.name()));
            Ok(())
        }
        Format::Table | Format::Wide => {
            session.out.table(&table(&found, Timestamp::now()), output);
            Ok(())
        }
    }
}

fn table(found: &[Object], now: Timestamp) -> Table {
    // Files in a store have its name in place of a node's.
    let mut table = Table::new(["NAME", "CLUSTER", "NODE", "STATE", "REVISION", "SIZE", "AGE"]);
    for one in found {
        let verified = report(one).and_then(|report| report.verified);
        table.row(vec![
            Cell::from(one.name()),
            Cell::from(one.text("/spec/clusterName")),
            Cell::from(one.text("/snapshotFile/nodeName")),
            state(one),
            Cell::from(verified.map_or_else(String::new, |verified| verified.revision.to_string())),
            Cell::from(one.number("/snapshotFile/size").unwrap_or_default().to_string()),
            Cell::from(age::ago(one.time("/snapshotFile/createdAt"), now)),
        ]);
    }
    table
}

async fn existing(session: &Session, name: &str) -> Result<Object, Failure> {
    let kind = api::rke("ETCDSnapshot");
    let found = api::get(&session.client, &kind, Some(&session.namespace), name).await?;
    found.ok_or_else(|| {
        let failure = Failure::new(Code::NotFound, format!("there is no snapshot {name}"));
        failure.hint("remuda snapshot list shows those there are")
    })
}

async fn describe(session: &Session, name: &str, output: Format) -> Result<(), Failure> {
    let snapshot = existing(session, name).await?;
    match output {
        Format::Json | Format::Yaml => return session.out.document(&snapshot.0, output),
        Format::Name => session.out.line(name),
        Format::Table | Format::Wide => {
            lines(&snapshot, Timestamp::now()).iter().for_each(|line| session.out.line(line));
        }
    }
    Ok(())
}

fn lines(snapshot: &Object, now: Timestamp) -> Vec<String> {
    let line = |name: &str, value: &str| format!("{name:10} {value}");
    let mut lines = vec![
        line("Snapshot", snapshot.name()),
        line("Cluster", snapshot.text("/spec/clusterName")),
        line("Taken", &format!("{} ago", age::ago(snapshot.time("/snapshotFile/createdAt"), now))),
        line("Node", snapshot.text("/snapshotFile/nodeName")),
        line("Location", snapshot.text("/snapshotFile/location")),
        line("Size", &snapshot.number("/snapshotFile/size").unwrap_or_default().to_string()),
        line("State", state(snapshot).text()),
        line("Modes", snapshot.annotation(annotation::SNAPSHOT_RESTORE_MODES)),
    ];
    let message = snapshot.text("/snapshotFile/message");
    if !message.is_empty() {
        lines.push(line("Error", message));
    }
    match report(snapshot) {
        Some(Report { verified: Some(verified), .. }) => {
            lines.push(line("Revision", &verified.revision.to_string()));
            lines.push(line("Keys", &verified.keys.to_string()));
            let objects = verified.objects.iter().map(|(kind, count)| format!("  {count:6} {kind}"));
            lines.extend(objects);
        }
        Some(report) => lines.push(line("Unproven", &report.message)),
        None => {}
    }
    lines
}

async fn restore(session: &Session, arguments: Restore) -> Result<(), Failure> {
    let Restore { cluster, name, mode, yes, wait } = arguments;
    gather::existing(session, &session.namespace, &cluster).await?;
    let snapshot = existing(session, &name).await?;
    let of = snapshot.text("/spec/clusterName");
    if of != cluster {
        return Err(Failure::invalid(format!("snapshot {name} is one of cluster {of}, not of {cluster}")));
    }
    confirm(&loses(&snapshot, &cluster, Timestamp::now()), yes)?;
    let value = json!({"name": name, "restoreRKEConfig": mode.field()});
    let generation = ask(session, &cluster, "etcdSnapshotRestore", value).await?;
    session.out.line(&format!("cluster {cluster}: snapshot {name} is being restored"));
    if !wait.wait {
        return Ok(());
    }
    let what = ("etcdSnapshotRestore", condition::SNAPSHOT_RESTORED);
    ended(session, &cluster, what, generation, wait.timeout).await?;
    wait.until(session, &cluster, Goal::Ready).await
}

/// What a restore costs.
fn loses(snapshot: &Object, cluster: &str, now: Timestamp) -> String {
    let taken = age::ago(snapshot.time("/snapshotFile/createdAt"), now);
    let at = report(snapshot).and_then(|report| report.verified);
    let at = at.map_or_else(String::new, |verified| format!(" at revision {}", verified.revision));
    format!(
        "makes cluster {cluster} what it was {taken} ago{at}: everything written to it since then is lost, and its \
         API is down meanwhile"
    )
}

async fn delete(
    session: &Session,
    names: &[String],
    yes: bool,
    wait: Option<Duration>,
) -> Result<(), Failure> {
    for name in names {
        existing(session, name).await?;
    }
    confirm(&format!("deletes {} with their files", crate::counted(names.len(), "snapshot")), yes)?;
    let kind = api::rke("ETCDSnapshot");
    for name in names {
        api::delete(&session.client, &kind, Some(&session.namespace), name, false).await?;
        session.out.line(&format!("snapshot {name} is being deleted"));
    }
    let Some(timeout) = wait else { return Ok(()) };
    let deadline = Instant::now() + timeout;
    for name in names {
        while api::get(&session.client, &kind, Some(&session.namespace), name).await?.is_some() {
            if Instant::now() > deadline {
                return Err(Failure::new(Code::TimedOut, format!("snapshot {name} is not gone in time")));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(verification: &Value) -> Object {
        Object(json!({
            "metadata": {"name": "s", "annotations": {annotation::SNAPSHOT_VERIFICATION: verification.to_string()}},
            "spec": {"clusterName": "demo"},
            "snapshotFile": {"name": "on-demand-a-1", "status": "successful", "size": 100,
                "createdAt": "2026-11-17T10:00:00Z"},
        }))
    }

    #[test]
    fn a_snapshot_says_what_was_found_in_it() {
        let now: Timestamp = "2026-11-17T10:05:00Z".parse().unwrap();
        let whole = json!({"file": "on-demand-a-1", "verified":
            {"revision": 7, "keys": 3, "size": 100, "objects": {"/registry/pods": 3}}});
        let proven = snapshot(&whole);
        assert_eq!(state(&proven).text(), "verified");
        assert!(lines(&proven, now).contains(&"       3 /registry/pods".to_owned()));
        let lost = loses(&proven, "demo", now);
        assert!(lost.starts_with("makes cluster demo what it was 5m ago at revision 7"), "{lost}");
        let damaged = snapshot(&json!({"file": "f", "code": "ChecksumMismatch", "message": "a byte"}));
        assert_eq!(state(&damaged).text(), "ChecksumMismatch");
        assert!(lines(&damaged, now).iter().any(|line| line.ends_with("a byte")));
    }
}
