//! Why a machine is not ready.

use jiff::Timestamp;
use remuda_names::{
    annotation::PRESERVED_UNTIL,
    capi::{self, claim_reason::POOL_EXHAUSTED},
    machines::QUEUED,
    rancher::{condition, group, label, setting},
    waiting,
};

use super::{Cause, Finding, LOG_LINES, State, cluster, removal};
use crate::{
    evidence::{Evidence, Roles, kind, tail},
    hooks::HostState,
    object::{Condition, Object},
    plan::Plan,
};

/// Seconds after which a step has taken longer than it ever should.
mod limit {
    pub(super) const BOOTSTRAP_DATA: i64 = 120;
    pub(super) const JOB_START: i64 = 60;
    pub(super) const JOB: i64 = 900;
    pub(super) const AGENT: i64 = 300;
    pub(super) const PLAN: i64 = 900;
    pub(super) const SILENT: i64 = 180;
    pub(super) const PROBES: i64 = 300;
    pub(super) const DRAIN: i64 = 1200;
    pub(super) const NODE: i64 = 300;
}

/// What the Machine says when its Node does not know, since the kubelet has stopped to report.
const NODE_READY_UNKNOWN: &str = "NodeReadyUnknown";

/// About one machine; whatever holds up its whole cluster holds up the machine as well.
pub(super) fn decide(evidence: &Evidence, name: &str, now: Timestamp) -> Finding {
    let Some(machine) = evidence.machine(name) else {
        return Finding::blocked(Cause::ObjectsMissing, format!("there is no Machine {name}"));
    };
    let finding = of_machine(evidence, machine, now);
    if finding.is_ready() || machine.is_deleting() {
        return finding;
    }
    match cluster::gate(evidence, now) {
        Some(gate) if (gate.state, gate.cause) < (finding.state, finding.cause) => gate,
        _ => finding,
    }
}

/// About one machine, without its cluster.
pub(crate) fn of_machine(evidence: &Evidence, machine: &Object, now: Timestamp) -> Finding {
    let mut finding = if machine.is_deleting() {
        removal::of_machine(evidence, machine, now)
    } else {
        STEPS.iter().find_map(|step| step(evidence, machine, now)).unwrap_or_else(|| ready(machine))
    };
    finding.machine = Some(machine.name().to_owned());
    if finding.object.is_none() {
        finding.object = Some(machine.reference());
    }
    finding
}

type Step = fn(&Evidence, &Object, Timestamp) -> Option<Finding>;

/// In the order in which a machine comes to be; the first that is not done is the answer.
const STEPS: &[Step] =
    &[preserved, failed_phase, bootstrap_data, server, host, agent_away, plan, drain, probes, turn, node];

fn ready(machine: &Object) -> Finding {
    let since = machine.condition(capi::condition::READY).and_then(|condition| condition.since);
    Finding::new(State::Ready, Cause::None, format!("machine {} is ready", machine.name()))
        .brief("ready")
        .since(since)
}

/// It failed, and another one has taken its place: it is there to be looked at.
fn preserved(_: &Evidence, machine: &Object, _: Timestamp) -> Option<Finding> {
    let until = machine.annotations().find(|(key, _)| *key == PRESERVED_UNTIL).map(|(_, until)| until)?;
    let name = machine.name();
    let summary = format!("machine {name} failed, was replaced and is kept to be looked at until {until}");
    let finding = Finding::waiting(Cause::Remediation, summary).brief("failed, kept to be looked at");
    let finding = finding.until("its time to be over");
    let finding = finding.condition(machine, capi::condition::HEALTH_CHECK_SUCCEEDED);
    Some(finding.next(format!("when it is not needed any more: remuda machine delete {name}")))
}

/// Somebody has given the machine up.
fn failed_phase(_: &Evidence, machine: &Object, _: Timestamp) -> Option<Finding> {
    let check = machine.condition(capi::condition::HEALTH_CHECK_SUCCEEDED).filter(Condition::is_false)?;
    let summary = format!("machine {} failed its health check and is to be replaced", machine.name());
    let finding = Finding::waiting(Cause::Remediation, summary).brief("unhealthy, to be replaced");
    let finding = finding.since(check.since).until("a new machine in its place");
    let finding = finding.condition(machine, capi::condition::HEALTH_CHECK_SUCCEEDED);
    Some(finding.condition(machine, capi::condition::OWNER_REMEDIATED).next(
        "if it is never replaced, look at the MachineHealthCheck: more machines than maxUnhealthy allows may be \
         sick at once",
    ))
}

