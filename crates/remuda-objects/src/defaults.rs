//! Default values of built-in kinds, as Kubernetes fills them in when an object is written.

mod pod;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::json::{Object, ensure, is_unset, object, objects, set, set_number, set_text};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Fills in the defaults of a built-in kind; other kinds are left alone.
///
/// Applying it again changes nothing. Cluster IPs are not chosen here: see [`service_needs_cluster_ip`].
pub fn apply(group: &str, kind: &str, object: &mut Value) {
    if (group, kind) == ("autoscaling", "HorizontalPodAutoscaler") {
        return crate::autoscaling::apply_defaults(object);
    }
    let Some(top) = object.as_object_mut() else { return };
    match (group, kind) {
        ("", "Pod") => pod::pod(top),
        ("", "PodTemplate") => pod::template(top),
        ("", "ReplicationController") => replication_controller(top),
        ("", "Secret") => secret(top),
        ("", "Service") => service(top),
        ("", "Namespace") => namespace(top),
        ("", "Node") => node(top),
        ("", "Endpoints") => endpoints(top),
        ("", "PersistentVolume") => persistent_volume(top),
        ("", "PersistentVolumeClaim") => claim(top),
        ("", "LimitRange") => limit_range(top),
        ("apps", "Deployment") => deployment(top),
        ("apps", "StatefulSet") => stateful_set(top),
        ("apps", "DaemonSet") => daemon_set(top),
        ("apps", "ReplicaSet") => replica_set(top),
        ("batch", "Job") => job(top),
        ("batch", "CronJob") => cron_job(top),
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => binding(top),
        ("storage.k8s.io", "StorageClass") => storage_class(top),
        ("storage.k8s.io", "CSIDriver") => csi_driver(top),
        ("scheduling.k8s.io", "PriorityClass") => set_text(top, "preemptionPolicy", "PreemptLowerPriority"),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(top),
        ("networking.k8s.io", "IngressClass") => ingress_class(top),
        ("discovery.k8s.io", "EndpointSlice") => endpoint_slice(top),
        ("apiregistration.k8s.io", "APIService") => api_service(top),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(top),
        ("admissionregistration.k8s.io", _) => admission(kind, top),
        _ => {}
    }
}

/// True when a Service waits for an address: everything but `ExternalName` without one yet.
pub fn service_needs_cluster_ip(service: &Value) -> bool {
    let spec = &service["spec"];
    spec.is_object()
        && spec["type"].as_str() != Some("ExternalName")
        && spec["clusterIP"].as_str().unwrap_or_default().is_empty()
        && spec["clusterIPs"].as_array().is_none_or(Vec::is_empty)
}

/// Writes a chosen address, or completes the one already given, with the family fields that follow from it.
pub fn service_set_cluster_ip(service: &mut Value, address: &str) {
    let Some(spec) = service.as_object_mut().and_then(|top| object(top, "spec")) else { return };
    let first =
        spec.get("clusterIPs").and_then(|list| list.get(0)).and_then(Value::as_str).map(str::to_owned);
    match first {
        Some(first) => set_text(spec, "clusterIP", &first),
        None => set_text(spec, "clusterIP", address),
    }
    let address = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    if spec.get("clusterIPs").is_none_or(is_unset) {
        spec.insert("clusterIPs".to_owned(), json!([address]));
    }
    if spec.get("ipFamilies").is_none_or(is_unset) {
        let family = if address.contains(':') { "IPv6" } else { "IPv4" };
        spec.insert("ipFamilies".to_owned(), json!([family]));
    }
    set_text(spec, "ipFamilyPolicy", "SingleStack");
}

/// What admission adds to a new Pod on top of its defaults: the service account, the lowest priority and
/// five minutes of patience with a node that does not answer.
///
/// A priority class has to be looked up, so pods that name one are left to the caller.
pub fn admit_pod(pod: &mut Value) {
    if let Some(spec) = pod.as_object_mut().and_then(|top| ensure(top, "spec")) {
        pod::admit(spec);
    }
}

