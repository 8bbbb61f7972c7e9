//! Which requests are recorded, and how much of them (`audit.k8s.io/v1` Policy).

use serde_json::Value;

use super::{Level, Stage};
use crate::{attributes::Attributes, identity::User};

/// The rules in order: the first that matches decides; without a match nothing is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPolicy {
    rules: Vec<AuditRule>,
    /// Also keeps the bodies of ConfigMaps out of the log. On by default: people put passwords there.
    pub protect_config_maps: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct AuditRule {
    level: Level,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    urls: Vec<String>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

/// What to do with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditDecision<'a> {
    pub level: Level,
    omit_stages: &'a [Stage],
    pub omit_managed_fields: bool,
}

impl AuditDecision<'_> {
    pub fn records(&self, stage: Stage) -> bool {
        self.level != Level::None && !self.omit_stages.contains(&stage)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditPolicyError {
    #[error("not a Policy of audit.k8s.io/v1")]
    Kind,
    #[error("rules: required")]
    NoRules,
    #[error("rules[{0}].level: must be None, Metadata, Request or RequestResponse")]
    Level(usize),
    #[error("{0}: must be RequestReceived, ResponseStarted, ResponseComplete or Panic")]
    Stage(String),
    #[error("rules[{0}].nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs")]
    Both(usize),
    #[error("rules[{rule}].{field}: must be a list of strings")]
    Strings { rule: usize, field: &'static str },
}

impl Default for AuditPolicy {
    /// Everything but its content.
    fn default() -> Self {
        let rules = vec![AuditRule {
            level: Level::Metadata,
            omit_stages: vec![Stage::RequestReceived],
            ..AuditRule::default()
        }];
        Self { rules, protect_config_maps: true }
    }
}

impl AuditPolicy {
    pub fn parse(policy: &Value) -> Result<Self, AuditPolicyError> {
        let is = |key: &str, wanted: &str| policy.get(key).and_then(Value::as_str) == Some(wanted);
        if !is("apiVersion", "audit.k8s.io/v1") || !is("kind", "Policy") {
            return Err(AuditPolicyError::Kind);
        }
        let rules = policy.get("rules").and_then(Value::as_array).filter(|rules| !rules.is_empty());
        let rules = rules.ok_or(AuditPolicyError::NoRules)?;
        let common = stages(policy, "omitStages")?;
        let omit_fields = policy.get("omitManagedFields").and_then(Value::as_bool).unwrap_or(false);
        let parse = |(index, rule): (usize, &Value)| {
            let mut rule = AuditRule::parse(index, rule, omit_fields)?;
            rule.omit_stages.extend(&common);
            Ok(rule)
        };
        let rules = rules.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { rules, protect_config_maps: true })
    }

    pub fn level_for(&self, attributes: &Attributes<'_>, user: &User) -> Level {
        self.decide(attributes, user).level
    }

    pub fn decide(&self, attributes: &Attributes<'_>, user: &User) -> AuditDecision<'_> {
        let Some(rule) = self.rules.iter().find(|rule| rule.matches(attributes, user)) else {
            return AuditDecision { level: Level::None, omit_stages: &[], omit_managed_fields: false };
        };
        // No policy can bring credentials into the log.
        let level =
            if self.has_secret_body(attributes) { rule.level.min(Level::Metadata) } else { rule.level };
        AuditDecision { level, omit_stages: &rule.omit_stages, omit_managed_fields: rule.omit_managed_fields }
    }

    fn has_secret_body(&self, attributes: &Attributes<'_>) -> bool {
        match (attributes.group, attributes.resource) {
            ("", "secrets") => true,
            ("", "configmaps") => self.protect_config_maps,
            ("", "serviceaccounts") => attributes.subresource == "token",
            ("authentication.k8s.io", "tokenreviews") => true,
            _ => false,
        }
    }
}

impl AuditRule {
    fn parse(index: usize, rule: &Value, omit_fields: bool) -> Result<Self, AuditPolicyError> {
        let level = rule.get("level").and_then(Value::as_str).and_then(Level::parse);
        let list = |field: &'static str| {
            strings(rule, field).ok_or(AuditPolicyError::Strings { rule: index, field })
        };
        let mut resources = Vec::new();
        for entry in rule.get("resources").and_then(Value::as_array).into_iter().flatten() {
            let list = |field| strings(entry, field).ok_or(AuditPolicyError::Strings { rule: index, field });
            resources.push(GroupResources {
                group: entry.get("group").and_then(Value::as_str).unwrap_or("").to_owned(),
                resources: list("resources")?,
                names: list("resourceNames")?,
            });
        }
        let parsed = Self {
            level: level.ok_or(AuditPolicyError::Level(index))?,
            users: list("users")?,
            groups: list("userGroups")?,
            verbs: list("verbs")?,
            resources,
            namespaces: list("namespaces")?,
            urls: list("nonResourceURLs")?,
            omit_stages: stages(rule, "omitStages")?,
            omit_managed_fields: rule
                .get("omitManagedFields")
                .and_then(Value::as_bool)
                .unwrap_or(omit_fields),
        };
        let about_resources = !parsed.resources.is_empty() || !parsed.namespaces.is_empty();
        if about_resources && !parsed.urls.is_empty() {
            return Err(AuditPolicyError::Both(index));
        }
        Ok(parsed)
    }

    fn matches(&self, attributes: &Attributes<'_>, user: &User) -> bool {
        let listed = |list: &[String], item: &str| list.is_empty() || list.iter().any(|own| own == item);
        if !listed(&self.users, &user.name)
            || !listed(&self.verbs, attributes.verb)
            || !(self.groups.is_empty() || self.groups.iter().any(|group| user.in_group(group)))
        {
            return false;
        }
        match attributes.path {
            Some(path) if !self.urls.is_empty() => self.urls.iter().any(|url| url_matches(url, path)),
            Some(_) => self.resources.is_empty() && self.namespaces.is_empty(),
            None => {
                self.urls.is_empty()
                    && listed(&self.namespaces, attributes.namespace)
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|entry| entry.matches(attributes)))
            }
        }
    }
}

