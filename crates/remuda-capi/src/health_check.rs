//! `MachineHealthCheck`: finds Machines that are not well and asks for their replacement.
//!
//! Reads   the MachineHealthCheck, its Cluster, the Machines it selects and their Nodes, remediation templates and
//!         requests.
//! Writes  HealthCheckSucceeded, OwnerRemediated and ExternallyRemediated of Machines, remediation requests, itself.
//! Never   deletes a Machine, and never judges what it cannot see.

mod external;
mod targets;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use remuda_api::core::{Cluster, Machine, MachineHealthCheck};
use remuda_control::{Action, Controller, Enqueuer, Informer, ObjectKey, Scope, drive};
use remuda_names::{
    annotation::WOKEN,
    capi::{condition as kind, label},
};
use remuda_rollout::{
    condition::{
        Condition, Status,
        old::{OldCondition, Severity},
    },
    health::{self, Cause, HealthCheck, Report, Rule, Trigger, Verdict},
};
use remuda_workload::{Event, What};
use tokio_util::sync::CancellationToken;

use self::{external::External, targets::Target};
use crate::{
    Capi, Error,
    enqueue::{true_since, watches_cluster},
    machine_set::amount,
    managed::{BY_CLUSTER, Begun, Managed, cluster_value, cluster_values, ensure_owner, plain_owner},
    mark::Marks,
    save::save,
    view,
};

/// Field manager of what is written to Machines.
const MANAGER: &str = "capi-machinehealthcheck";
/// How long a Machine may take to get a Node, where nobody says otherwise.
const STARTUP_TIMEOUT: i32 = 600;
/// When a workload cluster is looked at again that is connected but gave no answer.
const DOUBTFUL: Duration = Duration::from_secs(10);

struct Checks {
    capi: Arc<Capi>,
    enqueuer: Enqueuer,
    checks: Informer<MachineHealthCheck>,
}

pub(crate) async fn run(capi: Arc<Capi>, stop: CancellationToken) {
    let checks: Informer<MachineHealthCheck> = capi.ctx.informers.of(Scope::all());
    checks.add_index(BY_CLUSTER, cluster_values);
    external::index(&checks);
    let controller =
        Controller::on("machinehealthcheck", &capi.ctx, checks.clone()).workers(capi.options.workers);
    let enqueuer = controller.enqueuer();
    let by_machine = checks.clone();
    let controller = watches_cluster(controller, &capi.clusters).watches_unless(
        &capi.machines,
        says_the_same,
        move |machine| checks_of(&by_machine, machine),
    );
    let (by_cluster, woken) = (checks.clone(), enqueuer.clone());
    let _workloads = capi.workloads.subscribe(move |event| {
        if concerns(event) {
            let namespace = event.cluster.namespace.as_deref().unwrap_or_default();
            for key in by_cluster.keys_by_index(BY_CLUSTER, &cluster_value(namespace, &event.cluster.name)) {
                woken.enqueue(key);
            }
        }
    });
    let all = Arc::new(Checks { capi, enqueuer, checks });
    drive(controller, |check, all: Arc<Checks>| async move { all.reconcile(&check).await }, all, stop).await;
}

/// Nothing that a health check looks at differs.
fn says_the_same(old: &Machine, new: &Machine) -> bool {
    let node = |machine: &Machine| machine.status.as_ref().map(|status| status.node_ref.name.clone());
    old.metadata.uid == new.metadata.uid
        && old.metadata.labels == new.metadata.labels
        && old.metadata.annotations == new.metadata.annotations
        && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        && old.conditions() == new.conditions()
        && node(old) == node(new)
}

/// The checks that look at a Machine.
fn checks_of(checks: &Informer<MachineHealthCheck>, machine: &Machine) -> Vec<ObjectKey> {
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let siblings = checks.by_index(BY_CLUSTER, &cluster_value(namespace, &machine.spec.cluster_name));
    let looking = siblings.iter().filter(|check| targets::selects(check, machine));
    looking.map(|check| ObjectKey::of(&check.metadata)).collect()
}

