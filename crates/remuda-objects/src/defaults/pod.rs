//! Defaults of pods and of the templates that make them.

use serde_json::Value;

use crate::json::{Object, ensure, is_unset, object, objects, set, set_number, set_text};

const FILE_MODE: i64 = 0o644;
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// A Pod has a few defaults its template does not: they depend on it really running.
pub(super) fn pod(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    pod_spec(spec);
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), Value::from(1));
    }
    for list in CONTAINERS {
        for container in objects(spec, list) {
            requests_from_limits(container);
        }
    }
    set(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in CONTAINERS {
            for container in objects(spec, list) {
                for port in objects(container, "ports") {
                    let number = port.get("containerPort").and_then(Value::as_i64).unwrap_or_default();
                    set_number(port, "hostPort", number);
                }
            }
        }
    }
    if let Some(status) = object(top, "status") {
        addresses(status);
    }
}

/// Additions of the admission plugins ServiceAccount, Priority and DefaultTolerationSeconds.
pub(super) fn admit(spec: &mut Object) {
    set_text(spec, "serviceAccountName", "default");
    let account = spec.get("serviceAccountName").cloned().unwrap_or_default();
    spec.insert("serviceAccount".to_owned(), account);
    if spec.get("priorityClassName").is_none_or(is_unset) {
        set(spec, "priority", 0);
        set(spec, "preemptionPolicy", "PreemptLowerPriority");
    }
    tolerate(spec);
}

