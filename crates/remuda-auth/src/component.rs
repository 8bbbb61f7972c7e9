//! The parts of the server that use the API, and what each of them may do there.

use std::collections::BTreeSet;

use remuda_names::{
    PROGRAM, capi,
    identity::{PASSWORDS_NAMESPACE, oidc::LOGINS_NAMESPACE, second_factor},
    rancher::{
        group,
        name::{GLOBAL_DATA, SYSTEM as RANCHER_SYSTEM},
    },
    user::CONTROLLER_PREFIX,
};
use serde_json::{Value, json};

use crate::{
    identity::{GROUP_AUTHENTICATED, GROUP_CONTROLLERS, User},
    rbac::{
        object::Kind,
        policy::{Policy, RbacChange},
        rule::{Rule, words},
    },
};

/// A part of the server that uses the API under a name and with rights of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Informers, Events and the election of a leader, which all components share.
    Shared,
    /// Definitions of our kinds, and the inventory for clusterctl.
    Installer,
    /// The Cluster API controllers.
    ClusterApi,
    /// Provisioning and management Clusters.
    Provisioning,
    /// Infrastructure, bootstrap and control plane providers.
    ControlPlane,
    /// Node drivers and machines.
    Machines,
    /// Registration, tunnels and the way into clusters.
    Gateway,
    /// Connections to workload clusters.
    Workloads,
    /// Users, roles, tokens.
    Identity,
    /// Servers on the same datastore.
    Peering,
    /// Reads clusters and their parts for those who may see some of them.
    Viewer,
    /// Release data that is fetched.
    Releases,
    /// Reads any kind for the list API, which shows each caller what they may read of it.
    ListApi,
    /// Messages to other systems.
    Webhooks,
}

const READ: &str = "get list watch";
const EDIT: &str = "create delete get list patch update watch";
const EDIT_ALL: &str = "create delete deletecollection get list patch update watch";

/// Where Leases of the server are.
const SYSTEM: &str = "kube-system";

/// Groups whose kinds Cluster API knows by contract.
const PROVIDERS: &str = "infrastructure.cluster.x-k8s.io bootstrap.cluster.x-k8s.io controlplane.cluster.x-k8s.io \
     rke-machine.cattle.io rke.cattle.io";
/// Our groups.
const OURS: &str = "management.cattle.io provisioning.cattle.io rke.cattle.io rke-machine.cattle.io \
     rke-machine-config.cattle.io remuda.io";
/// Those of Cluster API itself.
const CLUSTER_API: &str = "cluster.x-k8s.io addons.cluster.x-k8s.io ipam.cluster.x-k8s.io";

/// Lets every component do what its work needs. The roles are kept in memory only: they belong to the program, and
/// no client can change them in the store.
pub fn grant(policy: &Policy) {
    for component in Component::ALL {
        for (kind, object) in component.rbac() {
            policy.apply(RbacChange::Put(kind, &object));
        }
    }
}

/// Words are separated by spaces; `core` stands for the group without name.
#[derive(Clone, Copy)]
struct Grant {
    /// Empty for all.
    namespace: &'static str,
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
}

const fn on(verbs: &'static str, groups: &'static str, resources: &'static str) -> Grant {
    Grant { namespace: "", verbs, groups, resources }
}

const fn within(
    namespace: &'static str,
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
) -> Grant {
    Grant { namespace, verbs, groups, resources }
}

