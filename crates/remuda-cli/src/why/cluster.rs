//! Why a cluster is not ready.

use jiff::Timestamp;
use remuda_distro::{Distro, version};
use remuda_names::{
    annotation::PRESERVED_UNTIL,
    capi,
    machines::condition::POWERED,
    provisioning::condition::{CONFIGURATION_APPLIED, EXPIRING, HIBERNATED},
    rancher::{annotation, condition, group, reason::REGISTRATION_REFUSED},
    waiting,
};

use super::{Cause, Finding, State, diagnosis, machine, removal};
use crate::{
    evidence::{Evidence, Pool, Roles, kind},
    hooks::HostState,
    object::{Condition, Object},
    plan::Plan,
};

/// Seconds after which a step has taken longer than it ever should.
mod limit {
    /// Until somebody takes notice of a new cluster.
    pub(super) const NOTICED: i64 = 15;
    pub(super) const OBJECTS: i64 = 60;
    pub(super) const INFRASTRUCTURE: i64 = 60;
    pub(super) const AGENT: i64 = 180;
    pub(super) const MACHINES: i64 = 120;
}

pub(super) fn is_deleting(evidence: &Evidence) -> bool {
    [&evidence.cluster, &evidence.capi].into_iter().flatten().any(Object::is_deleting)
}

pub(super) fn decide(evidence: &Evidence, now: Timestamp) -> Finding {
    if evidence.cluster.is_none() && evidence.capi.is_none() {
        let summary = format!("there is no cluster {}", evidence.name());
        return Finding::blocked(Cause::ObjectsMissing, summary).brief("not there");
    }
    if is_deleting(evidence) {
        return removal::of_cluster(evidence, now);
    }
    // Nothing else is to be explained of machines that are stopped.
    if let Some(finding) = hibernation(evidence) {
        return ending(evidence, finding);
    }
    let Some(reason) = unsettled(evidence) else { return ready(evidence) };
    if let Some(gate) = gate(evidence, now).filter(|gate| gate.state == State::Blocked) {
        return gate;
    }
    let mut candidates: Vec<(u8, Finding)> = Vec::new();
    // One that is kept to be looked at was replaced: it holds up nothing.
    for machine in evidence.machines.iter().filter(|machine| !machine.has_annotation(PRESERVED_UNTIL)) {
        let finding = machine::of_machine(evidence, machine, now);
        if !finding.is_ready() {
            candidates.push((tier(evidence, machine), finding));
        }
    }
    let early = [gate(evidence, now), agent(evidence, now), lost_servers(evidence, now)];
    candidates.extend(early.into_iter().flatten().map(|finding| (0, finding)));
    let late = [pools(evidence, now), control_plane(evidence)];
    candidates.extend(late.into_iter().flatten().map(|finding| (LAST_TIER, finding)));
    let Some(first) = candidates.iter().min_by_key(|(tier, finding)| order(*tier, finding)) else {
        if let Some(finding) = unseen(evidence, &reason) {
            return finding;
        }
        let finding = Finding::waiting(Cause::Other, reason);
        return match &evidence.capi {
            Some(capi) if evidence.cluster.is_none() => {
                finding.about(capi).condition(capi, capi::condition::AVAILABLE)
            }
            _ => finding,
        };
    };
    let mut chosen = first.1.clone();
    let alike = candidates.iter().map(|(_, finding)| finding).filter(|finding| {
        finding.state == chosen.state && finding.cause == chosen.cause && finding.machine != chosen.machine
    });
    chosen.also = alike.filter_map(|finding| finding.machine.clone()).collect();
    chosen.also.sort();
    // What the control plane itself says is short and worth its line, whatever the cause.
    if let Some(said) = said_by_control_plane(evidence).filter(|said| !chosen.summary.contains(said.message))
    {
        let control_plane = evidence.control_plane.as_ref().map(Object::reference).unwrap_or_default();
        chosen = chosen.exhibit(format!("condition Ready of {control_plane}"), said.message);
    }
    maintained(evidence, rotation(evidence, edits(evidence, chosen)))
}

/// Nothing that may be read explains it, and something may not be read.
fn unseen(evidence: &Evidence, reason: &str) -> Option<Finding> {
    let telling = [kind::CAPI_CLUSTERS, kind::CONTROL_PLANES, kind::MACHINES, kind::MANAGEMENT_CLUSTERS];
    let denied = telling.iter().find_map(|kind| evidence.unreadable.get(*kind))?;
    let summary = format!("{reason}; what would tell why may not be read by you: you may not {denied}");
    let finding = Finding::blocked(Cause::NotAllowed, summary).brief("you may not see why");
    let finding = match &evidence.cluster {
        Some(cluster) => finding.about(cluster),
        None => finding,
    };
    Some(finding.until("the right to read it").next(format!(
        "ask an owner of the cluster, or an administrator, to look: remuda why {}",
        evidence.name()
    )))
}

/// After all machines.
const LAST_TIER: u8 = 9;

