//! One PolicyRule: parsing, matching, printing.

use serde_json::{Map, Value};

use crate::attributes::Attributes;

/// A set of permissions: every verb on every resource named, or on every URL named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub non_resource_urls: Vec<String>,
}

/// The words of a built-in grant, separated by spaces; `core` stands for the API group without a name.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(|word| if word == "core" { "" } else { word }.to_owned()).collect()
}

impl Rule {
    /// Reads what is there; anything of an unexpected type grants nothing.
    pub fn parse(value: &Value) -> Self {
        Self {
            verbs: strings(value, "verbs"),
            api_groups: strings(value, "apiGroups"),
            resources: strings(value, "resources"),
            resource_names: strings(value, "resourceNames"),
            non_resource_urls: strings(value, "nonResourceURLs"),
        }
    }

    pub fn parse_all(rules: Option<&Value>) -> Vec<Self> {
        rules.and_then(Value::as_array).into_iter().flatten().map(Self::parse).collect()
    }

    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        map.insert("verbs".into(), self.verbs.clone().into());
        for (key, list) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !list.is_empty() {
                map.insert(key.into(), list.clone().into());
            }
        }
        Value::Object(map)
    }

    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        has_or_star(&self.verbs, attributes.verb) && self.allows_object(attributes)
    }

    /// Everything but the verb.
    fn allows_object(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.path {
            Some(path) => self.non_resource_urls.iter().any(|own| url_covers(own, path)),
            None => {
                has_or_star(&self.api_groups, attributes.group)
                    && self.resources.iter().any(|own| resource_matches(own, attributes))
                    && (self.resource_names.is_empty()
                        || self.resource_names.iter().any(|own| own == attributes.name))
            }
        }
    }

    /// The form used in escalation errors: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    pub fn compact_string(&self) -> String {
        let mut out = String::from("{");
        for (label, list) in [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ] {
            if list.is_empty() {
                continue;
            }
            if out.len() > 1 {
                out.push_str(", ");
            }
            out.push_str(label);
            out.push(':');
            remuda_base::quote::push_list(&mut out, list);
        }
        out.push('}');
        out
    }
}

fn strings(value: &Value, key: &str) -> Vec<String> {
    let list = value.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(crate) fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|own| own == item)
}

fn has_or_star(list: &[String], item: &str) -> bool {
    list.iter().any(|own| own == "*" || own == item)
}

/// `own` is `*`, `pods`, `pods/log` or `*/scale`.
fn resource_matches(own: &str, attributes: &Attributes<'_>) -> bool {
    if own == "*" {
        return true;
    }
    let (resource, sub) = (attributes.resource, attributes.subresource);
    if sub.is_empty() {
        return own == resource;
    }
    let Some(rest) = own.strip_suffix(sub).and_then(|rest| rest.strip_suffix('/')) else {
        return false;
    };
    rest == resource || rest == "*"
}

/// `own` is exact, or a prefix when it ends in `*`.
pub(crate) fn url_covers(own: &str, path: &str) -> bool {
    own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
}

/// A rule prepared for matching: the verbs nearly every request has are one bit each, so that most
/// rules of a long role are passed over without comparing strings.
#[derive(Debug, Clone)]
pub(crate) struct CompiledRule {
    pub(crate) rule: Rule,
    verbs: u16,
}

const COMMON_VERBS: [&str; 9] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate"];
const ALL_VERBS: u16 = u16::MAX;

/// The bit of a common verb; 0 for others, which are compared as strings.
pub(crate) fn verb_bit(verb: &str) -> u16 {
    COMMON_VERBS.iter().position(|common| *common == verb).map_or(0, |bit| 1 << bit)
}

impl CompiledRule {
    pub(crate) fn new(rule: Rule) -> Self {
        let verbs = if has(&rule.verbs, "*") {
            ALL_VERBS
        } else {
            rule.verbs.iter().fold(0, |bits, verb| bits | verb_bit(verb))
        };
        Self { rule, verbs }
    }

    pub(crate) fn allows(&self, bit: u16, attributes: &Attributes<'_>) -> bool {
        let verb = if bit != 0 {
            self.verbs & bit != 0
        } else {
            self.verbs == ALL_VERBS || has(&self.rule.verbs, attributes.verb)
        };
        verb && self.rule.allows_object(attributes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(rule: Value, attributes: Attributes<'_>, expected: bool) {
        let rule = Rule::parse(&rule);
        assert_eq!(rule.allows(&attributes), expected);
        let compiled = CompiledRule::new(rule);
        assert_eq!(compiled.allows(verb_bit(attributes.verb), &attributes), expected, "compiled");
    }

    #[test]
    fn resources_match_by_name_subresource_and_star() {
        let get = |resources: &[&str]| json!({"verbs": ["get"], "apiGroups": [""], "resources": resources});
        let pod = Attributes::resource("get", "", "pods");
        let log = pod.subresource("log");
        check(get(&["pods"]), pod, true);
        check(get(&["pods"]), log, false);
        check(get(&["pods/log"]), log, true);
        check(get(&["pods/log"]), pod, false);
        check(get(&["*"]), log, true);
        check(get(&["*/log"]), log, true);
        check(get(&["*/log"]), pod, false);
        check(get(&["*/og"]), log, false);
        check(get(&["pods/*"]), log, false);
        check(get(&["services", "pods"]), pod, true);
        check(get(&[]), pod, false);
        check(json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["*"]}), pod, false);
        check(json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"]}), pod, true);
        check(json!({"verbs": ["list"], "apiGroups": ["*"], "resources": ["*"]}), pod, false);
        check(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}), pod, true);
    }

    #[test]
    fn unusual_verbs_match_as_strings() {
        let rule = json!({"verbs": ["get", "bind"], "apiGroups": ["g"], "resources": ["roles"]});
        check(rule.clone(), Attributes::resource("bind", "g", "roles"), true);
        check(rule, Attributes::resource("escalate", "g", "roles"), false);
        let all = json!({"verbs": ["*"], "apiGroups": ["g"], "resources": ["roles"]});
        check(all, Attributes::resource("escalate", "g", "roles"), true);
    }

    #[test]
    fn resource_names_never_allow_a_nameless_request() {
        let rule =
            json!({"verbs": ["*"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"]});
        check(rule.clone(), Attributes::resource("get", "", "secrets").name("b"), true);
        check(rule.clone(), Attributes::resource("get", "", "secrets").name("c"), false);
        check(rule.clone(), Attributes::resource("list", "", "secrets"), false);
        check(rule, Attributes::resource("watch", "", "secrets").name("a"), true);
    }

    #[test]
    fn urls_match_exactly_or_by_prefix() {
        let get = |url: &str| json!({"verbs": ["get"], "nonResourceURLs": [url]});
        check(get("/healthz"), Attributes::path("get", "/healthz"), true);
        check(get("/healthz"), Attributes::path("get", "/healthz/"), false);
        check(get("/healthz/*"), Attributes::path("get", "/healthz/ping"), true);
        check(get("/healthz/*"), Attributes::path("get", "/healthz"), false);
        check(get("*"), Attributes::path("get", "/x"), true);
        check(get("/x**"), Attributes::path("get", "/xy"), true);
        check(get("*"), Attributes::path("post", "/x"), false);
        check(get("*"), Attributes::resource("get", "", "pods"), false);
    }

    #[test]
    fn malformed_rules_grant_nothing() {
        for rule in [json!(null), json!([]), json!({"verbs": "*", "apiGroups": {}, "resources": [1, null]})] {
            check(rule, Attributes::resource("get", "", "pods"), false);
        }
    }
}
