//! What a Cluster takes over from the objects it refers to, and what is told about it.

use remuda_api::core::{Cluster, Endpoint, FailureDomain};
use remuda_control::events::Recorder;
use remuda_rollout::{
    cluster::phase::Phase,
    contract::{self, ControlPlaneObject, InfraCluster, WrongType},
    handoff::{self, Found, Provisioned, Report},
};

use super::{
    observe::{Observed, Referred},
    status,
};
use crate::{Error, providers::Provided};

/// The API refuses longer messages.
const LONGEST_MESSAGE: usize = 10_240;

/// What people are told by events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Infrastructure,
    ControlPlane,
    Phase(Phase),
    /// Nodes of the workload cluster cannot be watched.
    Unwatched,
    Deleted,
}

impl Told {
    pub(super) fn record(self, recorder: &Recorder, cluster: &Cluster) {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        if self == Told::Unwatched {
            let note =
                status::remote_connection(cluster).map(|told| told.message.clone()).unwrap_or_default();
            return recorder.warning(cluster, "NodeWatchFailed", "WatchNodes", note);
        }
        let (reason, note) = match self {
            Told::Infrastructure => (
                remuda_names::capi::condition::INFRASTRUCTURE_READY,
                format!("Cluster {name} InfrastructureProvisioned is now True"),
            ),
            Told::ControlPlane => (
                remuda_names::capi::condition::CONTROL_PLANE_INITIALIZED,
                format!("Cluster {name} ControlPlaneInitialized is now True"),
            ),
            Told::Phase(phase) => (phase.as_str(), format!("Cluster {name} is {phase}")),
            Told::Unwatched => return,
            Told::Deleted => ("Deleted", format!("Cluster {name} has been deleted")),
        };
        recorder.normal(cluster, reason, "Reconcile", note);
    }
}

/// What infrastructure reports.
type Infrastructure = (Option<(String, i32)>, Vec<contract::FailureDomain>);

pub(super) fn all(observed: &Observed, after: &mut Cluster, told: &mut Vec<Told>, errors: &mut Vec<Error>) {
    if let Err(error) = infrastructure(observed, after, told) {
        errors.push(error);
    }
    if let Err(error) = control_plane(observed, after, told) {
        errors.push(error);
    }
    failures(observed, after);
}

fn infrastructure(observed: &Observed, after: &mut Cluster, told: &mut Vec<Told>) -> Result<(), Error> {
    let deleting = after.metadata.deletion_timestamp.is_some();
    let status = after.status.get_or_insert_default();
    let before = status.initialization.infrastructure_provisioned == Some(true);
    let read = |provided: &Provided| -> Result<Report<Infrastructure>, WrongType> {
        let object = InfraCluster { object: provided.data(), contract: provided.contract() };
        let value = (object.endpoint()?, object.failure_domains()?);
        Ok(Report { done: object.provisioned()?, deleting: provided.is_deleting(), value })
    };
    let kind = &observed.cluster.spec.infrastructure_ref.kind;
    let Some(found) = find(&observed.infrastructure, read)? else {
        return Ok(());
    };
    match handoff::provisioned(found, kind, before, deleting, "provisioned") {
        // A topology makes the reference later.
        Provisioned::NoReference if deleting || after.spec.topology.is_some() => {}
        Provisioned::NoReference => status.initialization.infrastructure_provisioned = Some(true),
        Provisioned::Done((endpoint, domains)) => {
            take_endpoint(&mut after.spec.control_plane_endpoint, endpoint);
            status.failure_domains = domains.into_iter().map(failure_domain).collect();
            status.initialization.infrastructure_provisioned = Some(true);
            if !before {
                told.push(Told::Infrastructure);
            }
        }
        lost @ Provisioned::Lost { .. } => return Err(Error::Invalid(lost.to_string())),
        Provisioned::Gone | Provisioned::Missing | Provisioned::Waiting | Provisioned::Leaving => {}
    }
    Ok(())
}

