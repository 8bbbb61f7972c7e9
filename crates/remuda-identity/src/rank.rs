//! Who may act on whom: everything a user may, on this server and in clusters, against what another may.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use remuda_api::management::GlobalRoleBinding;
use remuda_auth::{
    attributes::Attributes,
    identity::{GROUP_AUTHENTICATED, User},
    rbac::{cover::covers, rule::Rule},
};
use remuda_control::ObjectKey;
use remuda_names::{
    identity::{group::AUTHENTICATED, role},
    rancher::group::MANAGEMENT,
};
use serde_json::json;

use crate::{
    access::{self, Access, Role},
    identity::{BY_CLUSTER, Identity},
    rights,
};

impl Identity {
    /// Whether a user may all that another may: everywhere on this server, in single namespaces, and in every
    /// cluster. Whoever does not must not be able to become the other, say by choosing their password.
    pub fn outranks(&self, user: &User, other: &str) -> bool {
        if user.is_trusted_writer() || user.name == other {
            return true;
        }
        let theirs = self.in_all_groups(other);
        self.covers_here(user, &theirs) && self.covers_in_clusters(user, &theirs)
    }

    /// Whether anything at all is allowed to a name beyond what everybody is allowed.
    pub(crate) fn has_rights(&self, name: &str) -> bool {
        let theirs = self.in_all_groups(name);
        let everybody = User::new("", theirs.groups.iter().take(2).cloned());
        !(self.covers_here(&everybody, &theirs) && self.covers_in_clusters(&everybody, &theirs))
    }

    /// A user with the groups any of their tokens has: a login may bring them back.
    fn in_all_groups(&self, name: &str) -> User {
        let mut groups = vec![GROUP_AUTHENTICATED.to_owned(), AUTHENTICATED.to_owned()];
        let told: BTreeSet<String> = self
            .tokens_of(name)
            .iter()
            .flat_map(|token| token.group_principals.iter().filter_map(crate::tokens::group_name))
            .collect();
        groups.extend(told);
        User::new(name, groups)
    }

    fn covers_here(&self, user: &User, theirs: &User) -> bool {
        let policy = &self.0.policy;
        let mut namespaces = std::iter::once(String::new()).chain(policy.namespaces_of(theirs));
        namespaces.all(|namespace| {
            let requested = policy.rules_for(theirs, &namespace).rules;
            requested.is_empty() || covers(&policy.rules_for(user, &namespace).rules, &requested).is_empty()
        })
    }

    fn covers_in_clusters(&self, user: &User, theirs: &User) -> bool {
        let everywhere = self.inherited_roles(theirs);
        if !everywhere.is_empty() && !self.owns_every_cluster(user) {
            let mine = self.inherited_roles(user);
            if !covers_roles(&mine, &everywhere) {
                return false;
            }
        }
        let find = |principal: &str| self.0.tokens.user_of_principal(principal);
        let bindings = self.0.cluster_bindings.list();
        let clusters: BTreeSet<&str> = bindings
            .iter()
            .filter(|binding| {
                rights::cluster_subject(binding, &find)
                    .is_some_and(|subject| subject.is(&theirs.name, &theirs.groups))
            })
            .map(|binding| binding.cluster_name.as_str())
            .collect();
        clusters.into_iter().all(|cluster| {
            let requested = self.access(&theirs.name, &theirs.groups, cluster);
            covers_access(&self.access(&user.name, &user.groups, cluster), &requested)
        })
    }

    pub(crate) fn owns_every_cluster(&self, user: &User) -> bool {
        let attributes = Attributes::resource("*", MANAGEMENT, "clusters").version("v3");
        self.0.policy.authorize(user, &attributes).allowed
    }

    /// Roles a user has in every cluster by their GlobalRoles.
    fn inherited_roles(&self, user: &User) -> Vec<Role> {
        let names = self.inherited_templates(&user.name, &user.groups);
        self.resolve_roles(&names)
    }

    /// RoleTemplates in every cluster by GlobalRoles.
    pub(crate) fn inherited_templates(&self, name: &str, groups: &[String]) -> Vec<String> {
        let bindings = self.global_bindings_of(name, groups);
        let names = bindings.iter().flat_map(|binding| {
            let role = self.0.global_roles.get(&ObjectKey::cluster_wide(&binding.global_role_name));
            role.map(|role| role.inherited_cluster_roles.clone()).unwrap_or_default()
        });
        names.collect()
    }

    pub(crate) fn is_auditor(&self, name: &str, groups: &[String]) -> bool {
        self.global_bindings_of(name, groups).iter().any(|binding| binding.global_role_name == role::AUDITOR)
    }

    /// Whether a user may all that these RoleTemplates allow, in a cluster or, without one, in every cluster.
    pub(crate) fn covers_templates(&self, user: &User, cluster: Option<&str>, names: &[String]) -> bool {
        if user.is_trusted_writer() {
            return true;
        }
        let mine = match cluster {
            Some(cluster) => self.access(&user.name, &user.groups, cluster),
            None if self.owns_every_cluster(user) => Access::Owner,
            None => Access::Member(self.inherited_roles(user)),
        };
        covers_access(&mine, &self.access_by_templates(names))
    }

