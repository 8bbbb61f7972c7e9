//! What each endpoint of a built-in kind may write: objects without their status, or the status alone.

mod service;

use remuda_base::quantity;
use serde_json::{Map, Value, json};

use crate::{
    columns,
    json::{at, ensure, is_unset, list_at, map_at, object, text_at},
    meta,
};

/// Prepares a new object: the status starts from nothing, and a few kinds get what only the server knows.
///
/// Expects `metadata.uid` and the name to be set already.
pub fn prepare_create(group: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("", "Namespace") => namespace(object),
        ("batch", "Job") => job(object),
        _ => {}
    }
    if let Some(status) = initial_status(group, kind, object)
        && let Some(top) = object.as_object_mut()
    {
        top.insert("status".to_owned(), status);
    }
}

/// The status a new object starts with; `None` for kinds that have none or bring their own.
fn initial_status(group: &str, kind: &str, object: &Value) -> Option<Value> {
    Some(match (group, kind) {
        ("", "Pod") => json!({"phase": "Pending", "qosClass": qos_class(object)}),
        ("", "Namespace") => json!({"phase": "Active"}),
        ("", "PersistentVolume" | "PersistentVolumeClaim") => json!({"phase": "Pending"}),
        ("", "Service") | ("networking.k8s.io", "Ingress") => json!({"loadBalancer": {}}),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => json!({"replicas": 0}),
        ("apps", "StatefulSet") => json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "DaemonSet") => json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
        }),
        ("policy", "PodDisruptionBudget") => json!({
            "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
        }),
        // Nothing has been measured.
        ("autoscaling", "HorizontalPodAutoscaler") => crate::autoscaling::first_status(object),
        ("storage.k8s.io", "VolumeAttachment") => json!({"attached": false}),
        _ if has_status(group, kind) && !keeps_status_on_create(group, kind) => json!({}),
        _ => return None,
    })
}

/// True for built-in kinds with a status that has an endpoint of its own.
pub fn has_status(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        (
            "",
            "Pod"
                | "Namespace"
                | "Node"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "Service"
                | "ReplicationController"
                | "ResourceQuota"
        ) | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
            | ("batch", "Job" | "CronJob")
            | ("policy", "PodDisruptionBudget")
            | ("networking.k8s.io", "Ingress" | "ServiceCIDR")
            | ("storage.k8s.io", "VolumeAttachment")
            | ("certificates.k8s.io", "CertificateSigningRequest")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("apiregistration.k8s.io", "APIService")
            | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
            | ("autoscaling", "HorizontalPodAutoscaler")
    )
}

/// Kubelets register their node together with its status.
fn keeps_status_on_create(group: &str, kind: &str) -> bool {
    group.is_empty() && kind == "Node"
}

fn namespace(namespace: &mut Value) {
    // The label defaulting could not set while the name was still to be generated.
    let name = meta::name(namespace).to_owned();
    let labels = namespace
        .as_object_mut()
        .and_then(|top| object(top, "metadata"))
        .and_then(|metadata| ensure(metadata, "labels"));
    if let Some(labels) = labels.filter(|_| !name.is_empty()) {
        labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
    }
    let Some(spec) = namespace.as_object_mut().and_then(|top| ensure(top, "spec")) else { return };
    let listed = spec.get("finalizers").and_then(Value::as_array).is_some_and(|finalizers| {
        finalizers.iter().any(|finalizer| finalizer.as_str() == Some("kubernetes"))
    });
    if listed {
        return;
    }
    match spec.get_mut("finalizers").and_then(Value::as_array_mut) {
        Some(finalizers) => finalizers.push(json!("kubernetes")),
        None => {
            spec.insert("finalizers".to_owned(), json!(["kubernetes"]));
        }
    }
}

