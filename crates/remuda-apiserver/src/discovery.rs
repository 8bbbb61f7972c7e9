//! Discovery documents, plain and aggregated.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::registry::{Group, GroupVersion, Registry, Resource, Subresource, api_version};

/// Subresources that are ways to something else, by the kind they belong to. They are named whether or not this server
/// has a way to the other end: rights are given by these names, and `kubectl auth can-i` looks them up here.
static WAYS: LazyLock<Vec<(&str, Subresource)>> = LazyLock::new(|| {
    let sub = |name: &str, kind: &str, verbs: &[&str]| Subresource {
        name: name.to_owned(),
        group: String::new(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
    };
    let both = ["create", "get"];
    let all = ["create", "delete", "get", "patch", "update"];
    vec![
        ("Pod", sub("attach", "PodAttachOptions", &both)),
        ("Pod", sub("exec", "PodExecOptions", &both)),
        ("Pod", sub("log", "Pod", &["get"])),
        ("Pod", sub("portforward", "PodPortForwardOptions", &both)),
        ("Pod", sub("proxy", "PodProxyOptions", &all)),
        ("Node", sub("proxy", "NodeProxyOptions", &all)),
        ("Service", sub("proxy", "ServiceProxyOptions", &all)),
    ]
});

/// The subresources that are offered, in order.
fn subresources(resource: &Resource) -> Vec<&Subresource> {
    let mut subs: Vec<&Subresource> = resource.subresources.iter().collect();
    if resource.group.is_empty() {
        subs.extend(WAYS.iter().filter(|(kind, _)| *kind == resource.kind).map(|(_, sub)| sub));
        subs.sort_by(|one, other| one.name.cmp(&other.name));
    }
    subs
}

/// `/api`
pub(crate) fn api_versions(advertise: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": advertise}],
    })
}

/// `/apis`
pub(crate) fn group_list(registry: &Registry) -> Value {
    let groups: Vec<Value> = named_groups(registry).map(group_value).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let group = named_groups(registry).find(|group| group.name == name)?;
    let mut value = group_value(group);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

fn named_groups(registry: &Registry) -> impl Iterator<Item = &Group> {
    registry.groups.iter().filter(|group| !group.name.is_empty())
}

fn group_value(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            json!({"groupVersion": api_version(&group.name, &version.version), "version": version.version})
        })
        .collect();
    json!({"name": group.name, "preferredVersion": versions[0], "versions": versions})
}

/// `/api/v1`, `/apis/<group>/<version>`.
pub(crate) fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let found = registry.groups.iter().find(|known| known.name == group)?;
    let found = found.versions.iter().find(|known| known.version == version)?;
    let mut resources = Vec::new();
    for resource in &found.resources {
        resources.push(resource_value(resource));
        for sub in subresources(resource) {
            let mut value = json!({
                "name": format!("{}/{}", resource.plural, sub.name), "singularName": "",
                "namespaced": resource.namespaced, "kind": sub.kind, "verbs": sub.verbs,
            });
            if (sub.group.as_str(), sub.version.as_str()) != (group, version) {
                value["group"] = sub.group.as_str().into();
                value["version"] = sub.version.as_str().into();
            }
            resources.push(value);
        }
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version),
        "resources": resources,
    }))
}

fn resource_value(resource: &Resource) -> Value {
    let mut value = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
    value
}

/// Aggregated discovery of the core group (`/api`) or all others (`/apis`).
pub(crate) fn aggregated(registry: &Registry, core: bool, version: &str) -> Value {
    let items: Vec<Value> = registry
        .groups
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(|group| {
            let versions: Vec<Value> = group.versions.iter().map(aggregated_version).collect();
            let metadata = if core { json!({}) } else { json!({"name": group.name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    })
}

fn aggregated_version(version: &GroupVersion) -> Value {
    let resources: Vec<Value> =
        version.resources.iter().map(|resource| aggregated_resource(resource)).collect();
    json!({"version": version.version, "freshness": "Current", "resources": resources})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
    let subresources = subresources(resource);
    if !subresources.is_empty() {
        value["subresources"] = subresources
            .iter()
            .map(|sub| {
                json!({
                    "subresource": sub.name,
                    "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                    "verbs": sub.verbs,
                })
            })
            .collect();
    }
    value
}

/// The content type that tells clients the answer is aggregated.
pub(crate) fn aggregated_content_type(version: &str) -> String {
    format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList")
}
