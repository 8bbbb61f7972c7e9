//! Validation of a whole definition, in the order of the reference.

use serde_json::Value;

use crate::{
    crd::{
        approval, condition_is_true, conversion, flag, list, present, schema_json, text, texts,
        version::{self, Shared},
    },
    error::FieldError,
    gotext, names,
    structural::Demands,
};

/// Checks a definition that is to be created, or to replace `old`. Expects [`crate::default_crd`] to
/// have run, and on updates `status` to be that of `old` plus a new storage version.
pub fn check_crd(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = new.get("spec").unwrap_or(&Value::Null);
    if old.is_none() {
        metadata(new, spec, &mut errors);
    }
    let demands = old.and_then(|old| old.get("spec")).map(version::demands).unwrap_or_default();
    check_spec(spec, old, &demands, &mut errors);
    if let Some(old) = old {
        immutable(spec, old, &mut errors);
    }
    if let Some(status) = new.get("status") {
        if let Some(accepted) = status.get("acceptedNames") {
            check_names(accepted, "status.acceptedNames", &mut errors);
        }
        stored_versions(spec, status, &mut errors);
    } else {
        stored_versions(spec, &Value::Null, &mut errors);
    }
    approval::check(new, old, &mut errors);
    let preserved = |crd: &Value| crd.get("spec").is_some_and(|spec| flag(spec, "preserveUnknownFields"));
    if preserved(new) && !old.is_some_and(preserved) {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            &true.into(),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    errors
}

/// Checks a write to the status subresource of a definition.
pub fn check_crd_status(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(accepted) = new.get("status").and_then(|status| status.get("acceptedNames")) {
        check_names(accepted, "status.acceptedNames", &mut errors);
    }
    errors
}

fn metadata(crd: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    let name = crd.get("metadata").map(|metadata| text(metadata, "name")).unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        return;
    }
    let plural = spec.get("names").map(|names| text(names, "plural")).unwrap_or_default();
    let mut problems = names::dns1123_subdomain(name);
    if name != format!("{plural}.{}", text(spec, "group")) {
        problems.push("must be spec.names.plural+\".\"+spec.group".to_owned());
    }
    let found = problems.iter().map(|detail| FieldError::invalid("metadata.name", &name.into(), detail));
    errors.extend(found);
}

fn check_spec(spec: &Value, old: Option<&Value>, demands: &Demands, errors: &mut Vec<FieldError>) {
    group_and_scope(spec, errors);
    let versions = list(spec, "versions");
    // What all versions say alike is reported once, at the place the reference keeps it.
    let shared = Shared::of(versions);
    let old_complete = old
        .and_then(|old| old.get("spec"))
        .is_none_or(|spec| list(spec, "versions").iter().all(|version| schema_json(version).is_some()));
    for (index, version) in versions.iter().enumerate() {
        if schema_json(version).is_some() {
            continue;
        }
        let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
        if old_complete {
            errors.push(FieldError::required(field, ""));
        } else if flag(version, "served") && !flag(spec, "preserveUnknownFields") {
            errors.push(FieldError::required(field, "because otherwise all fields are pruned"));
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = text(version, "name");
        let problems = names::dns1035_label(name);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.name"), &name.into(), &problems.join(",")));
        }
        version::check(version, old, &path, &shared, demands, errors);
    }
    let mut seen = std::collections::BTreeSet::new();
    if !versions.iter().all(|version| seen.insert(text(version, "name"))) {
        versions_wrong(versions, &shared, "must contain unique version names", errors);
    }
    if versions.iter().filter(|version| flag(version, "storage")).count() != 1 {
        versions_wrong(versions, &shared, "must have exactly one version marked as storage version", errors);
    }
    let names = spec.get("names").unwrap_or(&Value::Null);
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(names, name).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{name}"), ""));
        }
    }
    check_names(names, "spec.names", errors);
    version::check_shared(versions, old, &shared, demands, errors);
    conversion::check(spec, old, errors);
}

