//! Rules of the built-in kinds beyond their schema, in the words of Kubernetes.
//!
//! Metadata has its own rules in [`crate::meta`]; here are those of everything else. Objects are expected
//! with their defaults in place.

mod access;
pub mod addresses;
mod admission;
mod autoscaling;
mod core;
mod network;
mod pod;
mod workload;

use remuda_schema::{FieldError, Reason};
use serde_json::Value;

use crate::{
    json::{at, is_unset},
    meta::MetaRules,
    names::{self, NameRule},
    path::Path,
};

const IMMUTABLE: &str = "field is immutable";
const RBAC: &str = "rbac.authorization.k8s.io";

/// What a new object of a built-in kind breaks.
pub fn create(group: &str, kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    check(group, kind, object, None, &mut errors);
    errors.list
}

/// What an update of a built-in kind breaks.
pub fn update(group: &str, kind: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    check(group, kind, new, Some(old), &mut errors);
    errors.list
}

/// What an update of a pod through `ephemeralcontainers` breaks.
pub fn ephemeral_containers(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    pod::ephemeral_containers(new, old, &mut errors);
    errors.list
}

/// What an update of the status of a built-in kind breaks.
pub fn status_update(group: &str, kind: &str, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if (group, kind) == ("", "Namespace") {
        core::namespace_phase(new, &mut errors);
    }
    errors.list
}

/// The rules for the metadata of a built-in kind.
pub fn meta_rules(group: &str, kind: &str, namespaced: bool) -> MetaRules {
    let name: NameRule = match (group, kind) {
        ("", "Namespace") => names::label_name,
        ("", "Service") => names::label_1035_name,
        ("networking.k8s.io", "IPAddress") => addresses::address_name,
        (RBAC | "certificates.k8s.io" | "apiregistration.k8s.io", _) => names::path_segment_name,
        _ => names::subdomain_name,
    };
    MetaRules { namespaced, name, domain_finalizers: true }
}

fn check(group: &str, kind: &str, new: &Value, old: Option<&Value>, errors: &mut Errors) {
    match (group, kind) {
        ("", "Secret") => core::secret(new, old, errors),
        ("", "ConfigMap") => core::config_map(new, old, errors),
        ("", "ServiceAccount") => {}
        ("", "Namespace") => core::namespace(new, old, errors),
        ("", "Node") => core::node(new, old, errors),
        ("", "Event") => core::event(new, old, false, errors),
        ("events.k8s.io", "Event") => core::event(new, old, true, errors),
        ("", "PersistentVolumeClaim") => core::claim(new, old, errors),
        ("", "PersistentVolume") => core::volume(new, old, errors),
        ("", "Service") => network::service(new, old, errors),
        ("", "Endpoints") => network::endpoints(new, errors),
        ("", "Pod") => pod::pod(new, old, errors),
        ("", "PodTemplate") => workload::pod_template(new, errors),
        ("", "ReplicationController") => workload::replication_controller(new, errors),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workload::apps(kind, new, old, errors);
        }
        ("apps", "ControllerRevision") => workload::revision(new, old, errors),
        ("batch", "Job") => workload::job(new, old, errors),
        ("batch", "CronJob") => workload::cron_job(new, old, errors),
        ("policy", "PodDisruptionBudget") => workload::budget(new, errors),
        ("coordination.k8s.io", "Lease") => core::lease(new, errors),
        ("scheduling.k8s.io", "PriorityClass") => core::priority_class(new, old, errors),
        ("storage.k8s.io", "StorageClass") => core::storage_class(new, old, errors),
        (RBAC, "Role" | "ClusterRole") => access::role(kind, new, errors),
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => access::binding(kind, new, old, errors),
        ("certificates.k8s.io", "CertificateSigningRequest") => access::signing_request(new, errors),
        ("apiregistration.k8s.io", "APIService") => admission::api_service(new, errors),
        ("admissionregistration.k8s.io", _) => admission::check(kind, new, errors),
        ("networking.k8s.io", "Ingress") => network::ingress(new, errors),
        ("networking.k8s.io", "IngressClass") => network::ingress_class(new, old, errors),
        ("networking.k8s.io", "NetworkPolicy") => network::policy(new, errors),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(new, old, errors),
        ("networking.k8s.io", "ServiceCIDR") => addresses::service_cidr(new, old, errors),
        ("networking.k8s.io", "IPAddress") => addresses::ip_address(new, old, errors),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler(new, errors),
        ("storage.k8s.io", "VolumeAttributesClass") => core::volume_attributes(new, old, errors),
        _ => {}
    }
}

