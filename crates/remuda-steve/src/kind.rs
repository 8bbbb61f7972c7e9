//! Kinds as the list API knows them: one per API group and kind, in the preferred version.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use remuda_names::rancher::group::MANAGEMENT;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::query::encoded;

/// A column of a Table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) format: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) priority: i64,
}

impl Column {
    /// Whether its cells are the age of the object, which grows without any change.
    pub(crate) fn is_age(&self) -> bool {
        self.name.eq_ignore_ascii_case("age")
    }

    /// With no text longer than this.
    pub(crate) fn cut(mut self, longest: usize) -> Self {
        for text in [&mut self.name, &mut self.kind, &mut self.format, &mut self.description] {
            text.truncate(text.floor_char_boundary(longest));
            text.shrink_to_fit();
        }
        self
    }

    /// Bytes it holds.
    pub(crate) fn weight(&self) -> usize {
        let texts = [&self.name, &self.kind, &self.format, &self.description];
        size_of::<Self>() + texts.iter().map(|text| text.len()).sum::<usize>()
    }

    fn to_value(&self, place: usize) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": self.description,
            "priority": self.priority, "field": format!("$.metadata.fields[{place}]"),
        })
    }
}

/// A kind of an API.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Kind {
    /// Of its schema: `provisioning.cattle.io.cluster`, `secret`.
    pub(crate) id: String,
    /// In URLs: `provisioning.cattle.io.clusters`, `secrets`.
    pub(crate) plural: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) resource: String,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
    pub(crate) columns: Vec<Column>,
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path in the Kubernetes API: of a collection, or of an object with a name.
    pub(crate) fn path(&self, namespace: &str, name: &str) -> String {
        let mut path = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        if self.namespaced && !namespace.is_empty() {
            path.push_str(&format!("/namespaces/{}", encoded(namespace)));
        }
        path.push('/');
        path.push_str(&self.resource);
        if !name.is_empty() {
            path.push_str(&format!("/{}", encoded(name)));
        }
        path
    }

    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.has_verb("list") && self.has_verb("watch")
    }

    pub(crate) fn attributes(&self) -> Value {
        let columns: Vec<Value> =
            self.columns.iter().enumerate().map(|(place, column)| column.to_value(place)).collect();
        json!({
            "group": self.group, "version": self.version, "kind": self.kind, "resource": self.resource,
            "namespaced": self.namespaced, "verbs": self.verbs, "columns": columns,
        })
    }
}

/// Kinds whose objects are never shown here: they hold what opens something.
const HIDDEN: &[(&str, &str)] = &[(MANAGEMENT, "tokens")];

/// All kinds of an API.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    /// In the order of their ids.
    kinds: BTreeMap<String, Arc<Kind>>,
    /// By plural, and with the version in it.
    names: HashMap<String, String>,
    /// By group and kind, as owner references name them.
    by_kind: HashMap<(String, String), String>,
}

impl Catalogue {
    /// From the aggregated discovery of `/api` and `/apis`.
    pub(crate) fn from_discovery(documents: &[Value]) -> Self {
        let mut catalogue = Self::default();
        for group in documents.iter().filter_map(|document| document["items"].as_array()).flatten() {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in group["versions"].as_array().into_iter().flatten() {
                let Some(version_name) = version["version"].as_str() else { continue };
                for resource in version["resources"].as_array().into_iter().flatten() {
                    if let Some(kind) = kind(name, version_name, resource) {
                        catalogue.add(kind);
                    }
                }
            }
        }
        catalogue
    }

    /// The first version of a kind is the preferred one.
    fn add(&mut self, kind: Kind) {
        let Kind { id, plural, group, version, .. } = &kind;
        let dotted = if group.is_empty() { format!("core.{version}") } else { format!("{group}.{version}") };
        let single = id.rsplit('.').next().unwrap_or(id);
        let many = plural.rsplit('.').next().unwrap_or(plural);
        for name in [plural.clone(), format!("{dotted}.{single}"), format!("{dotted}.{many}")] {
            self.names.entry(name).or_insert_with(|| id.clone());
        }
        self.by_kind.entry((group.clone(), kind.kind.clone())).or_insert_with(|| id.clone());
        self.kinds.entry(id.clone()).or_insert_with(|| Arc::new(kind.clone()));
    }