fn group_and_scope(spec: &Value, errors: &mut Vec<FieldError>) {
    let group = text(spec, "group");
    let problems = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid("spec.group", &group.into(), &problems.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            &group.into(),
            "should be a domain with at least one dot",
        ));
    }
    match text(spec, "scope") {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            errors.push(FieldError::not_supported("spec.scope", &other.into(), &["Cluster", "Namespaced"]));
        }
    }
}

/// The reference prints its own form of the versions.
fn versions_wrong(versions: &[Value], shared: &Shared, detail: &str, errors: &mut Vec<FieldError>) {
    let field = |version: &Value, name: &str, moved: bool| {
        if moved { "null".to_owned() } else { present(version, name).map_or("null".to_owned(), gotext::json) }
    };
    let shown: Vec<String> = versions
        .iter()
        .map(|version| {
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
                gotext::json(&text(version, "name").into()),
                flag(version, "served"),
                flag(version, "storage"),
                flag(version, "deprecated"),
                field(version, "deprecationWarning", false),
                field(version, "schema", shared.schema),
                field(version, "subresources", shared.subresources),
                field(version, "additionalPrinterColumns", shared.columns),
                field(version, "selectableFields", shared.selectable),
            )
        })
        .collect();
    let shown = if shown.is_empty() { "null".to_owned() } else { format!("[{}]", shown.join(",")) };
    let message = format!("Invalid value: {shown}: {detail}");
    errors.push(FieldError::new("spec.versions", crate::Reason::Invalid, message));
}

fn check_names(names: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["plural", "singular", "kind", "listKind"] {
        let value = text(names, name);
        let mixed_case = matches!(name, "kind" | "listKind");
        let problems = if mixed_case {
            names::dns1035_label(&value.to_lowercase())
        } else {
            names::dns1035_label(value)
        };
        if value.is_empty() || problems.is_empty() {
            continue;
        }
        let prefix = if mixed_case { "may have mixed case, but should otherwise match: " } else { "" };
        let detail = format!("{prefix}{}", problems.join(","));
        errors.push(FieldError::invalid(format!("{path}.{name}"), &value.into(), &detail));
    }
    labels(names, "shortNames", path, errors);
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(format!("{path}.listKind"), &kind.into(), detail));
    }
    labels(names, "categories", path, errors);
}

fn labels(names: &Value, list_name: &str, path: &str, errors: &mut Vec<FieldError>) {
    for (index, name) in texts(names, list_name).enumerate() {
        let problems = names::dns1035_label(name);
        if !problems.is_empty() {
            let field = format!("{path}.{list_name}[{index}]");
            errors.push(FieldError::invalid(field, &name.into(), &problems.join(",")));
        }
    }
}

fn immutable(spec: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old_spec = old.get("spec").unwrap_or(&Value::Null);
    let name = |spec: &Value, name: &str| {
        spec.get("names").map(|names| text(names, name).to_owned()).unwrap_or_default()
    };
    let mut fields = Vec::new();
    if condition_is_true(old, "Established") {
        fields.push(("spec.scope", text(spec, "scope").to_owned(), text(old_spec, "scope").to_owned()));
        fields.push(("spec.names.kind", name(spec, "kind"), name(old_spec, "kind")));
    }
    fields.push(("spec.group", text(spec, "group").to_owned(), text(old_spec, "group").to_owned()));
    fields.push(("spec.names.plural", name(spec, "plural"), name(old_spec, "plural")));
    for (field, new, old) in fields {
        if new != old {
            errors.push(FieldError::invalid(field, &new.into(), "field is immutable"));
        }
    }
}

fn stored_versions(spec: &Value, status: &Value, errors: &mut Vec<FieldError>) {
    let field = "status.storedVersions";
    let stored: Vec<&str> = texts(status, "storedVersions").collect();
    if stored.is_empty() {
        errors.push(FieldError::invalid(field, &Value::Null, "must have at least one stored version"));
        return;
    }
    let versions = list(spec, "versions");
    for version in versions.iter().filter(|version| flag(version, "storage")) {
        let name = text(version, "name");
        if !stored.contains(&name) {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(field, &Value::from(stored.clone()), &detail));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| text(version, "name") == *name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{field}[{index}]"), &(*name).into(), &detail));
        }
    }
}
