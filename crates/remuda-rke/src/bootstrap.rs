//! `RKEBootstrap`: gives each machine its plan Secret and what it boots with, and lets no etcd member go unasked.
//!
//! Reads   the RKEBootstrap, its Machine and Cluster, the control plane, settings, the token of its account.
//! Writes  ServiceAccounts, Role, RoleBinding and Secrets it owns, its own status, and the hook that keeps the
//!         Machine's server until etcd has let go of the member.
//! Never   talks to a machine: running the script is the machine provider's job.

mod children;
mod payload;
mod removal;
mod take_node;

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, prelude::BASE64_URL_SAFE};
use k8s_openapi::api::{
    core::v1::{Secret, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, Resource, ResourceExt, api::Patch, core::PartialObjectMeta};
use remuda_api::{
    core::{Cluster, Machine},
    rke::RkeBootstrap,
};
use remuda_control::{
    Action, Controller, Enqueuer, Informer, ObjectKey, Scope, drive,
    write::{ApplySet, Finalizer, ensure_finalizer, remove_finalizer, write_status},
};
use remuda_names::{
    capi::label as capi_label,
    rancher::{finalizer, label, secret_key, secret_type},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::{
    children::{Children, Payload, is_applied},
    removal::Hook,
};
use crate::{
    Error,
    install::Server,
    objects,
    shared::{BY_BOOTSTRAP, BY_CLUSTER, Rke, filed},
};

/// What a reconcile of an RKEBootstrap needs.
struct Bootstraps {
    rke: Arc<Rke>,
    enqueuer: Enqueuer,
    accounts: Informer<ServiceAccount>,
    roles: Informer<Role>,
    bindings: Informer<RoleBinding>,
    /// Secrets machines boot with. They are long, and what is in them shows in what they were applied as.
    payloads: Informer<PartialObjectMeta<Secret>>,
}

/// The RKEBootstrap an object was made for.
fn bootstrap_label<K: ResourceExt>(object: &K) -> Vec<String> {
    let namespace = object.namespace().unwrap_or_default();
    object.labels().get(label::BOOTSTRAP_NAME).map(|name| filed(&namespace, name)).into_iter().collect()
}

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let informers = &rke.ctx.informers;
    let ours = || Scope::labels(label::BOOTSTRAP_NAME);
    let accounts: Informer<ServiceAccount> = informers.of(ours());
    let roles: Informer<Role> = informers.of(ours());
    let bindings: Informer<RoleBinding> = informers.of(ours());
    let payloads =
        informers.metadata::<Secret>(Scope::all().with_fields(format!("type={}", secret_type::BOOTSTRAP)));
    accounts.add_index(BY_BOOTSTRAP, bootstrap_label);
    roles.add_index(BY_BOOTSTRAP, bootstrap_label);
    bindings.add_index(BY_BOOTSTRAP, bootstrap_label);
    payloads.add_index(BY_BOOTSTRAP, bootstrap_label);
    rke.tokens.add_index(BY_BOOTSTRAP, bootstrap_label);
    let controller = Controller::on("rke-bootstrap", &rke.ctx, rke.bootstraps.clone())
        .workers(rke.options.workers)
        .owns(&accounts)
        .owns(&roles)
        .owns(&bindings)
        .owns(&payloads)
        .owns(&rke.tokens);
    let enqueuer = controller.enqueuer();
    let controller = watches(controller, &rke);
    let connections = removal::connections(&rke, &enqueuer);
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    let bootstraps = Arc::new(Bootstraps { rke, enqueuer, accounts, roles, bindings, payloads });
    drive(controller, reconcile, bootstraps, stop).await;
    drop(connections);
}

fn watches(controller: Controller<RkeBootstrap>, rke: &Rke) -> Controller<RkeBootstrap> {
    let in_cluster = |rke: &Rke| {
        let bootstraps = rke.bootstraps.clone();
        move |key: &ObjectKey| {
            let namespace = key.namespace.as_deref().unwrap_or_default();
            bootstraps.keys_by_index(BY_CLUSTER, &filed(namespace, &key.name))
        }
    };
    let controller = controller.watches_facts(
        &rke.machines,
        |machine: &Machine| {
            let meta = &machine.metadata;
            let status = machine.status.as_ref();
            let phase = status.map(|status| status.phase.clone());
            let node = status.map(|status| status.node_ref.name.clone());
            (meta.labels.clone(), meta.annotations.clone(), objects::is_deleting(meta), phase, node)
        },
        |machine| {
            let name = objects::bootstrap_of(machine);
            name.map(|name| ObjectKey::of(&machine.metadata).sibling(name)).into_iter().collect()
        },
    );
    // The plan Secret itself, and how the other members are while a member is to go.
    let members = rke.machines.clone();
    let controller = controller.watches_facts(
        &rke.plans,
        |secret: &Secret| (secret.metadata.labels.clone(), secret.metadata.annotations.clone()),
        move |secret| {
            let key = ObjectKey::of(&secret.metadata);
            let owner = secret.metadata.owner_references.iter().flatten();
            let owner =
                owner.filter(|owner| owner.kind == "RKEBootstrap").map(|owner| key.sibling(&owner.name));
            let mut woken: Vec<ObjectKey> = owner.collect();
            if let Some(cluster) = secret.labels().get(label::CLUSTER_NAME) {
                let namespace = key.namespace.as_deref().unwrap_or_default();
                let going = members.by_index(BY_CLUSTER, &filed(namespace, cluster));
                let going = going.iter().filter(|machine| objects::is_deleting(&machine.metadata));
                woken.extend(going.filter_map(|machine| Some(key.sibling(objects::bootstrap_of(machine)?))));
            }
            woken
        },
    );
    let by_cluster = in_cluster(rke);
    let controller = controller.watches_facts(
        &rke.clusters,
        |cluster: &Cluster| {
            let reference = cluster.spec.control_plane_ref.clone();
            let deleting = objects::is_deleting(&cluster.metadata);
            let paused = objects::is_paused(cluster, &cluster.metadata);
            (paused, deleting, objects::is_provisioned(cluster), reference)
        },
        move |cluster| by_cluster(&ObjectKey::of(&cluster.metadata)),
    );
    let by_cluster = in_cluster(rke);
    let controller = controller.watches_facts(
        &rke.control_planes,
        |control_plane| {
            let spec = &control_plane.spec;
            let deleting = objects::is_deleting(&control_plane.metadata);
            (deleting, spec.agent_env_vars.clone(), spec.config.data_directories.clone())
        },
        // Control planes have the name of their Cluster.
        move |control_plane| by_cluster(&ObjectKey::of(&control_plane.metadata)),
    );
    let all = rke.bootstraps.clone();

    controller.watches_facts(
        &rke.settings,
        |setting| setting.effective().to_owned(),
        move |setting| if concerns(&setting.name_any()) { all.keys() } else { Vec::new() },
    )
}

/// Settings that are in scripts.
fn concerns(setting: &str) -> bool {
    use remuda_names::rancher::setting::{AGENT_TLS_MODE, CACERTS, SERVER_URL};
    [SERVER_URL, CACERTS, AGENT_TLS_MODE].contains(&setting)
}

async fn reconcile(object: Arc<RkeBootstrap>, ctx: Arc<Bootstraps>) -> Result<Action, Error> {
    let key = ObjectKey::of(&object.metadata);
    let api: Api<RkeBootstrap> = ctx.rke.api(key.namespace.as_deref().unwrap_or_default());
    match ensure_finalizer(&api, (*object).clone(), &(), finalizer::BOOTSTRAP).await? {
        Finalizer::Gone => Ok(Action::AwaitChange),
        Finalizer::Deleting(object) => match ctx.hook(&key, &object).await? {
            Hook::Held(again) => Ok(Action::RequeueAfter(again)),
            Hook::Free => match ctx.take_node(&key, &object).await {
                Some(again) => Ok(Action::RequeueAfter(again)),
                None => {
                    remove_finalizer(&api, &object, &(), finalizer::BOOTSTRAP).await?;
                    Ok(Action::AwaitChange)
                }
            },
        },
        Finalizer::Active(object) => {
            let hook = ctx.hook(&key, &object).await;
            ctx.provide(&key, &api, object).await?;
            match hook? {
                Hook::Held(again) => Ok(Action::RequeueAfter(again)),
                Hook::Free => Ok(Action::AwaitChange),
            }
        }
    }
}

/// Why nothing can be given to the machine yet. What is waited for wakes us.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Waiting {
    #[error("waiting for the Machine to own it")]
    Machine,
    #[error("waiting for the Cluster")]
    Cluster,
    #[error("Cluster or RKEBootstrap is paused")]
    Paused,
    #[error("waiting for the infrastructure of the Cluster")]
    Infrastructure,
}

