//! Which nodes a MachinePool has.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    condition::plus_seconds,
    version::{self, VersionCount},
};

/// A node of the workload cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub uid: String,
    pub provider_id: String,
    /// Since when it is ready; `None` if it is not.
    pub ready_since: Option<Timestamp>,
    pub kubelet_version: String,
}

/// Nodes of a pool, in the order of its provider IDs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Name and uid of each.
    pub references: Vec<(String, String)>,
    pub ready: i32,
    pub available: i32,
    pub versions: Vec<VersionCount>,
    /// When one more may be available by itself.
    pub next: Option<Duration>,
}

/// The nodes behind provider IDs. An empty ID is nobody's.
pub fn members(
    ids: &[String],
    nodes: &BTreeMap<String, Node>,
    min_ready_seconds: i64,
    now: Timestamp,
) -> Members {
    let mut members = Members::default();
    let mut versions = Vec::new();
    for node in ids.iter().filter(|id| !id.is_empty()).filter_map(|id| nodes.get(id)) {
        members.references.push((node.name.clone(), node.uid.clone()));
        if !node.kubelet_version.is_empty() {
            versions.push(VersionCount { version: node.kubelet_version.clone(), replicas: 1 });
        }
        let Some(since) = node.ready_since else {
            continue;
        };
        members.ready = members.ready.saturating_add(1);
        let due = plus_seconds(since, min_ready_seconds.max(0));
        if due <= now {
            members.available = members.available.saturating_add(1);
        } else {
            let left = Duration::try_from(due.duration_since(now)).ok();
            members.next = members.next.into_iter().chain(left).min();
        }
    }
    members.versions = version::aggregate(versions);
    members
}

/// Nodes the pool had whose servers are gone, by what they say themselves.
pub fn retired<'a>(had: impl IntoIterator<Item = &'a Node>, ids: &[String]) -> Vec<String> {
    let ids: HashSet<&str> = ids.iter().map(String::as_str).collect();
    had.into_iter()
        .filter(|node| !node.provider_id.is_empty() && !ids.contains(node.provider_id.as_str()))
        .map(|node| node.name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::at;

    fn node(name: &str, ready_since: Option<i64>) -> Node {
        Node {
            name: name.into(),
            uid: format!("uid-{name}"),
            provider_id: format!("x://{name}"),
            ready_since: ready_since.map(at),
            kubelet_version: "v1.34.1".into(),
        }
    }

    fn ids(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("x://{name}")).collect()
    }

    #[test]
    fn nodes_are_found_by_their_servers_and_counted() {
        let nodes = [node("a", Some(0)), node("b", Some(95)), node("c", None), node("other", Some(0))];
        let nodes = nodes.into_iter().map(|node| (node.provider_id.clone(), node)).collect();
        let mut wanted = ids(&["c", "a", "b", "unborn"]);
        wanted.push(String::new());
        let found = members(&wanted, &nodes, 10, at(100));
        let names: Vec<_> = found.references.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["c", "a", "b"]);
        assert_eq!((found.ready, found.available, found.next), (2, 1, Some(Duration::from_secs(5))));
        assert_eq!(found.versions, [VersionCount { version: "v1.34.1".into(), replicas: 3 }]);
    }

    #[test]
    fn nodes_whose_servers_are_gone_retire() {
        let nameless = Node { provider_id: String::new(), ..node("new", None) };
        let had = [node("a", None), node("b", None), nameless];
        assert_eq!(retired(&had, &ids(&["b"])), ["a"]);
    }
}
