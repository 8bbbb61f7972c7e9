//! Objects of wrong types everywhere: nothing may panic, and defaults must settle.

use jiff::Timestamp;
use proptest::{prelude::*, sample::select};
use serde_json::{Map, Value};

use crate::{columns, compute, defaults, fields, limits, meta, quota, status, validate};

/// Names the code looks for, so that random objects get past the first step.
const FIELDS: &[&str] = &[
    "metadata",
    "spec",
    "status",
    "template",
    "containers",
    "initContainers",
    "name",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "selector",
    "matchLabels",
    "matchExpressions",
    "values",
    "key",
    "operator",
    "ports",
    "port",
    "data",
    "stringData",
    "type",
    "volumes",
    "volumeMounts",
    "env",
    "valueFrom",
    "fieldRef",
    "resources",
    "limits",
    "requests",
    "default",
    "min",
    "max",
    "used",
    "overhead",
    "scopes",
    "cpu",
    "strategy",
    "rollingUpdate",
    "updateStrategy",
    "webhooks",
    "rules",
    "clientConfig",
    "service",
    "subjects",
    "roleRef",
    "conditions",
    "containerStatuses",
    "initContainerStatuses",
    "state",
    "terminated",
    "jobTemplate",
    "schedule",
    "subsets",
    "addresses",
    "endpoints",
    "clusterIPs",
    "loadBalancer",
    "ingress",
    "taints",
    "tolerations",
    "kind",
    "generateName",
    "creationTimestamp",
    "deletionTimestamp",
    "involvedObject",
    "series",
    "podIPs",
    "hard",
    "request",
    "usages",
    "http",
    "paths",
    "cidrs",
    "parentRef",
    "resource",
    "scaleTargetRef",
    "metrics",
    "currentMetrics",
    "target",
    "metric",
    "object",
    "averageValue",
    "behavior",
    "scaleUp",
    "policies",
];

const KINDS: &[(&str, &str)] = &[
    ("", "Pod"),
    ("", "Service"),
    ("", "Node"),
    ("", "Event"),
    ("events.k8s.io", "Event"),
    ("", "Namespace"),
    ("", "Secret"),
    ("", "ConfigMap"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "Endpoints"),
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("", "PodTemplate"),
    ("", "ReplicationController"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("apps", "ControllerRevision"),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("policy", "PodDisruptionBudget"),
    ("coordination.k8s.io", "Lease"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("networking.k8s.io", "IPAddress"),
    ("storage.k8s.io", "VolumeAttributesClass"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("apiregistration.k8s.io", "APIService"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(vec![
            "",
            "a",
            "Always",
            "RollingUpdate",
            "10%",
            "ClusterIP",
            "é=",
            "2026-01-01T00:00:00Z",
            "-",
            "1Gi",
            "Resource",
            "Object"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(select(FIELDS), inner, 0..6).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>()
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_object_makes_quotas_and_limits_panic(mut object in any_json(), other in any_json()) {
        for (group, plural) in [("", "pods"), ("", "services"), ("", "persistentvolumeclaims"), ("x.io", "foos")] {
            let usage = quota::usage(group, plural, &object);
            quota::increase(&quota::usage(group, plural, &other), &usage);
            quota::concerns(&other, group, plural, &object);
            quota::charge(&other, &compute::amounts(&object));
            quota::used(&other, [(group, plural, &object)].into_iter());
        }
        quota::unsaid(&other, &object);
        limits::check_pod(&other, &object);
        limits::check_claim(&other, &object);
        limits::default_pod(&other, &mut object);
    }

    #[test]
    fn no_object_makes_anything_panic(object in any_json(), other in any_json()) {
        for (group, kind) in KINDS {
            let mut defaulted = object.clone();
            defaults::apply(group, kind, &mut defaulted);
            let mut again = defaulted.clone();
            defaults::apply(group, kind, &mut again);
            prop_assert_eq!(&again, &defaulted, "defaults of {} do not settle", kind);
            validate::create(group, kind, &defaulted);
            validate::update(group, kind, &object, &other);
            let rules = validate::meta_rules(group, kind, true);
            meta::validate_object_meta(&object, &rules);
            meta::validate_meta_update(&object, &other, &rules);
            for prepare in [status::prepare_update, status::prepare_status_update] {
                let mut new = object.clone();
                prepare(group, kind, &mut new, &other);
                meta::restore_server_fields(&mut new, &other);
            }
            status::prepare_create(group, kind, &mut again);
            defaults::admit_pod(&mut again);
            defaults::service_set_cluster_ip(&mut again, "10.0.0.1");
            status::prepare_approval_update(&mut again, &other);
            status::prepare_custom_status_update(&mut again, &other);
            status::spec_changed(&object, &other);
            let columns = columns::builtin(group, kind).unwrap_or(&columns::DEFAULT);
            prop_assert_eq!(columns.cells(&object, Timestamp::UNIX_EPOCH).len(), columns.definitions().len());
            for path in ["metadata.name", "spec.nodeName", "status.podIPs", "source", "type", "involvedObject.name"] {
                fields::selectable(group, kind, &object, path);
            }
        }
    }
}
