//! MachinePool: machines that a provider makes many of at once.
//!
//! Reads   the pool, the objects it refers to, and nodes of its cluster.
//! Writes  the pool, owner and label of those objects, a Machine for each server if the provider tells of them
//!         one by one, and annotations of its nodes. Nodes whose servers are gone go too.
//! Never   decides how many servers there are: that is the provider's job.

mod machines;
mod nodes;
mod status;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use remuda_api::core::{Cluster, ContractReference, MachinePool};
use remuda_control::{
    Action, Chain, Controller, Enqueuer, ObjectKey, drive,
    write::{controller_of, remove_finalizer},
};
use remuda_names::capi::label;
use remuda_rollout::{
    contract::{BootstrapConfig, InfraMachinePool},
    handoff::{self, Bootstrap, BootstrapReport, Found},
    machine::delete::Object,
    name::as_label,
    pool::{delete, nodes::Members},
};
use remuda_workload::{Event, What, provider_id};
use tokio_util::sync::CancellationToken;

use crate::{
    Capi, Error,
    enqueue::watches_cluster,
    managed::{
        BY_CLUSTER, Begun, Managed, cluster_value, controller, ensure_owner, owned_elsewhere, plain_owner,
    },
    providers::{Interest, Provided, REFERENCES, reference_keys},
    save::save,
};

/// Pools are filed by this name under [`node_value`] of each of their provider IDs.
const BY_PROVIDER_ID: &str = "provider-id";
/// Pools are filed by this name under namespace and value of the label their machines have.
const BY_LABEL: &str = "label";

struct Pools {
    capi: Arc<Capi>,
    enqueuer: Enqueuer,
}

/// An object the pool refers to.
enum Referred {
    No,
    Missing,
    Here(Provided),
    Unreadable(String),
}

/// Whom an object belongs to that is not the pool: another cluster, or another controller.
fn other_owner(pool: &MachinePool, found: &Provided) -> Option<String> {
    owned_elsewhere(&found.object, &pool.spec.cluster_name).or_else(|| {
        let other = controller_of(&found.object.metadata)?;
        let is_ours = other.kind == MachinePool::KIND && other.name == pool.name_any();
        (!is_ours).then(|| format!("{} {}", other.kind, other.name))
    })
}

impl Referred {
    fn unreadable(error: Error, errors: &mut Vec<Error>) -> Self {
        let why = Chain(&error).to_string();
        errors.push(error);
        Referred::Unreadable(why)
    }

    fn object(&self) -> Object {
        match self {
            Referred::No | Referred::Missing => Object::Gone,
            Referred::Here(provided) if provided.is_deleting() => Object::Deleting,
            Referred::Here(_) => Object::Present,
            Referred::Unreadable(_) => Object::Unreadable,
        }
    }
}

/// One reconcile: what it found, and what becomes of the pool.
struct Pass {
    before: MachinePool,
    after: MachinePool,
    cluster: Arc<Cluster>,
    bootstrap: Referred,
    infrastructure: Referred,
    /// The nodes, if they could be looked for.
    members: Option<Members>,
    stage: Option<Stage>,
    errors: Vec<Error>,
}

struct Stage {
    step: delete::Step,
    message: String,
}

impl Pass {
    fn is_deleting(&self) -> bool {
        self.before.metadata.deletion_timestamp.is_some()
    }

    fn cluster_key(&self) -> ObjectKey {
        ObjectKey::of(&self.cluster.metadata)
    }
}

fn node_value(cluster: &ObjectKey, provider_id: &str) -> String {
    format!("{cluster} {provider_id}")
}

