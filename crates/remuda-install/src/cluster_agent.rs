//! The manifest that puts the cluster agent into a cluster.
//!
//! People apply it to clusters they bring along; nodes of clusters made here find it in their plan. Names,
//! keys and the order of documents are Rancher's: an agent of either kind takes the place of the other.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_names::{cluster_agent::NAME as AGENT, endpoint, rancher::name::SYSTEM};
use remuda_plan::sha256_hex;
use serde_json::{Map, Value, json};

use crate::{STRICT_VERIFY, is_variable, yaml};

const PRIORITY_CLASS: &str = "cattle-cluster-agent-priority-class";
const BUDGET: &str = "cattle-cluster-agent-pod-disruption-budget";

/// What a manifest is made of.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClusterAgent<'a> {
    /// Address of the server.
    pub server_url: &'a str,
    /// Checksum of its certificate authority; see [`ca_checksum`](crate::ca_checksum).
    pub ca_checksum: Option<&'a str>,
    /// Registration token of the cluster.
    pub token: &'a str,
    /// Name of the management Cluster in plans; empty in manifests people apply, as in the original.
    pub namespace: &'a str,
    /// Image of the agent.
    pub image: &'a str,
    /// Image of the authenticator, in clusters with an authorized endpoint.
    pub auth_image: Option<&'a str>,
    /// Trust the pinned authority only, if there is one.
    pub strict: bool,
    /// Environment of the agent beside what it needs.
    pub env: &'a [(String, String)],
    /// Features the agent is told of.
    pub features: &'a [(&'a str, bool)],
    /// Registry of system images.
    pub registry: &'a str,
    /// Version of the server.
    pub server_version: &'a str,
    /// Identity of the installation.
    pub install_uuid: &'a str,
    /// Taints of control plane nodes, as `core/v1` has them. The agent tolerates them; without any it
    /// tolerates the usual ones.
    pub control_plane_taints: &'a [Value],
    /// The cluster has no network of its own yet, and waits for the agent.
    pub pre_bootstrap: bool,
    /// How people want the agent deployed: an `AgentDeploymentCustomization`.
    pub customization: Option<&'a Value>,
    /// Credentials of registries: name and `.dockerconfigjson`.
    pub pull_secrets: &'a [(String, String)],
}

/// Name of the Secret that tells the agent where to register with what.
pub fn credentials_name(server_url: &str, token: &str, namespace: &str) -> String {
    let digest = sha256_hex(format!("{server_url}.{token}.{namespace}").as_bytes());
    format!("cattle-credentials-{}", &digest[..10])
}

