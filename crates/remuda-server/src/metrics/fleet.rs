//! What a fleet is run by: clusters and machines by state, connections, certificates, the size of the store.
//!
//! All of it is read when it is asked for, from caches that are there anyway: nothing is counted that could be wrong.

use std::{collections::BTreeMap, fmt::Write, path::PathBuf, sync::Arc};

use jiff::Timestamp;
use remuda_api::{core::Machine, provisioning::Cluster};
use remuda_control::Informer;
use remuda_gateway::Gateway;
use remuda_names::{
    file,
    rancher::{condition, reason},
};
use remuda_rke::agent_presence::Presence;
use remuda_store::DiskUsage;

use crate::{backup::Progress, pki::Pki, tls::Presented};

pub(crate) struct Fleet {
    /// Nothing where this server runs no controllers.
    pub(crate) objects: Option<(Informer<Cluster>, Informer<Machine>)>,
    pub(crate) gateway: Option<Gateway>,
    /// Nothing where other servers have agents, too.
    pub(crate) presence: Option<Presence>,
    pub(crate) pki: Arc<Pki>,
    pub(crate) presented: Arc<Presented>,
    pub(crate) data_dir: PathBuf,
    pub(crate) backups: Progress,
}

/// States a cluster is in, all of which are told, so that none that is 0 is missing from a graph.
const CLUSTER_STATES: [&str; 5] = ["creating", "ready", "updating", "failed", "deleting"];
const MACHINE_PHASES: [&str; 7] =
    ["Pending", "Provisioning", "Provisioned", "Running", "Deleting", "Failed", "Unknown"];

impl Fleet {
    pub(crate) fn write(&self, text: &mut String) {
        if let Some((clusters, machines)) = &self.objects {
            let states = clusters.list().iter().map(|cluster| state(cluster).to_owned()).collect();
            by(text, "remuda_clusters", "Clusters by state.", "state", &CLUSTER_STATES, states);
            let phases = machines.list().iter().map(|machine| phase(machine)).collect();
            by(text, "remuda_machines", "Machines by phase.", "phase", &MACHINE_PHASES, phases);
        }
        if let Some(gateway) = &self.gateway {
            let connected = gateway.connected() as f64;
            gauge(
                text,
                "remuda_clusters_connected",
                "Clusters whose agent is connected.",
                &[("", connected)],
            );
        }
        let expiries = [("authority", Some(self.pki.expires())), ("serving", self.presented.expires())];
        let expiries: Vec<(String, f64)> = expiries
            .into_iter()
            .filter_map(|(name, until)| Some((format!("{{certificate=\"{name}\"}}"), seconds(until?))))
            .collect();
        let expiries: Vec<(&str, f64)> =
            expiries.iter().map(|(labels, value)| (labels.as_str(), *value)).collect();
        let help = "When certificates expire, in seconds since 1970.";
        gauge(text, "remuda_certificate_expiry_timestamp_seconds", help, &expiries);
        if let Some(presence) = &self.presence {
            let agents = presence.connected() as f64;
            gauge(text, "remuda_agents_connected", "Machines whose agent is connected.", &[("", agents)]);
        }
        let usage = DiskUsage::of(&self.data_dir.join(file::STORE));
        let help = "Size of the embedded store on disk.";
        gauge(text, "remuda_store_size_bytes", help, &[("", usage.bytes as f64)]);
        let help = "Size of its log since the last checkpoint.";
        gauge(text, "remuda_store_log_bytes", help, &[("", usage.log_bytes as f64)]);
        let made = usage.checkpoint.and_then(|time| Timestamp::try_from(time).ok()).map(seconds);
        let made: Vec<(&str, f64)> = made.map(|made| ("", made)).into_iter().collect();
        let help = "When the store was last compacted into a checkpoint, in seconds since 1970.";
        gauge(text, "remuda_store_checkpoint_timestamp_seconds", help, &made);
        let newest: Vec<(&str, f64)> =
            self.backups.last().map(seconds).map(|made| ("", made)).into_iter().collect();
        let help = "When the newest backup by schedule was made, in seconds since 1970.";
        gauge(text, "remuda_backup_last_success_timestamp_seconds", help, &newest);
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.as_second() as f64
}

fn gauge(text: &mut String, name: &str, help: &str, values: &[(&str, f64)]) {
    // Writing to a string does not fail.
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n");
    for (labels, value) in values {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

/// How often each of the known values is there. What is none of them is not told: labels must not grow with input.
fn by(text: &mut String, name: &str, help: &str, label: &str, known: &[&str], found: Vec<String>) {
    let mut counts: BTreeMap<&str, usize> = known.iter().map(|value| (*value, 0)).collect();
    for value in &found {
        if let Some(count) = counts.get_mut(value.as_str()) {
            *count += 1;
        }
    }
    let rows: Vec<(String, f64)> =
        counts.iter().map(|(value, count)| (format!("{{{label}=\"{value}\"}}"), *count as f64)).collect();
    let rows: Vec<(&str, f64)> = rows.iter().map(|(labels, value)| (labels.as_str(), *value)).collect();
    gauge(text, name, help, &rows);
}

fn state(cluster: &Cluster) -> &'static str {
    if cluster.metadata.deletion_timestamp.is_some() {
        return "deleting";
    }
    let Some(status) = &cluster.status else { return "creating" };
    let says = |kind: &str, value: &str| {
        status.conditions.iter().any(|condition| condition.kind == kind && condition.status == value)
    };
    let kinds = [condition::CREATED, condition::RKE_CLUSTER, condition::READY];
    // A cluster that is not connected has not failed: it was never there, or misses among those connected.
    let failed = status.conditions.iter().any(|condition| {
        kinds.contains(&condition.kind.as_str())
            && condition.status == "False"
            && condition.reason != reason::DISCONNECTED
    });
    match status.ready {
        _ if failed => "failed",
        true if says(condition::READY, "True") => "ready",
        true => "updating",
        false => "creating",
    }
}

fn phase(machine: &Machine) -> String {
    let phase = machine.status.as_ref().map(|status| status.phase.as_str()).unwrap_or_default();
    if phase.is_empty() { "Pending".to_owned() } else { phase.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_state_is_told_and_no_other() {
        let mut text = String::new();
        let found = ["b", "b", "strange"].map(str::to_owned).to_vec();
        by(&mut text, "x", "Xs.", "state", &["a", "b"], found);
        assert_eq!(text, "# HELP x Xs.\n# TYPE x gauge\nx{state=\"a\"} 0\nx{state=\"b\"} 2\n");
    }

    #[test]
    fn the_state_of_a_cluster_is_one_of_those() {
        let check = |cluster: serde_json::Value, expected: &str| {
            let cluster: Cluster = serde_json::from_value(cluster).unwrap();
            assert_eq!(state(&cluster), expected);
            assert!(CLUSTER_STATES.contains(&expected));
        };
        let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
        check(json!({}), "creating");
        check(json!({"status": {"conditions": ready("Unknown")}}), "creating");
        check(json!({"status": {"ready": true, "conditions": ready("True")}}), "ready");
        check(json!({"status": {"ready": true, "conditions": ready("Unknown")}}), "updating");
        check(json!({"status": {"ready": true, "conditions": ready("False")}}), "failed");
        let lost = json!([{"type": "Ready", "status": "False", "reason": "Disconnected"}]);
        check(json!({"status": {"conditions": lost}}), "creating");
        check(json!({"status": {"ready": true, "conditions": lost}}), "updating");
        check(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), "deleting");
    }
}
