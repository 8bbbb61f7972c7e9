//! Doing what was decided about a machine.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Secret, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use remuda_api::core::Machine;
use remuda_control::{
    ObjectKey,
    events::{Happening, Tone},
    write,
};
use remuda_names::{
    annotation::{POWER, REBOOTED},
    driver::facts,
    machines::{self, QUEUED},
    power,
    rancher::{annotation, condition as kind, finalizer, label},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{
    Machines,
    address::Asked,
    decide::{Act, Decision},
    objects::{Blueprint, Task},
    text,
    view::{Observed, State, Status},
};
use crate::{
    condition::{self, Is},
    driver::schema::Hints,
    error::{Error, is_conflict, is_missing},
    naming,
};

/// How soon a machine that waits for something nobody watches is looked at again.
const SOON: Duration = Duration::from_secs(10);

/// What everything needs before a Job is made.
enum Ready {
    Yes(BTreeMap<String, String>),
    /// Not yet: the reason of the condition, and its text.
    No(&'static str, String),
}

impl Machines {
    pub(super) async fn act(
        &self,
        object: &DynamicObject,
        observed: &Observed,
        decision: Decision,
    ) -> Result<Option<Duration>, Error> {
        let Decision { mut status, act, mut after } = decision;
        let credential = self.credential_name(object, observed);
        let task = match &act {
            Act::Create { bootstrap, .. } => Some(Task::Create { bootstrap }),
            Act::Remove => Some(Task::Remove),
            Act::Reboot { asked } => Some(Task::Reboot { asked }),
            Act::Power { on } => Some(Task::Power { on: *on }),
            _ => None,
        };
        let mut variables = None;
        if task.is_some() {
            status.cloud_credential_secret_name.clone_from(&credential);
            match self.ready(object, &credential).await? {
                Ready::Yes(credential) => variables = Some(credential),
                Ready::No(reason, why) => {
                    after = Some(SOON);
                    let now = self.ctx.clock.now();
                    // A server that is there stays ready while it waits to be rebooted.
                    if !matches!(act, Act::Reboot { .. } | Act::Power { .. }) {
                        condition::set(&mut status.conditions, kind::READY, Is::False, reason, &why, now);
                    }
                }
            }
        }
        self.tell(object, &observed.status, &status);
        let api = self.api(&observed.namespace);
        let before = object.data.get("status").filter(|status| !status.is_null());
        let wanted = serde_json::to_value(&status)
            .map_err(|source| Error::Encode { what: observed.name.clone(), source })?;
        // A machine that is gone has nothing to be told.
        match write::patch_status(&self.ctx, &api, object, &self.resource, before, &wanted, false).await {
            Err(remuda_control::Error::Api { source, .. }) if is_missing(&source) => return Ok(None),
            written => written?,
        };
        match act {
            Act::Nothing => {}
            Act::Create { .. } | Act::Remove | Act::Reboot { .. } | Act::Power { .. } => {
                if let (Some(task), Some(variables)) = (task, variables) {
                    self.start(object, observed, &status, task, &variables).await?;
                }
            }
            Act::Claim(pool) => self.claim(object, &pool).await?,
            Act::Unclaim => self.unclaim(object).await?,
            Act::NoteReboot { asked, failure } => self.note_reboot(object, &asked, failure).await?,
            Act::NotePower { done } => self.note_power(object, &done).await?,
            Act::BarCreation => {
                self.bar_creation(observed).await?;
                // Secrets with state are not watched.
                after = Some(Duration::ZERO);
            }
            Act::CancelJob => self.cancel_job(observed).await?,
            Act::DropJob => self.drop_job(observed).await?,
            Act::Prune => self.prune(observed).await?,
            Act::Retire { machine } => {
                let machines: Api<Machine> = Api::namespaced(self.ctx.client.clone(), &observed.namespace);
                delete(&machines, &machine).await?;
            }
            Act::Release => {
                self.prune(observed).await?;
                let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), &observed.namespace);
                delete(&secrets, &naming::state_secret(&observed.name)).await?;
                self.unclaim(object).await?;
                write::remove_finalizer(&api, object, &self.resource, finalizer::MACHINE).await?;
            }
        }
        Ok(after)
    }

    /// Failures are events too.
    fn tell(&self, object: &DynamicObject, before: &Status, after: &Status) {
        if !after.failure_message.is_empty() && before.failure_message != after.failure_message {
            let (reason, action) = match after.failure_reason.as_str() {
                super::decide::DELETE_ERROR => ("DeleteError", "Remove"),
                _ => ("CreateError", "Create"),
            };
            let happening =
                Happening { tone: Tone::Warning, reason, action, note: after.failure_message.clone() };
            self.ctx.recorder.record(object, &self.resource, happening);
        }
    }

    /// The credential the spec names, else the one the server was made with.
    fn credential_name(&self, object: &DynamicObject, observed: &Observed) -> String {
        match text(&object.data, "/spec/common/cloudCredentialSecretName") {
            none if none.is_empty() => observed.status.cloud_credential_secret_name.clone(),
            named => named,
        }
    }

    async fn ready(&self, object: &DynamicObject, credential: &str) -> Result<Ready, Error> {
        let namespace = object.namespace().unwrap_or_default();
        let mut content = BTreeMap::new();
        if !credential.is_empty() {
            let (namespace, name) = naming::credential(&namespace, credential);
            let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), namespace);
            let found = secrets.get_opt(name).await.map_err(Error::api("read credential", credential))?;
            let Some(found) = found else {
                return Ok(Ready::No("Waiting", format!("waiting for cloud credential {credential}")));
            };
            for (key, value) in found.data.into_iter().flatten() {
                if let Ok(value) = String::from_utf8(value.0) {
                    content.insert(key, value);
                }
            }
        }
        let key = ObjectKey::of(&object.metadata);
        if !self.lanes.enter(&self.lane(credential), &key) {
            let limit = self.lanes.limit();
            let message = format!(
                "waiting for a slot: {limit} of {limit} servers of driver {} are being made or removed with this \
                 credential",
                self.driver
            );
            return Ok(Ready::No(QUEUED, message));
        }
        Ok(Ready::Yes(content))
    }

    fn lane(&self, credential: &str) -> String {
        let digest = remuda_plan::sha256_hex(format!("{}\n{credential}", self.driver).as_bytes());
        digest[..16].to_owned()
    }

    /// Makes the Job, after everything it needs.
    async fn start(
        &self,
        object: &DynamicObject,
        observed: &Observed,
        status: &Status,
        task: Task<'_>,
        credential: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let none = Map::new();
        let hints = self.node_driver().map(|driver| Hints::of(&driver)).unwrap_or_default();
        let cluster = object
            .labels()
            .get(label::CLUSTER_NAME)
            .or_else(|| object.labels().get(remuda_names::capi::label::CLUSTER_NAME));
        let (url, hash) = match &observed.node_driver {
            Some(driver) => (driver.url.as_str(), driver.checksum.as_str()),
            // Its driver is gone; what the server was made with removes it.
            None => (status.driver_url.as_str(), status.driver_hash.as_str()),
        };
        let lane = self.lane(&status.cloud_credential_secret_name);
        let host = match &observed.state {
            State::Machine { host: Some(host), .. } => Some(host),
            _ => self.host.as_deref(),
        };
        let capi_name = observed.capi.as_ref().map(|capi| capi.name.clone());
        let capi_name =
            capi_name.or_else(|| object.labels().get(label::CAPI_MACHINE_NAME).cloned()).unwrap_or_default();
        let cluster_tag = self.cluster_tag(&observed.namespace, cluster.map(String::as_str)).await?;
        let blueprint = Blueprint {
            namespace: &observed.namespace,
            name: &observed.name,
            kind: &observed.kind,
            driver: &self.driver,
            capi_machine: &capi_name,
            cluster: cluster.map(String::as_str).unwrap_or_default(),
            driver_url: url,
            driver_hash: hash,
            spec: object.data.get("spec").and_then(Value::as_object).unwrap_or(&none),
            aliases: &hints.aliases,
            environment: &self.options.environment,
            credential,
            hostname_limit: object.annotations().get(annotation::HOSTNAME_LENGTH_LIMIT).map(String::as_str),
            cluster_tag: cluster_tag.as_deref(),
            image: &self.options.image,
            lane: &lane,
            address: match &observed.address {
                Asked::Given(address) => Some(address),
                _ => None,
            },
            host,
            task,
        };
        let mut objects =
            blueprint.objects().map_err(|source| Error::Encode { what: observed.name.clone(), source })?;
        self.seal.seal(&mut objects.job).await?;
        let namespace = observed.namespace.as_str();
        let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), namespace);
        write::get_or_create(&self.ctx, &secrets, &blueprint.state()).await?;
        self.apply(&secrets, &objects.env).await?;
        if let Some(files) = &objects.files {
            self.apply(&secrets, files).await?;
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.ctx.client.clone(), namespace);
        self.apply(&accounts, &objects.account).await?;
        let roles: Api<Role> = Api::namespaced(self.ctx.client.clone(), namespace);
        self.apply(&roles, &objects.role).await?;
        let bindings: Api<RoleBinding> = Api::namespaced(self.ctx.client.clone(), namespace);
        self.apply(&bindings, &objects.binding).await?;
        let jobs: Api<Job> = Api::namespaced(self.ctx.client.clone(), namespace);
        match jobs.create(&PostParams::default(), &objects.job).await {
            Ok(job) => {
                let version = job.resource_version().unwrap_or_default();
                self.jobs.wait_for(&version, Duration::from_secs(5)).await;
                tracing::info!(machine = %ObjectKey::of(&object.metadata), task = ?task, "job made");
                Ok(())
            }
            // Of an earlier pass, or one that is still going; its events wake us.
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(Error::api("create Job", &objects.job.name_any())(error)),
        }
    }

    /// What instances at Amazon are tagged with for the cloud provider of their cluster.
    async fn cluster_tag(&self, namespace: &str, cluster: Option<&str>) -> Result<Option<String>, Error> {
        use remuda_api::rke::RkeControlPlane;
        let (true, Some(cluster)) = (facts(&self.driver).cluster_tag, cluster) else { return Ok(None) };
        let api: Api<RkeControlPlane> = Api::namespaced(self.ctx.client.clone(), namespace);
        match api.get_opt(cluster).await {
            Ok(found) => {
                let value = found.and_then(|found| serde_json::to_value(found).ok()).unwrap_or_default();
                let name = text(&value, "/spec/managementClusterName");
                Ok((!name.is_empty()).then_some(name))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(Error::api("read RKEControlPlane", cluster)(error)),
        }
    }

    async fn apply<K>(&self, api: &Api<K>, object: &K) -> Result<(), Error>
    where
        K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
    {
        let name = object.name_any();
        let params = PatchParams::apply(&self.ctx.field_manager).force();
        let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
        applied.map(drop).map_err(Error::api("apply", format!("{} {name}", K::kind(&()))))
    }

    /// What was done is recorded on the machine; the Job goes in the pass after that.
    async fn note_reboot(
        &self,
        object: &DynamicObject,
        asked: &str,
        failure: Option<String>,
    ) -> Result<(), Error> {
        let patch = json!({"metadata": {"uid": object.uid(), "annotations": {(REBOOTED): asked}}});
        let api = self.api(&object.namespace().unwrap_or_default());
        match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {}
            Err(error) if is_missing(&error) || is_conflict(&error) => return Ok(()),
            Err(error) => return Err(Error::api("annotate", object.name_any())(error)),
        }
        let (tone, reason, note) = match failure {
            None => (Tone::Normal, "Rebooted", "the server was restarted, as was asked for".to_owned()),
            Some(why) => (Tone::Warning, "RebootFailed", format!("the server could not be restarted: {why}")),
        };
        self.ctx.recorder.record(object, &self.resource, Happening { tone, reason, action: "Reboot", note });
        Ok(())
    }

    async fn note_power(&self, object: &DynamicObject, done: &str) -> Result<(), Error> {
        let patch = json!({"metadata": {"uid": object.uid(), "annotations": {(POWER): done}}});
        let api = self.api(&object.namespace().unwrap_or_default());
        match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {}
            Err(error) if is_missing(&error) || is_conflict(&error) => return Ok(()),
            Err(error) => return Err(Error::api("annotate", object.name_any())(error)),
        }
        let (reason, action, note) = match done {
            power::STOPPED => ("Stopped", "Stop", "the server was stopped, as was asked for"),
            power::RUNNING => ("Started", "Start", "the server was started, as was asked for"),
            _ => return Ok(()),
        };
        let happening = Happening { tone: Tone::Normal, reason, action, note: note.to_owned() };
        self.ctx.recorder.record(object, &self.resource, happening);
        Ok(())
    }

    /// A Secret that is gone bars creation too: no job goes on without it.
    async fn bar_creation(&self, observed: &Observed) -> Result<(), Error> {
        let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), &observed.namespace);
        annotate(&secrets, &naming::state_secret(&observed.name), machines::annotation::CREATION_BARRED).await
    }

    async fn cancel_job(&self, observed: &Observed) -> Result<(), Error> {
        let jobs: Api<Job> = Api::namespaced(self.ctx.client.clone(), &observed.namespace);
        annotate(&jobs, &naming::job(&observed.name), machines::annotation::CANCELLED).await
    }

    async fn drop_job(&self, observed: &Observed) -> Result<(), Error> {
        let jobs: Api<Job> = Api::namespaced(self.ctx.client.clone(), &observed.namespace);
        delete(&jobs, &naming::job(&observed.name)).await
    }

    /// Everything but the state. The Job goes last: as long as it is there, this is done again.
    async fn prune(&self, observed: &Observed) -> Result<(), Error> {
        let (client, namespace) = (&self.ctx.client, observed.namespace.as_str());
        let name = naming::job(&observed.name);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        delete(&secrets, &naming::env_secret(&observed.name)).await?;
        delete(&secrets, &name).await?;
        delete::<RoleBinding>(&Api::namespaced(client.clone(), namespace), &name).await?;
        delete::<Role>(&Api::namespaced(client.clone(), namespace), &name).await?;
        delete::<ServiceAccount>(&Api::namespaced(client.clone(), namespace), &name).await?;
        self.drop_job(observed).await
    }
}

async fn annotate<K>(api: &Api<K>, name: &str, annotation: &str) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let patch = Patch::Merge(json!({"metadata": {"annotations": {(annotation): "true"}}}));
    match api.patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("annotate", format!("{} {name}", K::kind(&())))(error)),
    }
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match api.delete(name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("delete", format!("{} {name}", K::kind(&())))(error)),
    }
}
