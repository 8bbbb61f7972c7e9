//! The management Cluster of a provisioning Cluster.

use kube::ResourceExt;
use remuda_api::{
    management::{self, AgentEnvVar, ClusterSecrets, ImportedConfig},
    provisioning::Cluster,
};
use remuda_names::rancher::{annotation, env};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Error, images::Registry, naming, object_set::ObjectSet};

/// Characters of the token in the name of a management Cluster.
const ID: usize = 8;

/// What of the settings matters to management Clusters.
#[derive(Debug, Clone, Default)]
pub(super) struct Images {
    pub(super) agent: String,
    /// Of the authenticator.
    pub(super) auth: String,
    /// Registry of images that say nothing else.
    pub(super) registry: String,
    /// Secret with the credentials of that registry.
    pub(super) pull_secret: String,
}

/// Name of the management Cluster a provisioning Cluster has, or is to get. It follows from the object, so that a
/// server that stops between two writes does not make two of them.
pub(super) fn name(cluster: &Cluster) -> String {
    let status = cluster.status.as_ref().map(|status| status.cluster_name.as_str()).unwrap_or_default();
    let legacy = cluster.metadata.name.as_deref().filter(|name| naming::is_legacy(name));
    let asked = cluster.annotations().get(annotation::MANAGEMENT_CLUSTER_NAME).map(String::as_str);
    let known = [Some(status), legacy, asked].into_iter().flatten().find(|name| !name.is_empty());
    known.map_or_else(|| generated(cluster.metadata.uid.as_deref().unwrap_or_default()), str::to_owned)
}

fn generated(uid: &str) -> String {
    let bytes = (0u8..8).flat_map(|round| {
        let mut hasher = Sha256::new();
        hasher.update(uid);
        hasher.update([round]);
        hasher.finalize().to_vec()
    });
    let token = naming::token(bytes).unwrap_or_default();
    format!("c-m-{}", token.get(..ID).unwrap_or_default())
}

/// Whether a management Cluster may be called so. A namespace is called the same: it must not be one of others.
pub(super) fn is_valid(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.starts_with("c-")
        && name.len() > 2
        && name.len() <= 63
        && !name.ends_with('-')
        && name.bytes().all(inside)
}

/// Whether the management Cluster under that name may be ours: nobody else's was made from another cluster.
pub(super) fn is_ours(cluster: &Cluster, existing: &management::Cluster, set: &ObjectSet) -> bool {
    let known = cluster
        .status
        .as_ref()
        .is_some_and(|status| Some(&status.cluster_name) == existing.metadata.name.as_ref());
    // One that was made before there were provisioning Clusters is shown by one of its name, which only we make.
    let shown = cluster.metadata.name.as_deref().is_some_and(naming::is_legacy)
        && cluster.metadata.name == existing.metadata.name;
    known || set.made(&existing.metadata) || shown
}

/// Workspace a cluster belongs to: what its annotation says, else where it is already, else its namespace.
pub(super) fn workspace(cluster: &Cluster, existing: Option<&management::Cluster>) -> String {
    let asked = cluster.annotations().get(annotation::FLEET_WORKSPACE_NAME).map(String::as_str);
    let known = existing.map(|existing| existing.spec.fleet_workspace_name.as_str());
    let found = [asked, known].into_iter().flatten().find(|workspace| !workspace.is_empty());
    found.map_or_else(|| cluster.namespace().unwrap_or_default(), str::to_owned)
}

/// What of a management Cluster a provisioning Cluster decides.
pub(super) fn desired(
    cluster: &Cluster,
    existing: Option<&management::Cluster>,
    images: &Images,
) -> Result<management::Cluster, Error> {
    let spec = &cluster.spec;
    let config = spec.rke_config.as_ref().map(|config| &config.config);
    let mut desired = management::Cluster::named(&name(cluster));
    desired.metadata.labels = Some(cluster.labels().clone());
    let mut annotations = cluster.annotations().clone();
    // Who applied the provisioning Cluster did not apply this one.
    annotations.remove(remuda_names::capi::annotation::LAST_APPLIED);
    let administrated = if config.is_some() { "true" } else { "false" };
    annotations.entry(annotation::ADMINISTRATED.to_owned()).or_insert_with(|| administrated.to_owned());
    desired.metadata.annotations = Some(annotations);

    let registry = Registry::of(config, &images.registry);
    let wanted = &mut desired.spec;
    wanted.imported_config = Some(ImportedConfig::default());
    wanted.display_name = cluster.name_any();
    wanted.description = cluster.annotations().get(annotation::DESCRIPTION).cloned().unwrap_or_default();
    wanted.fleet_workspace_name = workspace(cluster, existing);
    wanted.desired_agent_image = registry.resolve(&images.agent);
    wanted.desired_auth_image = registry.resolve(&images.auth);
    wanted
        .default_pod_security_admission_configuration_template_name
        .clone_from(&spec.default_pod_security_admission_configuration_template_name);
    wanted
        .default_cluster_role_for_project_members
        .clone_from(&spec.default_cluster_role_for_project_members);
    wanted.enable_network_policy = spec.enable_network_policy;
    wanted.agent_env_vars = environment(cluster);
    wanted.cluster_secrets = secrets(cluster, &registry, images);
    wanted.cluster_agent_deployment_customization = value(&spec.cluster_agent_deployment_customization)?;
    wanted.fleet_agent_deployment_customization = value(&spec.fleet_agent_deployment_customization)?;
    wanted.webhook_deployment_customization = value(&spec.webhook_deployment_customization)?;
    // The endpoint of a cluster that somebody else made is set where the cluster is known best.
    if config.is_some() {
        wanted.local_cluster_auth_endpoint = spec.local_cluster_auth_endpoint.clone();
    }
    Ok(desired)
}