    pub(crate) fn global_bindings_of(
        &self,
        name: &str,
        groups: &[String],
    ) -> Vec<std::sync::Arc<GlobalRoleBinding>> {
        let shared = &self.0;
        let find = |principal: &str| shared.tokens.user_of_principal(principal);
        let keys = groups.iter().map(String::as_str).chain([name]).map(str::to_owned);
        let keys: BTreeSet<String> = keys.chain(shared.tokens.principals_of(name)).collect();
        let bindings =
            keys.iter().flat_map(|key| shared.global_bindings.by_index(crate::identity::BY_SUBJECT, key));
        bindings
            .filter(|binding| {
                rights::global_subject(binding, &find).is_some_and(|subject| subject.is(name, groups))
            })
            .collect()
    }

    /// RoleTemplates that bindings of a cluster give a user.
    pub(crate) fn bound_templates(&self, name: &str, groups: &[String], cluster: &str) -> Vec<String> {
        let find = |principal: &str| self.0.tokens.user_of_principal(principal);
        let bindings = self.0.cluster_bindings.by_index(BY_CLUSTER, cluster);
        let mine = bindings.iter().filter(|binding| {
            rights::cluster_subject(binding, &find).is_some_and(|subject| subject.is(name, groups))
        });
        mine.map(|binding| binding.role_template_name.clone()).collect()
    }

    fn resolve_roles(&self, names: &[String]) -> Vec<Role> {
        match self.access_by_templates(names) {
            Access::Member(roles) => roles,
            Access::Owner => {
                let all = |text: &str| vec![text.to_owned()];
                let rule = PolicyRule {
                    api_groups: Some(all("*")),
                    resources: Some(all("*")),
                    verbs: all("*"),
                    ..PolicyRule::default()
                };
                let urls = PolicyRule {
                    non_resource_urls: Some(all("*")),
                    verbs: all("*"),
                    ..PolicyRule::default()
                };
                vec![Role { name: String::new(), rules: Some(vec![rule, urls]) }]
            }
            Access::None => Vec::new(),
        }
    }

    /// What RoleTemplates make of whoever has them.
    pub(crate) fn access_by_templates(&self, names: &[String]) -> Access {
        let template = |name: &str| self.0.templates.get(&ObjectKey::cluster_wide(name));
        let resolved: Vec<_> = names.iter().flat_map(|name| rights::resolve(name, template)).collect();
        if rights::is_owner(&resolved) {
            return Access::Owner;
        }
        if resolved.is_empty() {
            return Access::None;
        }
        Access::Member(access::roles(&resolved))
    }
}

fn covers_access(mine: &Access, theirs: &Access) -> bool {
    match (mine, theirs) {
        (Access::Owner, _) | (_, Access::None) => true,
        (_, Access::Owner) | (Access::None, Access::Member(_)) => false,
        (Access::Member(mine), Access::Member(theirs)) => covers_roles(mine, theirs),
    }
}

/// A role the cluster itself defines is covered by itself only: what it allows is not known here.
fn covers_roles(mine: &[Role], theirs: &[Role]) -> bool {
    let rules = |roles: &mut dyn Iterator<Item = &Role>| -> Vec<Rule> {
        let rules: Vec<&PolicyRule> = roles.flat_map(|role| role.rules.iter().flatten()).collect();
        Rule::parse_all(Some(&json!(rules)))
    };
    let missing: Vec<&Role> = theirs.iter().filter(|role| !mine.contains(role)).collect();
    if missing.is_empty() {
        return true;
    }
    let known = missing.iter().all(|role| role.rules.is_some());
    known && covers(&rules(&mut mine.iter()), &rules(&mut missing.into_iter())).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, rules: Option<&[(&str, &str)]>) -> Role {
        let rules = rules.map(|rules| {
            let rule = |(resource, verb): &(&str, &str)| PolicyRule {
                api_groups: Some(vec![String::new()]),
                resources: Some(vec![(*resource).to_owned()]),
                verbs: vec![(*verb).to_owned()],
                ..PolicyRule::default()
            };
            rules.iter().map(rule).collect()
        });
        Role { name: name.to_owned(), rules }
    }

    #[test]
    fn roles_are_covered_by_what_they_allow_and_unknown_ones_by_themselves() {
        let view = role("view", None);
        let pods = role("pods", Some(&[("pods", "get")]));
        let all = role("all", Some(&[("*", "*")]));
        assert!(
            covers_roles(std::slice::from_ref(&all), std::slice::from_ref(&pods))
                && !covers_roles(std::slice::from_ref(&pods), std::slice::from_ref(&all))
        );
        assert!(covers_roles(&[view.clone(), pods.clone()], &[view.clone(), pods.clone()]));
        assert!(
            !covers_roles(std::slice::from_ref(&all), std::slice::from_ref(&view)),
            "what the cluster's role allows is not known"
        );
        assert!(covers_access(&Access::Owner, &Access::Member(vec![view])));
        assert!(!covers_access(&Access::Member(vec![all]), &Access::Owner));
        assert!(!covers_access(&Access::None, &Access::Member(vec![pods])));
        assert!(covers_access(&Access::None, &Access::None));
    }
}
