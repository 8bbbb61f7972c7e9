//! What a Machine takes over from its bootstrap config and its infrastructure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use remuda_api::core::{ContractReference, Machine, MachineAddress, MachineSet, OldStatus};
use remuda_control::{Chain, Scope, write::controller_of};
use remuda_names::capi::{condition as kind, group, label};
use remuda_rollout::{
    condition::old::{OldCondition, Severity, mirror},
    contract::{self, BootstrapConfig, InfraMachine, WrongType},
    handoff::{self, Bootstrap, BootstrapReport, Found, Provisioned, Report},
    machine::delete::Object,
    provider,
};

use super::{Machines, Pass};
use crate::{
    error::Error,
    managed::{Managed, controlled, controller, ensure_owner, group_of, owned_elsewhere},
    providers::{Interest, Provided},
    save::PATIENCE,
};

/// An object a Machine refers to, as it was looked for.
pub(super) enum Seen {
    NoReference,
    /// Positively not there.
    Missing,
    Here(Provided),
    /// Nobody knows, for this reason.
    Failed(String),
}

impl Seen {
    /// Its condition of interest.
    pub(super) fn reading(&self) -> provider::Reading {
        match self {
            Seen::Here(provided) => contract::reading(provided.data(), kind::READY),
            Seen::Missing | Seen::NoReference => provider::Reading::NotFound,
            Seen::Failed(why) => provider::Reading::Failed(why.clone()),
        }
    }

    /// As the order of deletion sees it.
    pub(super) fn object(&self) -> Object {
        match self {
            Seen::Here(provided) if provided.is_deleting() => Object::Deleting,
            Seen::Here(_) => Object::Present,
            Seen::Missing | Seen::NoReference => Object::Gone,
            Seen::Failed(_) => Object::Unreadable,
        }
    }
}

/// Types of addresses.
const ADDRESSES: &[&str] = &["Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"];

/// What an infrastructure reports.
struct Server {
    provider_id: Option<String>,
    addresses: Option<Vec<(String, String)>>,
    spec_failure_domain: Option<String>,
    status_failure_domain: Option<String>,
}

impl Server {
    fn read(machine: &InfraMachine<'_>) -> Result<Self, WrongType> {
        Ok(Self {
            provider_id: machine.provider_id()?,
            addresses: machine.addresses()?,
            spec_failure_domain: machine.spec_failure_domain()?,
            status_failure_domain: machine.status_failure_domain()?,
        })
    }
}

impl Machines {
    pub(super) async fn bootstrap(&self, pass: &mut Pass) {
        let reference = pass.before.spec.bootstrap.config_ref.clone();
        pass.bootstrap = self.see(pass, &reference).await;
        let report = match &pass.bootstrap {
            Seen::NoReference => Found::NoReference,
            Seen::Missing => Found::NotFound,
            Seen::Failed(_) => return,
            Seen::Here(provided) => {
                let config = BootstrapConfig { object: provided.data(), contract: provided.contract() };
                let read = || -> Result<_, WrongType> {
                    let created = config.data_secret_created()?;
                    Ok(BootstrapReport {
                        kind: reference.kind.clone(),
                        created,
                        secret: config.data_secret_name()?,
                    })
                };
                match read() {
                    // One that is on its way out hands over nothing more.
                    Ok(report) if provided.is_deleting() => {
                        Found::Here(BootstrapReport { created: false, ..report })
                    }
                    Ok(report) => Found::Here(report),
                    Err(error) => {
                        pass.bootstrap = Seen::Failed(error.to_string());
                        pass.errors.push(error.into());
                        return;
                    }
                }
            }
        };
        let known = pass.before.spec.bootstrap.data_secret_name.clone();
        let created = matches!(&report, Found::Here(report) if report.created);
        self.old_bootstrap(pass, created || known.is_some());
        match handoff::bootstrap(report, known.as_deref(), pass.deleting()) {
            Bootstrap::Done { copy } => {
                if copy.is_some() {
                    pass.after.spec.bootstrap.data_secret_name = copy;
                }
                let status = pass.after.status.get_or_insert_default();
                status.initialization.bootstrap_data_secret_created = Some(true);
            }
            nameless @ Bootstrap::Nameless { .. } => {
                let why = nameless.to_string();
                pass.bootstrap = Seen::Failed(why.clone());
                pass.errors.push(Error::Invalid(why));
            }
            // Its kind is followed, so nothing has to be asked for again.
            Bootstrap::Provided | Bootstrap::Gone | Bootstrap::Missing | Bootstrap::Waiting => {}
        }
    }

