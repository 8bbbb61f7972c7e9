//! Reads everything there is about a cluster.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, future::try_join_all, stream};
use jiff::Timestamp;
use kube::api::ApiResource;
use remuda_names::{
    capi,
    rancher::{condition, group, label, name},
};

use crate::{
    api::{self, Seen, Which},
    evidence::{Evidence, Subject},
    failure::{Code, Failure},
    hooks::JobLog,
    near,
    object::Object,
    session::Session,
    versions::{Ends, is_unknown},
};

/// Whether logs of Jobs are read as well, which takes a request for each machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Objects,
    Logs,
}

/// Requests that are under way at one time.
const PARALLEL: usize = 8;

/// Reads what belongs to a cluster. A cluster that does not exist has no evidence.
pub(crate) async fn cluster(
    session: &Session,
    namespace: &str,
    name: &str,
    depth: Depth,
) -> Result<Evidence, Failure> {
    let (one, other) = (api::provisioning_clusters(), api::capi("Cluster"));
    let cluster = api::get(&session.client, &one, Some(namespace), name);
    let capi = api::get(&session.client, &other, Some(namespace), name);
    let (cluster, capi) = futures::future::join(cluster, capi).await;
    let mut evidence = Evidence { subject: Subject::Cluster(name.to_owned()), ..Evidence::default() };
    let (cluster, capi) = (readable(cluster, &mut evidence)?, readable(capi, &mut evidence)?);
    if cluster.is_none() && capi.is_none() {
        return Ok(evidence);
    }
    let labels = format!("{}={name}", capi::label::CLUSTER_NAME);
    let rancher = format!("{}={name}", label::CLUSTER_NAME);
    // Waiting looks often, and at what went wrong only.
    let events = if depth == Depth::Logs { Which::All } else { Which::Fields("type=Warning") };
    let all: &[Wanted<'_>] = &[
        (api::capi("MachineDeployment"), Some(namespace), Which::Labels(&labels)),
        (api::capi("MachineSet"), Some(namespace), Which::Labels(&labels)),
        (api::capi("Machine"), Some(namespace), Which::Labels(&labels)),
        (api::rke("RKEBootstrap"), Some(namespace), Which::Labels(&labels)),
        (api::rke("CustomMachine"), Some(namespace), Which::Labels(&labels)),
        (api::core("Secret", "secrets"), Some(namespace), Which::Labels(&rancher)),
        (api::jobs(), Some(namespace), Which::Labels(label::INFRA_MACHINE_KIND)),
        (api::management("NodeDriver"), None, Which::All),
        (api::management("Setting"), None, Which::All),
        (api::core("Event", "events"), Some(namespace), events),
    ];
    lists(session, all, &mut evidence).await?;
    let (one, other) = (api::rke("RKEControlPlane"), api::rke("RKECluster"));
    let control_plane = api::get(&session.client, &one, Some(namespace), name);
    let infrastructure = api::get(&session.client, &other, Some(namespace), name);
    let (control_plane, infrastructure) = futures::future::join(control_plane, infrastructure).await;
    let control_plane = readable(control_plane, &mut evidence)?;
    let infrastructure = readable(infrastructure, &mut evidence)?;
    for object in [cluster, capi, control_plane, infrastructure].into_iter().flatten() {
        evidence.add(object);
    }
    let managed = evidence.cluster.as_ref().map(|cluster| cluster.text("/status/clusterName").to_owned());
    if let Some(managed) = managed.filter(|managed| !managed.is_empty()) {
        let managed = api::get(&session.client, &api::management("Cluster"), None, &managed).await;
        readable(managed, &mut evidence)?.into_iter().for_each(|object| evidence.add(object));
    }
    servers(session, Some(namespace), Which::Labels(&labels), &mut evidence).await?;
    pools(session, namespace, &mut evidence).await?;
    if depth == Depth::Logs {
        logs(session, namespace, &mut evidence).await?;
        hosts(session, &mut evidence);
        let version = evidence.cluster.as_ref().map(|cluster| cluster.text("/spec/kubernetesVersion"));
        let version = version.unwrap_or_default();
        let ends = Ends::of(&session.client, [version]).await;
        evidence.end_of_life = ends.ended(version, Timestamp::now());
        if evidence.plans.iter().any(|plan| plan.failed) {
            evidence.unknown_release = is_unknown(&session.client, version).await;
        }
    }
    reach(session, &mut evidence).await;
    narrow(&mut evidence);
    Ok(evidence)
}