/// What will not mend itself is ordered by what causes what. What only takes time is ordered by what comes first:
/// later tiers wait for earlier ones, whatever they do meanwhile.
fn order(tier: u8, finding: &Finding) -> (State, u8, Cause, u8, Option<String>) {
    let machine = finding.machine.clone();
    match finding.state {
        State::Blocked => (finding.state, 0, finding.cause, tier, machine),
        _ => {
            let turn = if finding.cause == Cause::WaitingForTurn { LAST_TIER } else { tier };
            (finding.state, turn, finding.cause, tier, machine)
        }
    }
}

fn ready(evidence: &Evidence) -> Finding {
    let cluster = evidence.cluster.as_ref().or(evidence.capi.as_ref());
    let since = cluster.and_then(|cluster| cluster.condition(condition::READY)).and_then(|ready| ready.since);
    let mut finding =
        Finding::new(State::Ready, Cause::None, format!("cluster {} is ready", evidence.name()));
    finding = finding.brief("ready").since(since);
    if let Some(object) = paused(evidence) {
        finding = finding.exhibit(object.reference(), "is paused: changes have no effect");
    }
    for machine in evidence.machines.iter().filter(|machine| machine::away(machine).is_some()) {
        finding = finding
            .condition(machine, condition::AGENT_CONNECTED)
            .next(format!("changes do not reach machine {0}: remuda why {0}", machine.name()));
    }
    let finding = ending(evidence, hibernation_failed(evidence, finding));
    maintained(evidence, renewal(evidence, rotation(evidence, edits(evidence, finding))))
}

/// With its end, if it has one that is near.
fn ending(evidence: &Evidence, finding: Finding) -> Finding {
    let Some(cluster) = evidence.cluster.as_ref().filter(|cluster| cluster.is(EXPIRING)) else {
        return finding;
    };
    let next = format!("keep it longer: remuda cluster expire {} --in 30d", cluster.name());
    finding.condition(cluster, EXPIRING).next(next)
}

/// With why it was not stopped, although that was asked for.
fn hibernation_failed(evidence: &Evidence, finding: Finding) -> Finding {
    let Some(cluster) = &evidence.cluster else { return finding };
    let told = cluster.condition(HIBERNATED).filter(|told| !told.message.is_empty() && !told.is_true());
    match told {
        Some(_) => finding.condition(cluster, HIBERNATED),
        None => finding,
    }
}

/// A cluster that is stopped, or on its way there or back.
fn hibernation(evidence: &Evidence) -> Option<Finding> {
    let control_plane = evidence.control_plane.as_ref()?;
    let phase = control_plane.text("/status/hibernation/phase");
    let since = control_plane.time("/status/hibernation/since");
    let name = evidence.name();
    let said = control_plane.condition(condition::READY).map(|ready| ready.message).unwrap_or_default();
    match phase {
        "" | "Failed" => None,
        "Hibernated" => {
            let at = control_plane.text("/status/hibernation/since");
            let summary = format!("cluster {name} is hibernated since {at}: its machines are stopped");
            let finding = Finding::waiting(Cause::Hibernated, summary).about(control_plane).since(since);
            let finding = finding.brief("hibernated").until("a person, or its schedule, to wake it");
            Some(finding.next(format!("remuda cluster wake {name} --wait")))
        }
        phase => {
            let summary = if said.is_empty() { format!("hibernation: {phase}") } else { said.to_owned() };
            let finding = Finding::waiting(Cause::Operation, summary).about(control_plane).since(since);
            let finding = finding.until("its next phase");
            let failed = evidence.machines.iter().filter_map(|machine| evidence.server(machine));
            let failed =
                failed.filter(|server| server.condition(POWERED).is_some_and(|told| told.is_false()));
            Some(failed.fold(finding, |finding, server| finding.condition(server, POWERED)))
        }
    }
}

/// With a rotation of the keys for Secrets that failed: the cluster works, and its Secrets may have two keys.
fn rotation(evidence: &Evidence, finding: Finding) -> Finding {
    let Some(control_plane) = &evidence.control_plane else { return finding };
    let kind = condition::ENCRYPTION_KEYS_ROTATED;
    if !control_plane.condition(kind).is_some_and(|told| told.is_false()) {
        return finding;
    }
    let next = format!("go on with it: remuda cluster rotate-encryption-keys {}", evidence.name());
    finding.condition(control_plane, kind).next(next)
}

/// With what is going to happen without being asked for: certificates are rotated before they end.
fn renewal(evidence: &Evidence, finding: Finding) -> Finding {
    let Some(control_plane) = &evidence.control_plane else { return finding };
    let told = |field: &str| control_plane.text(&format!("/status/certificateRenewal/{field}"));
    if told("code") != waiting::MAINTENANCE_WINDOW {
        return finding;
    }
    let (machine, expires) = (told("machine"), told("expires"));
    let opens = match told("opens") {
        "" => "and none opens within two weeks".to_owned(),
        opens => format!("which opens at {opens}"),
    };
    let text = format!(
        "certificates of machine {machine} end at {expires}; all are rotated in a maintenance window, {opens}"
    );
    let next = format!("remuda cluster rotate-certificates {} does it now", control_plane.name());
    finding.exhibit(control_plane.reference(), text).next(next)
}