/// A job finds its pods by its own uid, unless the user takes care of the selector.
fn job(job: &mut Value) {
    if at(job, &["spec", "manualSelector"]) == &Value::Bool(true) || meta::uid(job).is_empty() {
        return;
    }
    let (uid, name) = (meta::uid(job).to_owned(), meta::name(job).to_owned());
    // A job without labels has those of its pods. Defaulting gave it some before they were complete; it
    // would give the rest at the next write, in the name of whoever writes.
    let own = at(job, &["metadata", "labels"]);
    let shared = is_unset(own) || own == at(job, &["spec", "template", "metadata", "labels"]);
    let Some(spec) = job.as_object_mut().and_then(|top| ensure(top, "spec")) else { return };
    let labels = object(spec, "template")
        .and_then(|template| ensure(template, "metadata"))
        .and_then(|metadata| ensure(metadata, "labels"));
    if let Some(labels) = labels {
        for key in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            labels.insert(key.to_owned(), Value::from(uid.as_str()));
        }
        for key in ["job-name", "batch.kubernetes.io/job-name"] {
            labels.insert(key.to_owned(), Value::from(name.as_str()));
        }
    }
    if let Some(labels) = ensure(spec, "selector").and_then(|selector| ensure(selector, "matchLabels")) {
        labels.insert("batch.kubernetes.io/controller-uid".to_owned(), Value::from(uid));
    }
    let labels = at(job, &["spec", "template", "metadata", "labels"]).clone();
    if let (true, Some(metadata)) = (shared, job.get_mut("metadata").and_then(Value::as_object_mut)) {
        metadata.insert("labels".to_owned(), labels);
    }
}

/// Prepares an update through the main endpoint: the status stays as it is stored.
pub fn prepare_update(group: &str, kind: &str, new: &mut Value, old: &Value) {
    if has_status(group, kind) {
        keep(new, old, "status");
    }
    match (group, kind) {
        // Finalizers of a namespace are removed through its finalize endpoint only.
        ("", "Namespace") => {
            let finalizers = at(old, &["spec", "finalizers"]).clone();
            if let Some(spec) = new.as_object_mut().and_then(|top| ensure(top, "spec")) {
                put(spec, "finalizers", finalizers);
            }
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => keep(new, old, "spec"),
        ("", "Service") => service::prepare_update(new, old),
        _ => {}
    }
}

/// Prepares an update through `/status`: everything but the status and the loose parts of the metadata
/// (labels, annotations, finalizers, owners, managed fields) stays as it is stored.
pub fn prepare_status_update(_group: &str, kind: &str, new: &mut Value, old: &Value) {
    let Some(top) = new.as_object_mut() else { return };
    let status = top.remove("status");
    let metadata = top.remove("metadata");
    restore(top, old);
    if let Some(status) = status {
        top.insert("status".to_owned(), status);
    }
    let mut metadata = metadata.unwrap_or_else(|| json!({}));
    if let (Some(metadata), Some(stored)) = (metadata.as_object_mut(), map_at(old, &["metadata"])) {
        const LOOSE: [&str; 6] =
            ["labels", "annotations", "finalizers", "ownerReferences", "managedFields", "resourceVersion"];
        let kept = loose_exception(kind);
        let loose = |field: &str| LOOSE.contains(&field) && Some(field) != kept;
        metadata.retain(|field, _| loose(field) || field == "name" || field == "namespace" || field == "uid");
        for (field, value) in stored {
            let given =
                matches!(field.as_str(), "name" | "namespace" | "uid") && metadata.contains_key(field);
            if !given && !loose(field) {
                metadata.insert(field.clone(), value.clone());
            }
        }
    }
    top.insert("metadata".to_owned(), metadata);
}

/// What of the metadata a status update of this kind leaves alone, of what it may change elsewhere.
pub fn loose_exception(kind: &str) -> Option<&'static str> {
    match kind {
        // Who a pod belongs to is no business of the kubelet.
        "Pod" => Some("ownerReferences"),
        "Deployment" => Some("labels"),
        _ => None,
    }
}

/// Prepares an update of a custom object through `/status`: only the status and managed fields count.
pub fn prepare_custom_status_update(new: &mut Value, old: &Value) {
    let Some(top) = new.as_object_mut() else { return };
    let status = top.remove("status");
    let mut metadata = top.remove("metadata");
    restore(top, old);
    if let Some(status) = status {
        top.insert("status".to_owned(), status);
    }
    let mut stored = at(old, &["metadata"]).clone();
    if let (Some(stored), Some(given)) =
        (stored.as_object_mut(), metadata.as_mut().and_then(Value::as_object_mut))
    {
        for field in ["managedFields", "resourceVersion", "name", "namespace", "uid"] {
            if let Some(value) = given.remove(field) {
                stored.insert(field.to_owned(), value);
            }
        }
    }
    top.insert("metadata".to_owned(), stored);
}