    fn old_bootstrap(&self, pass: &mut Pass, created: bool) {
        let Seen::Here(provided) = &pass.bootstrap else {
            return;
        };
        let named = pass.before.spec.bootstrap.data_secret_name.is_some();
        let condition = if named {
            OldCondition::good("BootstrapReady")
        } else {
            let fallback = fallback("BootstrapReady", created, pass.deleting(), "WaitingForDataSecret");
            mirror(&contract::old_conditions(provided.data()), "BootstrapReady", fallback)
        };
        pass.old.set(condition, pass.now);
    }

    pub(super) async fn infrastructure(&self, pass: &mut Pass) {
        let reference = pass.before.spec.infrastructure_ref.clone();
        pass.infrastructure = self.see(pass, &reference).await;
        let object = match &pass.infrastructure {
            Seen::NoReference => Found::NoReference,
            Seen::Missing => Found::NotFound,
            Seen::Failed(_) => return,
            Seen::Here(provided) => {
                let machine = InfraMachine { object: provided.data(), contract: provided.contract() };
                let deleting = provided.is_deleting();
                let read =
                    || Ok(Report { done: machine.provisioned()?, deleting, value: Server::read(&machine)? });
                match read() {
                    Ok(report) => Found::Here(report),
                    Err(error) => {
                        let error: WrongType = error;
                        pass.infrastructure = Seen::Failed(error.to_string());
                        pass.errors.push(error.into());
                        return;
                    }
                }
            }
        };
        if let (Seen::Here(provided), Found::Here(report)) = (&pass.infrastructure, &object) {
            let name = kind::INFRASTRUCTURE_READY;
            let fallback = fallback(name, report.done, pass.deleting(), "WaitingForInfrastructure");
            let condition = mirror(&contract::old_conditions(provided.data()), name, fallback);
            pass.old.set(condition, pass.now);
        }
        let status = pass.after.status.get_or_insert_default();
        let before = status.initialization.infrastructure_provisioned == Some(true);
        let deleting = pass.before.metadata.deletion_timestamp.is_some();
        let mut failure = failures(pass);
        match handoff::provisioned(object, &reference.kind, before, deleting, "provisioned") {
            Provisioned::Done(server) => take_over(&mut pass.after, server),
            lost @ Provisioned::Lost { .. } => {
                let Pass { namespace, .. } = &*pass;
                let message = format!(
                    "Machine infrastructure resource {} {namespace}/{} has been deleted after provisioning was completed",
                    reference.kind, reference.name
                );
                failure = Some((Some("InvalidConfiguration".to_owned()), Some(message)));
                tracing::warn!(machine = %pass.key, "{lost}");
            }
            Provisioned::NoReference
            | Provisioned::Gone
            | Provisioned::Missing
            | Provisioned::Waiting
            | Provisioned::Leaving => {}
        }
        if let Some((reason, message)) = failure {
            set_failure(&mut pass.after, reason, message);
        }
    }

    /// Looks for an object, and makes the Machine its owner.
    async fn see(&self, pass: &mut Pass, reference: &ContractReference) -> Seen {
        if !reference.is_defined() {
            return Seen::NoReference;
        }
        let interest = Interest { enqueuer: &self.enqueuer, root: &self.capi.machines, key: &pass.key };
        let found = self.capi.providers.get(reference, &pass.namespace, &interest).await;
        let provided = match found {
            Ok(Some(provided)) => provided,
            Ok(None) => return Seen::Missing,
            Err(error) => {
                let why = Chain(&error).to_string();
                pass.errors.push(error);
                return Seen::Failed(why);
            }
        };
        if provided.is_deleting() {
            return Seen::Here(provided);
        }
        match self.take(pass, &provided).await {
            Ok(Some(taken)) => Seen::Here(taken),
            Ok(None) => Seen::Missing,
            Err(error) => {
                // What belongs to somebody else is not ours to take over from.
                let theirs = matches!(error, Error::Kit(remuda_control::Error::Controlled { .. }));
                if theirs && pass.before.metadata.deletion_timestamp.is_some() {
                    // Its end is not ours to bring about or to wait for.
                    return Seen::Missing;
                }
                let why = Chain(&error).to_string();
                pass.errors.push(error);
                if theirs { Seen::Failed(why) } else { Seen::Here(provided) }
            }
        }
    }

