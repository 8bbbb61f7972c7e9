//! An APIService for every group-version served here.

use std::collections::BTreeMap;

use remuda_objects::meta;
use remuda_store::ListQuery;
use serde_json::{Value, json};

use remuda_auth::request_info::Verb;

use crate::{bootstrap::own_options, read::store_error, server::Inner, status::ApiResult, write::Ownership};

const GROUP: &str = "apiregistration.k8s.io";
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Whether requests would have to be passed on to another API server.
pub(crate) fn is_remote(service: &Value) -> bool {
    service["spec"]["service"].is_object()
}

/// The status of an APIService as it is written. This server answers for itself only, and says so: who reads a status
/// that promises more waits for ever.
pub(crate) fn status(service: &Value, now: &str) -> Value {
    let (status, reason, message) = if is_remote(service) {
        ("False", "NotProxied", "this server does not pass requests on to other API servers")
    } else {
        ("True", "Local", "Local APIServices are always available")
    };
    json!({"conditions": [{"type": "Available", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now}]})
}

impl Inner {
    pub(super) async fn publish_api_services(&self) -> ApiResult<()> {
        let registry = self.registry.load_full();
        let mut wanted = BTreeMap::new();
        for (position, group) in registry.groups.iter().enumerate() {
            let custom = group.versions.iter().all(|version| version.resources.iter().all(|r| r.is_custom()));
            for (order, version) in group.versions.iter().enumerate() {
                let name = format!("{}.{}", version.version, group.name);
                let priority = if custom { 1000 } else { 18000 - 50 * position as i64 };
                let service = json!({
                    "metadata": {"name": name, "labels": {AUTOMANAGED: if custom { "true" } else { "onstart" }}},
                    "spec": {"group": group.name, "version": version.version, "groupPriorityMinimum": priority,
                        "versionPriority": 100_i64.saturating_sub(order as i64).max(1)},
                });
                wanted.insert(name, service);
            }
        }
        let prefix = format!("/{GROUP}/apiservices/");
        let page = self.store.list(ListQuery { prefix, ..Default::default() }).await.map_err(store_error)?;
        for record in page.records {
            let service = crate::convert::parse(&record)?;
            let name = meta::name(&service).to_owned();
            if wanted.remove(&name).is_none() && meta::label(&service, AUTOMANAGED).is_some() {
                let call = self.own_call(GROUP, "apiservices", Verb::Delete, None, Some(&name))?;
                match self.delete_object(&call, &Default::default()).await {
                    Err(error) if error.code == 404 => {}
                    result => result.map(drop)?,
                }
            }
        }
        for (_, service) in wanted {
            self.publish_api_service(service).await?;
        }
        Ok(())
    }

    async fn publish_api_service(&self, mut service: Value) -> ApiResult<()> {
        let call = self.own_call(GROUP, "apiservices", Verb::Create, None, None)?;
        service["apiVersion"] = call.resource.api_version.as_str().into();
        service["kind"] = "APIService".into();
        match self.create_object(&call, service, &own_options(), Ownership::Compute).await {
            Err(error) if error.reason == "AlreadyExists" => Ok(()),
            result => result.map(drop),
        }
    }
}