/// Prepares an update of a certificate request through `/approval`: only the verdict counts.
pub fn prepare_approval_update(new: &mut Value, old: &Value) {
    let is_verdict = |condition: &Value| matches!(text_at(condition, &["type"]), "Approved" | "Denied");
    let stored = list_at(old, &["status", "conditions"]).iter().filter(|condition| !is_verdict(condition));
    let given = list_at(new, &["status", "conditions"]).iter().filter(|condition| is_verdict(condition));
    let conditions: Vec<Value> = stored.chain(given).cloned().collect();
    let mut status = match at(old, &["status"]) {
        Value::Object(status) => status.clone(),
        _ => Map::new(),
    };
    put(&mut status, "conditions", if conditions.is_empty() { Value::Null } else { Value::from(conditions) });
    let Some(top) = new.as_object_mut() else { return };
    top.insert("status".to_owned(), Value::Object(status));
    put(top, "spec", at(old, &["spec"]).clone());
}

/// Drops the status of a new custom object with a status endpoint.
pub fn drop_status(object: &mut Value) {
    if let Some(top) = object.as_object_mut() {
        top.remove("status");
    }
}

/// Puts back the stored status of a custom object with a status endpoint.
pub fn keep_status(new: &mut Value, old: &Value) {
    keep(new, old, "status");
}

/// True when anything outside of metadata and status differs, which is what `metadata.generation` counts.
pub fn spec_changed(new: &Value, old: &Value) -> bool {
    changed(new, old, &["metadata", "status", "apiVersion", "kind"])
}

/// True when anything outside of metadata differs: custom objects without a status endpoint.
pub fn content_changed(new: &Value, old: &Value) -> bool {
    changed(new, old, &["metadata", "apiVersion", "kind"])
}

fn changed(new: &Value, old: &Value, ignored: &[&str]) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new != old };
    let counts = |field: &str| !ignored.contains(&field);
    new.iter().any(|(field, value)| counts(field) && old.get(field) != Some(value))
        || old.keys().any(|field| counts(field) && !new.contains_key(field))
}

fn put(parent: &mut Map<String, Value>, field: &str, value: Value) {
    if value.is_null() {
        parent.remove(field);
    } else {
        parent.insert(field.to_owned(), value);
    }
}

fn keep(new: &mut Value, old: &Value, field: &str) {
    let Some(top) = new.as_object_mut() else { return };
    let stored = at(old, &[field]);
    if top.get(field) != Some(stored) {
        put(top, field, stored.clone());
    }
}

/// Replaces all that is left by what is stored, without metadata and status.
fn restore(top: &mut Map<String, Value>, old: &Value) {
    let Some(stored) = old.as_object() else { return };
    let kept = |field: &str| matches!(field, "apiVersion" | "kind");
    top.retain(|field, _| kept(field));
    for (field, value) in stored {
        let given = kept(field) && top.contains_key(field);
        if !given && !matches!(field.as_str(), "metadata" | "status") {
            top.insert(field.clone(), value.clone());
        }
    }
}