/// The data it boots with.
fn bootstrap_data(evidence: &Evidence, machine: &Object, now: Timestamp) -> Option<Finding> {
    let given = !machine.text("/spec/bootstrap/dataSecretName").is_empty();
    if given || machine.has("/status/nodeRef") || is_custom(machine) {
        return None;
    }
    let bootstrap = evidence.bootstrap(machine);
    let summary = match bootstrap {
        _ if !evidence.can_read(kind::BOOTSTRAPS) => {
            format!("machine {} has not been given the data it boots with", machine.name())
        }
        Some(_) => format!("the data machine {} boots with is not there yet", machine.name()),
        None => format!("machine {} has no RKEBootstrap yet", machine.name()),
    };
    let finding = Finding::patient(
        Cause::BootstrapDataMissing,
        machine.created(),
        limit::BOOTSTRAP_DATA,
        now,
        &summary,
    );
    let finding =
        finding.brief("waiting for its bootstrap data").until("the bootstrap provider to write its Secret");
    let finding = match bootstrap {
        Some(bootstrap) => finding.about(bootstrap),
        None => finding,
    };
    Some(finding.condition(machine, capi::condition::BOOTSTRAP_CONFIG_READY).next("look at the server's log"))
}

fn is_custom(machine: &Object) -> bool {
    machine.text("/spec/infrastructureRef/apiGroup") == group::RKE
}

/// The server, from the driver to the end of its Job.
fn server(evidence: &Evidence, machine: &Object, now: Timestamp) -> Option<Finding> {
    let name = machine.name();
    if is_custom(machine) {
        return None;
    }
    let Some(server) = evidence.server(machine) else { return foreign_server(machine, now) };
    let driver = driver_of(server);
    let created = server.is(condition::CREATE_JOB) || server.is(condition::READY);
    if created && server.text("/status/failureReason").is_empty() {
        return None;
    }
    if let Some(finding) = cluster::driver_problem(evidence, &driver, &format!("machine {name}")) {
        return Some(finding);
    }
    let job = evidence.job(name, false);
    let refused = server.condition(condition::CREATE_JOB).filter(Condition::is_false);
    let failed = job.and_then(|job| job.condition("Failed")).filter(Condition::is_true);
    if refused.is_some() || failed.is_some() || !server.text("/status/failureReason").is_empty() {
        let since = refused.or(failed).and_then(|condition| condition.since);
        return Some(job_failed(evidence, machine, server, job).since(since));
    }
    if job.is_none() && !evidence.can_read(kind::JOBS) {
        return Some(unseen_job(machine, server, &driver, now));
    }
    let Some(job) = job else {
        if let Some(finding) = no_address(machine, server) {
            return Some(finding);
        }
        let said =
            server.condition(condition::READY).filter(|ready| ["Waiting", QUEUED].contains(&ready.reason));
        // Queues take their time.
        let queued = said.is_some_and(|ready| ready.reason == QUEUED);
        let said = said.map(|ready| ready.message).filter(|message| !message.is_empty());
        let summary = match said {
            Some(said) => format!("no server is made yet for machine {name}: {said}"),
            None => format!("no job has been started yet to create the server of machine {name}"),
        };
        let limit = if queued { limit::JOB } else { limit::JOB_START };
        let finding = Finding::patient(Cause::CreateJobNotRun, server.created(), limit, now, &summary);
        let finding =
            finding.about(server).brief(said.unwrap_or("waiting for its job")).until("the machine provider");
        let finding = finding.condition(server, condition::CREATE_JOB).condition(server, condition::READY);
        return Some(finding.next("look at the server's log for messages of the machine provider"));
    };
    let started = job.time("/status/startTime");
    if started.is_none() {
        let summary = format!("nobody runs the job that creates the server of machine {name}");
        let finding =
            Finding::patient(Cause::CreateJobNotRun, job.created(), limit::JOB_START, now, &summary);
        let finding = finding.about(job).brief("waiting for its job to start").until("a job runner");
        return Some(
            finding.next("check that the server runs its controllers, or that the cluster can schedule pods"),
        );
    }
    let summary = format!("the {driver} driver is creating the server of machine {name}");
    let finding = Finding::patient(Cause::CreatingServer, started, limit::JOB, now, &summary);
    let finding = finding.about(job).brief("creating the server").until("the job to end");
    let log = evidence.create_log(name, LOG_LINES);
    Some(finding.exhibit("its log, last lines", log).next(format!("remuda machine logs {name} --follow")))
}

