//! What somebody may in a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::ResourceExt;
use remuda_api::management::RoleTemplate;

/// A role in a cluster, which its holders are told to have by being in a group there.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// Name of the RoleTemplate.
    pub name: String,
    /// What it allows; nothing if a ClusterRole of the same name in the cluster says so.
    pub rules: Option<Vec<PolicyRule>>,
}

/// What somebody is in a cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Access {
    /// Nobody.
    None,
    /// May everything.
    Owner,
    /// May what these allow, and what the cluster itself allows them.
    Member(Vec<Role>),
}

/// What templates are in a cluster.
pub(crate) fn roles<T: AsRef<RoleTemplate>>(templates: &[T]) -> Vec<Role> {
    let mut roles: BTreeMap<String, Role> = BTreeMap::new();
    for template in templates.iter().map(AsRef::as_ref) {
        let name = template.name_any();
        let rules = match (template.external, &template.external_rules) {
            (false, _) => Some(template.rules.clone()),
            (true, Some(rules)) if !rules.is_empty() => Some(rules.clone()),
            (true, _) => None,
        };
        if rules.as_ref().is_none_or(|rules| !rules.is_empty()) {
            roles.insert(name.clone(), Role { name, rules });
        }
    }
    roles.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    #[test]
    fn a_role_says_what_it_allows_unless_the_cluster_does() {
        let templates = builtin::role_templates();
        let named = |name: &str| {
            let found = templates.iter().find(|template| template.name_any() == name);
            std::sync::Arc::new(found.unwrap().clone())
        };
        let roles = roles(&[named("view"), named("nodes-view"), named("view")]);
        assert_eq!(roles.iter().map(|role| role.name.as_str()).collect::<Vec<_>>(), ["nodes-view", "view"]);
        assert!(roles[0].rules.is_some() && roles[1].rules.is_none());
    }
}
