//! What a caller may do: `authorizer` of admission policies.
//!
//! A check is built step by step (`group`, `resource`, `namespace`, …) and put to the server's [`Authorizer`] by
//! `check`. It is by far the most expensive call there is: its cost leaves room for two in one expression.

use std::{fmt, sync::Arc};

use super::{Cx, Entry, format::NamedFormat};
use crate::value::{EvalError, Result, Text, Value};

/// What a check costs beside the call itself.
const CHECK: u64 = CHECK_COST - 1;
pub(crate) const CHECK_COST: u64 = 350_000;

const STEP: &[&str] = &[".(resourcecheck, string) -> resourcecheck"];

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "path", native: path, overloads: &[".(authorizer, string) -> pathcheck"] },
    Entry { name: "group", native: group, overloads: &[".(authorizer, string) -> groupcheck"] },
    Entry {
        name: "serviceAccount",
        native: service_account,
        overloads: &[".(authorizer, string, string) -> authorizer"],
    },
    Entry { name: "resource", native: resource, overloads: &[".(groupcheck, string) -> resourcecheck"] },
    Entry {
        name: "subresource",
        native: |_, args| narrowed(args, |check, text| check.subresource = text),
        overloads: STEP,
    },
    Entry {
        name: "namespace",
        native: |_, args| narrowed(args, |check, text| check.namespace = text),
        overloads: STEP,
    },
    Entry {
        name: "name",
        native: |_, args| narrowed(args, |check, text| check.name = text),
        overloads: STEP,
    },
    Entry { name: "fieldSelector", native: selected, overloads: STEP },
    Entry { name: "labelSelector", native: selected, overloads: STEP },
    Entry {
        name: "check",
        native: check,
        overloads: &[".(pathcheck, string) -> decision", ".(resourcecheck, string) -> decision"],
    },
    Entry {
        name: "allowed",
        native: |_, args| decided(args, |decision| Value::Bool(decision.allowed)),
        overloads: &[".(decision) -> bool"],
    },
    Entry {
        name: "errored",
        native: |_, args| decided(args, |decision| Value::Bool(decision.error.is_some())),
        overloads: &[".(decision) -> bool"],
    },
    Entry {
        name: "error",
        native: |_, args| {
            decided(args, |decision| Value::string(decision.error.as_deref().unwrap_or_default()))
        },
        overloads: &[".(decision) -> string"],
    },
    Entry {
        name: "reason",
        native: |_, args| decided(args, |decision| Value::string(&*decision.reason)),
        overloads: &[".(decision) -> string"],
    },
];

/// Types of the steps of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessType {
    Authorizer,
    PathCheck,
    GroupCheck,
    ResourceCheck,
    Decision,
}

impl AccessType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Authorizer => "kubernetes.authorization.Authorizer",
            Self::PathCheck => "kubernetes.authorization.PathCheck",
            Self::GroupCheck => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck => "kubernetes.authorization.ResourceCheck",
            Self::Decision => "kubernetes.authorization.Decision",
        }
    }
}

/// Answers checks.
pub trait Authorizer: fmt::Debug + Send + Sync {
    fn decide(&self, question: &Question<'_>) -> Decision;
}

/// What is asked by a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question<'q> {
    /// Namespace and name of the service account asked about; without one, the caller.
    pub account: Option<(&'q str, &'q str)>,
    pub verb: &'q str,
    pub asked: Asked<'q>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'q> {
    Path(&'q str),
    Resource { group: &'q str, resource: &'q str, subresource: &'q str, namespace: &'q str, name: &'q str },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// Who is asked, and about whom.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    authorizer: Arc<dyn Authorizer + 'a>,
    account: Option<Arc<(String, String)>>,
}

/// A check of a resource as far as it is said.
#[derive(Debug, Clone)]
pub struct ResourceCheck<'a> {
    subject: Subject<'a>,
    group: Text<'a>,
    resource: Text<'a>,
    subresource: Text<'a>,
    namespace: Text<'a>,
    name: Text<'a>,
}

/// A value of one of the [`AccessType`]s.
#[derive(Debug, Clone)]
pub enum Access<'a> {
    Authorizer(Subject<'a>),
    Path(Subject<'a>, Text<'a>),
    Group(Subject<'a>, Text<'a>),
    Resource(ResourceCheck<'a>),
    Decision(Decision),
}

impl<'a> Access<'a> {
    pub(crate) fn ty(&self) -> AccessType {
        match self {
            Self::Authorizer(_) => AccessType::Authorizer,
            Self::Path(..) => AccessType::PathCheck,
            Self::Group(..) => AccessType::GroupCheck,
            Self::Resource(_) => AccessType::ResourceCheck,
            Self::Decision(_) => AccessType::Decision,
        }
    }

    /// The variable `authorizer`.
    pub fn authorizer(authorizer: Arc<dyn Authorizer + 'a>) -> Value<'a> {
        Self::Authorizer(Subject { authorizer, account: None }).into_value()
    }

    /// The variable `authorizer.requestResource`. The parts are group, resource, subresource, namespace and name.
    pub fn request_resource(authorizer: Arc<dyn Authorizer + 'a>, parts: [&'a str; 5]) -> Value<'a> {
        let [group, resource, subresource, namespace, name] = parts.map(Text::Borrowed);
        let subject = Subject { authorizer, account: None };
        let check = ResourceCheck { subject, group, resource, subresource, namespace, name };
        Self::Resource(check).into_value()
    }

    /// Small, as values are passed around.
    fn into_value(self) -> Value<'a> {
        Value::Access(Arc::new(self))
    }
}

impl Subject<'_> {
    fn decide(&self, verb: &str, asked: Asked<'_>) -> Decision {
        let account = self.account.as_deref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        self.authorizer.decide(&Question { account, verb, asked })
    }
}

