//! What expressions of webhooks and policies may refer to: the names, their types, and the values for one write.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use remuda_auth::{attributes::Attributes, identity::User, rbac::policy::Policy};
use remuda_cel::{
    Access, AccessType, Asked, Authorizer, Budget, Decision, Env, ObjectType, Question, Type, Vars,
};
use serde_json::Value;

use super::Review;
use crate::server::Inner;

/// What one program may spend, out of what there is for all of a policy.
const EACH: u64 = 1_000_000;
/// What the validations, or the mutations, of a policy may spend together.
const POLICY: u64 = 10_000_000;
/// The same for match conditions.
const CONDITIONS: u64 = 2_500_000;

pub(super) fn budget() -> Budget {
    Budget::with_each(POLICY, EACH)
}

pub(super) fn conditions_budget() -> Budget {
    Budget::with_each(CONDITIONS, EACH)
}

/// The names an expression may use.
#[derive(Clone, Default)]
pub(super) struct Names {
    /// Of `object` and `oldObject`.
    pub(super) object: Type,
    /// Without parameters there is no such name.
    pub(super) params: Option<Type>,
    pub(super) authorizer: bool,
    /// Types of patches can be made.
    pub(super) patches: bool,
    pub(super) variables: ObjectType,
}

impl Names {
    pub(super) fn env(&self) -> Env {
        let start = if self.patches { Env::new().with_patches() } else { Env::new() };
        let mut env = start
            .variable("object", self.object.clone())
            .variable("oldObject", self.object.clone())
            .variable("request", REQUEST.clone())
            .variable("namespaceObject", NAMESPACE.clone());
        if let Some(params) = &self.params {
            env = env.variable("params", params.clone());
        }
        if self.authorizer {
            env = with_authorizer(env);
        }
        if !self.variables.fields.is_empty() {
            env = env.variable("variables", Type::object(self.variables.clone()));
        }
        env
    }
}

fn with_authorizer(env: Env) -> Env {
    env.variable("authorizer", Type::Access(AccessType::Authorizer))
        .variable("authorizer.requestResource", Type::Access(AccessType::ResourceCheck))
}

/// For running what is stored. It knows every name and no types: what was accepted once must go on to compile, and
/// what has no value fails when it is touched.
pub(super) static STORED: LazyLock<Env> = LazyLock::new(|| stored(Env::new()));
pub(super) static STORED_WITH_PATCHES: LazyLock<Env> = LazyLock::new(|| stored(Env::new().with_patches()));

fn stored(start: Env) -> Env {
    let names = ["object", "oldObject", "request", "params", "namespaceObject", "variables"];
    with_authorizer(names.into_iter().fold(start, |env, name| env.variable(name, Type::Dyn)))
}

fn texts(name: &str, fields: &[&str]) -> ObjectType {
    fields.iter().fold(ObjectType::new(name), |object, field| object.field(field, Type::String))
}

/// The `request` of an AdmissionReview, without the objects.
static REQUEST: LazyLock<Type> = LazyLock::new(|| {
    let kind = Type::object(texts("kubernetes.GroupVersionKind", &["group", "version", "kind"]));
    let resource = Type::object(texts("kubernetes.GroupVersionResource", &["group", "version", "resource"]));
    let user = texts("kubernetes.UserInfo", &["username", "uid"])
        .field("groups", Type::list(Type::String))
        .field("extra", Type::map(Type::String, Type::list(Type::String)));
    let names = ["subResource", "requestSubResource", "name", "namespace", "operation"];
    let request = texts("kubernetes.AdmissionRequest", &names)
        .field("kind", kind.clone())
        .field("requestKind", kind)
        .field("resource", resource.clone())
        .field("requestResource", resource)
        .field("userInfo", Type::object(user))
        .field("dryRun", Type::Bool)
        .field("options", Type::Dyn);
    Type::object(request)
});

