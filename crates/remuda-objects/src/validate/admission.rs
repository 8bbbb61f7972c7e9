//! Webhook configurations, admission policies and API services.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::Errors;
use crate::{
    json::{at, is_unset, list_at, map_at, text_at},
    meta, names,
    path::Path,
    selector::LabelSelector,
};

pub(super) fn check(kind: &str, new: &Value, errors: &mut Errors) {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let path = Path::root("webhooks");
            let mut seen = BTreeSet::new();
            for (index, hook) in list_at(new, &["webhooks"]).iter().enumerate() {
                let path = path.index(index);
                webhook(hook, kind.starts_with("Mutating"), path, errors);
                let name = text_at(hook, &["name"]);
                if !name.is_empty() && !seen.insert(name) {
                    errors.duplicate(path.child("name"), at(hook, &["name"]));
                }
            }
        }
        "ValidatingAdmissionPolicy" => policy(new, "validations", errors),
        "MutatingAdmissionPolicy" => policy(new, "mutations", errors),
        "ValidatingAdmissionPolicyBinding" => policy_binding(new, true, errors),
        "MutatingAdmissionPolicyBinding" => policy_binding(new, false, errors),
        _ => {}
    }
}

fn webhook(hook: &Value, mutating: bool, path: Path<'_>, errors: &mut Errors) {
    let name = text_at(hook, &["name"]);
    if name.is_empty() {
        errors.required(path.child("name"), "");
    } else {
        let complaints = names::subdomain(name);
        if !complaints.is_empty() {
            errors.invalid(path.child("name"), &Value::from(name), &complaints.join(","));
        } else if name.split('.').count() < 3 {
            errors.invalid(
                path.child("name"),
                &Value::from(name),
                "should be a domain with at least three segments separated by dots",
            );
        }
    }
    let rules = path.child("rules");
    for (index, entry) in list_at(hook, &["rules"]).iter().enumerate() {
        rule(entry, rules.index(index), true, errors);
    }
    errors.one_of_given(path.child("failurePolicy"), at(hook, &["failurePolicy"]), &["Fail", "Ignore"]);
    errors.one_of_given(path.child("matchPolicy"), at(hook, &["matchPolicy"]), &["Equivalent", "Exact"]);
    let effects = at(hook, &["sideEffects"]);
    if is_unset(effects) {
        errors.required(path.child("sideEffects"), "must specify one of None, NoneOnDryRun");
    } else {
        errors.one_of_given(path.child("sideEffects"), effects, &["None", "NoneOnDryRun"]);
    }
    let timeout = at(hook, &["timeoutSeconds"]);
    if timeout.as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        errors.invalid(
            path.child("timeoutSeconds"),
            timeout,
            "the timeout value must be between 1 and 30 seconds",
        );
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        errors.list.append(&mut LabelSelector::validate(at(hook, &[selector]), &path.child(selector)));
    }
    if mutating {
        let policy = at(hook, &["reinvocationPolicy"]);
        errors.one_of_given(path.child("reinvocationPolicy"), policy, &["IfNeeded", "Never"]);
    }
    client(at(hook, &["clientConfig"]), path.child("clientConfig"), errors);
    match_conditions(hook, path, errors);
    review_versions(hook, path.child("admissionReviewVersions"), errors);
}

