//! What enqueues provisioning Clusters.

use kube::{Resource, ResourceExt};
use remuda_api::provisioning::Cluster;
use remuda_control::{Controller, DEBOUNCE, ObjectKey};
use remuda_names::{
    capi,
    rancher::{group, setting},
};

use super::{BY_CONFIG_KIND, BY_CREDENTIAL, BY_MANAGEMENT, BY_USER, Clusters};
use crate::naming;

impl Clusters {
    /// The watches of the controller. Everything a cluster consists of has its name.
    pub(super) fn watches(&self, controller: Controller<Cluster>) -> Controller<Cluster> {
        let managed = |index: &'static str| {
            let clusters = self.clusters.clone();
            move |value: &str| clusters.keys_by_index(index, value)
        };
        let by_management = managed(BY_MANAGEMENT);
        let by_user = managed(BY_USER);
        let by_schema = managed(BY_CONFIG_KIND);
        let by_definition = managed(BY_CONFIG_KIND);
        let by_credential = managed(BY_CREDENTIAL);
        let all = self.clusters.clone();
        let dying = self.clusters.clone();
        controller
            .watches(&self.managements, move |management| by_management(&management.name_any()))
            .watches_debounced(DEBOUNCE, &self.control_planes, |object| vec![ObjectKey::of(object.meta())])
            .watches_debounced(DEBOUNCE, &self.capi_clusters, |object| vec![ObjectKey::of(object.meta())])
            .watches(&self.infrastructures, |object| vec![ObjectKey::of(object.meta())])
            .watches(&self.bootstrap_templates, |object| sibling(object, &object.spec.cluster_name))
            .watches_debounced(DEBOUNCE, &self.deployments, |object| {
                sibling(object, &object.spec.cluster_name)
            })
            .watches(&self.health_checks, |object| sibling(object, &object.spec.cluster_name))
            .watches(&self.machines, move |machine| {
                // Machines come and go all the time; only a cluster that goes waits for them.
                let keys = sibling(machine, &machine.spec.cluster_name);
                let goes = |key: &ObjectKey| {
                    dying.get(key).is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_some())
                };
                keys.into_iter().filter(goes).collect()
            })
            .watches(&self.schemas, move |schema| by_schema(&schema.name_any()))
            .watches(&self.definitions, move |definition| {
                let name = definition.name_any();
                let kind = match name.split_once('.') {
                    Some((plural, group::MACHINE_CONFIG)) => plural.strip_suffix('s').map(str::to_owned),
                    Some((plural, group::MACHINE)) => {
                        plural.strip_suffix("machinetemplates").map(|driver| format!("{driver}config"))
                    }
                    _ => None,
                };
                kind.map(|kind| by_definition(&kind)).unwrap_or_default()
            })
            .watches(&self.secrets, move |secret| by_credential(&ObjectKey::of(secret.meta()).to_string()))
            .watches(self.settings.informer(), move |setting| {
                let name = setting.name_any();
                if WATCHED_SETTINGS.contains(&name.as_str()) { all.keys() } else { Vec::new() }
            })
            .watches(&self.tokens, move |token| by_user(&token.name_any()))
            .watches(&self.kubeconfigs, |secret| {
                let cluster = secret.labels().get(capi::label::CLUSTER_NAME).cloned().unwrap_or_default();
                if secret.name_any() == naming::of::kubeconfig_secret(&cluster) {
                    sibling(secret, &cluster)
                } else {
                    Vec::new()
                }
            })
    }
}

const WATCHED_SETTINGS: [&str; 7] = [
    setting::SERVER_URL,
    setting::CACERTS,
    setting::INTERNAL_CACERTS,
    setting::AGENT_IMAGE,
    setting::AUTH_IMAGE,
    setting::SYSTEM_DEFAULT_REGISTRY,
    setting::SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS,
];

pub(super) fn sibling<K: Resource>(object: &K, cluster: &str) -> Vec<ObjectKey> {
    if cluster.is_empty() { Vec::new() } else { vec![ObjectKey::of(object.meta()).sibling(cluster)] }
}
