//! Names of what belongs to a machine, as Rancher gives them.

use remuda_plan::naming::{LABEL, safe_concat_name, safe_concat_name_max};
pub use remuda_plan::naming::{
    credential,
    of::{
        machine_driver_secret as env_secret, machine_log as log, machine_provision as job,
        machine_state_secret as state_secret,
    },
};

/// The name the driver knows a machine by.
pub fn instance(machine: &str) -> String {
    safe_concat_name(&[&machine.replace('.', "-")])
}

/// Host name of a machine; `limit` is what its annotation says.
pub fn hostname(machine: &str, limit: Option<&str>) -> String {
    let limit = limit.and_then(|limit| limit.trim().parse().ok()).filter(|limit| (10..=63).contains(limit));
    safe_concat_name_max(limit.unwrap_or(LABEL), &[&machine.replace('.', "-")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_keep_their_limit() {
        assert_eq!(hostname("a.b", None), "a-b");
        assert_eq!(hostname("demo-pool-abcdefgh", Some("12")).len(), 12);
        assert_eq!(hostname("demo-pool-abcdefgh", Some("9")), "demo-pool-abcdefgh");
        assert_eq!(hostname("demo-pool-abcdefgh", Some("many")), "demo-pool-abcdefgh");
    }
}
