//! Replacing Machines that a health check has given up, and the checks before Machines are made or replaced.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{ResourceExt, api::DynamicObject};
use remuda_control::{Scope, write::controller_of};
use remuda_names::capi::{annotation, condition as kind};
use remuda_rollout::{
    amount::Amount,
    condition::old::{OldCondition, Severity},
    contract::ControlPlaneObject,
    set::{self, Budget, ControlPlane, Failure, Fate, Preflight, remediate, skipped},
};

use super::Pass;
use crate::{
    Error, imprint,
    managed::{BY_CLUSTER, cluster_value},
    mark::Marks,
    providers::{REFERENCES, reference_key},
};

impl Pass<'_> {
    pub(super) async fn remediate(&mut self) -> Result<(), Error> {
        let views = self.views();
        if !views.iter().any(|machine| machine.conditions.is_false(kind::OWNER_REMEDIATED)) {
            return Ok(());
        }
        let budget = self.budget()?;
        let sick = views.iter().any(|machine| machine.deleted.is_none() && machine.awaits_remediation());
        let mut failures =
            if sick && budget != Budget::OldRevision { self.preflight().await? } else { Vec::new() };
        // What cannot be replaced yet is not deleted.
        if let Some(throttle) = self.permit(1).held.filter(|_| sick) {
            self.retry_after = Some(throttle.after(self.now));
            failures.push(Failure::Throttled(throttle));
        }
        let decided = remediate(&views, budget, &failures);
        for name in decided.recovered {
            let remove = vec![kind::OWNER_REMEDIATED];
            let marks = Marks { remove: remove.clone(), remove_old: remove, ..Marks::default() };
            self.mark(&name, &marks).await?;
        }
        let fates = self.climb(decided.fates)?;
        let fates = self.preserved(fates)?;
        for (name, fate) in fates {
            let old = match &fate {
                Fate::Delete => vec![OldCondition::good(kind::OWNER_REMEDIATED)],
                // What speaks against it now is told; otherwise what the health check said stays.
                Fate::Held(failures) => {
                    let told: Vec<String> = failures.iter().map(ToString::to_string).collect();
                    let (kind, told) = (kind::OWNER_REMEDIATED, told.join("; "));
                    vec![OldCondition::bad(kind, Severity::Warning, "WaitingForRemediation", told)]
                }
                Fate::Old | Fate::Deferred { .. } | Fate::Preserve { .. } | Fate::Try { .. } => Vec::new(),
            };
            // The mark goes first: a Machine in deletion would never get it.
            let marks = Marks { set: vec![fate.condition()], set_old: old, ..Marks::default() };
            self.mark(&name, &marks).await?;
            match fate {
                Fate::Delete => self.delete_machine(&name).await?,
                Fate::Preserve { until } => self.preserve(&name, until).await?,
                Fate::Try { step, until, asked: false } => self.try_step(&name, step, until).await?,
                _ => {}
            }
        }
        self.sets.pending.settled(&self.key, &self.capi.machines).await;
        self.machines = Some(self.members()?);
        Ok(())
    }

    async fn mark(&self, name: &str, marks: &Marks) -> Result<(), Error> {
        let machine = self.machines.iter().flatten().find(|machine| machine.name_any() == name);
        if let Some(machine) = machine {
            self.capi.mark(machine, marks, imprint::SET, self.now).await?;
        }
        Ok(())
    }

    fn budget(&self) -> Result<Budget, Error> {
        let Some(deployment) = &self.deployment else {
            return Ok(Budget::Unlimited);
        };
        let revision = |annotations: &std::collections::BTreeMap<String, String>| {
            annotations.get(annotation::REVISION).cloned()
        };
        if revision(deployment.annotations()) != revision(self.set.annotations()) {
            return Ok(Budget::OldRevision);
        }
        let Some(limit) = &deployment.spec.remediation.max_in_flight else {
            return Ok(Budget::Unlimited);
        };
        Ok(Budget::Limited {
            max_in_flight: amount(limit, "spec.remediation.maxInFlight")?,
            replicas: deployment.spec.replicas.unwrap_or(1),
        })
    }

    /// The checks, made once in a pass at most. The set is woken when the control plane changes.
    pub(super) async fn preflight(&mut self) -> Result<Vec<Failure>, Error> {
        if let Some(known) = &self.failures {
            return Ok(known.clone());
        }
        let mut failures = self.going();
        if failures.is_empty() {
            failures = self.check().await?;
        }
        self.failures = Some(failures.clone());
        Ok(failures)
    }

    /// Nothing is made below what is being deleted: it would only be one more to delete.
    fn going(&self) -> Vec<Failure> {
        let mut going = Vec::new();
        let mut note = |kind: &str, name: &str| {
            going.push(Failure::Deleting { what: format!("{kind} {}/{name}", self.namespace()) });
        };
        if self.cluster.metadata.deletion_timestamp.is_some() {
            note("Cluster", &self.cluster.name_any());
        }
        // A set whose deployment is gone is about to be collected, whatever has the same name now.
        let owner = controller_of(&self.set.metadata).filter(|owner| owner.kind == "MachineDeployment");
        if let Some(owner) = owner {
            let deployment = self.capi.deployments.get(&self.key.sibling(&owner.name));
            let stays = deployment.is_some_and(|deployment| {
                deployment.metadata.uid.as_ref() == Some(&owner.uid)
                    && deployment.metadata.deletion_timestamp.is_none()
            });
            if !stays {
                note("MachineDeployment", &owner.name);
            }
        }
        going
    }

    async fn check(&self) -> Result<Vec<Failure>, Error> {
        let reference = &self.cluster.spec.control_plane_ref;
        let bootstrap = self.templates.bootstrap.here();
        let skip = self.set.annotations().get(annotation::SKIP_PREFLIGHT).cloned();
        let skip = skip.or_else(|| bootstrap?.object.annotations().get(annotation::SKIP_PREFLIGHT).cloned());
        let input = Preflight {
            skip: skip.map(|text| skipped(&text)).unwrap_or_default(),
            version: self.set.spec.template.spec.version.clone(),
            kubeadm: self.set.spec.template.spec.bootstrap.config_ref.kind == "KubeadmConfigTemplate",
            topology: self
                .cluster
                .spec
                .topology
                .as_ref()
                .and_then(|topology| Some(topology.get("version")?.as_str()?.to_owned())),
        };
        if !reference.is_defined() {
            return Ok(Vec::new());
        }
        let skips_all = input.skip.len() == set::Check::ALL.len();
        let found = match self.follow_control_plane().await {
            Ok(()) => self.capi.providers.get(reference, self.namespace(), &self.interest()).await,
            Err(error) => Err(error),
        };
        let found = match found {
            Ok(Some(found)) => found,
            // Whoever skips all checks does not depend on what the control plane is like.
            Ok(None) | Err(_) if skips_all => return Ok(Vec::new()),
            Ok(None) => {
                let (kind, name) = (&reference.kind, &reference.name);
                return Err(Error::Invalid(format!("{kind} {}/{name} does not exist", self.namespace())));
            }
            Err(error) => return Err(error),
        };
        if found.is_deleting() {
            let what = format!("{} {}/{}", reference.kind, self.namespace(), reference.name);
            return Ok(vec![Failure::Deleting { what }]);
        }
        if skips_all {
            return Ok(Vec::new());
        }
        let object = ControlPlaneObject { object: found.data(), contract: found.contract() };
        let control_plane = ControlPlane {
            kind: reference.kind.clone(),
            namespace: self.namespace().to_owned(),
            name: reference.name.clone(),
            version: object.version()?,
            reported: object.reported_versions()?,
        };
        Ok(set::preflight(Some(&control_plane), &input))
    }

    /// A set refers to its control plane through its Cluster only, so it is woken through that.
    async fn follow_control_plane(&self) -> Result<(), Error> {
        let reference = &self.cluster.spec.control_plane_ref;
        let (group, name) = (reference.api_group.clone(), reference.kind.clone());
        let resolved = self.capi.providers.resolve(&group, &name, &self.interest()).await?;
        let cache = self.capi.ctx.informers.dynamic(&resolved.resource, Scope::all());
        let (clusters, sets) = (self.capi.clusters.clone(), self.capi.sets.clone());
        self.sets.enqueuer.follow(&cache, move |object: &DynamicObject| {
            let namespace = object.namespace().unwrap_or_default();
            let reference = reference_key(&group, &name, &namespace, &object.name_any());
            let clusters = clusters.keys_by_index(REFERENCES, &reference);
            let below = clusters.iter().flat_map(|cluster| {
                sets.keys_by_index(BY_CLUSTER, &cluster_value(&namespace, &cluster.name))
            });
            below.collect()
        });
        Ok(())
    }
}

/// A number or a share, as users write it.
pub(crate) fn amount(text: &IntOrString, field: &str) -> Result<Amount, Error> {
    match text {
        IntOrString::Int(count) => Ok(Amount::Count(*count)),
        IntOrString::String(text) => {
            Amount::parse(text).map_err(|error| Error::Invalid(format!("{field}: {error}")))
        }
    }
}
