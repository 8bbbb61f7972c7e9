//! Admission: what may change or refuse a write before it is stored.
//!
//! In-process hooks come first, then webhooks; mutating ones in order, validating ones together.

mod client;
mod expressions;
mod matching;
mod policies;
mod webhooks;

pub(crate) use self::expressions::check_expressions;

use std::sync::Arc;

use remuda_auth::identity::User;
use serde_json::Value;

pub(crate) use self::client::ClientConfig;
pub(crate) use self::{policies::Policies, webhooks::Webhooks};
use crate::{
    call::Call,
    options::DeleteOptions,
    server::{Inner, StartError},
    status::{ApiError, ApiResult},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// What an in-process hook is told of a write.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub operation: Operation,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub kind: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Empty at the cluster scope.
    pub namespace: &'a str,
    /// Empty while a name is still to be generated.
    pub name: &'a str,
    pub user: &'a User,
    /// The state before; absent for a create.
    pub old: Option<&'a Value>,
    pub dry_run: bool,
}

/// Admission code that runs in the process. It sees objects in the version of the request.
pub trait Hook: Send + Sync {
    /// Whether a write is any of its business. What no hook changes is shaped only once.
    fn concerns(&self, request: &Request<'_>) -> bool {
        let _ = request;
        true
    }

    /// Changes an object before it is validated. Not called for deletes.
    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
        let _ = (request, object);
        Ok(())
    }

    /// Accepts (with warnings) or refuses. `object` is absent for deletes.
    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let _ = (request, object);
        Ok(Vec::new())
    }
}

/// A write under review.
pub(crate) struct Review<'a> {
    pub(crate) call: &'a Call,
    pub(crate) operation: Operation,
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
    /// How a delete was asked for.
    pub(crate) options: Option<&'a DeleteOptions>,
}

impl<'a> Review<'a> {
    pub(crate) fn new(call: &'a Call, operation: Operation, old: Option<&'a Value>, dry_run: bool) -> Self {
        Self { call, operation, old, dry_run, options: None }
    }

    pub(crate) fn delete(call: &'a Call, old: &'a Value, options: &'a DeleteOptions) -> Self {
        let (operation, old) = (Operation::Delete, Some(old));
        Self { call, operation, old, dry_run: options.dry_run, options: Some(options) }
    }

    /// The name of what is written; a name still to be generated is empty.
    fn name(&self, object: Option<&Value>) -> String {
        let object = object.or(self.old);
        let name = self.call.path.name.as_deref().or(object.map(remuda_objects::meta::name));
        name.unwrap_or_default().to_owned()
    }

    /// Whether the reviewed object is of the resource's own kind, and not a Scale or an Eviction.
    fn is_main_kind(&self) -> bool {
        let resource = &self.call.resource;
        resource.subresource(self.call.subresource()).is_none_or(|sub| sub.kind == resource.kind)
    }

    fn request(&self, name: &'a str) -> Request<'a> {
        let resource = &self.call.resource;
        Request {
            operation: self.operation,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.plural,
            kind: &resource.kind,
            subresource: self.call.subresource(),
            namespace: self.call.namespace().unwrap_or_default(),
            name,
            user: &self.call.user,
            old: self.old,
            dry_run: self.dry_run,
        }
    }
}

/// Starts following the webhook configurations and policies.
pub(crate) async fn start(inner: &Arc<Inner>) -> Result<(), StartError> {
    webhooks::start(inner).await?;
    policies::start(inner).await
}

impl Inner {
    /// Lets mutating admission at the object; says whether anything may have changed. A delete has no
    /// object, but may be refused here too.
    pub(crate) async fn mutate(&self, review: &Review<'_>, object: &mut Value) -> ApiResult<bool> {
        let mut touched = false;
        if !self.config.hooks.is_empty() && review.operation != Operation::Delete {
            let name = remuda_objects::meta::name(object).to_owned();
            let request = review.request(&name);
            for hook in self.config.hooks.iter().filter(|hook| hook.concerns(&request)) {
                hook.mutate(&request, object)?;
                touched = true;
            }
        }
        Ok(self.call_mutating(review, object).await? || touched)
    }

    /// Asks everybody who may refuse. `object` is absent for deletes.
    pub(crate) async fn validate_admission(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> ApiResult<()> {
        if !self.config.hooks.is_empty() {
            let name = object.or(review.old).map(remuda_objects::meta::name).unwrap_or_default();
            let request = review.request(name);
            for hook in self.config.hooks.iter().filter(|hook| hook.concerns(&request)) {
                for warning in hook.validate(&request, object)? {
                    review.call.warn(warning);
                }
            }
        }
        self.check_policies(review, object).await?;
        self.call_validating(review, object).await
    }
}
