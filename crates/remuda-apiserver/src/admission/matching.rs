//! Which writes a webhook or policy concerns: rules, selectors and match conditions.

use std::sync::Arc;

use remuda_cel::Program;
use remuda_objects::selector::LabelSelector;
use serde_json::Value;

use super::{
    Review,
    given::{Given, STORED, conditions_budget},
};
use crate::{registry::Resource, server::Inner, status::ApiResult};

/// The rules and selectors of a webhook, or of a policy's constraints.
pub(super) struct Rules {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    namespaces: Option<LabelSelector>,
    objects: Option<LabelSelector>,
    /// `matchPolicy: Equivalent`: other versions of a listed resource count too.
    equivalent: bool,
}

struct Rule {
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    operations: Vec<String>,
    names: Vec<String>,
    scope: Option<bool>,
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn selector(value: &Value) -> Option<LabelSelector> {
    // An empty selector matches everything; one that does not parse was refused at admission.
    value.as_object().filter(|map| !map.is_empty()).and_then(|_| LabelSelector::from_object(value).ok())
}

impl Rules {
    /// From a webhook.
    pub(super) fn parse(config: &Value) -> Self {
        Self::new(&config["rules"], &Value::Null, config)
    }

    /// From a policy's `matchConstraints` or a binding's `matchResources`.
    pub(super) fn parse_policy(constraints: &Value) -> Self {
        Self::new(&constraints["resourceRules"], &constraints["excludeResourceRules"], constraints)
    }

    fn new(rules: &Value, excluded: &Value, selectors: &Value) -> Self {
        let parse = |rules: &Value| rules.as_array().into_iter().flatten().map(Rule::parse).collect();
        Self {
            rules: parse(rules),
            excluded: parse(excluded),
            namespaces: selector(&selectors["namespaceSelector"]),
            objects: selector(&selectors["objectSelector"]),
            equivalent: selectors["matchPolicy"] != "Exact",
        }
    }

    /// Nothing is listed: a binding without constraints of its own.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The form of the resource in which a write is listed, if it is: the request's own where the
    /// rules name it, else another version they name.
    pub(super) async fn matches(
        &self,
        server: &Inner,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> ApiResult<Option<Arc<Resource>>> {
        let Some(target) = self.listed(&self.rules, review, object) else { return Ok(None) };
        if self.listed(&self.excluded, review, object).is_some() {
            return Ok(None);
        }
        Ok(self.selectors_match(server, review, object).await?.then_some(target))
    }

    fn listed(&self, rules: &[Rule], review: &Review<'_>, object: Option<&Value>) -> Option<Arc<Resource>> {
        let resource = &review.call.resource;
        let rules: Vec<&Rule> = rules.iter().filter(|rule| rule.matches(review, object)).collect();
        let names = |rule: &Rule, wanted: &str| rule.versions.iter().any(|v| v == "*" || v == wanted);
        if rules.iter().any(|rule| names(rule, &resource.version)) {
            return Some(resource.clone());
        }
        let mut versions = rules.iter().flat_map(|rule| &rule.versions).filter(|_| self.equivalent);
        versions.find_map(|version| {
            review.call.registry.find(&resource.group, version, &resource.plural).cloned()
        })
    }

    /// The selectors alone. If a namespace cannot be read the write fails: nobody is passed over.
    pub(super) async fn selectors_match(
        &self,
        server: &Inner,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> ApiResult<bool> {
        if let Some(selector) = &self.objects {
            // What has no metadata has no labels to select by, not even none.
            let of = |object: Option<&Value>| {
                object.is_some_and(|object| object["metadata"].is_object() && selector.matches_object(object))
            };
            if !of(object) && !of(review.old) {
                return Ok(false);
            }
        }
        let Some(selector) = &self.namespaces else { return Ok(true) };
        let resource = &review.call.resource;
        if resource.group.is_empty() && resource.kind == "Namespace" {
            return Ok(object.or(review.old).is_some_and(|namespace| selector.matches_object(namespace)));
        }
        let Some(namespace) = review.call.namespace() else { return Ok(true) };
        let namespace = server.read_object(&format!("/core/namespaces/{namespace}")).await?;
        Ok(namespace.is_some_and(|namespace| selector.matches_object(&namespace)))
    }
}

impl Rule {
    fn parse(rule: &Value) -> Self {
        Self {
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: texts(&rule["resources"]),
            operations: texts(&rule["operations"]),
            names: texts(&rule["resourceNames"]),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => Some(false),
                Some("Namespaced") => Some(true),
                _ => None,
            },
        }
    }

    /// All but the version.
    fn matches(&self, review: &Review<'_>, object: Option<&Value>) -> bool {
        let resource = &review.call.resource;
        let any = |list: &[String], value: &str| list.iter().any(|known| known == "*" || known == value);
        let namespace_object = resource.group.is_empty() && resource.kind == "Namespace";
        let scope =
            self.scope.is_none_or(|namespaced| namespaced == (resource.namespaced && !namespace_object));
        let name = || review.name(object);
        any(&self.groups, &resource.group)
            && any(&self.operations, review.operation.as_str())
            && scope
            && self
                .resources
                .iter()
                .any(|pattern| matches_resource(pattern, &resource.plural, review.call.subresource()))
            && (self.names.is_empty() || self.names.contains(&name()))
    }
}

fn matches_resource(pattern: &str, plural: &str, subresource: &str) -> bool {
    let (resource, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == plural) && (sub == subresource || sub == "*")
}

/// A compiled `matchConditions` entry.
pub(super) struct Condition {
    name: String,
    program: Result<Program, String>,
}

impl Condition {
    pub(super) fn parse(condition: &Value) -> Self {
        let source = condition["expression"].as_str().unwrap_or_default();
        Self {
            name: condition["name"].as_str().unwrap_or_default().to_owned(),
            program: STORED.compile(source).map_err(|error| error.to_string()),
        }
    }
}

/// Whether all conditions are true. A false one outranks a failed one.
pub(super) fn all_hold(conditions: &[Condition], given: &Given<'_>) -> Result<bool, String> {
    if conditions.is_empty() {
        return Ok(true);
    }
    // No condition sees the namespace.
    let vars = Given { namespace: &Value::Null, ..*given }.vars();
    let mut failed = None;
    let mut budget = conditions_budget();
    for condition in conditions {
        let result = match &condition.program {
            Ok(program) => program.eval(&vars, &mut budget).map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        match result.map(|value| value.as_bool()) {
            Ok(Some(true)) => {}
            Ok(Some(false)) => return Ok(false),
            Ok(None) => failed = Some(format!("match condition {:?} is not a boolean", condition.name)),
            Err(cause) => failed = Some(format!("match condition {:?}: {cause}", condition.name)),
        }
    }
    failed.map_or(Ok(true), Err)
}