/// Events of workload clusters that may change a verdict.
fn concerns(event: &Event) -> bool {
    match &event.what {
        What::Connected | What::Disconnected => true,
        What::Silent(_) | What::Watch => false,
        What::Node { old: Some(old), new: Some(new) } => {
            let conditions = |node: &k8s_openapi::api::core::v1::Node| {
                node.status.as_ref().and_then(|status| status.conditions.clone())
            };
            old.metadata.uid != new.metadata.uid || conditions(old) != conditions(new)
        }
        What::Node { .. } => true,
    }
}

impl Checks {
    async fn reconcile(&self, check: &MachineHealthCheck) -> Result<Action, Error> {
        let capi = &*self.capi;
        if check.metadata.deletion_timestamp.is_some() {
            return Ok(Action::AwaitChange);
        }
        let (before, cluster) = match capi.begin(check, &self.checks).await? {
            Begun::Go(check, cluster) => (check, cluster),
            Begun::Stop => return Ok(Action::AwaitChange),
        };
        let key = ObjectKey::of(&before.metadata);
        let mut pass = Pass {
            all: self,
            capi,
            now: capi.ctx.clock.now(),
            check: before.clone(),
            key,
            cluster,
            errors: Vec::new(),
            remediation_template: None,
        };
        let report = match pass.run().await {
            Ok(report) => Some(report),
            Err(error) => {
                pass.errors.push(error);
                None
            }
        };
        pass.write(&before, report).await
    }
}

/// One reconcile.
struct Pass<'a> {
    all: &'a Checks,
    capi: &'a Capi,
    key: ObjectKey,
    now: Timestamp,
    cluster: Arc<Cluster>,
    /// The check as it will be written.
    check: MachineHealthCheck,
    errors: Vec<Error>,
    /// Whether the template for requests is there, in the words of v1beta1, if anybody looked.
    remediation_template: Option<OldCondition>,
}