/// The errors found so far, with short ways to add the usual ones.
#[derive(Default)]
struct Errors {
    list: Vec<FieldError>,
}

impl Errors {
    fn required(&mut self, path: Path<'_>, detail: &str) {
        self.list.push(FieldError::required(path, detail));
    }

    fn invalid(&mut self, path: Path<'_>, value: &Value, detail: &str) {
        self.list.push(FieldError::invalid(path, value, detail));
    }

    fn forbidden(&mut self, path: Path<'_>, detail: &str) {
        self.list.push(FieldError::forbidden(path, detail));
    }

    fn duplicate(&mut self, path: Path<'_>, value: &Value) {
        self.list.push(FieldError::duplicate(path, value));
    }

    fn not_found(&mut self, path: Path<'_>, value: &Value) {
        self.list.push(FieldError::new(path, Reason::NotFound, format!("Not found: {value}")));
    }

    fn too_many(&mut self, path: Path<'_>, actual: usize, limit: usize) {
        let message = format!("Too many: {actual}: must have at most {limit} items");
        self.list.push(FieldError::new(path, Reason::TooMany, message));
    }

    fn too_long(&mut self, path: Path<'_>, limit: usize) {
        self.list.push(FieldError::too_long(path, limit));
    }

    /// One error for every complaint about a value.
    fn complaints(&mut self, path: Path<'_>, value: &str, complaints: &[String]) {
        for complaint in complaints {
            self.list.push(FieldError::invalid(path, &Value::from(value), complaint));
        }
    }

    /// Text that must be one of a few words.
    fn one_of(&mut self, path: Path<'_>, value: &Value, supported: &[&str]) {
        match value.as_str() {
            Some(text) if supported.contains(&text) => {}
            None | Some("") => self.required(path, ""),
            Some(_) => self.list.push(FieldError::not_supported(path, value, supported)),
        }
    }

    /// Text that, when given, must be one of a few words.
    fn one_of_given(&mut self, path: Path<'_>, value: &Value, supported: &[&str]) {
        if !is_unset(value) && !value.as_str().is_some_and(|text| supported.contains(&text)) {
            self.list.push(FieldError::not_supported(path, value, supported));
        }
    }

    /// A field that keeps its first value; missing and empty are the same.
    fn immutable(&mut self, path: Path<'_>, new: &Value, old: &Value) {
        if !same(new, old) {
            self.invalid(path, new, IMMUTABLE);
        }
    }

    fn not_negative(&mut self, path: Path<'_>, value: &Value) {
        if value.as_i64().is_some_and(|number| number < 0) {
            self.invalid(path, value, "must be greater than or equal to 0");
        }
    }

    fn port(&mut self, path: Path<'_>, value: &Value) {
        for complaint in names::port_number(value.as_i64().unwrap_or_default()) {
            self.list.push(FieldError::invalid(path, value, &complaint));
        }
    }

    /// A count or a percentage.
    fn count_or_percent(&mut self, path: Path<'_>, value: &Value) {
        match value {
            Value::Number(_) => self.not_negative(path, value),
            Value::String(text) => {
                let digits = text
                    .strip_suffix('%')
                    .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
                match digits {
                    None => self.invalid(
                        path,
                        value,
                        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                    ),
                    Some(digits) if digits.parse::<u64>().map_or(true, |percent| percent > 100) => {
                        self.invalid(path, value, "must not be greater than 100%");
                    }
                    Some(_) => {}
                }
            }
            Value::Null => {}
            _ => self.invalid(path, value, "must be an integer or percentage (e.g '5%%')"),
        }
    }
}

fn same(left: &Value, right: &Value) -> bool {
    left == right || (is_unset(left) && is_unset(right))
}

/// Both sides of a field at the top of the object.
fn pair<'a>(new: &'a Value, old: &'a Value, keys: &[&str]) -> (&'a Value, &'a Value) {
    (at(new, keys), at(old, keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a new object and compares the errors as text, one per line.
    #[track_caller]
    pub(super) fn check_create(group: &str, kind: &str, object: &Value, expected: &[&str]) {
        let texts: Vec<_> = create(group, kind, object).iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[track_caller]
    pub(super) fn check_update(group: &str, kind: &str, new: &Value, old: &Value, expected: &[&str]) {
        let texts: Vec<_> = update(group, kind, new, old).iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn percentages_are_checked() {
        let root = Path::root("x");
        for (value, good) in [("10%", true), ("101%", false), ("x", false), ("%", false)] {
            let mut errors = Errors::default();
            errors.count_or_percent(root, &Value::from(value));
            assert_eq!(errors.list.is_empty(), good, "{value}");
        }
    }
}
