//! Parts of clusters: objects that are shown to whoever may read the cluster they belong to.
//!
//! RBAC has no rule for them: members of a cluster have a right to the cluster by its name and none to its Machines. An
//! object is a part if the CAPI Cluster of the name it gives is owned by the very Cluster the caller may `get`, so a
//! name that was taken shows nothing. Which kinds there are is for the server to say ([`PartOfCluster`]).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use remuda_door::Refusal;
use remuda_names::{
    capi::{group::CORE as CAPI, label},
    rancher::group::PROVISIONING,
};

use crate::{
    index::Index,
    kind::{Catalogue, Kind},
    rights::{Rights, Sheet},
    row::Row,
    visit::{Source, Visit},
};

/// How an object says which cluster it is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartOf {
    /// It has the name of the cluster.
    Name,
    /// By the label of Cluster API.
    Label,
}

/// Whether objects of a kind, given by group and resource, are parts of clusters that are shown whole.
pub type PartOfCluster = fn(&str, &str) -> Option<PartOf>;

impl PartOf {
    /// The cluster an object says it is a part of.
    fn cluster_of(self, row: &Row) -> Option<&str> {
        match self {
            Self::Name => Some(row.name()),
            Self::Label => row.labels.as_ref()?.get(label::CLUSTER_NAME)?.as_str(),
        }
    }
}

/// Parts a caller may read: names of their clusters by namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) by: PartOf,
    pub(crate) clusters: HashMap<String, HashSet<String>>,
}

impl Parts {
    pub(crate) fn include(&self, row: &Row) -> bool {
        let clusters = self.clusters.get(row.namespace());
        clusters.zip(self.by.cluster_of(row)).is_some_and(|(clusters, name)| clusters.contains(name))
    }
}

/// Clusters and their CAPI Clusters, as indexes have them.
struct Clusters {
    kind: Arc<Kind>,
    written: Arc<Index>,
    capi: Arc<Index>,
}

fn kinds(catalogue: &Catalogue) -> Option<(&Arc<Kind>, &Arc<Kind>)> {
    let of = |group: &str| catalogue.of(&format!("{group}/"), "Cluster");
    Some((of(PROVISIONING)?, of(CAPI)?))
}

impl Clusters {
    async fn of(visit: &Visit) -> Result<Option<Self>, Refusal> {
        let Source::Indexes(indexes) = &visit.source else { return Ok(None) };
        let Some((kind, capi)) = kinds(&visit.catalogue) else { return Ok(None) };
        let written = indexes.get(kind, false).await?;
        let capi = indexes.get(capi, false).await?;
        Ok(Some(Self { kind: kind.clone(), written, capi }))
    }

    /// Whether a caller may read a cluster, and what is called after it is its own.
    fn is_open(&self, rights: &Rights, cluster: &Row) -> bool {
        let (namespace, name) = (cluster.namespace(), cluster.name());
        rights.may("get", &self.kind, namespace, name)
            && self.capi.row(namespace, name).is_some_and(|capi| is_owned_by(&capi, &cluster.uid))
    }
}

fn is_owned_by(row: &Row, uid: &str) -> bool {
    !uid.is_empty() && row.owners.iter().any(|owner| &*owner.uid == uid)
}

/// Parts of a kind the caller may read; nothing for kinds that are no parts.
pub(crate) async fn parts(visit: &Visit, kind: &Kind) -> Result<Option<Parts>, Refusal> {
    let Some(by) = (visit.part_of)(&kind.group, &kind.resource) else { return Ok(None) };
    let Some(known) = Clusters::of(visit).await? else { return Ok(None) };
    let reach = visit.rights.reach(&known.kind);
    let mut clusters: HashMap<String, HashSet<String>> = HashMap::new();
    if !reach.is_empty() {
        let (rows, _) = known.written.rows("");
        let rows = rows.iter().filter(|row| reach.includes(row.namespace(), row.name()));
        for cluster in rows.filter(|row| known.is_open(&visit.rights, row)) {
            clusters.entry(cluster.namespace().to_owned()).or_default().insert(cluster.name().to_owned());
        }
    }
    Ok(Some(Parts { by, clusters }))
}

/// Whether one object is a part of a cluster the caller may read, by the rights of this moment.
pub(crate) async fn is_part(visit: &Visit, kind: &Kind, row: &Row) -> bool {
    let Some(by) = (visit.part_of)(&kind.group, &kind.resource) else { return false };
    let Some(name) = by.cluster_of(row) else { return false };
    let Ok(Some(known)) = Clusters::of(visit).await else { return false };
    known.written.row(row.namespace(), name).is_some_and(|cluster| known.is_open(&visit.rights, &cluster))
}

/// Whether a caller may ask for parts of a kind: they may read some cluster.
pub(crate) fn may_ask(visit: &Visit, sheet: &Sheet, kind: &Kind) -> bool {
    kind.has_verb("list")
        && matches!(visit.source, Source::Indexes(_))
        && (visit.part_of)(&kind.group, &kind.resource).is_some()
        && kinds(&visit.catalogue).is_some_and(|(clusters, _)| sheet.may_somewhere("get", clusters))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn row(object: Value) -> Row {
        Row::new(&Kind::default(), object, Vec::new(), false).unwrap()
    }

    #[test]
    fn a_part_is_in_the_namespace_of_its_cluster() {
        let machine = |namespace: &str, cluster: &str| {
            row(json!({"metadata": {
                "name": "m", "namespace": namespace, "labels": {label::CLUSTER_NAME: cluster},
            }}))
        };
        let clusters = HashMap::from([("a".to_owned(), HashSet::from(["demo".to_owned()]))]);
        let parts = Parts { by: PartOf::Label, clusters: clusters.clone() };
        assert!(parts.include(&machine("a", "demo")));
        assert!(!parts.include(&machine("b", "demo")), "another cluster of the same name");
        assert!(!parts.include(&machine("a", "other")));
        assert!(
            !parts.include(&row(json!({"metadata": {"name": "demo", "namespace": "a"}}))),
            "it says nothing"
        );
        let parts = Parts { by: PartOf::Name, clusters };
        assert!(parts.include(&row(json!({"metadata": {"name": "demo", "namespace": "a"}}))));
        assert!(!parts.include(&machine("a", "demo")), "its name is not that of the cluster");
    }

    #[test]
    fn a_name_that_was_taken_is_no_ownership() {
        let owned = |uid: &str| {
            row(json!({"metadata": {"name": "demo", "ownerReferences": [{"name": "demo", "uid": uid}]}}))
        };
        assert!(is_owned_by(&owned("u-1"), "u-1"));
        assert!(!is_owned_by(&owned("u-2"), "u-1"));
        assert!(!is_owned_by(&owned(""), ""), "nothing is owned by nobody");
    }
}