/// The pool its address is to be of has none that is free.
fn no_address(machine: &Object, server: &Object) -> Option<Finding> {
    let ready = server.condition(condition::READY).filter(|ready| ready.reason == POOL_EXHAUSTED)?;
    let summary = format!("no server is made for machine {}: {}", machine.name(), ready.message);
    let finding = Finding::blocked(Cause::NoAddress, summary).brief("no address is free").since(ready.since);
    let finding = finding.about(server).condition(server, condition::READY);
    let finding = finding.until("an address of its pool to be free");
    Some(finding.next(
        "add addresses to the pool, or delete claims that are not needed: kubectl get ipaddressclaims -A",
    ))
}

/// Whether its job runs is in what may not be read; what the server itself says is not.
fn unseen_job(machine: &Object, server: &Object, driver: &str, now: Timestamp) -> Finding {
    let summary = format!("the {driver} driver has not created the server of machine {} yet", machine.name());
    let finding = Finding::patient(Cause::CreatingServer, server.created(), limit::JOB, now, &summary);
    let finding = finding.about(server).brief("creating the server").until("its job to end");
    finding.condition(server, condition::CREATE_JOB).condition(server, condition::READY)
}

pub(super) fn driver_of(server: &Object) -> String {
    server.kind().strip_suffix("Machine").unwrap_or(server.kind()).to_lowercase()
}

/// Of a provider that is not ours only the Machine itself tells.
fn foreign_server(machine: &Object, now: Timestamp) -> Option<Finding> {
    if machine.is(capi::condition::INFRASTRUCTURE_READY) {
        return None;
    }
    let kind = machine.text("/spec/infrastructureRef/kind");
    let summary = format!("the {kind} of machine {} is not ready", machine.name());
    let finding = Finding::patient(Cause::CreatingServer, machine.created(), limit::JOB, now, &summary);
    let finding = finding.brief("creating the server").until(format!("the provider of {kind}"));
    Some(finding.condition(machine, capi::condition::INFRASTRUCTURE_READY))
}

fn job_failed(evidence: &Evidence, machine: &Object, server: &Object, job: Option<&Object>) -> Finding {
    let name = machine.name();
    let summary = format!("the {} driver could not create the server of machine {name}", driver_of(server));
    let mut finding = Finding::blocked(Cause::CreateJobFailed, summary)
        .about(job.unwrap_or(server))
        .brief("its server could not be created")
        .until("a server for the machine");
    finding = finding.exhibit("log of the job, last lines", evidence.create_log(name, LOG_LINES));
    let said = match server.text("/status/failureMessage") {
        "" => server.condition(condition::CREATE_JOB).map(|condition| condition.message).unwrap_or_default(),
        message => message,
    };
    finding = finding.exhibit(server.reference(), said);
    if let Some(job) = job {
        finding = finding.condition(job, "Failed");
    }
    let pool = machine.label(label::MACHINE_POOL_NAME);
    let retry = match pool {
        "" => "the machine is deleted then; make it again".to_owned(),
        pool => format!("pool {pool} replaces the machine by itself and tries again"),
    };
    let finding = finding.diagnosed_as(server.text("/status/failureClass"));
    finding.next(format!("remuda machine logs {name}")).next(retry)
}

