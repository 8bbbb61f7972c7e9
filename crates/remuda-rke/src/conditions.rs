//! Conditions of Rancher's kinds, which also say when they were written last.

use jiff::Timestamp;
pub(crate) use remuda_api::rke::conditions::{Update as ConditionUpdate, is_true, set};

/// Whole seconds in UTC, as Kubernetes writes times.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    remuda_base::rfc3339(time.as_second())
}
