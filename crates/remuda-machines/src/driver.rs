//! NodeDrivers: gets their programs, asks for their flags, and makes kinds of them.
//!
//! Reads   NodeDrivers, DynamicSchemas, CRDs, and whether objects of a driver's kinds exist.
//! Writes  DynamicSchemas, three CRDs for each driver, and the NodeDriver's status.
//! Never   takes a kind away while objects of it exist: machines outlive the driver's being in use.
//!
//! Kinds that stay for their objects' sake go with the last of these. A driver that is put into use again meanwhile
//! takes them over; one whose kinds are being removed waits until they are gone and defines them anew.

pub(crate) mod builtin;
pub(crate) mod kinds;
pub(crate) mod schema;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::PartialObjectMeta,
};
use parking_lot::Mutex;
use remuda_api::management::{DynamicSchema, NodeDriver, NodeDriverStatus, SchemaField};
use remuda_control::{
    Action, Chain, Controller, Ctx, Enqueuer, ObjectKey, Scope, drive_keys, informer::Subscription, write,
};
use remuda_drivers::{
    builtin::{Context, Registry},
    error::Error as DriverError,
    flags::Flag,
    install::{self, BUILT_IN, Source},
    log::Log,
};
use remuda_names::{
    machines as names,
    rancher::{annotation::driver as annotation, condition as kind},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    kinds::{ROLES, Role, definition},
    schema::{Hints, LISTS},
};
use crate::{
    Options,
    condition::{self, Is},
    error::{Error, is_missing},
    job,
};

/// A download that failed is tried again after this long.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// How often a driver that is not in use is looked at, while objects keep its kinds. A safety net only.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Downloads may take minutes, and others need not wait for them.
const WORKERS: usize = 16;

const KEPT: &str = "its kinds stay while objects of them exist";

pub(crate) struct Drivers {
    ctx: Arc<Ctx>,
    registry: Registry,
    data_dir: PathBuf,
    cache: PathBuf,
    /// The program that asks those of drivers.
    program: Option<PathBuf>,
    /// What asking gave, so that a program is started once and not for every look at its NodeDriver.
    asked: Mutex<HashMap<Program, (Instant, Asked)>>,
    /// By driver: what tells that an object has gone which keeps its kinds.
    kept: Mutex<HashMap<String, Vec<Subscription>>>,
    enqueuer: Enqueuer,
}

/// Not the name of any NodeDriver.
const NOBODY: &str = "";

/// What a NodeDriver says about where its program is.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Program {
    driver: String,
    url: String,
    checksum: String,
}

/// What is known of a driver's program.
#[derive(Clone)]
enum Asked {
    Told { driver: String, flags: Arc<Vec<Flag>>, digest: String },
    Failed { downloaded: bool, error: DriverError },
}

pub(crate) async fn run(ctx: Arc<Ctx>, options: Arc<Options>, stop: CancellationToken) {
    let root = informer(&ctx);
    let definitions = ctx.informers.metadata::<CustomResourceDefinition>(Scope::all());
    let of_definition = {
        let root = root.clone();
        move |definition: &PartialObjectMeta<CustomResourceDefinition>| {
            let Some(driver) = definition.labels().get(names::label::DRIVER) else { return Vec::new() };
            match root.keys_by_index(BY_NAME, driver) {
                none if none.is_empty() => vec![ObjectKey::cluster_wide(NOBODY)],
                drivers => drivers,
            }
        }
    };
    let controller = Controller::on("node-driver", &ctx, root.clone())
        .workers(WORKERS)
        .watches(&definitions, of_definition);
    let enqueuer = controller.enqueuer();
    let (asked, kept) = (Mutex::default(), Mutex::default());
    let (registry, data_dir) = (options.drivers.clone(), options.data_dir.clone());
    let (cache, program) = (data_dir.join(names::file::DRIVERS), options.program.clone());
    let drivers = Arc::new(Drivers { ctx, registry, data_dir, cache, program, asked, kept, enqueuer });
    // A NodeDriver may have gone while nobody ran.
    controller.enqueuer().enqueue(ObjectKey::cluster_wide(NOBODY));
    let reconcile = move |key: ObjectKey, drivers: Arc<Drivers>| {
        let driver = root.get(&key);
        async move {
            match driver {
                Some(driver) => drivers.reconcile(&driver).await,
                None => drivers.sweep().await,
            }
        }
    };
    drive_keys(controller, reconcile, drivers, stop).await;
}

/// The driver's name: what it is shown as, else its object's.
pub(crate) fn name_of(driver: &NodeDriver) -> String {
    match driver.spec.display_name.as_str() {
        "" => driver.name_any(),
        shown => shown.to_lowercase(),
    }
}

