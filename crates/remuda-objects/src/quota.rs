//! ResourceQuota: what objects are charged for, and whether there is enough left.

use serde_json::{Map, Value};

use crate::{
    compute::{self, Amounts, Side},
    json::{at, int_at, list_at, text_at},
    meta,
};

const ONE: i128 = 1_000_000_000;
/// Kinds of the core group that may be counted without `count/`.
const COUNTED: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];
/// What every container must say where a quota limits it.
const COMPUTE: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";

/// `count/pods`, `count/deployments.apps`.
pub fn count_name(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

/// The group and plural of what must be looked at for an entry of a quota.
pub fn counted(name: &str) -> Option<(&str, &str)> {
    if let Some(resource) = name.strip_prefix("count/") {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        return Some((group, plural));
    }
    if let Some(known) = COUNTED.iter().find(|known| **known == name) {
        return Some(("", known));
    }
    if name == "requests.storage" || name.contains(CLASS_SUFFIX) {
        return Some(("", "persistentvolumeclaims"));
    }
    if name.starts_with("services.") {
        return Some(("", "services"));
    }
    let is_pods = name == "pods"
        || COMPUTE.contains(&name)
        || name == "ephemeral-storage"
        || name.starts_with("hugepages-")
        || name.starts_with("requests.")
        || name.starts_with("limits.");
    is_pods.then_some(("", "pods"))
}

/// Everything an object may be charged for.
pub fn usage(group: &str, plural: &str, object: &Value) -> Amounts {
    let mut usage = Amounts::from([(count_name(group, plural), ONE)]);
    if !group.is_empty() {
        return usage;
    }
    if COUNTED.contains(&plural) {
        usage.insert(plural.to_owned(), ONE);
    }
    match plural {
        "pods" if !is_over(object) => {
            usage.insert("pods".to_owned(), ONE);
            for side in [Side::Requests, Side::Limits] {
                compute_usage(&compute::pod(object, side), side, &mut usage);
            }
        }
        "services" => service_usage(object, &mut usage),
        "persistentvolumeclaims" => claim_usage(object, &mut usage),
        _ => {}
    }
    usage
}

/// A Pod that has ended uses nothing but its place.
fn is_over(pod: &Value) -> bool {
    matches!(text_at(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

fn compute_usage(amounts: &Amounts, side: Side, usage: &mut Amounts) {
    for (name, amount) in amounts {
        let plain = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if side == Side::Requests && (plain || name.starts_with("hugepages-")) {
            usage.insert(name.clone(), *amount);
        }
        if side == Side::Requests || plain {
            usage.insert(format!("{}.{name}", side.field()), *amount);
        }
    }
}

fn service_usage(service: &Value, usage: &mut Amounts) {
    let ports = list_at(service, &["spec", "ports"]);
    let balancer = text_at(service, &["spec", "type"]) == "LoadBalancer";
    let numbered = if balancer && at(service, &["spec", "allocateLoadBalancerNodePorts"]) == false {
        ports.iter().filter(|port| int_at(port, &["nodePort"]) != 0).count()
    } else if balancer || text_at(service, &["spec", "type"]) == "NodePort" {
        ports.len()
    } else {
        0
    };
    usage.insert("services.nodeports".to_owned(), numbered as i128 * ONE);
    usage.insert("services.loadbalancers".to_owned(), i128::from(balancer) * ONE);
}

fn claim_usage(claim: &Value, usage: &mut Amounts) {
    let class = meta::annotation(claim, CLASS_ANNOTATION);
    let class = class.unwrap_or_else(|| text_at(claim, &["spec", "storageClassName"])).to_owned();
    let storage = compute::nanos(at(claim, &["spec", "resources", "requests", "storage"]));
    if let Some(storage) = storage {
        usage.insert("requests.storage".to_owned(), storage);
    }
    if !class.is_empty() {
        usage.insert(format!("{class}{CLASS_SUFFIX}persistentvolumeclaims"), ONE);
        if let Some(storage) = storage {
            usage.insert(format!("{class}{CLASS_SUFFIX}requests.storage"), storage);
        }
    }
}

/// Whether a quota concerns an object: all its scopes must hold.
pub fn concerns(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    let is_pod = group.is_empty() && plural == "pods";
    let scopes = list_at(quota, &["spec", "scopes"]).iter().filter_map(Value::as_str);
    let mut scopes = scopes.map(|scope| (scope, "Exists", &[] as &[Value])).chain(
        list_at(quota, &["spec", "scopeSelector", "matchExpressions"]).iter().map(|expression| {
            let text = |field| text_at(expression, &[field]);
            (text("scopeName"), text("operator"), list_at(expression, &["values"]))
        }),
    );
    scopes.all(|(scope, operator, values)| is_pod && in_scope(object, scope, operator, values))
}

fn in_scope(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    let ends = at(pod, &["spec", "activeDeadlineSeconds"]).as_i64().is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => compute::is_best_effort(pod),
        "NotBestEffort" => !compute::is_best_effort(pod),
        "CrossNamespacePodAffinity" => has_far_affinity(pod),
        "PriorityClass" => {
            let class = text_at(pod, &["spec", "priorityClassName"]);
            let named = values.iter().any(|value| value == class);
            match operator {
                "In" => !class.is_empty() && named,
                "NotIn" => !named,
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        _ => false,
    }
}

/// Whether a Pod wants to be near, or far from, Pods of other namespaces.
fn has_far_affinity(pod: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let affinity = at(pod, &["spec", "affinity", kind]);
        let required = list_at(affinity, &["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
        let preferred = list_at(affinity, &["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
        let mut terms = required.chain(preferred.map(|term| at(term, &["podAffinityTerm"])));
        terms.any(|term| {
            !list_at(term, &["namespaces"]).is_empty() || !at(term, &["namespaceSelector"]).is_null()
        })
    })
}

/// What the containers of a new Pod must say and do not, because the quota limits it.
pub fn unsaid(quota: &Value, pod: &Value) -> Option<String> {
    let hard = compute::amounts(at(quota, &["spec", "hard"]));
    let whole = |name: &str| {
        let (side, name) = name.split_once('.').unwrap_or(("requests", name));
        !at(pod, &["spec", "resources", side, name]).is_null()
    };
    let mut missing = Vec::new();
    for name in hard.keys().filter(|name| COMPUTE.contains(&name.as_str()) && !whole(name)) {
        let mut of: Vec<&str> = Vec::new();
        for list in ["containers", "initContainers"] {
            for container in list_at(pod, &["spec", list]) {
                let mut said = Amounts::new();
                for side in [Side::Requests, Side::Limits] {
                    compute_usage(&compute::container(container, side), side, &mut said);
                }
                if !said.contains_key(name) {
                    of.push(text_at(container, &["name"]));
                }
            }
        }
        if !of.is_empty() {
            of.sort_unstable();
            missing.push(format!("{name} for: {}", of.join(",")));
        }
    }
    (!missing.is_empty()).then(|| format!("must specify {}", missing.join("; ")))
}

/// What more an object costs than before, as far as it costs more.
pub fn increase(before: &Amounts, now: &Amounts) -> Amounts {
    let more = |(name, amount): (&String, &i128)| {
        let more = amount.saturating_sub(before.get(name).copied().unwrap_or(0));
        (more > 0).then(|| (name.clone(), more))
    };
    now.iter().filter_map(more).collect()
}

/// Whether the quota's status tells how much is used of everything it limits.
pub fn is_counted(quota: &Value) -> bool {
    let hard = at(quota, &["spec", "hard"]);
    let used = at(quota, &["status", "used"]);
    let names = hard.as_object().into_iter().flatten();
    at(quota, &["status", "hard"]) == hard && names.into_iter().all(|(name, _)| used.get(name).is_some())
}

/// The new `status.used` with this much more, or why it is too much. `None` if the quota does not limit it.
pub fn charge(quota: &Value, more: &Amounts) -> Option<Result<Value, String>> {
    let hard = compute::amounts(at(quota, &["spec", "hard"]));
    let mut used = compute::amounts(at(quota, &["status", "used"]));
    let more: Amounts = more.iter().filter(|(name, _)| hard.contains_key(*name)).map(owned).collect();
    if more.is_empty() {
        return None;
    }
    let before = used.clone();
    compute::add(&mut used, &more);
    let exceeded: Vec<&String> = more.keys().filter(|name| used.get(*name) > hard.get(*name)).collect();
    if exceeded.is_empty() {
        return Some(Ok(status_map(&hard, &used)));
    }
    let shown = |amounts: &Amounts| -> String {
        let entry = |name: &&String| {
            format!("{name}={}", compute::text(name, amounts.get(*name).copied().unwrap_or(0)))
        };
        exceeded.iter().map(entry).collect::<Vec<_>>().join(",")
    };
    Some(Err(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        meta::name(quota),
        shown(&more),
        shown(&before),
        shown(&hard)
    )))
}

/// The `status.used` of a quota for what there is; `objects` are those of one kind each.
pub fn used<'a>(quota: &Value, objects: impl Iterator<Item = (&'a str, &'a str, &'a Value)>) -> Value {
    let hard = compute::amounts(at(quota, &["spec", "hard"]));
    let mut used = Amounts::new();
    for (group, plural, object) in objects {
        if concerns(quota, group, plural, object) {
            compute::add(&mut used, &usage(group, plural, object));
        }
    }
    status_map(&hard, &used)
}

fn status_map(hard: &Amounts, used: &Amounts) -> Value {
    let entry =
        |name: &String| (name.clone(), compute::text(name, used.get(name).copied().unwrap_or(0)).into());
    Value::Object(hard.keys().map(entry).collect::<Map<String, Value>>())
}

fn owned((name, amount): (&String, &i128)) -> (String, i128) {
    (name.clone(), *amount)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(cpu: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {
            "requests": {"cpu": cpu, "memory": "1Gi", "x.io/gpu": "2"}, "limits": {"cpu": "2"}}}]}})
    }

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
    }

    #[test]
    fn objects_are_charged_under_all_their_names() {
        let names = |group: &str, plural: &str, object: &Value| -> Vec<String> {
            let usage = usage(group, plural, object);
            usage.iter().map(|(name, amount)| format!("{name}={}", compute::text(name, *amount))).collect()
        };
        assert_eq!(names("apps", "deployments", &json!({})), ["count/deployments.apps=1"]);
        assert_eq!(names("", "secrets", &json!({})), ["count/secrets=1", "secrets=1"]);
        assert_eq!(
            names("", "pods", &pod("500m")),
            [
                "count/pods=1",
                "cpu=500m",
                "limits.cpu=2",
                "memory=1Gi",
                "pods=1",
                "requests.cpu=500m",
                "requests.memory=1Gi",
                "requests.x.io/gpu=2"
            ]
        );
        let mut over = pod("1");
        over["status"] = json!({"phase": "Failed"});
        assert_eq!(names("", "pods", &over), ["count/pods=1"]);
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}});
        assert_eq!(
            names("", "services", &service),
            ["count/services=1", "services=1", "services.loadbalancers=1", "services.nodeports=2"]
        );
        let claim =
            json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "2Gi"}}}});
        assert!(
            names("", "persistentvolumeclaims", &claim)
                .contains(&"fast.storageclass.storage.k8s.io/requests.storage=2Gi".to_owned())
        );
        for name in ["pods", "requests.cpu", "limits.memory", "requests.x.io/gpu"] {
            assert_eq!(counted(name), Some(("", "pods")));
        }
        assert_eq!(counted("count/foos.x.io"), Some(("x.io", "foos")));
        assert_eq!(counted("nonsense"), None);
    }

    #[test]
    fn a_charge_is_taken_or_refused_whole() {
        let quota = quota(json!({"pods": "2", "cpu": "1"}), json!({"pods": "1", "cpu": "600m"}));
        let more = usage("", "pods", &pod("400m"));
        assert_eq!(charge(&quota, &more), Some(Ok(json!({"pods": "2", "cpu": "1"}))));
        let more = usage("", "pods", &pod("500m"));
        let text = "exceeded quota: q, requested: cpu=500m, used: cpu=600m, limited: cpu=1";
        assert_eq!(charge(&quota, &more), Some(Err(text.to_owned())));
        assert_eq!(charge(&quota, &usage("", "secrets", &json!({}))), None);
    }

    #[test]
    fn containers_must_say_what_is_limited() {
        let quota = quota(json!({"limits.memory": "1Gi", "requests.cpu": "1", "pods": "3"}), json!({}));
        assert_eq!(unsaid(&quota, &pod("1")), Some("must specify limits.memory for: c".to_owned()));
        let whole = json!({"spec": {"resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}}, "containers": [{}]}});
        assert_eq!(unsaid(&quota, &whole), None);
    }

    #[test]
    fn scopes_select_pods() {
        let scoped = |scope: &str| json!({"spec": {"scopes": [scope]}});
        let plain = json!({"spec": {"containers": [{}]}});
        assert!(concerns(&scoped("BestEffort"), "", "pods", &plain));
        assert!(!concerns(&scoped("NotBestEffort"), "", "pods", &plain));
        assert!(concerns(&scoped("NotTerminating"), "", "pods", &plain));
        assert!(!concerns(&scoped("BestEffort"), "", "secrets", &json!({})));
        let class = json!({"spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}});
        assert!(!concerns(&class, "", "pods", &plain));
        assert!(concerns(&class, "", "pods", &json!({"spec": {"priorityClassName": "high"}})));
    }
}