fn review_versions(hook: &Value, path: Path<'_>, errors: &mut Errors) {
    let versions = list_at(hook, &["admissionReviewVersions"]);
    if versions.is_empty() {
        errors.required(path, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        let text = version.as_str().unwrap_or_default();
        if seen.insert(text) {
            errors.complaints(path.index(index), text, &names::label_1035(text));
        } else {
            errors.invalid(path.index(index), version, "duplicate version");
        }
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        errors.invalid(
            path,
            at(hook, &["admissionReviewVersions"]),
            "must include at least one of v1, v1beta1",
        );
    }
}

fn client(config: &Value, path: Path<'_>, errors: &mut Errors) {
    let (url, service) = (at(config, &["url"]), at(config, &["service"]));
    match (url.as_str(), service.is_object()) {
        (None, false) | (Some(_), true) => errors.required(path, "exactly one of url or service is required"),
        (Some(url), false) => check_url(url, path.child("url"), errors),
        (None, true) => {
            let path = path.child("service");
            for field in ["name", "namespace"] {
                if text_at(service, &[field]).is_empty() {
                    errors.required(path.child(field), "");
                }
            }
            let port = at(service, &["port"]);
            if port.as_i64().is_some_and(|port| !(1..=65535).contains(&port)) {
                errors.invalid(
                    path.child("port"),
                    port,
                    "port is not valid: must be between 1 and 65535, inclusive",
                );
            }
            service_path(text_at(service, &["path"]), path.child("path"), errors);
        }
    }
}

fn check_url(url: &str, path: Path<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        errors.invalid(path, &Value::from(scheme), &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() || scheme.is_empty() {
        errors.invalid(path, &Value::from(""), &format!("host must be specified{FORM}"));
    }
    for (part, detail) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            errors.invalid(path, &Value::from(part), detail);
        }
    }
}

fn service_path(text: &str, path: Path<'_>, errors: &mut Errors) {
    if matches!(text, "" | "/") {
        return;
    }
    let value = Value::from(text);
    let Some(steps) = text.strip_prefix('/') else {
        errors.invalid(path, &value, "must start with a '/'");
        return;
    };
    for (index, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(path, &value, &format!("segment[{index}] may not be empty"));
        } else {
            for complaint in names::subdomain(step) {
                errors.invalid(path, &value, &format!("segment[{index}]: {complaint}"));
            }
        }
    }
}

fn rule(rule: &Value, path: Path<'_>, subresources: bool, errors: &mut Errors) {
    let operations = list_at(rule, &["operations"]);
    if operations.is_empty() {
        errors.required(path.child("operations"), "");
    }
    wildcard(rule, "operations", "operations", path, errors);
    let operations_path = path.child("operations");
    for (index, operation) in operations.iter().enumerate() {
        errors.one_of_given(
            operations_path.index(index),
            operation,
            &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"],
        );
    }
    for (field, shown) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        if list_at(rule, &[field]).is_empty() {
            errors.required(path.child(field), "");
        }
        // The empty group is the core one; there is no empty version.
        for (index, version) in list_at(rule, &[field]).iter().enumerate() {
            if field == "apiVersions" && version == "" {
                errors.required(path.child(field).index(index), "");
            }
        }
        wildcard(rule, field, shown, path, errors);
    }
    resources(rule, path.child("resources"), subresources, errors);
    errors.one_of_given(path.child("scope"), at(rule, &["scope"]), &["*", "Cluster", "Namespaced"]);
}

fn wildcard(rule: &Value, field: &str, shown: &str, path: Path<'_>, errors: &mut Errors) {
    let values = list_at(rule, &[field]);
    if values.len() > 1 && values.iter().any(|value| value.as_str() == Some("*")) {
        let detail = format!("if '*' is present, must not specify other {shown}");
        errors.invalid(path.child(field), at(rule, &[field]), &detail);
    }
}