    /// The Machine becomes the controller of an object; whoever made it for the Machine steps back.
    async fn take(&self, pass: &Pass, provided: &Provided) -> Result<Option<Provided>, Error> {
        let control_plane = &pass.cluster.spec.control_plane_ref;
        let maker = |owner: &OwnerReference| {
            let of = group_of(&owner.api_version);
            (owner.kind == MachineSet::KIND && of == group::CORE)
                || (control_plane.is_defined()
                    && owner.kind == control_plane.kind
                    && of == control_plane.api_group)
        };
        if let Some(owner) = owned_elsewhere(&provided.object, &pass.before.spec.cluster_name) {
            return Err(controlled(&provided.object, &provided.kind.resource.kind, owner));
        }
        let mut owners = provided.object.owner_references().to_vec();
        owners.retain(|owner| !maker(owner));
        let name = pass.key.name.as_ref();
        let other = controller_of(&provided.object.metadata)
            .filter(|owner| !maker(owner) && (owner.kind != Machine::KIND || owner.name != name));
        if let Some(other) = other {
            let owner = format!("{} {}", other.kind, other.name);
            return Err(controlled(&provided.object, &provided.kind.resource.kind, owner));
        }
        ensure_owner(&mut owners, controller(&*pass.before));
        let labels = [(label::CLUSTER_NAME, pass.before.spec.cluster_name.as_str())];
        let taken = self.capi.providers.label_and_own(provided, &labels, owners).await?;
        if let Some(taken) = &taken
            && let Some(version) = taken.object.resource_version()
            && provided.object.resource_version().as_ref() != Some(&version)
        {
            // Or the next pass would write the same again, from an old view.
            let cache = self.capi.ctx.informers.dynamic(&taken.kind.resource, Scope::all());
            cache.wait_for(&version, PATIENCE).await;
        }
        Ok(taken)
    }
}

fn fallback(name: &str, done: bool, deleting: bool, waiting: &str) -> OldCondition {
    match (done, deleting) {
        (true, _) => OldCondition::good(name),
        (false, true) => OldCondition::bad(name, Severity::Info, "Deleting", ""),
        (false, false) => OldCondition::bad(name, Severity::Info, waiting, ""),
    }
}

/// Provider ID and flag go together: whoever sees one may rely on the other.
fn take_over(machine: &mut Machine, server: Server) {
    let Some(provider_id) = server.provider_id else {
        return;
    };
    machine.spec.provider_id = provider_id;
    if let Some(domain) = server.spec_failure_domain {
        machine.spec.failure_domain = domain;
    }
    let status = machine.status.get_or_insert_default();
    status.initialization.infrastructure_provisioned = Some(true);
    if let Some(addresses) = server.addresses {
        // One that our own schema refuses would make every write fail.
        let valid = |(kind, address): &(String, String)| {
            ADDRESSES.contains(&kind.as_str()) && (1..=256).contains(&address.len())
        };
        let address = |(kind, address)| MachineAddress { kind, address };
        status.addresses = addresses.into_iter().filter(valid).take(256).map(address).collect();
    }
    if let Some(domain) = server.status_failure_domain {
        status.failure_domain = domain;
    }
}

type Failure = (Option<String>, Option<String>);

/// What providers call terminal, `None` while not all of them can be asked. Upstream never takes it back.
fn failures(pass: &Pass) -> Option<Failure> {
    let mut found = (None, None);
    for seen in [&pass.bootstrap, &pass.infrastructure] {
        match seen {
            Seen::Failed(_) => return None,
            Seen::NoReference | Seen::Missing => {}
            Seen::Here(provided) => {
                let (reason, message) = contract::failure(provided.data()).unwrap_or_default();
                let resource = &provided.kind.resource;
                let message = message.filter(|message| !message.is_empty()).map(|message| {
                    let text = format!(
                        "Failure detected from referenced resource {}, Kind={} with name {:?}: {message}",
                        resource.api_version,
                        resource.kind,
                        provided.object.name_any()
                    );
                    text.chars().take(10_240).collect()
                });
                let reason = reason.filter(|reason| !reason.is_empty());
                found = (reason.or(found.0), message.or(found.1));
            }
        }
    }
    Some(found)
}

fn set_failure(machine: &mut Machine, reason: Option<String>, message: Option<String>) {
    let status = machine.status.get_or_insert_default();
    let known = status.deprecated.as_ref().and_then(|deprecated| deprecated.v1beta1.as_ref());
    let told = |old: &OldStatus| (old.failure_reason.clone(), old.failure_message.clone());
    if known.map(told).unwrap_or_default() == (reason.clone(), message.clone()) {
        return;
    }
    let old = status.deprecated.get_or_insert_default().v1beta1.get_or_insert_default();
    (old.failure_reason, old.failure_message) = (reason, message);
}
