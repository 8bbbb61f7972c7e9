//! One pass over a cluster: gates in order, then tiers.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use remuda_distro::Distro;
use remuda_names::rancher::{condition, label, secret_type};
use remuda_plan::naming::safe_concat_name;

use crate::{
    desired::Renderer,
    election::{self, Election},
    entry::Entry,
    input::{Input, StateSecret, Tokens},
    join::{self, Servers},
    operation,
    output::{Again, Failure, Outcome, Output, Report, TierName, Verdict, Waiting, Write},
    quorum::Members,
    spec::{ConditionStatus, ControlPlaneStatus, UpgradeStrategy},
    tier::{self, Join, Shared, Tier, Unclean},
};

/// Why a pass ends before its last phase.
pub(crate) enum Stop {
    Stopped,
    Waiting(Waiting),
    Again(Again),
    Failed(Failure),
}

impl From<Waiting> for Stop {
    fn from(waiting: Waiting) -> Stop {
        Stop::Waiting(waiting)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

pub(crate) struct Pass<'a> {
    pub(crate) input: &'a Input,
    /// By name.
    pub(crate) entries: Vec<Entry<'a>>,
    pub(crate) tokens: &'a Tokens,
    pub(crate) status: ControlPlaneStatus,
    pub(crate) writes: Vec<Write>,
    pub(crate) reports: BTreeMap<String, Report>,
    /// When time alone changes the decision.
    pub(crate) look_again: Option<Timestamp>,
}

impl Pass<'_> {
    /// Something is to be decided again at this time, if none is earlier.
    pub(crate) fn look_again(&mut self, at: Option<Timestamp>) {
        self.look_again = [self.look_again, at].into_iter().flatten().min();
    }
}

type Phase = fn(&mut Pass<'_>) -> Result<(), Stop>;

/// Earlier phases outrank later ones. A cluster whose machines are stopped does nothing else. The four operations come
/// before the pause: once begun they are finished.
const PHASES: &[Phase] = &[
    deleting,
    conditions,
    version,
    release_data,
    cluster,
    join_urls,
    roles,
    state,
    operation::hibernation::run,
    operation::snapshot::create,
    operation::restore::run,
    operation::snapshot::delete,
    operation::certificates::rotate,
    operation::renewal::run,
    operation::encryption::rotate,
    paused,
    etcd_replaced,
    reconcile,
];

/// Decides what to do about one cluster now.
///
/// Total: any input gets an answer. Carrying out the answer and asking again with the changed input
/// converges; asking again with the same input gives the same answer.
pub fn plan(input: &Input) -> Output {
    let (pass, stop) = run(input, input.machines.iter().map(Entry::new).collect());
    finish(pass, stop)
}

/// The plans that were made while it was decided, by machine. Machines that were not looked at have none.
pub(crate) fn wanted(input: &Input) -> BTreeMap<String, Vec<u8>> {
    let noting = |machine| Entry { wanted: Some(RefCell::default()), ..Entry::new(machine) };
    let (pass, _) = run(input, input.machines.iter().map(noting).collect());
    let noted = pass.entries.into_iter().filter_map(|entry| {
        let plan = entry.wanted?.into_inner();
        (!plan.is_empty()).then(|| (entry.machine.name.clone(), plan))
    });
    noted.collect()
}

fn run<'a>(input: &'a Input, mut entries: Vec<Entry<'a>>) -> (Pass<'a>, Option<Stop>) {
    entries.sort_unstable_by(|one, other| one.machine.name.cmp(&other.machine.name));
    let tokens = match &input.state {
        StateSecret::Present(tokens) => tokens,
        _ => &input.fresh_tokens,
    };
    let mut pass = Pass {
        input,
        entries,
        tokens,
        status: input.control_plane.status.clone(),
        writes: Vec::new(),
        reports: BTreeMap::new(),
        look_again: None,
    };
    let stop = PHASES.iter().find_map(|phase| phase(&mut pass).err());
    (pass, stop)
}