pub(crate) async fn run(capi: Arc<Capi>, stop: CancellationToken) {
    capi.pools.add_index(REFERENCES, |pool: &MachinePool| {
        let spec = &pool.spec.template.spec;
        let namespace = pool.namespace().unwrap_or_default();
        reference_keys(&namespace, [&spec.bootstrap.config_ref, &spec.infrastructure_ref])
    });
    capi.pools.add_index(BY_PROVIDER_ID, |pool: &MachinePool| {
        let cluster = ObjectKey::of(&pool.metadata).sibling(&pool.spec.cluster_name);
        pool.spec.provider_id_list.iter().map(|id| node_value(&cluster, id)).collect()
    });
    capi.pools.add_index(BY_LABEL, |pool: &MachinePool| {
        vec![ObjectKey::of(&pool.metadata).sibling(as_label(&pool.name_any())).to_string()]
    });
    let controller = Controller::<MachinePool>::new("machine-pool", &capi.ctx)
        .workers(capi.options.workers)
        .watches(&capi.machines, machines::pool_of(&capi));
    let controller = watches_cluster(controller, &capi.clusters);
    let enqueuer = controller.enqueuer();
    let of_connections = capi.workloads.subscribe({
        let (pools, enqueuer) = (capi.pools.clone(), enqueuer.clone());
        move |event: &Event| {
            let cluster = &event.cluster;
            let keys = match &event.what {
                What::Node { old, new } => {
                    let ids =
                        [old, new].into_iter().flatten().filter_map(|node: &Arc<Node>| provider_id(node));
                    ids.flat_map(|id| pools.keys_by_index(BY_PROVIDER_ID, &node_value(cluster, id))).collect()
                }
                What::Connected | What::Disconnected => {
                    let namespace = cluster.namespace.as_deref().unwrap_or_default();
                    pools.keys_by_index(BY_CLUSTER, &cluster_value(namespace, &cluster.name))
                }
                What::Silent(_) | What::Watch => Vec::new(),
            };
            for key in keys {
                enqueuer.enqueue(key);
            }
        }
    });
    drive(controller, reconcile, Arc::new(Pools { capi, enqueuer }), stop).await;
    drop(of_connections);
}

async fn reconcile(pool: Arc<MachinePool>, this: Arc<Pools>) -> Result<Action, Error> {
    let capi = &this.capi;
    let Begun::Go(pool, cluster) = capi.begin(&*pool, &capi.pools).await? else {
        return Ok(Action::AwaitChange);
    };
    let mut pass = this.observe(pool, cluster).await;
    let now = capi.ctx.clock.now();
    if pass.is_deleting() {
        this.advance(&mut pass).await;
    } else {
        take_bootstrap(&mut pass);
        if take_infrastructure(&mut pass) {
            this.find_nodes(&mut pass, now).await;
        }
        this.mirror_machines(&mut pass, now).await;
    }
    this.tell(&mut pass, now);

    let api = capi.api::<MachinePool>(&pass.before.namespace().unwrap_or_default());
    let finished = pass.stage.as_ref().is_some_and(|stage| stage.step == delete::Step::Finish);
    // Nobody will read what an object says that goes with this write.
    if !(finished && pass.after.finalizers().len() <= 1) {
        save(&capi.ctx, &api, &capi.pools, &pass.before, &pass.after).await?;
    }
    if finished {
        remove_finalizer(&api, &pass.after, &(), MachinePool::FINALIZER.unwrap_or_default()).await?;
    }
    if let Some(error) = Error::join(std::mem::take(&mut pass.errors)) {
        return Err(error);
    }
    Ok(next(&pass, now))
}

/// When something changes by the mere passing of time.
fn next(pass: &Pass, now: jiff::Timestamp) -> Action {
    let waiting = pass.stage.as_ref().is_some_and(|stage| stage.step == delete::Step::WaitForCluster);
    let timeout = pass.after.spec.template.spec.deletion.node_deletion_timeout_seconds.unwrap_or(0);
    let deleted = pass.before.metadata.deletion_timestamp.as_ref().filter(|_| waiting && timeout > 0);
    let given_up = deleted.map(|deleted| {
        let spent = now.duration_since(deleted.0).as_secs().clamp(0, i64::from(timeout));
        // A little later, so that it is over by then.
        Duration::from_secs((i64::from(timeout) - spent + 1).unsigned_abs())
    });
    let available = pass.members.as_ref().and_then(|members| members.next);
    match given_up.into_iter().chain(available).min() {
        Some(after) => Action::RequeueAfter(after),
        None => Action::AwaitChange,
    }
}

