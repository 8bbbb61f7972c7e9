//! What every built-in role may, for every kind, verb and path the server has.
//!
//! `roles.golden` is written by asking the policy of a running server for a user with one role, so it shows what a
//! role gives and not what it says. `UPDATE_GOLDEN=1` rewrites it; whoever does reads every line that changed.
//! Lines are `role | where | kind | verbs`. Rights that everybody has are told once, as `everybody`; those that hold
//! everywhere are not repeated per namespace, nor those to all objects per name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use http::Method;
use kube::ResourceExt;
use remuda_auth::{
    attributes::Attributes,
    identity::{GROUP_AUTHENTICATED, User},
    rbac::{
        object::Kind,
        policy::{Policy, RbacChange},
    },
};
use remuda_door::Owned;
use remuda_identity::builtin;
use remuda_names::{
    identity::{group::AUTHENTICATED, role},
    machines::class,
    path,
    rancher::group::MANAGEMENT,
};
use serde_json::{Value, json};

use super::writers::Site;
use crate::controllers::Component;

const VERBS: [&str; 14] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
    "approve",
    "sign",
];
const READ: [&str; 3] = ["get", "list", "watch"];
/// The management Cluster roles in clusters are bound in.
const MANAGED: &str = "c-m-abcd2345";
/// What discovery does not list: what impersonation and classes of drivers are about, and a kind that is not defined,
/// which only those may use who may use everything.
const UNSTORED: &[(&str, &str)] = &[
    ("", "users"),
    ("", "groups"),
    ("", "uids"),
    ("authentication.k8s.io", "userextras/principalid"),
    (MANAGEMENT, class::RESOURCE),
    ("example.com", "things"),
    ("example.com", "things/status"),
];

type Resource = (String, String);

/// A role that a user has and nothing else.
struct Holder {
    role: String,
    user: User,
    policy: Arc<Policy>,
}

fn attributes<'a>(
    verb: &'a str,
    (group, resource): &'a Resource,
    namespace: &'a str,
    name: &'a str,
) -> Attributes<'a> {
    let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes::resource(verb, group, resource).subresource(sub).namespace(namespace).name(name)
}

impl Holder {
    fn may(&self, verb: &str, resource: &Resource, namespace: &str, name: &str) -> bool {
        self.policy.authorize(&self.user, &attributes(verb, resource, namespace, name)).allowed
    }

    fn verbs(&self, resource: &Resource, namespace: &str, name: &str) -> BTreeSet<&'static str> {
        VERBS.into_iter().filter(|verb| self.may(verb, resource, namespace, name)).collect()
    }

    /// Everywhere, and where bindings name the user.
    fn namespaces(&self) -> Vec<String> {
        std::iter::once(String::new()).chain(self.policy.namespaces_of(&self.user)).collect()
    }

    /// No name in particular, and those that rules name.
    fn names(&self, namespace: &str) -> BTreeSet<String> {
        let rules = self.policy.rules_for(&self.user, namespace).rules;
        let named = rules.into_iter().flat_map(|rule| rule.resource_names);
        std::iter::once(String::new()).chain(named).collect()
    }

    /// Every right to a resource: namespace, name, verbs. A right is told where it holds widest.
    fn rights(&self, resource: &Resource) -> Vec<(String, String, BTreeSet<&'static str>)> {
        let mut found = Vec::new();
        let everywhere = self.verbs(resource, "", "");
        for namespace in self.namespaces() {
            let here = self.verbs(resource, &namespace, "");
            for name in self.names(&namespace) {
                let mut verbs = self.verbs(resource, &namespace, &name);
                if !name.is_empty() {
                    let wider = self.verbs(resource, "", &name);
                    verbs.retain(|verb| {
                        !here.contains(verb) && (namespace.is_empty() || !wider.contains(verb))
                    });
                } else if !namespace.is_empty() {
                    verbs.retain(|verb| !everywhere.contains(verb));
                }
                if !verbs.is_empty() {
                    found.push((namespace.clone(), name, verbs));
                }
            }
        }
        found
    }
}

