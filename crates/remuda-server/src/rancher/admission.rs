//! Defaults and rules of clusters, in front of the API.
//!
//! Status is not judged. What takes a look at a Secret, at a snapshot or at somebody's rights is not judged
//! either: hooks cannot ask, and the controllers say it in a condition.

use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Named, Operation};
use remuda_names::rancher::group::{MANAGEMENT, PROVISIONING};
use remuda_provisioning::{
    admission::{self, Known, Refusal, Write},
    naming,
};
use serde_json::Value;

use super::Kinds;

/// Admission of provisioning and management Clusters.
pub struct Admission {
    kinds: Kinds,
}

impl Admission {
    pub(super) fn new(kinds: Kinds) -> Self {
        Self { kinds }
    }

    fn known(&self, request: &Request<'_>) -> Known {
        // Nothing but these names depends on it.
        let asked = request.operation == Operation::Create && naming::is_legacy_id(request.name);
        let management_cluster = if asked { self.kinds.has_cluster(request.name) } else { None };
        Known { management_cluster, ..Known::default() }
    }
}

fn write<'a>(request: &Request<'a>) -> Write<'a> {
    let Request { namespace, name, old, .. } = *request;
    Write { namespace, name, user: &request.user.name, old }
}

impl Hook for Admission {
    fn concerns(&self, request: &Request<'_>) -> bool {
        let group = request.group;
        request.kind == "Cluster"
            && request.subresource.is_empty()
            && (group == PROVISIONING || group == MANAGEMENT && request.operation == Operation::Delete)
    }

    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
        if self.concerns(request) {
            admission::fill_in(&write(request), object);
        }
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        if !self.concerns(request) {
            return Ok(Vec::new());
        }
        let Some(object) = object else {
            admission::judge_delete(request.name).map_err(|refusal| refused(request, refusal))?;
            return Ok(Vec::new());
        };
        admission::judge(&write(request), object, &self.known(request))
            .map_err(|refusal| refused(request, refusal))?;
        Ok(admission::warnings(request.old, object))
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