/// Five minutes of patience with a node that does not answer, unless the pod says otherwise.
pub(super) fn tolerate(spec: &mut Object) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerations = spec.entry("tolerations").or_insert_with(|| Value::from(Vec::<Value>::new()));
        if tolerations.is_null() {
            *tolerations = Value::from(Vec::<Value>::new());
        }
        let Some(tolerations) = tolerations.as_array_mut() else { return };
        let text = |toleration: &Value, field: &str| {
            toleration.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let covers = |toleration: &Value| {
            let (own, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (own == key || own.is_empty()) && matches!(effect.as_str(), "NoExecute" | "")
        };
        if !tolerations.iter().any(covers) {
            tolerations.push(serde_json::json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
}

/// Keeps `podIP` and `podIPs` in step; the single one wins.
fn addresses(status: &mut Object) {
    let single = status.get("podIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = status.get("podIPs").and_then(|list| list.get(0)).and_then(|entry| entry.get("ip"));
    let first = first.and_then(Value::as_str).unwrap_or_default().to_owned();
    if single.is_empty() && !first.is_empty() {
        status.insert("podIP".to_owned(), Value::from(first));
    } else if !single.is_empty() && single != first {
        status.insert("podIPs".to_owned(), serde_json::json!([{ "ip": single }]));
    }
}

fn requests_from_limits(container: &mut Object) {
    let Some(resources) = object(container, "resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    if let Some(requests) = ensure(resources, "requests") {
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

/// A `PodTemplate` object: the template is its `template` field.
pub(super) fn template(top: &mut Object) {
    if let Some(template) = object(top, "template") {
        template_body(template);
    }
}

/// A pod template inside of a workload.
pub(super) fn template_body(template: &mut Object) {
    if let Some(spec) = ensure(template, "spec") {
        pod_spec(spec);
    }
}

fn pod_spec(spec: &mut Object) {
    let account = spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or_default().to_owned();
    if account.is_empty() {
        if let Some(deprecated) = spec.get("serviceAccount").filter(|name| !is_unset(name)).cloned() {
            spec.insert("serviceAccountName".to_owned(), deprecated);
        }
    } else {
        spec.insert("serviceAccount".to_owned(), Value::from(account));
    }
    set_text(spec, "dnsPolicy", "ClusterFirst");
    set_text(spec, "restartPolicy", "Always");
    ensure(spec, "securityContext");
    set(spec, "terminationGracePeriodSeconds", 30);
    set_text(spec, "schedulerName", "default-scheduler");
    for volume in objects(spec, "volumes") {
        // A volume is its name and one source; without a source it is an empty directory.
        if volume.iter().all(|(field, value)| field == "name" || value.is_null()) {
            ensure(volume, "emptyDir");
        }
        volume_source(volume);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for entry in objects(spec, list) {
            container(entry);
        }
    }
}

fn container(container: &mut Object) {
    if container.get("imagePullPolicy").is_none_or(is_unset) {
        let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
        let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
        container.insert("imagePullPolicy".to_owned(), Value::from(policy));
    }
    set_text(container, "terminationMessagePath", "/dev/termination-log");
    set_text(container, "terminationMessagePolicy", "File");
    ensure(container, "resources");
    for port in objects(container, "ports") {
        set_text(port, "protocol", "TCP");
    }
    for variable in objects(container, "env") {
        if let Some(source) = object(variable, "valueFrom") {
            field_ref(source);
            if let Some(file) = object(source, "fileKeyRef") {
                set(file, "optional", false);
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = object(container, probe) {
            set_number(probe, "timeoutSeconds", 1);
            set_number(probe, "periodSeconds", 10);
            set_number(probe, "successThreshold", 1);
            set_number(probe, "failureThreshold", 3);
            http_get(probe);
            if let Some(grpc) = object(probe, "grpc") {
                set(grpc, "service", "");
            }
        }
    }
    if let Some(lifecycle) = object(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(handler) = object(lifecycle, hook) {
                http_get(handler);
            }
        }
    }
}

fn http_get(handler: &mut Object) {
    if let Some(action) = object(handler, "httpGet") {
        set_text(action, "path", "/");
        set_text(action, "scheme", "HTTP");
    }
}

fn field_ref(parent: &mut Object) {
    if let Some(reference) = object(parent, "fieldRef") {
        set_text(reference, "apiVersion", "v1");
    }
}

/// Text defaults of the older volume plugins: source, field, value.
const SOURCE_DEFAULTS: [(&str, &str, &str); 9] = [
    ("rbd", "pool", "rbd"),
    ("rbd", "user", "admin"),
    ("rbd", "keyring", "/etc/ceph/keyring"),
    ("iscsi", "iscsiInterface", "default"),
    ("azureDisk", "cachingMode", "ReadWrite"),
    ("azureDisk", "fsType", "ext4"),
    ("azureDisk", "kind", "Shared"),
    ("scaleIO", "storageMode", "ThinProvisioned"),
    ("scaleIO", "fsType", "xfs"),
];

/// The source fields of a volume; persistent volumes carry them in their spec.
pub(super) fn volume_source(volume: &mut Object) {
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = object(volume, source) {
            set(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(path) = object(volume, "hostPath") {
        set(path, "type", "");
    }
    if let Some(downward) = object(volume, "downwardAPI") {
        for item in objects(downward, "items") {
            field_ref(item);
        }
    }
    if let Some(projected) = object(volume, "projected") {
        for source in objects(projected, "sources") {
            if let Some(token) = object(source, "serviceAccountToken") {
                set(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = object(source, "downwardAPI") {
                for item in objects(downward, "items") {
                    field_ref(item);
                }
            }
        }
    }
    if let Some(image) = object(volume, "image")
        && image.get("pullPolicy").is_none_or(is_unset)
    {
        let reference = image.get("reference").and_then(Value::as_str).unwrap_or_default();
        let policy = if is_latest(reference) { "Always" } else { "IfNotPresent" };
        image.insert("pullPolicy".to_owned(), Value::from(policy));
    }
    if let Some(claim) = object(volume, "ephemeral")
        .and_then(|ephemeral| object(ephemeral, "volumeClaimTemplate"))
        .and_then(|template| object(template, "spec"))
    {
        set(claim, "volumeMode", "Filesystem");
    }
    for (source, field, value) in SOURCE_DEFAULTS {
        if let Some(source) = object(volume, source) {
            set_text(source, field, value);
        }
    }
    if let Some(disk) = object(volume, "azureDisk") {
        set(disk, "readOnly", false);
    }
}

/// True for images that mean "whatever is newest": tag `latest`, or neither tag nor digest.
fn is_latest(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, _)) => (name, true),
        None => (image, false),
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.rsplit_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !digest && !last.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_tag_decides_about_pulling() {
        for latest in ["nginx", "nginx:latest", "registry:5000/a/b", "a@x:latest".split('@').next().unwrap()]
        {
            assert!(is_latest(latest), "{latest}");
        }
        for pinned in ["nginx:1", "registry:5000/a/b:2", "nginx@sha256:abc", ""] {
            assert!(!is_latest(pinned), "{pinned}");
        }
    }

    #[test]
    fn admission_adds_account_priority_and_patience() {
        let mut spec =
            json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]});
        admit(spec.as_object_mut().unwrap());
        let expected = json!({"serviceAccountName": "default", "serviceAccount": "default", "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]});
        assert_eq!(spec, expected);
        admit(spec.as_object_mut().unwrap());
        assert_eq!(spec, expected);
    }

    #[test]
    fn pods_get_what_templates_do_not() {
        let mut object = json!({"spec": {"serviceAccountName": "x", "volumes": [{"name": "v"}, {"name": "c", "configMap": {"name": "m"}},
            {"name": "h", "hostPath": {"path": "/"}}, {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
            "containers": [{"name": "a", "image": "b:1", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": 80}}, "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}]}});
        pod(object.as_object_mut().unwrap());
        let spec = &object["spec"];
        assert_eq!(spec["enableServiceLinks"], json!(true));
        assert_eq!(spec["serviceAccount"], json!("x"));
        assert_eq!(
            spec["volumes"],
            json!([{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "m", "defaultMode": 420}},
                {"name": "h", "hostPath": {"path": "/", "type": ""}},
                {"name": "p", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}])
        );
        let container = &spec["containers"][0];
        assert_eq!(container["imagePullPolicy"], json!("IfNotPresent"));
        assert_eq!(container["resources"]["requests"], json!({"cpu": "1"}));
        assert_eq!(container["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
        assert_eq!(
            container["livenessProbe"],
            json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3})
        );
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], json!("v1"));
    }
}
