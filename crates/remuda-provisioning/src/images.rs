//! Which registry images come from.

use remuda_api::rke::ClusterConfiguration;
use serde_json::Value;

const KEY: &str = "system-default-registry";

/// Where the registry of a cluster was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Registry {
    /// In its own configuration.
    Own(String),
    /// In the setting; may be empty.
    Global(String),
}

impl Registry {
    pub(crate) fn of(config: Option<&ClusterConfiguration>, setting: &str) -> Self {
        let own = config.and_then(|config| {
            let mut everywhere = config.machine_selector_config.iter();
            let everywhere = everywhere.find(|selected| selected.machine_label_selector.is_none());
            [Some(&config.machine_global_config), everywhere.map(|selected| &selected.config)]
                .into_iter()
                .flatten()
                .find_map(|map| map.get(KEY).and_then(Value::as_str).filter(|text| !text.is_empty()))
        });
        own.map_or_else(|| Self::Global(setting.to_owned()), |own| Self::Own(own.to_owned()))
    }

    pub(crate) fn url(&self) -> &str {
        let (Self::Own(url) | Self::Global(url)) = self;
        url
    }

    /// The image in this registry.
    pub(crate) fn resolve(&self, image: &str) -> String {
        let registry = self.url().trim_end_matches('/');
        if registry.is_empty() || image.is_empty() || image.starts_with(registry) {
            return image.to_owned();
        }
        let namespace = if image.contains('/') { "" } else { "rancher/" };
        format!("{registry}/{namespace}{}", image.trim_start_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_cluster_comes_before_the_setting() {
        let config = |value| serde_json::from_value::<ClusterConfiguration>(value).unwrap();
        let own = config(json!({"machineGlobalConfig": {KEY: "r.corp"}}));
        assert_eq!(Registry::of(Some(&own), "s"), Registry::Own("r.corp".into()));
        let selected = config(json!({"machineSelectorConfig": [
            {"machineLabelSelector": {}, "config": {KEY: "no"}}, {"config": {KEY: "yes"}}]}));
        assert_eq!(Registry::of(Some(&selected), "s"), Registry::Own("yes".into()));
        assert_eq!(Registry::of(None, "s"), Registry::Global("s".into()));
    }

    #[test]
    fn images_are_put_into_the_registry_once() {
        let registry = Registry::Own("r.corp".into());
        assert_eq!(registry.resolve("rancher/agent:v1"), "r.corp/rancher/agent:v1");
        assert_eq!(registry.resolve("agent"), "r.corp/rancher/agent");
        assert_eq!(registry.resolve("r.corp/rancher/agent"), "r.corp/rancher/agent");
        assert_eq!(Registry::Global(String::new()).resolve("rancher/agent"), "rancher/agent");
    }
}
