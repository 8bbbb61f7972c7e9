//! The list itself.

use super::{NameRule, Resource, Subresource};

const FULL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Namespaces are never deleted in bulk.
const NO_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const READ_WRITE: &[&str] = &["get", "patch", "update"];
const CREATE: &[&str] = &["create"];
const UPDATE: &[&str] = &["update"];

const ALL: &[&str] = &["all"];
const EXTENSIONS: &[&str] = &["api-extensions"];

const CORE: &str = "";
const REGISTRATION: &str = "apiregistration.k8s.io";
const APPS: &str = "apps";
const EVENTS: &str = "events.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const BATCH: &str = "batch";
const CERTIFICATES: &str = "certificates.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const POLICY: &str = "policy";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const EXTENSION: &str = "apiextensions.k8s.io";
const SCHEDULING: &str = "scheduling.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const NODE: &str = "node.k8s.io";
const DISCOVERY: &str = "discovery.k8s.io";
const AUTOSCALING: &str = "autoscaling";

const fn cluster(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource {
        group,
        version: "v1",
        plural,
        singular,
        kind,
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: FULL,
        subresources: &[],
        put_creates: false,
        unconditional_update: true,
        name_rule: NameRule::Subdomain,
        max_name: None,
        has_generation: false,
        has_status: false,
        field_selectors: &[],
        default_gc_orphan: false,
        graceful_delete: false,
        is_virtual: false,
        storage_group: group,
    }
}

const fn namespaced(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource { namespaced: true, ..cluster(group, plural, singular, kind) }
}

const fn review(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource { verbs: CREATE, is_virtual: true, ..cluster(group, plural, singular, kind) }
}

const fn sub(
    name: &'static str,
    group: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
) -> Subresource {
    Subresource { name, group, version: "v1", kind, verbs }
}

const fn status(group: &'static str, kind: &'static str) -> Subresource {
    sub("status", group, kind, READ_WRITE)
}

const SCALE: Subresource = sub("scale", "autoscaling", "Scale", READ_WRITE);