/// With a word about a version that gets no repairs any more: it is no cause, and should not be missed.
fn maintained(evidence: &Evidence, finding: Finding) -> Finding {
    let (Some(cluster), Some(last)) = (&evidence.cluster, evidence.end_of_life) else { return finding };
    let version = cluster.text("/spec/kubernetesVersion");
    let told = format!("the Kubernetes of {version} has not been maintained since {last}");
    let next = version::parse(version).map(|version| version::Minor::of(&version).next());
    let step = next.map(|next| format!("remuda cluster upgrade {} --to {next}", cluster.name()));
    let finding = finding.exhibit(cluster.reference(), told);
    step.into_iter().fold(finding, Finding::next)
}

/// With what is known of edits that have not reached machines.
fn edits(evidence: &Evidence, finding: Finding) -> Finding {
    let Some(cluster) = &evidence.cluster else { return finding };
    let Some(told) = cluster.condition(CONFIGURATION_APPLIED).filter(Condition::is_false) else {
        return finding;
    };
    let finding = finding.condition(cluster, CONFIGURATION_APPLIED);
    match told.reason {
        "WaitingForApproval" => {
            finding.next(format!("remuda cluster apply-config {} replaces them", cluster.name()))
        }
        _ => finding,
    }
}

/// What keeps the cluster from being as it is wanted, or nothing.
fn unsettled(evidence: &Evidence) -> Option<String> {
    let Some(cluster) = &evidence.cluster else {
        let capi = evidence.capi.as_ref()?;
        return (!capi.is(capi::condition::AVAILABLE)).then(|| "the cluster is not available".to_owned());
    };
    if cluster.is_deleting() {
        return Some("the cluster is being deleted".to_owned());
    }
    if !cluster.is_observed() {
        return Some("the change has not been taken up yet".to_owned());
    }
    if !cluster.flag("/status/ready") {
        return Some("the cluster has not been connected yet".to_owned());
    }
    let gone = evidence.management.as_ref().and_then(|cluster| cluster.condition(condition::CONNECTED));
    if gone.is_some_and(|connected| !connected.is_true()) {
        return Some("the cluster is not connected".to_owned());
    }
    if let Some(why) = &evidence.unreachable {
        return Some(format!("the cluster cannot be reached: {why}"));
    }
    if evidence.management.as_ref().is_some_and(is_sick) {
        return Some("the API of the cluster is not healthy".to_owned());
    }
    if !evidence.is_provisioned() {
        return None;
    }
    for kind in [condition::READY, condition::PROVISIONED, condition::UPDATED] {
        if let Some(condition) = cluster.condition(kind).filter(|condition| !condition.is_true()) {
            return Some(if condition.message.is_empty() {
                format!("{kind} is not true")
            } else {
                condition.message.to_owned()
            });
        }
    }
    if !cluster.is(condition::READY) {
        return Some("the cluster is not ready".to_owned());
    }
    if let Some(control_plane) = &evidence.control_plane {
        let same = control_plane.text("/spec/kubernetesVersion") == cluster.text("/spec/kubernetesVersion");
        if !same || !control_plane.is_observed() || !control_plane.is(condition::READY) {
            return Some("the control plane is being changed".to_owned());
        }
    }
    for deployment in &evidence.deployments {
        let wanted = deployment.number("/spec/replicas");
        let current = deployment.number("/status/upToDateReplicas");
        if !deployment.is_observed() || current.is_some_and(|current| Some(current) != wanted) {
            return Some(format!("machines of {} are being changed", deployment.name()));
        }
    }
    let runs = |machine: &&Object| {
        evidence.hosts.get(machine.name()).is_none_or(|state| *state == HostState::Running)
            || machine.has_annotation(PRESERVED_UNTIL)
    };
    if let Some(machine) = evidence.machines.iter().find(|machine| !runs(machine)) {
        return Some(format!("machine {} does not run as it should", machine.name()));
    }
    for pool in evidence.pools().filter(|_| evidence.can_read(kind::MACHINES)) {
        let here = evidence.machines.iter().filter(|machine| pool.owns(machine));
        let (mut running, mut leaving) = (0, 0);
        for machine in here {
            if machine.is_deleting() {
                leaving += 1;
            } else if !machine.text("/status/nodeRef/name").is_empty() {
                running += 1;
            }
        }
        if running != pool.wanted() || leaving > 0 {
            return Some(format!("pool {} has {running} of {} machines", pool.name(), pool.wanted()));
        }
    }
    None
}

/// It is connected, and its API does not answer as it should.
fn is_sick(management: &Object) -> bool {
    management.condition(condition::READY).is_some_and(|ready| ready.is_false())
        && !management.flag("/status/readyReconciling")
}