impl Drivers {
    async fn reconcile(&self, driver: &NodeDriver) -> Result<Action, Error> {
        if driver.metadata.deletion_timestamp.is_some() {
            return Ok(Action::AwaitChange);
        }
        let mut status = driver.status.clone().unwrap_or_default();
        let next = if driver.spec.active || driver.spec.add_cloud_credential {
            self.serve(driver, &mut status).await?
        } else {
            self.withdraw(driver, &mut status).await?
        };
        self.write_status(driver, &status).await?;
        Ok(next)
    }

    /// The kind has no status of its own to write: Rancher's programs write the object as a whole.
    async fn write_status(&self, driver: &NodeDriver, status: &NodeDriverStatus) -> Result<(), Error> {
        let encode = |status: Option<&NodeDriverStatus>| {
            let value = status.map_or(Ok(Value::Null), serde_json::to_value);
            value.map_err(|source| Error::Encode { what: driver.name_any(), source })
        };
        let (before, after) = (encode(driver.status.as_ref())?, encode(Some(status))?);
        let Some(difference) = write::difference(&before, &after) else { return Ok(()) };
        let patch = json!({"metadata": {"uid": driver.uid()}, "status": difference});
        let api: Api<NodeDriver> = Api::all(self.ctx.client.clone());
        match api.patch(&driver.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if !is_missing(&error) => {
                Err(Error::api("write status of NodeDriver", driver.name_any())(error))
            }
            _ => Ok(()),
        }
    }

    /// The driver is in use: its kinds are served, or its conditions say why not.
    async fn serve(&self, driver: &NodeDriver, status: &mut NodeDriverStatus) -> Result<Action, Error> {
        let now = self.ctx.clock.now();
        let mut set = |kind: &str, is: Is, reason: &str, message: &str| {
            condition::set(&mut status.conditions, kind, is, reason, message, now);
        };
        let (name, flags, digest) = match self.ask(driver).await {
            Asked::Told { driver, flags, digest } => (driver, flags, digest),
            Asked::Failed { downloaded, error } => {
                let text = error.to_string();
                let failed: &[&str] = match downloaded {
                    true => &[kind::INSTALLED, kind::ACTIVE],
                    false => &[kind::DOWNLOADED, kind::INSTALLED, kind::ACTIVE],
                };
                if downloaded {
                    set(kind::DOWNLOADED, Is::True, "", "");
                }
                failed.iter().for_each(|kind| set(kind, Is::False, "Error", &text));
                return Ok(Action::RequeueAfter(TRY_AGAIN));
            }
        };
        set(kind::DOWNLOADED, Is::True, "", "");
        let hints = Hints::of(driver);
        let fields = schema::check_name(&name).and_then(|()| schema::config_fields(&flags, &hints));
        let fields = match fields {
            Ok(fields) => fields,
            Err(unfit) => {
                set(kind::INSTALLED, Is::False, "Error", &unfit.to_string());
                set(kind::ACTIVE, Is::False, "Error", &unfit.to_string());
                return Ok(Action::AwaitChange);
            }
        };
        set(kind::INSTALLED, Is::True, "", "");
        self.note(driver, &name, &hints, &digest).await?;
        let credentials = schema::credential_fields(&name, &fields, &hints);
        let has_credentials = !credentials.is_empty();
        if has_credentials {
            self.apply_schema(driver, &schema::credential_name(&name), &name, credentials).await?;
        }
        self.list(&name, driver.spec.active, has_credentials).await?;
        if driver.spec.active {
            self.kept.lock().remove(&name);
            for role in ROLES {
                if !self.define(role, &name, &fields).await? {
                    let kind = role.kind(&name);
                    let message =
                        format!("waiting for the former kind {kind} to be removed with its objects");
                    set(kind::ACTIVE, Is::False, "Waiting", &message);
                    return Ok(Action::AwaitChange);
                }
            }
            self.apply_schema(driver, &schema::config_name(&name), &name, fields).await?;
        }
        let kept = !driver.spec.active && self.drop_kinds(&name, &driver.name_any()).await?;
        set(kind::ACTIVE, driver.spec.active.into(), "", "");
        set(kind::INACTIVE, (!driver.spec.active).into(), "", if kept { KEPT } else { "" });
        status.applied_url.clone_from(&driver.spec.url);
        status.applied_checksum.clone_from(&driver.spec.checksum);
        Ok(if kept { Action::RequeueAfter(LOOK_AGAIN) } else { Action::AwaitChange })
    }

