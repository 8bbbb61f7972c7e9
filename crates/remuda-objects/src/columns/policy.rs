//! Columns of the kinds that configure the cluster: access, admission, storage, network.

use serde_json::Value;

use super::{
    AGE, Columns, NAME, boolean, core, created, human_seconds, integer, joined, name, scalar, selector_text,
    text, text_or, wide,
};
use crate::{
    json::{at, int_at, is_unset, list_at, text_at},
    meta,
};

pub(super) fn columns(group: &str, kind: &str) -> Option<&'static Columns> {
    Some(match (group, kind) {
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => &core::CREATED,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &BINDING,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &core::CREATED,
        ("apiregistration.k8s.io", "APIService") => &API_SERVICE,
        ("certificates.k8s.io", "CertificateSigningRequest") => &CSR,
        ("policy", "PodDisruptionBudget") => &BUDGET,
        ("coordination.k8s.io", "Lease") => &LEASE,
        ("", "ComponentStatus") => &COMPONENT,
        ("scheduling.k8s.io", "PriorityClass") => &PRIORITY_CLASS,
        ("node.k8s.io", "RuntimeClass") => &RUNTIME_CLASS,
        ("storage.k8s.io", "StorageClass") => &STORAGE_CLASS,
        ("storage.k8s.io", "CSINode") => &CSI_NODE,
        ("storage.k8s.io", "CSIDriver") => &CSI_DRIVER,
        ("storage.k8s.io", "CSIStorageCapacity") => &CSI_CAPACITY,
        ("storage.k8s.io", "VolumeAttachment") => &ATTACHMENT,
        ("networking.k8s.io", "Ingress") => &INGRESS,
        ("networking.k8s.io", "IngressClass") => &INGRESS_CLASS,
        ("networking.k8s.io", "NetworkPolicy") => &NETWORK_POLICY,
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => &WEBHOOKS,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => &VALIDATING_POLICY,
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => &MUTATING_POLICY,
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => &POLICY_BINDING,
        _ => return None,
    })
}

static BINDING: Columns = Columns::new(
    &[
        NAME,
        text("Role", "Role that is granted."),
        AGE,
        wide("Users", "Users who get the role."),
        wide("Groups", "Groups that get the role."),
        wide("ServiceAccounts", "Service accounts that get the role."),
    ],
    |object, now| {
        let role = at(object, &["roleRef"]);
        let subjects = list_at(object, &["subjects"]);
        let of = |kind: &str| {
            let names = subjects.iter().filter(|subject| text_at(subject, &["kind"]) == kind);
            Value::from(joined(names.map(|subject| text_at(subject, &["name"])), ", "))
        };
        let accounts: Vec<String> = subjects
            .iter()
            .filter(|subject| text_at(subject, &["kind"]) == "ServiceAccount")
            .map(|subject| format!("{}/{}", text_at(subject, &["namespace"]), text_at(subject, &["name"])))
            .collect();
        vec![
            name(object),
            Value::from(format!("{}/{}", text_at(role, &["kind"]), text_at(role, &["name"]))),
            created(object, now),
            of("User"),
            of("Group"),
            Value::from(accounts.join(", ")),
        ]
    },
);

static API_SERVICE: Columns = Columns::new(
    &[
        NAME,
        text("Service", "Service behind the API, or Local."),
        text("Available", "Whether the API can be used."),
        AGE,
    ],
    |object, now| {
        let service = at(object, &["spec", "service"]);
        let service = if service.is_object() {
            format!("{}/{}", text_at(service, &["namespace"]), text_at(service, &["name"]))
        } else {
            "Local".to_owned()
        };
        let condition = list_at(object, &["status", "conditions"])
            .iter()
            .find(|condition| text_at(condition, &["type"]) == "Available");
        let available = match condition
            .map(|condition| (text_at(condition, &["status"]), text_at(condition, &["reason"])))
        {
            None => "Unknown".to_owned(),
            Some(("True", _)) => "True".to_owned(),
            Some((status, reason)) => format!("{status} ({reason})"),
        };
        vec![name(object), Value::from(service), Value::from(available), created(object, now)]
    },
);