/// What holds up everything, whatever single machines say.
pub(super) fn gate(evidence: &Evidence, now: Timestamp) -> Option<Finding> {
    const GATES: &[fn(&Evidence, Timestamp) -> Option<Finding>] =
        &[unnoticed, held, drivers, configs, refused, objects, infrastructure, roles];
    GATES.iter().find_map(|gate| gate(evidence, now))
}

fn unnoticed(evidence: &Evidence, now: Timestamp) -> Option<Finding> {
    let cluster = evidence.cluster.as_ref()?;
    let untouched = cluster.finalizers().next().is_none()
        && cluster.conditions().next().is_none()
        && cluster.text("/status/clusterName").is_empty();
    if !untouched {
        return None;
    }
    let summary = "nothing has taken notice of the cluster yet";
    let finding = Finding::patient(Cause::NoControllers, cluster.created(), limit::NOTICED, now, summary);
    let mut finding = finding.about(cluster).brief("not taken up yet").until("a controller to look at it");
    if finding.state == State::Blocked {
        finding.summary = "no controller works on the cluster".to_owned();
        let next = "check that the server is running and was not started with --controllers=false";
        finding = finding.next(next);
    }
    Some(finding)
}

fn paused(evidence: &Evidence) -> Option<&Object> {
    let paused =
        |object: &&Object| object.flag("/spec/paused") || object.has_annotation(capi::annotation::PAUSED);
    [&evidence.capi, &evidence.control_plane, &evidence.cluster].into_iter().flatten().find(paused)
}

/// An operation that is under way pauses the cluster for its own time.
fn operation(evidence: &Evidence) -> Option<(&'static str, &str)> {
    let control_plane = evidence.control_plane.as_ref()?;
    let phases = [
        ("restoring an etcd snapshot", "/status/etcdSnapshotRestorePhase"),
        ("taking an etcd snapshot", "/status/etcdSnapshotCreatePhase"),
        ("rotating the encryption key", "/status/rotateEncryptionKeysPhase"),
    ];
    let renewal =
        |field: &str| !control_plane.text(&format!("/status/certificateRenewal/{field}")).is_empty();
    if renewal("begun") && !renewal("ended") {
        return Some(("rotating certificates that end soon", "one machine after the other"));
    }
    let mut found = phases.into_iter().map(|(what, pointer)| (what, control_plane.text(pointer)));
    found.find(|(_, phase)| !matches!(*phase, "" | "Finished" | "Failed" | "Done"))
}

fn held(evidence: &Evidence, _: Timestamp) -> Option<Finding> {
    if let Some(finding) = hibernation(evidence) {
        return Some(finding);
    }
    if let Some((what, phase)) = operation(evidence) {
        let control_plane = evidence.control_plane.as_ref()?;
        let since = control_plane.condition(condition::READY).and_then(|ready| ready.since);
        // Services are stopped by then: it does not go on by itself, and nothing else does either.
        let restoring = control_plane.text("/status/etcdSnapshotRestorePhase") == phase;
        let restore = control_plane.condition(condition::SNAPSHOT_RESTORED);
        if let Some(failed) = restore.filter(|told| told.is_false() && restoring) {
            let summary = format!("{what} failed in phase {phase}: {}", failed.message);
            let finding = Finding::blocked(Cause::Operation, summary).about(control_plane);
            let name = control_plane.name();
            let next = format!("restore again, this or another one: remuda snapshot restore {name} SNAPSHOT");
            return Some(finding.since(since).brief("restore failed").next(next));
        }
        let machine = control_plane.text("/status/waitingFor/machines/0");
        let place = if machine.is_empty() { String::new() } else { format!(" on {machine}") };
        let finding =
            Finding::waiting(Cause::Operation, format!("{what}: {phase}{place}")).about(control_plane);
        return Some(finding.since(since).until("its next phase").condition(control_plane, condition::READY));
    }
    let object = paused(evidence)?;
    let summary = format!("{} is paused, so nothing below it changes", object.reference());
    let finding = Finding::blocked(Cause::Paused, summary)
        .about(object)
        .brief("paused")
        .until("somebody to unpause it");
    let (kind, name, namespace) = (object.kind(), object.name(), object.namespace());
    let resource = format!("{}s.{}", kind.to_lowercase(), object.group());
    Some(match object.flag("/spec/paused") {
        true => finding.next(format!(
            "kubectl -n {namespace} patch {resource} {name} --type=merge -p '{{\"spec\":{{\"paused\":false}}}}'"
        )),
        false => finding.next(format!(
            "kubectl -n {namespace} annotate {resource} {name} {}-",
            capi::annotation::PAUSED
        )),
    })
}

