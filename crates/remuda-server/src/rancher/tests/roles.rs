//! Every built-in role and every field that names another object: no role gives more than it says.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt;
use remuda_apiserver::{AdmissionRequest, Found, Hook, Lookup, Operation};
use remuda_auth::{
    attributes::Attributes,
    identity::{GROUP_AUTHENTICATED, User},
    rbac::{
        object::Kind,
        policy::{Policy, RbacChange},
    },
};
use remuda_identity::builtin;
use remuda_names::{capi::group::IPAM, rancher::setting::SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS};
use remuda_provisioning::admission::references::{Field, Names, TABLE, Use};
use serde_json::{Value, json};

use super::super::Kinds;

/// A value that names `victim`, and what is needed to name it: namespace, group, resource and verbs.
struct Example {
    value: Value,
    namespace: &'static str,
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
}

const HERE: &str = "fleet-default";

fn example(names: Names) -> Example {
    let read = |value: Value, namespace, resource| Example {
        value,
        namespace,
        group: "",
        resource,
        verbs: &["get"],
    };
    let used = |used: Use| match used {
        Use::Read => &["get"][..],
        Use::Join => &["update"],
        Use::Own => &["get", "update", "delete"],
        Use::Create => &["create"],
    };
    match names {
        Names::Secret => read(json!("victim"), HERE, "secrets"),
        Names::ConfigMap => read(json!("victim"), HERE, "configmaps"),
        Names::Credential => read(json!("cattle-global-data:victim"), "cattle-global-data", "secrets"),
        Names::Files("ConfigMap") => read(json!({"name": "victim"}), HERE, "configmaps"),
        Names::Files(_) => read(json!({"name": "victim", "items": [{"key": "k"}]}), HERE, "secrets"),
        Names::Resource => {
            let value = json!({"kind": "Secret", "name": "victim"});
            Example { verbs: used(Use::Own), ..read(value, HERE, "secrets") }
        }
        Names::Reference(by) => Example {
            value: json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "victim"}),
            namespace: HERE,
            group: "example.com",
            resource: "things",
            verbs: used(by),
        },
        Names::MachineConfig => Example {
            value: json!({"kind": "TestConfig", "name": "victim"}),
            namespace: HERE,
            group: "rke-machine-config.cattle.io",
            resource: "testconfigs",
            verbs: &["get"],
        },
        Names::AddressPool(by) => Example {
            value: json!({"apiGroup": IPAM, "kind": "GlobalInClusterIPPool", "name": "victim"}),
            namespace: "",
            group: IPAM,
            resource: "globalinclusterippools",
            verbs: used(by),
        },
        Names::AddressPoolName => Example {
            value: json!("victim"),
            namespace: HERE,
            group: IPAM,
            resource: "inclusterippools",
            verbs: &["get"],
        },
        Names::PoolCredential => read(json!({"cloudCredentialSecretName": "victim"}), HERE, "secrets"),
        Names::Object { group, kind, used: by, .. } => {
            assert_eq!(kind, "Cluster");
            let namespace = if group == "cluster.x-k8s.io" { HERE } else { "" };
            Example { value: json!("victim"), namespace, group, resource: "clusters", verbs: used(by) }
        }
        Names::Snapshot => Example {
            value: json!("victim"),
            namespace: HERE,
            group: "rke.cattle.io",
            resource: "etcdsnapshots",
            verbs: &["get"],
        },
        Names::Workspace => Example {
            value: json!("team-a"),
            namespace: "team-a",
            group: "provisioning.cattle.io",
            resource: "clusters",
            verbs: &["create"],
        },
        Names::PullSecrets => read(json!("victim"), "cattle-system", "secrets"),
        Names::Inline => read(json!({"x": ["y=secret://vault:victim"]}), "vault", "secrets"),
    }
}

/// An object with nothing but this value at this path.
fn nest(path: &str, value: Value) -> Value {
    if path.is_empty() {
        return value;
    }
    if let Some(rest) = path.strip_prefix("[*]") {
        return json!([nest(rest.trim_start_matches('.'), value)]);
    }
    if let Some((key, rest)) = path.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        return json!({key: nest(rest, value)});
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (key, rest) = path.split_at(end);
    json!({key: nest(rest.strip_prefix('.').unwrap_or(rest), value)})
}

struct Judge {
    kinds: Kinds,
    policy: Arc<Policy>,
}

impl Judge {
    fn new() -> Self {
        let (kinds, policy) = (Kinds::default(), Arc::new(Policy::new()));
        kinds.judge_by(policy.clone());
        Self { kinds, policy }
    }