/// The agent and the plan it is given.
fn plan(evidence: &Evidence, machine: &Object, now: Timestamp) -> Option<Finding> {
    let name = machine.name();
    let registered = !machine.label(label::MACHINE_ID).is_empty();
    let plan = evidence.plan(machine);
    let Some(plan) = plan else {
        if !evidence.can_read(kind::SECRETS) || foreign(machine) {
            return None;
        }
        let summary = format!("machine {name} has no plan Secret");
        let finding = Finding::patient(
            Cause::BootstrapDataMissing,
            machine.created(),
            limit::BOOTSTRAP_DATA,
            now,
            &summary,
        );
        return Some(finding.brief("waiting for its plan Secret").until("the bootstrap provider"));
    };
    if plan.failed {
        return Some(plan_failed(evidence, machine, plan));
    }
    if !registered && !plan.has_agent && !is_custom(machine) {
        return Some(never_connected(evidence, machine, now));
    }
    if !plan.delivered {
        return None;
    }
    if plan.applied {
        return None;
    }
    let since = plan.delivered_at();
    let what = plan.installer.as_deref().map(|image| format!(" ({image})")).unwrap_or_default();
    if plan.has_agent || registered {
        let silent = !plan.has_agent;
        let (cause, limit, brief) = match silent {
            true => (Cause::AgentSilent, limit::SILENT, "waiting for its agent to take the plan"),
            false => (Cause::ApplyingPlan, limit::PLAN, "applying its plan"),
        };
        let summary = match silent {
            true => format!("the agent of machine {name} has not taken its plan yet"),
            false => format!("machine {name} is applying its plan{what}"),
        };
        let finding = Finding::patient(cause, since, limit, now, &summary).about(&plan.secret).brief(brief);
        let finding =
            finding.until("the agent to report").exhibit("last run of the agent", &*plan.last_apply);
        return Some(finding.next(on_machine(machine, "journalctl -u rancher-system-agent -n 50")));
    }
    None
}

/// The condition that says that the agent of a machine stays away, if it does.
pub(super) fn away(machine: &Object) -> Option<Condition<'_>> {
    machine.condition(condition::AGENT_CONNECTED).filter(Condition::is_false)
}

/// The agent stays away: whatever else there is to do will not be done.
fn agent_away(evidence: &Evidence, machine: &Object, _: Timestamp) -> Option<Finding> {
    let away = away(machine)?;
    let name = machine.name();
    let node = machine.text("/status/nodeRef/name");
    let kubelet = [capi::condition::NODE_READY, capi::condition::NODE_HEALTHY]
        .into_iter()
        .find(|kind| machine.condition(kind).is_some_and(|condition| !condition.is_true()));
    let answers = kubelet.is_none() && !node.is_empty();
    let (cause, summary, brief) = match answers {
        true => (
            Cause::AgentSilent,
            format!(
                "the agent of machine {name} is stopped or cannot reach this server, while its Node {node} is ready"
            ),
            "its agent is away",
        ),
        false => (
            Cause::MachineSilent,
            match evidence.hosts.get(name) {
                Some(HostState::Running) => format!(
                    "machine {name} runs and says nothing, neither its agent nor its kubelet: they hang, or do not \
                     reach their servers"
                ),
                _ => format!(
                    "machine {name} says nothing, neither its agent nor its kubelet: it is off, frozen or cut off"
                ),
            },
            "says nothing",
        ),
    };
    let finding = Finding::blocked(cause, summary).brief(brief).since(away.since);
    let finding = finding.until("its agent to come back").condition(machine, condition::AGENT_CONNECTED);
    let finding = match kubelet {
        Some(kind) => finding.condition(machine, kind),
        None => finding,
    };
    let local = evidence.hosts.contains_key(name);
    Some(match (answers, local) {
        (true, _) => finding
            .next(on_machine(machine, "journalctl -u rancher-system-agent -n 50"))
            .next(on_machine(machine, "systemctl restart rancher-system-agent")),
        (false, true) => restart_or_replace(finding, name),
        (false, false) => unreachable_machine(evidence, finding, machine),
    })
}

