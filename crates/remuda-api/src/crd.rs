//! The CustomResourceDefinitions, as they are applied when the server starts.
//!
//! `crds/*.yaml` hold what a type cannot say: bounds, patterns, columns, the older version.
//! `cargo xtask crds` writes into them what the types and names say (descriptions and labels) and
//! counts up `crds/revision`; the tests here fail when that was forgotten, or when types and
//! schemas do not have the same fields.

#[cfg(test)]
mod drift;
#[cfg(test)]
mod generate;
#[cfg(test)]
mod types;
#[cfg(test)]
mod words;

use serde_json::Value;

/// Grows with every change of the definitions, so that of two servers the newer one is known.
pub const REVISION: u32 = leading_number(include_str!("../crds/revision").as_bytes());

/// Beside the number the file says for which definitions it stands.
const fn leading_number(text: &[u8]) -> u32 {
    let (mut number, mut place) = (0, 0);
    while place < text.len() && text[place].is_ascii_digit() {
        number = number * 10 + (text[place] - b'0') as u32;
        place += 1;
    }
    number
}

/// A definition as it is committed.
struct Committed {
    name: &'static str,
    /// Below `crds`.
    #[cfg_attr(not(test), expect(dead_code, reason = "only generating writes files"))]
    file: &'static str,
    text: &'static str,
}

macro_rules! committed {
    ($($name:literal in $file:literal,)*) => {
        &[$(Committed { name: $name, file: $file, text: include_str!(concat!("../crds/", $file)) },)*]
    };
}

const CLUSTER_API: &[Committed] = committed! {
    "clusters.cluster.x-k8s.io" in "clusters.yaml",
    "machines.cluster.x-k8s.io" in "machines.yaml",
    "machinesets.cluster.x-k8s.io" in "machinesets.yaml",
    "machinedeployments.cluster.x-k8s.io" in "machinedeployments.yaml",
    "machinehealthchecks.cluster.x-k8s.io" in "machinehealthchecks.yaml",
    "machinedrainrules.cluster.x-k8s.io" in "machinedrainrules.yaml",
    "machinepools.cluster.x-k8s.io" in "machinepools.yaml",
    "clusterresourcesets.addons.cluster.x-k8s.io" in "clusterresourcesets.yaml",
    "clusterresourcesetbindings.addons.cluster.x-k8s.io" in "clusterresourcesetbindings.yaml",
    "ipaddressclaims.ipam.cluster.x-k8s.io" in "ipam.cluster.x-k8s.io/ipaddressclaims.yaml",
    "ipaddresses.ipam.cluster.x-k8s.io" in "ipam.cluster.x-k8s.io/ipaddresses.yaml",
    "inclusterippools.ipam.cluster.x-k8s.io" in "ipam.cluster.x-k8s.io/inclusterippools.yaml",
    "globalinclusterippools.ipam.cluster.x-k8s.io" in "ipam.cluster.x-k8s.io/globalinclusterippools.yaml",
    "providers.clusterctl.cluster.x-k8s.io" in "providers.yaml",
};