impl Bootstraps {
    /// Machine and Cluster, once it is their turn.
    fn ready(&self, key: &ObjectKey, object: &RkeBootstrap) -> Result<(Arc<Machine>, Arc<Cluster>), Waiting> {
        let owner = objects::owner(&object.metadata, "Machine").ok_or(Waiting::Machine)?;
        let machine = self.rke.machines.get(&key.sibling(&owner.name)).ok_or(Waiting::Machine)?;
        let cluster = self.rke.cluster_of(&machine).ok_or(Waiting::Cluster)?;
        if objects::is_paused(&cluster, &object.metadata) {
            return Err(Waiting::Paused);
        }
        if !objects::is_provisioned(&cluster) {
            return Err(Waiting::Infrastructure);
        }
        Ok((machine, cluster))
    }

    /// Makes what belongs to it, and says so.
    async fn provide(
        &self,
        key: &ObjectKey,
        api: &Api<RkeBootstrap>,
        object: RkeBootstrap,
    ) -> Result<(), Error> {
        let object = self.name_cluster(key, api, object).await?;
        let (machine, cluster) = match self.ready(key, &object) {
            Ok(found) => found,
            Err(waiting) => {
                tracing::debug!(bootstrap = %key, %waiting, "machine gets nothing yet");
                return Ok(());
            }
        };
        let (payload, unfit) = match self.payload(key, &object, &machine, &cluster) {
            Ok(payload) => (payload, None),
            // The plan Secret does not depend on it.
            Err(error) => (Payload::Pending, Some(error)),
        };
        let children = children::children(&object, &machine, &cluster, &payload);
        if !self.settled(key, &object, &children) {
            self.apply(&object, &children).await?;
        }
        let mut status = object.status.clone().unwrap_or_default();
        if matches!(payload, Payload::Ready(_)) && status.data_secret_name.is_none() {
            status.data_secret_name = Some(objects::bootstrap_name(&key.name));
            status.initialization.data_secret_created = Some(true);
            status.ready = true;
            let written = write_status(&self.rke.ctx, api, &object, &status).await?;
            self.rke.seen(&self.rke.bootstraps, written.as_ref()).await;
        }
        unfit.map_or(Ok(()), Err)
    }