/// What the host of a machine sees, which is this one: nothing has to be missed first.
fn host(evidence: &Evidence, machine: &Object, _: Timestamp) -> Option<Finding> {
    let name = machine.name();
    let (cause, what, brief) = match evidence.hosts.get(name)? {
        HostState::Running => return None,
        HostState::Off => (Cause::MachineOff, "does not run: it was stopped or killed", "does not run"),
        HostState::Frozen => {
            (Cause::MachineFrozen, "is frozen: its processes are stopped by a signal", "is frozen")
        }
        HostState::CutOff => {
            (Cause::MachineCutOff, "is cut off: it runs, and nothing leads out of its network", "is cut off")
        }
    };
    let mut finding = Finding::blocked(cause, format!("machine {name} {what}")).brief(brief);
    if let Some(away) = away(machine) {
        finding = finding.since(away.since).condition(machine, condition::AGENT_CONNECTED);
    }
    let sick = [capi::condition::NODE_READY, capi::condition::NODE_HEALTHY].into_iter();
    let sick =
        sick.filter(|kind| machine.condition(kind).is_some_and(|condition| !condition.is_true())).take(1);
    let finding = sick.fold(finding, |finding, kind| finding.condition(machine, kind));
    Some(restart_or_replace(finding.until("the machine to run again"), name))
}

fn restart_or_replace(finding: Finding, name: &str) -> Finding {
    finding
        .next(format!("remuda machine restart {name}"))
        .next(format!("or replace it: remuda machine delete {name}"))
}

/// No command of ours reaches it from here: a restart would be asked for over SSH.
fn unreachable_machine(evidence: &Evidence, finding: Finding, machine: &Object) -> Finding {
    let name = machine.name();
    let finding = match evidence.server(machine).map(driver_of).as_deref() {
        Some("local") => finding.next(format!("on the server's host: remuda machine restart {name}")),
        _ if is_custom(machine) => {
            finding.next("look at the host itself: its console, its power and its network")
        }
        _ => finding.next("look at it at its provider: its console, its power and its network"),
    };
    finding.next(format!("or replace it: remuda machine delete {name}"))
}

/// How a command is run on a machine. Into hosts that registered themselves, and those of other providers, we have no
/// way.
pub(super) fn on_machine(machine: &Object, command: &str) -> String {
    let name = machine.name();
    match machine.text("/spec/infrastructureRef/apiGroup") == group::MACHINE {
        true => format!("remuda machine shell {name} -- {command}"),
        false => format!("on the host of machine {name}: {command}"),
    }
}

fn foreign(machine: &Object) -> bool {
    machine.text("/spec/bootstrap/configRef/kind") != "RKEBootstrap"
}

fn plan_failed(evidence: &Evidence, machine: &Object, plan: &Plan) -> Finding {
    let name = machine.name();
    let times = match plan.failures {
        0 | 1 => String::new(),
        count => format!(" {count} times"),
    };
    let what = plan.installer.as_deref().map(|image| format!(" ({image})")).unwrap_or_default();
    let mut finding =
        Finding::blocked(Cause::PlanFailed, format!("the plan of machine {name} failed{times}{what}"))
            .about(&plan.secret)
            .brief(format!("its plan failed{times}"))
            .since(plan.delivered_at())
            .until("the plan to succeed, or another plan");
    for (instruction, output) in &plan.failed_output {
        let source = match instruction.as_str() {
            "" => "reported by the agent".to_owned(),
            instruction => format!("output of instruction {instruction}, last lines"),
        };
        finding = finding.exhibit(source, tail(output, LOG_LINES));
    }
    let roles = Roles::of(machine);
    let unit = plan.distro().unit(roles.etcd || roles.control_plane);
    finding = finding.exhibit("last run of the agent", &*plan.last_apply).diagnosed();
    if let Some(cluster) = evidence.cluster.as_ref().filter(|_| evidence.unknown_release) {
        // Whatever a registry or a resolver says then, it cannot have it.
        let version = cluster.text("/spec/kubernetesVersion");
        let next = format!(
            "{version} is no release this server knows: choose one of remuda versions, with remuda cluster edit {}",
            cluster.name()
        );
        finding.next.insert(0, next);
    }
    finding.next(on_machine(machine, &format!("journalctl -u rancher-system-agent -u {unit} -n 100")))
}

