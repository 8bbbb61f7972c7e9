//! What the planner said is carried out, in its order.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PostParams},
};
use remuda_api::{
    core::{Cluster, Machine},
    rke::{RkeBootstrap, RkeControlPlane},
};
use remuda_control::{
    ObjectKey,
    write::{
        conditions::{self, ConditionUpdate},
        owner_reference,
    },
};
use remuda_names::{
    annotation as annotations,
    capi::{annotation as capi_annotation, condition as capi_condition},
    power,
    rancher::{annotation, condition, label, secret_key, secret_type},
};
use remuda_planner::{
    input::{Input, PlanSecret, Tokens},
    output::{NOT_INITIALIZED_MESSAGE, Write},
};
use serde_json::{Value, json};

use super::ControlPlanes;
use crate::{Error, error::is_code, objects, shared::PATIENCE};

impl ControlPlanes {
    /// Carries out writes one after the other, and waits until the caches have them. One that fails ends it: the
    /// next pass sees what came of the ones before.
    pub(super) async fn carry_out(
        &self,
        key: &ObjectKey,
        object: &RkeControlPlane,
        input: &Input,
        mut versions: BTreeMap<String, String>,
        writes: &[Write],
    ) -> Result<(), Error> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let known = input
            .machines
            .iter()
            .filter_map(|machine| Some((machine.name.as_str(), machine.plan_secret.clone()?)));
        let mut secrets: BTreeMap<&str, PlanSecret> = known.collect();
        let (mut plans, mut machines) = (None, None);
        for write in writes {
            if let Some(machine) = write.plan_machine() {
                let Some(secret) = secrets.get_mut(machine) else {
                    continue;
                };
                let mut after = secret.clone();
                write.apply(&mut after, input.now);
                let version = versions.get(&secret.name).cloned().unwrap_or_default();
                if let Some(version) = self.rke.write_plan(namespace, &version, secret, &after).await? {
                    tracing::info!(control_plane = %key, machine, what = %write, "plan Secret written");
                    versions.insert(after.name.clone(), version.clone());
                    plans = Some(version);
                }
                *secret = after;
                continue;
            }
            if let Write::Reconciled { machine, message } = write {
                machines = self.reconciled(key, machine, message.as_deref()).await?.or(machines);
                continue;
            }
            self.write_other(key, object, write).await?;
        }
        // Versions grow, so the last one stands for all.
        if let Some(version) = plans {
            self.rke.plans.wait_for(&version, PATIENCE).await;
        }
        if let Some(version) = machines {
            self.rke.machines.wait_for(&version, PATIENCE).await;
        }
        Ok(())
    }

    async fn reconciled(
        &self,
        key: &ObjectKey,
        machine: &str,
        message: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let says = ConditionUpdate {
            kind: condition::RECONCILED,
            status: message.is_none().then_some(true),
            reason: if message.is_some() { "Waiting" } else { "Reconciled" },
            message: message.unwrap_or_default(),
            generation: None,
        };
        self.rke.mark(&key.sibling(machine), says).await
    }

    async fn write_other(
        &self,
        key: &ObjectKey,
        object: &RkeControlPlane,
        write: &Write,
    ) -> Result<(), Error> {
        match write {
            Write::CreateState { name, tokens } => self.create_state(object, name, tokens).await,
            Write::ForceRemove { machine } => self.force_remove(key, machine).await,
            Write::ClusterNotInitialized => self.not_initialized(key, object).await,
            Write::Pause => {
                let Some(cluster) = self.cluster_name(object) else { return Ok(()) };
                self.patch::<Cluster>(&key.sibling(cluster), json!({"spec": {"paused": true}})).await
            }
            Write::ReleaseSnapshot { name } => crate::snapshots::release(&self.rke, &key.sibling(name)).await,
            Write::Unpause => {
                let Some(cluster) = self.cluster_name(object) else { return Ok(()) };
                let patch = json!({
                    "metadata": {"annotations": {capi_annotation::PAUSED: null}},
                    "spec": {"paused": false},
                });
                self.patch::<Cluster>(&key.sibling(cluster), patch).await
            }
            Write::Power { machine, on } => {
                let power = if *on { power::RUNNING } else { power::STOPPED };
                let patch = json!({"metadata": {"annotations": {annotations::POWER: power}}});
                self.patch::<Machine>(&key.sibling(machine), patch).await
            }
            Write::Woken { at } => {
                let Some(cluster) = self.cluster_name(object) else { return Ok(()) };
                let patch = json!({
                    "metadata": {"annotations": {annotations::WOKEN: at.to_string()}},
                    "spec": {"paused": false},
                });
                self.patch::<Cluster>(&key.sibling(cluster), patch).await
            }
            Write::Plan(_)
            | Write::Annotate { .. }
            | Write::Mark { .. }
            | Write::ForgetProbes { .. }
            | Write::Reconciled { .. } => Ok(()),
        }
    }

    fn cluster_name(&self, object: &RkeControlPlane) -> Option<String> {
        objects::owner(&object.metadata, "Cluster").map(|owner| owner.name.clone())
    }

    /// Tokens are made once; somebody who made them at the same time was first.
    async fn create_state(&self, object: &RkeControlPlane, name: &str, tokens: &Tokens) -> Result<(), Error> {
        let namespace = object.namespace().unwrap_or_default();
        let data = [(secret_key::SERVER_TOKEN, &tokens.server), (secret_key::AGENT_TOKEN, &tokens.agent)];
        let data = data.map(|(key, token)| (key.to_owned(), ByteString(token.clone().into_bytes())));
        let labels = [(label::BACKUP.to_owned(), "true".to_owned())];
        let mut secret = Secret {
            type_: Some(secret_type::CLUSTER_STATE.to_owned()),
            data: Some(data.into()),
            ..Secret::default()
        };
        secret.metadata.name = Some(name.to_owned());
        secret.metadata.labels = Some(labels.into());
        secret.metadata.owner_references = Some(vec![owner_reference(object, &())?]);
        let api: Api<Secret> = self.rke.api(&namespace);
        let params = PostParams {
            field_manager: Some(self.rke.ctx.field_manager.to_string()),
            ..PostParams::default()
        };
        let created = api.create(&params, &secret).await;
        let created = created.map_err(Error::api("create", format!("Secret {namespace}/{name}")))?;
        self.rke.seen(&self.rke.secrets.metadata, Some(&created)).await;
        Ok(())
    }

    async fn force_remove(&self, key: &ObjectKey, machine: &str) -> Result<(), Error> {
        let key = key.sibling(machine);
        let Some(machine) = self.rke.machines.get(&key) else { return Ok(()) };
        let excluded = [capi_annotation::EXCLUDE_DRAIN, capi_annotation::EXCLUDE_VOLUME_DETACH];
        let is = |annotations: &BTreeMap<String, String>, key: &str| {
            annotations.get(key).is_some_and(|value| value == "true")
        };
        if !excluded.iter().all(|key| is(machine.annotations(), key)) {
            let annotations: BTreeMap<&str, &str> = excluded.iter().map(|key| (*key, "true")).collect();
            self.patch::<Machine>(&key, json!({"metadata": {"annotations": annotations}})).await?;
        }
        let Some(bootstrap) = objects::bootstrap_of(&machine) else { return Ok(()) };
        let key = key.sibling(bootstrap);
        let forced = self.rke.bootstraps.get(&key);
        if forced.is_some_and(|found| !is(found.annotations(), annotation::ETCD_FORCE_REMOVE)) {
            let patch = json!({"metadata": {"annotations": {annotation::ETCD_FORCE_REMOVE: "true"}}});
            self.patch::<RkeBootstrap>(&key, patch).await?;
        }
        Ok(())
    }

    async fn not_initialized(&self, key: &ObjectKey, object: &RkeControlPlane) -> Result<(), Error> {
        let Some(name) = self.cluster_name(object) else { return Ok(()) };
        let key = key.sibling(name);
        let Some(cluster) = self.rke.clusters.get(&key) else { return Ok(()) };
        let mut known = cluster.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let says = ConditionUpdate {
            kind: capi_condition::CONTROL_PLANE_INITIALIZED,
            status: Some(false),
            reason: "NotInitialized",
            message: NOT_INITIALIZED_MESSAGE,
            generation: None,
        };
        if !conditions::set(&mut known, says, self.rke.ctx.clock.now()) {
            return Ok(());
        }
        let metadata = json!({"uid": cluster.uid(), "resourceVersion": cluster.resource_version()});
        let patch = json!({"metadata": metadata, "status": {"conditions": known}});
        let api: Api<Cluster> = self.rke.api(key.namespace.as_deref().unwrap_or_default());
        let written = api.patch_status(&key.name, &self.rke.params(), &Patch::Merge(patch)).await;
        let written = written.map_err(Error::api("write status of", format!("Cluster {key}")))?;
        self.rke.seen(&self.rke.clusters, Some(&written)).await;
        Ok(())
    }

    /// A merge patch; an object that is gone is fine.
    async fn patch<K>(&self, key: &ObjectKey, patch: Value) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = self.rke.api(key.namespace.as_deref().unwrap_or_default());
        match api.patch(&key.name, &self.rke.params(), &Patch::Merge(patch)).await {
            Err(error) if !is_code(&error, 404) => {
                Err(Error::api("write", format!("{} {key}", K::kind(&())))(error))
            }
            _ => Ok(()),
        }
    }
}
