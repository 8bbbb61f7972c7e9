//! Fields that are kept although nothing follows them yet. Who sets them is told once.

use kube::core::Resource;
use remuda_api::provisioning::Cluster;
use remuda_control::events::Recorder;

use crate::admission;

/// Tells of a spec that has not been looked at before.
pub(super) fn tell(recorder: &Recorder, cluster: &Cluster) {
    let seen = cluster.status.as_ref().map_or(0, |status| status.observed_generation);
    if seen == cluster.meta().generation.unwrap_or_default() {
        return;
    }
    for note in notes(cluster) {
        recorder.warning(cluster, "FieldIgnored", "Reconcile", note);
    }
}

fn notes(cluster: &Cluster) -> Vec<String> {
    let spec = &cluster.spec;
    let object = serde_json::to_value(cluster).unwrap_or_default();
    let mut notes = admission::warnings(None, &object);
    let mut ignored = |set: bool, path: &str| {
        if set {
            notes.push(format!("{path} is stored, but nothing follows it"));
        }
    };
    ignored(spec.fleet_agent_deployment_customization.is_some(), "spec.fleetAgentDeploymentCustomization");
    ignored(spec.webhook_deployment_customization.is_some(), "spec.webhookDeploymentCustomization");
    ignored(spec.enable_network_policy == Some(true), "spec.enableNetworkPolicy");
    ignored(spec.cluster_api_config.is_some(), "spec.clusterAPIConfig");
    ignored(
        !spec.default_pod_security_admission_configuration_template_name.is_empty(),
        "spec.defaultPodSecurityAdmissionConfigurationTemplateName",
    );
    ignored(spec.redeploy_system_agent_generation != 0, "spec.redeploySystemAgentGeneration");
    for pool in spec.rke_config.iter().flat_map(|config| &config.machine_pools) {
        let autoscaled = pool.autoscaling_min_size.is_some() || pool.autoscaling_max_size.is_some();
        ignored(
            autoscaled,
            &format!(
                "spec.rkeConfig.machinePools[{}].autoscalingMinSize (no autoscaler is deployed)",
                pool.name
            ),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nothing_follows_is_named() {
        let cluster: Cluster = serde_json::from_value(json!({"spec": {
            "clusterAPIConfig": {"clusterName": "x"},
            "enableNetworkPolicy": true,
            "rkeConfig": {},
        }}))
        .unwrap();
        assert_eq!(
            notes(&cluster),
            [
                "spec.enableNetworkPolicy is stored, but nothing follows it",
                "spec.clusterAPIConfig is stored, but nothing follows it",
            ]
        );
        assert!(notes(&Cluster::named("plain")).is_empty());
    }
}