fn never_connected(evidence: &Evidence, machine: &Object, now: Timestamp) -> Finding {
    let name = machine.name();
    let server = evidence.server(machine);
    let since = server
        .and_then(|server| server.condition(condition::CREATE_JOB).or(server.condition(condition::READY)))
        .and_then(|condition| condition.since)
        .or_else(|| machine.created());
    let summary = format!("the agent of machine {name} has never connected");
    let url = evidence.setting(setting::SERVER_URL).unwrap_or_default();
    let driver = server.map(driver_of).unwrap_or_default();
    let age = since.map_or(0, |since| now.as_second() - since.as_second());
    if is_loopback(url) && !matches!(driver.as_str(), "local" | "") {
        let summary =
            format!("machine {name} is told to reach this server at {url}, which is the machine itself");
        let finding = Finding::blocked(Cause::ServerUrlUnreachable, summary).since(since);
        let finding = finding.brief("cannot reach the server").until("its agent to connect");
        return finding.exhibit("setting server-url", url).next(
            "start the server with --advertise and an address the machines can reach; machines made so far have to \
             be replaced",
        );
    }
    let finding = Finding::patient(Cause::AgentNeverConnected, since, limit::AGENT, now, &summary);
    let finding = finding.brief("booting").until("its agent to connect").exhibit("setting server-url", url);
    let log = evidence.create_log(name, LOG_LINES);
    let mut finding = finding.exhibit("log of the job that created it, last lines", log);
    if age > TOKEN_LIFE {
        finding.cause = Cause::BootstrapTokenExpired;
        finding.summary =
            format!("the agent of machine {name} did not connect while its token was good (30 minutes)");
        finding.brief = "did not connect in time".to_owned();
        return finding.next(format!("delete the machine so that another takes its place: kubectl delete machines.cluster.x-k8s.io {name}"));
    }
    finding
        .next(on_machine(machine, "journalctl -u rancher-system-agent -n 50"))
        .next(format!("check that the machine can reach {url}"))
}

/// How long a machine may take from its bootstrap data to its first connection.
const TOKEN_LIFE: i64 = 1800;

fn is_loopback(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
}

fn drain(evidence: &Evidence, machine: &Object, now: Timestamp) -> Option<Finding> {
    let plan = evidence.plan(machine)?;
    let drain =
        plan.drain().filter(|drain| !drain.done || !drain.hooks.is_empty() || !drain.error.is_empty())?;
    let name = machine.name();
    let since = machine.condition(condition::RECONCILED).and_then(|condition| condition.since);
    if !drain.error.is_empty() {
        let summary = format!("the node of machine {name} cannot be drained");
        let finding = Finding::blocked(Cause::DrainFailed, summary).about(&plan.secret).since(since);
        let finding = finding.brief("cannot be drained").until("its pods to move");
        return Some(finding.exhibit("the drain", drain.error).next(
            "look for pods that may not be evicted (PodDisruptionBudgets), or change upgradeStrategy drain options",
        ));
    }
    if !drain.hooks.is_empty() {
        let hooks = drain.hooks.join(", ");
        let summary = format!("draining machine {name} waits for somebody to set {hooks}");
        let finding = Finding::blocked(Cause::DrainHooks, summary).about(&plan.secret).since(since);
        return Some(finding.brief("waits for drain hooks").until(hooks).next(format!(
            "whoever these hooks belong to sets them on Secret {} to the value of the pre-drain or post-drain annotation",
            &plan.secret.name()
        )));
    }
    if let Some(blocked) = removal::drain_blocked(machine) {
        return Some(blocked.until("the budget to allow it"));
    }
    let summary = format!("the node of machine {name} is being drained");
    let finding = Finding::patient(Cause::Draining, since, limit::DRAIN, now, &summary);
    Some(finding.about(&plan.secret).brief("draining").until("its pods to move"))
}

fn probes(evidence: &Evidence, machine: &Object, now: Timestamp) -> Option<Finding> {
    let plan = evidence.plan(machine).filter(|plan| plan.applied)?;
    let name = machine.name();
    let since = plan.delivered_at();
    let Some(sick) = &plan.sick_probes else {
        // Agents that never probed have no probes in their plan.
        return None;
    };
    if sick.is_empty() {
        return None;
    }
    let names: Vec<_> = sick.iter().map(|probe| probe.name.as_str()).collect();
    let names = names.join(", ");
    let summary = match sick.len() {
        1 => format!("probe {names} does not pass on machine {name}"),
        _ => format!("probes {names} do not pass on machine {name}"),
    };
    // A node that was fine before gets no grace.
    let limit = if plan.probes_passed() { 60 } else { limit::PROBES };
    let finding = Finding::patient(Cause::ProbesFailing, since, limit, now, &summary);
    let mut finding =
        finding.about(&plan.secret).brief(format!("waiting for probes: {names}")).until("the probes to pass");
    for probe in sick {
        let at = probe.url.as_deref().map(|url| format!(" at {url}")).unwrap_or_default();
        let text = match probe.failures {
            0 => format!("has not been tried yet{at}"),
            1 => format!("failed once{at}"),
            count => format!("failed {count} times in a row{at}"),
        };
        finding = finding.exhibit(format!("probe {}", probe.name), text);
    }
    let roles = Roles::of(machine);
    let unit = plan.distro().unit(roles.etcd || roles.control_plane);
    Some(finding.next(on_machine(machine, &format!("journalctl -u {unit} -n 100"))))
}