    /// With the columns of kinds, by id.
    pub(crate) fn with_columns(mut self, mut columns: HashMap<String, Vec<Column>>) -> Self {
        for (id, kind) in &mut self.kinds {
            if let Some(columns) = columns.remove(id) {
                Arc::make_mut(kind).columns = columns;
            }
        }
        self
    }

    /// By id or plural, in any case.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Kind>> {
        let name = name.to_lowercase();
        self.kinds.get(&name).or_else(|| self.kinds.get(self.names.get(&name)?))
    }

    /// By what an owner reference says.
    pub(crate) fn of(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.kinds.get(self.by_kind.get(&(group.to_owned(), kind.to_owned()))?)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }
}

fn kind(group: &str, version: &str, resource: &Value) -> Option<Kind> {
    let plural = resource["resource"].as_str()?;
    let name = resource["responseKind"]["kind"].as_str().filter(|name| !name.is_empty())?;
    if HIDDEN.contains(&(group, plural)) {
        return None;
    }
    let prefix = if group.is_empty() { String::new() } else { format!("{group}.") };
    let verbs = resource["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Some(Kind {
        id: format!("{prefix}{name}").to_lowercase(),
        plural: format!("{prefix}{plural}").to_lowercase(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: name.to_owned(),
        resource: plural.to_owned(),
        namespaced: resource["scope"] == "Namespaced",
        verbs: verbs.map(str::to_owned).collect(),
        columns: Vec::new(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn catalogue() -> Catalogue {
        let resource = |plural: &str, kind: &str, scope: &str| {
            json!({"resource": plural, "responseKind": {"kind": kind}, "scope": scope,
                   "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]})
        };
        let core = json!({"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [
            resource("secrets", "Secret", "Namespaced"), resource("nodes", "Node", "Cluster"),
            resource("namespaces", "Namespace", "Cluster")]}]}]});
        let groups = json!({"items": [
            {"metadata": {"name": "cluster.x-k8s.io"}, "versions": [
                {"version": "v1beta2", "resources": [
                    resource("machines", "Machine", "Namespaced"), resource("machinesets", "MachineSet", "Namespaced")]},
                {"version": "v1beta1", "resources": [resource("machines", "Machine", "Namespaced")]}]},
            {"metadata": {"name": "management.cattle.io"}, "versions": [{"version": "v3", "resources": [
                resource("tokens", "Token", "Cluster"), resource("clusters", "Cluster", "Cluster")]}]},
        ]});
        Catalogue::from_discovery(&[core, groups])
    }

    #[test]
    fn kinds_have_the_names_clients_know() {
        let catalogue = catalogue();
        let found = |name: &str| catalogue.find(name).map(|kind| (kind.id.clone(), kind.version.clone()));
        let machine = Some(("cluster.x-k8s.io.machine".to_owned(), "v1beta2".to_owned()));
        assert_eq!(found("cluster.x-k8s.io.machine"), machine);
        assert_eq!(found("cluster.x-k8s.io.Machines"), machine);
        assert_eq!(found("cluster.x-k8s.io.v1beta1.machine"), machine);
        assert_eq!(found("secrets"), Some(("secret".to_owned(), "v1".to_owned())));
        assert_eq!(found("nothing"), None);
        assert_eq!(found("management.cattle.io.token"), None, "tokens are not shown");
        assert_eq!(
            catalogue.of("cluster.x-k8s.io/v1beta1", "Machine").unwrap().id,
            "cluster.x-k8s.io.machine"
        );
    }

    #[test]
    fn paths_are_those_of_the_kubernetes_api() {
        let catalogue = catalogue();
        let path =
            |kind: &str, namespace: &str, name: &str| catalogue.find(kind).unwrap().path(namespace, name);
        assert_eq!(path("secret", "", ""), "/api/v1/secrets");
        assert_eq!(path("secret", "a", "b"), "/api/v1/namespaces/a/secrets/b");
        assert_eq!(path("node", "a", "../x"), "/api/v1/nodes/%2E%2E%2Fx");
        assert_eq!(
            path("cluster.x-k8s.io.machine", "a", ""),
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/a/machines"
        );
    }
}