fn finish(pass: Pass<'_>, stop: Option<Stop>) -> Output {
    let control_plane = &pass.input.control_plane;
    let now = pass.input.now;
    let mut status = pass.status;
    let mut set = |kind: &str, value: ConditionStatus, reason: &str, message: &str| {
        status.set(kind, value, reason, message, now);
    };
    let outcome = match stop {
        None => {
            for kind in [condition::READY, condition::STABLE, condition::RECONCILED] {
                set(kind, ConditionStatus::True, "", "");
            }
            status.applied_spec = Some(control_plane.stored_spec.clone());
            status.waiting_for = None;
            Outcome::Settled
        }
        Some(Stop::Stopped) => Outcome::Stopped,
        Some(Stop::Waiting(waiting)) => {
            set(condition::READY, ConditionStatus::Unknown, "Waiting", &waiting.to_string());
            let carried_out = control_plane.status.applied_spec.as_ref() == Some(&control_plane.stored_spec);
            if !carried_out {
                let message = "RKEControlPlane has not been fully reconciled yet";
                set(condition::RECONCILED, ConditionStatus::Unknown, "Waiting", message);
            }
            status.waiting_for = Some(waiting.as_data());
            Outcome::Waiting(waiting)
        }
        Some(Stop::Again(again)) => {
            // The pass was about something else; what it set on the way is set again by the next.
            if again != Again::Conditions {
                status = control_plane.status.clone();
            }
            Outcome::Again(again)
        }
        Some(Stop::Failed(failure)) => {
            for kind in [condition::READY, condition::RECONCILED] {
                set(kind, ConditionStatus::False, "Error", &failure.to_string());
            }
            status.waiting_for = None;
            Outcome::Failed(failure)
        }
    };
    Output { writes: pass.writes, status, machines: pass.reports, outcome, look_again: pass.look_again }
}

fn deleting(pass: &mut Pass<'_>) -> Result<(), Stop> {
    if pass.input.control_plane.deleting { Err(Stop::Stopped) } else { Ok(()) }
}

/// CAPI reads these three and cannot do without.
fn conditions(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let kinds = [condition::SCALING_UP, condition::SCALING_DOWN, condition::ROLLING_OUT];
    if kinds.iter().all(|kind| pass.status.condition(kind).is_some()) {
        pass.status.observed_generation = pass.input.control_plane.generation;
        return Ok(());
    }
    for kind in kinds {
        pass.status.set(kind, ConditionStatus::False, "", "", pass.input.now);
    }
    Err(Stop::Again(Again::Conditions))
}

fn version(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let control_plane = &pass.input.control_plane;
    let version = &control_plane.spec.kubernetes_version;
    match semver::Version::parse(version.strip_prefix('v').unwrap_or(version)) {
        Ok(_) => Ok(()),
        Err(reason) => Err(Stop::Failed(Failure::Version {
            namespace: control_plane.namespace.clone(),
            name: control_plane.name.clone(),
            version: version.clone(),
            reason: reason.to_string(),
        })),
    }
}

fn release_data(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let control_plane = &pass.input.control_plane;
    if pass.input.release.is_usable() {
        return Ok(());
    }
    Err(Stop::Waiting(Waiting::ReleaseData {
        namespace: control_plane.namespace.clone(),
        name: control_plane.name.clone(),
        version: control_plane.spec.kubernetes_version.clone(),
    }))
}

fn cluster(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let Some(cluster) = &pass.input.cluster else { return Err(Waiting::Cluster.into()) };
    if cluster.deleting {
        if cluster.paused {
            pass.writes.push(Write::Unpause);
        }
        return Err(Stop::Stopped);
    }
    if !cluster.infrastructure_provisioned {
        return Err(Waiting::Infrastructure.into());
    }
    Ok(())
}

fn join_urls(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let distro = Distro::of(&pass.input.control_plane.spec.kubernetes_version);
    let writes = join::maintain(&pass.entries, distro);
    if writes.is_empty() {
        return Ok(());
    }
    pass.writes.extend(writes);
    Err(Stop::Again(Again::JoinUrls))
}

