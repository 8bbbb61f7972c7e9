//! What is refused, kind by kind.

use remuda_names::{
    annotation::{PRESERVE_FAILED, REMEDIATION_STEPS},
    capi::{annotation, label, taint},
};
use remuda_schema::FieldError;
use semver::Version;
use serde_json::{Value, json};

use super::{
    Features,
    path::{at, is_reference, strings, text},
    selectors, syntax,
};
use crate::{
    amount::Amount,
    name::{self, BadTemplate},
    set::{Check, Ladder, Preserve},
};

const IMMUTABLE: &str = "field is immutable";

pub(super) fn cluster(object: &Value, old: Option<&Value>, features: Features) -> Vec<FieldError> {
    let mut errors = Vec::new();
    name_is_label(&mut errors, object, "must be a valid label value ");
    let had = |path: &[&str]| old.is_some_and(|old| is_reference(old, path));
    let (infrastructure, control_plane) = (["spec", "infrastructureRef"], ["spec", "controlPlaneRef"]);
    let has_topology = at(object, &["spec", "topology"]).is_some();
    if !is_reference(object, &infrastructure) && had(&infrastructure) {
        errors.push(FieldError::forbidden("spec.infrastructureRef", "cannot be removed"));
    }
    if !is_reference(object, &infrastructure) && !is_reference(object, &control_plane) && !has_topology {
        let detail = "one of spec.controlPlaneRef, spec.infrastructureRef or spec.topology must be set";
        errors.push(FieldError::forbidden("spec", detail));
    }
    if !is_reference(object, &control_plane) && had(&control_plane) {
        errors.push(FieldError::forbidden("spec.controlPlaneRef", "cannot be removed"));
    }
    for network in ["pods", "services"] {
        let blocks = at(object, &["spec", "clusterNetwork", network, "cidrBlocks"]).and_then(Value::as_array);
        for (place, block) in blocks.into_iter().flatten().enumerate() {
            let written = block.as_str().unwrap_or_default();
            if !syntax::is_cidr(written) {
                let field = format!("spec.clusterNetwork.{network}.cidrBlocks[{place}]");
                errors.push(FieldError::invalid(field, block, &format!("invalid CIDR address: {written}")));
            }
        }
    }
    if has_topology && !features.topology {
        let detail = "can be set only if the ClusterTopology feature flag is enabled";
        errors.push(FieldError::forbidden("spec.topology", detail));
    }
    if !has_topology && old.is_some_and(|old| at(old, &["spec", "topology"]).is_some()) {
        errors.push(FieldError::forbidden("spec.topology", "cannot be removed from an existing Cluster"));
    }
    errors
}

pub(super) fn machine(object: &Value, old: Option<&Value>, features: Features) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let labels = strings(at(object, &["metadata", "labels"]));
    if !labels.contains_key(label::POOL_NAME) {
        bootstrap(&mut errors, object, &["spec"]);
    }
    immutable_cluster(&mut errors, object, old);
    version(&mut errors, object, &["spec"]);
    taints(&mut errors, object, &["spec"], features, labels.contains_key(label::CONTROL_PLANE));
    errors
}

pub(super) fn machine_set(object: &Value, old: Option<&Value>, features: Features) -> Vec<FieldError> {
    let mut errors = Vec::new();
    bootstrap(&mut errors, object, TEMPLATE);
    selector_matches(&mut errors, object, FieldError::invalid);
    skipped_checks(&mut errors, object);
    unhealthy_machines(&mut errors, object, old);
    immutable_cluster(&mut errors, object, old);
    same_cluster(&mut errors, object);
    version(&mut errors, object, TEMPLATE);
    taints(&mut errors, object, TEMPLATE, features, false);
    naming(&mut errors, object);
    template_metadata(&mut errors, object);
    errors
}

pub(super) fn machine_deployment(object: &Value, old: Option<&Value>, features: Features) -> Vec<FieldError> {
    let mut errors = Vec::new();
    name_is_label(&mut errors, object, "must be a valid label value: ");
    bootstrap(&mut errors, object, TEMPLATE);
    selector_matches(&mut errors, object, |field, _, detail| FieldError::forbidden(field, detail));
    skipped_checks(&mut errors, object);
    unhealthy_machines(&mut errors, object, old);
    immutable_cluster(&mut errors, object, old);
    same_cluster(&mut errors, object);
    strategy(&mut errors, object);
    amount(&mut errors, object, &["spec", "remediation", "maxInFlight"]);
    version(&mut errors, object, TEMPLATE);
    naming(&mut errors, object);
    taints(&mut errors, object, TEMPLATE, features, false);
    template_metadata(&mut errors, object);
    errors
}

