//! Which built-in resources are served, and the rules of each that are data rather than code.

mod resources;

pub use resources::RESOURCES;

/// How object names of a resource are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain, at most 253 characters.
    Subdomain,
    /// DNS-1123 label, at most 63 characters.
    Label,
    /// DNS-1035 label: like a label, but starts with a letter.
    Label1035,
    /// Any single path segment.
    Path,
    /// An address of a network.
    Address,
    /// `<plural>.<group>` of the definition.
    Crd,
    /// `<version>.<group>` of the registration.
    ApiService,
}

/// A subresource and the kind it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub verbs: &'static [&'static str],
}

/// One served resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
    /// PUT on a missing object creates it.
    pub put_creates: bool,
    /// PUT without resourceVersion is allowed.
    pub unconditional_update: bool,
    pub name_rule: NameRule,
    /// A limit below the one of the name rule.
    pub max_name: Option<usize>,
    /// `metadata.generation` is counted.
    pub has_generation: bool,
    /// Status is written only through the `status` subresource and cleared on create.
    pub has_status: bool,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`.
    pub field_selectors: &'static [&'static str],
    /// Without a propagation policy, dependents of a deleted object are orphaned.
    pub default_gc_orphan: bool,
    /// Deletion waits for a grace period.
    pub graceful_delete: bool,
    /// Answered, never stored (reviews, ComponentStatus).
    pub is_virtual: bool,
    /// Stored with the resource of this group: the two are views of the same objects.
    pub storage_group: &'static str,
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}

/// All built-in resources: by group in the order of [`groups`], then by name.
pub fn resources() -> &'static [Resource] {
    RESOURCES
}

/// Groups with resources, most preferred first; the core group is `""`.
pub fn groups() -> &'static [&'static str] {
    &[
        "",
        "apiregistration.k8s.io",
        "apps",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "networking.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "storage.k8s.io",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "scheduling.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
        "discovery.k8s.io",
    ]
}

/// A resource by its place in a URL.
pub fn find_resource(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|resource| resource.plural == plural && resource.group == group && resource.version == version)
}

/// A resource by the kind of its objects.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|resource| resource.kind == kind && resource.group == group && resource.version == version)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::table::type_of;

    #[test]
    fn every_resource_and_subresource_has_a_type() {
        for resource in resources() {
            let ty = type_of(resource.group, resource.version, resource.kind);
            let ty = ty.unwrap_or_else(|| panic!("{}", resource.kind));
            assert_eq!(
                resource.has_status && !resource.is_virtual,
                resource.subresource("status").is_some(),
                "{}",
                resource.plural
            );
            if resource.has_status {
                assert!(ty.field("status").is_some(), "{}", resource.kind);
            }
            for sub in resource.subresources {
                assert!(
                    type_of(sub.group, sub.version, sub.kind).is_some(),
                    "{}/{}",
                    resource.plural,
                    sub.name
                );
            }
        }
    }

    #[test]
    fn resources_follow_the_group_order_and_are_unique() {
        let order: Vec<usize> = resources()
            .iter()
            .map(|resource| groups().iter().position(|group| *group == resource.group).unwrap())
            .collect();
        assert!(order.is_sorted());
        let mut seen = HashSet::new();
        assert!(resources().iter().all(|resource| seen.insert((
            resource.group,
            resource.version,
            resource.plural
        ))));
        for group in groups() {
            let names: Vec<_> =
                resources().iter().filter(|r| r.group == *group).map(|resource| resource.plural).collect();
            assert!(!names.is_empty() && names.is_sorted(), "{group}: {names:?}");
        }
    }

    #[test]
    fn special_rules_are_as_clients_expect_them() {
        let lease = find_resource("coordination.k8s.io", "v1", "leases").unwrap();
        assert!(lease.put_creates && !lease.unconditional_update && !lease.has_generation);
        let namespace = find_kind("", "v1", "Namespace").unwrap();
        assert!(!namespace.allows("deletecollection") && namespace.allows("watch"));
        assert_eq!(namespace.name_rule, NameRule::Label);
        let creating: Vec<_> = resources().iter().filter(|r| r.put_creates).map(|r| r.plural).collect();
        assert_eq!(
            creating,
            [
                "endpoints",
                "events",
                "limitranges",
                "services",
                "events",
                "clusterrolebindings",
                "clusterroles",
                "rolebindings",
                "roles",
                "leases",
                "runtimeclasses"
            ]
        );
        let orphaning: Vec<_> =
            resources().iter().filter(|r| r.default_gc_orphan).map(|r| r.plural).collect();
        assert_eq!(orphaning, ["replicationcontrollers", "jobs"]);
    }
}