/// A cluster needs every role, held by a machine that stays.
fn roles(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let control_plane = &pass.input.control_plane;
    let now = pass.input.now;
    let staying = || pass.entries.iter().filter(|entry| !entry.machine.deleting);
    let etcd_stays = staying().any(|entry| entry.roles.etcd);
    if etcd_stays
        && staying().any(|entry| entry.roles.control_plane)
        && staying().any(|entry| entry.roles.worker)
    {
        pass.status.set(condition::PROVISIONED, ConditionStatus::True, "", "", now);
        return Ok(());
    }
    pass.status.set(condition::STABLE, ConditionStatus::False, "", "", now);
    if pass.status.control_plane_initialized() {
        pass.status.initialization.control_plane_initialized = Some(false);
        let (namespace, name) = (control_plane.namespace.clone(), control_plane.name.clone());
        return Err(Waiting::Uninitializing { namespace, name }.into());
    }
    if pass.input.cluster.as_ref().is_some_and(|cluster| !cluster.control_plane_not_initialized) {
        pass.writes.push(Write::ClusterNotInitialized);
    }
    let leaving: Vec<&str> = pass.entries.iter().filter(|entry| entry.roles.etcd).map(Entry::name).collect();
    // While an etcd machine stays, those that leave do so one by one, and etcd is asked. When none stays,
    // they are let go at once only if there is nothing on them: what deletes all of them at a time is
    // rather a health check that cannot reach them than a person who wants to lose the cluster.
    if etcd_stays || leaving.is_empty() {
        return Err(Waiting::Roles.into());
    }
    let members = Members::of_entries(&pass.entries);
    if !members.is_empty() {
        let machines = members.names().map(str::to_owned).collect();
        return Err(Waiting::LastMembers { machines }.into());
    }
    let forced = leaving.into_iter().map(|machine| Write::ForceRemove { machine: machine.to_owned() });
    pass.writes.extend(forced);
    Err(Waiting::EtcdDeleted.into())
}

/// Tokens are made once. Making them again would lock every node out.
fn state(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let control_plane = &pass.input.control_plane;
    if control_plane.spec.unmanaged_config {
        static NONE: Tokens = Tokens { server: String::new(), agent: String::new() };
        pass.tokens = &NONE;
        return Ok(());
    }
    let name = safe_concat_name(&[&control_plane.name, "rke", "state"]);
    let namespace = control_plane.namespace.clone();
    match &pass.input.state {
        StateSecret::Present(_) => Ok(()),
        StateSecret::WrongType(found) => {
            let (found, expected) = (found.clone(), secret_type::CLUSTER_STATE);
            Err(Failure::StateType { namespace, name, found, expected }.into())
        }
        StateSecret::Missing if pass.entries.iter().any(|entry| entry.node.is_some()) => {
            Err(Failure::StateMissing { namespace, name }.into())
        }
        StateSecret::Missing => {
            pass.writes.push(Write::CreateState { name, tokens: pass.input.fresh_tokens.clone() });
            Ok(())
        }
    }
}

fn paused(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let paused =
        pass.input.control_plane.paused || pass.input.cluster.as_ref().is_some_and(|cluster| cluster.paused);
    if paused { Err(Waiting::Paused.into()) } else { Ok(()) }
}

fn etcd_replaced(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let known = |entry: &Entry<'_>| !entry.join_url().is_empty() || !entry.joined_to().is_empty();
    let started = pass.status.is_true(condition::BOOTSTRAPPED) || pass.entries.iter().any(known);
    if !started || pass.entries.iter().any(|entry| entry.roles.etcd && entry.node.is_some()) {
        return Ok(());
    }
    pass.status.set(condition::STABLE, ConditionStatus::False, "", "", pass.input.now);
    Err(Waiting::EtcdReplaced.into())
}

fn init_or_deleting(entry: &Entry<'_>) -> bool {
    entry.init || entry.machine.deleting
}

fn not_init_or_deleting(entry: &Entry<'_>) -> bool {
    !entry.init || entry.machine.deleting
}

/// What is to be spared when plans are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// Pods are moved away first, a few machines change at a time, etcd keeps its quorum.
    Full,
    /// Nothing runs that could be disturbed.
    None,
}

fn reconcile(pass: &mut Pass<'_>) -> Result<(), Stop> {
    reconcile_all(pass, Care::Full)
}