/// All kinds the server has, with their subresources.
async fn discovered(site: &Site) -> BTreeSet<Resource> {
    let get = async |path: &str| site.send(&site.root(), Method::GET, path, &Value::Null).await.unwrap();
    let mut versions = vec![("".to_owned(), "/api/v1".to_owned())];
    for group in get("/apis").await["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
            versions.push((group["name"].as_str().unwrap().to_owned(), path));
        }
    }
    let mut found: BTreeSet<Resource> =
        UNSTORED.iter().map(|(group, resource)| (group.to_string(), resource.to_string())).collect();
    for (group, path) in versions {
        for resource in get(&path).await["resources"].as_array().unwrap() {
            found.insert((group.clone(), resource["name"].as_str().unwrap().to_owned()));
        }
    }
    found
}

/// Paths of all doors, and some of the API.
fn paths() -> BTreeSet<String> {
    let of_api =
        ["/api", "/apis/example.com", "/healthz", "/version", "/openapi/v3", "/logs", "/debug/pprof"];
    let doors = crate::doors::all();
    let owned = doors.iter().flat_map(|door| door.paths);
    let owned = owned.filter_map(|owned| match owned {
        Owned::Exact(path) => Some(path.to_string()),
        Owned::Tree(path) | Owned::Below(path) => Some(format!("{}/x", path.trim_end_matches('/'))),
        Owned::Rest => None,
    });
    owned.chain(of_api.map(str::to_owned)).collect()
}

fn person(name: &str) -> User {
    User::new(name, [GROUP_AUTHENTICATED, AUTHENTICATED])
}

/// A cluster with the objects rights are derived from.
async fn make_cluster(site: &Site) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MANAGED}});
    site.make("/api/v1/namespaces", namespace).await;
    let managed = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": MANAGED}, "spec": {}});
    site.make("/apis/management.cattle.io/v3/clusters", managed).await;
    let spec = json!({"rkeConfig": {}});
    site.make(super::CLUSTERS, super::cluster("demo", spec)).await;
    let status = json!({"status": {"clusterName": MANAGED, "clientSecretName": "demo-kubeconfig"}});
    let path = format!("{}/demo/status", super::CLUSTERS);
    site.send(&site.root(), Method::PATCH, &path, &status).await.unwrap();
}

/// Everybody with one role: on this server, through a cluster, inside that cluster, and the server's components.
async fn holders(site: &Site) -> Vec<Holder> {
    let policy = site.server.api().policy();
    let holder = |role: String, user: User| Holder { role, user, policy: policy.clone() };
    let mut all = vec![holder("everybody".to_owned(), person("nobody"))];
    for role in builtin::global_roles().iter().map(ResourceExt::name_any) {
        let user = format!("global-{role}");
        let binding = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "GlobalRoleBinding", "metadata": {"name": user},
            "userName": user, "globalRoleName": role,
        });
        site.make("/apis/management.cattle.io/v3/globalrolebindings", binding).await;
        all.push(holder(format!("global {role}"), person(&user)));
    }
    let templates: Vec<String> = builtin::role_templates().iter().map(ResourceExt::name_any).collect();
    for role in &templates {
        let user = format!("cluster-{role}");
        let binding = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "ClusterRoleTemplateBinding", "metadata": {"name": user},
            "userName": user, "roleTemplateName": role, "clusterName": MANAGED,
        });
        let path = format!("/apis/management.cattle.io/v3/namespaces/{MANAGED}/clusterroletemplatebindings");
        site.make(&path, binding).await;
        all.push(holder(format!("cluster {role}"), person(&user)));
    }
    let inside = inside_a_cluster(site, &templates).await;
    all.extend(templates.iter().map(|role| Holder {
        role: format!("inside {role}"),
        user: person(role),
        policy: inside.clone(),
    }));
    for component in Component::ALL {
        all.push(holder(format!("component {}", component.name()), component.user()));
    }
    // Rights follow what is written.
    let bound = |holder: &Holder| {
        let known = policy.rules_for(&holder.user, "").rules.len();
        known > policy.rules_for(&person("nobody"), "").rules.len()
    };
    let people = |holder: &&Holder| holder.role.starts_with("global ") || holder.role.starts_with("cluster ");
    site.until("roles hold", async || all.iter().filter(people).all(bound)).await;
    all
}