impl Component {
    pub const ALL: [Self; 14] = [
        Self::Shared,
        Self::Installer,
        Self::ClusterApi,
        Self::Provisioning,
        Self::ControlPlane,
        Self::Machines,
        Self::Gateway,
        Self::Workloads,
        Self::Identity,
        Self::Peering,
        Self::Viewer,
        Self::Releases,
        Self::ListApi,
        Self::Webhooks,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Installer => "installer",
            Self::ClusterApi => "cluster-api",
            Self::Provisioning => "provisioning",
            Self::ControlPlane => "control-plane",
            Self::Machines => "machines",
            Self::Gateway => "gateway",
            Self::Workloads => "workloads",
            Self::Identity => "identity",
            Self::Peering => "peering",
            Self::Viewer => "viewer",
            Self::Releases => "releases",
            Self::ListApi => "list-api",
            Self::Webhooks => "webhooks",
        }
    }

    /// Who it is in the audit log and for RBAC.
    pub fn user(self) -> User {
        let name = format!("{CONTROLLER_PREFIX}{}", self.name());
        User::new(name, [GROUP_CONTROLLERS, GROUP_AUTHENTICATED])
    }

    /// Owner of the fields it writes.
    pub fn field_manager(self) -> String {
        match self {
            Self::Shared => PROGRAM.to_owned(),
            _ => format!("{PROGRAM}-{}", self.name()),
        }
    }

    /// All components applied as one manager once; those of drivers and logs had a suffix.
    pub fn former_manager(manager: &str) -> Option<String> {
        let own = Self::ALL.iter().filter(|component| **component != Self::Shared);
        let mut managers = own.map(|component| component.field_manager());
        managers.find_map(|own| match manager.strip_prefix(&own)? {
            "" => Some(PROGRAM.to_owned()),
            suffix => suffix.starts_with('-').then(|| format!("{PROGRAM}{suffix}")),
        })
    }

    /// Its roles and their bindings. Names of stored objects hold no slash, so these replace none.
    fn rbac(self) -> Vec<(Kind, Value)> {
        let name = format!("controller/{}", self.name());
        let namespaces: BTreeSet<&str> = self.grants().iter().map(|grant| grant.namespace).collect();
        let objects = |namespace: &str| {
            let own = self.grants().iter().filter(|grant| grant.namespace == namespace);
            let rules: Vec<Value> = own.map(|grant| grant.rule().to_value()).collect();
            let (role, binding) = match namespace.is_empty() {
                true => (Kind::ClusterRole, Kind::ClusterRoleBinding),
                false => (Kind::Role, Kind::RoleBinding),
            };
            let metadata = json!({"name": name, "namespace": namespace});
            let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
            let bound = json!({
                "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": [{"kind": "User", "name": self.user().name}],
            });
            [(role, json!({"metadata": metadata, "rules": rules})), (binding, bound)]
        };
        namespaces.into_iter().flat_map(objects).collect()
    }

    /// The least each component needs. A kind that is missing here is refused with 403 and shows in the log.
    fn grants(self) -> &'static [Grant] {
        match self {
            Self::Shared => {
                const {
                    &[
                        on("list watch", OURS, "*"),
                        on("list watch", CLUSTER_API, "*"),
                        on("list watch", PROVIDERS, "*"),
                        on("list watch", "core", "configmaps namespaces secrets serviceaccounts"),
                        on("list watch", "rbac.authorization.k8s.io", "rolebindings roles"),
                        on("list watch", "apiextensions.k8s.io", "customresourcedefinitions"),
                        on("list watch", "batch", "jobs"),
                        on("list watch", "coordination.k8s.io", "leases"),
                        on("create patch update", "core events.k8s.io", "events"),
                        within(SYSTEM, "create get patch update", "coordination.k8s.io", "leases"),
                    ]
                }
            }
            Self::Installer => {
                const {
                    &[
                        on(
                            "create get list patch update watch",
                            "apiextensions.k8s.io",
                            "customresourcedefinitions",
                        ),
                        on("create get", "core", "namespaces"),
                        on(EDIT, capi::group::CLUSTERCTL, "providers"),
                        // Definitions are served when lists of their kinds are.
                        on("list", OURS, "*"),
                        on("list", CLUSTER_API, "*"),
                        // Webhooks of another core provider, and whether anything answers them.
                        on(
                            "list",
                            "admissionregistration.k8s.io",
                            "mutatingwebhookconfigurations validatingwebhookconfigurations",
                        ),
                        on("list", "discovery.k8s.io", "endpointslices"),
                    ]
                }
            }
            Self::ClusterApi => {
                const {
                    &[
                        on(EDIT, CLUSTER_API, "*"),
                        on(EDIT, PROVIDERS, "*"),
                        on(READ, "core", "namespaces"),
                        // A ClusterResourceSet becomes an owner of what it applies.
                        on("get list patch update watch", "core", "configmaps secrets"),
                        // The kubeconfig of a cluster whose control plane has no object of its own.
                        on("create", "core", "secrets"),
                        on(READ, "apiextensions.k8s.io", "customresourcedefinitions"),
                    ]
                }
            }
            Self::Provisioning => {
                const {
                    &[
                        // A management Cluster made by itself gets one, and takes its own along when it goes.
                        on(EDIT, group::PROVISIONING, "clusters clusters/status"),
                        on(
                            EDIT,
                            group::MANAGEMENT,
                            "clusters clusters/status clusterregistrationtokens clusterregistrationtokens/status \
                     clusterroletemplatebindings settings tokens users",
                        ),
                        on(EDIT, capi::group::CORE, "clusters machinedeployments machinehealthchecks"),
                        on(READ, capi::group::CORE, "machines machinesets"),
                        // A person asks for the removal of one machine.
                        on("delete patch", capi::group::CORE, "machines"),
                        on(EDIT, group::RKE, "rkebootstraptemplates rkeclusters rkecontrolplanes"),
                        on(READ, group::RKE, "etcdsnapshots custommachines rkebootstraps"),
                        on(EDIT, group::MACHINE, "*"),
                        on("get list patch update watch", group::MACHINE_CONFIG, "*"),
                        on(EDIT, "core", "configmaps secrets"),
                        on("create delete get list patch", "core", "namespaces"),
                        on(READ, "apiextensions.k8s.io", "customresourcedefinitions"),
                        on(READ, PROVIDERS, "*"),
                        // Whoever makes a cloud credential may use it.
                        within(
                            GLOBAL_DATA,
                            "create get list patch update watch",
                            "rbac.authorization.k8s.io",
                            "rolebindings roles",
                        ),
                    ]
                }
            }
            Self::ControlPlane => {
                const {
                    &[
                        on(EDIT, group::RKE, "*"),
                        on(
                            "get list patch update watch",
                            capi::group::CORE,
                            "clusters clusters/status machines/status",
                        ),
                        // Machines of hosts that register themselves are made and removed here.
                        on(EDIT, capi::group::CORE, "machines"),
                        on(READ, capi::group::CORE, "machinesets machinedeployments"),
                        on("get list patch update watch", group::MACHINE, "*"),
                        on(EDIT, "core", "secrets serviceaccounts"),
                        on(READ, "core", "configmaps"),
                        on(EDIT, "rbac.authorization.k8s.io", "rolebindings roles"),
                        on(READ, group::MANAGEMENT, "clusters settings"),
                    ]
                }
            }
            Self::Machines => {
                const {
                    &[
                        on(EDIT_ALL, "rke-machine.cattle.io rke-machine-config.cattle.io", "*"),
                        on(EDIT, group::MANAGEMENT, "dynamicschemas nodedrivers nodedrivers/status"),
                        on(READ, group::MANAGEMENT, "settings"),
                        // Given on by a ClusterRole of its own to those who edit a namespace.
                        on("use", group::MANAGEMENT, "nodedriverclasses"),
                        on(EDIT, "apiextensions.k8s.io", "customresourcedefinitions"),
                        on(EDIT, "batch", "jobs jobs/status"),
                        on(EDIT, "core", "configmaps secrets serviceaccounts"),
                        on("create", "core", "serviceaccounts/token"),
                        on("get list", "core", "namespaces pods pods/log"),
                        on(EDIT, "rbac.authorization.k8s.io", "rolebindings roles"),
                        // Lets those who edit or view a namespace use machine kinds in it.
                        on("create get patch update", "rbac.authorization.k8s.io", "clusterroles"),
                        on("get list patch watch", capi::group::CORE, "clusters machines"),
                        // The address a machine is to have.
                        on(EDIT, capi::group::IPAM, "ipaddressclaims"),
                        on("get", capi::group::IPAM, "ipaddresses"),
                        // A machine whose server could not be made is replaced.
                        on("delete", capi::group::CORE, "machines"),
                        on(READ, group::RKE, "rkecontrolplanes rkebootstraps"),
                        on(READ, group::PROVISIONING, "clusters"),
                    ]
                }
            }
            Self::Gateway => {
                const {
                    &[
                        on("get list patch update watch", group::MANAGEMENT, "clusters clusters/status"),
                        // What is seen of the nodes of clusters.
                        on(EDIT, group::MANAGEMENT, "nodes"),
                        on(
                            READ,
                            group::MANAGEMENT,
                            "clusterregistrationtokens clusterroletemplatebindings settings",
                        ),
                        on(READ, group::PROVISIONING, "clusters"),
                        on("get list patch watch", capi::group::CORE, "machines"),
                        on(READ, group::RKE, "rkebootstraps custommachines"),
                        on(EDIT, "core", "secrets"),
                        on("create get list watch", "core", "serviceaccounts"),
                        on("create", "authorization.k8s.io", "subjectaccessreviews"),
                    ]
                }
            }
            Self::Workloads => {
                const { &[on(READ, "core", "secrets"), on(READ, capi::group::CORE, "clusters machines")] }
            }
            Self::Identity => {
                const {
                    &[
                        on(
                            EDIT,
                            group::MANAGEMENT,
                            "globalrolebindings globalroles roletemplates tokens users users/status userattributes \
                     clusterroletemplatebindings",
                        ),
                        on(READ, group::MANAGEMENT, "authconfigs clusters settings"),
                        // Notes there that the creator's binding was made.
                        on("get list patch watch", group::PROVISIONING, "clusters"),
                        within(second_factor::NAMESPACE, EDIT, "core", "secrets"),
                        // Grants of credentials of a user who goes.
                        within(GLOBAL_DATA, "delete get list", "rbac.authorization.k8s.io", "rolebindings"),
                        on("create get", "core", "namespaces"),
                        within(PASSWORDS_NAMESPACE, EDIT, "core", "secrets"),
                        within(LOGINS_NAMESPACE, EDIT, "core", "secrets"),
                        within(GLOBAL_DATA, READ, "core", "secrets"),
                    ]
                }
            }
            Self::Peering => const { &[within(SYSTEM, EDIT, "coordination.k8s.io", "leases")] },
            // What of it a caller is shown is decided in `visible`; nothing here holds a secret but what that leaves out.
            Self::Viewer => {
                const {
                    &[
                        on("get list", "provisioning.cattle.io management.cattle.io", "clusters"),
                        on(
                            "get list",
                            capi::group::CORE,
                            "clusters machines machinesets machinedeployments machinehealthchecks",
                        ),
                        on(
                            "get list",
                            group::RKE,
                            "rkeclusters rkecontrolplanes rkebootstraps custommachines",
                        ),
                        on("get list", group::MACHINE, "*"),
                    ]
                }
            }
            // Every kind there is or will be can be listed; what a caller is shown is decided by the caller's rights.
            // Preferences of users are the one thing it writes.
            Self::ListApi => {
                const { &[on(READ, "*", "*"), within(GLOBAL_DATA, "create delete update", "core", "configmaps")] }
            }
            // What it tells of it reads from the shared caches.
            Self::Webhooks => const { &[within(RANCHER_SYSTEM, "create get patch", "core", "configmaps")] },
            Self::Releases => {
                const {
                    &[
                        on(READ, group::MANAGEMENT, "settings"),
                        within(RANCHER_SYSTEM, "create get list patch watch", "core", "configmaps"),
                    ]
                }
            }
        }
    }
}

