//! Making Machines.
//!
//! A Machine is made last, after the objects behind it, which have its name and belong to the set until it is
//! there. So they are the record of what was begun: after a crash, or when an answer got lost, their names are
//! used again and a Machine that exists already is met instead of made twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions},
    core::ObjectMeta,
};
use remuda_api::core::{ContractReference, Machine, MachineDeletion, MachineSpec};
use remuda_control::{Informer, Kind, ObjectKey, Scope, write::is_controlled_by};
use remuda_names::capi::{annotation, finalizer, label};
use remuda_rollout::{
    condition::old::{OldCondition, Severity},
    name,
    set::{Candidate, machine_labels, orphans},
};

use super::Pass;
use crate::{
    error::{Error, is_code},
    imprint,
    managed::{controller, plain_owner},
    providers::{Clone, Provided},
    save::PATIENCE,
};

/// Clones by the UID of every owner.
const BY_OWNER: &str = "owner";
/// How long the first list of clones may take.
const FIRST_LIST: Duration = Duration::from_secs(10);
/// How many names are tried for one Machine. Even the second is never needed, except by mischief.
const NAMES: usize = 4;
/// What a Node's deletion waits for at most, where nobody says otherwise; admission fills in the same.
const NODE_DELETION_TIMEOUT: i32 = 10;

/// What went wrong, in the words of v1beta1.
const BOOTSTRAP_FAILED: &str = "BootstrapTemplateCloningFailed";
const INFRASTRUCTURE_FAILED: &str = "InfrastructureTemplateCloningFailed";
const CREATION_FAILED: &str = "MachineCreationFailed";

/// Objects behind Machines that never came to be, by name.
type Leftovers = BTreeMap<String, Vec<Leftover>>;

struct Leftover {
    resource: ApiResource,
    meta: ObjectMeta,
    /// Made from the template the set has now.
    fitting: bool,
}

