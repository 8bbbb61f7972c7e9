//! What flows from a set to machines that exist, without replacing them.

use remuda_names::capi::label;

use crate::{name, selector::Labels};

/// Paths below `spec` that follow the set's template on every machine, besides labels and annotations.
pub const IN_PLACE: &[&str] = &[
    "readinessGates",
    "minReadySeconds",
    "deletion.nodeDrainTimeoutSeconds",
    "deletion.nodeVolumeDetachTimeoutSeconds",
    "deletion.nodeDeletionTimeoutSeconds",
    "taints",
];

/// What still follows on a machine in deletion, so that a drain can be cut short. Labels do not.
pub const IN_PLACE_WHEN_DELETING: &[&str] = IN_PLACE;

/// Labels of a set's machines and of the objects behind them.
pub fn machine_labels(template: &Labels, set: &str, deployment: Option<&str>) -> Labels {
    let mut labels = template.clone();
    labels.insert(label::SET_NAME.to_owned(), name::as_label(set));
    if let Some(deployment) = deployment {
        labels.insert(label::DEPLOYMENT_NAME.to_owned(), deployment.to_owned());
    }
    labels
}