    /// The driver is not in use: what says that it can be is taken away, and its kinds unless they are used.
    async fn withdraw(&self, driver: &NodeDriver, status: &mut NodeDriverStatus) -> Result<Action, Error> {
        let now = self.ctx.clock.now();
        let kept = self.retire(&name_of(driver), &driver.name_any()).await?;
        let message = if kept { KEPT } else { "" };
        condition::set(&mut status.conditions, kind::ACTIVE, Is::False, "", "", now);
        condition::set(&mut status.conditions, kind::INACTIVE, Is::True, "", message, now);
        Ok(if kept { Action::RequeueAfter(LOOK_AGAIN) } else { Action::AwaitChange })
    }

    /// Retires drivers that no NodeDriver is for any more. Their kinds say whose they are.
    async fn sweep(&self) -> Result<Action, Error> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.ctx.client.clone());
        let labelled = ListParams::default().labels(names::label::DRIVER);
        let definitions = crds.list_metadata(&labelled).await.map_err(Error::api("list", "CRDs"))?;
        let mut left: BTreeSet<String> =
            definitions.iter().filter_map(|crd| crd.labels().get(names::label::DRIVER).cloned()).collect();
        let drivers: Api<NodeDriver> = Api::all(self.ctx.client.clone());
        // Asked for now: a NodeDriver that was made meanwhile is in no cache yet.
        let drivers =
            drivers.list(&ListParams::default()).await.map_err(Error::api("list", "NodeDrivers"))?;
        let there: BTreeSet<String> = drivers.iter().map(name_of).collect();
        left.retain(|driver| !there.contains(driver));
        // A driver that is made again is asked again: its program may be another by then.
        self.asked.lock().retain(|program, _| there.contains(&program.driver));
        let mut kept = false;
        for driver in &left {
            let known = self.kept.lock().contains_key(driver);
            let keeps = self.retire(driver, NOBODY).await?;
            let machines = definitions.iter().find(|crd| crd.name_any() == Role::Machine.crd_name(driver));
            if keeps
                && !known
                && let Some(machines) = machines
            {
                let note = format!("the NodeDriver of driver {driver} is gone: {KEPT}");
                self.ctx.recorder.warning(machines, "DriverGone", "Keep", note);
            }
            kept |= keeps;
        }
        Ok(if kept { Action::RequeueAfter(LOOK_AGAIN) } else { Action::AwaitChange })
    }

    /// Tells whether the kinds are still there, because of their objects; then the NodeDriver `owner` is looked at
    /// again when one of these goes.
    async fn retire(&self, driver: &str, owner: &str) -> Result<bool, Error> {
        self.list(driver, false, false).await?;
        let kept = self.drop_kinds(driver, owner).await?;
        if !kept {
            let schemas: Api<DynamicSchema> = Api::all(self.ctx.client.clone());
            delete(&schemas, &schema::credential_name(driver)).await?;
        }
        Ok(kept)
    }

    /// Takes the kinds of a driver away, unless objects of any exist, and tells whether they are still there.
    async fn drop_kinds(&self, driver: &str, owner: &str) -> Result<bool, Error> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.ctx.client.clone());
        let mut ours = Vec::new();
        for role in ROLES {
            let name = role.crd_name(driver);
            let found = crds.get_opt(&name).await.map_err(Error::api("read CRD", &name))?;
            let is_ours = |crd: CustomResourceDefinition| {
                let labelled = crd.labels().get(names::label::DRIVER).is_some_and(|of| of == driver);
                labelled && crd.metadata.deletion_timestamp.is_none()
            };
            if found.is_some_and(is_ours) {
                ours.push(role);
            }
        }
        if self.any_used(&ours, driver).await? {
            self.follow_objects(&ours, driver, owner);
            // The last may have gone before it was followed.
            if self.any_used(&ours, driver).await? {
                return Ok(true);
            }
        }
        self.kept.lock().remove(driver);
        for role in ours {
            delete(&crds, &role.crd_name(driver)).await?;
        }
        let schemas: Api<DynamicSchema> = Api::all(self.ctx.client.clone());
        delete(&schemas, &schema::config_name(driver)).await?;
        Ok(false)
    }

    /// Wakes a NodeDriver whenever an object of a driver's kinds goes, for as long as they are kept.
    fn follow_objects(&self, roles: &[Role], driver: &str, owner: &str) {
        let follow = |role: &Role| {
            let (enqueuer, key) = (self.enqueuer.clone(), ObjectKey::cluster_wide(owner));
            let objects = self.ctx.informers.dynamic(&role.resource(driver), Scope::all());
            objects.subscribe(move |change| {
                if change.is_delete() {
                    enqueuer.enqueue(key.clone());
                }
            })
        };
        self.kept.lock().insert(driver.to_owned(), roles.iter().map(follow).collect());
    }

    async fn any_used(&self, roles: &[Role], driver: &str) -> Result<bool, Error> {
        for role in roles {
            if self.is_used(*role, driver).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether objects of a kind exist.
    async fn is_used(&self, role: Role, driver: &str) -> Result<bool, Error> {
        let objects: Api<DynamicObject> = Api::all_with(self.ctx.client.clone(), &role.resource(driver));
        match objects.list_metadata(&ListParams::default().limit(1)).await {
            Ok(list) => Ok(!list.items.is_empty()),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(Error::api("list", role.crd_name(driver))(error)),
        }
    }

    async fn ask(&self, driver: &NodeDriver) -> Asked {
        let spec = &driver.spec;
        let (url, checksum) = (spec.url.clone(), spec.checksum.clone());
        let key = Program { driver: name_of(driver), url, checksum };
        if let Some((at, asked)) = self.asked.lock().get(&key)
            && (matches!(asked, Asked::Told { .. }) || at.elapsed() < TRY_AGAIN)
        {
            return asked.clone();
        }
        let asked = self.ask_anew(driver).await;
        if let Asked::Failed { error, .. } = &asked {
            tracing::warn!(driver = %key.driver, error = %Chain(error), "driver cannot be used");
        }
        self.asked.lock().insert(key, (Instant::now(), asked.clone()));
        asked
    }

    async fn ask_anew(&self, driver: &NodeDriver) -> Asked {
        let spec = &driver.spec;
        let failed = |downloaded| move |error| Asked::Failed { downloaded, error };
        let source = Source { url: &spec.url, checksum: &spec.checksum, cache: &self.cache };
        let log = Log::tracing();
        let local = spec.url.is_empty() || spec.url.starts_with(BUILT_IN);
        let asked = async {
            let (name, digest) = if local {
                let name = name_of(driver);
                if let Some(own) = self.registry.open(&name, Context::new(log)) {
                    let flags = Arc::new(own.flags().await.map_err(failed(true))?);
                    return Ok(Asked::Told { driver: name, flags, digest: String::new() });
                }
                (name, String::new())
            } else {
                let program = install::obtain(source).await.map_err(failed(false))?;
                let name = match spec.display_name.as_str() {
                    "" => program.driver.clone(),
                    _ => name_of(driver),
                };
                (name, program.digest)
            };
            let asking = match &self.program {
                Some(program) => Ok(program.clone()),
                None => std::env::current_exe()
                    .map_err(|error| DriverError::other(format!("find this program: {error}"))),
            };
            let asking = asking.map_err(failed(true))?;
            let flags = job::flags::ask(&asking, &self.data_dir, &name, &spec.url, &spec.checksum).await;
            let flags = flags.map_err(failed(true))?;
            Ok(Asked::Told { driver: name, flags: Arc::new(flags), digest })
        };
        asked.await.unwrap_or_else(|failed: Asked| failed)
    }

    /// Writes what was learnt about a driver to its NodeDriver: its name and hints for user interfaces.
    async fn note(&self, driver: &NodeDriver, name: &str, hints: &Hints, digest: &str) -> Result<(), Error> {
        let annotations = driver.annotations();
        let mut patch = json!({});
        if driver.spec.display_name.is_empty() {
            patch["spec"]["displayName"] = name.into();
        }
        if let Some(hints) = hints.for_interfaces()
            && annotations.get(annotation::UI_HINTS) != Some(&hints)
        {
            patch["metadata"]["annotations"][annotation::UI_HINTS] = hints.into();
        }
        if !digest.is_empty()
            && annotations.get(names::annotation::DRIVER_DIGEST).is_none_or(|known| known != digest)
        {
            patch["metadata"]["annotations"][names::annotation::DRIVER_DIGEST] = digest.into();
        }
        if patch.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(());
        }
        let api: Api<NodeDriver> = Api::all(self.ctx.client.clone());
        let written = api.patch(&driver.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        written.map(drop).map_err(Error::api("write NodeDriver", driver.name_any()))
    }

    async fn apply_schema(
        &self,
        owner: &NodeDriver,
        name: &str,
        driver: &str,
        fields: BTreeMap<String, SchemaField>,
    ) -> Result<(), Error> {
        let api: Api<DynamicSchema> = Api::all(self.ctx.client.clone());
        let mut wanted = schema::schema(name, driver, fields);
        wanted.metadata.owner_references = Some(vec![write::owner_reference(owner, &())?]);
        let found = api.get_opt(name).await.map_err(Error::api("read DynamicSchema", name))?;
        if found.is_some_and(|found| {
            found.spec == wanted.spec && found.metadata.owner_references == wanted.metadata.owner_references
        }) {
            return Ok(());
        }
        let params = PatchParams::apply(&self.ctx.field_manager).force();
        let written = api.patch(name, &params, &Patch::Apply(&wanted)).await;
        written.map(drop).map_err(Error::api("write DynamicSchema", name))
    }

    /// Lists a driver, or takes it off the lists. Each driver's field has an owner of its own among those who
    /// apply, so drivers do not disturb each other.
    async fn list(&self, driver: &str, config: bool, credential: bool) -> Result<(), Error> {
        let api: Api<DynamicSchema> = Api::all(self.ctx.client.clone());
        for (list, extends, suffix) in LISTS {
            let wanted = if *suffix == "Config" { config } else { credential };
            let (field, value) = schema::listed(driver, suffix);
            let found = api.get_opt(list).await.map_err(Error::api("read DynamicSchema", list))?;
            let there = found.as_ref().and_then(|found| found.spec.resource_fields.get(&field));
            if there == wanted.then_some(&value) {
                continue;
            }
            if !wanted {
                let patch = json!({"spec": {"resourceFields": {(field): null}}});
                let written = api.patch(list, &PatchParams::default(), &Patch::Merge(patch)).await;
                written.map(drop).map_err(Error::api("write DynamicSchema", list))?;
                continue;
            }
            let mut schema = DynamicSchema::named(list);
            schema.spec.schema_name = (*list).to_owned();
            schema.spec.embed = true;
            schema.spec.embed_type = (*extends).to_owned();
            schema.spec.resource_fields = BTreeMap::from([(field, value)]);
            let params = PatchParams::apply(&format!("{}-{driver}", self.ctx.field_manager)).force();
            let written = api.patch(list, &params, &Patch::Apply(&schema)).await;
            written.map(drop).map_err(Error::api("write DynamicSchema", list))?;
        }
        Ok(())
    }

    /// Tells whether the kind is there to stay: one that is being removed has to be gone first.
    async fn define(
        &self,
        role: Role,
        driver: &str,
        fields: &BTreeMap<String, SchemaField>,
    ) -> Result<bool, Error> {
        let api: Api<CustomResourceDefinition> = Api::all(self.ctx.client.clone());
        let name = role.crd_name(driver);
        let found = api.get_opt(&name).await.map_err(Error::api("read CRD", &name))?;
        if found.as_ref().is_some_and(|found| found.metadata.deletion_timestamp.is_some()) {
            return Ok(false);
        }
        let found = found.map(serde_json::to_value).transpose();
        let found = found.map_err(|source| Error::Encode { what: name.clone(), source })?;
        let mut wanted = definition(role, driver, fields, found.as_ref());
        if let Some(found) = &found {
            if is_same(found, &wanted) {
                return Ok(true);
            }
            // Fields nobody uses need not be kept.
            if !self.is_used(role, driver).await? {
                wanted = definition(role, driver, fields, None);
            }
        }
        let params = PatchParams::apply(&self.ctx.field_manager).force();
        let written = api.patch(&name, &params, &Patch::Apply(&wanted)).await;
        written.map_err(Error::api("write CRD", &name))?;
        tracing::info!(driver, kind = role.kind(driver), "kind defined");
        Ok(true)
    }
}

/// Whether a definition is as wanted, in what we decide.
fn is_same(found: &Value, wanted: &Value) -> bool {
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    let columns = "/spec/versions/0/additionalPrinterColumns";
    let labels = |value: &Value| value.pointer("/metadata/labels").cloned().unwrap_or_default();
    let (has, wants) = (labels(found), labels(wanted));
    let labelled =
        wants.as_object().is_none_or(|wants| wants.iter().all(|(key, value)| has.get(key) == Some(value)));
    labelled
        && found.pointer(schema) == wanted.pointer(schema)
        && found.pointer(columns) == wanted.pointer(columns)
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<(), Error>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("delete", name)(error)),
    }
}

/// The caches of what controllers of machines need to know about drivers.
pub(crate) fn informer(ctx: &Ctx) -> remuda_control::Informer<NodeDriver> {
    let drivers = ctx.informers.of::<NodeDriver>(Scope::all());
    drivers.add_index(BY_NAME, |driver| vec![name_of(driver)]);
    drivers
}

/// Index of NodeDrivers by the name of their driver.
pub(crate) const BY_NAME: &str = "driver-name";
