//! Kinds as scripts name them.

use kube::{api::ApiResource, core::GroupVersionKind};
use remuda_names::capi::group;

/// Word, group, version, kind, plural.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str);

const KINDS: &[Row] = &[
    ("cluster", group::CORE, "v1beta2", "Cluster", "clusters"),
    ("machine", group::CORE, "v1beta2", "Machine", "machines"),
    ("machineset", group::CORE, "v1beta2", "MachineSet", "machinesets"),
    ("machinedeployment", group::CORE, "v1beta2", "MachineDeployment", "machinedeployments"),
    ("machinehealthcheck", group::CORE, "v1beta2", "MachineHealthCheck", "machinehealthchecks"),
    ("machinedrainrule", group::CORE, "v1beta2", "MachineDrainRule", "machinedrainrules"),
    ("machinepool", group::CORE, "v1beta2", "MachinePool", "machinepools"),
    ("clusterresourceset", group::ADDONS, "v1beta2", "ClusterResourceSet", "clusterresourcesets"),
    (
        "clusterresourcesetbinding",
        group::ADDONS,
        "v1beta2",
        "ClusterResourceSetBinding",
        "clusterresourcesetbindings",
    ),
    ("simcluster", "sim.remuda.io", "v1", "SimCluster", "simclusters"),
    ("simmachine", "sim.remuda.io", "v1", "SimMachine", "simmachines"),
    ("simmachinetemplate", "sim.remuda.io", "v1", "SimMachineTemplate", "simmachinetemplates"),
    ("simbootstrap", "sim.remuda.io", "v1", "SimBootstrap", "simbootstraps"),
    ("simbootstraptemplate", "sim.remuda.io", "v1", "SimBootstrapTemplate", "simbootstraptemplates"),
    ("simcontrolplane", "sim.remuda.io", "v1", "SimControlPlane", "simcontrolplanes"),
    ("secret", "", "v1", "Secret", "secrets"),
    ("configmap", "", "v1", "ConfigMap", "configmaps"),
];

fn resource(row: &Row) -> ApiResource {
    let (_, group, version, kind, plural) = row;
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// By the word for one or for many.
pub(super) fn named(word: &str) -> Option<ApiResource> {
    KINDS.iter().find(|row| row.0 == word || row.4 == word).map(resource)
}

/// By the kind of an object.
pub(super) fn of(api_version: &str, kind: &str) -> Option<ApiResource> {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    KINDS.iter().find(|row| row.1 == group && row.3 == kind).map(resource)
}