impl Pass<'_> {
    pub(super) async fn create(&mut self, count: usize) -> Result<(), Error> {
        let unreadable = self.capi.machines.unreadable();
        if let Some(key) = unreadable.iter().find(|key| key.namespace == self.key.namespace) {
            return Err(Error::Invalid(format!("Machine {key} cannot be read and may be one of ours")));
        }
        let mut leftovers = self.leftovers().await?;
        let mut result = Ok(());
        if self.templates.exist() {
            let usable = leftovers.iter().filter(|(_, parts)| parts.iter().all(|part| part.fitting));
            let usable: Vec<String> = usable.map(|(name, _)| name.clone()).take(count).collect();
            let mut made = BTreeSet::new();
            for name in usable {
                leftovers.remove(&name);
                result = self.create_named(&name).await.map(drop);
                made.insert(name);
                if result.is_err() {
                    break;
                }
            }
            for slot in made.len()..count {
                if result.is_err() {
                    break;
                }
                result = self.create_fresh(slot).await;
            }
        }
        let removed = self.remove(leftovers).await;
        result.and(removed)
    }

    /// Removes what was left by creations that nobody wants any more.
    pub(super) async fn tidy(&mut self) -> Result<(), Error> {
        let leftovers = self.leftovers().await?;
        self.remove(leftovers).await
    }

    /// Makes one Machine under a new name. The name follows from the state of the set: whoever acts on the
    /// same state again gets the same name.
    async fn create_fresh(&mut self, slot: usize) -> Result<(), Error> {
        for attempt in 0..NAMES {
            let name = self.fresh_name(slot, attempt)?;
            if self.create_named(&name).await? {
                return Ok(());
            }
        }
        Err(Error::Invalid(format!("no free name for another Machine of MachineSet {}", self.key)))
    }

    fn fresh_name(&self, slot: usize, attempt: usize) -> Result<String, Error> {
        let uid = self.set.metadata.uid.as_deref().unwrap_or_default();
        let version = self.set.metadata.resource_version.as_deref().unwrap_or_default();
        let (slot, attempt) = (slot.to_string(), attempt.to_string());
        let random = name::suffix(&[uid, version, &slot, &attempt]);
        let spare = name::suffix(&[uid, version, &slot, &attempt, "spare"]);
        let template = Some(self.set.spec.machine_naming.template.as_str()).filter(|text| !text.is_empty());
        name::of_machine(template, &self.set.spec.cluster_name, &self.set.name_any(), &random, &spare)
            .map_err(|error| Error::Invalid(format!("spec.machineNaming.template: {error}")))
    }

    /// Makes one Machine and what is behind it. False if the name is somebody else's.
    async fn create_named(&mut self, name: &str) -> Result<bool, Error> {
        let mut spec = self.set.spec.template.spec.clone();
        spec.cluster_name = self.set.spec.cluster_name.clone();
        spec.bootstrap.config_ref = ContractReference::default();
        if let Some(template) = self.templates.bootstrap.here().cloned() {
            match self.clone_template(&template, name).await {
                Ok(Some(reference)) => spec.bootstrap.config_ref = reference,
                Ok(None) => return Ok(false),
                Err(error) => return Err(self.failed(BOOTSTRAP_FAILED, error)),
            }
        }
        let Some(template) = self.templates.infrastructure.here().cloned() else {
            return Ok(false);
        };
        match self.clone_template(&template, name).await {
            Ok(Some(reference)) => spec.infrastructure_ref = reference,
            Ok(None) => return Ok(false),
            Err(error) => return Err(self.failed(INFRASTRUCTURE_FAILED, error)),
        }
        let machine = self.machine(name, spec);
        match self.create_machine(&machine).await {
            Ok(made) => Ok(made),
            Err(error) => Err(self.failed(CREATION_FAILED, error)),
        }
    }

    fn failed(&mut self, reason: &str, error: Error) -> Error {
        let message = remuda_control::Chain(&error).to_string();
        self.uncreated = Some(OldCondition::bad("MachinesCreated", Severity::Error, reason, message));
        error
    }

    fn machine(&self, name: &str, mut spec: MachineSpec) -> Machine {
        spec.deletion = with_default(&spec.deletion);
        let mut machine = Machine::new(name, spec);
        machine.metadata.namespace = Some(self.namespace().to_owned());
        machine.metadata.labels = Some(self.machine_labels());
        machine.metadata.annotations = Some(self.set.spec.template.metadata.annotations.clone());
        machine.metadata.finalizers = Some(vec![finalizer::MACHINE.to_owned()]);
        machine.metadata.owner_references = Some(vec![controller(&self.set)]);
        machine
    }

    pub(super) fn machine_labels(&self) -> BTreeMap<String, String> {
        let deployment = self.set.labels().get(label::DEPLOYMENT_NAME).map(String::as_str);
        machine_labels(&self.set.spec.template.metadata.labels, &self.set.name_any(), deployment)
    }

    /// True if the Machine is there and ours afterwards.
    async fn create_machine(&mut self, machine: &Machine) -> Result<bool, Error> {
        let name = machine.name_any();
        let api = self.capi.api::<Machine>(self.namespace());
        match api.create(&as_set(), machine).await {
            Ok(created) => {
                self.sets.pending.wrote(&self.key, &created);
                self.sets.creations.lock().made(&self.cluster_key(), &self.pool(), self.now);
                let note = format!("Created Machine {name:?}");
                self.capi.ctx.recorder.normal(&self.set, "SuccessfulCreate", "Create", note);
                Ok(true)
            }
            Err(error) if is_code(&error, 409) => {
                let found =
                    api.get_opt(&name).await.map_err(Error::api("read", format!("Machine {name}")))?;
                let ours = found.filter(|found| {
                    let uid = self.set.metadata.uid.as_deref().unwrap_or_default();
                    is_controlled_by(&found.metadata, uid)
                });
                if let Some(ours) = &ours {
                    // Made before, by whoever acted on the same state.
                    self.sets.pending.wrote(&self.key, ours);
                }
                Ok(ours.is_some())
            }
            Err(source) => Err(Error::Api { verb: "create", what: format!("Machine {name}"), source }),
        }
    }

    /// Makes the object a template describes, or finds it made for us before. `None` if the name is taken.
    async fn clone_template(
        &self,
        template: &Provided,
        name: &str,
    ) -> Result<Option<ContractReference>, Error> {
        let clone = Clone {
            template,
            name,
            cluster: &self.set.spec.cluster_name,
            owner: plain_owner(&self.set),
            labels: &self.machine_labels(),
            annotations: &self.set.spec.template.metadata.annotations,
        };
        let (resource, object) = clone.make();
        let api: Api<DynamicObject> = self.capi.providers.api(&resource, self.namespace());
        let what = || crate::providers::named(&resource, self.namespace(), name);
        let made = match api.create(&as_set(), &object).await {
            Ok(made) => made,
            Err(error) if is_code(&error, 409) => {
                let found = api.get_opt(name).await.map_err(Error::api("read", what()))?;
                let ours = found.filter(|found| {
                    found.metadata.deletion_timestamp.is_none()
                        && found
                            .owner_references()
                            .iter()
                            .any(|owner| Some(&owner.uid) == self.set.metadata.uid.as_ref())
                });
                match ours {
                    Some(found) => found,
                    None => return Ok(None),
                }
            }
            Err(source) => return Err(Error::Api { verb: "create", what: what(), source }),
        };
        // The next look for leftovers must see it.
        if let (Ok(cache), Some(version)) =
            (self.clones(&resource.group, &resource.kind).await, made.resource_version())
        {
            cache.wait_for(&version, PATIENCE).await;
        }
        Ok(Some(ContractReference { api_group: resource.group, kind: resource.kind, name: name.to_owned() }))
    }

    /// The cache of a kind of clones.
    pub(super) async fn clones(&self, group: &str, kind: &str) -> Result<Informer<DynamicObject>, Error> {
        let resolved = self.capi.providers.resolve(group, kind, &self.interest()).await?;
        let cache = self.capi.ctx.informers.dynamic(&resolved.resource, Scope::all());
        let known = Kind::of::<DynamicObject>(&resolved.resource);
        if self.sets.indexed.lock().insert(known) {
            cache.add_index(BY_OWNER, |object| {
                object.owner_references().iter().map(|owner| owner.uid.clone()).collect()
            });
        }
        if tokio::time::timeout(FIRST_LIST, cache.wait_synced()).await.is_err() {
            return Err(Error::NotServed { kind: kind.to_owned(), group: group.to_owned() });
        }
        Ok(cache)
    }

    /// What was made for Machines that do not exist.
    async fn leftovers(&self) -> Result<Leftovers, Error> {
        let mut leftovers = Leftovers::new();
        let uid = self.set.metadata.uid.as_deref().unwrap_or_default();
        let spec = &self.set.spec.template.spec;
        for reference in [&spec.bootstrap.config_ref, &spec.infrastructure_ref] {
            let Some(kind) = reference.kind.strip_suffix("Template").filter(|_| reference.is_defined())
            else {
                continue;
            };
            let cache = self.clones(&reference.api_group, kind).await?;
            let found = cache.by_index(BY_OWNER, uid);
            if found.is_empty() {
                continue;
            }
            let candidates: Vec<Candidate> = found
                .iter()
                .map(|clone| Candidate {
                    name: clone.name_any(),
                    owned_by_set: true,
                    deleting: clone.metadata.deletion_timestamp.is_some(),
                })
                .collect();
            let referenced: BTreeSet<String> = candidates
                .iter()
                .filter(|candidate| self.is_referred_to(&candidate.name))
                .map(|candidate| candidate.name.clone())
                .collect();
            let lost: BTreeSet<&str> = orphans(&candidates, &referenced).into_iter().collect();
            for clone in found.iter().filter(|clone| lost.contains(clone.name_any().as_str())) {
                let annotations = clone.annotations();
                let group_kind = format!("{}.{}", reference.kind, reference.api_group);
                let fitting = annotations.get(annotation::CLONED_FROM_NAME) == Some(&reference.name)
                    && annotations.get(annotation::CLONED_FROM_GROUP_KIND) == Some(&group_kind);
                let resource = cache.kind().api_resource();
                let leftover = Leftover { resource, meta: clone.metadata.clone(), fitting };
                leftovers.entry(clone.name_any()).or_default().push(leftover);
            }
        }
        Ok(leftovers)
    }

    /// Objects behind a Machine have its name, whoever made it.
    fn is_referred_to(&self, name: &str) -> bool {
        self.capi.machines.get(&self.key.sibling(name)).is_some()
    }

    async fn remove(&self, leftovers: Leftovers) -> Result<(), Error> {
        for (name, parts) in leftovers {
            let machines = self.capi.api::<Machine>(self.namespace());
            let machine = machines.get_metadata_opt(&name).await;
            // A cache may lag; who deletes on an absence must be sure of it.
            if machine.map_err(Error::api("read", format!("Machine {name}")))?.is_some() {
                continue;
            }
            for Leftover { resource, meta, .. } in parts {
                let preconditions = Preconditions { uid: meta.uid, resource_version: meta.resource_version };
                let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                match self.capi.providers.api(&resource, self.namespace()).delete(&name, &params).await {
                    Ok(_) => {}
                    // Gone, or changed: then it is looked at again.
                    Err(error) if is_code(&error, 404) || is_code(&error, 409) => {}
                    Err(source) => {
                        let what = crate::providers::named(&resource, self.namespace(), &name);
                        return Err(Error::Api { verb: "delete", what, source });
                    }
                }
            }
        }
        Ok(())
    }
}

fn as_set() -> PostParams {
    PostParams { field_manager: Some(imprint::SET.to_owned()), ..PostParams::default() }
}

/// Timeouts with what admission fills in.
pub(super) fn with_default(deletion: &MachineDeletion) -> MachineDeletion {
    let mut deletion = deletion.clone();
    deletion.node_deletion_timeout_seconds.get_or_insert(NODE_DELETION_TIMEOUT);
    deletion
}

/// Key of the object behind a Machine.
pub(super) fn key_of(machine: &Machine, reference: &ContractReference) -> ObjectKey {
    ObjectKey::of(&machine.metadata).sibling(&reference.name)
}
