//! What keeps a cluster or a machine from being gone.

use jiff::Timestamp;
use remuda_names::{
    capi,
    machines::job_condition,
    rancher::{annotation, condition, finalizer, group},
};

use super::{Cause, Finding, LOG_LINES, State, cluster, machine::driver_of};
use crate::{
    age,
    evidence::{Evidence, kind},
    object::{Condition, Object},
};

const CUSTOM: &str = "CustomMachine";
/// Seconds after which a removal has taken longer than it ever should.
const LIMIT: i64 = 600;

pub(super) fn of_cluster(evidence: &Evidence, now: Timestamp) -> Finding {
    let mut findings: Vec<Finding> = evidence
        .machines
        .iter()
        .map(|machine| match machine.is_deleting() {
            true => of_machine(evidence, machine, now),
            false => not_asked(machine),
        })
        .collect();
    let orphaned = evidence.servers.iter().filter(|server| {
        let owned = evidence.machines.iter().any(|machine| evidence.server(machine) == Some(server));
        !owned
    });
    findings.extend(orphaned.map(|server| of_server(evidence, server, server.name(), now)));
    findings.sort_by_key(|finding| (finding.state, finding.cause, finding.machine.clone()));
    let mut findings = findings.into_iter();
    let Some(mut first) = findings.next() else { return rest(evidence, now) };
    let alike = findings.filter(|finding| finding.state == first.state && finding.cause == first.cause);
    first.also = alike.filter_map(|finding| finding.machine).collect();
    first
}

fn not_asked(machine: &Object) -> Finding {
    let summary = format!("machine {} has not been told to go yet", machine.name());
    let mut finding = Finding::waiting(Cause::Removing, summary).about(machine).brief("still there");
    finding.machine = Some(machine.name().to_owned());
    finding.until("its turn")
}

/// No machine is left: one of the objects above them is held.
fn rest(evidence: &Evidence, now: Timestamp) -> Finding {
    let all = [&evidence.control_plane, &evidence.infrastructure, &evidence.capi, &evidence.cluster];
    let going = all.into_iter().flatten().find(|object| object.is_deleting());
    let Some(object) = going.or(evidence.cluster.as_ref()) else {
        return Finding::waiting(Cause::Removing, "the cluster is going").brief("going");
    };
    let said = object.condition(condition::REMOVED).filter(|removed| !removed.is_true());
    let summary = match said.map(|removed| removed.message).filter(|message| !message.is_empty()) {
        Some(message) => message.to_owned(),
        None => format!("{} is still there", object.reference()),
    };
    let finding = Finding::patient(Cause::Removing, object.deleted(), LIMIT, now, &summary);
    let finding = finding.about(object).brief("going").until("what it consists of to go");
    held(finding, object)
}

/// Names whoever holds an object. Where nobody of ours is left, nothing here goes on.
fn held(finding: Finding, object: &Object) -> Finding {
    let holders: Vec<_> = object.finalizers().collect();
    let strange = object.is_deleting() && !holders.is_empty() && !holders.iter().any(|name| is_ours(name));
    let finding = match strange {
        true => {
            let summary = format!(
                "{} is kept by {}, which is not of this server",
                object.reference(),
                holders.join(", ")
            );
            let mut held = Finding::blocked(Cause::RemovalHeld, summary).about(object).since(finding.since);
            held.evidence = finding.evidence;
            held.brief("kept by a finalizer").until("whoever set it to take it away").next(format!(
                "if nobody does any more: kubectl -n {} patch {}s.{} {} --type=merge -p \
                 '{{\"metadata\":{{\"finalizers\":null}}}}'",
                object.namespace(),
                object.kind().to_lowercase(),
                object.group(),
                object.name()
            ))
        }
        false => finding,
    };
    finding.exhibit(format!("finalizers of {}", object.reference()), holders.join(", "))
}

/// Finalizers of this server, of Cluster API's providers, and of the garbage collector.
fn is_ours(finalizer: &str) -> bool {
    let domain = finalizer.split('/').next().unwrap_or_default();
    [capi::group::CORE, "cattle.io", group::REMUDA].iter().any(|known| domain.ends_with(known))
        || ["foregroundDeletion", "orphan"].contains(&finalizer)
}

pub(super) fn of_machine(evidence: &Evidence, machine: &Object, now: Timestamp) -> Finding {
    let going = evidence.server(machine).filter(|server| server.is_deleting());
    let mut finding = held_back(evidence, machine, now)
        .or_else(|| going.map(|server| of_server(evidence, server, machine.name(), now)))
        .unwrap_or_else(|| waiting(machine, now));
    finding.machine = Some(machine.name().to_owned());
    finding
}

