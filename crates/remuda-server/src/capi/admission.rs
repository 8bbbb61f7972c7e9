//! Defaults and rules of Cluster API kinds, in whichever version they are written.
//!
//! The rules speak v1beta2. A request in v1beta1 is judged as what it will be stored as; what
//! defaults add goes back into the object the client sent, in its version. As with upstream's
//! webhooks, status and scale subresources and deletions pass.

use remuda_apiserver::{
    AdmissionRequest as Request, ApiError, ApiResult, Hook, Named, NativeConversion, Operation,
};
use remuda_names::capi::group::{ADDONS, CORE, IPAM};
use remuda_rollout::admission::{self, Features};
use remuda_schema::FieldError;
use serde_json::{Map, Value};

use super::HUB;

/// Kinds with rules, and their CRDs.
const KINDS: &[(&str, &str, &str)] = &[
    (CORE, "Cluster", "clusters.cluster.x-k8s.io"),
    (CORE, "Machine", "machines.cluster.x-k8s.io"),
    (CORE, "MachineSet", "machinesets.cluster.x-k8s.io"),
    (CORE, "MachineDeployment", "machinedeployments.cluster.x-k8s.io"),
    (CORE, "MachineHealthCheck", "machinehealthchecks.cluster.x-k8s.io"),
    (CORE, "MachineDrainRule", "machinedrainrules.cluster.x-k8s.io"),
    (CORE, "MachinePool", "machinepools.cluster.x-k8s.io"),
    (ADDONS, "ClusterResourceSet", "clusterresourcesets.addons.cluster.x-k8s.io"),
    (ADDONS, "ClusterResourceSetBinding", "clusterresourcesetbindings.addons.cluster.x-k8s.io"),
    (IPAM, "IPAddressClaim", "ipaddressclaims.ipam.cluster.x-k8s.io"),
    (IPAM, "IPAddress", "ipaddresses.ipam.cluster.x-k8s.io"),
    (IPAM, "InClusterIPPool", "inclusterippools.ipam.cluster.x-k8s.io"),
    (IPAM, "GlobalInClusterIPPool", "globalinclusterippools.ipam.cluster.x-k8s.io"),
];

/// The only version of pools of addresses.
const POOLS: &str = "v1alpha2";

struct Ruled {
    group: &'static str,
    kind: &'static str,
    conversion: NativeConversion,
}

impl Ruled {
    /// The object in the version the rules speak.
    fn hub(&self, object: &Value) -> ApiResult<Value> {
        self.converted(object.clone(), self.version())
    }

    /// The version the rules speak: the one that is stored.
    fn version(&self) -> &'static str {
        if matches!(self.kind, "InClusterIPPool" | "GlobalInClusterIPPool") { POOLS } else { HUB }
    }

    fn converted(&self, mut object: Value, version: &str) -> ApiResult<Value> {
        (self.conversion)(&mut object, version)
            .map_err(|error| ApiError::internal(format!("convert to {version}: {error}")))?;
        object["apiVersion"] = format!("{}/{version}", self.group).into();
        Ok(object)
    }
}

/// Admission of all Cluster API kinds.
pub struct Admission {
    kinds: Vec<Ruled>,
    features: Features,
}

impl Admission {
    /// `conversion` gives the conversion of a CRD by its name.
    pub fn new(conversion: impl Fn(&str) -> NativeConversion) -> Self {
        let kinds =
            KINDS.iter().map(|&(group, kind, crd)| Ruled { group, kind, conversion: conversion(crd) });
        Self { kinds: kinds.collect(), features: Features::default() }
    }

    /// The rules for what is written, if there are any.
    fn ruled(&self, request: &Request<'_>) -> Option<&Ruled> {
        if !request.subresource.is_empty() || request.operation == Operation::Delete {
            return None;
        }
        self.kinds.iter().find(|ruled| ruled.kind == request.kind && ruled.group == request.group)
    }
}

