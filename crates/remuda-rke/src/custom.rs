//! Servers that register themselves: a request Secret becomes a Machine, and a CustomMachine is what it runs on.
//!
//! Reads   request Secrets, which the gateway makes, and control planes, which say what cluster they are for.
//! Writes  RKEBootstrap, CustomMachine and Machine of a server, and the labels on the request that say which;
//!         deletes requests after a minute.
//! Never   makes two machines of one server: names follow from the id it registers with.

mod clean;
mod machine;
mod request;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, Preconditions},
};
use remuda_api::{
    core::{Cluster, Machine},
    rke::RkeControlPlane,
};
use remuda_control::{Action, Controller, Informer, ObjectKey, Scope, drive, write::get_or_create};
use remuda_names::rancher::{label, secret_key, secret_type};
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub(crate) use self::machine::run as run_machines;
use self::request::Request;
use crate::{
    Error,
    error::is_code,
    objects,
    shared::{BY_MACHINE_ID, BY_MANAGED, Rke},
};

/// How long a request is kept. The gateway deletes those that were answered.
const LIFETIME: Duration = Duration::from_secs(60);
/// Names of requests of servers that join a cluster made here.
const PREFIX: &str = "custom-";

struct Requests {
    rke: Arc<Rke>,
    requests: Informer<Secret>,
}

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let scope = Scope::all().with_fields(format!("type={}", secret_type::MACHINE_REQUEST));
    let requests: Informer<Secret> = rke.ctx.informers.of(scope);
    let controller =
        Controller::on("machine-request", &rke.ctx, requests.clone()).workers(rke.options.workers);
    // Requests are few, and gone after a minute.
    let waiting = || {
        let requests = requests.clone();
        move || requests.keys()
    };
    let all = waiting();
    let controller = controller.watches_facts(
        &rke.machines,
        |machine: &Machine| (objects::is_deleting(&machine.metadata), machine.metadata.uid.clone()),
        move |_| all(),
    );
    let all = waiting();
    let controller = controller.watches_facts(
        &rke.control_planes,
        |control_plane: &RkeControlPlane| {
            let managed = control_plane.spec.management_cluster_name.clone();
            let deleting = objects::is_deleting(&control_plane.metadata);
            (managed, deleting, control_plane.metadata.owner_references.clone())
        },
        move |_| all(),
    );
    let all = waiting();
    let controller = controller.watches_facts(
        &rke.clusters,
        |cluster: &Cluster| (objects::is_deleting(&cluster.metadata), cluster.metadata.uid.clone()),
        move |_| all(),
    );
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    drive(controller, reconcile, Arc::new(Requests { rke, requests }), stop).await;
}

async fn reconcile(secret: Arc<Secret>, ctx: Arc<Requests>) -> Result<Action, Error> {
    let rke = &ctx.rke;
    let key = ObjectKey::of(&secret.metadata);
    if objects::is_deleting(&secret.metadata) {
        return Ok(Action::AwaitChange);
    }
    let now = rke.ctx.clock.now();
    let created = secret.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let age = Duration::try_from(now.duration_since(created)).unwrap_or_default();
    if age >= LIFETIME {
        delete(rke, &key, &secret).await?;
        return Ok(Action::AwaitChange);
    }
    let answered = secret.labels().contains_key(label::MACHINE_NAME);
    if !answered && key.name.starts_with(PREFIX) {
        match rke.register(&key, &secret).await? {
            Registered::Machine(machine) => {
                let written = rke.answer(&key, &secret, &machine).await?;
                rke.seen(&ctx.requests, written.as_ref()).await;
            }
            Registered::Waiting(why) => tracing::debug!(request = %key, why, "machine request waits"),
            Registered::Refused(why) => tracing::info!(request = %key, why, "machine request refused"),
        }
    }
    Ok(Action::RequeueAfter(LIFETIME - age))
}

async fn delete(rke: &Rke, key: &ObjectKey, secret: &Secret) -> Result<(), Error> {
    let api: Api<Secret> = rke.api(key.namespace.as_deref().unwrap_or_default());
    let preconditions = Preconditions { uid: secret.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&key.name, &params).await {
        Err(error) if !is_code(&error, 404) && !is_code(&error, 409) => {
            Err(Error::api("delete", format!("Secret {key}"))(error))
        }
        _ => Ok(()),
    }
}