/// Pools that have to make machines and have not made all of them.
fn unfinished_pools(evidence: &Evidence) -> impl Iterator<Item = Pool<'_>> {
    evidence.pools().filter(|pool| {
        let created = evidence
            .machines
            .iter()
            .filter(|machine| pool.owns(machine))
            .filter(|machine| evidence.server(machine).is_some_and(|server| server.is(condition::READY)));
        (created.count() as i64) < pool.wanted()
    })
}

fn drivers(evidence: &Evidence, _: Timestamp) -> Option<Finding> {
    unfinished_pools(evidence).find_map(|pool| {
        let driver = pool.driver()?;
        driver_problem(evidence, &driver, &format!("pool {}", pool.name()))
    })
}

/// Whatever keeps a driver from making machines.
pub(super) fn driver_problem(evidence: &Evidence, driver: &str, whose: &str) -> Option<Finding> {
    if !evidence.can_read(kind::NODE_DRIVERS) {
        return None;
    }
    let named = |object: &&Object| object.name() == driver || object.text("/spec/displayName") == driver;
    let Some(found) = evidence.drivers.iter().find(named) else {
        let known: Vec<_> = evidence.drivers.iter().map(Object::name).collect();
        let summary = format!("{whose} needs driver {driver}, which does not exist");
        let finding = Finding::blocked(Cause::DriverMissing, summary).brief(format!("no driver {driver}"));
        let finding = finding.until(format!("a NodeDriver {driver}"));
        let finding = finding.exhibit("drivers there are", known.join(", "));
        return Some(
            finding.next(format!("create a NodeDriver {driver}, or use another kind of machine in the pool")),
        );
    };
    if !found.flag("/spec/active") {
        let summary = format!("{whose} needs driver {driver}, which is not active");
        let finding = Finding::blocked(Cause::DriverInactive, summary).about(found);
        let finding =
            finding.brief(format!("driver {driver} is not active")).until("somebody to activate it");
        return Some(finding.next(format!(
            "kubectl patch nodedrivers.management.cattle.io {} --type=merge -p '{{\"spec\":{{\"active\":true}}}}'",
            found.name()
        )));
    }
    let failed = [condition::DOWNLOADED, condition::INSTALLED, condition::ACTIVE];
    let failed = failed
        .into_iter()
        .find(|kind| found.condition(kind).is_some_and(|condition| condition.is_false()))?;
    let summary = format!("driver {driver}, which {whose} needs, cannot be used");
    let since = found.condition(failed).and_then(|condition| condition.since);
    let finding = Finding::blocked(Cause::DriverFailed, summary).about(found).since(since);
    let finding = finding.brief(format!("driver {driver} cannot be used")).until("the driver");
    Some(finding.condition(found, failed).diagnosed().next(format!(
        "check url and checksum of the driver: kubectl get nodedrivers.management.cattle.io {} -o yaml",
        found.name()
    )))
}

fn configs(evidence: &Evidence, _: Timestamp) -> Option<Finding> {
    let cluster = evidence.cluster.as_ref()?;
    for pool in unfinished_pools(evidence).filter(|pool| pool.driver().is_some()) {
        let (kind, name) = (pool.config_kind(), pool.config_name());
        let there = evidence.configs.iter().any(|config| config.kind() == kind && config.name() == name);
        let readable = evidence.can_read(&format!("{}s.{}", kind.to_lowercase(), group::MACHINE_CONFIG));
        if !there && readable {
            let summary = format!("pool {} is made from {kind} {name}, which does not exist", pool.name());
            let finding = Finding::blocked(Cause::ConfigMissing, summary).about(cluster);
            let finding = finding.brief(format!("{kind} {name} is missing")).until("it to be created");
            return Some(finding.condition(cluster, condition::RKE_CLUSTER).next(format!(
                "create {kind} {name} in namespace {}, or name another in the pool: remuda cluster edit {}",
                cluster.namespace(),
                cluster.name()
            )));
        }
        let credential = match pool.credential() {
            "" => cluster.text("/spec/cloudCredentialSecretName"),
            credential => credential,
        };
        if evidence.missing_secrets.contains(credential) {
            let summary = format!("pool {} uses credential {credential}, which does not exist", pool.name());
            let finding = Finding::blocked(Cause::CredentialMissing, summary).about(cluster);
            let finding = finding.brief("its credential is missing").until("the Secret to be created");
            return Some(finding.next(format!("create Secret {}", credential.replacen(':', "/", 1))));
        }
    }
    None
}

fn refused(evidence: &Evidence, _: Timestamp) -> Option<Finding> {
    let cluster = evidence.cluster.as_ref()?;
    for kind in [condition::CREATED, condition::RKE_CLUSTER] {
        let Some(condition) = cluster.condition(kind).filter(Condition::is_false) else {
            continue;
        };
        let message = if condition.message.is_empty() { condition.reason } else { condition.message };
        if let Some(next) = diagnosis::unserved_webhook(message) {
            let summary = format!("a webhook is in the way: {message}");
            let finding = Finding::blocked(Cause::WebhookNotServed, summary).about(cluster);
            let finding = finding.brief("a webhook does not answer").since(condition.since);
            return Some(finding.until("the webhook to answer or to go").condition(cluster, kind).next(next));
        }
        let finding = Finding::blocked(
            Cause::SpecRefused,
            format!("the cluster cannot be made as it is written: {message}"),
        );
        let finding = finding.about(cluster).brief(message).since(condition.since).until("another spec");
        return Some(
            finding.condition(cluster, kind).next(format!("remuda cluster edit {}", cluster.name())),
        );
    }
    None
}

