//! Roles, and who has them.

use std::collections::BTreeMap;

use k8s_openapi::{api::rbac::v1::PolicyRule, apimachinery::pkg::apis::meta::v1::Condition};
use remuda_names::rancher::group::MANAGEMENT;

use crate::{lenient, object::object};

lenient! {
    pub struct FleetPermissions {
        /// What is allowed in all workspaces but that of the local cluster.
        pub resource_rules: Vec<PolicyRule>,
        /// What is allowed with the workspaces themselves.
        pub workspace_verbs: Vec<String>,
    }

    pub struct GlobalRoleStatus {
        /// Generation this status is about.
        pub observed_generation: i64,
        /// When it was written last.
        pub last_update_time: String,
        /// In one word.
        pub summary: String,
        /// Conditions of the role.
        pub conditions: Vec<Condition>,
    }

    /// How far a binding is here and in clusters.
    pub struct BindingStatus {
        /// Generation that is in effect here.
        pub observed_generation_local: i64,
        /// Generation that is in effect in clusters.
        pub observed_generation_remote: i64,
        /// When it was written last.
        pub last_update_time: String,
        /// In one word.
        pub summary: String,
        /// Here, in one word.
        pub summary_local: String,
        /// In clusters, in one word.
        pub summary_remote: String,
        /// Conditions here.
        pub local_conditions: Vec<Condition>,
        /// Conditions in clusters.
        pub remote_conditions: Vec<Condition>,
    }
}

object! {
    /// What is allowed on this server.
    mod global_role; GlobalRole = "GlobalRole", MANAGEMENT, "v3", "globalroles", ClusterResourceScope;
    status: GlobalRoleStatus;
    {
        /// Name for people.
        pub display_name: String,
        /// What it is for.
        pub description: String,
        /// What is allowed everywhere.
        pub rules: Vec<PolicyRule>,
        /// New users have it.
        pub new_user_default: bool,
        /// It came with the server.
        pub builtin: bool,
        /// What is allowed in single namespaces.
        pub namespaced_rules: BTreeMap<String, Vec<PolicyRule>>,
        /// RoleTemplates that hold in every cluster but the local one.
        pub inherited_cluster_roles: Vec<String>,
        /// What is allowed in workspaces.
        pub inherited_fleet_workspace_permissions: Option<FleetPermissions>,
        /// What is allowed in single namespaces of every cluster but the local one.
        pub inherited_namespaced_rules: BTreeMap<String, Vec<PolicyRule>>,
    }
}

object! {
    /// Who has a GlobalRole.
    mod global_role_binding; GlobalRoleBinding = "GlobalRoleBinding", MANAGEMENT, "v3", "globalrolebindings",
    ClusterResourceScope;
    status: BindingStatus;
    {
        /// Name of the User.
        pub user_name: String,
        /// Name of the user at the authentication provider.
        pub user_principal_name: String,
        /// Name of the group at the authentication provider.
        pub group_principal_name: String,
        /// Name of the GlobalRole.
        pub global_role_name: String,
    }
}

object! {
    /// What is allowed in a cluster or a project.
    mod role_template; RoleTemplate = "RoleTemplate", MANAGEMENT, "v3", "roletemplates", ClusterResourceScope;
    {
        /// Name for people.
        pub display_name: String,
        /// What it is for.
        pub description: String,
        /// What is allowed.
        pub rules: Vec<PolicyRule>,
        /// It came with the server.
        pub builtin: bool,
        /// A ClusterRole of the same name in the cluster says what is allowed.
        pub external: bool,
        /// What that ClusterRole allows, unless the cluster is asked.
        pub external_rules: Option<Vec<PolicyRule>>,
        /// It is not offered to people.
        pub hidden: bool,
        /// It cannot be given to anybody any more.
        pub locked: bool,
        /// Who creates a cluster has it there.
        pub cluster_creator_default: bool,
        /// Who creates a project has it there.
        pub project_creator_default: bool,
        /// Either cluster or project.
        pub context: String,
        /// RoleTemplates that are part of it.
        pub role_template_names: Vec<String>,
        /// It allows everything in the cluster.
        pub administrative: bool,
    }
}

object! {
    /// Who has a RoleTemplate in a cluster.
    mod cluster_role_template_binding;
    ClusterRoleTemplateBinding = "ClusterRoleTemplateBinding", MANAGEMENT, "v3", "clusterroletemplatebindings",
    NamespaceResourceScope;
    status: BindingStatus;
    {
        /// Name of the User.
        pub user_name: String,
        /// Name of the user at the authentication provider.
        pub user_principal_name: String,
        /// Name of the group.
        pub group_name: String,
        /// Name of the group at the authentication provider.
        pub group_principal_name: String,
        /// Name of the management Cluster.
        pub cluster_name: String,
        /// Name of the RoleTemplate.
        pub role_template_name: String,
    }
}