/// Before its server may go.
fn held_back(evidence: &Evidence, machine: &Object, now: Timestamp) -> Option<Finding> {
    let name = machine.name();
    if evidence.server(machine).is_some_and(Object::is_deleting) {
        return None;
    }
    let deleting = machine.condition("Deleting");
    let reason = deleting.map(|condition| condition.reason).unwrap_or_default();
    let hooked = |prefix: &str| machine.annotations().map(|(key, _)| key).find(|key| key.starts_with(prefix));
    if reason == "WaitingForPreDrainHook"
        && let Some(hook) = hooked(capi::annotation::PRE_DRAIN_HOOK)
    {
        let summary = format!("machine {name} may not be drained until annotation {hook} is taken away");
        return Some(hold(machine, summary, hook));
    }
    if machine.has_annotation(annotation::PRE_TERMINATE) && reason != "DrainingNode" {
        let summary = format!("machine {name} goes only after etcd has let go of its member");
        let finding = Finding::patient(Cause::RemovalHeld, machine.deleted(), LIMIT, now, &summary);
        let finding = finding.about(machine).brief("leaving etcd").until("its etcd member to be removed");
        // Whoever asks etcd says here what it answers.
        let finding = finding.condition(machine, condition::RECONCILED).condition(machine, "Deleting");
        return Some(finding.next(format!(
            "if the cluster is lost anyway: kubectl -n {} annotate rkebootstraps.rke.cattle.io {} {}=true",
            machine.namespace(),
            machine.text("/spec/bootstrap/configRef/name"),
            annotation::ETCD_FORCE_REMOVE
        )));
    }
    if let Some(hook) =
        hooked(capi::annotation::PRE_TERMINATE_HOOK).filter(|hook| *hook != annotation::PRE_TERMINATE)
    {
        let summary = format!("machine {name} may not go until annotation {hook} is taken away");
        return Some(hold(machine, summary, hook));
    }
    if reason == "DrainingNode" {
        let skip = format!(
            "to skip it: kubectl -n {} annotate machines.cluster.x-k8s.io {name} {}=true",
            machine.namespace(),
            capi::annotation::EXCLUDE_DRAIN
        );
        if let Some(blocked) = drain_blocked(machine) {
            let until =
                match machine.number("/spec/deletion/nodeDrainTimeoutSeconds").filter(|limit| *limit > 0) {
                    Some(limit) => format!("the budget to allow it, {} at most", age::short(limit)),
                    None => "the budget to allow it".to_owned(),
                };
            return Some(blocked.until(until).condition(machine, "Deleting").next(skip));
        }
        let summary = format!("the node of machine {name} is being drained before it goes");
        let since = deleting.and_then(|condition| condition.since).or_else(|| machine.deleted());
        let finding = Finding::patient(Cause::Draining, since, LIMIT, now, &summary);
        let finding = finding.about(machine).brief("draining").until("its pods to move");
        return Some(finding.condition(machine, "Deleting").next(skip));
    }
    None
}

/// What budgets hold a drain up, by the code of the condition.
pub(super) fn drain_blocked(machine: &Object) -> Option<Finding> {
    let blocked = machine.condition(condition::DRAIN_BLOCKED).filter(Condition::is_true)?;
    if blocked.reason != condition::BLOCKED_BY_BUDGET {
        return None;
    }
    let summary = format!("the node of machine {} cannot be drained: {}", machine.name(), blocked.message);
    let finding = Finding::blocked(Cause::DrainBlocked, summary).about(machine).since(blocked.since);
    let finding =
        finding.brief("a PodDisruptionBudget keeps its pods").condition(machine, condition::DRAIN_BLOCKED);
    Some(
        finding
            .next("give the Pods' owner more replicas elsewhere, or let the budget allow one to be missing"),
    )
}

fn hold(machine: &Object, summary: String, hook: &str) -> Finding {
    let finding = Finding::blocked(Cause::RemovalHeld, summary).about(machine).brief("held by a hook");
    let finding = finding.since(machine.deleted()).until("the hook").condition(machine, "Deleting");
    finding.next(format!(
        "what set it takes it away when done; if it never will: kubectl -n {} annotate \
         machines.cluster.x-k8s.io {} {hook}-",
        machine.namespace(),
        machine.name()
    ))
}

fn waiting(machine: &Object, now: Timestamp) -> Finding {
    let summary = format!("machine {} is going", machine.name());
    let finding = Finding::patient(Cause::Removing, machine.deleted(), LIMIT, now, &summary);
    let finding = finding.about(machine).brief("going").until("its server and its objects to go");
    held(finding.condition(machine, "Deleting"), machine)
}

