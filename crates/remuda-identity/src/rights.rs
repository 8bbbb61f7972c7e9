//! What GlobalRoles, RoleTemplates and their bindings mean on this server.
//!
//! [`grants`] turns all of them into rules and bindings in the terms of RBAC, which are put into the policy
//! requests are judged by and stored nowhere. Their names hold a slash, which no stored object can have.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::ResourceExt;
use remuda_api::management::{ClusterRoleTemplateBinding, GlobalRole, GlobalRoleBinding, RoleTemplate};
use remuda_auth::rbac::object::{Key, Kind};
use remuda_names::{identity::role, rancher::group};
use serde_json::{Value, json};

use crate::builtin;

/// Templates of templates of templates end somewhere.
const DEPTH: usize = 16;
/// Templates one binding can mean.
const MOST: usize = 256;

/// A cluster people write, as far as rights go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provisioned {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Name of its management Cluster, once there is one.
    pub(crate) management: String,
    /// Who wrote it, and is its owner for that.
    pub(crate) creator: Option<String>,
    /// The Secret with its kubeconfig, once the server has made it. One that others made is not the cluster's.
    pub(crate) kubeconfig: Option<String>,
}

/// Everything rights are made of.
pub(crate) struct Sources<G, B, T, C> {
    pub(crate) roles: Vec<G>,
    pub(crate) bindings: Vec<B>,
    pub(crate) templates: Vec<T>,
    pub(crate) cluster_bindings: Vec<C>,
    pub(crate) provisioned: Vec<Provisioned>,
}

/// Whom a binding is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    User(String),
    Group(String),
}

impl Subject {
    fn to_value(&self) -> Value {
        match self {
            Self::User(name) => json!({"kind": "User", "name": name}),
            Self::Group(name) => json!({"kind": "Group", "name": name}),
        }
    }

    pub(crate) fn is(&self, name: &str, groups: &[String]) -> bool {
        match self {
            Self::User(user) => user == name,
            Self::Group(group) => groups.contains(group),
        }
    }
}

fn subject(
    user: &str,
    groups: [&str; 2],
    principal: &str,
    find: &dyn Fn(&str) -> Option<String>,
) -> Option<Subject> {
    if !user.is_empty() {
        return Some(Subject::User(user.to_owned()));
    }
    if let Some(group) = groups.into_iter().find(|group| !group.is_empty()) {
        return Some(Subject::Group(group.to_owned()));
    }
    find(principal).filter(|_| !principal.is_empty()).map(Subject::User)
}

pub(crate) fn global_subject(
    binding: &GlobalRoleBinding,
    find: &dyn Fn(&str) -> Option<String>,
) -> Option<Subject> {
    if binding.metadata.deletion_timestamp.is_some() {
        return None;
    }
    subject(&binding.user_name, [&binding.group_principal_name, ""], &binding.user_principal_name, find)
}

/// A binding counts where its cluster's things are and nowhere else: elsewhere others may write.
pub(crate) fn cluster_subject(
    binding: &ClusterRoleTemplateBinding,
    find: &dyn Fn(&str) -> Option<String>,
) -> Option<Subject> {
    let own = binding.metadata.namespace.as_deref() == Some(&binding.cluster_name);
    if !own || binding.cluster_name.is_empty() || binding.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let groups = [binding.group_principal_name.as_str(), binding.group_name.as_str()];
    subject(&binding.user_name, groups, &binding.user_principal_name, find)
}

/// A template and those that are part of it, each once.
pub(crate) fn resolve<T: AsRef<RoleTemplate>>(name: &str, find: impl Fn(&str) -> Option<T>) -> Vec<T> {
    let mut found: BTreeMap<String, T> = BTreeMap::new();
    let mut next: Vec<(String, usize)> = vec![(name.to_owned(), 0)];
    while let Some((name, depth)) = next.pop() {
        if depth >= DEPTH || found.len() >= MOST || found.contains_key(&name) {
            continue;
        }
        let living = |template: &T| template.as_ref().metadata.deletion_timestamp.is_none();
        let Some(template) = find(&name).filter(living) else { continue };
        next.extend(template.as_ref().role_template_names.iter().map(|part| (part.clone(), depth + 1)));
        found.insert(name, template);
    }
    found.into_values().collect()
}