fn resources(rule: &Value, path: Path<'_>, subresources: bool, errors: &mut Errors) {
    let all = at(rule, &["resources"]);
    let resources = list_at(rule, &["resources"]);
    if resources.is_empty() {
        errors.required(path, "");
    }
    let (mut all_subs, mut all_resources) = (BTreeSet::new(), BTreeSet::new());
    let (mut star, mut plain) = (false, false);
    for (index, resource) in resources.iter().enumerate() {
        let text = resource.as_str().unwrap_or_default();
        if text.is_empty() {
            errors.required(path.index(index), "");
            continue;
        }
        let Some((name, sub)) = text.split_once('/') else {
            star |= text == "*";
            plain |= text != "*";
            continue;
        };
        if !subresources {
            errors.invalid(path.index(index), resource, "must not specify subresources");
        }
        if all_subs.contains(name) {
            let detail = format!("if '{name}/*' is present, must not specify {text}");
            errors.invalid(path.index(index), resource, &detail);
        }
        if all_resources.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {text}");
            errors.invalid(path.index(index), resource, &detail);
        }
        if sub == "*" {
            all_subs.insert(name);
        }
        if name == "*" {
            all_resources.insert(sub);
        }
    }
    if resources.len() > 1 && resources.iter().any(|resource| resource.as_str() == Some("*/*")) {
        errors.invalid(path, all, "if '*/*' is present, must not specify other resources");
    }
    if star && plain {
        errors.invalid(path, all, "if '*' is present, must not specify other resources without subresources");
    }
}

fn match_conditions(parent: &Value, path: Path<'_>, errors: &mut Errors) {
    let path = path.child("matchConditions");
    let conditions = list_at(parent, &["matchConditions"]);
    if conditions.len() > 64 {
        errors.too_many(path, conditions.len(), 64);
    }
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        if text_at(condition, &["expression"]).trim().is_empty() {
            errors.required(path.child("expression"), "");
        }
        let name = text_at(condition, &["name"]);
        if name.is_empty() {
            errors.required(path.child("name"), "");
        } else {
            errors.complaints(path.child("name"), name, &names::qualified(name));
            if !seen.insert(name) {
                errors.duplicate(path.child("name"), at(condition, &["name"]));
            }
        }
    }
}

fn policy(new: &Value, list: &str, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    errors.one_of_given(path.child("failurePolicy"), at(spec, &["failurePolicy"]), &["Fail", "Ignore"]);
    if at(spec, &["paramKind"]).is_object() {
        let path = path.child("paramKind");
        for field in ["apiVersion", "kind"] {
            if text_at(spec, &["paramKind", field]).is_empty() {
                errors.required(path.child(field), "");
            }
        }
    }
    let constraints = at(spec, &["matchConstraints"]);
    let constraints_path = path.child("matchConstraints");
    if constraints.is_object() {
        if list_at(constraints, &["resourceRules"]).is_empty() {
            errors.required(constraints_path.child("resourceRules"), "");
        }
        match_resources(constraints, constraints_path, errors);
    } else {
        errors.required(constraints_path, "");
    }
    match_conditions(spec, path, errors);
    let entries = list_at(spec, &[list]);
    let annotations = list_at(spec, &["auditAnnotations"]);
    if list == "mutations" {
        operations(constraints, constraints_path, errors);
        variables(spec, path, errors);
        if entries.is_empty() {
            errors.required(path.child(list), "mutations must contain at least one item");
        }
        let entries_path = path.child(list);
        for (index, entry) in entries.iter().enumerate() {
            mutation(entry, entries_path.index(index), errors);
        }
        let again = path.child("reinvocationPolicy");
        if text_at(spec, &["reinvocationPolicy"]).is_empty() {
            errors.required(again, "");
        } else {
            errors.one_of_given(again, at(spec, &["reinvocationPolicy"]), &["IfNeeded", "Never"]);
        }
        return;
    }
    if entries.is_empty() && annotations.is_empty() {
        errors.required(path.child(list), "validations or auditAnnotations must contain at least one item");
        errors.required(
            path.child("auditAnnotations"),
            "validations or auditAnnotations must contain at least one item",
        );
    }
    let entries_path = path.child(list);
    for (index, entry) in entries.iter().enumerate() {
        let path = entries_path.index(index);
        if text_at(entry, &["expression"]).trim().is_empty() {
            errors.required(path.child("expression"), "expression is not specified");
        }
        let (message, text) = (at(entry, &["message"]), text_at(entry, &["message"]));
        if !text.is_empty() && text.trim().is_empty() {
            errors.invalid(path.child("message"), message, "must be non-empty if specified");
        } else if text.trim().contains(['\n', '\r']) {
            errors.invalid(path.child("message"), message, "must not contain line breaks");
        }
        let reason = at(entry, &["reason"]);
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
        errors.one_of_given(path.child("reason"), reason, &reasons);
    }
    variables(spec, path, errors);
    let annotations_path = path.child("auditAnnotations");
    let mut seen = BTreeSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let path = annotations_path.index(index);
        for field in ["key", "valueExpression"] {
            if text_at(annotation, &[field]).trim().is_empty() {
                errors.required(path.child(field), "");
            }
        }
        if !seen.insert(text_at(annotation, &["key"])) {
            errors.duplicate(path.child("key"), at(annotation, &["key"]));
        }
    }
}

