//! Edits of configurations that machines were made from: which machines they would replace, and whether they may.
//!
//! An edit is another content of a configuration that a pool refers to as it did before. Whoever changes the pool to
//! refer to another configuration changes the cluster, and machines follow as with any other change of a pool. An
//! edit of a configuration is different: many clusters may use it, and who edits it may not think of all of them. So
//! each pool goes on with its own template until its policy lets the edit through. Machines without a node have
//! nothing to lose: a pool that has no others takes up an edit at once, and a mistake can be put right by an edit.

use kube::{ResourceExt, core::DynamicObject};
use remuda_api::provisioning::{Cluster, MachinePool};
use remuda_names::{
    provisioning::annotation::{APPROVED_CONFIGS, CONFIG_POLICY},
    rancher::annotation,
};
use serde_json::json;

use crate::condition::ConditionUpdate;

/// What an edit may do to the machines of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Policy {
    /// Machines stay as they are, and so will new ones.
    Never,
    /// Nothing, until somebody who looks after the cluster says so.
    #[default]
    Ask,
    /// They are replaced.
    Auto,
}

impl Policy {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Never, Self::Ask, Self::Auto].into_iter().find(|policy| policy.as_str() == text)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::Ask => "Ask",
            Self::Auto => "Auto",
        }
    }

    /// Of a pool: its own, else its cluster's. What cannot be read replaces nothing.
    pub(super) fn of(cluster: &Cluster, pool: &MachinePool) -> Self {
        let own = pool.machine_deployment_annotations.get(CONFIG_POLICY);
        let text = own.or_else(|| cluster.annotations().get(CONFIG_POLICY));
        text.and_then(|text| Self::parse(text)).unwrap_or_default()
    }
}

/// Machines of a pool.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Census {
    pub(super) machines: usize,
    /// Those that are nodes, or were.
    pub(super) nodes: usize,
}

/// An edit that has not reached the machines of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) pool: String,
    pub(super) kind: String,
    pub(super) config: String,
    /// Fields that mean something else now.
    pub(super) fields: Vec<String>,
    /// How many machines it would replace.
    pub(super) machines: usize,
    policy: Policy,
    revision: String,
}

/// Which state of a configuration is meant: an approval is for what was there to be seen.
fn revision(config: &DynamicObject) -> String {
    let uid: String = config.metadata.uid.iter().flat_map(|uid| uid.chars()).take(8).collect();
    format!("{}-{uid}", config.metadata.generation.unwrap_or_default())
}

/// Whether a revision of the configuration of a pool has been approved.
fn approved(cluster: &Cluster, pool: &str, revision: &str) -> bool {
    let text = cluster.annotations().get(APPROVED_CONFIGS).map(String::as_str).unwrap_or_default();
    let mut approvals = text.split(',').filter_map(|entry| entry.trim().split_once('='));
    approvals.any(|(of, what)| of == pool && what == revision)
}

/// What an edit has to wait with, if it has to.
///
/// `current` is the template machines of the pool are made from, `fields` is where the configuration differs from it.
pub(super) fn held(
    cluster: &Cluster,
    pool: &MachinePool,
    config: &DynamicObject,
    config_kind: &str,
    current: &DynamicObject,
    census: Census,
    fields: Vec<String>,
) -> Option<Pending> {
    let name = config.name_any();
    let says = |key: &str, value: &str| current.annotations().get(key).is_some_and(|known| known == value);
    // Made from another configuration: then the pool was changed, and not what it refers to.
    if !says(annotation::CLONED_FROM_KIND, config_kind) || !says(annotation::CLONED_FROM_NAME, &name) {
        return None;
    }
    let (policy, revision) = (Policy::of(cluster, pool), revision(config));
    let passes = match policy {
        Policy::Auto => true,
        Policy::Ask => approved(cluster, &pool.name, &revision),
        Policy::Never => false,
    };
    if passes || census.nodes == 0 {
        return None;
    }
    Some(Pending {
        pool: pool.name.clone(),
        kind: config_kind.to_owned(),
        config: name,
        fields,
        machines: census.machines,
        policy,
        revision,
    })
}

