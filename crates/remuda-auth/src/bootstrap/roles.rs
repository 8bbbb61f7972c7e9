//! The default ClusterRoles, one row per permission. Names and permissions are Kubernetes' own: charts and
//! controllers refer to these roles and rely on what they grant.

use super::{ClusterRole, feeding, gathering, named, on, role, urls};

const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";
const READ_WRITE: &str = "create delete deletecollection get list patch update watch";

/// Words are separated by spaces; `core` stands for the group without name.
pub(super) const ROLES: &[ClusterRole] = &[
    gathering("admin", ""),
    role("cluster-admin", &[on("*", "*", "*"), urls("*", "*")]),
    gathering("edit", "admin"),
    feeding(
        "system:aggregate-to-admin",
        "admin",
        &[
            on("create", "authorization.k8s.io", "localsubjectaccessreviews"),
            on(READ_WRITE, "rbac.authorization.k8s.io", "rolebindings roles"),
        ],
    ),
    feeding(
        "system:aggregate-to-edit",
        "edit",
        &[
            on(READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
            on("impersonate", "core", "serviceaccounts"),
            on(WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
            on("create", "core", "pods/eviction"),
            on(
                WRITE,
                "core",
                "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets serviceaccounts services services/proxy",
            ),
            on("create", "core", "serviceaccounts/token"),
            on(WRITE, "core events.k8s.io", "events"),
            on(
                WRITE,
                "apps",
                "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale",
            ),
            on(WRITE, "autoscaling", "horizontalpodautoscalers"),
            on(WRITE, "batch", "cronjobs jobs"),
            on(
                WRITE,
                "extensions",
                "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets replicasets/scale replicationcontrollers/scale",
            ),
            on(WRITE, "policy", "poddisruptionbudgets"),
            on(WRITE, "networking.k8s.io", "ingresses networkpolicies"),
            on(READ_WRITE, "coordination.k8s.io", "leases"),
            on(WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
        ],
    ),
    feeding(
        "system:aggregate-to-view",
        "view",
        &[
            on(
                READ,
                "core",
                "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status",
            ),
            on(
                READ,
                "core",
                "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas resourcequotas/status",
            ),
            on(READ, "core", "namespaces"),
            on(READ, "core events.k8s.io", "events"),
            on(READ, "discovery.k8s.io", "endpointslices"),
            on(
                READ,
                "apps",
                "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
            ),
            on(READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
            on(READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
            on(
                READ,
                "extensions",
                "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale",
            ),
            on(READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
            on(READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
            on(READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
        ],
    ),
    role(
        "system:auth-delegator",
        &[
            on("create", "authentication.k8s.io", "tokenreviews"),
            on("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
    ),
    role(
        "system:basic-user",
        &[
            on("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
            on("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
    ),
    role(
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &[on("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient")],
    ),
    role(
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &[on("create", "certificates.k8s.io", "certificatesigningrequests/selfnodeclient")],
    ),
    role(
        "system:certificates.k8s.io:kube-apiserver-client-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client")],
    ),
    role(
        "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet")],
    ),
    role(
        "system:certificates.k8s.io:kubelet-serving-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving")],
    ),
    role(
        "system:certificates.k8s.io:legacy-unknown-approver",
        &[named("approve", "certificates.k8s.io", "signers", "kubernetes.io/legacy-unknown")],
    ),
    role("system:cluster-trust-bundle-discovery", &[on(READ, "certificates.k8s.io", "clustertrustbundles")]),
    role(
        "system:discovery",
        &[urls(
            "get",
            "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
        )],
    ),
    role("system:kube-aggregator", &[on(READ, "core", "endpoints services")]),
    role(
        "system:kube-controller-manager",
        &[
            on("create patch update", "core events.k8s.io", "events"),
            on("create", "coordination.k8s.io", "leases"),
            named("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
            on("create", "core", "secrets serviceaccounts"),
            on("delete", "core", "secrets"),
            on("get", "core", "configmaps namespaces secrets serviceaccounts"),
            on("update", "core", "secrets serviceaccounts"),
            on("create", "authentication.k8s.io", "tokenreviews"),
            on("create", "authorization.k8s.io", "subjectaccessreviews"),
            on("list watch", "*", "*"),
            on("create", "core", "serviceaccounts/token"),
        ],
    ),
    role("system:kube-dns", &[on("list watch", "core", "endpoints services")]),
    role(
        "system:kube-scheduler",
        &[
            on("create patch update", "core events.k8s.io", "events"),
            on("create", "coordination.k8s.io", "leases"),
            named("get list update watch", "coordination.k8s.io", "leases", "kube-scheduler"),
            on(READ_WRITE, "coordination.k8s.io", "leasecandidates"),
            on(READ, "core", "nodes"),
            on("delete get list watch", "core", "pods"),
            on("create", "core", "bindings pods/binding"),
            on("patch update", "core", "pods/status"),
            on(READ, "core", "replicationcontrollers services"),
            on(READ, "apps extensions", "replicasets"),
            on(READ, "apps", "statefulsets"),
            on(READ, "policy", "poddisruptionbudgets"),
            on(READ, "core", "persistentvolumeclaims persistentvolumes"),
            on("create", "authentication.k8s.io", "tokenreviews"),
            on("create", "authorization.k8s.io", "subjectaccessreviews"),
            on(READ, "storage.k8s.io", "csinodes"),
            on(READ, "storage.k8s.io", "volumeattachments"),
            on(READ, "core", "namespaces"),
            on(READ, "storage.k8s.io", "csidrivers"),
            on(READ, "storage.k8s.io", "csistoragecapacities"),
            on(READ, "resource.k8s.io", "deviceclasses"),
            on("get list patch update watch", "resource.k8s.io", "resourceclaims"),
            on("get list patch update watch", "resource.k8s.io", "resourceclaims/status"),
            on("update", "core", "pods/finalizers"),
            on(READ, "resource.k8s.io", "resourceslices"),
            on("create delete", "resource.k8s.io", "resourceclaims"),
            on(READ, "resource.k8s.io", "devicetaintrules"),
            on("patch update", "resource.k8s.io", "resourceclaims/binding"),
        ],
    ),
    role(
        "system:kubelet-api-admin",
        &[
            on(READ, "core", "nodes"),
            on("proxy", "core", "nodes"),
            on("*", "core", "nodes/log nodes/metrics nodes/proxy nodes/stats"),
            on("*", "core", "nodes/configz nodes/healthz nodes/pods"),
        ],
    ),
    role(
        "system:monitoring",
        &[
            urls(
                "get",
                "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz",
            ),
            on("get", "core", "nodes/metrics"),
        ],
    ),
    role(
        "system:node",
        &[
            on("create", "authentication.k8s.io", "tokenreviews"),
            on("create", "authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews"),
            on(READ, "core", "services"),
            on("create get list watch", "core", "nodes"),
            on("patch update", "core", "nodes/status"),
            on("patch update", "core", "nodes"),
            on("create patch update", "core events.k8s.io", "events"),
            on(READ, "core", "pods"),
            on("create delete", "core", "pods"),
            on("patch update", "core", "pods/status"),
            on("create", "core", "pods/eviction"),
            on(READ, "core", "configmaps secrets"),
            on("get", "core", "persistentvolumeclaims persistentvolumes"),
            on("get", "core", "endpoints"),
            on("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
            on("create delete get patch update", "coordination.k8s.io", "leases"),
            on("get", "storage.k8s.io", "volumeattachments"),
            on("create", "core", "serviceaccounts/token"),
            on("get patch update", "core", "persistentvolumeclaims/status"),
            on(READ, "storage.k8s.io", "csidrivers"),
            on("create delete get patch update", "storage.k8s.io", "csinodes"),
            on(READ, "node.k8s.io", "runtimeclasses"),
            on("get", "resource.k8s.io", "resourceclaims"),
            on("deletecollection", "resource.k8s.io", "resourceslices"),
            on(READ, "certificates.k8s.io", "clustertrustbundles"),
            on("get", "core", "serviceaccounts"),
            on("create get list watch", "certificates.k8s.io", "podcertificaterequests"),
        ],
    ),
    role(
        "system:node-bootstrapper",
        &[on("create get list watch", "certificates.k8s.io", "certificatesigningrequests")],
    ),
    role(
        "system:node-problem-detector",
        &[
            on("get", "core", "nodes"),
            on("patch", "core", "nodes/status"),
            on("create patch update", "core events.k8s.io", "events"),
        ],
    ),
    role(
        "system:node-proxier",
        &[
            on("list watch", "core", "endpoints services"),
            on(READ, "core", "nodes"),
            on("create patch update", "core events.k8s.io", "events"),
            on("list watch", "networking.k8s.io", "servicecidrs"),
            on("list watch", "discovery.k8s.io", "endpointslices"),
        ],
    ),
    role(
        "system:persistent-volume-provisioner",
        &[
            on("create delete get list watch", "core", "persistentvolumes"),
            on("get list update watch", "core", "persistentvolumeclaims"),
            on(READ, "storage.k8s.io", "storageclasses"),
            on("watch", "core", "events"),
            on("create patch update", "core events.k8s.io", "events"),
        ],
    ),
    role("system:public-info-viewer", &[urls("get", "/healthz /livez /readyz /version /version/")]),
    role(
        "system:service-account-issuer-discovery",
        &[urls(
            "get",
            "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
        )],
    ),
    role(
        "system:volume-scheduler",
        &[
            on("get list patch update watch", "core", "persistentvolumes"),
            on(READ, "storage.k8s.io", "storageclasses"),
            on("get list patch update watch", "core", "persistentvolumeclaims"),
        ],
    ),
    gathering("view", "edit"),
];
