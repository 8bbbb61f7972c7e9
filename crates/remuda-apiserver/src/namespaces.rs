//! Namespace rules: what may be created where, and when a namespace is really gone.

use remuda_objects::meta;
use serde_json::{Value, json};

use crate::{
    call::Call,
    read::store_error,
    registry::Resource,
    server::Inner,
    status::{ApiError, ApiResult, Named},
};

impl Inner {
    /// New objects need a namespace that exists and is not on its way out.
    pub(crate) async fn check_namespace(&self, call: &Call, namespace: &str, name: &str) -> ApiResult<()> {
        let key = format!("/core/namespaces/{namespace}");
        let found = self.store.get(&key).await.map_err(store_error)?.value;
        let Some(record) = found else {
            return Err(ApiError::not_found(Named { group: "", kind: "namespaces", name: namespace }));
        };
        let object = crate::convert::parse(&record)?;
        if !meta::is_deleting(&object) {
            return Ok(());
        }
        let detail =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut error = ApiError::forbidden(call.named_as(name), &detail);
        if let Some(details) = &mut error.details {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        Err(error)
    }
}

/// Whether a namespace has given up its own finalizers; true for everything else.
pub(crate) fn content_is_gone(resource: &Resource, object: &Value) -> bool {
    !(resource.group.is_empty() && resource.kind == "Namespace")
        || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}