impl Pending {
    /// As it is on the MachineDeployment, for programs. Without numbers that change by themselves.
    pub(super) fn annotation(&self) -> String {
        json!({
            "config": format!("{}/{}", self.kind, self.config),
            "fields": self.fields,
            "policy": self.policy.as_str(),
            "revision": self.revision,
        })
        .to_string()
    }

    /// As people are told.
    pub(super) fn message(&self) -> String {
        let machines = if self.machines == 1 { "machine" } else { "machines" };
        format!(
            "{} {} was edited ({}), which would replace {} {machines} of machinePool [{}]{}",
            self.kind,
            self.config,
            self.fields.join(", "),
            self.machines,
            self.pool,
            if self.policy == Policy::Never { ", whose policy is Never" } else { "" },
        )
    }
}

/// What the condition says.
pub(super) fn says(pending: &[Pending]) -> ConditionUpdate {
    if pending.is_empty() {
        return ConditionUpdate::yes();
    }
    let asks = pending.iter().any(|pending| pending.policy == Policy::Ask);
    let messages: Vec<String> = pending.iter().map(Pending::message).collect();
    let reason = if asks { "WaitingForApproval" } else { "NeverReplaced" };
    ConditionUpdate { status: Some(false), reason: reason.to_owned(), message: messages.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: serde_json::Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    /// With annotations of the cluster and of the pool, for a template made from `from`.
    fn check(
        cluster: serde_json::Value,
        pool: serde_json::Value,
        from: &str,
        nodes: usize,
    ) -> Option<Pending> {
        let cluster: Cluster =
            serde_json::from_value(json!({"metadata": {"name": "demo", "annotations": cluster}})).unwrap();
        let pool: MachinePool =
            serde_json::from_value(json!({"name": "w", "machineDeploymentAnnotations": pool})).unwrap();
        let config = object(json!({"metadata": {"name": "nc", "uid": "0123456789", "generation": 3}}));
        let current = object(json!({"metadata": {"name": "t", "annotations": {
            (annotation::CLONED_FROM_KIND): "XConfig", (annotation::CLONED_FROM_NAME): from,
        }}}));
        let census = Census { machines: 3, nodes };
        held(&cluster, &pool, &config, "XConfig", &current, census, vec!["size".to_owned()])
    }

    #[test]
    fn an_edit_asks_unless_something_else_was_said() {
        let none = || json!({});
        let policy = |text: &str| json!({(CONFIG_POLICY): text});
        let asks = check(none(), none(), "nc", 2).unwrap();
        assert_eq!(
            asks.message(),
            "XConfig nc was edited (size), which would replace 3 machines of machinePool [w]"
        );
        assert_eq!(
            asks.annotation(),
            r#"{"config":"XConfig/nc","fields":["size"],"policy":"Ask","revision":"3-01234567"}"#
        );
        assert_eq!(check(policy("Auto"), none(), "nc", 2), None);
        assert!(check(policy("Auto"), policy("Ask"), "nc", 2).is_some(), "the pool's own policy counts");
        assert_eq!(check(policy("Never"), policy("Auto"), "nc", 2), None);
        assert!(check(policy("auto"), none(), "nc", 2).is_some(), "what cannot be read replaces nothing");
    }

    #[test]
    fn an_approval_is_for_what_was_seen() {
        let approval = |text: &str| json!({(APPROVED_CONFIGS): text});
        assert_eq!(check(approval("x=1-2, w=3-01234567"), json!({}), "nc", 2), None);
        for other in ["w=2-01234567", "w=3-76543210", "v=3-01234567", "w", ""] {
            assert!(check(approval(other), json!({}), "nc", 2).is_some(), "{other}");
        }
        let never = json!({(CONFIG_POLICY): "Never"});
        let told = check(approval("w=3-01234567"), never, "nc", 2).unwrap();
        assert_eq!(says(&[told]).reason, "NeverReplaced");
    }

    #[test]
    fn another_reference_is_a_change_of_the_cluster_and_machines_without_nodes_have_nothing_to_lose() {
        assert_eq!(check(json!({}), json!({}), "former", 2), None);
        assert_eq!(check(json!({}), json!({}), "nc", 0), None);
        assert!(says(&[]).is_true());
    }
}