    /// The name of the cluster follows the label that Cluster API gives.
    async fn name_cluster(
        &self,
        key: &ObjectKey,
        api: &Api<RkeBootstrap>,
        object: RkeBootstrap,
    ) -> Result<RkeBootstrap, Error> {
        let named = object.labels().get(capi_label::CLUSTER_NAME).filter(|name| !name.is_empty());
        let Some(name) = named.filter(|name| **name != object.spec.cluster_name) else {
            return Ok(object);
        };
        let patch = json!({"metadata": {"uid": object.uid()}, "spec": {"clusterName": name}});
        let written = api.patch(&key.name, &self.rke.params(), &Patch::Merge(patch)).await;
        written.map_err(Error::api("write", format!("RKEBootstrap {key}")))
    }

    fn payload(
        &self,
        key: &ObjectKey,
        object: &RkeBootstrap,
        machine: &Machine,
        cluster: &Cluster,
    ) -> Result<Payload, Error> {
        let phase = machine.status.as_ref().map_or("", |status| status.phase.as_str());
        if objects::is_deleting(&machine.metadata) || ["Deleting", "Deleted", "Failed"].contains(&phase) {
            return Ok(Payload::Withdrawn);
        }
        let token = children::token_name(&objects::bootstrap_name(&key.name));
        let secret = self.rke.tokens.get(&key.sibling(token));
        let token = secret.as_ref().and_then(|secret| secret.data.as_ref()?.get(secret_key::TOKEN));
        let control_plane = self.rke.control_plane_of(cluster);
        let (Some(token), Some(control_plane), Some(server)) =
            (token.filter(|token| !token.0.is_empty()), control_plane, Server::read(&self.rke.settings))
        else {
            return Ok(Payload::Pending);
        };
        // What a machine is given is not the token: it proves that one has it.
        let proof = BASE64_URL_SAFE.encode(digest(&SHA256, &token.0));
        let windows = machine.labels().get(label::OS).is_some_and(|os| os == "windows");
        let script = server.script(&proof, &control_plane.spec, windows);
        let infrastructure = &machine.spec.infrastructure_ref.api_group;
        let userdata = object.spec.userdata.as_ref().map_or("", |userdata| &userdata.inline_userdata);
        match payload::wrap(script, infrastructure, windows, userdata) {
            Ok(text) => Ok(Payload::Ready(text)),
            Err(unfit) => Err(Error::Invalid(unfit.to_string())),
        }
    }