/// The policy of a cluster that has Kubernetes' roles and those made for RoleTemplates.
async fn inside_a_cluster(site: &Site, templates: &[String]) -> Arc<Policy> {
    let policy = Policy::new();
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let roles = site.send(&site.root(), Method::GET, path, &Value::Null).await.unwrap();
    for role in roles["items"].as_array().unwrap() {
        policy.apply(RbacChange::Put(Kind::ClusterRole, role));
    }
    let all = builtin::role_templates();
    let find = |name: &str| all.iter().find(|template| template.name_any() == name).unwrap();
    for user in templates {
        let mut parts = vec![user.clone()];
        while let Some(part) = parts.pop() {
            let template = find(&part);
            parts.extend(template.role_template_names.clone());
            let role = if template.external { part.clone() } else { format!("remuda-role/{part}") };
            if !template.external {
                let object = json!({"metadata": {"name": role}, "rules": template.rules});
                policy.apply(RbacChange::Put(Kind::ClusterRole, &object));
            }
            let binding = json!({
                "metadata": {"name": format!("{user}-{part}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": user}],
            });
            policy.apply(RbacChange::Put(Kind::ClusterRoleBinding, &binding));
        }
    }
    Arc::new(policy)
}

fn shown((group, resource): &Resource) -> String {
    if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") }
}

/// The lines of one holder. What everybody may is left out for those who are told after them.
fn lines(holder: &Holder, everybody: Option<&Holder>, resources: &BTreeSet<Resource>) -> Vec<String> {
    // How many kinds everything may be done with, by place.
    let mut complete: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut rights: BTreeMap<(String, String), Vec<(String, String)>> = BTreeMap::new();
    for resource in resources {
        for (namespace, name, mut verbs) in holder.rights(resource) {
            if verbs.len() == VERBS.len() {
                *complete.entry((namespace.clone(), name.clone())).or_default() += 1;
            }
            let known = everybody.map(|all| all.verbs(resource, "", "")).unwrap_or_default();
            verbs.retain(|verb| !known.contains(verb));
            let in_order: Vec<&str> = VERBS.into_iter().filter(|verb| verbs.contains(verb)).collect();
            let verbs = if in_order.len() == VERBS.len() { "*".to_owned() } else { in_order.join(" ") };
            if !verbs.is_empty() {
                rights.entry((namespace, name)).or_default().push((shown(resource), verbs));
            }
        }
    }
    let mut lines = Vec::new();
    for ((namespace, name), kinds) in rights {
        let place = match (namespace.as_str(), name.as_str()) {
            ("", "") => "everywhere".to_owned(),
            ("", name) => format!("name={name}"),
            (namespace, "") => format!("namespace={namespace}"),
            (namespace, name) => format!("namespace={namespace} name={name}"),
        };
        if complete.get(&(namespace, name)) == Some(&resources.len()) {
            lines.push(format!("{} | {place} | every kind | *", holder.role));
            continue;
        }
        lines.extend(
            kinds.into_iter().map(|(kind, verbs)| format!("{} | {place} | {kind} | {verbs}", holder.role)),
        );
    }
    for path in paths() {
        let verbs = |holder: &Holder| -> Vec<&'static str> {
            let may =
                |verb: &&str| holder.policy.authorize(&holder.user, &Attributes::path(verb, &path)).allowed;
            ["get", "post"].into_iter().filter(may).collect()
        };
        let (own, known) = (verbs(holder), everybody.map(verbs).unwrap_or_default());
        let own: Vec<&str> = own.into_iter().filter(|verb| !known.contains(verb)).collect();
        if !own.is_empty() {
            lines.push(format!("{} | path | {path} | {}", holder.role, own.join(" ")));
        }
    }
    if lines.is_empty() {
        lines.push(format!("{} | nothing", holder.role));
    }
    lines
}