pub(super) fn machine_pool(object: &Value, old: Option<&Value>, features: Features) -> Vec<FieldError> {
    let mut errors = Vec::new();
    bootstrap(&mut errors, object, TEMPLATE);
    immutable_cluster(&mut errors, object, old);
    same_cluster(&mut errors, object);
    version(&mut errors, object, TEMPLATE);
    let taints = at(object, &["spec", "template", "spec", "taints"]).and_then(Value::as_array);
    if taints.is_some_and(|taints| !taints.is_empty()) {
        let detail = "taints feature for MachinePools is not yet implemented";
        errors.push(FieldError::forbidden("spec.taints", detail));
        if !features.taints {
            errors.push(FieldError::forbidden("spec.taints", TAINTS_OFF));
        }
    }
    template_metadata(&mut errors, object);
    errors
}

pub(super) fn machine_health_check(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let written = at(object, &["spec", "selector"]).cloned().unwrap_or_else(|| json!({}));
    match selectors::parse(&written) {
        Err(problem) => errors.push(FieldError::invalid("spec.selector", &written, &problem)),
        Ok(selector) => {
            if selector.is_empty() {
                errors.push(FieldError::required("spec.selector", "selector must not be empty"));
            }
            let cluster = selector.labels.get(label::CLUSTER_NAME);
            if cluster.is_some_and(|cluster| cluster != text(object, &["spec", "clusterName"])) {
                let detail = "cannot specify a cluster selector other than the one specified by ClusterName";
                errors.push(FieldError::invalid("spec.selector", &written, detail));
            }
        }
    }
    immutable_cluster(&mut errors, object, old);
    let timeout = at(object, &["spec", "checks", "nodeStartupTimeoutSeconds"]);
    if let Some(timeout) = timeout.filter(|timeout| timeout.as_i64().is_some_and(|it| it != 0 && it < 30)) {
        let field = "spec.checks.nodeStartupTimeoutSeconds";
        errors.push(FieldError::invalid(field, timeout, "must be at least 30s"));
    }
    amount(&mut errors, object, &["spec", "remediation", "triggerIf", "unhealthyLessThanOrEqualTo"]);
    errors
}

pub(super) fn machine_drain_rule(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let behavior = text(object, &["spec", "drain", "behavior"]);
    if let Some(order) = at(object, &["spec", "drain", "order"])
        && matches!(behavior, "Skip" | "WaitCompleted")
    {
        let detail = "order must not be set if drain behavior is \"Skip\" or \"WaitCompleted\"";
        errors.push(FieldError::invalid("spec.drain.order", order, detail));
    }
    for (list, keys) in
        [("machines", ["selector", "clusterSelector"]), ("pods", ["selector", "namespaceSelector"])]
    {
        let entries = at(object, &["spec", list]).and_then(Value::as_array);
        for (place, entry) in entries.into_iter().flatten().enumerate() {
            for key in keys {
                let field = format!("spec.{list}[{place}].{key}");
                errors.extend(selectors::unreadable(field, at(entry, &[key])));
            }
        }
    }
    errors
}

pub(super) fn cluster_resource_set(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = "spec.clusterSelector";
    let written = at(object, &["spec", "clusterSelector"]).cloned().unwrap_or_else(|| json!({}));
    match selectors::parse(&written) {
        Err(problem) => errors.push(FieldError::invalid(field, &written, &problem)),
        Ok(selector) if selector.is_empty() => {
            errors.push(FieldError::invalid(field, &written, "selector must not be empty"));
        }
        Ok(_) => {}
    }
    let Some(old) = old else {
        return errors;
    };
    let (before, after) = (text(old, &["spec", "strategy"]), text(object, &["spec", "strategy"]));
    if !before.is_empty() && before != after {
        errors.push(FieldError::invalid("spec.strategy", &json!(after), IMMUTABLE));
    }
    let before = at(old, &["spec", "clusterSelector"]).cloned().unwrap_or_else(|| json!({}));
    if selectors::parse(&before) != selectors::parse(&written) {
        errors.push(FieldError::invalid(field, &written, IMMUTABLE));
    }
    errors
}

pub(super) fn cluster_resource_set_binding(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let before = old.map_or("", |old| text(old, &["spec", "clusterName"]));
    let after = text(object, &["spec", "clusterName"]);
    if before.is_empty() || before == after {
        return Vec::new();
    }
    vec![FieldError::invalid("spec.clusterName", &json!(after), IMMUTABLE)]
}

const TEMPLATE: &[&str] = &["spec", "template", "spec"];

fn join(path: &[&str], key: &str) -> String {
    format!("{}.{key}", path.join("."))
}

fn name_is_label(errors: &mut Vec<FieldError>, object: &Value, prefix: &str) {
    let name = text(object, &["metadata", "name"]);
    for problem in syntax::label_value(name) {
        errors.push(FieldError::invalid("metadata.name", &json!(name), &format!("{prefix}{problem}")));
    }
}