impl Pools {
    async fn observe(&self, pool: MachinePool, cluster: Arc<Cluster>) -> Pass {
        let mut errors = Vec::new();
        let mut after = pool.clone();
        let name = after.spec.cluster_name.clone();
        after.labels_mut().insert(label::CLUSTER_NAME.to_owned(), name);
        ensure_owner(after.owner_references_mut(), plain_owner(&*cluster));
        let spec = &pool.spec.template.spec;
        let bootstrap = self.refer(&pool, &spec.bootstrap.config_ref, &mut errors).await;
        let infrastructure = self.refer(&pool, &spec.infrastructure_ref, &mut errors).await;
        Pass { before: pool, after, cluster, bootstrap, infrastructure, members: None, stage: None, errors }
    }

    /// Reads an object and makes it the pool's.
    async fn refer(
        &self,
        pool: &MachinePool,
        reference: &ContractReference,
        errors: &mut Vec<Error>,
    ) -> Referred {
        if !reference.is_defined() {
            return Referred::No;
        }
        let key = ObjectKey::of(&pool.metadata);
        let interest = Interest { enqueuer: &self.enqueuer, root: &self.capi.pools, key: &key };
        let namespace = pool.namespace().unwrap_or_default();
        let found = match self.capi.providers.get(reference, &namespace, &interest).await {
            Ok(Some(found)) => found,
            Ok(None) => return Referred::Missing,
            Err(error) => return Referred::unreadable(error, errors),
        };
        if let Some(owner) = other_owner(pool, &found) {
            // Its end is not ours to bring about or to wait for.
            if pool.metadata.deletion_timestamp.is_some() {
                return Referred::Missing;
            }
            let (kind, name) = (&found.kind.resource.kind, found.object.name_any());
            let why = format!("{kind} {name} is already controlled by {owner}");
            return Referred::unreadable(Error::Invalid(why), errors);
        }
        match self.own(pool, &found).await {
            Ok(Some(owned)) => Referred::Here(owned),
            Ok(None) => Referred::Missing,
            // Somebody wrote at the same time, most likely. It is there all the same.
            Err(error) => {
                errors.push(error);
                Referred::Here(found)
            }
        }
    }

    async fn own(&self, pool: &MachinePool, found: &Provided) -> Result<Option<Provided>, Error> {
        if found.is_deleting() || pool.metadata.deletion_timestamp.is_some() {
            return Ok(Some(found.clone()));
        }
        let owner = controller(pool);
        let mut owners = found.object.owner_references().to_vec();
        ensure_owner(&mut owners, owner);
        let labels = [(label::CLUSTER_NAME, pool.spec.cluster_name.as_str())];
        self.capi.providers.label_and_own(found, &labels, owners).await
    }