/// Whether templates make somebody the owner of a cluster.
pub(crate) fn is_owner<T: AsRef<RoleTemplate>>(templates: &[T]) -> bool {
    let star = |list: &Option<Vec<String>>| list.iter().flatten().any(|item| item == "*");
    let all = |rule: &PolicyRule| {
        star(&rule.api_groups)
            && star(&rule.resources)
            && rule.verbs.iter().any(|verb| verb == "*")
            && rule.resource_names.iter().flatten().next().is_none()
    };
    templates.iter().map(AsRef::as_ref).any(|template| {
        template.context != "project"
            && (template.administrative
                || template.name_any() == role::CLUSTER_OWNER
                || (!template.external && template.rules.iter().any(all)))
    })
}

/// The part of rules that is about this server: what belongs to a cluster is in its namespace. All verbs there are
/// those objects are for, and not `use` or `bind`, which are about more than the cluster.
fn management_rules<T: AsRef<RoleTemplate>>(templates: &[T]) -> Vec<PolicyRule> {
    let ours = |rule: &PolicyRule| {
        let groups = rule.api_groups.as_deref().unwrap_or_default();
        let resources = rule.resources.as_deref().unwrap_or_default();
        let about =
            groups.iter().any(|name| name == "*" || name == group::MANAGEMENT) && !resources.is_empty();
        about.then(|| PolicyRule {
            api_groups: Some(vec![group::MANAGEMENT.to_owned()]),
            verbs: match rule.verbs.iter().any(|verb| verb == "*") {
                true => builtin::MANAGE.iter().map(ToString::to_string).collect(),
                false => rule.verbs.clone(),
            },
            non_resource_urls: None,
            ..rule.clone()
        })
    };
    let own = templates.iter().map(AsRef::as_ref).filter(|template| !template.external);
    let rules = own.flat_map(|template| &template.rules);
    rules.filter_map(ours).collect()
}

/// Collects objects of RBAC.
#[derive(Default)]
struct Grants(BTreeMap<Key, Value>);

impl Grants {
    fn role(&mut self, namespace: &str, name: &str, rules: &Value) {
        let kind = if namespace.is_empty() { Kind::ClusterRole } else { Kind::Role };
        let object = json!({"metadata": {"namespace": namespace, "name": name}, "rules": rules});
        self.0.insert(Key::new(kind, namespace, name), object);
    }

    fn bind(&mut self, namespace: &str, name: &str, role: &str, subject: &Subject) {
        let (kind, of) = match namespace.is_empty() {
            true => (Kind::ClusterRoleBinding, "ClusterRole"),
            false => (Kind::RoleBinding, "Role"),
        };
        let object = json!({
            "metadata": {"namespace": namespace, "name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": role},
            "subjects": [subject.to_value()],
        });
        self.0.insert(Key::new(kind, namespace, name), object);
    }

    /// Who has a cluster, as owner or otherwise, has it in the management API.
    fn cluster(&mut self, cluster: &str, owner: bool, binding: &str, subject: &Subject) {
        let verbs = if owner { json!(["*"]) } else { json!(["get", "list", "watch"]) };
        let role = format!("cluster/{cluster}/{}", standing(owner));
        let rules = json!([{
            "apiGroups": [group::MANAGEMENT], "resources": ["clusters"], "resourceNames": [cluster], "verbs": verbs,
        }]);
        self.role("", &role, &rules);
        self.bind("", &format!("cluster/{binding}"), &role, subject);
    }