impl ClusterAgent<'_> {
    /// The whole manifest.
    pub fn manifest(&self) -> String {
        let mut text = String::new();
        for document in self.documents() {
            text.push_str("---\n");
            text.push_str(&yaml::document(&document));
        }
        text
    }

    /// The objects, in the order they are applied.
    pub fn documents(&self) -> Vec<Value> {
        let credentials = credentials_name(self.server_url, self.token, self.namespace);
        let mut documents = vec![
            role(
                "proxy-clusterrole-kubeapiserver",
                &json!([{
                    "apiGroups": [""],
                    "resources":
                        ["nodes/metrics", "nodes/proxy", "nodes/stats", "nodes/log", "nodes/spec"],
                    "verbs": ["get", "list", "watch", "create"],
                }]),
            ),
            binding(
                "proxy-role-binding-kubernetes-master",
                "proxy-clusterrole-kubeapiserver",
                json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kube-apiserver"}),
            ),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}),
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "cattle", "namespace": SYSTEM},
            }),
        ];
        let mut admin = binding(
            "cattle-admin-binding",
            "cattle-admin",
            json!({"kind": "ServiceAccount", "name": "cattle", "namespace": SYSTEM}),
        );
        admin["metadata"]["labels"] = json!({"cattle.io/creator": "norman"});
        documents.push(admin);
        documents.push(self.credentials(&credentials));
        documents.extend(self.pull_secrets.iter().map(|(name, config)| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
                "metadata": {
                    "name": name, "namespace": SYSTEM,
                    "labels": {"management.cattle.io/cattle-cluster-agent-pull-secret": "true"},
                },
                "data": {".dockerconfigjson": BASE64_STANDARD.encode(config)},
            })
        }));
        documents.push(role(
            "cattle-admin",
            &json!([
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]},
            ]),
        ));
        documents.extend(self.priority_class());
        documents.extend(self.disruption_budget());
        documents.push(self.deployment(&credentials));
        documents.extend(self.authenticator());
        documents.push(service());
        documents
    }

    fn credentials(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "namespace": SYSTEM},
            "data": {
                "url": BASE64_STANDARD.encode(self.server_url),
                "token": BASE64_STANDARD.encode(self.token),
                "namespace": BASE64_STANDARD.encode(self.namespace),
            },
        })
    }

    fn custom(&self, pointer: &str) -> Option<&Value> {
        self.customization?.pointer(pointer).filter(|value| !value.is_null())
    }

    fn priority_class(&self) -> Option<Value> {
        let class = self.custom("/schedulingCustomization/priorityClass")?;
        let mut object = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": PRIORITY_CLASS},
            "value": class.get("value").and_then(Value::as_i64).unwrap_or(0),
            "description": "Priority of the cluster agent",
        });
        let policy = class.get("preemptionPolicy").and_then(Value::as_str);
        if let Some(policy) = policy.filter(|policy| !policy.is_empty()) {
            object["preemptionPolicy"] = policy.into();
        }
        Some(object)
    }

    fn disruption_budget(&self) -> Option<Value> {
        let budget = self.custom("/schedulingCustomization/podDisruptionBudget")?;
        let mut spec = json!({"selector": {"matchLabels": {"app": AGENT}}});
        // Both are not allowed together; zero means that the other is meant.
        let limit = ["minAvailable", "maxUnavailable"].into_iter().find_map(|name| {
            let value = budget.get(name)?.as_str().filter(|value| !["", "0"].contains(value))?;
            Some((name, value.parse::<i64>().map_or_else(|_| json!(value), |number| json!(number))))
        });
        let (name, value) = limit?;
        spec[name] = value;
        Some(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": BUDGET, "namespace": SYSTEM}, "spec": spec,
        }))
    }

    fn deployment(&self, credentials: &str) -> Value {
        let mut container = json!({
            "name": "cluster-register",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "env": self.environment(credentials),
            "volumeMounts": [
                {"name": "cattle-credentials", "mountPath": remuda_names::cluster_agent::file::CREDENTIALS, "readOnly": true},
            ],
        });
        if let Some(resources) = self.custom("/overrideResourceRequirements") {
            container["resources"] = resources.clone();
        }
        let mut pod = json!({
            "serviceAccountName": "cattle",
            "affinity": self.custom("/overrideAffinity").cloned().unwrap_or_else(affinity),
            "tolerations": self.tolerations(),
            "containers": [container],
            "volumes": [
                {"name": "cattle-credentials", "secret": {"secretName": credentials, "defaultMode": 320}},
            ],
        });
        if self.custom("/schedulingCustomization/priorityClass").is_some() {
            pod["priorityClassName"] = PRIORITY_CLASS.into();
        }
        if self.pre_bootstrap {
            pod["hostNetwork"] = true.into();
        }
        self.pull_with(&mut pod);
        let name = if self.pre_bootstrap { "cattle-cluster-agent-bootstrap" } else { AGENT };
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": name, "namespace": SYSTEM, "labels": {"app": AGENT},
                "annotations": {"management.cattle.io/scale-available": "2"},
            },
            "spec": {
                "selector": {"matchLabels": {"app": AGENT}},
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
                },
                "template": {"metadata": {"labels": {"app": AGENT}}, "spec": pod},
            },
        })
    }

    /// Asked by the API of each node who somebody with a token is. It listens on the node's own loopback.
    fn authenticator(&self) -> Option<Value> {
        let image = self.auth_image.filter(|image| !image.is_empty())?;
        let labels = json!({"app": endpoint::NAME});
        let place = |role: &str| {
            json!({"matchExpressions": [
                {"key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"]},
                {"key": role, "operator": "In", "values": ["true"]},
            ]})
        };
        let mut pod = json!({
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    place("node-role.kubernetes.io/controlplane"),
                    place("node-role.kubernetes.io/control-plane"),
                ],
            }}},
            "hostNetwork": true,
            "serviceAccountName": "cattle",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": endpoint::NAME, "image": image, "imagePullPolicy": "IfNotPresent"}],
        });
        self.pull_with(&mut pod);
        Some(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": endpoint::NAME, "namespace": SYSTEM},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
            },
        }))
    }

    fn pull_with(&self, pod: &mut Value) {
        if !self.pull_secrets.is_empty() {
            let names = self.pull_secrets.iter().map(|(name, _)| json!({"name": name}));
            pod["imagePullSecrets"] = names.collect();
        }
    }

    fn environment(&self, credentials: &str) -> Vec<Value> {
        let features: BTreeMap<&str, bool> = self.features.iter().copied().collect();
        let features: Vec<String> =
            features.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let is_pinned = self.ca_checksum.is_some_and(|checksum| !checksum.is_empty());
        let strict = if self.strict && is_pinned { "true" } else { "false" };
        let features = features.join(",");
        let own = [
            ("CATTLE_FEATURES", features.as_str()),
            (remuda_names::cluster_agent::env::SERVER, self.server_url),
            (remuda_names::cluster_agent::env::CA_CHECKSUM, self.ca_checksum.unwrap_or_default()),
            ("CATTLE_CLUSTER", "true"),
            ("CATTLE_K8S_MANAGED", "true"),
            ("CATTLE_SYSTEM_DEFAULT_REGISTRY", self.registry),
            ("CATTLE_CREDENTIAL_NAME", credentials),
            ("CATTLE_SUC_APP_NAME_OVERRIDE", ""),
            ("CATTLE_SERVER_VERSION", self.server_version),
            ("CATTLE_INSTALL_UUID", self.install_uuid),
            (STRICT_VERIFY, strict),
        ];
        let is_given = |name: &str| self.env.iter().any(|(given, _)| given == name);
        let own = own.into_iter().filter(|(name, value)| match *name {
            "CATTLE_FEATURES" => !value.is_empty(),
            STRICT_VERIFY => !is_given(name),
            _ => true,
        });
        // The last of equal names is the one that counts, and lists of variables are merged by name.
        let mut given: BTreeMap<&str, &str> = BTreeMap::new();
        given.extend(self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let own: Vec<(&str, &str)> = own.collect();
        let given = given
            .into_iter()
            .filter(|(name, _)| is_variable(name) && !own.iter().any(|(other, _)| other == name));
        own.iter().copied().chain(given).map(|(name, value)| json!({"name": name, "value": value})).collect()
    }

    fn tolerations(&self) -> Vec<Value> {
        let mut tolerations: Vec<Value> = self.control_plane_taints.iter().filter_map(tolerating).collect();
        if tolerations.is_empty() {
            tolerations.push(json!({
                "key": "node-role.kubernetes.io/controlplane", "value": "true", "effect": "NoSchedule",
            }));
            tolerations.push(json!({
                "key": "node-role.kubernetes.io/control-plane",
                "operator": "Exists", "effect": "NoSchedule",
            }));
        }
        if self.pre_bootstrap {
            tolerations.push(
                json!({"key": "node-role.kubernetes.io/etcd", "operator": "Exists", "effect": "NoExecute"}),
            );
            tolerations.push(json!({
                "key": "node.cloudprovider.kubernetes.io/uninitialized",
                "value": "true", "effect": "NoSchedule",
            }));
        }
        let more = self.custom("/appendTolerations").and_then(Value::as_array);
        tolerations.extend(more.into_iter().flatten().cloned());
        tolerations
    }
}

