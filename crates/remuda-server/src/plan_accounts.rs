//! Accounts of machines' agents: admission of what they write to their plan Secrets, by the rules of
//! [`remuda_rke::plan_account`], and that they are there, which [`remuda_rke::agent_presence`] is told.

use std::sync::Arc;

use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Named, ObservedWatch, WatchObserver};
use remuda_auth::identity::{SERVICE_ACCOUNT_PREFIX, User, service_account_user_name};
use remuda_control::ObjectKey;
use remuda_rke::{agent_presence::Presence, plan_account};
use serde_json::{Value, json};

struct Admission;

pub(crate) fn hooks() -> Vec<Arc<dyn Hook>> {
    vec![Arc::new(Admission)]
}

/// Tells which agents watch their plans.
pub(crate) struct Agents(pub(crate) Presence);

impl WatchObserver for Agents {
    fn begins(&self, watch: &ObservedWatch<'_>) -> Option<Box<dyn Send + Sync>> {
        let (namespace, name) = (watch.namespace?, watch.name?);
        // The account of a plan has the name of the plan Secret, and watches nothing else.
        let is_secret = watch.group.is_empty() && watch.resource == "secrets";
        let is_own = watch.user.name == service_account_user_name(namespace, name);
        let watching =
            (is_secret && is_own).then(|| self.0.begins(ObjectKey::namespaced(namespace, name)))??;
        Some(Box::new(watching))
    }
}

/// Accounts of plans are in the namespace of their plan Secrets, and so is no account with other duties there.
fn is_account_of(user: &User, namespace: &str) -> bool {
    let account = user.name.strip_prefix(SERVICE_ACCOUNT_PREFIX).and_then(|rest| rest.split_once(':'));
    account.is_some_and(|(of, _)| of == namespace)
}

impl Hook for Admission {
    fn concerns(&self, request: &Request<'_>) -> bool {
        request.resource == "secrets"
            && request.group.is_empty()
            && is_account_of(request.user, request.namespace)
            && request.old.is_some_and(plan_account::is_plan_secret)
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let Some(old) = request.old.filter(|_| self.concerns(request)) else { return Ok(Vec::new()) };
        plan_account::judge(old, object).map_err(|refusal| {
            let named = Named { group: request.group, kind: request.resource, name: request.name };
            let mut error = ApiError::forbidden(named, &refusal.to_string());
            let cause =
                json!({"reason": "FieldValueForbidden", "message": refusal.reason, "field": refusal.field});
            error.details.get_or_insert_with(|| json!({}))["causes"] = json!([cause]);
            error
        })?;
        Ok(Vec::new())
    }
}
