//! Roles that come with the server.
//!
//! They are created when they are missing and brought up to date when a newer server knows better. Who wants
//! other roles makes them under other names.

use k8s_openapi::api::rbac::v1::PolicyRule;
use remuda_api::management::{GlobalRole, RoleTemplate};
use remuda_names::{
    GROUP, capi,
    identity::role,
    machines::class,
    path,
    rancher::{group, name},
};

const READ: &[&str] = &["get", "list", "watch"];
const ALL: &[&str] = &["*"];
/// Everything objects are for. Not all verbs: `escalate` and `bind` would allow to give what one does not have.
pub(crate) const MANAGE: &[&str] =
    &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(owned(groups)),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// Uses drivers that make servers at providers. Those that act on the server's host are for administrators.
fn cloud_drivers() -> PolicyRule {
    PolicyRule {
        resource_names: Some(owned(&[class::CLOUD])),
        ..rule(&[group::MANAGEMENT], &[class::RESOURCE], &[class::USE])
    }
}

fn urls(urls: &[&str]) -> PolicyRule {
    PolicyRule { non_resource_urls: Some(owned(urls)), verbs: owned(ALL), ..PolicyRule::default() }
}

fn global(id: &str, display_name: &str, description: &str, rules: Vec<PolicyRule>) -> GlobalRole {
    GlobalRole {
        display_name: display_name.to_owned(),
        description: description.to_owned(),
        rules,
        builtin: true,
        ..GlobalRole::named(id)
    }
}

/// Groups of Kubernetes, of Cluster API and of ours in which nothing opens anything. Kinds that come to them are read
/// by auditors as well.
const WITHOUT_SECRETS: &[&str] = &[
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    capi::group::ADDONS,
    "bootstrap.cluster.x-k8s.io",
    capi::group::CORE,
    capi::group::CLUSTERCTL,
    "controlplane.cluster.x-k8s.io",
    "infrastructure.cluster.x-k8s.io",
    capi::group::IPAM,
    group::PROVISIONING,
    group::RKE,
    group::MACHINE,
    group::MACHINE_CONFIG,
    GROUP,
];

/// Kinds without a group, by name: Secrets are among them, and subresources that run commands or issue tokens.
const CORE: &[&str] = &[
    "configmaps",
    "endpoints",
    "events",
    "limitranges",
    "namespaces",
    "namespaces/status",
    "nodes",
    "nodes/status",
    "persistentvolumeclaims",
    "persistentvolumeclaims/status",
    "persistentvolumes",
    "persistentvolumes/status",
    "pods",
    "pods/status",
    "podtemplates",
    "replicationcontrollers",
    "replicationcontrollers/scale",
    "replicationcontrollers/status",
    "resourcequotas",
    "resourcequotas/status",
    "serviceaccounts",
    "services",
    "services/status",
];

/// Kinds of the management group, by name: Tokens, ClusterRegistrationTokens and AuthConfigs hold what opens something.
const MANAGEMENT_KINDS: &[&str] = &[
    "clusterroletemplatebindings",
    "clusterroletemplatebindings/status",
    "clusters",
    "clusters/status",
    "dynamicschemas",
    "features",
    "fleetworkspaces",
    "globalrolebindings",
    "globalrolebindings/status",
    "globalroles",
    "globalroles/status",
    "nodedrivers",
    "nodes",
    "roletemplates",
    "settings",
    "users",
];

/// Reads everything but what opens something. RBAC cannot take away, so what may be read is listed. Custom resources of
/// others are read as far as their authors add them to the ClusterRole [`role::VIEW`], which [`included`] adds.
fn audit() -> Vec<PolicyRule> {
    vec![
        rule(&[""], CORE, READ),
        rule(WITHOUT_SECRETS, ALL, READ),
        rule(&[group::MANAGEMENT], MANAGEMENT_KINDS, READ),
        PolicyRule {
            non_resource_urls: Some(owned(&[path::AUDIT])),
            verbs: owned(&["get"]),
            ..PolicyRule::default()
        },
    ]
}

/// The ClusterRole of this server that a GlobalRole includes: its holders have the rights of both, and so needs
/// whoever gives it.
pub(crate) fn included(role: &str, is_builtin: bool) -> Option<&'static str> {
    (role == role::AUDITOR && is_builtin).then_some(role::VIEW)
}

/// Whether a role of this name may be older than the server's own, and another: it came with a later server.
pub(crate) fn came_later(role: &str) -> bool {
    [role::AUDITOR, role::CLUSTER_VIEWER].contains(&role)
}

/// What everybody may who can log in.
fn base() -> Vec<PolicyRule> {
    vec![rule(&[group::MANAGEMENT], &["settings", "features"], READ)]
}

