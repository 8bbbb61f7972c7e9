//! Admission: what may change or refuse a write before it is stored.
//!
//! In-process hooks come first, then webhooks; mutating ones in order, validating ones together.

mod client;
mod expressions;
mod given;
mod matching;
mod mutations;
mod policies;
mod trust;
mod typing;
mod verdict;
mod webhooks;

pub(crate) use self::{expressions::check_expressions, typing::warnings as type_warnings};

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use remuda_auth::identity::User;
use remuda_store::ListQuery;
use serde_json::Value;

pub(crate) use self::client::ClientConfig;
use self::mutations::Invoked;
pub(crate) use self::{policies::Policies, webhooks::Webhooks};
use crate::{
    call::Call,
    options::DeleteOptions,
    read::store_error,
    registry::Resource,
    server::{Inner, StartError},
    status::{ApiError, ApiResult},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Create,
    Update,
    Delete,
    /// A stream to a process: exec, attach, portforward, proxy.
    Connect,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
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
    /// What was found of the hook's [`Hook::lookups`]; empty while it mutates.
    pub found: &'a BTreeMap<Lookup, Found>,
}

/// Nothing was looked for.
static NOTHING: BTreeMap<Lookup, Found> = BTreeMap::new();

/// Objects a hook wants to see before it decides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lookup {
    pub group: String,
    pub kind: String,
    /// Empty at the cluster scope.
    pub namespace: String,
    /// Empty for all objects of the kind in the namespace.
    pub name: String,
}

/// What there is of it at the moment of the decision, in the preferred version.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// Plural of the kind; `None` if it is not served.
    pub resource: Option<String>,
    pub objects: Vec<Value>,
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

    /// Other objects [`Hook::validate`] is to be told of: they are read from the store, so that it sees what was
    /// acknowledged before this write. A hook asks only for what it needs: each costs a read.
    fn lookups(&self, request: &Request<'_>, object: Option<&Value>) -> Vec<Lookup> {
        let _ = (request, object);
        Vec::new()
    }

    /// Accepts (with warnings) or refuses. `object` is absent for deletes.
    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let _ = (request, object);
        Ok(Vec::new())
    }

    /// Whether a write has to be examined.
    fn examines(&self, request: &Request<'_>, object: Option<&Value>) -> bool {
        let _ = (request, object);
        false
    }

    /// As [`Hook::validate`], for what cannot be known without asking outside of the server. It is the last one asked,
    /// about writes that all other hooks have let pass, and has to be done in seconds.
    fn examine<'a>(&'a self, request: &Request<'a>, object: Option<&'a Value>) -> Examination<'a> {
        let _ = (request, object);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// What [`Hook::examine`] finds: warnings, or a refusal.
pub type Examination<'a> = Pin<Box<dyn Future<Output = Result<Vec<String>, ApiError>> + Send + 'a>>;

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
        match self.call.name() {
            "" => object.map(remuda_objects::meta::name).unwrap_or_default().to_owned(),
            name => name.to_owned(),
        }
    }

    /// The kind of the reviewed object where it is not the resource's own: a Scale, an Eviction, the options of a
    /// stream.
    fn other_kind(&self, resource: &Resource) -> Option<ReviewedKind> {
        let sub = self.call.subresource();
        if self.operation == Operation::Connect {
            let kind = crate::connect::options_kind(&resource.kind, sub)?;
            return Some(ReviewedKind {
                group: String::new(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
            });
        }
        let sub = resource.subresource(sub).filter(|sub| sub.kind != resource.kind)?;
        let (group, version, kind) = (sub.group.clone(), sub.version.clone(), sub.kind.clone());
        Some(ReviewedKind { group, version, kind })
    }

    fn is_main_kind(&self) -> bool {
        self.other_kind(&self.call.resource).is_none()
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
            found: &NOTHING,
        }
    }
}

struct ReviewedKind {
    group: String,
    version: String,
    kind: String,
}

/// The namespace of a request in reviews: a Namespace is in itself.
fn namespace_of_request<'c>(call: &'c Call, name: &'c str) -> Option<&'c str> {
    let own = &call.resource;
    call.namespace().or_else(|| (own.group.is_empty() && own.kind == "Namespace").then_some(name))
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
        let policies = self.policies.mutating.begin(review);
        let mut invoked = match &policies {
            Some(policies) => self.mutate_by_policies(policies, review, object).await?,
            None => Invoked::default(),
        };
        let by_webhooks = self.call_mutating(review, object).await?;
        if let Some(policies) = &policies {
            self.mutate_again(policies, &mut invoked, by_webhooks, review, object).await?;
        }
        Ok(by_webhooks || invoked.changed || touched)
    }

    /// Reads what a hook wants to see.
    async fn look_up(&self, lookups: Vec<Lookup>) -> ApiResult<BTreeMap<Lookup, Found>> {
        let mut all = BTreeMap::new();
        if lookups.is_empty() {
            return Ok(all);
        }
        let registry = self.registry.load_full();
        for lookup in lookups {
            let mut found = Found::default();
            if let Some(resource) = registry.find_kind(&lookup.group, None, &lookup.kind) {
                found.resource = Some(resource.plural.clone());
                let namespace = Some(lookup.namespace.as_str()).filter(|namespace| !namespace.is_empty());
                let records = if lookup.name.is_empty() {
                    let prefix = resource.collection(namespace);
                    let query = ListQuery { prefix, ..ListQuery::default() };
                    self.store.list(query).await.map_err(store_error)?.records
                } else if lookup.name.contains('/') || lookup.namespace.contains('/') {
                    // No name of an object: it must not become the key of another one.
                    Vec::new()
                } else {
                    let key = resource.key(namespace, &lookup.name);
                    self.store.get(&key).await.map_err(store_error)?.value.into_iter().collect()
                };
                found.objects = self.decode_all(resource, &records).await?;
            }
            all.insert(lookup, found);
        }
        Ok(all)
    }

    /// The whole chain for an object that is not stored as it is: the options of a stream, for one.
    pub(crate) async fn admit(&self, review: &Review<'_>, object: &mut Value) -> ApiResult<()> {
        self.mutate(review, object).await?;
        self.validate_admission(review, Some(object)).await
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
                let found = self.look_up(hook.lookups(&request, object)).await?;
                for warning in hook.validate(&Request { found: &found, ..request }, object)? {
                    review.call.warn(warning);
                }
            }
        }
        self.check_policies(review, object).await?;
        self.call_validating(review, object).await?;
        self.examine(review, object).await
    }

    async fn examine(&self, review: &Review<'_>, object: Option<&Value>) -> ApiResult<()> {
        let name = object.or(review.old).map(remuda_objects::meta::name).unwrap_or_default();
        let request = review.request(name);
        let examines = |hook: &&Arc<dyn Hook>| hook.concerns(&request) && hook.examines(&request, object);
        for hook in self.config.hooks.iter().filter(examines) {
            let found = self.look_up(hook.lookups(&request, object)).await?;
            for warning in hook.examine(&Request { found: &found, ..request }, object).await? {
                review.call.warn(warning);
            }
        }
        Ok(())
    }
}
