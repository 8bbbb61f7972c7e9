//! Defaults and rules of clusters and machine configurations, in front of the API.
//!
//! Status is not judged.

use jiff::{Timestamp, tz::TimeZone};
use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Lookup, Named, Operation};
use remuda_auth::identity::API_SERVER;
use remuda_distro::Current;
use remuda_names::{
    capi,
    rancher::group::{MACHINE_CONFIG, MANAGEMENT, PROVISIONING, RKE},
};
use remuda_provisioning::admission::{self, Known, PartDeletion, Refusal, Snapshot, Whole, Write};
use serde_json::Value;

/// Admission of provisioning and management Clusters, and of machine configurations.
pub struct Admission {
    releases: Current,
}

impl Admission {
    pub fn new(releases: Current) -> Self {
        Self { releases }
    }
}

fn write<'a>(request: &Request<'a>) -> Write<'a> {
    let Request { namespace, name, old, .. } = *request;
    let is_server = request.user.is_controller();
    Write { namespace, name, user: &request.user.name, is_server, old }
}

/// The snapshot that is to be restored from now on.
fn snapshot(request: &Request<'_>, object: Option<&Value>) -> Option<Lookup> {
    let restore = |object: &Value| object["spec"]["rkeConfig"]["etcdSnapshotRestore"].clone();
    let wanted = object.map(restore).filter(Value::is_object)?;
    if request.group != PROVISIONING || request.old.map(restore).as_ref() == Some(&wanted) {
        return None;
    }
    let name = wanted["name"].as_str().filter(|name| !name.is_empty())?.to_owned();
    let (group, kind) = (RKE.to_owned(), "ETCDSnapshot".to_owned());
    Some(Lookup { group, kind, namespace: request.namespace.to_owned(), name })
}

/// The Machines that tell what a cluster runs whose version changes.
fn machines(request: &Request<'_>, object: Option<&Value>) -> Option<Lookup> {
    let (old, object) = request.old.zip(object)?;
    let is_cluster = request.group == PROVISIONING && request.kind == "Cluster";
    if !is_cluster || request.user.is_controller() || !admission::changes_version(old, object) {
        return None;
    }
    let (group, kind) = (capi::group::CORE.to_owned(), "Machine".to_owned());
    Some(Lookup { group, kind, namespace: request.namespace.to_owned(), name: String::new() })
}

/// Whether a part of a cluster is deleted that stands for the whole.
fn deletes_part(request: &Request<'_>) -> bool {
    request.operation == Operation::Delete
        && request.subresource.is_empty()
        && admission::is_part_kind(request.group, request.kind)
}

/// The whole a deleted part belongs to, and how it is found.
fn whole_of(request: &Request<'_>) -> Option<(Whole, Lookup)> {
    let Request { group, kind, .. } = *request;
    let is_server = request.user.is_controller() || is_kubernetes_controller(&request.user.name);
    let deletion = PartDeletion { group, kind, is_server, object: request.old? };
    let whole = admission::whole_of(&deletion)?;
    let (group, kind, namespace, name) = match &whole {
        Whole::Cluster { namespace, name } => (PROVISIONING, "Cluster", namespace, name),
        Whole::Machine { namespace, name, .. } => (capi::group::CORE, "Machine", namespace, name),
    };
    let lookup = Lookup {
        group: group.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.clone(),
        name: name.clone(),
    };
    Some((whole, lookup))
}

/// Those that collect garbage and empty namespaces.
fn is_kubernetes_controller(user: &str) -> bool {
    user == API_SERVER || user.starts_with("system:serviceaccount:kube-system:")
}

/// Refuses to delete a part of a cluster that stays: it would be made again.
fn judge_part(request: &Request<'_>) -> Result<(), ApiError> {
    let Some((whole, lookup)) = whole_of(request) else { return Ok(()) };
    let found = request.found.get(&lookup).and_then(|found| found.objects.first());
    let stays = found.is_some_and(|found| {
        let metadata = &found["metadata"];
        let is_same = match &whole {
            Whole::Cluster { .. } => true,
            Whole::Machine { uid, .. } => metadata["uid"] == uid.as_str(),
        };
        is_same && metadata["deletionTimestamp"].is_null()
    });
    if !stays {
        return Ok(());
    }
    let named = Named { group: request.group, kind: request.resource, name: request.name };
    Err(ApiError::forbidden(named, &admission::refuse_part(request.kind, &whole)))
}

impl Hook for Admission {
    fn concerns(&self, request: &Request<'_>) -> bool {
        let (group, operation) = (request.group, request.operation);
        let is_cluster = request.kind == "Cluster"
            && (group == PROVISIONING || group == MANAGEMENT && operation == Operation::Delete);
        let is_config = group == MACHINE_CONFIG && operation != Operation::Delete;
        request.subresource.is_empty() && (is_cluster || is_config) || deletes_part(request)
    }

    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
        if self.concerns(request) {
            match request.group {
                MACHINE_CONFIG => admission::fill_in_config(&write(request), object),
                _ => admission::fill_in(&write(request), object, &self.releases.get()),
            }
        }
        Ok(())
    }

    fn lookups(&self, request: &Request<'_>, object: Option<&Value>) -> Vec<Lookup> {
        if deletes_part(request) {
            return whole_of(request).map(|(_, lookup)| lookup).into_iter().collect();
        }
        snapshot(request, object).into_iter().chain(machines(request, object)).collect()
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        if !self.concerns(request) {
            return Ok(Vec::new());
        }
        let refuse = |refusal| refused(request, refusal);
        if deletes_part(request) {
            return judge_part(request).map(|()| Vec::new());
        }
        let Some(object) = object else {
            admission::judge_delete(request.name).map_err(refuse)?;
            return Ok(Vec::new());
        };
        if request.group == MACHINE_CONFIG {
            admission::judge_config(&write(request), object).map_err(refuse)?;
            return Ok(Vec::new());
        }
        let found = snapshot(request, Some(object)).and_then(|lookup| request.found.get(&lookup));
        let snapshot = found.map(|found| Snapshot::read(found.objects.first()));
        let machines = machines(request, Some(object)).and_then(|lookup| request.found.get(&lookup));
        let running =
            machines.map(|found| admission::running(request.name, &found.objects)).unwrap_or_default();
        let releases = self.releases.get();
        let known = Known { snapshot, running, releases: Some(releases.clone()) };
        admission::judge(&write(request), object, &known).map_err(refuse)?;
        let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
        let mut warnings = admission::warnings(request.old, object);
        warnings.extend(admission::version_warnings(request.old, object, &releases, today));
        Ok(warnings)
    }
}

/// With the code clients know, and the fields either way.
fn refused(request: &Request<'_>, refusal: Refusal) -> ApiError {
    let named = Named { group: request.group, kind: request.kind, name: request.name };
    match refusal {
        Refusal::Invalid(errors) => ApiError::invalid(named, &errors),
        Refusal::BadRequest(errors) => {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let details = ApiError::invalid(named, &errors).details;
            ApiError { details, ..ApiError::bad_request(texts.join(", ")) }
        }
    }
}
