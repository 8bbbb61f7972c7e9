//! The CustomResourceDefinitions, as they are applied when the server starts.

use serde_json::Value;

/// Grows with every change of the definitions, so that of two servers the newer one is known.
pub const REVISION: u32 = 1;

/// Definitions by name, as committed.
const DEFINITIONS: &[(&str, &str)] = &[
    ("clusters.cluster.x-k8s.io", include_str!("../crds/clusters.yaml")),
    ("machines.cluster.x-k8s.io", include_str!("../crds/machines.yaml")),
    ("machinesets.cluster.x-k8s.io", include_str!("../crds/machinesets.yaml")),
    ("machinedeployments.cluster.x-k8s.io", include_str!("../crds/machinedeployments.yaml")),
    ("machinehealthchecks.cluster.x-k8s.io", include_str!("../crds/machinehealthchecks.yaml")),
    ("machinedrainrules.cluster.x-k8s.io", include_str!("../crds/machinedrainrules.yaml")),
    ("machinepools.cluster.x-k8s.io", include_str!("../crds/machinepools.yaml")),
    ("clusterresourcesets.addons.cluster.x-k8s.io", include_str!("../crds/clusterresourcesets.yaml")),
    (
        "clusterresourcesetbindings.addons.cluster.x-k8s.io",
        include_str!("../crds/clusterresourcesetbindings.yaml"),
    ),
    ("providers.clusterctl.cluster.x-k8s.io", include_str!("../crds/providers.yaml")),
];

/// Names of all definitions, in the order they are applied.
pub fn names() -> impl Iterator<Item = &'static str> {
    DEFINITIONS.iter().map(|(name, _)| *name)
}

/// All definitions, in the order they are applied.
///
/// Their versions are converted in process, so none of them names a conversion webhook.
pub fn all() -> impl Iterator<Item = Value> {
    DEFINITIONS.iter().map(|(name, text)| parse(name, text))
}

/// One definition by its name.
pub fn named(name: &str) -> Option<Value> {
    DEFINITIONS.iter().find(|(known, _)| *known == name).map(|(name, text)| parse(name, text))
}

fn parse(name: &str, text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("committed definition {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remuda_schema::{CrdView, check_crd, default_crd};

    fn views() -> Vec<CrdView> {
        all()
            .map(|mut crd| {
                default_crd(&mut crd);
                CrdView::parse(&crd).unwrap()
            })
            .collect()
    }

    #[test]
    fn every_definition_is_accepted_by_our_own_server() {
        for mut crd in all() {
            default_crd(&mut crd);
            assert_eq!(check_crd(&crd, None), [], "{}", crd["metadata"]["name"]);
        }
    }

    #[test]
    fn names_are_those_of_the_definitions() {
        for (crd, name) in all().zip(names()) {
            assert_eq!(crd["metadata"]["name"], name);
        }
        assert!(named("clusters.cluster.x-k8s.io").is_some());
        assert!(named("cows.cluster.x-k8s.io").is_none());
    }

    #[test]
    fn the_newest_version_is_stored_and_the_older_one_served_with_a_warning() {
        for view in views().iter().filter(|view| view.kind != "Provider") {
            let found: Vec<_> = view
                .versions
                .iter()
                .map(|version| {
                    (version.name.as_str(), version.served, version.storage, version.deprecated.is_some())
                })
                .collect();
            assert_eq!(
                found,
                [("v1beta1", true, false, true), ("v1beta2", true, true, false)],
                "{}",
                view.kind
            );
        }
    }

    #[test]
    fn people_find_them_by_their_short_names_and_category() {
        let short: Vec<_> = views()
            .iter()
            .map(|view| {
                assert_eq!(view.categories, ["cluster-api"], "{}", view.kind);
                assert!(view.namespaced);
                format!("{}={}", view.plural, view.short_names.join(","))
            })
            .collect();
        assert_eq!(
            short.join(" "),
            "clusters=cl machines=ma machinesets=ms machinedeployments=md machinehealthchecks=mhc,mhcs \
             machinedrainrules= machinepools=mp clusterresourcesets= clusterresourcesetbindings= providers="
        );
    }

    #[test]
    fn columns_and_scale_are_those_people_know() {
        let views = views();
        let view =
            |kind: &str| views.iter().find(|view| view.kind == kind).unwrap().version("v1beta2").unwrap();
        let columns = |kind: &str| {
            let narrow = view(kind).columns.iter().filter(|column| column.priority == 0);
            narrow.map(|column| column.name.clone()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(
            columns("Machine"),
            "Cluster|Node Name|Failure domain|Ready|Available|Up-to-date|Phase|Age|Version"
        );
        assert_eq!(
            columns("Cluster"),
            "ClusterClass|Available|CP Desired|CP Available|CP Up-to-date|W Desired|W Available|W Up-to-date|Phase|Age|Version"
        );
        let scale = view("MachineDeployment").scale.as_ref().unwrap();
        assert_eq!(scale.label_selector.as_deref(), Some(".status.selector"));
        assert_eq!(view("MachinePool").scale.as_ref().unwrap().label_selector, None);
        assert!(view("MachineDrainRule").scale.is_none() && !view("MachineDrainRule").status);
    }

    #[test]
    fn clusterctl_recognizes_them() {
        for crd in all() {
            let labels = &crd["metadata"]["labels"];
            assert_eq!(labels["clusterctl.cluster.x-k8s.io"], "");
            let inventory = crd["spec"]["names"]["kind"] == "Provider";
            assert_eq!(labels["cluster.x-k8s.io/provider"] == "cluster-api", !inventory);
        }
    }
}