fn objects(evidence: &Evidence, now: Timestamp) -> Option<Finding> {
    let cluster = evidence.cluster.as_ref()?;
    let provisioned = evidence.is_provisioned();
    let missing = match (&evidence.management, &evidence.capi, &evidence.control_plane) {
        (None, ..) if evidence.can_read(kind::MANAGEMENT_CLUSTERS) => "its management Cluster",
        (_, None, _) if provisioned && evidence.can_read(kind::CAPI_CLUSTERS) => {
            "its Cluster of cluster.x-k8s.io"
        }
        (_, _, None) if provisioned && evidence.can_read(kind::CONTROL_PLANES) => "its RKEControlPlane",
        _ => return None,
    };
    let summary = format!("{missing} is not there yet");
    let finding = Finding::patient(Cause::ObjectsMissing, cluster.created(), limit::OBJECTS, now, &summary);
    let finding =
        finding.about(cluster).brief("being set up").until("the provisioning controller to create it");
    Some(
        finding
            .condition(cluster, condition::CREATED)
            .next("look at the server's log for messages about the cluster"),
    )
}

fn infrastructure(evidence: &Evidence, now: Timestamp) -> Option<Finding> {
    let capi = evidence.capi.as_ref().filter(|_| evidence.is_provisioned())?;
    if capi.flag("/status/initialization/infrastructureProvisioned") {
        return None;
    }
    let object = evidence.infrastructure.as_ref().unwrap_or(capi);
    let kind = capi.text("/spec/infrastructureRef/kind");
    let summary = format!("the infrastructure of the cluster ({kind}) is not provisioned");
    let finding =
        Finding::patient(Cause::InfrastructureNotReady, capi.created(), limit::INFRASTRUCTURE, now, &summary);
    let finding = finding
        .about(object)
        .brief("waiting for its infrastructure")
        .until(format!("the provider of {kind}"));
    Some(finding.condition(capi, capi::condition::INFRASTRUCTURE_READY))
}

/// The last server that was refused, if that was lately: one with a wrong token shows only in Events.
fn refused_server(evidence: &Evidence, now: Timestamp) -> Option<(&Object, Timestamp)> {
    const REMEMBERED: i64 = 3600;
    let refused = evidence.events.iter().filter(|event| event.text("/reason") == REGISTRATION_REFUSED);
    let dated = refused.filter_map(|event| {
        let at = event.time("/lastTimestamp").or(event.time("/eventTime"))?;
        (now.as_second() - at.as_second() < REMEMBERED).then_some((event, at))
    });
    dated.max_by_key(|(_, at)| *at)
}

/// Every role must be held before anything starts.
fn roles(evidence: &Evidence, now: Timestamp) -> Option<Finding> {
    let known = evidence.is_provisioned() && evidence.can_read(kind::MACHINES);
    let cluster = evidence.cluster.as_ref().filter(|_| known)?;
    let mut held = Roles::default();
    let living = evidence.machines.iter().filter(|machine| !machine.is_deleting());
    let of_machines = living.map(Roles::of);
    let of_pools = evidence.pools().filter(|pool| pool.wanted() > 0).map(Pool::roles);
    for roles in of_machines.chain(of_pools) {
        held.etcd |= roles.etcd;
        held.control_plane |= roles.control_plane;
        held.worker |= roles.worker;
    }
    let missing = Roles { etcd: !held.etcd, control_plane: !held.control_plane, worker: !held.worker };
    if missing == Roles::default() {
        return None;
    }
    let custom = evidence.pools().next().is_none();
    let names = missing.names().join(", ");
    let name = cluster.name();
    let since = evidence.control_plane.as_ref().and_then(|object| object.condition(condition::READY)?.since);
    let since = since.or_else(|| cluster.created());
    let finding = match (custom, evidence.machines.is_empty()) {
        (true, true) => {
            let summary = "no server has been registered with the cluster".to_owned();
            Finding::blocked(Cause::RolesMissing, summary).brief("no server registered")
        }
        (true, false) => {
            let summary = format!("no server has been registered for: {names}");
            Finding::blocked(Cause::RolesMissing, summary).brief(format!("no server for {names}"))
        }
        (false, _) => {
            let summary = format!("no pool has machines for: {names}");
            Finding::blocked(Cause::RolesMissing, summary).brief(format!("no pool for {names}"))
        }
    };
    let finding = finding.about(cluster).since(since).until(format!("a machine for: {names}"));
    Some(match custom {
        true => {
            let flags = [
                (missing.etcd, " --role etcd"),
                (missing.control_plane, " --role controlplane"),
                (missing.worker, " --role worker"),
            ];
            let flags: String = flags.iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| *flag).collect();
            let command = format!("remuda cluster registration-command {name}{flags}");
            match refused_server(evidence, now) {
                Some((event, at)) => {
                    let mut finding = finding.exhibit("event of the cluster", event.text("/message"));
                    finding.cause = Cause::RegistrationRefused;
                    finding.summary = "a server wanted to register and was refused".to_owned();
                    finding.brief = "a server was refused".to_owned();
                    finding
                        .since(Some(at))
                        .next(format!("run on that server what this prints now: {command}"))
                }
                None => finding.next(format!("run what this prints on a server: {command}")),
            }
        }
        false => finding.next(format!("remuda cluster edit {name}")),
    })
}

