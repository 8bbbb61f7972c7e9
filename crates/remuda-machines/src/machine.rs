//! Machines of drivers: each gets a Job that makes its server, and another that removes it.
//!
//! Reads   objects of one `<Driver>Machine` kind, their Machine and Cluster, the NodeDriver, credentials, Jobs, and the
//!         IPAddress of the machine.
//! Writes  the Job and what it needs, the state Secret, the IPAddressClaim, and the machine's status, label and finalizer.
//! Never   speaks to a provider, and never lets go of a machine whose server may exist.

mod act;
mod address;
mod decide;
mod lanes;
mod objects;
mod pods;
mod view;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{batch::v1::Job, core::v1::Namespace};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::ApiResource,
};
use remuda_api::{
    core::{Cluster, Machine},
    ipam::IpAddressClaim,
    management::{NodeDriver, Setting},
};
use remuda_control::{
    Action, Controller, Ctx, Enqueuer, Informer, ObjectKey, Scope, drive, owner_of,
    write::{self, Finalizer},
};
use remuda_drivers::install::BUILT_IN;
use remuda_names::{
    annotation::{POWER, REBOOT_REQUESTED, REBOOTED},
    capi, machines,
    rancher::{annotation, condition as kind, finalizer, label},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::{
    address::Asked,
    decide::decide,
    lanes::Lanes,
    view::{Capi, JobView, Observed, Outcome, Owner, State, Status},
};
use crate::{
    Options,
    condition::{self, Is},
    driver::{self, kinds::driver_of},
    error::Error,
    host::Host,
    naming,
    seal::Seal,
    state,
};

/// A safety net only: every input is watched.
const RESYNC: Duration = Duration::from_secs(600);

/// The setting that keeps failed machines for a while.
const RETIRE_AFTER: &str = "delete-machine-on-failure-after";

/// Machines of one kind.
pub(crate) struct Machines {
    ctx: Arc<Ctx>,
    options: Arc<Options>,
    seal: Seal,
    /// Where machines of this kind exist, if that is the server's own host.
    host: Option<Arc<Host>>,
    resource: ApiResource,
    driver: String,
    jobs: Informer<Job>,
    machines: Informer<Machine>,
    clusters: Informer<Cluster>,
    drivers: Informer<NodeDriver>,
    settings: Informer<Setting>,
    claims: Informer<IpAddressClaim>,
    lanes: Lanes,
    enqueuer: Enqueuer,
}

/// The Jobs of machines.
pub(crate) fn jobs(ctx: &Ctx) -> Informer<Job> {
    ctx.informers.of(Scope::labels(label::INFRA_MACHINE_KIND))
}

/// Index of machines of drivers by the Cluster they are of.
const BY_CLUSTER: &str = "cluster";

/// Runs the machines of one kind until told to stop.
pub(crate) async fn run(
    ctx: Arc<Ctx>,
    options: Arc<Options>,
    seal: Seal,
    host: Option<Arc<Host>>,
    resource: ApiResource,
    stop: CancellationToken,
) {
    let Some(driver) = driver_of(&resource.kind) else { return };
    let root = ctx.informers.dynamic(&resource, Scope::all());
    root.add_index(BY_CLUSTER, |machine| {
        let cluster = machine.labels().get(capi::label::CLUSTER_NAME).cloned();
        cluster
            .map(|cluster| format!("{}/{cluster}", machine.namespace().unwrap_or_default()))
            .into_iter()
            .collect()
    });
    let (jobs, machines) = (jobs(&ctx), ctx.informers.of::<Machine>(Scope::all()));
    let (clusters, drivers) = (ctx.informers.of::<Cluster>(Scope::all()), driver::informer(&ctx));
    let settings = ctx.informers.of::<Setting>(Scope::all());
    let claims = ctx.informers.of::<IpAddressClaim>(Scope::all());
    let kind = resource.kind.clone();
    let of_job = move |job: &Job| {
        let labels = job.labels();
        let name = labels
            .get(label::INFRA_MACHINE_NAME)
            .filter(|_| labels.get(label::INFRA_MACHINE_KIND) == Some(&kind));
        name.map(|name| ObjectKey::of(&job.metadata).sibling(name)).into_iter().collect()
    };
    let kind = resource.kind.clone();
    let of_machine = move |machine: &Machine| {
        let reference = &machine.spec.infrastructure_ref;
        let ours = reference.kind == kind && reference.api_group == remuda_names::rancher::group::MACHINE;
        ours.then(|| ObjectKey::of(&machine.metadata).sibling(&reference.name)).into_iter().collect()
    };
    let of_cluster = {
        let root = root.clone();
        move |cluster: &Cluster| root.keys_by_index(BY_CLUSTER, &ObjectKey::of(&cluster.metadata).to_string())
    };
    let of_driver = {
        let (root, driver) = (root.clone(), driver.clone());
        move |node_driver: &NodeDriver| {
            let ours = node_driver.name_any() == driver || driver::name_of(node_driver) == driver;
            if ours { root.keys() } else { Vec::new() }
        }
    };
    let of_claim = owner_of(&root);
    let controller = Controller::on("driver-machine", &ctx, root)
        .workers(options.workers)
        .watches(&jobs, of_job)
        .watches(&machines, of_machine)
        .watches(&clusters, of_cluster)
        .watches(&drivers, of_driver)
        .watches_if_served(&settings, |_: &Setting| Vec::new())
        .watches_if_served(&claims, of_claim);
    let enqueuer = controller.enqueuer();
    let lanes = Lanes::new(options.concurrency);
    let host = host.filter(|_| options.drivers_of_host.contains(&driver));
    let machines = Machines {
        ctx,
        options,
        seal,
        host,
        resource,
        driver,
        jobs,
        machines,
        clusters,
        drivers,
        settings,
        claims,
        lanes,
        enqueuer,
    };
    drive(
        controller,
        |object, machines: Arc<Machines>| async move { machines.reconcile(object).await },
        Arc::new(machines),
        stop,
    )
    .await;
}

impl Machines {
    fn api(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.ctx.client.clone(), namespace, &self.resource)
    }

    async fn reconcile(&self, object: Arc<DynamicObject>) -> Result<Action, Error> {
        let namespace = object.namespace().unwrap_or_default();
        let api = self.api(&namespace);
        let object =
            match write::ensure_finalizer(&api, (*object).clone(), &self.resource, finalizer::MACHINE).await?
            {
                Finalizer::Active(object) | Finalizer::Deleting(object) => object,
                Finalizer::Gone => {
                    self.lanes.leave(&ObjectKey::of(&object.metadata), &self.enqueuer);
                    return Ok(Action::AwaitChange);
                }
            };
        let object = self.label(&api, object).await?;
        let observed = self.observe(&object).await?;
        let now = self.ctx.clock.now();
        let decision = decide(&observed, now);
        let key = ObjectKey::of(&object.metadata);
        let running = observed.job.as_ref().is_some_and(|job| job.outcome == Outcome::Running);
        if !running && !decision.act.starts_a_job() {
            self.lanes.leave(&key, &self.enqueuer);
        } else if running && let Some(job) = self.jobs.get(&key.sibling(naming::job(&key.name))) {
            let lane = job.labels().get(machines::label::LANE).cloned().unwrap_or_default();
            self.lanes.occupy(&lane, &key);
        }
        let next = self.act(&object, &observed, decision).await?;
        Ok(Action::RequeueAfter(next.map_or(RESYNC, |next| next.min(RESYNC))))
    }

    /// The Machine is found by this label when owners are gone.
    async fn label(&self, api: &Api<DynamicObject>, object: DynamicObject) -> Result<DynamicObject, Error> {
        let Owner::Machine(name) = owner(&object) else { return Ok(object) };
        if object.labels().get(label::CAPI_MACHINE_NAME) == Some(&name) || name.len() > 63 {
            return Ok(object);
        }
        let patch = json!({"metadata": {"uid": object.uid(), "labels": {(label::CAPI_MACHINE_NAME): name}}});
        let patched = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map_err(Error::api("label", object.name_any()))
    }

    async fn observe(&self, object: &DynamicObject) -> Result<Observed, Error> {
        let key = ObjectKey::of(&object.metadata);
        let namespace = object.namespace().unwrap_or_default();
        let status = object.data.get("status").cloned().unwrap_or_default();
        let status: Status = serde_json::from_value(status).unwrap_or_default();
        let owner = owner(object);
        let capi = self.capi(object, &owner, &namespace);
        let cluster = object
            .labels()
            .get(capi::label::CLUSTER_NAME)
            .and_then(|name| self.clusters.get(&key.sibling(name)));
        let deleting = object.metadata.deletion_timestamp.is_some();
        let job = self.job(&key, &status).await?;
        let complete = job.as_ref().is_some_and(|job| job.outcome == Outcome::Complete);
        let rebooted = object.annotations().get(REBOOTED).cloned();
        let powered = object.annotations().get(POWER).cloned();
        // Where a server's own host has the machine, only that can restart it.
        let asked = capi.as_ref().and_then(|capi| capi.reboot.as_ref());
        let power = capi.as_ref().and_then(|capi| capi.power.as_ref());
        let wants_state = deleting
            || (complete && status.addresses.is_empty())
            || (job.is_none() && asked.is_some() && asked != rebooted.as_ref())
            || (job.is_none() && power.is_some() && power != powered.as_ref());
        let (state, creation_barred) =
            if wants_state { self.state(&namespace, &key.name).await? } else { (State::Unread, false) };
        let decided = condition::status(&status.conditions, kind::CREATE_JOB);
        let to_be_made = !deleting && job.is_none() && matches!(decided, None | Some(Is::Unknown));
        let address = if to_be_made { self.asked(object).await? } else { Asked::No };
        let namespace_terminating = deleting && self.is_terminating(&namespace).await?;
        let paused = object.annotations().contains_key(capi::annotation::PAUSED);
        Ok(Observed {
            name: object.name_any(),
            kind: self.resource.kind.clone(),
            driver: self.driver.clone(),
            provider_id: text(&object.data, "/spec/providerID"),
            deleting,
            force: object
                .annotations()
                .get(annotation::FORCE_MACHINE_REMOVE)
                .is_some_and(|yes| yes == "true"),
            rebooted,
            powered,
            paused,
            status,
            owner,
            capi,
            cluster: cluster.map(|cluster| view::Cluster {
                paused: paused || cluster.spec.paused == Some(true),
                provisioned: cluster
                    .status
                    .as_ref()
                    .is_some_and(|status| status.initialization.infrastructure_provisioned == Some(true)),
            }),
            node_driver: self.node_driver().map(|driver| {
                let local = driver.spec.url.is_empty() || driver.spec.url.starts_with(BUILT_IN);
                view::NodeDriver {
                    interruptible: local && self.options.drivers.has(&self.driver),
                    url: if local { String::new() } else { driver.spec.url.clone() },
                    checksum: if local { String::new() } else { driver.spec.checksum.clone() },
                }
            }),
            job,
            state,
            creation_barred,
            address,
            retire_after: self.retire_after(),
            namespace_terminating,
            namespace,
        })
    }

    async fn job(&self, key: &ObjectKey, status: &Status) -> Result<Option<JobView>, Error> {
        let Some(job) = self.jobs.get(&key.sibling(naming::job(&key.name))) else { return Ok(None) };
        let mut view = JobView::of(&job);
        if !self.options.runner && view.outcome != Outcome::Running {
            // Asked once: what was told is in the status from then on.
            let told = if view.removes { kind::DELETE_JOB } else { kind::CREATE_JOB };
            let known = condition::get(&status.conditions, told).filter(|known| known.status != "Unknown");
            view.told = known.is_some();
            let word = if view.told { None } else { self.ask_pods(&job).await? };
            if let (Outcome::Failed { message, .. }, Some(word)) = (&mut view.outcome, word) {
                *message = word;
            }
        }
        Ok(Some(view))
    }

    fn capi(&self, object: &DynamicObject, owner: &Owner, namespace: &str) -> Option<Capi> {
        let name = match owner {
            Owner::Machine(name) => name,
            _ => object.labels().get(label::CAPI_MACHINE_NAME)?,
        };
        let machine = self.machines.get(&ObjectKey::namespaced(namespace, name))?;
        Some(Capi {
            name: name.clone(),
            bootstrap_secret: machine.spec.bootstrap.data_secret_name.clone(),
            deleting: machine.metadata.deletion_timestamp.is_some(),
            reboot: machine.annotations().get(REBOOT_REQUESTED).cloned(),
            power: machine.annotations().get(POWER).cloned(),
        })
    }

    fn node_driver(&self) -> Option<Arc<NodeDriver>> {
        let named = self.drivers.get(&ObjectKey::cluster_wide(&self.driver));
        named.or_else(|| self.drivers.by_index(driver::BY_NAME, &self.driver).into_iter().next())
    }

    fn retire_after(&self) -> Duration {
        let setting = self.settings.get(&ObjectKey::cluster_wide(RETIRE_AFTER));
        let text = setting.map(|setting| {
            if setting.value.is_empty() { setting.default.clone() } else { setting.value.clone() }
        });
        let parsed = text.and_then(|text| text.parse::<jiff::SignedDuration>().ok());
        parsed.and_then(|parsed| Duration::try_from(parsed).ok()).unwrap_or_default()
    }

    /// What is recorded of the server, and whether the record bars jobs from beginning one.
    async fn state(&self, namespace: &str, machine: &str) -> Result<(State, bool), Error> {
        use k8s_openapi::api::core::v1::Secret;
        let name = naming::state_secret(machine);
        let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), namespace);
        let secret = secrets.get_opt(&name).await.map_err(Error::api("read Secret", &name))?;
        let Some(secret) = secret else { return Ok((State::Missing, false)) };
        let barred =
            secret.annotations().get(machines::annotation::CREATION_BARRED).is_some_and(|yes| yes == "true");
        let archive = secret
            .data
            .as_ref()
            .and_then(|data| data.get(remuda_names::rancher::secret_key::EXTRACTED_CONFIG));
        let Some(archive) = archive else { return Ok((State::Empty, barred)) };
        let state = match state::facts(&archive.0) {
            Ok(None) => State::Empty,
            Ok(Some(facts)) => State::Machine {
                phase: facts.phase.unwrap_or_default(),
                addresses: addresses(&facts),
                host: facts.host,
            },
            Err(error) => State::Unreadable(error.to_string()),
        };
        Ok((state, barred))
    }

    async fn is_terminating(&self, namespace: &str) -> Result<bool, Error> {
        let namespaces: Api<Namespace> = Api::all(self.ctx.client.clone());
        let found = namespaces.get_opt(namespace).await.map_err(Error::api("read Namespace", namespace))?;
        Ok(found.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()))
    }
}

fn addresses(facts: &state::Facts) -> Vec<view::Address> {
    let known = &facts.addresses;
    let all = [("ExternalIP", &known.ip), ("InternalIP", &known.private), ("ExternalIP", &known.ipv6)];
    let there = all.into_iter().filter(|(_, address)| !address.is_empty());
    there.map(|(kind, address)| view::Address { kind: kind.to_owned(), address: address.clone() }).collect()
}

fn owner(object: &DynamicObject) -> Owner {
    let core = |owner: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        owner.api_version.split('/').next() == Some(capi::group::CORE)
    };
    let mut owners = object.owner_references().iter().filter(core);
    if let Some(machine) = owners.clone().find(|owner| owner.kind == "Machine") {
        return Owner::Machine(machine.name.clone());
    }
    match owners.any(|owner| owner.kind == "MachineSet") {
        true => Owner::Set,
        false => Owner::Nobody,
    }
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
