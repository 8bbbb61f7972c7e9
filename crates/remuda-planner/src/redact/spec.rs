//! The spec of a control plane without what people may have written secrets into.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::REDACTED;

/// Settings of the distribution whose values are shown: plans depend on them, and they hold no secrets.
const SHOWN: &[&str] = &[
    "cloud-provider-name",
    "cluster-cidr",
    "cluster-dns",
    "cluster-domain",
    "cni",
    "disable",
    "disable-kube-proxy",
    "etcd-snapshot-dir",
    "flannel-backend",
    "ingress-controller",
    "node-external-ip",
    "node-ip",
    "node-label",
    "node-taint",
    "profile",
    "protect-kernel-defaults",
    "selinux",
    "service-cidr",
    "service-node-port-range",
    "system-default-registry",
    "tls-san",
];

/// The same among the arguments of components.
const SHOWN_ARGUMENTS: &[&str] = &["cert-dir", "max-pods", "secure-port", "tls-cert-file"];

pub(super) fn redact(spec: &mut Value) {
    for variable in items(spec, "/agentEnvVars") {
        variable.get_mut("value").into_iter().for_each(leaves);
    }
    for path in ["/additionalManifest", "/chartValues"] {
        spec.pointer_mut(path).into_iter().for_each(leaves);
    }
    spec.pointer_mut("/machineGlobalConfig").and_then(Value::as_object_mut).into_iter().for_each(config);
    for entry in items(spec, "/machineSelectorConfig") {
        entry.get_mut("config").and_then(Value::as_object_mut).into_iter().for_each(config);
    }
    // Contents of files have a digest they must have, and get that of what takes their place.
    for source in items(spec, "/machineSelectorFiles").flat_map(|files| items(files, "/fileSources")) {
        for path in ["/secret/items", "/configMap/items"] {
            for hash in items(source, path).filter_map(|item| item.get_mut("hash")) {
                if hash.as_str().is_some_and(|hash| !hash.is_empty()) {
                    *hash = BASE64_STANDARD.encode(Sha256::digest(REDACTED)).into();
                }
            }
        }
    }
    without_logins(spec);
}

fn items<'a>(spec: &'a mut Value, path: &str) -> impl Iterator<Item = &'a mut Value> {
    spec.pointer_mut(path).and_then(Value::as_array_mut).into_iter().flatten()
}

fn config(config: &mut Map<String, Value>) {
    for (name, value) in config.iter_mut().filter(|(name, _)| !SHOWN.contains(&name.as_str())) {
        match value {
            Value::Array(arguments) if name.ends_with("-arg") => arguments.iter_mut().for_each(argument),
            value if name.ends_with("-arg") => argument(value),
            // Where it is, not what it is.
            Value::String(text) if text.starts_with("secret://") => {}
            value => leaves(value),
        }
    }
}

/// `name=value`.
fn argument(argument: &mut Value) {
    match argument {
        Value::String(text) => match text.split_once('=') {
            Some((name, _)) if SHOWN_ARGUMENTS.contains(&name) => {}
            Some((name, _)) => *text = format!("{name}={REDACTED}"),
            None => super::blank_text(text),
        },
        other => leaves(other),
    }
}

/// All texts.
fn leaves(value: &mut Value) {
    match value {
        Value::String(text) => super::blank_text(text),
        Value::Array(items) => items.iter_mut().for_each(leaves),
        Value::Object(map) => map.values_mut().for_each(leaves),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// URLs without user and password.
fn without_logins(value: &mut Value) {
    match value {
        Value::String(text) => {
            let login = text.split_once("://").and_then(|(scheme, rest)| {
                let authority = rest.split(['/', '?', '#']).next()?;
                let (login, _) = authority.rsplit_once('@')?;
                Some((scheme.len() + 3, login.len()))
            });
            if let Some((at, length)) = login {
                text.replace_range(at..at + length, REDACTED);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_logins),
        Value::Object(map) => map.values_mut().for_each(without_logins),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_people_wrote_freely_is_taken_out() {
        let mut spec = json!({
            "kubernetesVersion": "v1.35.1+k3s1",
            "agentEnvVars": [{"name": "HTTPS_PROXY", "value": "http://ann:pass@proxy"}, {"name": "EMPTY", "value": ""}],
            "additionalManifest": "kind: Secret",
            "chartValues": {"rke2-calico": {"mtu": 1400, "key": "k"}},
            "machineGlobalConfig": {
                "cni": "calico", "datastore-endpoint": "postgres://u:p@h", "selinux": true,
                "cloud-provider-config": "secret://ns:name",
                "kubelet-arg": ["max-pods=200", "token=t", "odd"], "kube-scheduler-arg": "secure-port=1",
            },
            "machineSelectorConfig": [{"config": {"token": "t"}}, {"config": null}],
            "registries": {"mirrors": {"m": {"endpoint": ["https://user:pw@mirror/x@y"]}}},
        });
        redact(&mut spec);
        assert_eq!(
            spec,
            json!({
                "kubernetesVersion": "v1.35.1+k3s1",
                "agentEnvVars": [{"name": "HTTPS_PROXY", "value": "redacted"}, {"name": "EMPTY", "value": ""}],
                "additionalManifest": "redacted",
                "chartValues": {"rke2-calico": {"mtu": 1400, "key": "redacted"}},
                "machineGlobalConfig": {
                    "cni": "calico", "datastore-endpoint": "redacted", "selinux": true,
                    "cloud-provider-config": "secret://ns:name",
                    "kubelet-arg": ["max-pods=200", "token=redacted", "redacted"],
                    "kube-scheduler-arg": "secure-port=1",
                },
                "machineSelectorConfig": [{"config": {"token": "redacted"}}, {"config": null}],
                "registries": {"mirrors": {"m": {"endpoint": ["https://redacted@mirror/x@y"]}}},
            })
        );
        let mut odd = json!(["no", "object"]);
        redact(&mut odd);
        assert_eq!(odd, json!(["no", "object"]));
    }
}