    /// Asks to go whatever is next, and tells what is waited for.
    async fn advance(&self, pass: &mut Pass) {
        let spec = &pass.before.spec.template.spec;
        let refs = pass.before.status.as_ref().map(|status| status.node_refs.clone()).unwrap_or_default();
        let nodes = nodes::still_there(&self.capi, &pass.cluster_key(), &refs);
        let deleted = pass.before.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let config_ref = &spec.bootstrap.config_ref;
        let now = self.capi.ctx.clock.now();
        let input = delete::Input {
            bootstrap: config_ref.is_defined().then(|| (pass.bootstrap.object(), config_ref.kind.as_str())),
            infrastructure: (pass.infrastructure.object(), &spec.infrastructure_ref.kind),
            nodes: nodes.as_deref(),
            had_nodes: !refs.is_empty(),
            cluster_deleting: pass.cluster.metadata.deletion_timestamp.is_some(),
            deleted: deleted.unwrap_or(now),
            timeout: spec.deletion.node_deletion_timeout_seconds.map(i64::from),
        };
        let step = delete::next(&input, now);
        let mut message = step.to_string();
        let failed = match &step {
            delete::Step::DeleteObjects { bootstrap, infrastructure, .. } => {
                let mut failed = None;
                for (wanted, referred) in
                    [(*bootstrap, &pass.bootstrap), (*infrastructure, &pass.infrastructure)]
                {
                    if let (true, Referred::Here(provided)) = (wanted, referred) {
                        failed = self.capi.providers.delete(provided).await.err().or(failed);
                    }
                }
                failed
            }
            delete::Step::DeleteNodes { names } => self.delete_nodes(pass, names).await.err(),
            delete::Step::CannotTell { what } => {
                for referred in [&pass.bootstrap, &pass.infrastructure] {
                    if let Referred::Unreadable(why) = referred {
                        message = format!("Cannot read {what}: {why}");
                    }
                }
                None
            }
            delete::Step::WaitForCluster | delete::Step::Finish => None,
        };
        if let Some(error) = failed {
            message = Chain(&error).to_string();
            pass.errors.push(error);
        }
        pass.stage = Some(Stage { step, message });
    }
}

fn take_bootstrap(pass: &mut Pass) {
    let config = match &pass.bootstrap {
        Referred::No => Found::NoReference,
        Referred::Missing => Found::NotFound,
        Referred::Here(provided) if provided.is_deleting() => return,
        Referred::Here(provided) => {
            let object = BootstrapConfig { object: provided.data(), contract: provided.contract() };
            let kind = provided.kind.resource.kind.clone();
            let report = object.data_secret_created().and_then(|created| {
                Ok(BootstrapReport { kind, created, secret: object.data_secret_name()? })
            });
            match report {
                Ok(report) => Found::Here(report),
                Err(error) => return pass.errors.push(error.into()),
            }
        }
        Referred::Unreadable(_) => return,
    };
    let bootstrap = &mut pass.after.spec.template.spec.bootstrap;
    let status = pass.after.status.get_or_insert_default();
    let created = &mut status.initialization.bootstrap_data_secret_created;
    // Unlike a machine, a pool boots again and again: it follows its config.
    match handoff::bootstrap(config, None, false) {
        Bootstrap::Provided if bootstrap.data_secret_name.is_some() => *created = Some(true),
        Bootstrap::Provided => pass.errors.push(Error::Invalid(
            "neither spec.template.spec.bootstrap.configRef nor dataSecretName is set".to_owned(),
        )),
        Bootstrap::Done { copy } => {
            bootstrap.data_secret_name = copy.or_else(|| bootstrap.data_secret_name.take());
            *created = Some(true);
        }
        Bootstrap::Waiting => *created = Some(false),
        nameless @ Bootstrap::Nameless { .. } => pass.errors.push(Error::Invalid(nameless.to_string())),
        Bootstrap::Gone | Bootstrap::Missing => {}
    }
}

/// Takes over what the provider reports. Tells whether there are servers to look for.
fn take_infrastructure(pass: &mut Pass) -> bool {
    let Referred::Here(provided) = &pass.infrastructure else {
        return false;
    };
    if provided.is_deleting() {
        return false;
    }
    let object = InfraMachinePool { object: provided.data(), contract: provided.contract() };
    let report = object.ready().and_then(|ready| Ok((ready, object.provider_ids()?, object.replicas()?)));
    let (ready, ids, replicas) = match report {
        Ok(report) => report,
        Err(error) => {
            pass.errors.push(error.into());
            return false;
        }
    };
    let status = pass.after.status.get_or_insert_default();
    status.initialization.infrastructure_provisioned = Some(ready);
    if !ready {
        return false;
    }
    status.replicas = replicas.or(status.replicas);
    // The provider has not got round to telling which they are.
    if ids.is_empty() && status.replicas.unwrap_or(0) != 0 {
        return false;
    }
    pass.after.spec.provider_id_list = ids;
    !pass.after.spec.provider_id_list.is_empty() || pass.after.spec.replicas == Some(0)
}
