//! Which volumes a Machine's Node must lose before its server may go.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::text;

/// A PersistentVolume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    /// Driver and handle, if a CSI driver provides it.
    pub csi: Option<(String, String)>,
    /// Namespace and name of its claim.
    pub claim: Option<(String, String)>,
}

/// What is still attached, by how much is known about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attached {
    pub claims: BTreeSet<String>,
    pub unclaimed: BTreeSet<String>,
    pub unknown_on_node: BTreeSet<String>,
    pub unknown_volumes: BTreeSet<String>,
}

/// Sorts out what is attached.
///
/// `on_node` are names in the Node's `status.volumesAttached`, `by_attachment` volumes that VolumeAttachments
/// name. Claims of pods that the drain left alone are in `ignored`, as `namespace/name`.
pub fn attached(
    on_node: &BTreeSet<String>,
    by_attachment: &BTreeSet<String>,
    volumes: &[Volume],
    ignored: &BTreeSet<String>,
) -> Attached {
    let mut found = Attached {
        unknown_on_node: on_node.clone(),
        unknown_volumes: by_attachment.clone(),
        ..Attached::default()
    };
    for volume in volumes {
        let csi = volume.csi.as_ref().map(|(driver, handle)| format!("kubernetes.io/csi/{driver}^{handle}"));
        let on_this_node = csi.is_some_and(|name| found.unknown_on_node.remove(&name));
        let attached = found.unknown_volumes.remove(&volume.name);
        if !on_this_node && !attached {
            continue;
        }
        match &volume.claim {
            Some((namespace, name)) => {
                let claim = format!("{namespace}/{name}");
                if !ignored.contains(&claim) {
                    found.claims.insert(claim);
                }
            }
            None => {
                found.unclaimed.insert(volume.name.clone());
            }
        }
    }
    found
}

impl Attached {
    pub fn is_empty(&self) -> bool {
        *self == Attached::default()
    }

    /// Message of the Deleting condition while waiting.
    pub fn message(&self, started: Timestamp) -> String {
        let groups = [
            ("PersistentVolumeClaims", &self.claims),
            ("PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim", &self.unclaimed),
            (
                "Node with .status.volumesAttached entries not matching a PersistentVolume",
                &self.unknown_on_node,
            ),
            (
                "VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume",
                &self.unknown_volumes,
            ),
        ];
        let mut message =
            format!("Waiting for Node volumes to be detached (started at {})", text::time(started));
        for (what, names) in groups.into_iter().filter(|(_, names)| !names.is_empty()) {
            let names: Vec<&String> = names.iter().collect();
            message.push_str(&format!("\n* {what}: {}", text::list(&names, 5)));
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::at;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn volume(name: &str, claim: Option<&str>) -> Volume {
        Volume {
            name: name.into(),
            csi: Some(("driver".into(), name.into())),
            claim: claim.map(|claim| ("ns".into(), claim.into())),
        }
    }

    #[test]
    fn every_attached_volume_is_told_as_well_as_it_is_known() {
        let on_node = set(&["kubernetes.io/csi/driver^a", "odd"]);
        let volumes = [volume("a", Some("data")), volume("b", None), volume("c", Some("elsewhere"))];
        let found = attached(&on_node, &set(&["b", "lost"]), &volumes, &BTreeSet::new());
        assert_eq!(
            found.message(at(0)),
            "Waiting for Node volumes to be detached (started at 1970-01-01T00:00:00Z)\n\
             * PersistentVolumeClaims: ns/data\n\
             * PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim: b\n\
             * Node with .status.volumesAttached entries not matching a PersistentVolume: odd\n\
             * VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume: lost"
        );
    }

    #[test]
    fn volumes_of_pods_that_stay_are_not_waited_for() {
        let found =
            attached(&BTreeSet::new(), &set(&["a"]), &[volume("a", Some("data"))], &set(&["ns/data"]));
        assert!(found.is_empty());
    }
}