static CSR: Columns = Columns::new(
    &[
        NAME,
        AGE,
        text("SignerName", "Who is asked to sign."),
        text("Requestor", "Who asked."),
        text("RequestedDuration", "Wanted lifetime of the certificate."),
        text("Condition", "State of the request."),
    ],
    |object, now| {
        let has = |kind: &str| {
            list_at(object, &["status", "conditions"])
                .iter()
                .any(|condition| text_at(condition, &["type"]) == kind)
        };
        let mut state = if has("Denied") {
            "Denied"
        } else if has("Approved") {
            "Approved"
        } else {
            "Pending"
        }
        .to_owned();
        if has("Failed") {
            state.push_str(",Failed");
        }
        if !is_unset(at(object, &["status", "certificate"])) {
            state.push_str(",Issued");
        }
        let duration = at(object, &["spec", "expirationSeconds"]).as_i64().map(human_seconds);
        vec![
            name(object),
            created(object, now),
            text_or(at(object, &["spec", "signerName"]), "<none>"),
            Value::from(text_at(object, &["spec", "username"])),
            Value::from(duration.unwrap_or_else(|| "<none>".to_owned())),
            Value::from(state),
        ]
    },
);

static BUDGET: Columns = Columns::new(
    &[
        NAME,
        text("Min Available", "Pods that must stay available."),
        text("Max Unavailable", "Pods that may be unavailable."),
        integer("Allowed Disruptions", "Pods that may be disrupted now."),
        AGE,
    ],
    |object, now| {
        let limit = |field: &str| {
            Value::from(scalar(at(object, &["spec", field])).unwrap_or_else(|| "N/A".to_owned()))
        };
        vec![
            name(object),
            limit("minAvailable"),
            limit("maxUnavailable"),
            Value::from(int_at(object, &["status", "disruptionsAllowed"])),
            created(object, now),
        ]
    },
);

static LEASE: Columns = Columns::new(&[NAME, text("Holder", "Who holds the lease."), AGE], |object, now| {
    vec![name(object), Value::from(text_at(object, &["spec", "holderIdentity"])), created(object, now)]
});

static COMPONENT: Columns = Columns::new(
    &[
        NAME,
        text("Status", "Whether the component is well."),
        text("Message", "What the component says."),
        text("Error", "Why it could not be asked."),
    ],
    |object, _| {
        let conditions = list_at(object, &["conditions"]);
        let healthy = conditions.iter().find(|condition| text_at(condition, &["type"]) == "Healthy");
        let status = match healthy.map(|condition| text_at(condition, &["status"])) {
            None => "Unknown",
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
        };
        let of = |field: &str| Value::from(healthy.map_or("", |condition| text_at(condition, &[field])));
        vec![name(object), status.into(), of("message"), of("error")]
    },
);

static PRIORITY_CLASS: Columns = Columns::new(
    &[
        NAME,
        integer("Value", "Priority of pods in the class."),
        boolean("Global-Default", "Whether pods without a class get this one."),
        AGE,
        text("PreemptionPolicy", "Whether pods of the class push out others."),
    ],
    |object, now| {
        vec![
            name(object),
            Value::from(int_at(object, &["value"])),
            flag(at(object, &["globalDefault"]), false),
            created(object, now),
            Value::from(text_at(object, &["preemptionPolicy"])),
        ]
    },
);

static RUNTIME_CLASS: Columns =
    Columns::new(&[NAME, text("Handler", "Name of the runtime's configuration."), AGE], |object, now| {
        vec![name(object), Value::from(text_at(object, &["handler"])), created(object, now)]
    });

fn flag(value: &Value, fallback: bool) -> Value {
    Value::from(value.as_bool().unwrap_or(fallback))
}

fn marked_default(object: &Value, annotations: &[&str]) -> Value {
    let marked = annotations.iter().any(|annotation| meta::annotation(object, annotation) == Some("true"));
    Value::from(if marked {
        format!("{} (default)", meta::name(object))
    } else {
        meta::name(object).to_owned()
    })
}