    /// And so in the object people wrote.
    fn provisioned(&mut self, cluster: &Provisioned, owner: bool, binding: &str, subject: &Subject) {
        let Provisioned { namespace, name, .. } = cluster;
        let verbs = if owner { json!(["*"]) } else { json!(["get", "list", "watch"]) };
        let mut rules = vec![json!({
            "apiGroups": [group::PROVISIONING], "resources": ["clusters"], "resourceNames": [name], "verbs": verbs,
        })];
        if let (true, Some(secret)) = (owner, &cluster.kubeconfig) {
            // It makes its holder an owner, which they are.
            rules.push(json!({
                "apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"],
            }));
        }
        let role = format!("cluster/{name}/{}", standing(owner));
        self.role(namespace, &role, &json!(rules));
        self.bind(namespace, &format!("cluster/{binding}"), &role, subject);
    }
}

fn standing(owner: bool) -> &'static str {
    if owner { "owner" } else { "member" }
}

/// What all of it means. Names of roles and bindings are unique: parts are names, which hold no slash.
pub(crate) fn grants<G, B, T, C>(
    sources: &Sources<G, B, T, C>,
    find: &dyn Fn(&str) -> Option<String>,
) -> BTreeMap<Key, Value>
where
    G: AsRef<GlobalRole>,
    B: AsRef<GlobalRoleBinding>,
    T: AsRef<RoleTemplate> + Clone,
    C: AsRef<ClusterRoleTemplateBinding>,
{
    let mut grants = Grants::default();
    let roles: HashMap<String, &GlobalRole> =
        sources.roles.iter().map(|role| (role.as_ref().name_any(), role.as_ref())).collect();
    for (name, role) in &roles {
        grants.role("", &format!("global/{name}"), &json!(role.rules));
        for (namespace, rules) in role.namespaced_rules.iter().filter(|(namespace, _)| !namespace.is_empty())
        {
            grants.role(namespace, &format!("global/{name}"), &json!(rules));
        }
    }
    for binding in sources.bindings.iter().map(AsRef::as_ref) {
        let Some((subject, role)) = global_subject(binding, find).zip(roles.get(&binding.global_role_name))
        else {
            continue;
        };
        let (name, of) = (format!("global/{}", binding.name_any()), format!("global/{}", role.name_any()));
        grants.bind("", &name, &of, &subject);
        if let Some(included) = builtin::included(&role.name_any(), role.builtin) {
            grants.bind("", &format!("{name}/{included}"), included, &subject);
        }
        for namespace in role.namespaced_rules.keys().filter(|namespace| !namespace.is_empty()) {
            grants.bind(namespace, &name, &of, &subject);
        }
    }
    let templates: HashMap<String, T> =
        sources.templates.iter().map(|template| (template.as_ref().name_any(), template.clone())).collect();
    let mut by_management: HashMap<&str, Vec<&Provisioned>> = HashMap::new();
    for cluster in &sources.provisioned {
        if !cluster.management.is_empty() {
            by_management.entry(&cluster.management).or_default().push(cluster);
        }
        if let Some(creator) = &cluster.creator {
            let (binding, subject) = (format!("{}/creator", cluster.name), Subject::User(creator.clone()));
            grants.provisioned(cluster, true, &binding, &subject);
            if !cluster.management.is_empty() {
                let binding = format!("{}/creator", cluster.management);
                grants.cluster(&cluster.management, true, &binding, &subject);
            }
        }
    }
    for binding in sources.cluster_bindings.iter().map(AsRef::as_ref) {
        let Some(subject) = cluster_subject(binding, find) else { continue };
        let resolved = resolve(&binding.role_template_name, |name| templates.get(name).cloned());
        if resolved.is_empty() {
            continue;
        }
        let (cluster, owner) = (&binding.cluster_name, is_owner(&resolved));
        let name = format!("{cluster}/{}", binding.name_any());
        grants.cluster(cluster, owner, &name, &subject);
        let rules = management_rules(&resolved);
        if !rules.is_empty() {
            let role = format!("template/{}", binding.role_template_name);
            grants.role(cluster, &role, &json!(rules));
            grants.bind(cluster, &format!("template/{}", binding.name_any()), &role, &subject);
        }
        for written in by_management.get(cluster.as_str()).into_iter().flatten() {
            grants.provisioned(written, owner, &name, &subject);
        }
    }
    grants.0
}

#[cfg(test)]
#[path = "rights_tests.rs"]
mod tests;