/// The toleration of one taint.
fn tolerating(taint: &Value) -> Option<Value> {
    let mut toleration = Map::new();
    let key = taint.get("key")?.as_str().filter(|key| !key.is_empty())?;
    toleration.insert("key".into(), key.into());
    for name in ["value", "effect"] {
        if let Some(value) = taint.get(name).and_then(Value::as_str).filter(|value| !value.is_empty()) {
            toleration.insert(name.into(), value.into());
        }
    }
    if !toleration.contains_key("value") {
        toleration.insert("operator".into(), "Exists".into());
    }
    Some(Value::Object(toleration))
}

fn role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    })
}

fn binding(name: &str, role: &str, subject: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}

fn affinity() -> Value {
    let prefer = |weight: i64, label: &str| {
        let expression = json!({"key": label, "operator": "In", "values": ["true"]});
        json!({"weight": weight, "preference": {"matchExpressions": [expression]}})
    };
    json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "beta.kubernetes.io/os", "operator": "NotIn", "values": ["windows"]},
                ]}],
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                prefer(100, "node-role.kubernetes.io/controlplane"),
                prefer(100, "node-role.kubernetes.io/control-plane"),
                prefer(1, "cattle.io/cluster-agent"),
            ],
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "podAffinityTerm": {
                    "labelSelector": {"matchExpressions": [
                        {"key": "app", "operator": "In", "values": [AGENT]},
                    ]},
                    "topologyKey": "kubernetes.io/hostname",
                },
            }],
        },
    })
}

