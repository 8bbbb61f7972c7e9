//! Whether the expressions of a policy fit the types of what it is about.
//!
//! A policy is accepted whatever it is about: types come and go. What does not fit is told in its status.

use std::collections::BTreeSet;

use remuda_cel::{ObjectType, Type};
use remuda_schema::Schema;
use serde_json::{Value, json};

use super::given::Names;
use crate::registry::{Registry, Resource};

/// Kinds that are looked at for one rule.
const MOST: usize = 10;

/// A kind a policy is about.
struct Kind {
    /// As Kubernetes writes group, version and kind.
    name: String,
    names: Names,
}

/// The warnings for `status.typeChecking`, for validations and their messages.
pub(crate) async fn warnings(registry: &Registry, policy: &Value) -> Vec<Value> {
    let spec = &policy["spec"];
    let kinds: Vec<Kind> =
        kinds(registry, spec).into_iter().filter_map(|kind| kind.names(registry, spec)).collect();
    let mut warnings = Vec::new();
    for (index, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
        for field in ["expression", "messageExpression"] {
            let source = validation[field].as_str().unwrap_or_default();
            if source.is_empty() {
                continue;
            }
            let mut found = Vec::new();
            for Kind { name, names } in &kinds {
                if let Err(problems) = names.env().compile(source) {
                    found.push(format!("{name}: {problems}\n"));
                }
                // Policies may be large, and others have work to do as well.
                tokio::task::yield_now().await;
            }
            if !found.is_empty() {
                let field = format!("spec.validations[{index}].{field}");
                warnings.push(json!({"fieldRef": field, "warning": found.join("\n")}));
            }
        }
    }
    warnings
}

/// Group, version and kind: the order in which they are told.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    group: String,
    version: String,
    kind: String,
}

impl Id {
    /// `None` if nothing is known of its type.
    fn names(self, registry: &Registry, spec: &Value) -> Option<Kind> {
        let resource = registry.find_kind(&self.group, Some(&self.version), &self.kind)?;
        let object = type_of(resource)?;
        let params = super::policies::param_kind(spec).map(|(api_version, kind)| {
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            registry
                .find_kind(group, Some(version), &kind)
                .and_then(|resource| type_of(resource))
                .unwrap_or(Type::Dyn)
        });
        let mut names = Names { object, params, authorizer: true, ..Names::default() };
        for variable in spec["variables"].as_array().into_iter().flatten() {
            names.add_variable(variable);
        }
        Some(Kind { name: format!("{}/{}, Kind={}", self.group, self.version, self.kind), names })
    }
}

impl Names {
    /// Declares a variable for the expressions after it, with the type of its own expression. One that does not compile
    /// may be anything: what is wrong with it is told where it is used, too.
    pub(super) fn add_variable(&mut self, variable: &Value) {
        let source = variable["expression"].as_str().unwrap_or_default();
        let ty = self.env().compile(source).map_or(Type::Dyn, |program| plain(program.output()));
        let name = variable["name"].as_str().unwrap_or_default();
        let known = std::mem::take(&mut self.variables);
        self.variables = ObjectType { name: "kubernetes.variables".to_owned(), ..known }.field(name, ty);
    }
}

/// The type a variable gets from its expression: objects are not told on.
fn plain(ty: &Type) -> Type {
    match ty {
        Type::List(list) => Type::list(plain(&list.item)),
        Type::Map(map) => Type::map(plain(&map.key), plain(&map.value)),
        Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Timestamp
        | Type::Duration
        | Type::Null => ty.clone(),
        _ => Type::Dyn,
    }
}

fn type_of(resource: &Resource) -> Option<Type> {
    let schema = resource.schema.as_ref()?;
    if !resource.is_custom() {
        return remuda_schema::rules::object_type(schema, &resource.kind);
    }
    // What is published of a custom kind has all metadata.
    let mut whole = Schema::clone(schema);
    whole.properties.insert("metadata".to_owned(), remuda_kinds::object_meta());
    remuda_schema::rules::object_type(&whole, &resource.kind)
}

/// The kinds the rules of a policy name. Rules with wildcards name none.
fn kinds(registry: &Registry, spec: &Value) -> BTreeSet<Id> {
    let mut kinds = BTreeSet::new();
    for rule in spec["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        let sorted = |field: &str| {
            let mut texts: Vec<&str> =
                rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            texts.sort_unstable();
            texts
        };
        let (groups, versions) = (sorted("apiGroups"), sorted("apiVersions"));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                for plural in sorted("resources").iter().filter(|plural| !plural.contains(['*', '/'])) {
                    let found = registry
                        .groups
                        .iter()
                        // A search without a group finds the resource in all of them.
                        .filter(|known| group.is_empty() || known.name == *group)
                        .filter_map(|known| registry.find(&known.name, version, plural));
                    for resource in found {
                        let (group, version) = (resource.group.clone(), resource.version.clone());
                        kinds.insert(Id { group, version, kind: resource.kind.clone() });
                        count += 1;
                        if count == MOST {
                            return kinds;
                        }
                    }
                }
            }
        }
    }
    kinds
}