fn variables(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let variables_path = path.child("variables");
    for (index, variable) in list_at(spec, &["variables"]).iter().enumerate() {
        let path = variables_path.index(index);
        let name = text_at(variable, &["name"]);
        if name.is_empty() {
            errors.required(path.child("name"), "name is not specified");
        } else if !is_identifier(name) {
            errors.invalid(path.child("name"), at(variable, &["name"]), "must be a valid CEL identifier");
        }
        if text_at(variable, &["expression"]).trim().is_empty() {
            errors.required(path.child("expression"), "expression is not specified");
        }
    }
}

/// What is deleted cannot be changed.
fn operations(resources: &Value, path: Path<'_>, errors: &mut Errors) {
    let path = path.child("resourceRules");
    for rule in list_at(resources, &["resourceRules"]) {
        for operation in list_at(rule, &["operations"]) {
            let known = &["*", "CONNECT", "CREATE", "UPDATE"];
            errors.one_of_given(path.child("operations"), operation, known);
        }
    }
}

fn mutation(entry: &Value, path: Path<'_>, errors: &mut Errors) {
    const SORTS: [(&str, &str); 2] =
        [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")];
    let given = text_at(entry, &["patchType"]);
    if given.is_empty() {
        errors.required(path.child("patchType"), "");
        return;
    }
    if !SORTS.iter().any(|(sort, _)| *sort == given) {
        let known = &["ApplyConfiguration", "JSONPatch"];
        errors.one_of_given(path.child("patchType"), at(entry, &["patchType"]), known);
        return;
    }
    for (sort, field) in SORTS {
        let (is_given, path) = (at(entry, &[field]).is_object(), path.child(field));
        match (sort == given, is_given) {
            (true, false) => {
                errors.required(path, &format!("must be specified when patchType is {given}"));
            }
            (true, true) if text_at(entry, &[field, "expression"]).trim().is_empty() => {
                errors.required(path.child("expression"), "");
            }
            (false, true) => {
                let shown = Value::from(format!("{{{field}}}"));
                errors.invalid(path, &shown, &format!("must not be specified when patchType is {given}"));
            }
            _ => {}
        }
    }
}

/// Whether an expression could spell the name.
fn is_identifier(name: &str) -> bool {
    !matches!(name, "in" | "true" | "false" | "null")
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn match_resources(resources: &Value, path: Path<'_>, errors: &mut Errors) {
    for selector in ["namespaceSelector", "objectSelector"] {
        errors.list.append(&mut LabelSelector::validate(at(resources, &[selector]), &path.child(selector)));
    }
    errors.one_of_given(path.child("matchPolicy"), at(resources, &["matchPolicy"]), &["Equivalent", "Exact"]);
    for list in ["resourceRules", "excludeResourceRules"] {
        let path = path.child(list);
        for (index, entry) in list_at(resources, &[list]).iter().enumerate() {
            rule(entry, path.index(index), true, errors);
        }
    }
}

fn policy_binding(new: &Value, validating: bool, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    match text_at(spec, &["policyName"]) {
        "" => errors.required(path.child("policyName"), ""),
        name => errors.complaints(path.child("policyName"), name, &names::subdomain(name)),
    }
    let param = at(spec, &["paramRef"]);
    if param.is_object() {
        let path = path.child("paramRef");
        match (!text_at(param, &["name"]).is_empty(), at(param, &["selector"]).is_object()) {
            (true, true) => {
                for field in ["name", "selector"] {
                    errors.forbidden(path.child(field), "name and selector are mutually exclusive");
                }
            }
            (false, false) => errors.required(path, "one of name or selector must be specified"),
            _ => {}
        }
        let action = at(param, &["parameterNotFoundAction"]);
        if is_unset(action) {
            errors.required(path.child("parameterNotFoundAction"), "");
        }
        errors.one_of_given(path.child("parameterNotFoundAction"), action, &["Deny", "Allow"]);
    }
    if at(spec, &["matchResources"]).is_object() {
        match_resources(at(spec, &["matchResources"]), path.child("matchResources"), errors);
    }
    if !validating {
        operations(at(spec, &["matchResources"]), path.child("matchResources"), errors);
        return;
    }
    let actions = list_at(spec, &["validationActions"]);
    let path = path.child("validationActions");
    if actions.is_empty() {
        errors.required(path, "at least one validation action is required");
    }
    let mut seen = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        errors.one_of_given(path.index(index), action, &["Audit", "Deny", "Warn"]);
        if !seen.insert(action.as_str().unwrap_or_default()) {
            errors.duplicate(path.index(index), action);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        errors.invalid(path, at(spec, &["validationActions"]), "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
}

pub(super) fn api_service(new: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    let (group, version) = (text_at(spec, &["group"]), text_at(spec, &["version"]));
    let wanted = format!("{version}.{group}");
    if meta::name(new) != wanted {
        let metadata = Path::root("metadata");
        let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        errors.invalid(metadata.child("name"), &Value::from(meta::name(new)), &detail);
    }
    if group.is_empty() && version != "v1" {
        errors.required(path.child("group"), "only v1 may have an empty group and it better be legacy kube");
    }
    if !group.is_empty() {
        errors.complaints(path.child("group"), group, &names::subdomain(group));
    }
    errors.complaints(path.child("version"), version, &names::label_1035(version));
    for (field, limit) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
        let value = at(spec, &[field]).as_i64().unwrap_or_default();
        if !(1..=limit).contains(&value) {
            let detail = format!("must be positive and less than {limit}");
            errors.invalid(path.child(field), &Value::from(value), &detail);
        }
    }
    let insecure = at(spec, &["insecureSkipTLSVerify"]);
    let bundle = text_at(spec, &["caBundle"]);
    let Some(service) = map_at(spec, &["service"]) else {
        if !bundle.is_empty() {
            let size = STANDARD.decode(bundle).map_or(bundle.len(), |bytes| bytes.len());
            let value = Value::from(format!("{size} bytes"));
            errors.invalid(path.child("caBundle"), &value, "local APIServices may not have a caBundle");
        }
        if insecure == &Value::Bool(true) {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.invalid(path.child("insecureSkipTLSVerify"), insecure, detail);
        }
        return;
    };
    let service_path = path.child("service");
    for field in ["namespace", "name"] {
        if service.get(field).is_none_or(is_unset) {
            errors.required(service_path.child(field), "");
        }
    }
    if insecure == &Value::Bool(true) && !bundle.is_empty() {
        errors.invalid(
            path.child("insecureSkipTLSVerify"),
            insecure,
            "may not be true if caBundle is present",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::check_create;

    const GROUP: &str = "admissionregistration.k8s.io";

    fn hook(change: impl FnOnce(&mut Value)) -> Value {
        let mut hook = json!({"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://x/y"},
            "rules": [{"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*"}]});
        change(&mut hook);
        json!({"webhooks": [hook]})
    }

    #[test]
    fn webhooks_are_complete() {
        check_create(GROUP, "ValidatingWebhookConfiguration", &hook(|_| {}), &[]);
        let broken = hook(|hook| {
            *hook = json!({"name": "short", "timeoutSeconds": 31, "clientConfig": {"url": "http://u@x?q", "service": {}}});
        });
        check_create(
            GROUP,
            "MutatingWebhookConfiguration",
            &broken,
            &[
                "webhooks[0].name: Invalid value: \"short\": should be a domain with at least three segments separated by dots",
                "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
                "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
            ],
        );
        check_create(
            GROUP,
            "MutatingWebhookConfiguration",
            &hook(|hook| hook["clientConfig"] = json!({"url": "http://u@x?q"})),
            &[
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
                "webhooks[0].clientConfig.url: Invalid value: \"u\": user information is not permitted in the URL",
                "webhooks[0].clientConfig.url: Invalid value: \"q\": query parameters are not permitted in the URL",
            ],
        );
        check_create(
            GROUP,
            "ValidatingWebhookConfiguration",
            &hook(|hook| hook["rules"][0]["resources"] = json!(["*", "pods"])),
            &[
                "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources without subresources",
            ],
        );
    }

    #[test]
    fn policies_say_what_they_match_and_check() {
        check_create(
            GROUP,
            "ValidatingAdmissionPolicy",
            &json!({"spec": {"failurePolicy": "Fail"}}),
            &[
                "spec.matchConstraints: Required value",
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ],
        );
        check_create(
            GROUP,
            "ValidatingAdmissionPolicyBinding",
            &json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}}),
            &[],
        );
    }

    #[test]
    fn mutating_policies_say_how_they_change_objects() {
        let policy = |change: &dyn Fn(&mut Value)| {
            let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], "scope": "*"});
            let mut policy = json!({"spec": {
                "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [rule]},
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
            }});
            change(&mut policy["spec"]);
            policy
        };
        let check = |change: &dyn Fn(&mut Value), expected: &[&str]| {
            check_create(GROUP, "MutatingAdmissionPolicy", &policy(change), expected);
        };
        check(&|_| {}, &[]);
        check(
            &|spec| spec["mutations"] = json!([]),
            &["spec.mutations: Required value: mutations must contain at least one item"],
        );
        check(&|spec| spec["reinvocationPolicy"] = "".into(), &["spec.reinvocationPolicy: Required value"]);
        check(
            &|spec| spec["mutations"][0]["applyConfiguration"] = json!({"expression": "Object{}"}),
            &[
                "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch",
            ],
        );
        check(
            &|spec| spec["mutations"][0]["patchType"] = "ApplyConfiguration".into(),
            &[
                "spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration",
                "spec.mutations[0].jsonPatch: Invalid value: \"{jsonPatch}\": must not be specified when patchType is ApplyConfiguration",
            ],
        );
        check(
            &|spec| spec["matchConstraints"]["resourceRules"][0]["operations"] = json!(["DELETE"]),
            &[
                "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
            ],
        );
        check(
            &|spec| spec["variables"] = json!([{"name": "1", "expression": ""}]),
            &[
                "spec.variables[0].name: Invalid value: \"1\": must be a valid CEL identifier",
                "spec.variables[0].expression: Required value: expression is not specified",
            ],
        );
        check_create(GROUP, "MutatingAdmissionPolicyBinding", &json!({"spec": {"policyName": "p"}}), &[]);
    }

    #[test]
    fn api_services_are_named_after_their_version() {
        check_create(
            "apiregistration.k8s.io",
            "APIService",
            &json!({"metadata": {"name": "v1.x.io"}, "spec": {"group": "x.io", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15}}),
            &[],
        );
        check_create(
            "apiregistration.k8s.io",
            "APIService",
            &json!({"metadata": {"name": "x"}, "spec": {"group": "x.io", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 0}}),
            &[
                "metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \"v1.x.io\"",
                "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
            ],
        );
    }
}
