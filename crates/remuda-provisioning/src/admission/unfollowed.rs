//! Fields that Rancher knows and nothing here follows. Who writes one is told so, and told what does the same: stored
//! without effect, it would be relied on.
//!
//! What was stored before stays, and the server's own writes are let through: they bring back what people wrote.

use serde_json::Value;

use super::{Findings, Write};

/// The template that asks for what a cluster without one has.
const PRIVILEGED: &str = "rancher-privileged";

struct Unfollowed {
    pointer: &'static str,
    field: &'static str,
    why: &'static str,
}

const FIELDS: &[Unfollowed] = &[
    Unfollowed {
        pointer: "/clusterAPIConfig",
        field: "spec.clusterAPIConfig",
        why: "a cluster of Cluster API needs no provisioning Cluster: it is managed as it is, see remuda capi",
    },
    Unfollowed {
        pointer: "/defaultPodSecurityAdmissionConfigurationTemplateName",
        field: "spec.defaultPodSecurityAdmissionConfigurationTemplateName",
        why: "there are no such templates here, and the cluster would go without: give control planes the configuration \
              with rkeConfig.machineSelectorFiles, and kube-apiserver-arg admission-control-config-file with \
              rkeConfig.machineSelectorConfig",
    },
    Unfollowed {
        pointer: "/enableNetworkPolicy",
        field: "spec.enableNetworkPolicy",
        why: "there are no projects here that could be isolated: put NetworkPolicies into the cluster, for example with \
              rkeConfig.additionalManifest",
    },
    Unfollowed {
        pointer: "/webhookDeploymentCustomization",
        field: "spec.webhookDeploymentCustomization",
        why: "no webhook is deployed to clusters: its rules are part of this server",
    },
];

pub(super) fn check(write: &Write<'_>, old: Option<&Value>, spec: &Value, findings: &mut Findings) {
    if write.is_server {
        return;
    }
    for Unfollowed { pointer, field, why } in FIELDS {
        let now = spec.pointer(pointer).unwrap_or(&Value::Null);
        let before = old.and_then(|old| old.pointer(pointer)).unwrap_or(&Value::Null);
        if !says_nothing(now) && now != before {
            findings.bad(*field, why);
        }
    }
}

/// Clients send what they show in their forms, filled in or not.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty() || text == PRIVILEGED,
        Value::Object(fields) => fields.values().all(says_nothing),
        Value::Array(items) => items.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}