impl GroupResources {
    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        if self.group != attributes.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let named = self.names.is_empty() || self.names.iter().any(|name| name == attributes.name);
        named && self.resources.iter().any(|own| resource_matches(own, attributes))
    }
}

/// `pods`, `pods/log`, `*`, `*/log`, `pods/*`. Unlike in RBAC, the last one exists.
fn resource_matches(own: &str, attributes: &Attributes<'_>) -> bool {
    let (resource, sub) = (attributes.resource, attributes.subresource);
    match own.split_once('/') {
        None => own == "*" || (own == resource && sub.is_empty()),
        Some(("*", own_sub)) => !sub.is_empty() && own_sub == sub,
        Some((own, "*")) => own == resource,
        Some((own, own_sub)) => own == resource && own_sub == sub,
    }
}

fn url_matches(own: &str, path: &str) -> bool {
    own == path || own.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

/// An absent list is empty; `None` if it is something else.
fn strings(value: &Value, key: &str) -> Option<Vec<String>> {
    match value.get(key) {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(list) => list.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
    }
}

fn stages(value: &Value, key: &'static str) -> Result<Vec<Stage>, AuditPolicyError> {
    let names = strings(value, key).ok_or_else(|| AuditPolicyError::Stage(key.to_owned()))?;
    names.iter().map(|name| Stage::parse(name).ok_or_else(|| AuditPolicyError::Stage(name.clone()))).collect()
}

/// A policy that records nothing.
pub fn nothing() -> AuditPolicy {
    AuditPolicy { rules: Vec::new(), protect_config_maps: true }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn policy(rules: Value) -> AuditPolicy {
        let object = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules});
        AuditPolicy::parse(&object).unwrap()
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let policy = policy(json!([
            {"level": "None", "users": ["system:kube-proxy"], "verbs": ["watch"],
             "resources": [{"group": "", "resources": ["endpoints", "services"]}]},
            {"level": "None", "userGroups": ["system:nodes"], "verbs": ["get"], "resources": [{"group": "", "resources": ["nodes"]}]},
            {"level": "Request", "namespaces": ["kube-system"], "resources": [{"resources": ["configmaps"], "resourceNames": ["x"]}]},
            {"level": "None", "nonResourceURLs": ["/healthz*", "/version"]},
            {"level": "Request", "resources": [{"group": "apps"}]},
            {"level": "RequestResponse", "resources": [{"resources": ["pods/*", "*/status"]}], "omitStages": ["ResponseStarted"]},
            {"level": "Metadata", "namespaces": [""]},
            {"level": "RequestResponse", "resources": [{"resources": ["secrets", "configmaps", "serviceaccounts/token"]},
                                                       {"group": "authentication.k8s.io", "resources": ["*"]}]},
        ]));
        let user = User::new("u", ["g"]);
        let (proxy, node) = (User::new("system:kube-proxy", ["g"]), User::new("n", ["system:nodes"]));
        let r = Attributes::resource;
        for (user, attributes, expected) in [
            (&proxy, r("watch", "", "services").namespace("d"), Level::None),
            (&node, r("get", "", "nodes").name("n"), Level::None),
            (&user, r("get", "", "nodes").name("n"), Level::Metadata),
            (&user, Attributes::path("get", "/healthz/ping"), Level::None),
            (&user, Attributes::path("get", "/metrics"), Level::None),
            (&user, r("get", "apps", "deployments").namespace("d").subresource("scale"), Level::Request),
            (&user, r("get", "", "pods").namespace("d"), Level::RequestResponse),
            (&user, r("get", "", "pods").namespace("d").subresource("log"), Level::RequestResponse),
            (&user, r("get", "", "x").namespace("d").subresource("status"), Level::RequestResponse),
            (&user, r("get", "", "x").namespace("d").subresource("scale"), Level::None),
            (&user, r("create", "", "secrets").namespace("d"), Level::Metadata),
            (&user, r("create", "", "serviceaccounts").namespace("d").subresource("token"), Level::Metadata),
            (&user, r("get", "", "configmaps").namespace("kube-system").name("x"), Level::Metadata),
            (&user, r("create", "authentication.k8s.io", "tokenreviews").namespace("d"), Level::Metadata),
            (
                &user,
                r("create", "authentication.k8s.io", "selfsubjectreviews").namespace("d"),
                Level::RequestResponse,
            ),
        ] {
            assert_eq!(policy.level_for(&attributes, user), expected, "{} {attributes:?}", user.name);
        }
        let open = AuditPolicy { protect_config_maps: false, ..policy.clone() };
        let config = r("get", "", "configmaps").namespace("kube-system").name("x");
        assert_eq!(open.level_for(&config, &user), Level::Request);
        let decision = policy.decide(&r("get", "", "pods").namespace("d"), &user);
        assert!(decision.records(Stage::ResponseComplete));
        assert!(!decision.records(Stage::ResponseStarted) && !decision.records(Stage::RequestReceived));
        assert!(!policy.decide(&Attributes::path("get", "/version"), &user).records(Stage::ResponseComplete));
    }

    #[test]
    fn the_default_records_everything_but_content() {
        let user = User::anonymous();
        let object = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
            "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}],
        });
        let parsed = AuditPolicy::parse(&object).unwrap();
        assert_eq!(parsed, AuditPolicy::default());
        assert_eq!(parsed.level_for(&Attributes::path("get", "/x"), &user), Level::Metadata);
        assert_eq!(nothing().level_for(&Attributes::path("get", "/x"), &user), Level::None);
    }

    #[test]
    fn mistakes_in_a_policy_are_named() {
        let parse = |rules: Value| {
            let object = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules});
            AuditPolicy::parse(&object).unwrap_err().to_string()
        };
        assert_eq!(parse(json!([])), "rules: required");
        assert_eq!(
            parse(json!([{"level": "All"}])),
            "rules[0].level: must be None, Metadata, Request or RequestResponse"
        );
        assert_eq!(
            parse(json!([{"level": "None", "users": "x"}])),
            "rules[0].users: must be a list of strings"
        );
        assert!(parse(json!([{"level": "None", "omitStages": ["Later"]}])).starts_with("Later: must be"));
        assert!(
            parse(json!([{"level": "None", "nonResourceURLs": ["*"], "namespaces": ["d"]}]))
                .starts_with("rules[0].nonResourceURLs")
        );
        assert_eq!(AuditPolicy::parse(&json!({"kind": "Policy"})), Err(AuditPolicyError::Kind));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn arbitrary_policies_never_panic_and_never_expose_secrets(rules in prop::collection::vec(crate::testing::any_json(), 1..4)) {
            let object = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules});
            if let Ok(policy) = AuditPolicy::parse(&object) {
                let attributes = Attributes::resource("get", "", "secrets").namespace("d");
                prop_assert!(policy.level_for(&attributes, &User::anonymous()) <= Level::Metadata);
            }
        }
    }
}