fn environment(cluster: &Cluster) -> Vec<AgentEnvVar> {
    let given = cluster.spec.agent_env_vars.iter();
    let mut variables: Vec<AgentEnvVar> = given
        .map(|variable| AgentEnvVar {
            name: variable.name.clone(),
            value: variable.value.clone(),
            ..AgentEnvVar::default()
        })
        .collect();
    let config = cluster.spec.rke_config.as_ref();
    let directory = config.map(|config| config.config.data_directories.system_agent.as_str());
    if let Some(directory) = directory.filter(|directory| !directory.is_empty()) {
        let (name, value) = (env::AGENT_VAR_DIR.to_owned(), directory.to_owned());
        variables.push(AgentEnvVar { name, value, ..AgentEnvVar::default() });
    }
    variables
}

fn secrets(cluster: &Cluster, registry: &Registry, images: &Images) -> ClusterSecrets {
    let config = cluster.spec.rke_config.as_ref();
    let registries = config.and_then(|config| config.config.registries.as_ref());
    let secret = match registry {
        Registry::Own(url) => {
            let known = registries.and_then(|registries| registries.configs.get(url));
            known.map(|config| config.auth_config_secret_name.clone()).unwrap_or_default()
        }
        Registry::Global(url) if url.is_empty() => String::new(),
        Registry::Global(_) => images.pull_secret.clone(),
    };
    ClusterSecrets {
        private_registry_url: registry.url().to_owned(),
        private_registry_secret: secret,
        ..ClusterSecrets::default()
    }
}

fn value(customization: &Option<impl Serialize>) -> Result<Option<Value>, Error> {
    let encode = |source| Error::Encode { what: "a deployment customization", source };
    customization.as_ref().map(serde_json::to_value).transpose().map_err(encode)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(value: Value) -> Cluster {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_name_follows_from_the_object() {
        let made = cluster(json!({"metadata": {"name": "demo", "namespace": "a", "uid": "1"}}));
        let id = name(&made);
        assert!(id.starts_with("c-m-") && id.len() == 12, "{id}");
        assert_eq!(id, name(&made));
        assert_ne!(id, name(&cluster(json!({"metadata": {"name": "demo", "namespace": "a", "uid": "2"}}))));
        let asked = json!({"metadata": {"name": "demo", "annotations": {annotation::MANAGEMENT_CLUSTER_NAME: "c-m-x"}}});
        assert_eq!(name(&cluster(asked)), "c-m-x");
        assert_eq!(name(&cluster(json!({"metadata": {"name": "c-abc12", "uid": "1"}}))), "c-abc12");
        assert!(is_valid(&id) && !is_valid("kube-system") && !is_valid("c-") && !is_valid("c-m_"));
    }

    #[test]
    fn what_people_say_of_their_cluster_reaches_the_management_cluster() {
        let made = cluster(json!({
            "metadata": {
                "name": "demo", "namespace": "ws", "uid": "1", "labels": {"a": "b"},
                "annotations": {"field.cattle.io/description": "mine", "x": "y"},
            },
            "spec": {
                "agentEnvVars": [{"name": "A", "value": "1"}],
                "rkeConfig": {
                    "machineGlobalConfig": {"system-default-registry": "r.corp"},
                    "registries": {"configs": {"r.corp": {"authConfigSecretName": "auth"}}},
                    "dataDirectories": {"systemAgent": "/data/agent"},
                },
            },
        }));
        let images = Images {
            agent: "rancher/rancher-agent:v1".into(),
            auth: "rancher/kube-api-auth:v1".into(),
            ..Images::default()
        };
        let desired = desired(&made, None, &images).unwrap();
        let value = serde_json::to_value(&desired).unwrap();
        assert_eq!(
            value["spec"],
            json!({
                "displayName": "demo", "description": "mine", "fleetWorkspaceName": "ws", "importedConfig": {},
                "desiredAgentImage": "r.corp/rancher/rancher-agent:v1",
                "desiredAuthImage": "r.corp/rancher/kube-api-auth:v1",
                "agentEnvVars": [
                    {"name": "A", "value": "1"}, {"name": "CATTLE_AGENT_VAR_DIR", "value": "/data/agent"}],
                "clusterSecrets": {"privateRegistryURL": "r.corp", "privateRegistrySecret": "auth"},
            })
        );
        assert_eq!(value["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(value["metadata"]["annotations"][annotation::ADMINISTRATED], "true");
        assert_eq!(value["metadata"]["annotations"]["x"], "y");
    }
}
