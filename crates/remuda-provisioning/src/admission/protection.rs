//! Clusters and pools that are protected against deletion.
//!
//! Protection is against mistakes: it holds for everybody, administrators and controllers included, until it is taken
//! off, which takes a second write and the right to delete the cluster. What is being deleted already is no longer
//! protected.

use remuda_names::provisioning::annotation::{EXPIRES, PROTECTED};
use serde_json::Value;

use super::{
    Findings, Refused,
    pools::{of as pools, quantity},
};
use crate::naming;

fn annotation(pool: &Value) -> &Value {
    &pool["machineDeploymentAnnotations"][PROTECTED]
}

fn pool_field(place: usize) -> String {
    format!("spec.rkeConfig.machinePools[{place}].machineDeploymentAnnotations[{PROTECTED}]")
}

fn cluster_field() -> String {
    format!("metadata.annotations[{PROTECTED}]")
}

fn is_marked(cluster: &Value) -> bool {
    cluster["metadata"]["annotations"][PROTECTED] == "true"
}

fn is_protected_pool(pool: &Value) -> bool {
    annotation(pool) == "true"
}

fn name(object: &Value) -> &str {
    object["name"].as_str().unwrap_or_default()
}

fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// What is neither true nor false would protect nothing, though its writer thinks it does.
pub(super) fn values(old: Option<&Value>, object: &Value, findings: &mut Findings) {
    let mut judge = |field: String, value: &Value, before: &Value| {
        let is_wrong = value.as_str().is_some_and(|text| text != "true" && text != "false");
        if is_wrong && value != before {
            findings.invalid(&field, value, "must be true or false");
        }
    };
    let before = old.map_or(&Value::Null, |old| &old["metadata"]["annotations"][PROTECTED]);
    judge(cluster_field(), &object["metadata"]["annotations"][PROTECTED], before);
    for (place, pool) in pools(object).enumerate() {
        let known = old.and_then(|old| pools(old).find(|known| name(known) == name(pool)));
        judge(pool_field(place), annotation(pool), known.map_or(&Value::Null, annotation));
    }
}

