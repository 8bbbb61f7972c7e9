//! The status of ValidatingAdmissionPolicies: whether their expressions fit the types they are about.

use remuda_auth::request_info::Verb;
use serde_json::json;

use crate::{admission::type_warnings, server::Inner, status::ApiResult};

const GROUP: &str = "admissionregistration.k8s.io";
const PLURAL: &str = "validatingadmissionpolicies";

impl Inner {
    /// Looks at each generation once, as Kubernetes does: types that change later are not told of.
    pub(super) async fn check_policy_types(&self, name: &str) -> ApiResult<()> {
        let call = self.own_call(GROUP, PLURAL, Verb::Update, None, Some(name))?.through("status");
        let Some(policy) = self.read_object(&call.key()).await? else { return Ok(()) };
        let generation = policy["metadata"]["generation"].as_i64().unwrap_or_default();
        if generation <= policy["status"]["observedGeneration"].as_i64().unwrap_or_default() {
            return Ok(());
        }
        let warnings = type_warnings(&call.registry, &policy).await;
        let checked = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        let told = self.change(&call, |policy| {
            if !policy["status"].is_object() {
                policy["status"] = json!({});
            }
            policy["status"]["observedGeneration"] = generation.into();
            policy["status"]["typeChecking"] = checked.clone();
            Ok(())
        });
        match told.await {
            Err(error) if error.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }
}