impl Hook for Admission {
    fn concerns(&self, request: &Request<'_>) -> bool {
        self.ruled(request).is_some()
    }

    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
        let Some(ruled) = self.ruled(request) else { return Ok(()) };
        let refuse = |errors: Vec<FieldError>| invalid(request, request.name, &errors);
        if request.version == ruled.version() {
            return admission::default(ruled.kind, object, request.old).map_err(refuse);
        }
        let before = ruled.hub(object)?;
        let old = request.old.map(|old| ruled.hub(old)).transpose()?;
        let mut after = before.clone();
        admission::default(ruled.kind, &mut after, old.as_ref()).map_err(refuse)?;
        let unchanged = old.as_ref().is_some_and(|old| old["spec"] == after["spec"]);
        if after == before && !unchanged {
            return Ok(());
        }
        let before = ruled.converted(before, request.version)?;
        let after = ruled.converted(after, request.version)?;
        let is_read = is_read(&object["spec"], &before["spec"]);
        graft(object, &before, after);
        // The same said in other words (`10m` for `10m0s`, a reference without its namespace) is no
        // change: it would count as a new generation each time somebody applies it again.
        if let Some(old) = request.old.filter(|_| unchanged && is_read) {
            object["spec"] = old["spec"].clone();
        }
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let (Some(ruled), Some(object)) = (self.ruled(request), object) else { return Ok(Vec::new()) };
        let errors = if request.version == ruled.version() {
            admission::validate(ruled.kind, object, request.old, self.features)
        } else {
            let old = request.old.map(|old| ruled.hub(old)).transpose()?;
            admission::validate(ruled.kind, &ruled.hub(object)?, old.as_ref(), self.features)
        };
        if errors.is_empty() {
            return Ok(Vec::new());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or(request.name);
        Err(invalid(request, name, &errors))
    }
}

/// Clients and kubectl see a webhook's refusal as the same `Status`, but for the name of the webhook
/// in front of the message.
fn invalid(request: &Request<'_>, name: &str, errors: &[FieldError]) -> ApiError {
    ApiError::invalid(Named { group: request.group, kind: request.kind, name }, errors)
}

/// Makes of `object` what became of `before`, and leaves the rest of it as it is: what a conversion
/// could not read must stay, to be refused by the schema instead of disappearing.
fn graft(object: &mut Value, before: &Value, after: Value) {
    match after {
        after if after == *before => {}
        Value::Object(after) if object.is_object() && before.is_object() => {
            let (Some(object), Some(before)) = (object.as_object_mut(), before.as_object()) else { return };
            graft_fields(object, before, after);
        }
        after => *object = after,
    }
}

fn graft_fields(object: &mut Map<String, Value>, before: &Map<String, Value>, after: Map<String, Value>) {
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        object.remove(key);
    }
    for (key, value) in after {
        match (object.get_mut(&key), before.get(&key)) {
            (Some(known), Some(before)) => graft(known, before, value),
            (None, Some(before)) if value == *before => {}
            _ => {
                object.insert(key, value);
            }
        }
    }
}

/// Whether a conversion has read all that was `written`, given what it would write itself.
fn is_read(written: &Value, shown: &Value) -> bool {
    match (written, shown) {
        (Value::Null, _) => true,
        (Value::Object(written), Value::Object(shown)) => {
            written.iter().all(|(key, value)| is_read(value, shown.get(key).unwrap_or(&Value::Null)))
        }
        (Value::Object(written), Value::Null) => written.values().all(Value::is_null),
        (Value::Array(written), Value::Array(shown)) => {
            written.len() == shown.len()
                && written.iter().zip(shown).all(|(written, shown)| is_read(written, shown))
        }
        (Value::String(_), Value::String(_))
        | (Value::Number(_), Value::Number(_))
        | (Value::Bool(_), Value::Bool(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(object: Value, before: &Value, after: Value, expected: Value) {
        let mut grafted = object;
        graft(&mut grafted, before, after);
        assert_eq!(grafted, expected);
    }

    #[test]
    fn only_what_changed_is_grafted() {
        check(
            json!({"spec": {"odd": 5, "kept": [1], "gone": true}, "status": {}}),
            &json!({"spec": {"kept": [1], "gone": true}}),
            json!({"spec": {"kept": [1], "added": {"a": 1}}, "metadata": {"labels": {"x": "y"}}}),
            json!({"spec": {"odd": 5, "kept": [1], "added": {"a": 1}}, "status": {}, "metadata": {"labels": {"x": "y"}}}),
        );
    }

    #[test]
    fn what_a_conversion_does_not_write_it_has_not_read() {
        let shown = json!({"timeout": "10m0s", "list": [{"a": 1}], "ref": {"name": "x", "namespace": "y"}});
        for read in [
            json!({"timeout": "10m", "selector": {"matchLabels": null}}),
            json!({"list": [{"a": 2}], "ref": {"name": "x"}}),
        ] {
            assert!(is_read(&read, &shown), "{read}");
        }
        for unread in
            [json!({"timeout": 5}), json!({"other": 1}), json!({"list": []}), json!({"ref": {"uid": "z"}})]
        {
            assert!(!is_read(&unread, &shown), "{unread}");
        }
    }

    #[test]
    fn what_is_no_object_is_replaced() {
        check(json!(null), &json!({"a": 1}), json!({"a": 2}), json!({"a": 2}));
        check(
            json!({"selector": {"matchLabels": null}}),
            &json!({"selector": {"matchLabels": null}}),
            json!({"selector": {"matchLabels": {"a": "b"}}}),
            json!({"selector": {"matchLabels": {"a": "b"}}}),
        );
    }
}