/// Init node first, then as plans are delivered.
fn tier(evidence: &Evidence, machine: &Object) -> u8 {
    let roles = Roles::of(machine);
    match roles {
        _ if evidence.plan(machine).is_some_and(Plan::is_init) => 1,
        Roles { etcd: true, .. } => 2,
        Roles { control_plane: true, .. } => 3,
        _ => 4,
    }
}

/// Servers that could not be made and whose machines are gone already: only events remember them.
fn lost_servers(evidence: &Evidence, now: Timestamp) -> Option<Finding> {
    const REMEMBERED: i64 = 900;
    let time = |event: &Object| event.time("/lastTimestamp").or(event.time("/eventTime"));
    let recent = |event: &&Object| {
        event.text("/reason") == "CreateError"
            && time(event).is_some_and(|time| now.as_second() - time.as_second() < REMEMBERED)
    };
    let (pool, event) = unfinished_pools(evidence).find_map(|pool| {
        let prefix = format!("{}-{}-", evidence.name(), pool.name());
        let ours = |event: &&Object| event.text("/involvedObject/name").starts_with(&prefix);
        let events = evidence.events.iter().filter(recent).filter(ours);
        Some((pool, events.max_by_key(|event| time(event))?))
    })?;
    let lost = event.text("/involvedObject/name");
    let summary = format!("servers of pool {} could not be created, {lost} among them", pool.name());
    let finding = Finding::blocked(Cause::CreateJobFailed, summary).brief("servers could not be created");
    let finding = finding
        .since(time(event))
        .until("a server")
        .exhibit(format!("event of {lost}"), event.text("/message"));
    Some(finding.diagnosed().next(format!("remuda machine logs {lost}")))
}

/// The agent in the cluster, once there is a control plane to run it.
pub(super) fn agent(evidence: &Evidence, now: Timestamp) -> Option<Finding> {
    let management = evidence.management.as_ref()?;
    let connected = management.condition(condition::CONNECTED);
    if connected.is_some_and(|condition| condition.is_true()) {
        return lost_just_now(evidence, management).or_else(|| sick(management, now));
    }
    let imported = !evidence.is_provisioned();
    let was = evidence.cluster.as_ref().is_some_and(|cluster| cluster.flag("/status/ready"));
    // Before a control plane runs there is nothing that could connect.
    let up = evidence.machines.iter().any(|machine| {
        Roles::of(machine).control_plane && evidence.plan(machine).is_some_and(Plan::is_healthy)
    });
    if !imported && !was && !up {
        return None;
    }
    let name = evidence.name();
    let summary = match (was, imported) {
        (true, _) => "the agent in the cluster has lost its connection",
        (false, true) => "the agent of the imported cluster has never connected",
        (false, false) => "the agent in the cluster has not connected yet",
    };
    let since = connected.and_then(|condition| condition.since).or_else(|| management.created());
    let mut finding = Finding::patient(Cause::ClusterAgentNotConnected, since, limit::AGENT, now, summary);
    if imported && !was {
        finding.state = State::Blocked;
    }
    finding = finding
        .about(management)
        .brief("waiting for the cluster agent")
        .until("the cluster agent to connect");
    finding =
        finding.condition(management, condition::CONNECTED).condition(management, condition::AGENT_DEPLOYED);
    finding = finding.diagnosed();
    if imported && !was {
        let step =
            format!("run what this prints against that cluster: remuda cluster registration-command {name}");
        // Nobody outside of that cluster can see why its pod does not start.
        let pull = "if its pod says ErrImagePull, put the image into a registry of yours: remuda image push REGISTRY/NAME";
        return Some(finding.next(step).next(pull));
    }
    if imported {
        let look = "in that cluster: kubectl -n cattle-system logs deployment/cattle-cluster-agent";
        let again = format!(
            "if it is not there: remuda cluster registration-command {name} prints what puts it there"
        );
        return Some(finding.next(look).next(again));
    }
    if let Some(server) = evidence.machines.iter().find(|machine| Roles::of(machine).control_plane) {
        // Each has its own kubectl and kubeconfig, which a shell does not know of.
        let kubectl = evidence.plan(server).map_or(Distro::K3s, Plan::distro).kubectl();
        for what in ["get deployments,pods", "logs deployment/cattle-cluster-agent"] {
            let command = format!("{kubectl} -n cattle-system {what}");
            finding = finding.next(machine::on_machine(server, &command));
        }
    }
    Some(finding)
}

