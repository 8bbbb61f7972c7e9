//! Roles, bindings and certificate requests.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use remuda_schema::FieldError;
use serde_json::Value;

use super::{Errors, RBAC, pair, same};
use crate::{
    json::{at, is_unset, list_at, text_at},
    names,
    path::Path,
    selector::LabelSelector,
};

pub(super) fn role(kind: &str, new: &Value, errors: &mut Errors) {
    let rules = Path::root("rules");
    for (index, rule) in list_at(new, &["rules"]).iter().enumerate() {
        policy_rule(rule, kind == "Role", rules.index(index), errors);
    }
    let aggregation = at(new, &["aggregationRule"]);
    if kind == "ClusterRole" && aggregation.is_object() {
        let path = Path::root("aggregationRule");
        let path = path.child("clusterRoleSelectors");
        let selectors = list_at(aggregation, &["clusterRoleSelectors"]);
        if selectors.is_empty() {
            errors.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for (index, selector) in selectors.iter().enumerate() {
            errors.list.append(&mut LabelSelector::validate(selector, &path.index(index)));
        }
    }
}

fn policy_rule(rule: &Value, namespaced: bool, path: Path<'_>, errors: &mut Errors) {
    let given = |field: &str| !list_at(rule, &[field]).is_empty();
    if !given("verbs") {
        errors.required(path.child("verbs"), "verbs must contain at least one value");
    }
    if given("nonResourceURLs") {
        let urls = at(rule, &["nonResourceURLs"]);
        let path = path.child("nonResourceURLs");
        if namespaced {
            errors.invalid(path, urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if given("apiGroups") || given("resources") || given("resourceNames") {
            errors.invalid(path, urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if !given("apiGroups") {
        errors.required(path.child("apiGroups"), "resource rules must supply at least one api group");
    }
    if !given("resources") {
        errors.required(path.child("resources"), "resource rules must supply at least one resource");
    }
}

pub(super) fn binding(kind: &str, new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let namespaced = kind == "RoleBinding";
    let path = Path::root("roleRef");
    let role = at(new, &["roleRef"]);
    exactly(path.child("apiGroup"), at(role, &["apiGroup"]), &[RBAC], errors);
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    exactly(path.child("kind"), at(role, &["kind"]), kinds, errors);
    match text_at(role, &["name"]) {
        "" => errors.required(path.child("name"), ""),
        name => errors.complaints(path.child("name"), name, &names::path_segment(name, false)),
    }
    let subjects = Path::root("subjects");
    for (index, entry) in list_at(new, &["subjects"]).iter().enumerate() {
        subject(entry, namespaced, subjects.index(index), errors);
    }
    if let Some(old) = old {
        let (new, old) = pair(new, old, &["roleRef"]);
        if !same(new, old) {
            errors.invalid(path, new, "cannot change roleRef");
        }
    }
}

/// Like `one_of`, but a missing value is an unsupported one.
fn exactly(path: Path<'_>, value: &Value, supported: &[&str], errors: &mut Errors) {
    let text = value.as_str().unwrap_or_default();
    if !supported.contains(&text) {
        errors.list.push(FieldError::not_supported(path, &Value::from(text), supported));
    }
}

fn subject(subject: &Value, namespaced: bool, path: Path<'_>, errors: &mut Errors) {
    let name = text_at(subject, &["name"]);
    if name.is_empty() {
        errors.required(path.child("name"), "");
    }
    let group = at(subject, &["apiGroup"]);
    match text_at(subject, &["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.complaints(path.child("name"), name, &names::subdomain(name));
            }
            if !is_unset(group) {
                errors.list.push(FieldError::not_supported(path.child("apiGroup"), group, &[""]));
            }
            if !namespaced && text_at(subject, &["namespace"]).is_empty() {
                errors.required(path.child("namespace"), "");
            }
        }
        "User" | "Group" => exactly(path.child("apiGroup"), group, &[RBAC], errors),
        other => errors.list.push(FieldError::not_supported(
            path.child("kind"),
            &Value::from(other),
            &["ServiceAccount", "User", "Group"],
        )),
    }
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The signature of the request is for the caller to check; here it must at least be one.
pub(super) fn signing_request(new: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    let request = text_at(spec, &["request"]);
    let is_request =
        STANDARD.decode(request).ok().and_then(|bytes| String::from_utf8(bytes).ok()).is_some_and(|text| {
            text.contains("-----BEGIN CERTIFICATE REQUEST-----")
                || text.contains("-----BEGIN NEW CERTIFICATE REQUEST-----")
        });
    if !is_request {
        errors.invalid(
            path.child("request"),
            &Value::from(request),
            "PEM block type must be CERTIFICATE REQUEST",
        );
    }
    let usages = list_at(spec, &["usages"]);
    let usages_path = path.child("usages");
    if usages.is_empty() {
        errors.required(usages_path, "");
    }
    let mut seen = BTreeSet::new();
    for (index, usage) in usages.iter().enumerate() {
        let text = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&text) {
            errors.list.push(FieldError::not_supported(usages_path.index(index), usage, &USAGES));
        }
        if !seen.insert(text) {
            errors.duplicate(usages_path.index(index), usage);
        }
    }
    signer_name(at(spec, &["signerName"]), path.child("signerName"), errors);
    let seconds = at(spec, &["expirationSeconds"]);
    if seconds.as_i64().is_some_and(|seconds| seconds < 600) {
        errors.invalid(
            path.child("expirationSeconds"),
            seconds,
            "may not specify a duration less than 600 seconds (10 minutes)",
        );
    }
    conditions(new, errors);
}

/// `domain/path`: the domain has at least two parts, the path one or more names.
fn signer_name(value: &Value, path: Path<'_>, errors: &mut Errors) {
    let name = value.as_str().unwrap_or_default();
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name == "kubernetes.io/legacy-unknown" {
        errors.invalid(path, value, "the legacy signerName is not allowed via this API version");
        return;
    }
    let segments: Vec<&str> = name.split('/').collect();
    let [domain, rest] = segments.as_slice() else {
        errors.invalid(
            path,
            value,
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
        return;
    };
    if domain.len() > names::SUBDOMAIN_MAX {
        errors.too_long(path, names::SUBDOMAIN_MAX);
    }
    first_bad_label(domain, names::label, path, errors);
    if !domain.contains('.') {
        errors.invalid(
            path,
            &Value::from(*domain),
            "should be a domain with at least two segments separated by dots",
        );
    }
    first_bad_label(rest, names::subdomain, path, errors);
    if name.len() > SIGNER_NAME_MAX {
        errors.too_long(path, SIGNER_NAME_MAX);
    }
}

/// A domain, a slash, and a path with room for a namespace and a name.
const SIGNER_NAME_MAX: usize = 2 * names::SUBDOMAIN_MAX + names::LABEL_MAX + 2;

/// Further labels would only repeat the complaint.
fn first_bad_label(text: &str, rule: fn(&str) -> Vec<String>, path: Path<'_>, errors: &mut Errors) {
    let bad =
        text.split('.').map(|label| (label, rule(label))).find(|(_, complaints)| !complaints.is_empty());
    for (label, complaint) in
        bad.iter().flat_map(|(label, list)| list.iter().map(move |complaint| (label, complaint)))
    {
        errors.invalid(path, &Value::from(text), &format!("validating label {label:?}: {complaint}"));
    }
}

fn conditions(new: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let path = path.child("conditions");
    let mut seen = BTreeSet::new();
    for (index, condition) in list_at(new, &["status", "conditions"]).iter().enumerate() {
        let entry = path.index(index);
        let kind = text_at(condition, &["type"]);
        if kind.is_empty() {
            errors.required(entry.child("type"), "");
        }
        errors.one_of(entry.child("status"), at(condition, &["status"]), &["False", "True", "Unknown"]);
        if matches!(kind, "Approved" | "Denied" | "Failed")
            && matches!(text_at(condition, &["status"]), "False" | "Unknown")
        {
            errors.list.push(FieldError::not_supported(
                entry.child("status"),
                at(condition, &["status"]),
                &["True"],
            ));
        }
        if matches!(kind, "Approved" | "Denied")
            && seen.contains(if kind == "Approved" { "Denied" } else { "Approved" })
        {
            errors.invalid(path, &Value::from(kind), "Approved and Denied conditions are mutually exclusive");
        }
        if !seen.insert(kind) {
            errors.duplicate(entry.child("type"), &Value::from(kind));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::tests::{check_create, check_update};

    #[test]
    fn rules_name_verbs_and_resources() {
        check_create(
            RBAC,
            "Role",
            &json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
            &[],
        );
        check_create(
            RBAC,
            "Role",
            &json!({"rules": [{}, {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["a"]}]}),
            &[
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
                "rules[1].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
                "rules[1].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs",
            ],
        );
    }

    #[test]
    fn the_role_of_a_binding_stays() {
        let binding = |name: &str| json!({"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}, "subjects": [{"kind": "ServiceAccount", "name": "s"}]});
        check_update(
            RBAC,
            "RoleBinding",
            &binding("b"),
            &binding("a"),
            &[
                "roleRef: Invalid value: {\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"ClusterRole\",\"name\":\"b\"}: cannot change roleRef",
            ],
        );
        check_create(RBAC, "ClusterRoleBinding", &binding("a"), &["subjects[0].namespace: Required value"]);
        check_create(
            RBAC,
            "ClusterRoleBinding",
            &json!({"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "x"}, "subjects": [{"kind": "Robot", "name": "r"}]}),
            &[
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
            ],
        );
    }

    #[test]
    fn certificate_requests_are_complete() {
        let request =
            STANDARD.encode("-----BEGIN CERTIFICATE REQUEST-----\nx\n-----END CERTIFICATE REQUEST-----\n");
        check_create(
            "certificates.k8s.io",
            "CertificateSigningRequest",
            &json!({"spec": {"request": request, "signerName": "example.com/x", "usages": ["client auth"]}}),
            &[],
        );
        check_create(
            "certificates.k8s.io",
            "CertificateSigningRequest",
            &json!({"spec": {"request": "eA==", "signerName": "x", "usages": ["client auth", "client auth"], "expirationSeconds": 5}}),
            &[
                "spec.request: Invalid value: \"eA==\": PEM block type must be CERTIFICATE REQUEST",
                "spec.usages[1]: Duplicate value: \"client auth\"",
                "spec.signerName: Invalid value: \"x\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
                "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)",
            ],
        );
    }
}