/// What the planner says about it.
fn turn(evidence: &Evidence, machine: &Object, _: Timestamp) -> Option<Finding> {
    let reconciled = machine.condition(condition::RECONCILED).filter(|condition| !condition.is_true())?;
    let message = reconciled.message;
    let summary = match message {
        "" => format!("machine {} waits for the planner", machine.name()),
        message => format!("machine {}: {message}", machine.name()),
    };
    let cause = match waits_for(evidence, machine, waiting::reason::CLUSTER_AGENT) {
        true => Cause::ClusterAgentNotConnected,
        false => Cause::WaitingForTurn,
    };
    let brief = if message.is_empty() { "waiting for its turn" } else { message };
    Some(Finding::waiting(cause, summary).brief(brief).since(reconciled.since).until("its turn"))
}

/// Whether the planner says that a machine waits for this.
fn waits_for(evidence: &Evidence, machine: &Object, code: &str) -> bool {
    let status = evidence
        .control_plane
        .as_ref()
        .and_then(|control_plane| control_plane.0.pointer("/status/waitingFor"));
    let list = |key: &str| status.and_then(|status| status[key].as_array()).into_iter().flatten();
    list("machines").any(|name| name == machine.name())
        && list("reasons").any(|reason| reason["code"] == code)
}

fn node(evidence: &Evidence, machine: &Object, now: Timestamp) -> Option<Finding> {
    let name = machine.name();
    let node = machine.text("/status/nodeRef/name");
    if node.is_empty() {
        let plan = evidence.plan(machine);
        let since = plan.and_then(Plan::delivered_at);
        let known = evidence.can_read(kind::SECRETS);
        if plan.is_none_or(|plan| !plan.delivered) && known && !foreign(machine) {
            let summary = format!("machine {name} has no plan yet");
            let since =
                machine.condition(capi::condition::INFRASTRUCTURE_READY).and_then(|ready| ready.since);
            let finding = Finding::waiting(Cause::WaitingForTurn, summary).since(since);
            return Some(finding.brief("waiting for its turn").until("the machines before it"));
        }
        let summary = format!("machine {name} has not become a Node");
        let finding = Finding::patient(Cause::NodeMissing, since, limit::NODE, now, &summary);
        let finding = finding.brief("joining").until("its Node");
        return Some(
            finding
                .condition(machine, capi::condition::NODE_READY)
                .next(on_machine(machine, "journalctl -n 100")),
        );
    }
    for kind in [capi::condition::NODE_READY, capi::condition::NODE_HEALTHY, capi::condition::READY] {
        let Some(condition) = machine.condition(kind).filter(|condition| !condition.is_true()) else {
            continue;
        };
        let silent = condition.reason == NODE_READY_UNKNOWN;
        let summary = match kind {
            capi::condition::READY => format!("machine {name} is not ready"),
            _ if silent => format!(
                "the kubelet of machine {name} has stopped to report, and its agent tells of no fault: the machine is \
                 frozen or cut off from its cluster"
            ),
            _ => format!("Node {node} of machine {name} is not healthy"),
        };
        let finding = Finding::patient(Cause::NodeUnhealthy, condition.since, limit::NODE, now, &summary);
        let finding = finding.brief("its Node is not healthy").until(format!("Node {node}"));
        let finding = finding.condition(machine, kind);
        return Some(match silent && !evidence.hosts.contains_key(name) {
            true => unreachable_machine(evidence, finding, machine),
            false => finding.next(on_machine(machine, "journalctl -n 100")),
        });
    }
    None
}