/// What no role but that of administrators gives, however it is written.
fn check_nobody_has_more(holder: &Holder, everybody: &Holder, resources: &BTreeSet<Resource>) {
    let what = &holder.role;
    let resource = |group: &str, resource: &str| (group.to_owned(), resource.to_owned());
    for namespace in holder.namespaces().iter().map(String::as_str).chain(["fleet-default", "kube-system"]) {
        let never = |verbs: &[&str], group: &str, name: &str| {
            for verb in verbs {
                let attributes = resource(group, name);
                assert!(
                    !holder.may(verb, &attributes, namespace, ""),
                    "{what}: {verb} {name} in {namespace:?}"
                );
            }
        };
        never(&VERBS, "", "secrets");
        for name in [
            "pods/exec",
            "pods/attach",
            "pods/proxy",
            "services/proxy",
            "nodes/proxy",
            "serviceaccounts/token",
        ] {
            never(&VERBS, "", name);
        }
        for name in ["roles", "rolebindings", "clusterroles", "clusterrolebindings"] {
            never(&VERBS[3..], "rbac.authorization.k8s.io", name);
        }
        never(&["bind", "escalate"], MANAGEMENT, "globalroles");
        never(&["bind", "escalate"], MANAGEMENT, "roletemplates");
        never(&["impersonate"], "", "users");
        never(&["impersonate"], "", "groups");
        never(&["impersonate"], "", "serviceaccounts");
        never(&["impersonate"], "authentication.k8s.io", "userextras/principalid");
        never(&["use"], MANAGEMENT, "nodedrivers");
        never(&["use"], MANAGEMENT, class::RESOURCE);
        let class = resource(MANAGEMENT, class::RESOURCE);
        assert!(!holder.may("use", &class, namespace, class::HOST), "{what}: uses drivers of the host");
        for verb in VERBS {
            assert!(
                !holder.may(verb, &resource("example.com", "things"), namespace, ""),
                "{what}: {verb} everything"
            );
        }
    }
    for path in [path::ASSETS, path::BACKUP, path::ROTATE_KEYS] {
        for verb in ["get", "post"] {
            let allowed = holder.policy.authorize(&holder.user, &Attributes::path(verb, path)).allowed;
            assert!(!allowed, "{what}: {verb} {path}");
        }
    }
    if *what == format!("global {}", role::AUDITOR) {
        for resource in resources {
            for (namespace, name, verbs) in holder.rights(resource) {
                let reads = verbs.iter().all(|verb| READ.contains(verb));
                let own = everybody.verbs(resource, &namespace, &name);
                assert!(reads || verbs.is_subset(&own), "{what}: {verbs:?} {resource:?} {namespace}/{name}");
            }
        }
        for kind in ["tokens", "clusterregistrationtokens", "authconfigs"] {
            assert!(holder.rights(&resource(MANAGEMENT, kind)).is_empty(), "{what}: {kind}");
        }
        let audit = Attributes::path("get", path::AUDIT);
        assert!(holder.policy.authorize(&holder.user, &audit).allowed, "{what}");
    }
    // Secrets by name: the kubeconfig of a cluster one owns, and no other.
    for (namespace, name, verbs) in holder.rights(&resource("", "secrets")) {
        let own = what == "cluster cluster-owner" || what == "cluster cluster-admin";
        let kubeconfig = (namespace.as_str(), name.as_str()) == ("fleet-default", "demo-kubeconfig");
        assert!(
            own && kubeconfig && verbs == BTreeSet::from(["get"]),
            "{what}: {namespace}/{name} {verbs:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_role_has_a_right_it_does_not_state() {
    let site = Site::start().await;
    make_cluster(&site).await;
    let holders = holders(&site).await;
    let resources = discovered(&site).await;
    let secrets = ("".to_owned(), "secrets".to_owned());
    assert!(resources.contains(&secrets));

    let mut table = Vec::new();
    for holder in &holders {
        let everybody = (holder.role != "everybody").then_some(&holders[0]);
        table.extend(lines(holder, everybody, &resources));
        let is_admin = holder.role == format!("global {}", role::ADMIN);
        if is_admin {
            assert!(holder.verbs(&secrets, "", "").len() == VERBS.len());
        } else if !holder.role.starts_with("inside ") && !holder.role.starts_with("component ") {
            check_nobody_has_more(holder, &holders[0], &resources);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rancher/tests/roles.golden");
    let found = table.join("\n") + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path).unwrap();
    let (wanted, found): (BTreeSet<&str>, BTreeSet<&str>) =
        (wanted.lines().collect(), found.lines().collect());
    let missing: Vec<&&str> = wanted.difference(&found).collect();
    let new: Vec<&&str> = found.difference(&wanted).collect();
    assert!(
        missing.is_empty() && new.is_empty(),
        "roles.golden is not what roles give; UPDATE_GOLDEN=1 writes it\nno longer: {missing:#?}\nnew: {new:#?}"
    );
}
