//! `SimulatedMachine`: a server, as its driver leaves it.
//!
//! Reads   the SimulatedMachine, its Machine and Cluster, and its bootstrap data.
//! Writes  the SimulatedMachine's label, finalizer and status, and its machine-state Secret; registers the server.
//! Never   makes a server before there is a script to boot it with.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use remuda_api::{
    core::{Cluster, Machine},
    rke::Condition,
};
use remuda_control::{
    Action, Controller, ObjectKey, Scope, drive,
    write::{self, Finalizer},
};
use remuda_names::{
    capi,
    rancher::{condition, finalizer, group, label, secret_key},
};
use remuda_plan::sha256_hex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Error, Fleet, door, kinds, record};

/// A server that could not be made is replaced after this long.
const RETIRE: Duration = Duration::from_secs(60);
/// Registrations wait for the server, so many of them are under way at once.
const WORKERS: usize = 64;
const BY_CLUSTER: &str = "cluster";

pub(super) async fn run(fleet: Arc<Fleet>, stop: CancellationToken) {
    let root = fleet.ctx.informers.dynamic(&kinds::resource(kinds::MACHINE), Scope::all());
    root.add_index(BY_CLUSTER, |object| {
        let cluster = object.labels().get(capi::label::CLUSTER_NAME);
        cluster.map(|name| ObjectKey::of(&object.metadata).sibling(name).to_string()).into_iter().collect()
    });
    let controller = Controller::on("simulated-machine", &fleet.ctx, root.clone())
        .workers(fleet.options.workers.max(WORKERS))
        .watches(&fleet.machines, |machine: &Machine| {
            let reference = &machine.spec.infrastructure_ref;
            let ours = reference.api_group == group::MACHINE && reference.kind == kinds::MACHINE;
            ours.then(|| ObjectKey::of(&machine.metadata).sibling(&reference.name)).into_iter().collect()
        })
        .watches(&fleet.clusters, move |cluster: &Cluster| {
            root.keys_by_index(BY_CLUSTER, &ObjectKey::of(&cluster.metadata).to_string())
        });
    let reconcile =
        |object: Arc<DynamicObject>, fleet: Arc<Fleet>| async move { fleet.server(&object).await };
    drive(controller, reconcile, fleet, stop).await;
}

/// The script as the driver would run it has the token in a line of its own.
fn token(script: &str) -> Option<&str> {
    let lines = script.lines().map(str::trim);
    let value = lines.filter_map(|line| {
        let line = line.strip_prefix("export ").unwrap_or(line);
        line.strip_prefix("CATTLE_TOKEN=")
    });
    value.map(|value| value.trim_matches(['"', '\''])).find(|token| !token.is_empty())
}

/// Sets a condition of Rancher's kind; times move only when something else does.
fn say(conditions: &mut Vec<Condition>, kind: &str, status: &str, message: &str, now: Timestamp) {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let wanted = Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: if status == "False" { "CreateError".to_owned() } else { String::new() },
        message: message.to_owned(),
        last_update_time: now.clone(),
        last_transition_time: now,
    };
    match conditions.iter_mut().find(|known| known.kind == kind) {
        Some(known) if known.status == wanted.status && known.message == wanted.message => {}
        Some(known) => *known = wanted,
        None => conditions.push(wanted),
    }
}