impl Pass<'_> {
    fn namespace(&self) -> &str {
        self.key.namespace.as_deref().unwrap_or_default()
    }

    async fn run(&mut self) -> Result<Report, Error> {
        self.check.labels_mut().insert(label::CLUSTER_NAME.to_owned(), self.cluster.name_any());
        ensure_owner(self.check.owner_references_mut(), plain_owner(&*self.cluster));
        let asked = asked(&self.check)?;
        let external = match &self.check.spec.remediation.template_ref {
            Some(reference) => match self.external(&reference.clone()).await {
                Ok(external) => Some(external),
                // Machines are judged all the same.
                Err(error) => {
                    self.errors.push(error);
                    None
                }
            },
            None => None,
        };
        let (mut targets, connected) = self.targets(external.as_ref());
        let mut cluster = health::Cluster {
            control_plane_initialized: true_since(&*self.cluster, kind::CONTROL_PLANE_INITIALIZED),
            infrastructure_ready: true_since(&*self.cluster, kind::INFRASTRUCTURE_READY),
            woken: self.cluster.annotations().get(WOKEN).and_then(|text| text.parse().ok()),
            paused: self.cluster.spec.paused == Some(true),
            connected,
        };
        let judge = |targets: &[Target], cluster| {
            let views: Vec<health::Target<'_>> = targets.iter().map(Target::view).collect();
            health::check(&asked, cluster, &views, self.now)
        };
        let mut report = judge(&targets, cluster);
        let doomed = doomed(&report);
        if !doomed.is_empty() && cluster.control_plane_initialized.is_some() {
            // A cache may be older than it knows. Who gives up a Machine must be sure.
            cluster.connected = self.confirm(&mut targets, &doomed).await;
            report = judge(&targets, cluster);
        }
        for target in &targets {
            if let Err(error) = self.act(target, &report, external.as_ref()).await {
                self.errors.push(error);
            }
        }
        Ok(report)
    }

    /// Does what was decided about one Machine, in one write to it.
    async fn act(
        &mut self,
        target: &Target,
        report: &Report,
        external: Option<&External>,
    ) -> Result<(), Error> {
        let name = &target.view.name;
        let verdict = report.verdicts.iter().find(|(known, _)| known == name).map(|(_, verdict)| verdict);
        let action = report.actions.iter().find(|(known, _)| known == name).map(|(_, action)| *action);
        let mut marks = Marks::default();
        if let Some(condition) = verdict.and_then(Verdict::condition) {
            marks.set_old.extend(verdict.and_then(old_verdict));
            marks.set.push(condition);
        }
        match (action, external) {
            (Some(health::Action::AskOwner), _) => {
                let waiting = "WaitingForRemediation";
                let told = "Waiting for remediation";
                marks.set.push(Condition::new(kind::OWNER_REMEDIATED, Status::False, waiting, told));
                marks.set_old.push(OldCondition::bad(kind::OWNER_REMEDIATED, Severity::Warning, waiting, ""));
            }
            (Some(health::Action::Request), Some(external)) => {
                let (condition, result) = self.request(external, target).await;
                marks.set.push(condition);
                if let Err(error) = result {
                    self.errors.push(error);
                }
            }
            (Some(health::Action::Request), None) => marks.set.push(self.no_template()),
            (Some(health::Action::Withdraw), Some(external)) => self.withdraw(external, target).await?,
            _ => {}
        }
        if marks.set.is_empty() {
            return Ok(());
        }
        let was = target.view.is_unhealthy();
        self.capi.mark(&target.machine, &marks, MANAGER, self.now).await?;
        if !was && matches!(verdict, Some(Verdict::Unhealthy { .. })) {
            let note =
                format!("Machine {}/{name} has been marked as unhealthy by {}", self.namespace(), self.key);
            self.capi.ctx.recorder.normal(&*target.machine, "MachineMarkedUnhealthy", "CheckHealth", note);
        }
        Ok(())
    }

    async fn write(mut self, before: &MachineHealthCheck, report: Option<Report>) -> Result<Action, Error> {
        let mut next = None;
        if let Some(report) = report {
            let size = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
            let status = self.check.status.get_or_insert_default();
            status.expected_machines = Some(size(report.targets.len()));
            status.targets.clone_from(&report.targets);
            if report.blind.is_none() {
                status.current_healthy = Some(size(report.healthy));
                status.remediations_allowed = Some(size(report.remediations_allowed));
                if self.errors.is_empty() {
                    status.observed_generation = before.metadata.generation.unwrap_or(0);
                }
                self.say(before, &report);
                next = report.next;
            } else if self.capi.workloads.health(&ObjectKey::of(&self.cluster.metadata)).connected {
                // There is a connection, so nobody will tell us when it is good again.
                next = Some(DOUBTFUL);
            }
        }
        let api = self.capi.api::<MachineHealthCheck>(self.namespace());
        if let Err(error) = save(&self.capi.ctx, &api, &self.all.checks, before, &self.check).await {
            self.errors.push(error);
        }
        match Error::join(self.errors) {
            Some(error) => Err(error),
            None => Ok(next.map_or(Action::AwaitChange, Action::RequeueAfter)),
        }
    }

    fn say(&mut self, before: &MachineHealthCheck, report: &Report) {
        let condition = report.condition();
        let restricted =
            report.short_circuit.as_ref().filter(|why| why.unhealthy > 0).map(ToString::to_string);
        let known = before.conditions().iter().find(|known| known.type_ == kind::REMEDIATION_ALLOWED);
        if let Some(message) =
            restricted.filter(|message| known.is_none_or(|known| known.message != *message))
        {
            let recorder = &self.capi.ctx.recorder;
            recorder.warning(&self.check, "RemediationRestricted", "Remediate", message);
        }
        let mut old = view::old_conditions(self.check.old_conditions_mut());
        old.set(
            match &report.short_circuit {
                None => OldCondition::good(kind::REMEDIATION_ALLOWED),
                Some(why) => {
                    let (kind, reason) = (kind::REMEDIATION_ALLOWED, "TooManyUnhealthy");
                    OldCondition::bad(kind, Severity::Warning, reason, why.to_string())
                }
            },
            self.now,
        );
        if let Some(condition) = self.remediation_template.take() {
            old.set(condition, self.now);
        }
        *self.check.old_conditions_mut() = view::write_old(&old);
        view::set(&mut self.check, vec![condition], self.now);
    }
}