    /// Binds rules to a user: everywhere, or in a namespace.
    fn bind(&self, user: &str, namespace: &str, name: &str, rules: &Value) {
        let (role, binding, of) = match namespace {
            "" => (Kind::ClusterRole, Kind::ClusterRoleBinding, "ClusterRole"),
            _ => (Kind::Role, Kind::RoleBinding, "Role"),
        };
        let metadata = json!({"namespace": namespace, "name": name});
        self.policy.apply(RbacChange::Put(role, &json!({"metadata": metadata, "rules": rules})));
        let bound = json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": name},
            "subjects": [{"kind": "User", "name": user}],
        });
        self.policy.apply(RbacChange::Put(binding, &bound));
    }

    /// Whether a user has the right to what the example names.
    fn allows(&self, user: &str, example: &Example) -> bool {
        let user = User::new(user, [GROUP_AUTHENTICATED]);
        example.verbs.iter().all(|verb| {
            let attributes = Attributes::resource(verb, example.group, example.resource);
            self.policy.authorize(&user, &attributes.namespace(example.namespace).name("victim")).allowed
        })
    }

    /// Whether the hooks let a user create an object with this field.
    fn accepts(&self, user: &str, field: &Field, example: &Example) -> Result<(), String> {
        let kind = if field.kind == "*" { "TestMachine" } else { field.kind };
        let object = nest(field.path, example.value.clone());
        let user = User::new(user, [GROUP_AUTHENTICATED]);
        let name = match field.names {
            Names::PullSecrets => SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS,
            _ => "mine",
        };
        let old = json!({});
        let request = |found| AdmissionRequest {
            operation: Operation::Update,
            group: field.group,
            version: "v1",
            resource: "things",
            kind,
            subresource: if field.path.starts_with("status") { "status" } else { "" },
            namespace: HERE,
            name,
            user: &user,
            old: Some(&old),
            dry_run: false,
            found,
        };
        let (none, mut found) = (BTreeMap::new(), BTreeMap::new());
        let hook = super::super::Writers::new(self.kinds.clone());
        assert!(hook.concerns(&request(&none)), "{field:?}");
        for lookup in hook.lookups(&request(&none), Some(&object)) {
            let resource = Some(format!("{}s", lookup.kind.to_lowercase()));
            let Lookup { name, .. } = &lookup;
            let objects = vec![
                json!({"metadata": {"name": name, "annotations": {"field.cattle.io/creatorId": "bob"}}}),
            ];
            found.insert(lookup, Found { resource, objects });
        }
        hook.validate(&request(&found), Some(&object)).map(drop).map_err(|error| error.message)
    }
}

#[test]
fn no_role_names_what_it_gives_no_right_to() {
    for role in builtin::global_roles() {
        let judge = Judge::new();
        let (user, is_admin) = ("ann", role.name_any() == "admin");
        judge.bind(user, "", "role", &json!(role.rules));
        for field in TABLE {
            let example = example(field.names);
            let accepted = judge.accepts(user, field, &example);
            let what = format!("role {} {} {}: {accepted:?}", role.name_any(), field.kind, field.path);
            // Auditors read a good deal, though no Secret, and may name what they read.
            let is_auditor = role.name_any() == "auditor";
            let reads = is_auditor && judge.allows(user, &example);
            assert!(!reads || example.verbs == ["get"] && example.resource != "secrets", "{what}");
            assert_eq!(accepted.is_ok(), is_admin || reads, "{what}");
            if let Err(message) = accepted {
                let path = field.path.split("[*]").next().unwrap().split(".*").next().unwrap();
                assert!(message.contains(path) || matches!(field.names, Names::PoolCredential), "{what}");
                let object = if field.names == Names::Workspace { "team-a" } else { "victim" };
                assert!(message.contains(object), "{what}");
            }
        }
    }
}

#[test]
fn the_right_to_what_is_named_is_enough_and_nothing_less_is() {
    for field in TABLE {
        let example = example(field.names);
        let Example { namespace, group, resource, verbs, .. } = &example;
        let name = if field.names == Names::Workspace { None } else { Some("victim") };
        let rules = |name: Option<&str>, verbs: &[&str]| {
            let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
            if let Some(name) = name {
                rule["resourceNames"] = json!([name]);
            }
            json!([rule])
        };
        let what = format!("{} {}", field.kind, field.path);
        let accepts = |namespace: &str, rules: &Value| {
            let judge = Judge::new();
            judge.bind("ann", namespace, "given", rules);
            judge.accepts("ann", field, &example).is_ok()
        };
        assert!(accepts(namespace, &rules(name, verbs)), "{what}");
        // Another object, fewer verbs, another namespace.
        assert!(name.is_none() || !accepts(namespace, &rules(Some("other"), verbs)), "{what}");
        for verb in *verbs {
            let fewer: Vec<&str> = verbs.iter().filter(|known| *known != verb).copied().collect();
            assert!(!accepts(namespace, &rules(name, &fewer)), "{what} without {verb}");
        }
        assert!(namespace.is_empty() || !accepts("elsewhere", &rules(name, verbs)), "{what}");
    }
}