/// What came of a request.
enum Registered {
    Machine(ObjectKey),
    Waiting(&'static str),
    Refused(&'static str),
}

impl Rke {
    /// The Machine of a server, which is made if it does not exist.
    async fn register(&self, key: &ObjectKey, secret: &Secret) -> Result<Registered, Error> {
        let managed = key.namespace.as_deref().unwrap_or_default();
        let control_plane = self.control_planes.by_index(BY_MANAGED, managed).into_iter().next();
        let Some(control_plane) = control_plane else {
            return Ok(Registered::Waiting("no control plane of this cluster"));
        };
        // Its removal deletes machines that register; each would be one more.
        if objects::is_deleting(&control_plane.metadata) {
            return Ok(Registered::Waiting("the control plane of this cluster is being deleted"));
        }
        let home = ObjectKey::of(&control_plane.metadata);
        let owner = objects::owner(&control_plane.metadata, "Cluster");
        let cluster = owner.and_then(|owner| self.clusters.get(&home.sibling(&owner.name)));
        let cluster = cluster.filter(|cluster| !objects::is_deleting(&cluster.metadata));
        let Some(cluster) = cluster.map(|cluster| cluster.name_any()) else {
            return Ok(Registered::Waiting("no cluster to join"));
        };
        let data = secret.data.as_ref().and_then(|data| data.get(secret_key::REQUEST_DATA));
        let request = data.and_then(|data| Request::parse(&data.0));
        let Some(request) = request else {
            return Ok(Registered::Refused("its data cannot be read"));
        };
        let name = home.sibling(&key.name);
        let known = match self.machines.get(&name) {
            Some(machine) => Some(machine),
            None => self.by_id(&request.id, &home, &cluster),
        };
        if let Some(known) = known {
            // A server is known by an id it chose itself. What it learns of a cluster must not be more than its
            // token is good for.
            if known.spec.cluster_name != cluster {
                return Ok(Registered::Refused("its machine belongs to another cluster"));
            }
            if objects::is_deleting(&known.metadata) {
                return Ok(Registered::Waiting("its former machine is being deleted"));
            }
            return Ok(Registered::Machine(ObjectKey::of(&known.metadata)));
        }
        let objects = request.objects(&name, &cluster);
        let namespace = name.namespace.as_deref().unwrap_or_default();
        // The Machine comes last: what it refers to must be there.
        get_or_create(&self.ctx, &self.api(namespace), &objects.bootstrap).await?;
        get_or_create(&self.ctx, &self.api(namespace), &objects.infrastructure).await?;
        let machine: Machine = get_or_create(&self.ctx, &self.api(namespace), &objects.machine).await?;
        if machine.spec.cluster_name != cluster || objects::is_deleting(&machine.metadata) {
            return Ok(Registered::Waiting("its former machine is there"));
        }
        self.seen(&self.machines, Some(&machine)).await;
        tracing::info!(machine = %name, cluster, "server registered");
        Ok(Registered::Machine(name))
    }

    /// The one Machine of a cluster whose server registered with an id.
    fn by_id(&self, id: &str, home: &ObjectKey, cluster: &str) -> Option<Arc<Machine>> {
        let mut found = self.machines.by_index(BY_MACHINE_ID, id);
        found.retain(|machine| {
            machine.spec.cluster_name == cluster
                && machine.namespace().as_deref() == home.namespace.as_deref()
        });
        match found.as_slice() {
            [one] => Some(one.clone()),
            _ => None,
        }
    }

    /// Says on a request which Machine it became; `None` if the request is gone.
    async fn answer(
        &self,
        key: &ObjectKey,
        secret: &Secret,
        machine: &ObjectKey,
    ) -> Result<Option<Secret>, Error> {
        let api: Api<Secret> = self.api(key.namespace.as_deref().unwrap_or_default());
        let labels = json!({
            label::MACHINE_NAMESPACE: machine.namespace.as_deref().unwrap_or_default(),
            label::MACHINE_NAME: &*machine.name,
        });
        let patch = json!({"metadata": {"uid": secret.uid(), "labels": labels}});
        match api.patch(&key.name, &self.params(), &Patch::Merge(patch)).await {
            Ok(written) => Ok(Some(written)),
            Err(error) if is_code(&error, 404) => Ok(None),
            Err(error) => Err(Error::api("write", format!("Secret {key}"))(error)),
        }
    }
}