const RANCHER: &[Committed] = committed! {
    "clusters.provisioning.cattle.io" in "provisioning.cattle.io/clusters.yaml",
    "rkeclusters.rke.cattle.io" in "rke.cattle.io/rkeclusters.yaml",
    "rkecontrolplanes.rke.cattle.io" in "rke.cattle.io/rkecontrolplanes.yaml",
    "rkebootstraps.rke.cattle.io" in "rke.cattle.io/rkebootstraps.yaml",
    "rkebootstraptemplates.rke.cattle.io" in "rke.cattle.io/rkebootstraptemplates.yaml",
    "custommachines.rke.cattle.io" in "rke.cattle.io/custommachines.yaml",
    "etcdsnapshots.rke.cattle.io" in "rke.cattle.io/etcdsnapshots.yaml",
    "clusters.management.cattle.io" in "management.cattle.io/clusters.yaml",
    "clusterregistrationtokens.management.cattle.io" in "management.cattle.io/clusterregistrationtokens.yaml",
    "nodes.management.cattle.io" in "management.cattle.io/nodes.yaml",
    "settings.management.cattle.io" in "management.cattle.io/settings.yaml",
    "features.management.cattle.io" in "management.cattle.io/features.yaml",
    "fleetworkspaces.management.cattle.io" in "management.cattle.io/fleetworkspaces.yaml",
    "nodedrivers.management.cattle.io" in "management.cattle.io/nodedrivers.yaml",
    "dynamicschemas.management.cattle.io" in "management.cattle.io/dynamicschemas.yaml",
    "users.management.cattle.io" in "management.cattle.io/users.yaml",
    "tokens.management.cattle.io" in "management.cattle.io/tokens.yaml",
    "authconfigs.management.cattle.io" in "management.cattle.io/authconfigs.yaml",
    "globalroles.management.cattle.io" in "management.cattle.io/globalroles.yaml",
    "globalrolebindings.management.cattle.io" in "management.cattle.io/globalrolebindings.yaml",
    "roletemplates.management.cattle.io" in "management.cattle.io/roletemplates.yaml",
    "clusterroletemplatebindings.management.cattle.io" in "management.cattle.io/clusterroletemplatebindings.yaml",
    "workspacequotas.remuda.io" in "remuda.io/workspacequotas.yaml",
};

fn committed() -> impl Iterator<Item = &'static Committed> {
    CLUSTER_API.iter().chain(RANCHER)
}

/// Names of the definitions of Cluster API, in the order they are applied.
pub fn names() -> impl Iterator<Item = &'static str> {
    CLUSTER_API.iter().map(|definition| definition.name)
}

/// The definitions of Cluster API, in the order they are applied.
///
/// Their versions are converted in process, so none of them names a conversion webhook.
pub fn all() -> impl Iterator<Item = Value> {
    CLUSTER_API.iter().map(Committed::parse)
}

/// Whether upstream's core provider brings a definition of this name as well. Pools of addresses are another provider's,
/// which may be there instead of ours.
pub fn is_of_core(name: &str) -> bool {
    names().any(|known| known == name) && !name.ends_with("inclusterippools.ipam.cluster.x-k8s.io")
}

/// Names of the definitions of Rancher's kinds, in the order they are applied.
pub fn rancher_names() -> impl Iterator<Item = &'static str> {
    RANCHER.iter().map(|definition| definition.name)
}

/// The definitions of Rancher's kinds, in the order they are applied. Each has one version.
pub fn rancher() -> impl Iterator<Item = Value> {
    RANCHER.iter().map(Committed::parse)
}

/// One definition by its name, of either.
pub fn named(name: &str) -> Option<Value> {
    committed().find(|known| known.name == name).map(Committed::parse)
}

