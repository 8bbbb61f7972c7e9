//! Users, tokens, roles and bindings in front of the API: `remuda_identity` judges what is written.

use std::sync::{Arc, OnceLock};

use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Named, Operation};
use remuda_identity::{
    Identity,
    admission::{self, Refusal, Write},
};
use remuda_schema::{FieldError, Reason};
use serde_json::Value;

/// Admission of everything rights are made of.
#[derive(Clone, Default)]
pub(crate) struct Admission(Arc<OnceLock<Identity>>);

impl Admission {
    pub(crate) fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        vec![Arc::new(self.clone())]
    }

    /// Begins to judge. Until then only administrators may write.
    pub(crate) fn begin(&self, identity: Identity) {
        let _ = self.0.set(identity);
    }
}

fn operation(request: &Request<'_>) -> admission::Operation {
    match request.operation {
        Operation::Create => admission::Operation::Create,
        Operation::Update => admission::Operation::Update,
        Operation::Delete => admission::Operation::Delete,
        // None of these kinds has streams; whoever judges one as a change errs on the safe side.
        Operation::Connect => admission::Operation::Update,
    }
}

impl Hook for Admission {
    fn concerns(&self, request: &Request<'_>) -> bool {
        request.subresource.is_empty() && admission::concerns(request.group, request.resource)
    }

    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
        admission::fill_in(operation(request), request.resource, request.old, object)
            .map_err(|error| ApiError::new(500, "InternalError", error.to_string()))
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let named = Named { group: request.group, kind: request.resource, name: request.name };
        let Some(identity) = self.0.get() else {
            if request.user.is_trusted_writer() {
                return Ok(Vec::new());
            }
            return Err(ApiError::forbidden(named, "this server does not know yet who may what"));
        };
        let Request { resource, namespace, name, user, old, dry_run, .. } = *request;
        let write = Write {
            operation: operation(request),
            resource,
            namespace,
            name,
            user,
            old,
            new: object,
            dry_run,
        };
        identity.judge(&write).map_err(|refusal| match refusal {
            Refusal::Forbidden(why) => ApiError::forbidden(named, &why),
            Refusal::Invalid { field, detail } => {
                let named = Named { kind: request.kind, ..named };
                ApiError::invalid(named, &[FieldError::new(field, Reason::Invalid, detail)])
            }
        })
    }
}
