//! Who may do what.

use std::sync::Arc;

use remuda_auth::{
    attributes::{Attributes, forbidden_message_because},
    identity::User,
    rbac::{
        object::{Key, Kind},
        policy::{Policy, RbacChange},
    },
};
use remuda_store::Change;
use serde_json::{Value, json};

use crate::{
    call::Call,
    follow::News,
    options::Query,
    route::{ResourcePath, Verb},
    server::Inner,
    status::{ApiError, ApiResult},
};

/// Keeps the policy equal to the stored RBAC objects.
pub(crate) fn tell_policy(policy: &Policy, plural: &str, news: News<'_>) {
    let Some(kind) = Kind::from_resource(plural) else { return };
    let put = |value: &[u8]| {
        if let Ok(object) = serde_json::from_slice::<Value>(value) {
            policy.apply(RbacChange::Put(kind, &object));
        }
    };
    match news {
        News::Reset(records) => {
            let objects: Vec<Value> =
                records.iter().filter_map(|record| serde_json::from_slice(&record.value).ok()).collect();
            policy.reset(kind, &objects);
        }
        News::Changed(event) if event.change == Change::Deleted => {
            if let Ok(object) = serde_json::from_slice::<Value>(&event.record.value) {
                policy.apply(RbacChange::Delete(Key::of(kind, &object)));
            }
        }
        News::Changed(event) => put(&event.record.value),
    }
}

impl Inner {
    pub(crate) fn authorize_resource(
        &self,
        user: &User,
        verb: Verb,
        path: &ResourcePath,
        query: &Query,
    ) -> ApiResult<Arc<str>> {
        // A list or watch of exactly one name is a request on that name.
        let selected;
        let name = match (&path.name, verb) {
            (Some(name), _) => name.as_str(),
            (None, Verb::List | Verb::Watch | Verb::DeleteCollection) => {
                selected = single_name(query);
                selected.as_deref().unwrap_or_default()
            }
            _ => "",
        };
        let namespace = match path.namespace.as_deref() {
            Some(namespace) => namespace,
            None if path.resource == "namespaces" && path.group.is_empty() => {
                path.name.as_deref().unwrap_or_default()
            }
            None => "",
        };
        let attributes = Attributes::resource(verb.as_str(), &path.group, &path.resource)
            .version(&path.version)
            .subresource(path.subresource.as_deref().unwrap_or_default())
            .namespace(namespace)
            .name(name);
        self.authorize(user, &attributes)
    }

    /// Says what allows it.
    pub(crate) fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> ApiResult<Arc<str>> {
        let decision = self.policy.authorize(user, attributes);
        if decision.allowed {
            return Ok(decision.reason);
        }
        let message = forbidden_message_because(user, attributes, &decision.reason);
        let mut error = ApiError::new(403, "Forbidden", message);
        let mut details = json!({});
        if attributes.is_resource() {
            for (key, text) in
                [("name", attributes.name), ("group", attributes.group), ("kind", attributes.resource)]
            {
                if !text.is_empty() {
                    details[key] = text.into();
                }
            }
        }
        error.details = Some(details);
        Err(error)
    }

    /// A PUT or apply that creates needs the create permission too.
    pub(crate) fn authorize_create(&self, call: &Call) -> ApiResult<()> {
        let attributes = Attributes::resource("create", &call.resource.group, &call.resource.plural)
            .version(&call.resource.version)
            .namespace(call.namespace().unwrap_or_default())
            .name(call.name());
        self.authorize(&call.user, &attributes).map(drop)
    }
}

fn single_name(query: &Query) -> Option<String> {
    let selector = query.get("fieldSelector").filter(|text| !text.is_empty())?;
    let selector = remuda_objects::selector::FieldSelector::parse(selector).ok()?;
    selector.requires("metadata.name").map(str::to_owned)
}