impl Committed {
    fn parse(&self) -> Value {
        serde_saphyr::from_str(self.text)
            .unwrap_or_else(|error| panic!("committed definition {}: {error}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remuda_schema::{CrdView, check_crd, default_crd};

    fn views() -> Vec<CrdView> {
        parsed(all())
    }

    fn parsed(crds: impl Iterator<Item = Value>) -> Vec<CrdView> {
        crds.map(|mut crd| {
            default_crd(&mut crd);
            CrdView::parse(&crd).unwrap()
        })
        .collect()
    }

    #[test]
    fn every_definition_is_accepted_by_our_own_server() {
        for mut crd in all().chain(rancher()) {
            default_crd(&mut crd);
            assert_eq!(check_crd(&crd, None), [], "{}", crd["metadata"]["name"]);
        }
    }

    #[test]
    fn names_are_those_of_the_definitions() {
        for (crd, name) in all().chain(rancher()).zip(names().chain(rancher_names())) {
            assert_eq!(crd["metadata"]["name"], name);
        }
        assert!(named("clusters.cluster.x-k8s.io").is_some());
        assert!(named("cows.cluster.x-k8s.io").is_none());
    }

    /// Pools of addresses are those of a provider, and have its versions.
    fn is_pool(view: &CrdView) -> bool {
        view.kind.ends_with("InClusterIPPool")
    }

    #[test]
    fn the_newest_version_is_stored_and_the_older_one_served_with_a_warning() {
        for view in views().iter().filter(|view| view.kind != "Provider" && !is_pool(view)) {
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
                assert_eq!(view.namespaced, view.kind != "GlobalInClusterIPPool");
                format!("{}={}", view.plural, view.short_names.join(","))
            })
            .collect();
        assert_eq!(
            short.join(" "),
            "clusters=cl machines=ma machinesets=ms machinedeployments=md machinehealthchecks=mhc,mhcs \
             machinedrainrules= machinepools=mp clusterresourcesets= clusterresourcesetbindings= ipaddressclaims= ipaddresses= \
             inclusterippools= globalinclusterippools= providers="
        );
    }

    /// Columns of a version; those that only a wide table shows have a plus.
    fn columns(view: &CrdView, version: &str) -> String {
        let columns = view.version(version).unwrap().columns.iter();
        let names = columns.map(|column| match column.priority {
            0 => column.name.clone(),
            _ => format!("{}+", column.name),
        });
        names.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn columns_are_those_people_know() {
        let expected = "
            Cluster v1beta1: ClusterClass|Phase|Age|Version
            Cluster v1beta2: ClusterClass|Available|CP Desired|CP Current+|CP Ready+|CP Available|CP Up-to-date|W Desired|W Current+|W Ready+|W Available|W Up-to-date|Paused+|Phase|Age|Version
            Machine v1beta1: Cluster|NodeName|ProviderID|Phase|Age|Version
            Machine v1beta2: Cluster|Node Name|Provider ID+|Failure domain|Ready|Available|Up-to-date|Internal-IP+|External-IP+|OS-Image+|Paused+|Phase|Age|Version
            MachineSet v1beta1: Cluster|Desired+|Replicas|Ready|Available|Age|Version
            MachineSet v1beta2: Cluster|Desired|Current|Ready|Available|Up-to-date|Paused+|Age|Version
            MachineDeployment v1beta1: Cluster|Desired+|Replicas|Ready|Updated|Unavailable|Phase|Age|Version
            MachineDeployment v1beta2: Cluster|Available|Desired|Current|Ready|Available|Up-to-date|Paused+|Phase|Age|Version
            MachineHealthCheck v1beta1: Cluster|ExpectedMachines|MaxUnhealthy|CurrentHealthy|Age
            MachineHealthCheck v1beta2: Cluster|Replicas|Healthy|Paused+|Age
            MachineDrainRule v1beta1: Behavior|Order|Age
            MachineDrainRule v1beta2: Behavior|Order|Age
            MachinePool v1beta1: Cluster|Desired+|Replicas|Phase|Age|Version
            MachinePool v1beta2: Cluster|Desired|Current|Ready|Available|Up-to-date|Paused+|Phase|Age|Version
            ClusterResourceSet v1beta1: Age
            ClusterResourceSet v1beta2: Applied|Paused+|Age
            ClusterResourceSetBinding v1beta1: Age
            ClusterResourceSetBinding v1beta2: Cluster|Age
            IPAddressClaim v1beta1: Pool Name|Pool Kind|Age
            IPAddressClaim v1beta2: Pool Name|Pool Kind|Age
            IPAddress v1beta1: Address|Pool Name|Pool Kind|Age
            IPAddress v1beta2: Address|Pool Name|Pool Kind|Age
            InClusterIPPool v1alpha2: Addresses|Total|Free|Used
            GlobalInClusterIPPool v1alpha2: Addresses|Total|Free|Used
            Provider v1alpha3: Age|Type|Provider|Version";
        let mut found = Vec::new();
        for view in &views() {
            for version in &view.versions {
                found.push(format!("{} {}: {}", view.kind, version.name, columns(view, &version.name)));
            }
        }
        let expected: Vec<_> = expected.trim().lines().map(str::trim).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn status_and_scale_are_where_clients_look_for_them() {
        for view in &views() {
            for version in &view.versions {
                let known = format!("{} {}", view.kind, version.name);
                // The older binding has one that nothing is ever written to.
                let has_status = known == "ClusterResourceSetBinding v1beta1"
                    || !["MachineDrainRule", "ClusterResourceSetBinding", "IPAddress", "Provider"]
                        .contains(&view.kind.as_str());
                assert_eq!(version.status, has_status, "{known}");
                let scale = version.scale.as_ref();
                assert_eq!(
                    scale.is_some(),
                    ["MachineSet", "MachineDeployment", "MachinePool"].contains(&view.kind.as_str()),
                    "{known}"
                );
                if let Some(scale) = scale {
                    assert_eq!(scale.spec_replicas, ".spec.replicas");
                    assert_eq!(scale.status_replicas, ".status.replicas");
                    let selector = (view.kind != "MachinePool").then_some(".status.selector");
                    assert_eq!(scale.label_selector.as_deref(), selector, "{known}");
                }
            }
        }
    }

    #[test]
    fn pools_of_addresses_are_of_another_provider_than_the_core() {
        let others: Vec<_> = names().filter(|name| !is_of_core(name)).collect();
        let pools =
            ["inclusterippools.ipam.cluster.x-k8s.io", "globalinclusterippools.ipam.cluster.x-k8s.io"];
        assert_eq!(others, pools);
        assert!(!is_of_core("cows.cluster.x-k8s.io"));
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

    #[test]
    fn kinds_of_rancher_are_shown_as_people_know_them() {
        let expected = "
            clusters.provisioning.cattle.io v1 namespaced status provisioning: Version|Cluster Name|Age|Kubeconfig|Ready
            rkeclusters.rke.cattle.io v1 namespaced status cluster-api:
            rkecontrolplanes.rke.cattle.io v1 namespaced status cluster-api rcp: Cluster|Initialized|API Server Available|Age|Version
            rkebootstraps.rke.cattle.io v1 namespaced status cluster-api:
            rkebootstraptemplates.rke.cattle.io v1 namespaced cluster-api:
            custommachines.rke.cattle.io v1 namespaced status:
            etcdsnapshots.rke.cattle.io v1 namespaced status:
            clusters.management.cattle.io v3 status: Display Name|Provider|Version|Ready|Age
            clusterregistrationtokens.management.cattle.io v3 namespaced: Cluster|Expires|Age
            nodes.management.cattle.io v3 namespaced: Node|Version|Ready|Age
            settings.management.cattle.io v3: Value|Default
            features.management.cattle.io v3: Custom Value|Default|Description
            fleetworkspaces.management.cattle.io v3: Age
            nodedrivers.management.cattle.io v3: Activated|Binary URL
            dynamicschemas.management.cattle.io v3:
            users.management.cattle.io v3:
            tokens.management.cattle.io v3: User|Provider|Expires|Age
            authconfigs.management.cattle.io v3: Type|Enabled|Issuer|Age
            globalroles.management.cattle.io v3 status: STATUS|AGE
            globalrolebindings.management.cattle.io v3 status: STATUS|AGE
            roletemplates.management.cattle.io v3:
            clusterroletemplatebindings.management.cattle.io v3 namespaced status: STATUS|AGE
            workspacequotas.remuda.io v1 namespaced: Clusters|Machines|Age";
        let mut found = Vec::new();
        for view in &parsed(rancher()) {
            let version = &view.versions[0];
            assert_eq!((view.versions.len(), version.served, version.storage), (1, true, true));
            let mut words = vec![format!("{}.{}", view.plural, view.group), version.name.clone()];
            words.extend(view.namespaced.then(|| "namespaced".to_owned()));
            words.extend(version.status.then(|| "status".to_owned()));
            words.extend(view.categories.iter().chain(&view.short_names).cloned());
            found
                .push(format!("{}: {}", words.join(" "), columns(view, &version.name)).trim_end().to_owned());
        }
        let expected: Vec<_> = expected.trim().lines().map(str::trim).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn cluster_api_finds_the_contract_of_its_providers() {
        for crd in rancher().filter(|crd| crd["spec"]["group"] == "rke.cattle.io") {
            let labels = &crd["metadata"]["labels"];
            let provider = crd["spec"]["names"]["kind"] != "ETCDSnapshot";
            assert_eq!(labels["cluster.x-k8s.io/v1beta2"] == "v1", provider);
            assert_eq!(labels["auth.cattle.io/cluster-indexed"], "true");
        }
    }
}
