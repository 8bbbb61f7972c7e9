//! Where roles name objects for a user.

use std::collections::BTreeSet;

use remuda_auth::{attributes::Attributes, identity::User, rbac::policy::Policy};

/// Beyond so many names in one place all objects there are looked through instead.
const MOST_NAMES: usize = 256;

/// A place to look for objects the caller may read. Whether they may is for the authorizer to say, of each object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Empty for all, and for kinds without namespaces.
    pub(super) namespace: String,
    /// The one object; all of them if there is none.
    pub(super) name: Option<String>,
}

/// Where objects of a kind can be that a user may `get`: what is looked at costs what the user's own roles name, however
/// many objects others have.
pub(super) fn places(
    policy: &Policy,
    user: &User,
    group: &str,
    resource: &str,
    namespace: &str,
    is_namespaced: bool,
) -> BTreeSet<Place> {
    let mut found = within(policy, user, group, resource, namespace);
    if !namespace.is_empty() || !is_namespaced {
        return found;
    }
    for namespace in policy.namespaces_of(user) {
        if found.contains(&Place { namespace: String::new(), name: None }) {
            return found;
        }
        found.extend(within(policy, user, group, resource, &namespace));
    }
    found
}

fn within(policy: &Policy, user: &User, group: &str, resource: &str, namespace: &str) -> BTreeSet<Place> {
    let asked = Attributes::resource("get", group, resource).namespace(namespace);
    let place = |name: Option<&str>| Place { namespace: namespace.to_owned(), name: name.map(str::to_owned) };
    let mut found = BTreeSet::new();
    for rule in policy.rules_for(user, namespace).rules {
        if rule.resource_names.is_empty() {
            if rule.allows(&asked) {
                return BTreeSet::from([place(None)]);
            }
            continue;
        }
        let named =
            rule.resource_names.iter().filter(|name| is_plain(name) && rule.allows(&asked.name(name)));
        found.extend(named.map(|name| place(Some(name))));
    }
    if found.len() > MOST_NAMES { BTreeSet::from([place(None)]) } else { found }
}

/// Whether a text can be the name of an object, or is empty.
pub(super) fn is_plain(text: &str) -> bool {
    let letter =
        |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.".contains(&letter);
    text.bytes().all(letter) && text != "." && text != ".."
}

#[cfg(test)]
mod tests {
    use remuda_auth::rbac::{object::Kind, policy::RbacChange};
    use serde_json::{Value, json};

    use super::*;

    fn grant(policy: &Policy, namespace: &str, name: &str, user: &str, rules: Value) {
        let (role, binding, of) = match namespace.is_empty() {
            true => (Kind::ClusterRole, Kind::ClusterRoleBinding, "ClusterRole"),
            false => (Kind::Role, Kind::RoleBinding, "Role"),
        };
        let metadata = json!({"name": name, "namespace": namespace});
        policy.apply(RbacChange::Put(role, &json!({"metadata": metadata, "rules": rules})));
        let bound = json!({
            "metadata": metadata, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": name},
            "subjects": [{"kind": "User", "name": user}],
        });
        policy.apply(RbacChange::Put(binding, &bound));
    }

    fn shown(policy: &Policy, user: &str, namespace: &str) -> Vec<String> {
        let user = User::new(user, Vec::<String>::new());
        let places = places(policy, &user, "g", "things", namespace, true);
        places
            .into_iter()
            .map(|place| format!("{}/{}", place.namespace, place.name.as_deref().unwrap_or("*")))
            .collect()
    }

    #[test]
    fn only_what_roles_name_is_looked_for() {
        let policy = Policy::new();
        let rule = |names: &[&str], verb: &str| json!([{"apiGroups": ["g"], "resources": ["things"], "verbs": [verb], "resourceNames": names}]);
        grant(&policy, "a", "one", "ann", rule(&["x", "y"], "get"));
        grant(&policy, "b", "two", "ann", rule(&["z"], "*"));
        grant(&policy, "b", "three", "ann", rule(&["w"], "list"));
        grant(&policy, "c", "four", "bob", rule(&["v"], "get"));
        grant(&policy, "", "five", "bob", rule(&["u"], "get"));
        grant(
            &policy,
            "d",
            "six",
            "eve",
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get"]}]),
        );
        assert_eq!(shown(&policy, "ann", "a"), ["a/x", "a/y"]);
        assert_eq!(shown(&policy, "ann", "b"), ["b/z"]);
        assert_eq!(shown(&policy, "ann", "c"), [""; 0]);
        assert_eq!(shown(&policy, "ann", ""), ["a/x", "a/y", "b/z"]);
        assert_eq!(shown(&policy, "bob", ""), ["/u", "c/u", "c/v"]);
        assert_eq!(shown(&policy, "eve", "d"), ["d/*"]);
        assert_eq!(shown(&policy, "eve", ""), ["d/*"]);
        let many: Vec<String> = (0..300).map(|number| format!("n{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        grant(&policy, "a", "many", "max", rule(&many, "get"));
        assert_eq!(shown(&policy, "max", "a"), ["a/*"]);
    }
}
