//! One kubeconfig inside another.

use serde_json::{Value, json};

use crate::failure::{Code, Failure};

/// Puts the current context of `incoming` into `into`, with its cluster and its user, all three called `name`.
/// Nothing else changes. A context of that name that leads elsewhere is replaced only if `force` says so.
pub(super) fn merge(into: &mut Value, incoming: &Value, name: &str, force: bool) -> Result<(), Failure> {
    let broken =
        |what: &str| Failure::new(Code::Other, format!("the kubeconfig of the cluster has no {what}"));
    let context = match incoming["current-context"].as_str().filter(|current| !current.is_empty()) {
        Some(current) => find(incoming, "contexts", current),
        None => incoming["contexts"].as_array().and_then(|contexts| contexts.first()),
    };
    let context = context.ok_or_else(|| broken("context"))?;
    let part = |list: &str, key: &str| {
        let wanted = context.pointer(&format!("/context/{key}")).and_then(Value::as_str)?;
        find(incoming, list, wanted)
    };
    let cluster = part("clusters", "cluster").ok_or_else(|| broken("cluster"))?;
    let user = part("users", "user").ok_or_else(|| broken("user"))?;
    let server = |entry: &Value| entry.pointer("/cluster/server").and_then(Value::as_str).map(str::to_owned);
    if let Some(old) = find(into, "clusters", name).and_then(server).filter(|_| !force)
        && Some(&old) != server(cluster).as_ref()
    {
        let failure =
            Failure::new(Code::Conflict, format!("there is another cluster {name} in the file, at {old}"));
        return Err(failure.hint("call this one something else with --as, or replace that one with --force"));
    }
    let namespace = context.pointer("/context/namespace").cloned();
    let mut context = json!({"name": name, "context": {"cluster": name, "user": name}});
    if let Some(namespace) = namespace {
        context["context"]["namespace"] = namespace;
    }
    let renamed = |entry: &Value| {
        let mut entry = entry.clone();
        entry["name"] = json!(name);
        entry
    };
    put(into, "clusters", renamed(cluster))?;
    put(into, "users", renamed(user))?;
    put(into, "contexts", context)
}

fn find<'a>(config: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    config[list].as_array()?.iter().find(|entry| entry["name"] == name)
}

/// Replaces the entry of the same name where it is, or adds it at the end.
fn put(config: &mut Value, list: &str, entry: Value) -> Result<(), Failure> {
    if config[list].is_null() {
        config[list] = json!([]);
    }
    let entries = config[list].as_array_mut();
    let entries = entries.ok_or_else(|| Failure::invalid(format!("{list} in the file is not a list")))?;
    match entries.iter_mut().find(|old| old["name"] == entry["name"]) {
        Some(old) => *old = entry,
        None => entries.push(entry),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming(server: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "default",
            "clusters": [{"name": "cluster", "cluster": {"server": server}}],
            "users": [{"name": "user", "user": {"token": "t"}}],
            "contexts": [{"name": "default", "context": {"cluster": "cluster", "user": "user"}}],
        })
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let mut file = json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true}, "current-context": "other",
            "clusters": [{"name": "other", "cluster": {"server": "https://o"}}],
            "users": [{"name": "other", "user": {"exec": {"command": "x"}}}],
            "contexts": [{"name": "other", "context": {"cluster": "other", "user": "other"}}],
        });
        merge(&mut file, &incoming("https://a"), "demo", false).unwrap();
        assert_eq!(file["preferences"], json!({"colors": true}));
        assert_eq!(file["users"][0], json!({"name": "other", "user": {"exec": {"command": "x"}}}));
        assert_eq!(
            file["contexts"][1],
            json!({"name": "demo", "context": {"cluster": "demo", "user": "demo"}})
        );
        assert_eq!(file["clusters"][1], json!({"name": "demo", "cluster": {"server": "https://a"}}));
        assert_eq!(file["current-context"], "other");
        let once = file.clone();
        merge(&mut file, &incoming("https://a"), "demo", false).unwrap();
        assert_eq!(file, once, "a second time changes nothing");
    }

    #[test]
    fn a_cluster_of_somebody_else_is_not_replaced_by_accident() {
        let mut file = json!({});
        merge(&mut file, &incoming("https://a"), "demo", false).unwrap();
        let failure = merge(&mut file, &incoming("https://b"), "demo", false).unwrap_err();
        assert_eq!(failure.code, Code::Conflict);
        merge(&mut file, &incoming("https://b"), "demo", true).unwrap();
        assert_eq!(file["clusters"], json!([{"name": "demo", "cluster": {"server": "https://b"}}]));
    }

    #[test]
    fn broken_files_are_refused() {
        assert!(merge(&mut json!({"users": 3}), &incoming("https://a"), "demo", false).is_err());
        assert!(merge(&mut json!({}), &json!({}), "demo", false).is_err());
        assert!(
            merge(&mut json!({}), &json!({"contexts": [{"context": {"cluster": "x"}}]}), "demo", false)
                .is_err()
        );
    }
}