/// GlobalRoles.
pub fn global_roles() -> Vec<GlobalRole> {
    let management = &[group::MANAGEMENT][..];
    let mut user = base();
    user.push(rule(&[group::PROVISIONING], &["clusters"], &["create"]));
    user.push(rule(management, &["roletemplates", "nodedrivers"], READ));
    user.push(rule(&[group::MACHINE_CONFIG], ALL, &["create"]));
    user.push(cloud_drivers());
    let creation = vec![
        rule(&[group::PROVISIONING], &["clusters"], &["create"]),
        rule(&[group::MACHINE_CONFIG], ALL, &["create"]),
        rule(management, &["roletemplates", "nodedrivers"], READ),
        cloud_drivers(),
    ];
    vec![
        global(
            role::ADMIN,
            "Administrator",
            "Everything on this server and in all clusters.",
            vec![rule(ALL, ALL, ALL), urls(ALL)],
        ),
        GlobalRole {
            new_user_default: true,
            ..global(role::USER, "Standard user", "Makes clusters, and owns those.", user)
        },
        global(
            role::AUDITOR,
            "Auditor",
            "Reads everything on this server but Secrets, and the audit log. Changes nothing and enters no cluster.",
            audit(),
        ),
        global(role::USER_BASE, "User base", "Logs in, and uses what is shared with them.", base()),
        global("clusters-create", "Create new clusters", "Makes clusters, and owns those.", creation),
        global(
            "users-manage",
            "Manage users",
            "Makes and changes users, and gives them roles the giver has.",
            vec![
                rule(management, &["users", "globalrolebindings"], ALL),
                rule(management, &["globalroles"], READ),
            ],
        ),
        global(
            "roles-manage",
            "Manage roles",
            "Makes and changes roles that allow no more than the maker may.",
            vec![rule(management, &["roletemplates", "globalroles"], MANAGE)],
        ),
        global(
            "settings-manage",
            "Manage settings",
            "Changes settings and features.",
            vec![rule(management, &["settings", "features"], ALL)],
        ),
    ]
}

fn template(id: &str, display_name: &str, description: &str, rules: Vec<PolicyRule>) -> RoleTemplate {
    RoleTemplate {
        display_name: display_name.to_owned(),
        description: description.to_owned(),
        rules,
        builtin: true,
        context: "cluster".to_owned(),
        ..RoleTemplate::named(id)
    }
}

/// A role every Kubernetes cluster has.
fn external(id: &str, description: &str) -> RoleTemplate {
    RoleTemplate { external: true, ..template(id, &format!("Kubernetes {id}"), description, Vec::new()) }
}

/// RoleTemplates.
pub fn role_templates() -> Vec<RoleTemplate> {
    let management = &[group::MANAGEMENT][..];
    let member = vec![
        rule(&[""], &["namespaces", "nodes", "persistentvolumes", "events"], READ),
        rule(&["storage.k8s.io"], &["storageclasses"], READ),
        rule(&["metrics.k8s.io"], &["nodes", "pods"], READ),
        rule(&["apiregistration.k8s.io"], &["apiservices"], READ),
        rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], READ),
        rule(management, &["nodes", "nodepools", "projects"], READ),
    ];
    vec![
        RoleTemplate {
            administrative: true,
            cluster_creator_default: true,
            ..template(
                role::CLUSTER_OWNER,
                "Cluster owner",
                "Everything in the cluster.",
                vec![rule(ALL, ALL, ALL), urls(ALL)],
            )
        },
        template(
            role::CLUSTER_MEMBER,
            "Cluster member",
            "Looks at what belongs to the cluster as a whole.",
            member.clone(),
        ),
        RoleTemplate {
            role_template_names: owned(&[role::VIEW]),
            ..template(
                role::CLUSTER_VIEWER,
                "Cluster viewer",
                "Looks at everything in the cluster but Secrets.",
                member,
            )
        },
        template(
            "nodes-view",
            "View nodes",
            "Looks at nodes.",
            vec![rule(&[""], &["nodes"], READ), rule(management, &["nodes", "nodepools"], READ)],
        ),
        template(
            "nodes-manage",
            "Manage nodes",
            "Changes and drains nodes.",
            vec![
                rule(&[""], &["nodes"], ALL),
                rule(&[""], &["pods"], READ),
                rule(&[""], &["pods/eviction"], &["create"]),
            ],
        ),
        template(
            "storage-manage",
            "Manage storage",
            "Volumes and their classes.",
            vec![
                rule(&[""], &["persistentvolumes", "persistentvolumeclaims"], ALL),
                rule(&["storage.k8s.io"], &["storageclasses"], ALL),
            ],
        ),
        template(
            "clusterroletemplatebindings-view",
            "View cluster members",
            "Looks at who has roles.",
            vec![rule(management, &["clusterroletemplatebindings"], READ)],
        ),
        template(
            "clusterroletemplatebindings-manage",
            "Manage cluster members",
            "Gives roles.",
            vec![rule(management, &["clusterroletemplatebindings"], ALL)],
        ),
        external(role::VIEW, "Looks at most things in all namespaces."),
        external("edit", "Changes most things in all namespaces."),
        external("admin", "Changes most things in all namespaces, roles there too."),
        RoleTemplate { administrative: true, ..external("cluster-admin", "Everything in the cluster.") },
    ]
}

/// Clusters in which roles of all clusters do not hold.
pub(crate) fn is_local(cluster: &str) -> bool {
    cluster == name::LOCAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_administrators_may_everything() {
        for role in global_roles() {
            let all = role.rules.iter().any(|rule| rule == &super::rule(ALL, ALL, ALL));
            assert_eq!(all, role.metadata.name.as_deref() == Some("admin"));
        }
        let defaults: Vec<_> = global_roles().into_iter().filter(|role| role.new_user_default).collect();
        assert_eq!(defaults.len(), 1);
    }

    #[test]
    fn nobody_but_administrators_reads_tokens_or_secrets_here() {
        for role in global_roles().iter().filter(|role| role.metadata.name.as_deref() != Some("admin")) {
            for rule in &role.rules {
                let resources = rule.resources.as_deref().unwrap_or_default();
                assert!(!resources.iter().any(|name| name == "tokens" || name == "secrets"), "{rule:?}");
            }
        }
    }
}
