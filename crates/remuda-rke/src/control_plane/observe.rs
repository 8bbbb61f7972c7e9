//! What the planner looks at.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use rand::RngExt;
use remuda_api::{core::Cluster, rke::RkeControlPlane};
use remuda_control::ObjectKey;
use remuda_names::{
    gateway::secret::TOKEN_PREFIX,
    rancher::{name, secret_key, secret_type, setting},
};
use remuda_planner::{
    distro,
    input::{
        self, AgentManifest, ClusterAgent, ControlPlane, Input, Resources, Settings, StateSecret, Tokens,
    },
};

use super::{ControlPlanes, is_connected, not_initialized};
use crate::{Error, install::Server, objects, settings};

/// Of random tokens.
const TOKEN_LENGTH: usize = 54;
const TOKEN_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(super) struct Observed {
    /// Without machines.
    pub(super) input: Input,
    pub(super) cluster: ObjectKey,
}

/// Settings that reach plans.
pub(super) fn concerns(name: &str) -> bool {
    [
        setting::SERVER_URL,
        setting::CACERTS,
        setting::AGENT_TLS_MODE,
        setting::INSTALLER_IMAGE,
        setting::SYSTEM_DEFAULT_REGISTRY,
        setting::SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS,
        setting::AGENT_IMAGE,
        setting::AUTH_IMAGE,
        setting::SERVER_VERSION,
        setting::INSTALL_UUID,
        setting::PRIME_DEFAULT,
    ]
    .contains(&name)
}

impl ControlPlanes {
    pub(super) async fn observe(&self, key: &ObjectKey, object: &RkeControlPlane) -> Result<Observed, Error> {
        let rke = &self.rke;
        let decode = |source| Error::Decode { what: format!("RKEControlPlane {key}"), source };
        let mut control_plane =
            ControlPlane::read(&serde_json::to_value(object).map_err(decode)?).map_err(decode)?;
        // A management Cluster that is missing says nothing about its agent.
        let managed = rke.managed.get(&ObjectKey::cluster_wide(&object.spec.management_cluster_name));
        if let Some(managed) = &managed {
            control_plane.status.agent_connected = is_connected(managed);
        }
        let owner = objects::owner(&object.metadata, "Cluster");
        let cluster = owner.and_then(|owner| rke.clusters.get(&key.sibling(&owner.name)));
        let settings = settings::of_plans(&rke.settings);
        let state = key.sibling(objects::state_name(&key.name));
        let token = ObjectKey::namespaced(
            &object.spec.management_cluster_name,
            format!("{TOKEN_PREFIX}{}", name::DEFAULT_TOKEN),
        );
        let resources = self.resources(key, &control_plane, &settings, [&state, &token]).await?;
        let state = self.state(&state).await?;
        let fresh_tokens = match &state {
            StateSecret::Missing => Tokens { server: random_token(), agent: random_token() },
            _ => Tokens::default(),
        };
        let input = Input {
            now: rke.ctx.clock.now(),
            release: rke.options.releases.get().facts(&control_plane.spec.kubernetes_version),
            agent_manifest: self
                .agent_manifest(object, &control_plane, &settings, managed.as_deref(), &token)
                .await?,
            cluster: cluster.as_deref().map(self::cluster),
            control_plane,
            machines: Vec::new(),
            state,
            fresh_tokens,
            resources,
            settings,
            snapshots: crate::snapshots::of(rke, key),
            pre_bootstrap: Vec::new(),
        };
        let cluster = cluster.map_or_else(|| key.clone(), |cluster| ObjectKey::of(&cluster.metadata));
        Ok(Observed { input, cluster })
    }

    /// Objects the control plane refers to. Changes of these, and of `others`, wake it from now on.
    async fn resources(
        &self,
        key: &ObjectKey,
        control_plane: &ControlPlane,
        settings: &Settings,
        others: [&ObjectKey; 2],
    ) -> Result<Resources, Error> {
        let references = input::references(control_plane, settings);
        let keys = |named: &BTreeSet<(String, String)>| -> BTreeSet<ObjectKey> {
            named.iter().map(|(namespace, name)| ObjectKey::namespaced(namespace, name)).collect()
        };
        let mut secrets = keys(&references.secrets);
        secrets.extend(others.into_iter().cloned());
        self.wanted.note(key, &secrets, &keys(&references.config_maps));
        let mut resources = Resources::default();
        for (namespace, name) in references.secrets {
            let key = ObjectKey::namespaced(&namespace, &name);
            if let Some(secret) = self.rke.secrets.get(&key).await? {
                resources.secrets.insert((namespace, name), self::secret(&secret));
            }
        }
        for (namespace, name) in references.config_maps {
            let key = ObjectKey::namespaced(&namespace, &name);
            if let Some(map) = self.rke.config_maps.get(&key).await? {
                resources.config_maps.insert((namespace, name), config_map(&map));
            }
        }
        Ok(resources)
    }

    async fn state(&self, key: &ObjectKey) -> Result<StateSecret, Error> {
        let Some(secret) = self.rke.secrets.get(key).await? else {
            return Ok(StateSecret::Missing);
        };
        let kind = secret.type_.as_deref().unwrap_or_default();
        if kind != secret_type::CLUSTER_STATE {
            return Ok(StateSecret::WrongType(kind.to_owned()));
        }
        let text = |key| text_of(&secret, key).unwrap_or_default();
        Ok(StateSecret::Present(Tokens {
            server: text(secret_key::SERVER_TOKEN),
            agent: text(secret_key::AGENT_TOKEN),
        }))
    }