    /// Whether everything is as it was applied last, by this process or one before it.
    fn settled(&self, key: &ObjectKey, object: &RkeBootstrap, children: &Children) -> bool {
        let owner = object.uid().unwrap_or_default();
        let as_wanted = |existing: Option<&kube::core::ObjectMeta>, wanted: &kube::core::ObjectMeta| {
            existing.is_some_and(|existing| is_applied(existing, wanted, &owner))
        };
        let accounts = children.accounts.iter().all(|wanted| {
            let existing = self.accounts.get(&key.sibling(wanted.name_any()));
            as_wanted(existing.as_deref().map(Resource::meta), &wanted.metadata)
        });
        let role = self.roles.get(&key.sibling(children.role.name_any()));
        let role = role.is_some_and(|existing| {
            existing.rules == children.role.rules
                && is_applied(&existing.metadata, &children.role.metadata, &owner)
        });
        let binding = self.bindings.get(&key.sibling(children.binding.name_any()));
        let binding = binding.is_some_and(|existing| {
            let wanted = &children.binding;
            existing.role_ref == wanted.role_ref
                && existing.subjects == wanted.subjects
                && is_applied(&existing.metadata, &wanted.metadata, &owner)
        });
        let secrets = children.secrets.iter().all(|wanted| {
            let key = key.sibling(wanted.name_any());
            match wanted.type_.as_deref() {
                Some(secret_type::PLAN) => {
                    let existing = self.rke.plans.get(&key);
                    as_wanted(existing.as_deref().map(Resource::meta), &wanted.metadata)
                }
                Some(secret_type::BOOTSTRAP) => {
                    let existing = self.payloads.get(&key);
                    as_wanted(existing.as_deref().map(Resource::meta), &wanted.metadata)
                }
                _ => {
                    let existing = self.rke.tokens.get(&key);
                    as_wanted(existing.as_deref().map(Resource::meta), &wanted.metadata)
                }
            }
        });
        let withdrawn = children.accounts.len() == 1;
        let left = key.sibling(objects::bootstrap_name(&key.name));
        let stays = withdrawn && (self.accounts.get(&left).is_some() || self.payloads.get(&left).is_some());
        accounts && role && binding && secrets && !stays
    }

    async fn apply(&self, object: &RkeBootstrap, children: &Children) -> Result<(), Error> {
        let name = object.name_any();
        let mut set = ApplySet::new(&self.rke.ctx, object, &(), (label::BOOTSTRAP_NAME, &name))?;
        // Looking at all there is of these kinds for each machine would cost the square of the machines.
        let filed = filed(&object.namespace().unwrap_or_default(), &name);
        set.known_of(&self.accounts, &self.accounts.by_index(BY_BOOTSTRAP, &filed))?;
        set.known_of(&self.roles, &self.roles.by_index(BY_BOOTSTRAP, &filed))?;
        set.known_of(&self.bindings, &self.bindings.by_index(BY_BOOTSTRAP, &filed))?;
        let tokens = self.rke.tokens.keys_by_index(BY_BOOTSTRAP, &filed);
        let payloads = self.payloads.keys_by_index(BY_BOOTSTRAP, &filed);
        set.named::<Secret>(tokens.into_iter().chain(payloads).map(|key| key.name.to_string()));
        for account in &children.accounts {
            set.add(account)?;
        }
        set.add(&children.role)?.add(&children.binding)?;
        for secret in &children.secrets {
            set.add(secret)?;
        }
        let applied = set.apply().await?;
        tracing::debug!(
            written = applied.written.len(),
            pruned = applied.pruned.len(),
            "children of RKEBootstrap applied"
        );
        Ok(())
    }
}