pub(crate) fn reconcile_all(pass: &mut Pass<'_>, care: Care) -> Result<(), Stop> {
    let input = pass.input;
    let spec = &input.control_plane.spec;
    let fixed = input.control_plane.labels.get(label::INIT_NODE_MACHINE_ID).map_or("", String::as_str);
    let established = election::established(&pass.entries, &pass.status);
    let server = match election::elect(&pass.entries, fixed, established) {
        Election::Elected(url) => url,
        Election::Waiting(waiting) => return Err(waiting.into()),
        Election::Move(writes, again) => {
            pass.writes.extend(writes);
            return Err(Stop::Again(again));
        }
    };
    let careless = UpgradeStrategy::default();
    let strategy = if care == Care::Full { &spec.upgrade_strategy } else { &careless };
    let renderer = Renderer::new(input, pass.tokens, pass.status.control_plane_initialized());
    let servers = Servers::new(&pass.entries);
    let mut members = match care {
        Care::Full => Members::of_entries(&pass.entries),
        Care::None => Members::default(),
    };
    let mut conditioned = BTreeSet::new();
    let mut ignored: Option<Waiting> = None;
    let mut run = |pass: &mut Pass<'_>, tier: &Tier<'_>| -> Result<(), Stop> {
        let mut shared = Shared {
            control_plane: &input.control_plane,
            entries: &pass.entries,
            renderer: &renderer,
            servers: &servers,
            members: &mut members,
            writes: &mut pass.writes,
            reports: &mut pass.reports,
            conditioned: &mut conditioned,
            pre_bootstrap: !input.pre_bootstrap.is_empty(),
        };
        match tier::reconcile(&mut shared, tier) {
            Ok(()) => Ok(()),
            Err(Unclean::Ignorable(waiting)) => {
                ignored.get_or_insert(waiting);
                Ok(())
            }
            Err(Unclean::Waiting(waiting)) => Err(waiting.into()),
            Err(Unclean::Failed(failure)) => Err(failure.into()),
        }
    };
    let servers_tier = |name, include, exclude, concurrency, server| Tier {
        name,
        include,
        exclude,
        concurrency,
        join: Join::Server(server),
        drain: &strategy.control_plane_drain_options,
        failure_threshold: 1,
        required: true,
        cure: false,
    };
    let etcd: fn(&Entry<'_>) -> bool = |entry| entry.roles.etcd;
    let control_plane: fn(&Entry<'_>) -> bool = |entry| entry.roles.control_plane;

    let bootstrap = servers_tier(TierName::Bootstrap, etcd, not_init_or_deleting, "1", "");
    let bootstrapped = run(pass, &bootstrap);
    if !server.is_empty() {
        // There is something to lose from now on. Said any earlier, a first machine that never ran could not
        // be told from a cluster whose etcd is gone.
        pass.status.set(condition::BOOTSTRAPPED, ConditionStatus::True, "", "", input.now);
    }
    let held = pass.reports.values().any(|report| matches!(report.verdict, Verdict::Quorum(_)));
    if held && bootstrapped.is_err() && !server.is_empty() {
        // The init node waits for a member that is down, and that member may be waiting for this very change.
        let etcd_tier = servers_tier(TierName::Etcd, etcd, init_or_deleting, "1", &server);
        let _ = run(pass, &Tier { cure: true, ..etcd_tier });
    }
    bootstrapped?;
    if server.is_empty() {
        return Err(Waiting::JoinUrl { after: ignored.map(Box::new) }.into());
    }
    run(pass, &servers_tier(TierName::Etcd, etcd, init_or_deleting, "1", &server))?;
    let concurrency = &strategy.control_plane_concurrency;
    run(pass, &servers_tier(TierName::ControlPlane, control_plane, init_or_deleting, concurrency, &server))?;
    let joinable = |entry: &Entry<'_>| {
        entry.roles.control_plane && !entry.machine.deleting && !entry.join_url().is_empty()
    };
    if !pass.entries.iter().any(joinable) {
        return Err(Waiting::ControlPlane.into());
    }
    if !pass.status.control_plane_initialized() {
        pass.status.initialization.control_plane_initialized = Some(true);
        return Err(Waiting::MarkingInitialized.into());
    }
    let workers = |include, failure_threshold| Tier {
        name: TierName::Worker,
        include,
        exclude: init_or_deleting,
        concurrency: &strategy.worker_concurrency,
        join: Join::Any,
        drain: &strategy.worker_drain_options,
        failure_threshold,
        required: false,
        cure: false,
    };
    run(pass, &workers(|entry| entry.roles.only_worker() && !entry.windows, 1))?;
    run(pass, &workers(|entry| entry.roles.only_worker() && entry.windows, 5))?;
    match ignored {
        Some(waiting) => Err(waiting.into()),
        None => Ok(()),
    }
}