/// In discovery order.
pub static RESOURCES: &[Resource] = &[
    Resource {
        short_names: &["cs"],
        verbs: &["get", "list"],
        is_virtual: true,
        ..cluster(CORE, "componentstatuses", "componentstatus", "ComponentStatus")
    },
    Resource { short_names: &["cm"], ..namespaced(CORE, "configmaps", "configmap", "ConfigMap") },
    Resource {
        short_names: &["ep"],
        put_creates: true,
        ..namespaced(CORE, "endpoints", "endpoints", "Endpoints")
    },
    Resource {
        short_names: &["ev"],
        put_creates: true,
        field_selectors: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ..namespaced(CORE, "events", "event", "Event")
    },
    Resource {
        short_names: &["limits"],
        put_creates: true,
        ..namespaced(CORE, "limitranges", "limitrange", "LimitRange")
    },
    Resource {
        short_names: &["ns"],
        verbs: NO_COLLECTION,
        subresources: &[sub("finalize", CORE, "Namespace", UPDATE), status(CORE, "Namespace")],
        name_rule: NameRule::Label,
        has_status: true,
        field_selectors: &["status.phase"],
        ..cluster(CORE, "namespaces", "namespace", "Namespace")
    },
    Resource {
        short_names: &["no"],
        subresources: &[status(CORE, "Node")],
        has_status: true,
        field_selectors: &["spec.unschedulable"],
        ..cluster(CORE, "nodes", "node", "Node")
    },
    Resource {
        short_names: &["pvc"],
        subresources: &[status(CORE, "PersistentVolumeClaim")],
        has_status: true,
        ..namespaced(CORE, "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim")
    },
    Resource {
        short_names: &["pv"],
        subresources: &[status(CORE, "PersistentVolume")],
        has_status: true,
        ..cluster(CORE, "persistentvolumes", "persistentvolume", "PersistentVolume")
    },
    Resource {
        short_names: &["po"],
        categories: ALL,
        subresources: &[
            sub("binding", CORE, "Binding", CREATE),
            sub("ephemeralcontainers", CORE, "Pod", READ_WRITE),
            sub("eviction", POLICY, "Eviction", CREATE),
            sub("resize", CORE, "Pod", READ_WRITE),
            status(CORE, "Pod"),
        ],
        has_generation: true,
        has_status: true,
        graceful_delete: true,
        field_selectors: &[
            "spec.hostNetwork",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.nominatedNodeName",
            "status.phase",
            "status.podIP",
            "status.podIPs",
        ],
        ..namespaced(CORE, "pods", "pod", "Pod")
    },
    Resource { has_generation: true, ..namespaced(CORE, "podtemplates", "podtemplate", "PodTemplate") },
    Resource {
        short_names: &["rc"],
        categories: ALL,
        subresources: &[SCALE, status(CORE, "ReplicationController")],
        has_generation: true,
        has_status: true,
        default_gc_orphan: true,
        field_selectors: &["status.replicas"],
        ..namespaced(CORE, "replicationcontrollers", "replicationcontroller", "ReplicationController")
    },
    Resource {
        short_names: &["quota"],
        subresources: &[status(CORE, "ResourceQuota")],
        has_status: true,
        ..namespaced(CORE, "resourcequotas", "resourcequota", "ResourceQuota")
    },
    Resource { field_selectors: &["type"], ..namespaced(CORE, "secrets", "secret", "Secret") },
    Resource {
        short_names: &["sa"],
        subresources: &[sub("token", AUTHENTICATION, "TokenRequest", CREATE)],
        ..namespaced(CORE, "serviceaccounts", "serviceaccount", "ServiceAccount")
    },
    Resource {
        short_names: &["svc"],
        categories: ALL,
        subresources: &[status(CORE, "Service")],
        put_creates: true,
        name_rule: NameRule::Label1035,
        has_status: true,
        field_selectors: &["spec.clusterIP", "spec.type"],
        ..namespaced(CORE, "services", "service", "Service")
    },
    Resource {
        categories: EXTENSIONS,
        subresources: &[status(REGISTRATION, "APIService")],
        unconditional_update: false,
        name_rule: NameRule::ApiService,
        has_status: true,
        ..cluster(REGISTRATION, "apiservices", "apiservice", "APIService")
    },
    namespaced(APPS, "controllerrevisions", "controllerrevision", "ControllerRevision"),
    Resource {
        short_names: &["ds"],
        categories: ALL,
        subresources: &[status(APPS, "DaemonSet")],
        has_generation: true,
        has_status: true,
        ..namespaced(APPS, "daemonsets", "daemonset", "DaemonSet")
    },
    Resource {
        short_names: &["deploy"],
        categories: ALL,
        subresources: &[SCALE, status(APPS, "Deployment")],
        has_generation: true,
        has_status: true,
        ..namespaced(APPS, "deployments", "deployment", "Deployment")
    },
    Resource {
        short_names: &["rs"],
        categories: ALL,
        subresources: &[SCALE, status(APPS, "ReplicaSet")],
        has_generation: true,
        has_status: true,
        field_selectors: &["status.replicas"],
        ..namespaced(APPS, "replicasets", "replicaset", "ReplicaSet")
    },
    Resource {
        short_names: &["sts"],
        categories: ALL,
        subresources: &[SCALE, status(APPS, "StatefulSet")],
        has_generation: true,
        has_status: true,
        ..namespaced(APPS, "statefulsets", "statefulset", "StatefulSet")
    },
    Resource {
        short_names: &["ev"],
        put_creates: true,
        storage_group: CORE,
        field_selectors: &[
            "reason",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reportingController",
            "type",
        ],
        ..namespaced(EVENTS, "events", "event", "Event")
    },
    review(AUTHENTICATION, "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview"),
    review(AUTHENTICATION, "tokenreviews", "tokenreview", "TokenReview"),
    Resource {
        namespaced: true,
        ..review(
            AUTHORIZATION,
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
            "LocalSubjectAccessReview",
        )
    },
    review(AUTHORIZATION, "selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview"),
    review(AUTHORIZATION, "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview"),
    review(AUTHORIZATION, "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview"),
    Resource {
        version: "v2",
        short_names: &["hpa"],
        categories: ALL,
        subresources: &[Subresource { version: "v2", ..status(AUTOSCALING, "HorizontalPodAutoscaler") }],
        has_status: true,
        ..namespaced(
            AUTOSCALING,
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
            "HorizontalPodAutoscaler",
        )
    },
    Resource {
        short_names: &["hpa"],
        categories: ALL,
        subresources: &[status(AUTOSCALING, "HorizontalPodAutoscaler")],
        has_status: true,
        ..namespaced(
            AUTOSCALING,
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
            "HorizontalPodAutoscaler",
        )
    },
    Resource {
        short_names: &["cj"],
        categories: ALL,
        subresources: &[status(BATCH, "CronJob")],
        // The controller appends eleven characters to name its jobs.
        max_name: Some(52),
        has_generation: true,
        has_status: true,
        ..namespaced(BATCH, "cronjobs", "cronjob", "CronJob")
    },
    Resource {
        categories: ALL,
        subresources: &[status(BATCH, "Job")],
        has_generation: true,
        has_status: true,
        default_gc_orphan: true,
        field_selectors: &["status.successful"],
        ..namespaced(BATCH, "jobs", "job", "Job")
    },
    Resource {
        short_names: &["csr"],
        subresources: &[
            sub("approval", CERTIFICATES, "CertificateSigningRequest", READ_WRITE),
            status(CERTIFICATES, "CertificateSigningRequest"),
        ],
        name_rule: NameRule::Path,
        has_status: true,
        field_selectors: &["spec.signerName"],
        ..cluster(
            CERTIFICATES,
            "certificatesigningrequests",
            "certificatesigningrequest",
            "CertificateSigningRequest",
        )
    },
    Resource {
        has_generation: true,
        ..cluster(NETWORKING, "ingressclasses", "ingressclass", "IngressClass")
    },
    Resource {
        short_names: &["ing"],
        subresources: &[status(NETWORKING, "Ingress")],
        has_generation: true,
        has_status: true,
        ..namespaced(NETWORKING, "ingresses", "ingress", "Ingress")
    },
    Resource {
        short_names: &["ip"],
        name_rule: NameRule::Address,
        ..cluster(NETWORKING, "ipaddresses", "ipaddress", "IPAddress")
    },
    Resource {
        short_names: &["netpol"],
        has_generation: true,
        ..namespaced(NETWORKING, "networkpolicies", "networkpolicy", "NetworkPolicy")
    },
    Resource {
        subresources: &[status(NETWORKING, "ServiceCIDR")],
        has_status: true,
        ..cluster(NETWORKING, "servicecidrs", "servicecidr", "ServiceCIDR")
    },
    Resource {
        short_names: &["pdb"],
        subresources: &[status(POLICY, "PodDisruptionBudget")],
        unconditional_update: false,
        has_generation: true,
        has_status: true,
        ..namespaced(POLICY, "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget")
    },
    Resource {
        put_creates: true,
        name_rule: NameRule::Path,
        ..cluster(RBAC, "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding")
    },
    Resource {
        put_creates: true,
        name_rule: NameRule::Path,
        ..cluster(RBAC, "clusterroles", "clusterrole", "ClusterRole")
    },
    Resource {
        put_creates: true,
        name_rule: NameRule::Path,
        ..namespaced(RBAC, "rolebindings", "rolebinding", "RoleBinding")
    },
    Resource { put_creates: true, name_rule: NameRule::Path, ..namespaced(RBAC, "roles", "role", "Role") },
    Resource {
        unconditional_update: false,
        has_generation: true,
        ..cluster(STORAGE, "csidrivers", "csidriver", "CSIDriver")
    },
    Resource { unconditional_update: false, ..cluster(STORAGE, "csinodes", "csinode", "CSINode") },
    Resource {
        unconditional_update: false,
        ..namespaced(STORAGE, "csistoragecapacities", "csistoragecapacity", "CSIStorageCapacity")
    },
    Resource { short_names: &["sc"], ..cluster(STORAGE, "storageclasses", "storageclass", "StorageClass") },
    Resource {
        subresources: &[status(STORAGE, "VolumeAttachment")],
        unconditional_update: false,
        has_status: true,
        ..cluster(STORAGE, "volumeattachments", "volumeattachment", "VolumeAttachment")
    },
    Resource {
        short_names: &["vac"],
        ..cluster(STORAGE, "volumeattributesclasses", "volumeattributesclass", "VolumeAttributesClass")
    },
    Resource {
        categories: EXTENSIONS,
        unconditional_update: false,
        has_generation: true,
        ..cluster(
            ADMISSION,
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicy",
            "MutatingAdmissionPolicy",
        )
    },
    Resource {
        categories: EXTENSIONS,
        unconditional_update: false,
        has_generation: true,
        ..cluster(
            ADMISSION,
            "mutatingadmissionpolicybindings",
            "mutatingadmissionpolicybinding",
            "MutatingAdmissionPolicyBinding",
        )
    },
    Resource {
        categories: EXTENSIONS,
        unconditional_update: false,
        has_generation: true,
        ..cluster(
            ADMISSION,
            "mutatingwebhookconfigurations",
            "mutatingwebhookconfiguration",
            "MutatingWebhookConfiguration",
        )
    },
    Resource {
        categories: EXTENSIONS,
        subresources: &[status(ADMISSION, "ValidatingAdmissionPolicy")],
        unconditional_update: false,
        has_generation: true,
        has_status: true,
        ..cluster(
            ADMISSION,
            "validatingadmissionpolicies",
            "validatingadmissionpolicy",
            "ValidatingAdmissionPolicy",
        )
    },
    Resource {
        categories: EXTENSIONS,
        unconditional_update: false,
        has_generation: true,
        ..cluster(
            ADMISSION,
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicybinding",
            "ValidatingAdmissionPolicyBinding",
        )
    },
    Resource {
        categories: EXTENSIONS,
        unconditional_update: false,
        has_generation: true,
        ..cluster(
            ADMISSION,
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
            "ValidatingWebhookConfiguration",
        )
    },
    Resource {
        short_names: &["crd", "crds"],
        categories: EXTENSIONS,
        subresources: &[status(EXTENSION, "CustomResourceDefinition")],
        unconditional_update: false,
        name_rule: NameRule::Crd,
        has_generation: true,
        has_status: true,
        ..cluster(
            EXTENSION,
            "customresourcedefinitions",
            "customresourcedefinition",
            "CustomResourceDefinition",
        )
    },
    Resource {
        short_names: &["pc"],
        has_generation: true,
        ..cluster(SCHEDULING, "priorityclasses", "priorityclass", "PriorityClass")
    },
    Resource {
        put_creates: true,
        unconditional_update: false,
        ..namespaced(COORDINATION, "leases", "lease", "Lease")
    },
    Resource {
        put_creates: true,
        unconditional_update: false,
        ..cluster(NODE, "runtimeclasses", "runtimeclass", "RuntimeClass")
    },
    Resource {
        has_generation: true,
        ..namespaced(DISCOVERY, "endpointslices", "endpointslice", "EndpointSlice")
    },
];
