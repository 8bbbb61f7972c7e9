//! Who owns what.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, core::ObjectMeta};

use super::Named;
use crate::error::Error;

/// A reference to the object that controls another. Deleting the owner in the foreground waits
/// for what it controls.
pub fn owner_reference<K: Resource>(owner: &K, dynamic: &K::DynamicType) -> Result<OwnerReference, Error> {
    let reference = owner.controller_owner_ref(dynamic).filter(|reference| !reference.uid.is_empty());
    let reference = reference
        .ok_or_else(|| Error::Incomplete { what: Named::of(owner, dynamic).to_string(), field: "uid" })?;
    Ok(OwnerReference { block_owner_deletion: Some(true), ..reference })
}

/// The reference to the controller of an object.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|owner| owner.uid == uid)
}

/// Makes `owner` the controller in an object's metadata and tells whether that changed anything.
/// What somebody else controls is theirs.
///
/// A reference of the same owner in another version of its API, or without the controller mark,
/// becomes this one.
pub fn set_controller_reference(meta: &mut ObjectMeta, owner: &OwnerReference) -> Result<bool, Error> {
    if let Some(other) = controller_of(meta).filter(|other| other.uid != owner.uid) {
        return Err(Error::Controlled {
            what: meta.name.clone().unwrap_or_default(),
            owner: format!("{} {}", other.kind, other.name),
        });
    }
    let owners = meta.owner_references.get_or_insert_default();
    match owners.iter_mut().find(|known| known.uid == owner.uid) {
        Some(known) if known == owner => Ok(false),
        Some(known) => {
            *known = owner.clone();
            Ok(true)
        }
        None => {
            owners.push(owner.clone());
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: &str, controller: bool) -> OwnerReference {
        OwnerReference {
            api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
            kind: "MachineSet".to_owned(),
            name: format!("set-{uid}"),
            uid: uid.to_owned(),
            controller: Some(controller),
            block_owner_deletion: None,
        }
    }

    #[test]
    fn an_orphan_is_adopted_once() {
        let mut meta = ObjectMeta::default();
        assert!(set_controller_reference(&mut meta, &owner("1", true)).unwrap());
        assert!(!set_controller_reference(&mut meta, &owner("1", true)).unwrap());
        assert!(is_controlled_by(&meta, "1"));
    }

    #[test]
    fn what_somebody_controls_stays_theirs() {
        let mut meta = ObjectMeta { owner_references: Some(vec![owner("1", true)]), ..ObjectMeta::default() };
        let error = set_controller_reference(&mut meta, &owner("2", true)).unwrap_err();
        assert!(error.to_string().ends_with("is already controlled by MachineSet set-1"));
    }

    #[test]
    fn a_plain_reference_becomes_the_controllers() {
        let owners = vec![owner("9", false), owner("1", false)];
        let mut meta = ObjectMeta { owner_references: Some(owners), ..ObjectMeta::default() };
        assert!(set_controller_reference(&mut meta, &owner("1", true)).unwrap());
        assert_eq!(meta.owner_references.unwrap(), [owner("9", false), owner("1", true)]);
    }
}