/// Whether a cluster that was connected is so now. What is stored of it is some time old right after the server has
/// started: agents are on their way back then.
async fn reach(session: &Session, evidence: &mut Evidence) {
    let connected = |cluster: &&Object| cluster.is(condition::CONNECTED) && cluster.name() != name::LOCAL;
    let Some(id) = evidence.management.as_ref().filter(connected).map(|cluster| cluster.name().to_owned())
    else {
        return;
    };
    evidence.unreachable = api::unreachable(&session.client, &id).await;
}

/// What was read; what may not be read is noted, and nothing.
fn readable(
    read: Result<Option<Object>, Failure>,
    evidence: &mut Evidence,
) -> Result<Option<Object>, Failure> {
    match read {
        Ok(object) => Ok(object),
        Err(failure) => evidence.note_denied(failure).map(|()| None),
    }
}

/// A list that is asked for.
type Wanted<'a> = (ApiResource, Option<&'a str>, Which<'a>);

/// Reads lists, and notes which may not be read.
async fn lists(session: &Session, wanted: &[Wanted<'_>], evidence: &mut Evidence) -> Result<(), Failure> {
    let lists = wanted.iter().map(|(resource, namespace, which)| list(session, resource, *namespace, *which));
    for list in try_join_all(lists).await? {
        match list {
            Ok(objects) => objects.into_iter().for_each(|object| evidence.add(object)),
            Err(refused) => evidence.note_denied(refused)?,
        }
    }
    Ok(())
}

/// Objects of a kind as far as they are visible, or the refusal.
async fn list(
    session: &Session,
    resource: &ApiResource,
    namespace: Option<&str>,
    which: Which<'_>,
) -> Result<Result<Vec<Object>, Failure>, Failure> {
    match api::seen(&session.client, resource, namespace, which).await {
        Ok(seen) => Ok(Ok(seen.objects)),
        Err(failure) if failure.code == Code::Forbidden => Ok(Err(failure)),
        Err(failure) if failure.code == Code::NotFound => Ok(Ok(Vec::new())),
        Err(failure) => Err(failure),
    }
}

/// Machines of drivers, of every kind the cluster has or wants.
async fn servers(
    session: &Session,
    namespace: Option<&str>,
    which: Which<'_>,
    evidence: &mut Evidence,
) -> Result<(), Failure> {
    let here = evidence
        .machines
        .iter()
        .filter(|machine| machine.text("/spec/infrastructureRef/apiGroup") == group::MACHINE);
    let here = here.map(|machine| machine.text("/spec/infrastructureRef/kind").to_owned());
    let wanted = evidence.pools().filter_map(|pool| {
        pool.driver()?;
        Some(format!("{}Machine", pool.config_kind().strip_suffix("Config")?))
    });
    let kinds: BTreeSet<String> = here.chain(wanted).filter(|kind| is_kind(kind)).collect();
    for kind in kinds {
        let resource = api::driver(group::MACHINE, &kind);
        lists(session, &[(resource, namespace, which)], evidence).await?;
    }
    Ok(())
}

/// Kinds become parts of paths.
fn is_kind(kind: &str) -> bool {
    !kind.is_empty() && kind.len() <= 63 && kind.chars().all(|letter| letter.is_ascii_alphanumeric())
}

/// What pools refer to.
async fn pools(session: &Session, namespace: &str, evidence: &mut Evidence) -> Result<(), Failure> {
    let mut configs = BTreeSet::new();
    let mut credentials = BTreeSet::new();
    for pool in evidence.pools() {
        if pool.driver().is_some() && is_kind(pool.config_kind()) {
            configs.insert((pool.config_kind().to_owned(), pool.config_name().to_owned()));
        }
        credentials.insert(pool.credential().to_owned());
    }
    if let Some(cluster) = &evidence.cluster {
        credentials.insert(cluster.text("/spec/cloudCredentialSecretName").to_owned());
    }
    for (kind, name) in configs.iter().filter(|(_, name)| api::check_name(name).is_ok()) {
        let resource = api::driver(group::MACHINE_CONFIG, kind);
        let config = api::get(&session.client, &resource, Some(namespace), name).await;
        readable(config, evidence)?.into_iter().for_each(|object| evidence.add(object));
    }
    for credential in credentials.iter().filter(|credential| !credential.is_empty()) {
        let (namespace, secret) = match credential.split_once(':') {
            Some((name::GLOBAL_DATA, secret)) => (name::GLOBAL_DATA, secret),
            _ => (namespace, credential.as_str()),
        };
        let secrets = api::core("Secret", "secrets");
        let found = match api::check_name(secret) {
            Ok(()) => api::get(&session.client, &secrets, Some(namespace), secret).await,
            Err(_) => Ok(None),
        };
        match found {
            Ok(Some(_)) => {}
            Ok(None) => {
                evidence.missing_secrets.insert(credential.clone());
            }
            Err(failure) if failure.code == Code::Forbidden => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// The end of a log is kept in memory, no more.
const LOG_BYTES: usize = 64 * 1024;

async fn logs(session: &Session, namespace: &str, evidence: &mut Evidence) -> Result<(), Failure> {
    // Only of machines whose server is not there yet or is going: of the others nobody asks.
    let unfinished = evidence
        .machines
        .iter()
        .filter(|machine| machine.is_deleting() || machine.text("/status/nodeRef/name").is_empty());
    let names: Vec<String> = unfinished.map(|machine| machine.name().to_owned()).take(50).collect();
    let read = stream::iter(names).map(|name| async move {
        let log = session.hooks.logs.read(&session.client, namespace, &name).await;
        (name, log)
    });
    let logs: Vec<(String, Result<Option<JobLog>, Failure>)> =
        read.buffer_unordered(PARALLEL).collect().await;
    for (name, log) in logs {
        match log {
            Ok(Some(log)) => {
                evidence.logs.insert(name, JobLog { create: end(log.create), remove: end(log.remove) });
            }
            Ok(None) => {}
            Err(failure) => evidence.note_denied(failure)?,
        }
    }
    Ok(())
}

fn end(log: String) -> String {
    let start = log.len().saturating_sub(LOG_BYTES);
    match (start..=log.len()).find(|start| log.is_char_boundary(*start)) {
        Some(start) if start > 0 => log[start..].to_owned(),
        _ => log,
    }
}

/// Looks at machines of this host: that one has died is seen here before it is missed.
fn hosts(session: &Session, evidence: &mut Evidence) {
    let mut found = BTreeMap::new();
    for machine in evidence.machines.iter().filter(|machine| !machine.is_deleting()) {
        let Some(server) = evidence.server(machine) else { continue };
        let driver = server.kind().strip_suffix("Machine").unwrap_or_default().to_lowercase();
        let shell = session.hooks.shells.iter().find(|shell| shell.serves(&driver));
        let state = shell.and_then(|shell| shell.host_state(machine.name(), session.data_dir.as_deref()));
        found.extend(state.map(|state| (machine.name().to_owned(), state)));
    }
    evidence.hosts = found;
}

/// Jobs and events are read for the whole namespace; others' are left out.
fn narrow(evidence: &mut Evidence) {
    let names: BTreeSet<String> =
        evidence.machines.iter().chain(&evidence.servers).map(|object| object.name().to_owned()).collect();
    evidence.jobs.retain(|job| {
        [label::CAPI_MACHINE_NAME, label::INFRA_MACHINE_NAME].iter().any(|key| names.contains(job.label(key)))
    });
    let cluster = evidence.name().to_owned();
    let prefix = format!("{cluster}-");
    evidence.events.retain(|event| {
        let about = event.text("/involvedObject/name");
        about == cluster || names.contains(about) || about.starts_with(&prefix)
    });
}

/// Reads what belongs to a machine's cluster.
pub(crate) async fn machine(
    session: &Session,
    namespace: &str,
    name: &str,
    depth: Depth,
) -> Result<Option<Evidence>, Failure> {
    let Some(machine) = api::get(&session.client, &api::capi("Machine"), Some(namespace), name).await? else {
        return Ok(None);
    };
    let owner = match machine.text("/spec/clusterName") {
        "" => machine.label(capi::label::CLUSTER_NAME),
        owner => owner,
    };
    let mut evidence = match owner {
        "" => Evidence::default(),
        owner => cluster(session, namespace, owner, depth).await?,
    };
    if evidence.machine(name).is_none() {
        evidence.add(machine);
    }
    evidence.subject = Subject::Machine(name.to_owned());
    Ok(Some(evidence))
}

/// Machines of a namespace, or of all, with what their own state is read from; and why there may be others.
pub(crate) async fn all_machines(
    session: &Session,
    namespace: Option<&str>,
) -> Result<(Evidence, Option<Failure>), Failure> {
    let mut evidence = Evidence::default();
    let machines = api::seen(&session.client, &api::capi("Machine"), namespace, Which::All).await;
    let machines = match machines {
        Err(failure) if failure.code == Code::NotFound => Seen { objects: Vec::new(), withheld: None },
        machines => machines?,
    };
    machines.objects.into_iter().for_each(|machine| evidence.add(machine));
    let all: &[Wanted<'_>] = &[
        (api::rke("RKEBootstrap"), namespace, Which::All),
        (api::rke("CustomMachine"), namespace, Which::All),
        (api::core("Secret", "secrets"), namespace, Which::Labels(label::MACHINE_NAME)),
        (api::jobs(), namespace, Which::Labels(label::INFRA_MACHINE_KIND)),
        (api::management("NodeDriver"), None, Which::All),
        (api::management("Setting"), None, Which::All),
    ];
    lists(session, all, &mut evidence).await?;
    servers(session, namespace, Which::All, &mut evidence).await?;
    Ok((evidence, machines.withheld))
}

/// The cluster, or a failure that names similar ones.
pub(crate) async fn existing(session: &Session, namespace: &str, name: &str) -> Result<Object, Failure> {
    let clusters = api::provisioning_clusters();
    match api::get(&session.client, &clusters, Some(namespace), name).await {
        Ok(Some(cluster)) => Ok(cluster),
        Ok(None) => Err(no_such_cluster(session, namespace, name).await?),
        Err(refused) if refused.code == Code::Forbidden => {
            Err(unseen(session, &format!("cluster {name}"), name, refused).await)
        }
        Err(failure) => Err(failure),
    }
}

/// What to say about something that is not there, or is not for the caller: they are not told which.
pub(crate) async fn unseen(session: &Session, what: &str, name: &str, refused: Failure) -> Failure {
    let namespace = session.namespace.as_str();
    let message = format!("you may not see {what} in namespace {namespace}, if there is one");
    let clusters = served_clusters(session, None).await.map(|seen| seen.objects).unwrap_or_default();
    let other = clusters.iter().find(|cluster| cluster.name() == name && cluster.namespace() != namespace);
    let hint = match (other, clusters.is_empty()) {
        (Some(other), _) => format!("there is one in namespace {0}: add -n {0}", other.namespace()),
        (None, true) => NO_ROLE.to_owned(),
        (None, false) => {
            let here = clusters.iter().filter(|cluster| cluster.namespace() == namespace).map(Object::name);
            near::hint(name, here, "remuda cluster list -A")
        }
    };
    Failure { message, ..refused }.hint(hint)
}

/// What a user can do who sees no cluster.
pub(crate) const NO_ROLE: &str = "ask the owner of a cluster, or an administrator, for a role in it: remuda user grant \
                                  USER --cluster NAME --role cluster-member; or make one: remuda cluster create";

/// What to say about a cluster that is not there.
pub(crate) async fn no_such_cluster(
    session: &Session,
    namespace: &str,
    name: &str,
) -> Result<Failure, Failure> {
    let absent = absent_cluster(session, namespace, name).await?;
    let list = || near::hint(name, std::iter::empty(), "remuda cluster list -A");
    Ok(Failure::new(Code::NotFound, absent.message).hint(absent.meant.unwrap_or_else(list)))
}

/// A cluster that is not there, and which one was probably meant.
pub(crate) struct Absent {
    pub(crate) message: String,
    pub(crate) meant: Option<String>,
}

pub(crate) async fn absent_cluster(
    session: &Session,
    namespace: &str,
    name: &str,
) -> Result<Absent, Failure> {
    let all = served_clusters(session, None).await?.objects;
    let message = format!("there is no cluster {name} in namespace {namespace}");
    let meant = match all.iter().find(|cluster| cluster.name() == name) {
        Some(other) => Some(format!("there is one in namespace {0}: add -n {0}", other.namespace())),
        None => {
            let here = all.iter().filter(|cluster| cluster.namespace() == namespace).map(Object::name);
            near::meant(name, here)
        }
    };
    Ok(Absent { message, meant })
}

/// Provisioning Clusters the caller sees; a server that does not know the kind is not ours.
pub(crate) async fn served_clusters(session: &Session, namespace: Option<&str>) -> Result<Seen, Failure> {
    match api::seen(&session.client, &api::provisioning_clusters(), namespace, Which::All).await {
        Err(failure) if failure.code == Code::NotFound => {
            let failure =
                Failure::new(Code::NotFound, "this server knows no clusters: it is no Remuda server");
            Err(failure.hint(
                "is the kubeconfig that of a cluster rather than that of the server? name the server's with \
                 --kubeconfig, for example admin.kubeconfig in its data directory",
            ))
        }
        result => result,
    }
}
