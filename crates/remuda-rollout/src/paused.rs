//! Whether an object is paused, and how its condition says so.

use remuda_names::capi::{annotation, condition};

use crate::condition::{Condition, Status};

/// The Paused condition of an object of this kind.
///
/// `by_cluster` is the Cluster's `spec.paused`, `by_annotation` the annotation on the object itself. An
/// annotation on the Cluster pauses only the Cluster's own reconciler.
pub fn condition(kind: &str, by_cluster: bool, by_annotation: bool) -> Condition {
    let mut causes = Vec::new();
    if by_cluster {
        causes.push("Cluster spec.paused is set to true".to_owned());
    }
    if by_annotation {
        causes.push(format!("{kind} has the {} annotation", annotation::PAUSED));
    }
    if causes.is_empty() {
        return Condition::new(condition::PAUSED, Status::False, "NotPaused", "");
    }
    Condition::new(condition::PAUSED, Status::True, "Paused", causes.join(", "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_paused_object_says_by_what() {
        let message = |cluster, own| super::condition("Machine", cluster, own).message;
        assert_eq!(message(false, false), "");
        assert_eq!(message(true, false), "Cluster spec.paused is set to true");
        assert_eq!(
            message(true, true),
            "Cluster spec.paused is set to true, Machine has the cluster.x-k8s.io/paused annotation"
        );
    }
}
