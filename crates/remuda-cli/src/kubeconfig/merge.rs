//! One kubeconfig inside another.

use serde_json::{Value, json};

use crate::failure::{Code, Failure};

/// Puts the contexts of `incoming` into `into`, with their clusters and the user of the current one. The current
/// one is called `name`, others after it. Nothing else changes; what has one of the names already and leads
/// elsewhere is replaced only if `force` says so. Gives the names of the others.
pub(super) fn merge(
    into: &mut Value,
    incoming: &Value,
    name: &str,
    force: bool,
) -> Result<Vec<String>, Failure> {
    let broken =
        |what: &str| Failure::new(Code::Other, format!("the kubeconfig of the cluster has no {what}"));
    let contexts = incoming["contexts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let current = match incoming["current-context"].as_str().filter(|current| !current.is_empty()) {
        Some(current) => find(incoming, "contexts", current),
        None => contexts.first(),
    };
    let current = current.ok_or_else(|| broken("context"))?;
    let user = part(incoming, current, "users", "user").ok_or_else(|| broken("user"))?;
    let own = text(current, "/name");
    let others = contexts.iter().filter(|context| context["name"] != current["name"]);
    let others = others.map(|context| {
        let theirs = text(context, "/name");
        let rest = theirs.strip_prefix(own).and_then(|rest| rest.strip_prefix('-'));
        (context, format!("{name}-{}", rest.unwrap_or(theirs)))
    });
    let all: Vec<(&Value, String)> = std::iter::once((current, name.to_owned())).chain(others).collect();
    let mut found = Vec::with_capacity(all.len());
    for (context, called) in &all {
        let cluster = part(incoming, context, "clusters", "cluster").ok_or_else(|| broken("cluster"))?;
        if !force {
            refuse_others(into, cluster, called, called == name)?;
        }
        found.push((cluster, context, called));
    }
    put(into, "users", renamed(user, name))?;
    for (cluster, context, called) in found {
        put(into, "clusters", renamed(cluster, called))?;
        let mut entry = json!({"name": called, "context": {"cluster": called, "user": name}});
        if let Some(namespace) = context.pointer("/context/namespace") {
            entry["context"]["namespace"] = namespace.clone();
        }
        put(into, "contexts", entry)?;
    }
    Ok(all.into_iter().skip(1).map(|(_, called)| called).collect())
}

/// Fails if an entry of this name is somebody else's. Those of a cluster at the same server are ours.
fn refuse_others(into: &Value, cluster: &Value, name: &str, with_user: bool) -> Result<(), Failure> {
    let conflict = |what: String| {
        Err(Failure::new(Code::Conflict, what)
            .hint("call this one something else with --as, or replace that one with --force"))
    };
    if let Some(old) = find(into, "clusters", name) {
        let server = text(old, "/cluster/server");
        return match server == text(cluster, "/cluster/server") {
            true => Ok(()),
            false => conflict(format!("there is another cluster {name} in the file, at {server}")),
        };
    }
    let lists: &[&str] = if with_user { &["contexts", "users"] } else { &["contexts"] };
    match lists.iter().find(|list| find(into, list, name).is_some()) {
        Some(list) => conflict(format!("there is another {} {name} in the file", list.trim_end_matches('s'))),
        None => Ok(()),
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn part<'a>(config: &'a Value, context: &Value, list: &str, key: &str) -> Option<&'a Value> {
    find(config, list, context.pointer(&format!("/context/{key}"))?.as_str()?)
}

fn renamed(entry: &Value, name: &str) -> Value {
    let mut entry = entry.clone();
    entry["name"] = json!(name);
    entry
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

    fn others() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true}, "current-context": "other",
            "clusters": [{"name": "other", "cluster": {"server": "https://o"}}],
            "users": [{"name": "other", "user": {"exec": {"command": "x"}}}],
            "contexts": [{"name": "other", "context": {"cluster": "other", "user": "other"}}],
        })
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let mut file = others();
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
    fn nor_are_a_user_and_a_context_of_somebody_else() {
        for list in ["users", "contexts"] {
            let mut file = others();
            file[list][0]["name"] = json!("demo");
            let before = file.clone();
            let failure = merge(&mut file, &incoming("https://a"), "demo", false).unwrap_err();
            assert_eq!(failure.code, Code::Conflict, "{list}");
            assert_eq!(file, before, "nothing is written by halves");
            merge(&mut file, &incoming("https://a"), "demo", true).unwrap();
        }
    }

    #[test]
    fn further_contexts_are_named_after_the_first_and_share_its_user() {
        let mut file = json!({});
        let mut two = incoming("https://a");
        two["current-context"] = json!("demo");
        two["contexts"] = json!([
            {"name": "demo", "context": {"cluster": "cluster", "user": "user"}},
            {"name": "demo-fqdn", "context": {"cluster": "direct", "user": "user"}},
        ]);
        two["clusters"] = json!([
            {"name": "cluster", "cluster": {"server": "https://a"}},
            {"name": "direct", "cluster": {"server": "https://d"}},
        ]);
        assert_eq!(merge(&mut file, &two, "mine", false).unwrap(), ["mine-fqdn"]);
        assert_eq!(
            file["contexts"][1],
            json!({"name": "mine-fqdn", "context": {"cluster": "mine-fqdn", "user": "mine"}})
        );
        assert_eq!(file["clusters"][1], json!({"name": "mine-fqdn", "cluster": {"server": "https://d"}}));
        assert_eq!(file["users"].as_array().unwrap().len(), 1);
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