/// `Guaranteed` when all containers have limits equal to their requests, `BestEffort` when none asks for
/// anything, else `Burstable`.
pub fn qos_class(pod: &Value) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let level = at(pod, &["spec", "resources"]);
    let containers: Vec<&Value> = if is_unset(level) {
        let lists = [list_at(pod, &["spec", "containers"]), list_at(pod, &["spec", "initContainers"])];
        lists.into_iter().flatten().map(|container| at(container, &["resources"])).collect()
    } else {
        vec![level]
    };
    let amount = |resources: &Value, list: &str, name: &str| {
        columns::scalar(at(resources, &[list, name]))
            .and_then(|text| quantity::nanos(&text))
            .filter(|amount| *amount > 0)
    };
    let mut guaranteed = !containers.is_empty();
    let mut asks = false;
    let (mut requests, mut limits) = ([0_i128; 2], [0_i128; 2]);
    for resources in containers {
        for (index, name) in COUNTED.into_iter().enumerate() {
            let (request, limit) = (amount(resources, "requests", name), amount(resources, "limits", name));
            asks |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some();
            requests[index] = requests[index].saturating_add(request.unwrap_or_default());
            limits[index] = limits[index].saturating_add(limit.unwrap_or_default());
        }
    }
    match (asks, guaranteed && requests == limits) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_pod_is_pending() {
        let mut pod = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}}]},
            "status": {"phase": "Running"}});
        prepare_create("", "Pod", &mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "Guaranteed"}));
        assert_eq!(qos_class(&json!({"spec": {"containers": [{}]}})), "BestEffort");
        assert_eq!(
            qos_class(&json!({"spec": {"containers": [{"resources": {"requests": {"cpu": 1}}}]}})),
            "Burstable"
        );
    }

    #[test]
    fn the_main_endpoint_keeps_the_status() {
        let old = json!({"spec": {"replicas": 1}, "status": {"replicas": 1}});
        let mut new = json!({"spec": {"replicas": 2}, "status": {"replicas": 9}});
        prepare_update("apps", "Deployment", &mut new, &old);
        assert_eq!(new, json!({"spec": {"replicas": 2}, "status": {"replicas": 1}}));
        assert!(spec_changed(&new, &old));
        let mut secret = json!({"status": 1});
        prepare_update("", "Secret", &mut secret, &json!({}));
        assert_eq!(secret, json!({"status": 1}));
    }

    #[test]
    fn the_status_endpoint_keeps_the_rest() {
        let old = json!({"kind": "Deployment", "metadata": {"name": "a", "generation": 3, "labels": {"a": "b"}}, "spec": {"replicas": 1}});
        let mut new = json!({"metadata": {"name": "a", "generation": 9, "labels": {"a": "c"}}, "spec": {"replicas": 2}, "status": {"replicas": 1}});
        let mut custom = new.clone();
        let mut deployment = new.clone();
        prepare_status_update("apps", "ReplicaSet", &mut new, &old);
        assert_eq!(
            new,
            json!({"kind": "Deployment", "metadata": {"name": "a", "generation": 3, "labels": {"a": "c"}}, "spec": {"replicas": 1}, "status": {"replicas": 1}})
        );
        prepare_status_update("apps", "Deployment", &mut deployment, &old);
        assert_eq!(deployment["metadata"], old["metadata"]);
        assert!(!spec_changed(&new, &old));
        prepare_custom_status_update(&mut custom, &old);
        assert_eq!(custom["metadata"], old["metadata"]);
        assert_eq!(custom["status"], json!({"replicas": 1}));
    }

    #[test]
    fn jobs_find_their_pods_by_uid() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {}}});
        prepare_create("batch", "Job", &mut job);
        assert_eq!(
            job["spec"]["selector"],
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
        );
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], json!("j"));
    }

    #[test]
    fn namespaces_are_held_by_their_finalizer() {
        let mut namespace = json!({"metadata": {"name": "n"}});
        prepare_create("", "Namespace", &mut namespace);
        assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
        let mut update = json!({"metadata": {"name": "n"}});
        prepare_update("", "Namespace", &mut update, &namespace);
        assert_eq!(update["spec"], namespace["spec"]);
        assert_eq!(update["status"], namespace["status"]);
    }

    #[test]
    fn a_service_update_without_address_keeps_it() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "1.1.1.1", "clusterIPs": ["1.1.1.1"], "ipFamilies": ["IPv4"],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}]}});
        let mut new = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
        prepare_update("", "Service", &mut new, &old);
        assert_eq!(new, old);
    }

    #[test]
    fn approval_changes_the_verdict_only() {
        let old =
            json!({"spec": {"a": 1}, "status": {"certificate": "x", "conditions": [{"type": "Failed"}]}});
        let mut new = json!({"spec": {"a": 2}, "status": {"certificate": "y", "conditions": [{"type": "Approved"}, {"type": "Odd"}]}});
        prepare_approval_update(&mut new, &old);
        assert_eq!(
            new,
            json!({"spec": {"a": 1}, "status": {"certificate": "x", "conditions": [{"type": "Failed"}, {"type": "Approved"}]}})
        );
    }
}