fn bootstrap(errors: &mut Vec<FieldError>, object: &Value, path: &[&str]) {
    let bootstrap = at(object, path).and_then(|spec| at(spec, &["bootstrap"]));
    let given = bootstrap
        .is_some_and(|given| is_reference(given, &["configRef"]) || at(given, &["dataSecretName"]).is_some());
    if !given {
        let field = join(path, "bootstrap");
        let detail = format!("expected either {field}.dataSecretName or {field}.configRef to be populated");
        errors.push(FieldError::required(field, &detail));
    }
}

fn immutable_cluster(errors: &mut Vec<FieldError>, object: &Value, old: Option<&Value>) {
    let path = ["spec", "clusterName"];
    if old.is_some_and(|old| text(old, &path) != text(object, &path)) {
        errors.push(FieldError::forbidden("spec.clusterName", IMMUTABLE));
    }
}

fn same_cluster(errors: &mut Vec<FieldError>, object: &Value) {
    let cluster = text(object, &["spec", "clusterName"]);
    if cluster != text(object, &["spec", "template", "spec", "clusterName"]) {
        let detail = "spec.clusterName and spec.template.spec.clusterName must be set to the same value";
        errors.push(FieldError::invalid("spec.clusterName", &json!(cluster), detail));
    }
}

fn version(errors: &mut Vec<FieldError>, object: &Value, path: &[&str]) {
    let version = at(object, path).map_or("", |spec| text(spec, &["version"]));
    if version.is_empty() {
        return;
    }
    let mut refuse =
        |detail| errors.push(FieldError::invalid(join(path, "version"), &json!(version), detail));
    if !version.starts_with('v') {
        refuse("must start with v");
    }
    if Version::parse(version.strip_prefix('v').unwrap_or(version)).is_err() {
        refuse("must be a valid semantic version");
    }
}