/// The cluster as the command for people names it.
fn named(cluster: &Value) -> (&str, &str) {
    let text = |field: &str| cluster["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

/// Why a cluster cannot be deleted; `None` if nothing protects it.
pub fn refuse_deletion(cluster: &Value) -> Option<Refused> {
    if is_going(cluster) {
        return None;
    }
    let (namespace, cluster_name) = named(cluster);
    if is_marked(cluster) {
        let why = format!(
            "cluster {namespace}/{cluster_name} is protected against deletion; to take that off: \
             remuda cluster unprotect {cluster_name} -n {namespace}"
        );
        return Some(Refused { field: cluster_field(), why });
    }
    let (place, pool) = pools(cluster).enumerate().find(|(_, pool)| is_protected_pool(pool))?;
    let pool = name(pool);
    let why = format!(
        "pool {pool} of cluster {namespace}/{cluster_name} is protected against deletion; to take that off: \
         remuda cluster unprotect {cluster_name} --pool {pool} -n {namespace}"
    );
    Some(Refused { field: pool_field(place), why })
}

/// Why pools cannot be changed so: a protected one would go, or lose all its machines.
pub fn refuse_update(old: &Value, new: &Value) -> Option<Refused> {
    if is_going(old) {
        return None;
    }
    let (namespace, cluster) = named(old);
    let mut protected = pools(old).filter(|pool| is_protected_pool(pool));
    protected.find_map(|pool| {
        let pool_name = name(pool);
        let kept = pools(new).enumerate().find(|(_, kept)| name(kept) == pool_name);
        let (field, what) = match kept {
            None => ("spec.rkeConfig.machinePools".to_owned(), "removed"),
            Some((place, kept)) if quantity(kept) <= 0 && quantity(pool) > 0 => {
                (format!("spec.rkeConfig.machinePools[{place}].quantity"), "scaled to 0")
            }
            Some(_) => return None,
        };
        let why = format!(
            "pool {pool_name} of cluster {namespace}/{cluster} is protected and cannot be {what}; to take that off \
             first: remuda cluster unprotect {cluster} --pool {pool_name} -n {namespace}"
        );
        Some(Refused { field, why })
    })
}

/// The field in which a write says when the cluster is deleted, if it says so anew. That, too, needs the right to
/// delete it.
pub fn expires(old: Option<&Value>, new: &Value) -> Option<String> {
    let end = |cluster: &Value| cluster["metadata"]["annotations"][EXPIRES].clone();
    let said = end(new);
    let known = old.map_or(Value::Null, end);
    (!said.is_null() && said != known).then(|| format!("metadata.annotations[{EXPIRES}]"))
}

/// The fields in which a write takes protection off. Whoever does so needs the right to delete the cluster.
pub fn lifted(old: &Value, new: &Value) -> Vec<String> {
    let mut fields = Vec::new();
    if is_going(old) {
        return fields;
    }
    if is_marked(old) && !is_marked(new) {
        fields.push(cluster_field());
    }
    for pool in pools(old).filter(|pool| is_protected_pool(pool)) {
        let kept = pools(new).enumerate().find(|(_, kept)| name(kept) == name(pool));
        if let Some((place, _)) = kept.filter(|(_, kept)| !is_protected_pool(kept)) {
            fields.push(pool_field(place));
        }
    }
    fields
}

/// Whether a MachineDeployment loses all its machines by a write.
pub fn is_scaled_to_nothing(old: &Value, new: &Value) -> bool {
    old["spec"]["replicas"] != 0 && new["spec"]["replicas"] == 0
}

/// Why the MachineDeployment of this name cannot be scaled to nothing: a protected pool of the cluster, which is to
/// have machines, is behind it.
pub fn refuse_scaling(cluster: &Value, deployment: &str) -> Option<Refused> {
    let (namespace, cluster_name) = named(cluster);
    let is_behind = |pool: &&Value| naming::of::machine_deployment(cluster_name, name(pool)) == deployment;
    let pool = pools(cluster).find(is_behind)?;
    if is_going(cluster) || !is_protected_pool(pool) || quantity(pool) <= 0 {
        return None;
    }
    let pool = name(pool);
    let why = format!(
        "pool {pool} of cluster {namespace}/{cluster_name} is protected and cannot be scaled to 0; to take that off \
         first: remuda cluster unprotect {cluster_name} --pool {pool} -n {namespace}"
    );
    Some(Refused { field: "spec.replicas".to_owned(), why })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(mark: &str, pools: Value) -> Value {
        json!({
            "metadata": {"namespace": "team", "name": "demo", "annotations": {PROTECTED: mark}},
            "spec": {"rkeConfig": {"machinePools": pools}},
        })
    }

    fn pool(name: &str, mark: &str, quantity: Value) -> Value {
        json!({"name": name, "quantity": quantity, "machineDeploymentAnnotations": {PROTECTED: mark}})
    }

    #[test]
    fn a_cluster_goes_when_neither_it_nor_a_pool_is_protected() {
        let field = |cluster: &Value| refuse_deletion(cluster).map(|refused| refused.field);
        assert_eq!(field(&cluster("false", json!([pool("a", "false", json!(1))]))), None);
        assert_eq!(field(&json!({"metadata": {"name": "x"}})), None);
        let protected = cluster("true", json!(null));
        assert_eq!(field(&protected).as_deref(), Some("metadata.annotations[remuda.io/protected]"));
        let why = refuse_deletion(&protected).unwrap().why;
        assert!(why.ends_with("remuda cluster unprotect demo -n team"), "{why}");
        let by_pool = cluster("", json!([pool("a", "", json!(1)), pool("b", "true", json!(1))]));
        let expected = "spec.rkeConfig.machinePools[1].machineDeploymentAnnotations[remuda.io/protected]";
        assert_eq!(field(&by_pool).as_deref(), Some(expected));
        let mut going = protected;
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(field(&going), None);
    }

    #[test]
    fn a_protected_pool_stays_and_keeps_machines() {
        let old =
            |quantity: Value| cluster("", json!([pool("a", "true", quantity), pool("b", "", json!(2))]));
        let check = |old: Value, pools: Value, expected: Option<&str>| {
            let refused = refuse_update(&old, &cluster("", pools)).map(|refused| refused.field);
            assert_eq!(refused.as_deref(), expected, "{old}");
        };
        check(old(json!(3)), json!([pool("a", "true", json!(1))]), None);
        check(old(json!(3)), json!([pool("b", "", json!(2))]), Some("spec.rkeConfig.machinePools"));
        check(old(json!(3)), json!(null), Some("spec.rkeConfig.machinePools"));
        check(old(json!(3)), json!([pool("A", "true", json!(3))]), Some("spec.rkeConfig.machinePools"));
        let scaled = Some("spec.rkeConfig.machinePools[1].quantity");
        check(old(json!(3)), json!([pool("b", "", json!(0)), pool("a", "true", json!(0))]), scaled);
        check(old(json!(null)), json!([pool("b", "", json!(0)), pool("a", "true", json!(0))]), scaled);
        // Taking it off and scaling are two steps.
        check(old(json!(3)), json!([pool("b", "", json!(0)), pool("a", "", json!(0))]), scaled);
        check(old(json!(0)), json!([pool("a", "true", json!(0))]), None);
    }

    #[test]
    fn taking_it_off_is_noticed_however_it_is_done() {
        let old = cluster("true", json!([pool("a", "true", json!(1))]));
        assert_eq!(lifted(&old, &old), Vec::<String>::new());
        let fields = lifted(&old, &cluster("false", json!([{"name": "a"}])));
        assert_eq!(fields.len(), 2, "{fields:?}");
        let bare = json!({"metadata": {}, "spec": old["spec"]});
        assert_eq!(lifted(&old, &bare), ["metadata.annotations[remuda.io/protected]"]);
        assert_eq!(lifted(&cluster("", json!([])), &old), Vec::<String>::new(), "protecting is free");
    }

    #[test]
    fn an_end_that_is_written_anew_is_noticed() {
        let with = |end: Value| json!({"metadata": {"annotations": {EXPIRES: end}}});
        let field = Some("metadata.annotations[remuda.io/expires]");
        assert_eq!(expires(None, &with(json!("a"))).as_deref(), field);
        assert_eq!(expires(Some(&with(json!("a"))), &with(json!("b"))).as_deref(), field);
        assert_eq!(expires(Some(&with(json!("a"))), &with(json!("a"))), None);
        assert_eq!(expires(Some(&with(json!("a"))), &json!({})), None, "it can be taken off");
        assert_eq!(expires(None, &json!({})), None);
    }

    #[test]
    fn a_machine_deployment_is_scaled_as_its_pool() {
        let with = |mark: &str, quantity: i64| cluster("", json!([pool("a", mark, json!(quantity))]));
        assert!(refuse_scaling(&with("true", 2), "demo-a").is_some());
        assert!(refuse_scaling(&with("true", 2), "demo-b").is_none());
        assert!(refuse_scaling(&with("false", 2), "demo-a").is_none());
        assert!(refuse_scaling(&with("true", 0), "demo-a").is_none(), "the pool says so");
        let replicas = |count: Value| json!({"spec": {"replicas": count}});
        assert!(is_scaled_to_nothing(&replicas(json!(1)), &replicas(json!(0))));
        assert!(!is_scaled_to_nothing(&replicas(json!(0)), &replicas(json!(0))));
        assert!(!is_scaled_to_nothing(&replicas(json!(1)), &replicas(json!(1))));
    }
}