static STORAGE_CLASS: Columns = Columns::new(
    &[
        NAME,
        text("Provisioner", "Who makes the volumes."),
        text("ReclaimPolicy", "What happens to a volume after use."),
        text("VolumeBindingMode", "When volumes are made and bound."),
        text("AllowVolumeExpansion", "Whether volumes can grow."),
        AGE,
    ],
    |object, now| {
        let defaults = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        vec![
            marked_default(object, &defaults),
            Value::from(text_at(object, &["provisioner"])),
            text_or(at(object, &["reclaimPolicy"]), "Delete"),
            text_or(at(object, &["volumeBindingMode"]), "Immediate"),
            flag(at(object, &["allowVolumeExpansion"]), false),
            created(object, now),
        ]
    },
);

static CSI_NODE: Columns = Columns::new(&core::counted("Drivers", "Drivers on the node."), |object, now| {
    vec![name(object), Value::from(list_at(object, &["spec", "drivers"]).len()), created(object, now)]
});

static CSI_DRIVER: Columns = Columns::new(
    &[
        NAME,
        boolean("AttachRequired", "Whether volumes are attached before use."),
        boolean("PodInfoOnMount", "Whether the driver is told about the pod."),
        boolean("StorageCapacity", "Whether the driver publishes its capacity."),
        text("TokenRequests", "Audiences of the tokens the driver gets."),
        boolean("RequiresRepublish", "Whether volumes are published repeatedly."),
        text("Modes", "Lifetimes of volumes the driver supports."),
        AGE,
    ],
    |object, now| {
        let spec = at(object, &["spec"]);
        let tokens = match at(spec, &["tokenRequests"]).as_array() {
            Some(tokens) => joined(tokens.iter().map(|token| text_at(token, &["audience"])), ","),
            None => "<unset>".to_owned(),
        };
        let modes = joined(list_at(spec, &["volumeLifecycleModes"]).iter().filter_map(Value::as_str), ",");
        vec![
            name(object),
            flag(at(spec, &["attachRequired"]), true),
            flag(at(spec, &["podInfoOnMount"]), false),
            flag(at(spec, &["storageCapacity"]), false),
            Value::from(tokens),
            flag(at(spec, &["requiresRepublish"]), false),
            Value::from(if modes.is_empty() { "<none>".to_owned() } else { modes }),
            created(object, now),
        ]
    },
);

static CSI_CAPACITY: Columns = Columns::new(
    &[NAME, text("StorageClassName", "Storage class of the capacity."), text("Capacity", "Free capacity.")],
    |object, _| {
        let capacity = scalar(at(object, &["capacity"])).unwrap_or_else(|| "<unset>".to_owned());
        vec![name(object), Value::from(text_at(object, &["storageClassName"])), Value::from(capacity)]
    },
);

static ATTACHMENT: Columns = Columns::new(
    &[
        NAME,
        text("Attacher", "Who attaches the volume."),
        text("PV", "Volume to attach."),
        text("Node", "Node to attach to."),
        boolean("Attached", "Whether the volume is attached."),
        AGE,
    ],
    |object, now| {
        vec![
            name(object),
            Value::from(text_at(object, &["spec", "attacher"])),
            Value::from(text_at(object, &["spec", "source", "persistentVolumeName"])),
            Value::from(text_at(object, &["spec", "nodeName"])),
            flag(at(object, &["status", "attached"]), false),
            created(object, now),
        ]
    },
);

static INGRESS: Columns = Columns::new(
    &[
        NAME,
        text("Class", "Class of the ingress."),
        text("Hosts", "Hosts the ingress answers for."),
        text("Address", "Addresses of the load balancer."),
        text("Ports", "Ports the ingress listens on."),
        AGE,
    ],
    |object, now| {
        let rules = list_at(object, &["spec", "rules"]);
        let mut hosts = Vec::new();
        let mut more = false;
        for rule in rules {
            more |= hosts.len() == 3;
            let host = text_at(rule, &["host"]);
            if !more && !host.is_empty() {
                hosts.push(host);
            }
        }
        let hosts = match (hosts.is_empty(), more) {
            (true, _) => "*".to_owned(),
            (false, false) => hosts.join(","),
            (false, true) => format!("{} + {} more...", hosts.join(","), rules.len() - 3),
        };
        let tls = !list_at(object, &["spec", "tls"]).is_empty();
        vec![
            name(object),
            text_or(at(object, &["spec", "ingressClassName"]), "<none>"),
            Value::from(hosts),
            Value::from(core::balancer_addresses(object).join(",")),
            Value::from(if tls { "80, 443" } else { "80" }),
            created(object, now),
        ]
    },
);