/// No condition says yet that the connection is gone, or that it is not back since the server started.
fn lost_just_now(evidence: &Evidence, management: &Object) -> Option<Finding> {
    let why = evidence.unreachable.as_ref()?;
    let finding = Finding::waiting(Cause::ClusterAgentNotConnected, "the cluster cannot be reached just now");
    let finding = finding.about(management).brief("waiting for the cluster agent");
    Some(finding.until("the cluster agent to connect").exhibit("a request to the cluster", why))
}

fn sick(management: &Object, now: Timestamp) -> Option<Finding> {
    let ready = management.condition(condition::READY).filter(|_| is_sick(management))?;
    let summary = "the API of the cluster does not answer as it should";
    let finding = Finding::patient(Cause::ApiUnhealthy, ready.since, limit::AGENT, now, summary);
    let finding = finding.about(management).brief("its API is not healthy").until("the API to answer");
    Some(finding.condition(management, condition::READY).diagnosed())
}

fn said_by_control_plane(evidence: &Evidence) -> Option<crate::object::Condition<'_>> {
    let control_plane = evidence.control_plane.as_ref()?;
    control_plane.condition(condition::READY).filter(|ready| !ready.is_true() && !ready.message.is_empty())
}

/// What only the planner knows.
fn control_plane(evidence: &Evidence) -> Option<Finding> {
    let said = said_by_control_plane(evidence)?;
    let control_plane = evidence.control_plane.as_ref()?;
    let name = evidence.name();
    let message = said.message;
    let (cause, next) = match control_plane.text("/status/waitingFor/code") {
        waiting::ETCD_REPLACED => {
            (Cause::EtcdLost, "restore a snapshot: set spec.rkeConfig.etcdSnapshotRestore".to_owned())
        }
        waiting::LAST_MEMBERS => (
            Cause::EtcdLost,
            format!(
                "keep one of them, or give the data up with annotation {}=true",
                annotation::ETCD_FORCE_REMOVE
            ),
        ),
        waiting::NOT_SUPPORTED => {
            (Cause::NoSuchOperation, format!("take it back: remuda cluster edit {name}"))
        }
        _ if said.is_false() => match diagnosis::unserved_webhook(message) {
            Some(next) => (Cause::WebhookNotServed, next),
            None => (Cause::SpecRefused, format!("remuda cluster edit {name}")),
        },
        _ => {
            let finding =
                Finding::waiting(Cause::ControlPlane, message).about(control_plane).since(said.since);
            return Some(finding.until("the planner's next step"));
        }
    };
    Some(
        Finding::blocked(cause, message)
            .about(control_plane)
            .since(said.since)
            .until("somebody to act")
            .next(next),
    )
}

/// Pools with too few or too many machines that nothing else explains.
fn pools(evidence: &Evidence, now: Timestamp) -> Option<Finding> {
    if !evidence.can_read(kind::MACHINES) {
        return None;
    }
    let pool = evidence.pools().find(|pool| {
        let count = evidence.machines.iter().filter(|machine| pool.owns(machine)).count();
        count as i64 != pool.wanted()
    })?;
    let here = evidence.machines.iter().filter(|machine| pool.owns(machine)).count();
    let deployment = evidence.deployments.iter().find(|deployment| {
        deployment
            .0
            .pointer("/spec/template/metadata/labels")
            .is_some_and(|labels| labels[remuda_names::rancher::label::MACHINE_POOL_NAME] == pool.name())
            || deployment.name() == format!("{}-{}", evidence.name(), pool.name())
    });
    let summary = format!("pool {} has {here} machines and wants {}", pool.name(), pool.wanted());
    let since = deployment.and_then(|deployment| {
        let kinds = [capi::condition::SCALING_UP, capi::condition::SCALING_DOWN];
        kinds.into_iter().filter_map(|kind| deployment.condition(kind)).find(Condition::is_true)?.since
    });
    let since = since.or_else(|| evidence.cluster.as_ref()?.created());
    let mut finding = Finding::patient(Cause::Scaling, since, limit::MACHINES, now, &summary);
    finding = finding.brief(summary.clone()).until("the right number of machines");
    let Some(deployment) = deployment else { return Some(finding) };
    finding = finding.about(deployment);
    for kind in [capi::condition::SCALING_UP, capi::condition::SCALING_DOWN, capi::condition::MACHINES_READY]
    {
        finding = finding.condition(deployment, kind);
    }
    let sets = evidence.sets.iter().filter(|set| set.owner("MachineDeployment") == Some(deployment.name()));
    for set in sets {
        finding = finding.condition(set, capi::condition::SCALING_UP);
    }
    Some(finding)
}