fn selector_matches(
    errors: &mut Vec<FieldError>,
    object: &Value,
    refuse: fn(&'static str, &Value, &str) -> FieldError,
) {
    let written = at(object, &["spec", "selector"]).cloned().unwrap_or_else(|| json!({}));
    let labels =
        at(object, &["spec", "template", "metadata", "labels"]).cloned().unwrap_or_else(|| json!({}));
    match selectors::parse(&written) {
        Err(problem) => errors.push(FieldError::invalid("spec.selector", &written, &problem)),
        Ok(selector) if !selector.matches(&strings(Some(&labels))) => {
            let detail = format!("must match spec.selector {:?}", selectors::print(&selector));
            errors.push(refuse("spec.template.metadata.labels", &labels, &detail));
        }
        Ok(_) => {}
    }
}

fn skipped_checks(errors: &mut Vec<FieldError>, object: &Value) {
    let skipped = text(object, &["metadata", "annotations", annotation::SKIP_PREFLIGHT]);
    if skipped.is_empty() {
        return;
    }
    let mut known: Vec<&str> = Check::ALL.iter().map(|check| check.as_str()).chain(["All"]).collect();
    known.sort_unstable();
    let unknown: Vec<&str> = skipped.split(',').map(str::trim).filter(|name| !known.contains(name)).collect();
    if !unknown.is_empty() {
        let field = format!("metadata.annotations.{}", annotation::SKIP_PREFLIGHT);
        let detail = format!("skipped preflight check(s) must be among: [{}]", known.join(" "));
        errors.push(FieldError::invalid(field, &json!(unknown), &detail));
    }
}

/// What is wrong with the value of an annotation.
type Problem = fn(&str) -> Option<String>;

/// One that is there already stays: somebody may have to write something else.
fn unhealthy_machines(errors: &mut Vec<FieldError>, object: &Value, old: Option<&Value>) {
    let problems: [(&str, Problem); 2] = [
        (PRESERVE_FAILED, |text| Preserve::parse(text).err().map(|problem| problem.to_string())),
        (REMEDIATION_STEPS, |text| Ladder::parse(text).err().map(|problem| problem.to_string())),
    ];
    for (annotation, problem) in problems {
        let path = ["metadata", "annotations", annotation];
        let written = at(object, &path);
        let written = written.filter(|written| old.and_then(|old| at(old, &path)) != Some(*written));
        if let Some(written) = written
            && let Some(problem) = problem(written.as_str().unwrap_or_default())
        {
            let field = format!("metadata.annotations[{annotation}]");
            errors.push(FieldError::invalid(field, written, &problem));
        }
    }
}

fn naming(errors: &mut Vec<FieldError>, object: &Value) {
    let template = text(object, &["spec", "machineNaming", "template"]);
    if template.is_empty() {
        return;
    }
    let mut refuse = |detail: &str| {
        errors.push(FieldError::invalid("spec.machineNaming.template", &json!(template), detail));
    };
    if !template.contains("{{ .random }}") {
        refuse("invalid template, {{ .random }} is missing");
    }
    match name::of_machine(Some(template), "cluster", "machineset", "bcdfg", "bcdfg") {
        // That it is missing was just told.
        Err(BadTemplate::NotRandom) => {}
        Err(problem) => refuse(&format!("invalid template: {problem}")),
        Ok(name) => {
            for problem in syntax::subdomain(&name) {
                refuse(&format!(
                    "invalid template, generated names would not be valid Kubernetes object names: {problem}"
                ));
            }
        }
    }
}

fn strategy(errors: &mut Vec<FieldError>, object: &Value) {
    const ROLLING: [&str; 4] = ["spec", "rollout", "strategy", "rollingUpdate"];
    let path = |key| [ROLLING[0], ROLLING[1], ROLLING[2], ROLLING[3], key];
    let (unavailable, surge) = (path("maxUnavailable"), path("maxSurge"));
    amount(errors, object, &unavailable);
    amount(errors, object, &surge);
    let is_zero = |path: &[&str]| at(object, path).and_then(Value::as_i64) == Some(0);
    if is_zero(&unavailable) && is_zero(&surge) {
        let detail = "maxUnavailable and maxSurge cannot both be 0";
        errors.push(FieldError::invalid(ROLLING.join("."), &json!("0"), detail));
    }
}

/// An integer or a percentage.
fn amount(errors: &mut Vec<FieldError>, object: &Value, path: &[&str]) {
    let Some(Value::String(written)) = at(object, path) else {
        return;
    };
    if Amount::parse(written).is_ok() {
        return;
    }
    let problem = match written.strip_suffix('%') {
        None => "invalid type: string is not a percentage".to_owned(),
        Some(digits) => {
            format!("invalid value {written:?}: strconv.Atoi: parsing {digits:?}: invalid syntax")
        }
    };
    let detail = format!("must be either an int or a percentage: invalid value for IntOrString: {problem}");
    errors.push(FieldError::invalid(path.join("."), &json!(written), &detail));
}

const TAINTS_OFF: &str =
    "taints are not allowed to be set when the feature gate MachineTaintPropagation is disabled";

fn taints(
    errors: &mut Vec<FieldError>,
    object: &Value,
    path: &[&str],
    features: Features,
    control_plane: bool,
) {
    let taints = at(object, path).and_then(|spec| at(spec, &["taints"])).and_then(Value::as_array);
    let Some(taints) = taints.filter(|taints| !taints.is_empty()) else {
        return;
    };
    let list = join(path, "taints");
    if !features.taints {
        errors.push(FieldError::forbidden(list.clone(), TAINTS_OFF));
    }
    for (place, wanted) in taints.iter().enumerate() {
        let key = text(wanted, &["key"]);
        let mut refuse = |detail: &str| {
            errors.push(FieldError::invalid(format!("{list}[{place}].key"), &json!(key), detail));
        };
        match key {
            taint::UNINITIALIZED | taint::OUTDATED_REVISION => refuse("taint key is not allowed"),
            "node.kubernetes.io/out-of-service" => {}
            key if key.starts_with("node.kubernetes.io/") => refuse(
                "taint key must not have the prefix node.kubernetes.io/, except for node.kubernetes.io/out-of-service",
            ),
            key if key.starts_with("node.cloudprovider.kubernetes.io/") => {
                refuse("taint key must not have the prefix node.cloudprovider.kubernetes.io/");
            }
            "node-role.kubernetes.io/master" => {
                refuse("taint is deprecated since 1.24 and should not be used anymore");
            }
            _ => {}
        }
        for problem in syntax::label_key(key) {
            refuse(&problem);
        }
        if features.taints && !control_plane && key == "node-role.kubernetes.io/control-plane" {
            refuse("taint is not allowed for worker Machines");
        }
    }
}

fn template_metadata(errors: &mut Vec<FieldError>, object: &Value) {
    let field = "spec.template.metadata.labels";
    for (key, value) in strings(at(object, &["spec", "template", "metadata", "labels"])) {
        for problem in syntax::label_key(&key) {
            errors.push(FieldError::invalid(field, &json!(key), &problem));
        }
        for problem in syntax::label_value(&value) {
            errors.push(FieldError::invalid(field, &json!(value), &problem));
        }
    }
    let field = "spec.template.metadata.annotations";
    let annotations = strings(at(object, &["spec", "template", "metadata", "annotations"]));
    let mut size = 0;
    for (key, value) in &annotations {
        size += key.len() + value.len();
        // Annotations may be written in upper case.
        for problem in syntax::label_key(&key.to_lowercase()) {
            errors.push(FieldError::invalid(field, &json!(key), &problem));
        }
    }
    const LARGEST: usize = 256 * 1024;
    if size > LARGEST {
        errors.push(FieldError::too_long(field, LARGEST));
    }
}