/// What the function is called on.
fn access<'v, 'a>(args: &'v [Value<'a>]) -> Option<&'v Access<'a>> {
    match args.first() {
        Some(Value::Access(access)) => Some(access),
        _ => None,
    }
}

fn text<'a>(args: &[Value<'a>]) -> Result<Text<'a>> {
    match args.get(1) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Err(EvalError::no_overload()),
    }
}

fn subject<'a>(args: &[Value<'a>]) -> Result<Subject<'a>> {
    match access(args) {
        Some(Access::Authorizer(subject)) => Ok(subject.clone()),
        _ => Err(EvalError::no_overload()),
    }
}

fn path<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (subject, path) = (subject(args)?, text(args)?);
    if path.trim().is_empty() {
        return Err(EvalError::failed("path must not be empty"));
    }
    Ok(Access::Path(subject, path).into_value())
}

fn group<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(Access::Group(subject(args)?, text(args)?).into_value())
}

fn service_account<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let [authorizer, namespace, name] = args else { return Err(EvalError::no_overload()) };
    let (namespace, name) = (namespace.str_arg()?, name.str_arg()?);
    cx.budget.tenths((namespace.len() + name.len()) as u64)?;
    if !NamedFormat::Dns1123Subdomain.problems(name).is_empty() {
        return Err(EvalError::failed("Invalid service account name"));
    }
    if !NamedFormat::Dns1123Label.problems(namespace).is_empty() {
        return Err(EvalError::failed("Invalid service account namespace"));
    }
    let account = Some(Arc::new((namespace.to_owned(), name.to_owned())));
    let subject = subject(std::slice::from_ref(authorizer))?;
    Ok(Access::Authorizer(Subject { account, ..subject }).into_value())
}

fn resource<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let Some(Access::Group(subject, group)) = access(args) else {
        return Err(EvalError::no_overload());
    };
    let resource = text(args)?;
    if resource.trim().is_empty() {
        return Err(EvalError::failed("resource must not be empty"));
    }
    let empty = || Text::Borrowed("");
    let check = ResourceCheck {
        subject: subject.clone(),
        group: group.clone(),
        resource,
        subresource: empty(),
        namespace: empty(),
        name: empty(),
    };
    Ok(Access::Resource(check).into_value())
}

/// The check with one more thing said.
fn narrowed<'a>(args: &[Value<'a>], say: fn(&mut ResourceCheck<'a>, Text<'a>)) -> Result<Value<'a>> {
    let Some(Access::Resource(check)) = access(args) else {
        return Err(EvalError::no_overload());
    };
    let mut check = ResourceCheck::clone(check);
    say(&mut check, text(args)?);
    Ok(Access::Resource(check).into_value())
}

/// What reading a selector costs: a list, and for every two characters a requirement with a list of its own.
pub(crate) fn selector_cost(len: u64) -> u64 {
    10_u64.saturating_add(len.div_ceil(10)).saturating_add(len.div_ceil(2).saturating_mul(10 + 40))
}

/// Rights here do not depend on selectors, as with RBAC in Kubernetes: naming one changes no answer.
fn selected<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let len = text(args)?.chars().count() as u64;
    cx.budget.charge(selector_cost(len).saturating_sub(1))?;
    narrowed(args, |_, _| ())
}

fn check<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let verb = text(args)?;
    cx.budget.charge(CHECK)?;
    let decision = match access(args) {
        Some(Access::Path(subject, path)) => subject.decide(&verb, Asked::Path(path)),
        Some(Access::Resource(check)) => {
            let asked = Asked::Resource {
                group: &check.group,
                resource: &check.resource,
                subresource: &check.subresource,
                namespace: &check.namespace,
                name: &check.name,
            };
            check.subject.decide(&verb, asked)
        }
        _ => return Err(EvalError::no_overload()),
    };
    Ok(Access::Decision(decision).into_value())
}

fn decided<'a>(args: &[Value<'a>], read: fn(&Decision) -> Value<'a>) -> Result<Value<'a>> {
    match access(args) {
        Some(Access::Decision(decision)) => Ok(read(decision)),
        _ => Err(EvalError::no_overload()),
    }
}