fn control_plane(observed: &Observed, after: &mut Cluster, told: &mut Vec<Told>) -> Result<(), Error> {
    let deleting = after.metadata.deletion_timestamp.is_some();
    let status = after.status.get_or_insert_default();
    let before = status.initialization.control_plane_initialized == Some(true);
    let read = |provided: &Provided| -> Result<Report<Option<(String, i32)>>, WrongType> {
        let object = ControlPlaneObject { object: provided.data(), contract: provided.contract() };
        Ok(Report {
            done: object.initialized()?,
            deleting: provided.is_deleting(),
            value: object.endpoint()?,
        })
    };
    let kind = &observed.cluster.spec.control_plane_ref.kind;
    let Some(found) = find(&observed.control_plane, read)? else {
        return Ok(());
    };
    match handoff::provisioned(found, kind, before, deleting, "initialized") {
        Provisioned::Done(endpoint) => {
            take_endpoint(&mut after.spec.control_plane_endpoint, endpoint);
            status.initialization.control_plane_initialized = Some(true);
            if !before {
                told.push(Told::ControlPlane);
            }
        }
        lost @ Provisioned::Lost { .. } => return Err(Error::Invalid(lost.to_string())),
        // Without a control plane object the flag is never set; the condition tells.
        Provisioned::NoReference
        | Provisioned::Gone
        | Provisioned::Missing
        | Provisioned::Waiting
        | Provisioned::Leaving => {}
    }
    Ok(())
}

/// `None` if it could not be read, which is an error already.
fn find<T>(
    referred: &Referred,
    read: impl FnOnce(&Provided) -> Result<Report<T>, WrongType>,
) -> Result<Option<Found<Report<T>>>, Error> {
    Ok(match referred {
        Referred::No => Some(Found::NoReference),
        Referred::Missing => Some(Found::NotFound),
        Referred::Here(provided) => Some(Found::Here(read(provided)?)),
        Referred::Unreadable(_) => None,
    })
}

fn take_endpoint(own: &mut Endpoint, reported: Option<(String, i32)>) {
    let reported = reported.as_ref().map(|(host, port)| (host.as_str(), *port));
    if let Some((host, port)) = handoff::endpoint((&own.host, own.port), reported) {
        *own = Endpoint { host: host.to_owned(), port };
    }
}

fn failure_domain(domain: contract::FailureDomain) -> FailureDomain {
    let contract::FailureDomain { name, control_plane, attributes } = domain;
    FailureDomain { name, control_plane: Some(control_plane), attributes }
}

/// Failures providers call terminal. They go when the provider takes them back; what cannot be read stays.
fn failures(observed: &Observed, after: &mut Cluster) {
    let referred = [&observed.infrastructure, &observed.control_plane];
    if referred.iter().any(|referred| matches!(referred, Referred::Unreadable(_))) {
        return;
    }
    let (mut reason, mut message) = (None, None);
    for provided in referred.into_iter().filter_map(|referred| match referred {
        Referred::Here(provided) => Some(provided),
        _ => None,
    }) {
        let Ok((its_reason, its_message)) = contract::failure(provided.data()) else {
            continue;
        };
        reason = its_reason.filter(|reason| !reason.is_empty()).or(reason);
        let resource = &provided.kind.resource;
        let its_message = its_message.filter(|message| !message.is_empty()).map(|text| {
            let name = provided.object.metadata.name.as_deref().unwrap_or_default();
            let message = format!(
                "Failure detected from referenced resource {}, Kind={} with name \"{name}\": {text}",
                resource.api_version, resource.kind
            );
            message.chars().take(LONGEST_MESSAGE).collect::<String>()
        });
        message = its_message.or(message);
    }
    let known = after.status.as_ref().and_then(|status| status.deprecated.as_ref()?.v1beta1.as_ref());
    let known = known.map(|old| (old.failure_reason.clone(), old.failure_message.clone()));
    if known.unwrap_or_default() != (reason.clone(), message.clone()) {
        let status = after.status.get_or_insert_default();
        let old = status.deprecated.get_or_insert_default().v1beta1.get_or_insert_default();
        (old.failure_reason, old.failure_message) = (reason, message);
    }
}