impl Fleet {
    fn servers(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.ctx.client.clone(), namespace, &kinds::resource(kinds::MACHINE))
    }

    /// The Machine of a server, once there is everything the server needs to be made.
    fn wanted(&self, object: &DynamicObject) -> Option<(Arc<Machine>, String)> {
        let key = ObjectKey::of(&object.metadata);
        let owner = object.owner_references().iter().find(|owner| owner.kind == "Machine")?;
        let machine = self.machines.get(&key.sibling(&owner.name))?;
        let cluster = self.clusters.get(&key.sibling(&machine.spec.cluster_name))?;
        let status = cluster.status.as_ref()?;
        let ready = status.initialization.infrastructure_provisioned == Some(true)
            && cluster.spec.paused != Some(true)
            && machine.metadata.deletion_timestamp.is_none();
        let bootstrap = machine.spec.bootstrap.data_secret_name.clone().filter(|name| !name.is_empty())?;
        ready.then_some((machine, bootstrap))
    }

    async fn server(&self, object: &DynamicObject) -> Result<Action, Error> {
        let key = ObjectKey::of(&object.metadata);
        let namespace = key.namespace.clone().unwrap_or_default();
        let (api, resource) = (self.servers(&namespace), kinds::resource(kinds::MACHINE));
        let object =
            match write::ensure_finalizer(&api, object.clone(), &resource, finalizer::MACHINE).await? {
                Finalizer::Active(object) => object,
                Finalizer::Deleting(object) => return self.remove(&api, &object, &key).await,
                Finalizer::Gone => return Ok(Action::AwaitChange),
            };
        let Some((machine, bootstrap)) = self.wanted(&object) else { return Ok(Action::AwaitChange) };
        let object = self.label(&api, object, &machine.name_any()).await?;
        let whose = object.uid().unwrap_or_default();
        let options = &self.options;
        if let Some(left) = self.left(&whose, "create", &options.latencies.create) {
            return Ok(Action::RequeueAfter(left));
        }
        if self.happens(&key.to_string(), "create fails", options.failures.create) {
            return self.fail(&api, &object, &machine).await;
        }
        let provider_id = object.data.pointer("/spec/providerID").and_then(Value::as_str).unwrap_or_default();
        let made = object.data.pointer("/status/ready") == Some(&Value::Bool(true));
        if !made {
            self.keep_record(&object, &key).await?;
        }
        self.tell(&api, &object, |status, conditions, now| {
            for kind in [condition::CREATE_JOB, condition::READY] {
                say(conditions, kind, "True", "", now);
            }
            status["ready"] = json!(true);
            // Once its Node is there, others write what the Node says.
            if status["addresses"].is_null() {
                let address = self.address(&key);
                status["addresses"] = json!([
                    {"type": "ExternalIP", "address": address}, {"type": "InternalIP", "address": address},
                ]);
            }
            if !provider_id.is_empty() {
                status["initialization"] = json!({"provisioned": true});
            }
        })
        .await?;
        if machine.labels().contains_key(label::MACHINE_ID) {
            return Ok(Action::AwaitChange);
        }
        if let Some(left) = self.left(&whose, "boot", &options.latencies.boot) {
            return Ok(Action::RequeueAfter(left));
        }
        if self.happens(&key.to_string(), "boot fails", options.failures.boot) {
            return Ok(Action::AwaitChange);
        }
        self.register(&key, &machine.name_any(), &bootstrap).await
    }

    async fn register(&self, key: &ObjectKey, machine: &str, bootstrap: &str) -> Result<Action, Error> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), namespace);
        let secret = secrets.get(bootstrap).await.map_err(Error::api("read Secret", bootstrap))?;
        let script = secret.data.as_ref().and_then(|data| data.get(secret_key::VALUE));
        let script = script.and_then(|script| std::str::from_utf8(&script.0).ok()).unwrap_or_default();
        let token = token(script).ok_or_else(|| Error::NoToken(bootstrap.to_owned()))?;
        let id = &sha256_hex(key.to_string().as_bytes())[..63];
        door::register(&*self.door, machine, id, token).await?;
        Ok(Action::AwaitChange)
    }

    /// The Machine is found by this label when owners are gone.
    async fn label(
        &self,
        api: &Api<DynamicObject>,
        object: DynamicObject,
        machine: &str,
    ) -> Result<DynamicObject, Error> {
        if object.labels().get(label::CAPI_MACHINE_NAME).is_some_and(|known| known == machine) {
            return Ok(object);
        }
        let patch =
            json!({"metadata": {"uid": object.uid(), "labels": {(label::CAPI_MACHINE_NAME): machine}}});
        let patched = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map_err(Error::api("label", object.name_any()))
    }

    async fn keep_record(&self, object: &DynamicObject, key: &ObjectKey) -> Result<(), Error> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), namespace);
        let secret = record::secret(object, &self.address(key)).map_err(Error::Record)?;
        write::get_or_create(&self.ctx, &secrets, &secret).await?;
        Ok(())
    }

    /// Writes what differs of a status.
    async fn tell(
        &self,
        api: &Api<DynamicObject>,
        object: &DynamicObject,
        change: impl FnOnce(&mut Value, &mut Vec<Condition>, Timestamp),
    ) -> Result<(), Error> {
        let before = object.data.get("status").filter(|status| !status.is_null());
        let mut status = before.cloned().unwrap_or_else(|| json!({}));
        let mut conditions: Vec<Condition> =
            serde_json::from_value(status["conditions"].take()).unwrap_or_default();
        change(&mut status, &mut conditions, self.ctx.clock.now());
        status["conditions"] = json!(conditions);
        let resource = kinds::resource(kinds::MACHINE);
        write::patch_status(&self.ctx, api, object, &resource, before, &status, false).await?;
        Ok(())
    }

    /// The server could not be made, and will be replaced.
    async fn fail(
        &self,
        api: &Api<DynamicObject>,
        object: &DynamicObject,
        machine: &Machine,
    ) -> Result<Action, Error> {
        let message = "failed creating server in infrastructure provider: the simulation wants it so";
        let mut since = self.ctx.clock.now();
        self.tell(api, object, |status, conditions, now| {
            for kind in [condition::CREATE_JOB, condition::READY] {
                say(conditions, kind, "False", message, now);
            }
            status["failureReason"] = json!("CreateError");
            status["failureMessage"] = json!(message);
            let told = conditions.iter().find(|known| known.kind == condition::CREATE_JOB);
            since = told.and_then(|told| told.last_transition_time.parse().ok()).unwrap_or(now);
        })
        .await?;
        let passed = self.ctx.clock.now().duration_since(since).max(SignedDuration::ZERO);
        let passed = Duration::try_from(passed).unwrap_or_default();
        if let Some(left) = RETIRE.checked_sub(passed).filter(|left| !left.is_zero()) {
            return Ok(Action::RequeueAfter(left));
        }
        let machines: Api<Machine> =
            Api::namespaced(self.ctx.client.clone(), &machine.namespace().unwrap_or_default());
        delete(&machines, &machine.name_any()).await?;
        Ok(Action::AwaitChange)
    }

    async fn remove(
        &self,
        api: &Api<DynamicObject>,
        object: &DynamicObject,
        key: &ObjectKey,
    ) -> Result<Action, Error> {
        let whose = object.uid().unwrap_or_default();
        if let Some(left) = self.left(&whose, "delete", &self.options.latencies.delete) {
            return Ok(Action::RequeueAfter(left));
        }
        // By label, since Machine and Cluster may be gone before us.
        if let Some(cluster) = object.labels().get(capi::label::CLUSTER_NAME) {
            self.power_off(&key.sibling(cluster), &key.name);
        }
        let secrets: Api<Secret> =
            Api::namespaced(self.ctx.client.clone(), key.namespace.as_deref().unwrap_or_default());
        delete(&secrets, &record::name(&key.name)).await?;
        self.forget(&whose);
        write::remove_finalizer(api, object, &kinds::resource(kinds::MACHINE), finalizer::MACHINE).await?;
        Ok(Action::AwaitChange)
    }

    /// A server is gone. Its Node stays until somebody deletes it; with the last control plane the API goes.
    fn power_off(&self, cluster: &ObjectKey, server: &str) {
        let Some(world) = self.workloads.get(cluster) else { return };
        world.set_node_ready(server, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.");
        let mut planes = self.control_planes.lock();
        if let Some(known) = planes.get_mut(cluster) {
            known.remove(server);
            if known.is_empty() {
                planes.remove(cluster);
                world.set_external(false);
            }
        }
    }
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<(), Error>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match api.delete(name, &Default::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map(drop).map_err(Error::api("delete", name)),
    }
}

#[cfg(test)]
mod tests {
    use super::token;

    #[test]
    fn the_token_is_found_in_the_script() {
        assert_eq!(token("#!/bin/sh\nCATTLE_ROLE_NONE=true\nCATTLE_TOKEN=\"abc\"\n"), Some("abc"));
        assert_eq!(token("export CATTLE_TOKEN='abc'"), Some("abc"));
        assert_eq!(token("CATTLE_TOKEN=\necho CATTLE_TOKEN"), None);
    }
}
