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
