//! Names, references and small questions about objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use remuda_api::core::{Cluster, ContractReference, Machine};
use remuda_names::{
    capi::{annotation, group as capi_group},
    rancher::group,
};
pub(crate) use remuda_plan::naming::of::{
    bootstrap_secret as bootstrap_name, machine_state_secret as machine_state_name, plan_secret as plan_name,
    state_secret as state_name,
};

pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// The owner of a kind of Cluster API; the controller if there are several.
pub(crate) fn owner<'a>(meta: &'a ObjectMeta, kind: &str) -> Option<&'a OwnerReference> {
    let owners = meta.owner_references.iter().flatten();
    let mut owners =
        owners.filter(|owner| owner.kind == kind && group_of(&owner.api_version) == capi_group::CORE);
    let first = owners.next()?;
    if first.controller == Some(true) {
        return Some(first);
    }
    Some(owners.find(|owner| owner.controller == Some(true)).unwrap_or(first))
}

/// The RKEBootstrap of a Machine.
pub(crate) fn bootstrap_of(machine: &Machine) -> Option<&str> {
    let reference = &machine.spec.bootstrap.config_ref;
    (reference.kind == "RKEBootstrap" && reference.api_group == group::RKE).then_some(&*reference.name)
}

/// The infrastructure of a Machine, if a driver makes it.
pub(crate) fn driver_machine(machine: &Machine) -> Option<&str> {
    let reference = &machine.spec.infrastructure_ref;
    (reference.api_group == group::MACHINE).then_some(&*reference.name)
}

pub(crate) fn is_custom(machine: &Machine) -> bool {
    let reference = &machine.spec.infrastructure_ref;
    reference.api_group == group::RKE && reference.kind == "CustomMachine"
}

pub(crate) fn is_control_plane(reference: &ContractReference) -> bool {
    reference.kind == "RKEControlPlane" && reference.api_group == group::RKE
}

pub(crate) fn is_deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// The Cluster is paused, or the object is.
pub(crate) fn is_paused(cluster: &Cluster, meta: &ObjectMeta) -> bool {
    cluster.spec.paused == Some(true) || has_annotation(meta, annotation::PAUSED)
}

pub(crate) fn has_annotation(meta: &ObjectMeta, key: &str) -> bool {
    meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(key))
}

pub(crate) fn is_provisioned(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.and_then(|status| status.initialization.infrastructure_provisioned) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(kind: &str, version: &str, name: &str, controller: Option<bool>) -> OwnerReference {
        OwnerReference {
            api_version: format!("cluster.x-k8s.io/{version}"),
            kind: kind.to_owned(),
            name: name.to_owned(),
            controller,
            ..OwnerReference::default()
        }
    }

    #[test]
    fn the_controller_is_the_owner_if_there_are_several() {
        let owners = vec![
            reference("MachineSet", "v1beta2", "set", Some(true)),
            reference("Machine", "v1beta2", "a", None),
            reference("Machine", "v1beta1", "b", Some(true)),
        ];
        let mut meta = ObjectMeta { owner_references: Some(owners), ..ObjectMeta::default() };
        assert_eq!(owner(&meta, "Machine").unwrap().name, "b");
        meta.owner_references.as_mut().unwrap().pop();
        assert_eq!(owner(&meta, "Machine").unwrap().name, "a");
        assert_eq!(owner(&meta, "Cluster"), None);
    }
}