    async fn agent_manifest(
        &self,
        object: &RkeControlPlane,
        control_plane: &ControlPlane,
        settings: &Settings,
        managed: Option<&remuda_api::management::Cluster>,
        token: &ObjectKey,
    ) -> Result<AgentManifest, Error> {
        let cluster = &object.spec.management_cluster_name;
        if cluster == name::LOCAL || managed.is_some_and(|managed| managed.spec.internal) {
            return Ok(AgentManifest::Local);
        }
        let secret = self.rke.secrets.get(token).await?;
        let token = secret.and_then(|secret| text_of(&secret, secret_key::TOKEN));
        let (Some(token), Some(server)) =
            (token.filter(|token| !token.is_empty()), Server::read(&self.rke.settings))
        else {
            return Ok(AgentManifest::NoToken);
        };
        let value = |name| settings::value(&self.rke.settings, name);
        let (registry, global) =
            distro::system_registry(&control_plane.spec, &settings.system_default_registry);
        let own = managed.map(|managed| managed.spec.agent_image_override.clone()).unwrap_or_default();
        let agent_image = if own.is_empty() { value(setting::AGENT_IMAGE) } else { own };
        let pull_secrets = if global && !registry.is_empty() {
            self.pull_secrets(&settings.pull_secrets).await?
        } else {
            Vec::new()
        };
        let agent = ClusterAgent {
            server_url: server.url,
            ca_checksum: server.checksum,
            strict: server.strict,
            token,
            cluster: cluster.clone(),
            image: image(&agent_image, registry),
            auth_image: object
                .spec
                .local_cluster_auth_endpoint
                .enabled
                .then(|| image(&value(setting::AUTH_IMAGE), registry)),
            registry: registry.to_owned(),
            server_version: value(setting::SERVER_VERSION),
            install_uuid: value(setting::INSTALL_UUID),
            env: object.spec.agent_env_vars.iter().map(|var| (var.name.clone(), var.value.clone())).collect(),
            customization: managed
                .and_then(|managed| managed.spec.cluster_agent_deployment_customization.clone()),
            pull_secrets,
        };
        Ok(AgentManifest::Agent(Box::new(agent)))
    }
}

impl ControlPlanes {
    /// Credentials the agent in a cluster needs for the registry of system images. One that is missing or of
    /// another type is left out: the plans of the nodes say so.
    async fn pull_secrets(&self, names: &[String]) -> Result<Vec<(String, String)>, Error> {
        let mut found = Vec::new();
        for name in names {
            let key = ObjectKey::namespaced(remuda_names::rancher::name::SYSTEM, name);
            let secret = self.rke.secrets.get(&key).await?;
            let text = secret.and_then(|secret| text_of(&secret, ".dockerconfigjson"));
            found.extend(text.map(|text| (name.clone(), text)));
        }
        Ok(found)
    }
}

/// An image as it is pulled from the registry of system images, if there is one.
fn image(image: &str, registry: &str) -> String {
    if registry.is_empty() || image.starts_with(registry) {
        return image.to_owned();
    }
    let image = if image.contains('/') { image.to_owned() } else { format!("rancher/{image}") };
    format!("{}/{image}", registry.trim_end_matches('/'))
}

/// A Cluster as the planner sees it.
pub(super) fn cluster(cluster: &Cluster) -> input::Cluster {
    input::Cluster {
        name: cluster.name_any(),
        deleting: objects::is_deleting(&cluster.metadata),
        paused: objects::is_paused(cluster, &cluster.metadata),
        infrastructure_provisioned: objects::is_provisioned(cluster),
        control_plane_not_initialized: not_initialized(cluster),
    }
}

fn text_of(secret: &Secret, key: &str) -> Option<String> {
    let value = secret.data.as_ref()?.get(key)?;
    String::from_utf8(value.0.clone()).ok()
}

fn secret(secret: &Secret) -> input::Secret {
    let data = secret.data.iter().flatten();
    input::Secret {
        kind: secret.type_.clone().unwrap_or_default(),
        annotations: secret.annotations().clone(),
        data: data.map(|(key, value)| (key.clone(), value.0.clone())).collect(),
    }
}

fn config_map(map: &ConfigMap) -> input::ConfigMap {
    input::ConfigMap { annotations: map.annotations().clone(), data: map.data.clone().unwrap_or_default() }
}

/// Tokens by which nodes join. The generator is one for secrets.
fn random_token() -> String {
    let mut random = rand::rng();
    (0..TOKEN_LENGTH)
        .map(|_| char::from(TOKEN_ALPHABET[random.random_range(0..TOKEN_ALPHABET.len())]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_never_the_same() {
        let token = random_token();
        assert_eq!(token.len(), TOKEN_LENGTH);
        assert!(token.bytes().all(|byte| TOKEN_ALPHABET.contains(&byte)));
        assert_ne!(token, random_token());
    }

    #[test]
    fn the_agents_image_comes_from_the_nearest_registry() {
        assert_eq!(image("rancher/rancher-agent:v1", ""), "rancher/rancher-agent:v1");
        assert_eq!(image("rancher/rancher-agent:v1", "reg.io/"), "reg.io/rancher/rancher-agent:v1");
        assert_eq!(image("agent:v1", "reg.io"), "reg.io/rancher/agent:v1");
        assert_eq!(image("reg.io/agent:v1", "reg.io"), "reg.io/agent:v1");
    }
}