/// The server itself.
fn of_server(evidence: &Evidence, server: &Object, machine: &str, now: Timestamp) -> Finding {
    let driver = driver_of(server);
    let mut finding = server_removal(evidence, server, machine, &driver, now);
    finding.machine = Some(machine.to_owned());
    finding
}

/// A server that registered itself, and is left as it came.
fn host_removal(server: &Object, machine: &str, now: Timestamp) -> Finding {
    let said = server.condition(condition::HOST_CLEAN);
    let summary = match said.map(|said| said.reason) {
        Some(condition::HOST_CLEANING) => {
            format!("the server of machine {machine} removes what was installed on it")
        }
        _ => format!("{} is going", server.reference()),
    };
    let since = said.and_then(|said| said.since).or_else(|| server.deleted());
    let finding = Finding::patient(Cause::Removing, since, LIMIT, now, &summary);
    let finding =
        finding.about(server).brief("cleaning its server").until("its server, for three minutes at most");
    held(finding.condition(server, condition::HOST_CLEAN), server)
}

fn server_removal(
    evidence: &Evidence,
    server: &Object,
    machine: &str,
    driver: &str,
    now: Timestamp,
) -> Finding {
    let force = format!(
        "if its server is gone already: kubectl -n {} annotate {}s.{} {} {}=true",
        server.namespace(),
        server.kind().to_lowercase(),
        server.group(),
        server.name(),
        annotation::FORCE_MACHINE_REMOVE
    );
    if server.kind() == CUSTOM {
        return host_removal(server, machine, now);
    }
    let job = evidence.job(machine, true);
    let failed = server.condition(condition::DELETE_JOB).filter(Condition::is_false);
    if let Some(failed) = failed {
        let summary = format!("the {driver} driver could not remove the server of machine {machine}");
        let finding = Finding::blocked(Cause::RemovalFailed, summary).about(job.unwrap_or(server));
        let finding = finding
            .since(failed.since)
            .brief("its server could not be removed")
            .until("its server to be gone");
        let log = evidence.remove_log(machine, LOG_LINES);
        let finding =
            finding.exhibit("log of the job, last lines", log).condition(server, condition::DELETE_JOB);
        let finding = finding.diagnosed_as(server.text("/status/failureClass"));
        return finding.next(format!("remuda machine logs {machine}")).next(force);
    }
    let unheard = job.filter(|job| {
        let waiting = job.condition(job_condition::WAITING);
        waiting.is_some_and(|waiting| waiting.status == "True" && waiting.reason == job_condition::NO_HOST)
    });
    if let Some(job) = unheard {
        let summary = format!(
            "the server of machine {machine} is on the host of another server of this installation, which does not \
             answer"
        );
        let since = job.condition(job_condition::WAITING).and_then(|waiting| waiting.since);
        let finding = Finding::blocked(Cause::HostAway, summary).about(job).since(since);
        let finding = finding.brief("its host is away").until("the server on that host to run");
        let finding = finding.condition(job, job_condition::WAITING);
        return finding.next("start the server that made the machine; it goes on by itself").next(force);
    }
    let ours = server.finalizers().any(|name| name == finalizer::MACHINE);
    if ours
        && let Some(finding) =
            cluster::driver_problem(evidence, driver, &format!("removing machine {machine}"))
        && finding.cause == Cause::DriverMissing
    {
        return finding.since(server.deleted()).next(force);
    }
    let creating = server.condition(condition::CREATE_JOB).filter(|condition| condition.status == "Unknown");
    if let (Some(creating), None, true) = (creating, job, evidence.can_read(kind::JOBS)) {
        let summary =
            format!("the server of machine {machine} is still being created and can be removed only then");
        let finding =
            Finding::waiting(Cause::CreatingServer, summary).about(server).brief("still being created");
        return finding.since(creating.since).until("the job that creates it to end");
    }
    let summary = match job {
        Some(_) => format!("the {driver} driver is removing the server of machine {machine}"),
        None => format!("{} is going", server.reference()),
    };
    let since = job.and_then(|job| job.time("/status/startTime")).or_else(|| server.deleted());
    let finding = Finding::patient(Cause::Removing, since, LIMIT, now, &summary);
    let finding =
        finding.about(job.unwrap_or(server)).brief("removing the server").until("its server to be gone");
    let finding = if finding.state == State::Blocked { finding.next(force) } else { finding };
    held(finding, server)
}