/// Namespaces as expressions see them: owners and managed fields are left out, and `UID` is spelt like this.
static NAMESPACE: LazyLock<Type> = LazyLock::new(|| {
    let map = || Type::map(Type::String, Type::String);
    let metadata = texts(
        "kubernetes.NamespaceMetadata",
        &["name", "generateName", "namespace", "UID", "resourceVersion"],
    )
    .field("labels", map())
    .field("annotations", map())
    .field("creationTimestamp", Type::Timestamp)
    .field("deletionTimestamp", Type::Timestamp)
    .field("deletionGracePeriodSeconds", Type::Int)
    .field("generation", Type::Int)
    .field("finalizers", Type::list(Type::String));
    let spec = ObjectType::new("kubernetes.NamespaceSpec").field("finalizers", Type::list(Type::String));
    let condition = texts("kubernetes.NamespaceCondition", &["status", "type", "message", "reason"])
        .field("lastTransitionTime", Type::Timestamp);
    let status = texts("kubernetes.NamespaceStatus", &["phase"])
        .field("conditions", Type::list(Type::object(condition)));
    let namespace = ObjectType::new("kubernetes.Namespace")
        .field("metadata", Type::object(metadata))
        .field("spec", Type::object(spec))
        .field("status", Type::object(status));
    Type::object(namespace)
});

/// The values for one write.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) object: Option<&'a Value>,
    pub(super) old: Option<&'a Value>,
    pub(super) request: &'a Value,
    pub(super) params: &'a Value,
    pub(super) namespace: &'a Value,
    pub(super) rights: &'a Arc<Rights<'a>>,
}

impl<'a> Given<'a> {
    /// All values but `variables`.
    pub(super) fn vars(&self) -> Vars<'a> {
        let authorizer: Arc<dyn Authorizer + 'a> = self.rights.clone();
        let resource = Access::request_resource(authorizer.clone(), self.rights.resource());
        self.vars_without_rights()
            .value("authorizer", Access::authorizer(authorizer))
            .value("authorizer.requestResource", resource)
    }

    /// What expressions for messages see: rights are asked when it is decided, not when it is told.
    pub(super) fn vars_without_rights(&self) -> Vars<'a> {
        Vars::new()
            .json("object", self.object.unwrap_or(&Value::Null))
            .json("oldObject", self.old.unwrap_or(&Value::Null))
            .json("request", self.request)
            .json("params", self.params)
            .json("namespaceObject", self.namespace)
    }
}

/// What the caller of a write may do.
pub(super) struct Rights<'a> {
    policy: &'a Policy,
    review: &'a Review<'a>,
    name: String,
    /// Also of a namespace itself.
    namespace: String,
}

impl<'a> Rights<'a> {
    pub(super) fn of(server: &'a Inner, review: &'a Review<'a>, object: Option<&Value>) -> Arc<Self> {
        let name = review.name(object);
        let namespace = super::namespace_of_request(review.call, &name).unwrap_or_default().to_owned();
        Arc::new(Self { policy: &server.policy, review, name, namespace })
    }

    /// Group, resource, subresource, namespace and name of what is written.
    fn resource(&self) -> [&str; 5] {
        let call = self.review.call;
        [&call.resource.group, &call.resource.plural, call.subresource(), &self.namespace, &self.name]
    }
}

impl fmt::Debug for Rights<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").finish_non_exhaustive()
    }
}

impl Authorizer for Rights<'_> {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let account = question.account.map(|(namespace, name)| User::service_account(namespace, name, ""));
        let user = account.as_ref().unwrap_or(&self.review.call.user);
        let attributes = match question.asked {
            Asked::Path(path) => Attributes::path(question.verb, path),
            Asked::Resource { group, resource, subresource, namespace, name } => {
                Attributes::resource(question.verb, group, resource)
                    .version("*")
                    .subresource(subresource)
                    .namespace(namespace)
                    .name(name)
            }
        };
        let decision = self.policy.authorize(user, &attributes);
        Decision { allowed: decision.allowed, reason: decision.reason.to_string(), error: None }
    }
}