fn service() -> Value {
    let port = |name: &str, port: i64, target: i64| json!({"name": name, "port": port, "targetPort": target, "protocol": "TCP"});
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": AGENT, "namespace": SYSTEM},
        "spec": {
            "ports": [port("http", 80, 80), port("https-internal", 443, 444)],
            "selector": {"app": AGENT},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> ClusterAgent<'static> {
        ClusterAgent {
            server_url: "https://remuda.example.com",
            ca_checksum: Some("abc"),
            token: "t0ken",
            image: "rancher/rancher-agent:v1",
            strict: true,
            ..ClusterAgent::default()
        }
    }

    fn find<'a>(documents: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
        documents.iter().find(|document| document["kind"] == kind && document["metadata"]["name"] == name)
    }

    fn variable(deployment: &Value, name: &str) -> Option<String> {
        let env = deployment.pointer("/spec/template/spec/containers/0/env").unwrap().as_array().unwrap();
        let found: Vec<&Value> = env.iter().filter(|variable| variable["name"] == name).collect();
        assert!(found.len() < 2, "{name} is given twice");
        Some(found.first()?["value"].as_str().unwrap().to_owned())
    }

    #[test]
    fn the_manifest_is_the_documents_in_their_order() {
        let documents = agent().documents();
        let kinds: Vec<&str> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
        let expected = "ClusterRole ClusterRoleBinding Namespace ServiceAccount ClusterRoleBinding Secret \
                        ClusterRole Deployment Service";
        assert_eq!(kinds.join(" "), expected);
        let text = agent().manifest();
        let read: Vec<Value> = text
            .split("---\n")
            .skip(1)
            .map(|document| serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}")))
            .collect();
        assert_eq!(read, documents);
    }

    #[test]
    fn credentials_are_named_by_what_they_hold() {
        // printf 'https://remuda.example.com.t0ken.' | sha256sum
        let name = credentials_name("https://remuda.example.com", "t0ken", "");
        let documents = agent().documents();
        let secret = find(&documents, "Secret", &name).unwrap();
        assert_eq!(secret["data"]["token"], BASE64_STANDARD.encode("t0ken"));
        assert_eq!(secret["data"]["namespace"], "");
        let deployment = find(&documents, "Deployment", AGENT).unwrap();
        assert_eq!(variable(deployment, "CATTLE_CREDENTIAL_NAME"), Some(name.clone()));
        assert_eq!(deployment.pointer("/spec/template/spec/volumes/0/secret/secretName"), Some(&json!(name)));
        assert_eq!(name.len(), "cattle-credentials-".len() + 10);
        assert_ne!(name, credentials_name("https://remuda.example.com", "t0ken", "c-m-1"));
    }

    #[test]
    fn own_variables_cannot_be_replaced_but_verification_can_be_chosen() {
        let env = [
            ("CATTLE_SERVER".to_owned(), "https://elsewhere".to_owned()),
            ("STRICT_VERIFY".to_owned(), "false".to_owned()),
            ("HTTP_PROXY".to_owned(), "http://proxy".to_owned()),
            ("HTTP_PROXY".to_owned(), "http://other".to_owned()),
            ("not a name".to_owned(), "x".to_owned()),
        ];
        let documents =
            ClusterAgent { env: &env, features: &[("b", false), ("a", true)], ..agent() }.documents();
        let deployment = find(&documents, "Deployment", AGENT).unwrap();
        for (name, value) in [
            ("CATTLE_SERVER", Some("https://remuda.example.com")),
            ("STRICT_VERIFY", Some("false")),
            ("HTTP_PROXY", Some("http://other")),
            ("CATTLE_FEATURES", Some("a=true,b=false")),
            ("CATTLE_CA_CHECKSUM", Some("abc")),
            ("not a name", None),
        ] {
            assert_eq!(variable(deployment, name).as_deref(), value, "{name}");
        }
    }

    #[test]
    fn people_can_say_how_the_agent_is_deployed() {
        let customization = json!({
            "appendTolerations": [{"key": "mine", "operator": "Exists"}],
            "overrideAffinity": {"nodeAffinity": {}},
            "overrideResourceRequirements": {"limits": {"cpu": "1"}},
            "schedulingCustomization": {
                "priorityClass": {"value": 5, "preemptionPolicy": "Never"},
                "podDisruptionBudget": {"minAvailable": "0", "maxUnavailable": "50%"},
            },
        });
        let taints =
            [json!({"key": "a", "value": "b", "effect": "NoExecute"}), json!({"key": "c"}), json!(1)];
        let agent =
            ClusterAgent { customization: Some(&customization), control_plane_taints: &taints, ..agent() };
        let documents = agent.documents();
        let pod = find(&documents, "Deployment", AGENT).unwrap().pointer("/spec/template/spec").unwrap();
        assert_eq!(
            pod["tolerations"],
            json!([
                {"key": "a", "value": "b", "effect": "NoExecute"}, {"key": "c", "operator": "Exists"},
                {"key": "mine", "operator": "Exists"},
            ])
        );
        assert_eq!(pod["affinity"], json!({"nodeAffinity": {}}));
        assert_eq!(pod["containers"][0]["resources"], json!({"limits": {"cpu": "1"}}));
        assert_eq!(pod["priorityClassName"], PRIORITY_CLASS);
        assert_eq!(find(&documents, "PriorityClass", PRIORITY_CLASS).unwrap()["value"], 5);
        let budget = find(&documents, "PodDisruptionBudget", BUDGET).unwrap();
        assert_eq!(budget["spec"]["maxUnavailable"], "50%");
        assert!(budget["spec"].get("minAvailable").is_none());
    }

    #[test]
    fn an_authorized_endpoint_brings_an_authenticator_to_every_node_with_an_api() {
        assert!(find(&agent().documents(), "DaemonSet", "kube-api-auth").is_none());
        let secrets = [("pull".to_owned(), "{}".to_owned())];
        let image = Some("rancher/kube-api-auth:v1");
        let documents = ClusterAgent { auth_image: image, pull_secrets: &secrets, ..agent() }.documents();
        let kinds: Vec<&str> =
            documents.iter().rev().take(3).map(|document| document["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["Service", "DaemonSet", "Deployment"]);
        let set = find(&documents, "DaemonSet", "kube-api-auth").unwrap();
        let pod = set.pointer("/spec/template/spec").unwrap();
        assert_eq!((&pod["hostNetwork"], &pod["serviceAccountName"]), (&json!(true), &json!("cattle")));
        assert_eq!(pod["containers"][0]["image"], "rancher/kube-api-auth:v1");
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "pull"}]));
        assert_eq!(set.pointer("/spec/selector/matchLabels"), set.pointer("/spec/template/metadata/labels"));
        let empty = ClusterAgent { auth_image: Some(""), ..agent() }.documents();
        assert!(find(&empty, "DaemonSet", "kube-api-auth").is_none());
    }

    #[test]
    fn before_the_network_is_there_the_agent_uses_the_hosts() {
        let documents = ClusterAgent { pre_bootstrap: true, ..agent() }.documents();
        let deployment = find(&documents, "Deployment", "cattle-cluster-agent-bootstrap").unwrap();
        assert_eq!(deployment.pointer("/spec/template/spec/hostNetwork"), Some(&json!(true)));
    }
}
