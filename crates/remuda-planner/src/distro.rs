//! What the spec of a cluster makes of its distribution: directories, images, registries.

use remuda_distro::Distro;

use crate::spec::{ControlPlaneSpec, Networking};

/// Directory of the distribution.
pub fn data_dir(spec: &ControlPlaneSpec) -> String {
    if spec.data_directories.k8s_distro.is_empty() {
        Distro::of(&spec.kubernetes_version).data_dir().to_owned()
    } else {
        spec.data_directories.k8s_distro.clone()
    }
}

/// Where the planner leaves things on nodes, unless the cluster says otherwise.
pub(crate) const PROVISIONING_DIR: &str = "/var/lib/rancher/capr";

/// Directory of what the planner itself leaves on nodes.
pub fn provisioning_dir(spec: &ControlPlaneSpec) -> &str {
    match spec.data_directories.provisioning.as_str() {
        "" => PROVISIONING_DIR,
        own => own,
    }
}

/// Host under which a node reaches itself.
pub fn loopback(networking: &Networking) -> &'static str {
    match networking.stack_preference.as_str() {
        "" | "dual" => "localhost",
        "ipv6" => "[::1]",
        _ => "127.0.0.1",
    }
}

/// The registry images come from, and whether that is the global setting.
pub fn system_registry<'a>(spec: &'a ControlPlaneSpec, setting: &'a str) -> (&'a str, bool) {
    const KEY: &str = "system-default-registry";
    let own = spec.machine_global_config.get(KEY).and_then(|value| value.as_str()).or_else(|| {
        spec.machine_selector_config
            .iter()
            .filter(|entry| entry.machine_label_selector.is_none())
            .find_map(|entry| entry.config.get(KEY).and_then(|value| value.as_str()))
    });
    match own {
        Some(own) => (own, false),
        None => (setting, true),
    }
}

/// The image that installs the distribution.
pub fn installer_image(spec: &ControlPlaneSpec, prefix: &str, setting: &str) -> String {
    let distro = Distro::of(&spec.kubernetes_version).name();
    let image = format!("{prefix}{distro}:{}", spec.kubernetes_version.replace('+', "-"));
    let (registry, _) = system_registry(spec, setting);
    if registry.is_empty() || image.starts_with(registry) {
        return image;
    }
    let image = if image.contains('/') { image } else { format!("rancher/{image}") };
    format!("{}/{}", registry.trim_end_matches('/'), image.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(version: &str, global: serde_json::Value) -> ControlPlaneSpec {
        serde_json::from_value(json!({"kubernetesVersion": version, "machineGlobalConfig": global})).unwrap()
    }

    #[test]
    fn installer_images_come_from_the_nearest_registry() {
        let prefix = "rancher/system-agent-installer-";
        let version = "v1.35.1+rke2r1";
        let image = |global, setting| installer_image(&spec(version, global), prefix, setting);
        assert_eq!(image(json!({}), ""), "rancher/system-agent-installer-rke2:v1.35.1-rke2r1");
        assert_eq!(image(json!({}), "reg.io"), "reg.io/rancher/system-agent-installer-rke2:v1.35.1-rke2r1");
        let own = json!({"system-default-registry": "own.io/x/"});
        assert_eq!(image(own, "reg.io"), "own.io/x/rancher/system-agent-installer-rke2:v1.35.1-rke2r1");
        assert_eq!(
            installer_image(&spec("v1.35.1+k3s1", json!({})), "installer-", "reg.io"),
            "reg.io/rancher/installer-k3s:v1.35.1-k3s1"
        );
    }

    #[test]
    fn selector_free_entries_can_name_the_registry() {
        let spec: ControlPlaneSpec = serde_json::from_value(json!({
            "machineSelectorConfig": [
                {"machineLabelSelector": {}, "config": {"system-default-registry": "no"}},
                {"config": {"system-default-registry": "yes"}},
            ],
        }))
        .unwrap();
        assert_eq!(system_registry(&spec, "global"), ("yes", false));
        assert_eq!(system_registry(&ControlPlaneSpec::default(), "global"), ("global", true));
    }

    #[test]
    fn loopback_follows_the_stack() {
        for (preference, host) in [
            ("", "localhost"),
            ("dual", "localhost"),
            ("ipv6", "[::1]"),
            ("ipv4", "127.0.0.1"),
            ("x", "127.0.0.1"),
        ] {
            assert_eq!(loopback(&Networking { stack_preference: preference.into() }), host);
        }
    }
}