static INGRESS_CLASS: Columns = Columns::new(
    &[
        NAME,
        text("Controller", "Who serves the class."),
        text("Parameters", "Object with further parameters."),
        AGE,
    ],
    |object, now| {
        let parameters = at(object, &["spec", "parameters"]);
        let shown = if parameters.is_object() {
            let group = text_at(parameters, &["apiGroup"]);
            let dot = if group.is_empty() { "" } else { "." };
            format!("{}{dot}{group}/{}", text_at(parameters, &["kind"]), text_at(parameters, &["name"]))
        } else {
            "<none>".to_owned()
        };
        vec![
            marked_default(object, &["ingressclass.kubernetes.io/is-default-class"]),
            Value::from(text_at(object, &["spec", "controller"])),
            Value::from(shown),
            created(object, now),
        ]
    },
);

static NETWORK_POLICY: Columns =
    Columns::new(&[NAME, text("Pod-Selector", "Pods the policy applies to."), AGE], |object, now| {
        vec![name(object), selector_text(at(object, &["spec", "podSelector"])), created(object, now)]
    });

static WEBHOOKS: Columns = Columns::new(&core::counted("Webhooks", "Number of webhooks."), |object, now| {
    vec![name(object), Value::from(list_at(object, &["webhooks"]).len()), created(object, now)]
});

static VALIDATING_POLICY: Columns = Columns::new(
    &[
        NAME,
        integer("Validations", "Number of expressions."),
        text("ParamKind", "Kind of the parameters."),
        AGE,
    ],
    |object, now| policy(object, "validations", created(object, now)),
);

static MUTATING_POLICY: Columns = Columns::new(
    &[NAME, integer("Mutations", "Number of mutations."), text("ParamKind", "Kind of the parameters."), AGE],
    |object, now| policy(object, "mutations", created(object, now)),
);

fn policy(object: &Value, list: &str, age: Value) -> Vec<Value> {
    let kind = at(object, &["spec", "paramKind"]);
    let kind = if kind.is_object() {
        format!("{}/{}", text_at(kind, &["apiVersion"]), text_at(kind, &["kind"]))
    } else {
        "<unset>".to_owned()
    };
    vec![name(object), Value::from(list_at(object, &["spec", list]).len()), Value::from(kind), age]
}

static POLICY_BINDING: Columns = Columns::new(
    &[NAME, text("PolicyName", "Policy that is bound."), text("ParamRef", "Parameters of the policy."), AGE],
    |object, now| {
        let param = at(object, &["spec", "paramRef"]);
        let shown = match (text_at(param, &["namespace"]), text_at(param, &["name"])) {
            (_, "") if at(param, &["selector"]).is_object() => selector_text(at(param, &["selector"])),
            (_, "") => Value::from("<unset>"),
            ("", name) => Value::from(format!("*/{name}")),
            (namespace, name) => Value::from(format!("{namespace}/{name}")),
        };
        vec![name(object), Value::from(text_at(object, &["spec", "policyName"])), shown, created(object, now)]
    },
);

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn bindings_list_their_subjects() {
        let object = json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "User", "name": "a"},
            {"kind": "User", "name": "b"}, {"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]});
        let cells = BINDING.cells(&object, NOW);
        assert_eq!(cells[1], json!("ClusterRole/view"));
        assert_eq!(cells[3..], [json!("a, b"), json!("g"), json!("n/s")]);
    }

    #[test]
    fn the_state_of_a_request_adds_up() {
        let object = json!({"spec": {"expirationSeconds": 3600}, "status": {"certificate": "eA==", "conditions": [{"type": "Approved"}]}});
        assert_eq!(CSR.cells(&object, NOW)[4..], [json!("60m"), json!("Approved,Issued")]);
    }

    #[test]
    fn the_default_class_says_so() {
        let object = json!({"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
        assert_eq!(STORAGE_CLASS.cells(&object, NOW)[0], json!("fast (default)"));
    }
}