/// What admission does to a changed pod: whoever sets the tolerations need not know those it added.
pub fn readmit_pod(pod: &mut Value) {
    if let Some(spec) = pod.as_object_mut().and_then(|top| object(top, "spec")) {
        pod::tolerate(spec);
    }
}

fn secret(top: &mut Object) {
    set_text(top, "type", "Opaque");
    // Write-only convenience: the stored object has only `data`.
    let Some(Value::Object(plain)) = top.remove("stringData") else { return };
    if plain.is_empty() {
        return;
    }
    if let Some(data) = ensure(top, "data") {
        for (key, value) in plain {
            data.insert(key, Value::from(STANDARD.encode(value.as_str().unwrap_or_default())));
        }
    }
}

fn service(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    set_text(spec, "sessionAffinity", "None");
    match spec.get("sessionAffinity").and_then(Value::as_str) {
        Some("None") => {
            spec.remove("sessionAffinityConfig");
        }
        Some("ClientIP") => {
            if let Some(client) =
                ensure(spec, "sessionAffinityConfig").and_then(|config| ensure(config, "clientIP"))
            {
                set(client, "timeoutSeconds", 10800);
            }
        }
        _ => {}
    }
    set_text(spec, "type", "ClusterIP");
    for port in objects(spec, "ports") {
        set_text(port, "protocol", "TCP");
        let target = port.get("targetPort").unwrap_or(&Value::Null);
        if is_unset(target) || target.as_i64() == Some(0) {
            let number = port.get("port").cloned().unwrap_or(json!(0));
            port.insert("targetPort".to_owned(), number);
        }
    }
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let exposed = matches!(kind.as_str(), "NodePort" | "LoadBalancer");
    let external =
        kind == "ClusterIP" && spec.get("externalIPs").is_some_and(|addresses| !is_unset(addresses));
    if exposed || external {
        set_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if exposed || kind == "ClusterIP" {
        set_text(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
        let balancer = object(top, "status").and_then(|status| object(status, "loadBalancer"));
        for ingress in balancer.into_iter().flat_map(|balancer| objects(balancer, "ingress")) {
            if ingress.get("ip").is_some_and(|address| !is_unset(address)) {
                set(ingress, "ipMode", "VIP");
            }
        }
    }
}

fn namespace(top: &mut Object) {
    if let Some(meta) = object(top, "metadata") {
        let name = meta.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        // A generated name is not known yet; the label follows when it is.
        if !name.is_empty()
            && let Some(labels) = ensure(meta, "labels")
        {
            labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
        }
    }
    if let Some(status) = ensure(top, "status") {
        set_text(status, "phase", "Active");
    }
}

fn node(top: &mut Object) {
    let Some(status) = object(top, "status") else { return };
    if let Some(capacity) = status.get("capacity").filter(|capacity| capacity.is_object()).cloned() {
        set(status, "allocatable", capacity);
    }
}

fn endpoints(top: &mut Object) {
    for subset in objects(top, "subsets") {
        for port in objects(subset, "ports") {
            set_text(port, "protocol", "TCP");
        }
    }
}

fn endpoint_slice(top: &mut Object) {
    for port in objects(top, "ports") {
        set(port, "name", "");
        set(port, "protocol", "TCP");
    }
}

fn persistent_volume(top: &mut Object) {
    if let Some(status) = ensure(top, "status") {
        set_text(status, "phase", "Pending");
    }
    if let Some(spec) = ensure(top, "spec") {
        set_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        set(spec, "volumeMode", "Filesystem");
        pod::volume_source(spec);
    }
}

fn claim(top: &mut Object) {
    if let Some(status) = ensure(top, "status") {
        set_text(status, "phase", "Pending");
    }
    if let Some(spec) = ensure(top, "spec") {
        set(spec, "volumeMode", "Filesystem");
    }
}

fn limit_range(top: &mut Object) {
    let Some(spec) = object(top, "spec") else { return };
    for item in objects(spec, "limits") {
        if item.get("type").and_then(Value::as_str) != Some("Container") {
            continue;
        }
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let Some(source) = item.get(from).and_then(Value::as_object).cloned() else { continue };
            if let Some(target) = ensure(item, to) {
                for (key, value) in source {
                    target.entry(key).or_insert(value);
                }
            }
        }
    }
}

/// The template is always there, as its defaults are, even in a spec that says nothing.
fn pod_template_of(spec: &mut Object) {
    if let Some(template) = ensure(spec, "template") {
        pod::template_body(template);
    }
}

fn deployment(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    set(spec, "replicas", 1);
    if let Some(strategy) = ensure(spec, "strategy") {
        set_text(strategy, "type", "RollingUpdate");
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
            && let Some(rolling) = ensure(strategy, "rollingUpdate")
        {
            set(rolling, "maxUnavailable", "25%");
            set(rolling, "maxSurge", "25%");
        }
    }
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
    pod_template_of(spec);
}

fn daemon_set(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    if let Some(strategy) = ensure(spec, "updateStrategy") {
        set_text(strategy, "type", "RollingUpdate");
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
            && let Some(rolling) = ensure(strategy, "rollingUpdate")
        {
            set(rolling, "maxUnavailable", 1);
            set(rolling, "maxSurge", 0);
        }
    }
    set(spec, "revisionHistoryLimit", 10);
    pod_template_of(spec);
}

fn stateful_set(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    set_text(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = ensure(spec, "updateStrategy") {
        if strategy.get("type").is_none_or(is_unset) {
            set_text(strategy, "type", "RollingUpdate");
            ensure(strategy, "rollingUpdate");
        }
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
            && let Some(rolling) = object(strategy, "rollingUpdate")
        {
            set(rolling, "partition", 0);
        }
    }
    if let Some(policy) = ensure(spec, "persistentVolumeClaimRetentionPolicy") {
        set_text(policy, "whenDeleted", "Retain");
        set_text(policy, "whenScaled", "Retain");
    }
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    for claim_template in objects(spec, "volumeClaimTemplates") {
        set_text(claim_template, "apiVersion", "v1");
        set_text(claim_template, "kind", "PersistentVolumeClaim");
        claim(claim_template);
    }
    pod_template_of(spec);
}

fn replica_set(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    set(spec, "replicas", 1);
    pod_template_of(spec);
}

fn replication_controller(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    set(spec, "replicas", 1);
    // Here alone the template may be missing.
    if let Some(template) = object(spec, "template") {
        pod::template_body(template);
    }
    let labels = spec.get("template").map(|template| template["metadata"]["labels"].clone());
    if let Some(Value::Object(labels)) = labels {
        if spec.get("selector").is_none_or(is_unset) {
            spec.insert("selector".to_owned(), Value::Object(labels.clone()));
        }
        default_labels(top, labels);
    }
}

fn default_labels(top: &mut Object, labels: Object) {
    if let Some(meta) = ensure(top, "metadata")
        && meta.get("labels").is_none_or(is_unset)
        && !labels.is_empty()
    {
        meta.insert("labels".to_owned(), Value::Object(labels));
    }
}

fn job(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    job_spec(spec);
    let labels = spec.get("template").map(|template| template["metadata"]["labels"].clone());
    if let Some(Value::Object(labels)) = labels {
        default_labels(top, labels);
    }
}

fn job_spec(spec: &mut Object) {
    let unset = |spec: &Object, field: &str| spec.get(field).is_none_or(Value::is_null);
    if unset(spec, "completions") && unset(spec, "parallelism") {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    let per_index = !unset(spec, "backoffLimitPerIndex");
    set(spec, "backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    let failure_policy = !unset(spec, "podFailurePolicy");
    set(spec, "podReplacementPolicy", if failure_policy { "Failed" } else { "TerminatingOrFailed" });
    set(spec, "manualSelector", false);
    if let Some(policy) = object(spec, "podFailurePolicy") {
        for rule in objects(policy, "rules") {
            for pattern in objects(rule, "onPodConditions") {
                set_text(pattern, "status", "True");
            }
        }
    }
    pod_template_of(spec);
}

fn cron_job(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    set_text(spec, "concurrencyPolicy", "Allow");
    set(spec, "suspend", false);
    set(spec, "successfulJobsHistoryLimit", 3);
    set(spec, "failedJobsHistoryLimit", 1);
    // A job template gets the defaults of its pods only; the job's own come when a job is made of it.
    if let Some(job) = ensure(spec, "jobTemplate").and_then(|template| ensure(template, "spec")) {
        pod_template_of(job);
    }
}

fn binding(top: &mut Object) {
    if let Some(role) = object(top, "roleRef") {
        set_text(role, "apiGroup", RBAC);
    }
    for subject in objects(top, "subjects") {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            set_text(subject, "apiGroup", RBAC);
        }
    }
}

fn storage_class(top: &mut Object) {
    set(top, "reclaimPolicy", "Delete");
    set(top, "volumeBindingMode", "Immediate");
}

fn csi_driver(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    set(spec, "attachRequired", true);
    set(spec, "podInfoOnMount", false);
    set(spec, "storageCapacity", false);
    set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if spec.get("volumeLifecycleModes").is_none_or(is_unset) {
        spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
    set(spec, "requiresRepublish", false);
    set(spec, "seLinuxMount", false);
}

fn network_policy(top: &mut Object) {
    let Some(spec) = ensure(top, "spec") else { return };
    for direction in ["ingress", "egress"] {
        for rule in objects(spec, direction) {
            for port in objects(rule, "ports") {
                set(port, "protocol", "TCP");
            }
        }
    }
    if spec.get("policyTypes").is_none_or(is_unset) {
        let egress = spec.get("egress").is_some_and(|rules| !is_unset(rules));
        let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.insert("policyTypes".to_owned(), types);
    }
}

fn ingress_class(top: &mut Object) {
    if let Some(parameters) = object(top, "spec").and_then(|spec| object(spec, "parameters")) {
        set(parameters, "scope", "Cluster");
    }
}

fn api_service(top: &mut Object) {
    if let Some(service) = object(top, "spec").and_then(|spec| object(spec, "service")) {
        set_number(service, "port", 443);
    }
}

fn definition(top: &mut Object) {
    let Some(spec) = object(top, "spec") else { return };
    if let Some(names) = object(spec, "names") {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !kind.is_empty() {
            set_text(names, "singular", &kind.to_lowercase());
            set_text(names, "listKind", &format!("{kind}List"));
        }
    }
    if let Some(conversion) = ensure(spec, "conversion") {
        set_text(conversion, "strategy", "None");
        let service = object(conversion, "webhook")
            .and_then(|webhook| object(webhook, "clientConfig"))
            .and_then(|config| object(config, "service"));
        if let Some(service) = service {
            set(service, "port", 443);
        }
    }
}

fn admission(kind: &str, top: &mut Object) {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let mutating = kind.starts_with("Mutating");
            for webhook in objects(top, "webhooks") {
                set(webhook, "failurePolicy", "Fail");
                match_resources(webhook);
                set(webhook, "timeoutSeconds", 10);
                if mutating {
                    set(webhook, "reinvocationPolicy", "Never");
                }
                rule_scopes(webhook, "rules");
                if let Some(service) =
                    object(webhook, "clientConfig").and_then(|config| object(config, "service"))
                {
                    set(service, "port", 443);
                }
            }
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            let Some(spec) = ensure(top, "spec") else { return };
            set(spec, "failurePolicy", "Fail");
            if let Some(constraints) = object(spec, "matchConstraints") {
                policy_match(constraints);
            }
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            if let Some(resources) = object(top, "spec").and_then(|spec| object(spec, "matchResources")) {
                policy_match(resources);
            }
        }
        _ => {}
    }
}

fn policy_match(resources: &mut Object) {
    match_resources(resources);
    rule_scopes(resources, "resourceRules");
    rule_scopes(resources, "excludeResourceRules");
}

fn match_resources(parent: &mut Object) {
    set(parent, "matchPolicy", "Equivalent");
    ensure(parent, "namespaceSelector");
    ensure(parent, "objectSelector");
}

fn rule_scopes(parent: &mut Object, field: &str) {
    for rule in objects(parent, field) {
        set(rule, "scope", "*");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(group: &str, kind: &str, mut object: Value, expected: Value) {
        apply(group, kind, &mut object);
        assert_eq!(object, expected);
        apply(group, kind, &mut object);
        assert_eq!(object, expected, "a second pass changes the object");
    }

    #[test]
    fn plain_text_of_a_secret_becomes_data() {
        check(
            "",
            "Secret",
            json!({"data": {"a": "eA=="}, "stringData": {"b": "hi", "a": "y"}}),
            json!({"type": "Opaque", "data": {"a": "eQ==", "b": "aGk="}}),
        );
    }

    #[test]
    fn a_service_gets_everything_but_its_address() {
        let mut service = json!({"spec": {"ports": [{"port": 80}]}});
        apply("", "Service", &mut service);
        assert_eq!(
            service,
            json!({"spec": {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "type": "ClusterIP",
                "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"}})
        );
        assert!(service_needs_cluster_ip(&service));
        service_set_cluster_ip(&mut service, "10.0.0.7");
        assert!(!service_needs_cluster_ip(&service));
        assert_eq!(service["spec"]["clusterIPs"], json!(["10.0.0.7"]));
        assert_eq!(service["spec"]["ipFamilies"], json!(["IPv4"]));
    }

    #[test]
    fn a_deployment_is_complete_with_its_pods() {
        check(
            "apps",
            "Deployment",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "nginx"}]}}}}),
            json!({"spec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
                "template": {"spec": {
                    "containers": [{"name": "a", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
                        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
                    "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                    "securityContext": {}, "terminationGracePeriodSeconds": 30}}}}),
        );
    }

    #[test]
    fn webhooks_are_completed() {
        check(
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration",
            json!({"webhooks": [{"name": "a", "clientConfig": {"service": {"name": "s", "namespace": "n"}}, "rules": [{}]}]}),
            json!({"webhooks": [{"name": "a", "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 443}},
                "rules": [{"scope": "*"}], "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {},
                "objectSelector": {}, "timeoutSeconds": 10, "reinvocationPolicy": "Never"}]}),
        );
    }

    #[test]
    fn definitions_derive_their_names_from_the_kind() {
        check(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            json!({"spec": {"names": {"kind": "Foo", "plural": "foos"}}}),
            json!({"spec": {"names": {"kind": "Foo", "plural": "foos", "singular": "foo", "listKind": "FooList"}, "conversion": {"strategy": "None"}}}),
        );
    }

    #[test]
    fn bindings_name_the_group_of_their_subjects() {
        check(
            RBAC,
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
            json!({"roleRef": {"kind": "Role", "name": "r", "apiGroup": RBAC},
                "subjects": [{"kind": "User", "name": "u", "apiGroup": RBAC}, {"kind": "ServiceAccount", "name": "s"}]}),
        );
    }

    #[test]
    fn jobs_and_policies_have_defaults() {
        check(
            "batch",
            "Job",
            json!({"spec": {}}),
            json!({"spec": {"completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
                "suspend": false, "podReplacementPolicy": "TerminatingOrFailed", "manualSelector": false,
                "template": {"spec": {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "securityContext": {},
                    "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30}}}}),
        );
        check(
            "networking.k8s.io",
            "NetworkPolicy",
            json!({"spec": {"egress": [{"ports": [{"port": 53}]}]}}),
            json!({"spec": {"egress": [{"ports": [{"port": 53, "protocol": "TCP"}]}], "policyTypes": ["Ingress", "Egress"]}}),
        );
    }
}