impl Grant {
    fn rule(self) -> Rule {
        Rule {
            verbs: words(self.verbs),
            api_groups: words(self.groups),
            resources: words(self.resources),
            ..Rule::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attributes;

    fn policy() -> Policy {
        let policy = Policy::new();
        grant(&policy);
        policy
    }

    #[test]
    fn no_component_may_what_its_work_does_not_need() {
        let policy = policy();
        let may = |component: Component, verb: &str, group: &str, resource: &str| {
            let attributes = Attributes::resource(verb, group, resource).namespace("fleet-default");
            policy.authorize(&component.user(), &attributes).allowed
        };
        for component in Component::ALL {
            let user = component.user();
            assert!(!user.is_master());
            for grant in component.grants() {
                for word in grant.verbs.split(' ').chain(grant.groups.split(' ')) {
                    // One reads every kind for callers.
                    assert!(word != "*" || component == Component::ListApi, "{component:?} names {word}");
                    assert!(!["escalate", "bind", "impersonate"].contains(&word), "{component:?} may {word}");
                }
            }
            // Everybody who can give roles of this server is Identity, everybody who writes Secrets has a reason.
            let gives_roles = may(component, "create", "management.cattle.io", "globalrolebindings");
            assert_eq!(gives_roles, component == Component::Identity);
            assert!(!may(component, "create", "rbac.authorization.k8s.io", "clusterrolebindings"));
            let deletes = may(component, "delete", "provisioning.cattle.io", "clusters");
            assert_eq!(deletes, component == Component::Provisioning, "{component:?}");
        }
        for verb in EDIT_ALL.split(' ').filter(|verb| !READ.contains(verb)).chain(["use", "*"]) {
            assert!(!may(Component::ListApi, verb, "", "secrets"), "the list API may {verb}");
        }
        let writes_secrets =
            Component::ALL.iter().filter(|component| may(**component, "create", "", "secrets"));
        let expected = [
            Component::ClusterApi,
            Component::Provisioning,
            Component::ControlPlane,
            Component::Machines,
            Component::Gateway,
        ];
        assert_eq!(writes_secrets.copied().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_was_applied_under_the_one_manager_is_taken_over() {
        let former = |manager: &str| Component::former_manager(manager);
        assert_eq!(former("remuda-provisioning").as_deref(), Some("remuda"));
        assert_eq!(former("remuda-machines-local").as_deref(), Some("remuda-local"));
        assert_eq!(former("remuda"), None);
        assert_eq!(former("remuda-cli"), None);
        assert_eq!(former("kubectl"), None);
    }
}
