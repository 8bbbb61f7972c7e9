//! What of a cluster's spec returns to its former state when a snapshot is restored.

use kube::{Resource, ResourceExt};
use remuda_api::{
    provisioning::{Cluster, ClusterSpec, RkeConfig},
    rke::{RkeControlPlane, SnapshotRestore},
};
use serde_json::json;

use crate::{
    Error,
    admission::references::{self, Place},
};

/// The restore that wants the spec of the snapshot, unless the control plane has taken it up already.
pub(super) fn wanted<'a>(
    config: &'a RkeConfig,
    control_plane: Option<&RkeControlPlane>,
) -> Option<&'a SnapshotRestore> {
    let control_plane = control_plane?;
    let restore = config.etcd_snapshot_restore.as_ref()?;
    let taken = control_plane.status.as_ref().and_then(|status| status.etcd_snapshot_restore.as_ref());
    let rolls_back = !matches!(restore.restore_rke_config.as_str(), "" | "none");
    (rolls_back && taken != Some(restore)).then_some(restore)
}

/// The spec after the rollback; `None` if nothing differs. Pools, etcd and directories never go back.
pub(super) fn roll_back(spec: &ClusterSpec, former: &ClusterSpec, mode: &str) -> Option<ClusterSpec> {
    let mut after = spec.clone();
    after.kubernetes_version.clone_from(&former.kubernetes_version);
    if let (true, Some(config), Some(former_config)) =
        (mode == "all", &mut after.rke_config, &former.rke_config)
    {
        let (now, then) = (&mut config.config, former_config.config.clone());
        now.machine_global_config = then.machine_global_config;
        now.machine_selector_config = then.machine_selector_config;
        now.chart_values = then.chart_values;
        now.registries = then.registries;
        now.upgrade_strategy = then.upgrade_strategy;
        now.additional_manifest = then.additional_manifest;
        now.networking = then.networking;
        after
            .default_pod_security_admission_configuration_template_name
            .clone_from(&former.default_pod_security_admission_configuration_template_name);
        after
            .cluster_agent_deployment_customization
            .clone_from(&former.cluster_agent_deployment_customization);
        after.fleet_agent_deployment_customization.clone_from(&former.fleet_agent_deployment_customization);
        after.webhook_deployment_customization.clone_from(&former.webhook_deployment_customization);
    }
    (after != *spec).then_some(after)
}

/// The first object that the spec after a rollback names and the spec before does not, with its field. A snapshot
/// comes from machines, and a name in it was never authorized: people write it into the spec first.
pub(super) fn introduces(cluster: &Cluster, after: &ClusterSpec) -> Result<Option<(String, String)>, Error> {
    let encode = |source| Error::Encode { what: "a spec", source };
    let object =
        |spec: &ClusterSpec| serde_json::to_value(spec).map(|spec| json!({"spec": spec})).map_err(encode);
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let (group, kind) = (Cluster::group(&()), Cluster::kind(&()));
    let place = Place { group: &group, kind: &kind, namespace: &namespace, name: &name };
    let described = match references::introduced(place, Some(&object(&cluster.spec)?), &object(after)?) {
        Ok(introduced) => introduced.into_iter().next().map(|reference| {
            let target = reference.target;
            (reference.field, format!("{} {}/{}", target.kind, target.namespace, target.name))
        }),
        Err(too_many) => Some(("spec".to_owned(), too_many.to_string())),
    };
    Ok(described)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: Value) -> ClusterSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_what_belongs_to_the_snapshot_goes_back() {
        let now = spec(json!({
            "kubernetesVersion": "v2",
            "rkeConfig": {"machineGlobalConfig": {"cni": "b"}, "etcd": {"snapshotRetention": 9},
                "machinePools": [{"name": "new"}]},
        }));
        let then = spec(json!({
            "kubernetesVersion": "v1",
            "rkeConfig": {"machineGlobalConfig": {"cni": "a"}, "etcd": {"snapshotRetention": 1},
                "machinePools": [{"name": "old"}]},
        }));
        let version = roll_back(&now, &then, "kubernetesVersion").unwrap();
        assert_eq!(version.kubernetes_version, "v1");
        assert_eq!(version.rke_config, now.rke_config);
        let all = roll_back(&now, &then, "all").unwrap();
        let config = all.rke_config.as_ref().unwrap();
        assert_eq!(config.config.machine_global_config["cni"], "a");
        assert_eq!(config.config.etcd, now.rke_config.as_ref().unwrap().config.etcd);
        assert_eq!(config.machine_pools[0].name, "new");
        assert_eq!(roll_back(&all, &then, "all"), None);
    }

    #[test]
    fn a_snapshot_brings_no_names_of_its_own() {
        let with = |secret: &str, argument: &str| {
            spec(json!({"kubernetesVersion": "v1", "rkeConfig": {
                "registries": {"configs": {"r.corp": {"authConfigSecretName": secret}}},
                "machineGlobalConfig": {"cloud-provider-config": argument},
            }}))
        };
        let mut cluster = Cluster::named("demo");
        cluster.metadata.namespace = Some("fleet-default".to_owned());
        cluster.spec = with("mine", "plain");
        let found = |then: &ClusterSpec| {
            let after = roll_back(&cluster.spec, then, "all").unwrap();
            introduces(&cluster, &after).unwrap()
        };
        let mut then = with("mine", "plain");
        then.kubernetes_version = "v0".to_owned();
        assert_eq!(found(&then), None);
        let (field, object) = found(&with("theirs", "plain")).unwrap();
        assert_eq!(field, "spec.rkeConfig.registries.configs[r.corp].authConfigSecretName");
        assert_eq!(object, "Secret fleet-default/theirs");
        let (field, object) = found(&with("mine", "secret://kube-system:x")).unwrap();
        assert_eq!(field, "spec.rkeConfig.machineGlobalConfig.cloud-provider-config");
        assert_eq!(object, "Secret kube-system/x");
    }

    #[test]
    fn a_restore_is_taken_up_once() {
        let config: RkeConfig = serde_json::from_value(
            json!({"etcdSnapshotRestore": {"name": "s", "generation": 1, "restoreRKEConfig": "all"}}),
        )
        .unwrap();
        let mut control_plane = RkeControlPlane::default();
        assert!(wanted(&config, None).is_none());
        assert!(wanted(&config, Some(&control_plane)).is_some());
        control_plane.status.get_or_insert_default().etcd_snapshot_restore =
            config.etcd_snapshot_restore.clone();
        assert!(wanted(&config, Some(&control_plane)).is_none());
    }
}