/// Machines that are about to be given up for what was seen of the workload cluster.
fn doomed(report: &Report) -> BTreeSet<String> {
    let acted = report
        .actions
        .iter()
        .filter(|(_, action)| matches!(action, health::Action::AskOwner | health::Action::Request));
    let seen = acted.filter(|(name, _)| {
        report.verdicts.iter().any(|(known, verdict)| match verdict {
            Verdict::Unhealthy { causes } => known == name && !causes.contains(&Cause::Annotation),
            _ => false,
        })
    });
    seen.map(|(name, _)| name.clone()).collect()
}

/// What the check asks for.
fn asked(check: &MachineHealthCheck) -> Result<HealthCheck, Error> {
    let spec = &check.spec;
    let rules = |conditions: &[remuda_api::core::UnhealthyCondition]| -> Vec<Rule> {
        let rule = |condition: &remuda_api::core::UnhealthyCondition| Rule {
            kind: condition.kind.clone(),
            status: condition.status.clone(),
            timeout: condition.timeout_seconds.unwrap_or(0).into(),
        };
        conditions.iter().map(rule).collect()
    };
    let limits = &spec.remediation.trigger_if;
    let trigger = match (limits.unhealthy_in_range.as_str(), &limits.unhealthy_less_than_or_equal_to) {
        ("", None) => Trigger::default(),
        ("", Some(limit)) => {
            Trigger::AtMost(amount(limit, "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo")?)
        }
        (range, _) => Trigger::range(range).map_err(|error| {
            Error::Invalid(format!("spec.remediation.triggerIf.unhealthyInRange: {error}"))
        })?,
    };
    Ok(HealthCheck {
        startup_timeout: spec.checks.node_startup_timeout_seconds.unwrap_or(STARTUP_TIMEOUT).into(),
        machine_rules: rules(&spec.checks.unhealthy_machine_conditions),
        node_rules: rules(&spec.checks.unhealthy_node_conditions),
        trigger,
        external: spec.remediation.template_ref.is_some(),
    })
}

/// The verdict in the words of v1beta1.
fn old_verdict(verdict: &Verdict) -> Option<OldCondition> {
    let causes = match verdict {
        Verdict::Healthy => return Some(OldCondition::good(kind::HEALTH_CHECK_SUCCEEDED)),
        Verdict::Unhealthy { causes } => causes,
        Verdict::Pending { .. } | Verdict::NotEvaluated(_) => return None,
    };
    let told: Vec<String> = causes.iter().map(ToString::to_string).collect();
    let (reason, message) = match causes.first()? {
        Cause::Annotation => (
            "HasRemediateMachineAnnotation",
            "Marked for remediation via remediate-machine annotation".to_owned(),
        ),
        Cause::MachineCondition { .. } => ("UnhealthyMachine", told.join("; ")),
        // It never had a message.
        Cause::NodeDeleted { .. } => ("NodeNotFound", String::new()),
        Cause::Startup { .. } => ("NodeStartupTimeout", told.join("; ")),
        Cause::NodeCondition { .. } => ("UnhealthyNode", told.join("; ")),
    };
    Some(OldCondition::bad(kind::HEALTH_CHECK_SUCCEEDED, Severity::Warning, reason, message))
}
