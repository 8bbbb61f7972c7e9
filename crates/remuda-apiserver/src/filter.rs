//! The selectors of lists and watches.

use std::borrow::Cow;

use remuda_objects::selector::{FieldOperator, FieldSelector, LabelSelector, Operator};
use remuda_store::Record;
use serde_json::Value;

use crate::{
    lean::{self, Need},
    options::ListOptions,
    registry::Resource,
    status::{ApiError, ApiResult},
};

/// The selectors of a list or watch, ready to match stored bytes.
#[derive(Clone)]
pub(crate) struct Filter {
    labels: Option<LabelSelector>,
    fields: Option<FieldSelector>,
    group: String,
    kind: String,
    /// Custom selectable fields, as paths.
    custom: Vec<String>,
    is_custom: bool,
    /// What the field selector looks at, unless that is metadata alone.
    need: Option<Need>,
}

impl Filter {
    pub(crate) fn new(resource: &Resource, options: &ListOptions) -> ApiResult<Self> {
        let custom = resource
            .custom()
            .map(|custom| custom.crd.view.versions[custom.version].selectable_fields.clone())
            .unwrap_or_default();
        let mut filter = Self {
            labels: options.labels.clone().filter(|selector| !selector.is_everything()),
            fields: options.fields.clone().filter(|selector| !selector.is_everything()),
            group: resource.group.clone(),
            kind: resource.kind.clone(),
            custom,
            is_custom: resource.is_custom(),
            need: None,
        };
        filter.need = filter.need();
        for term in filter.fields.iter().flat_map(|fields| &fields.terms) {
            filter.check_path(&term.path)?;
        }
        Ok(filter)
    }

    fn need(&self) -> Option<Need> {
        let terms = &self.fields.as_ref()?.terms;
        if terms.iter().all(|term| is_meta(&term.path)) {
            return None;
        }
        let paths: Vec<&str> = terms.iter().map(|term| term.path.as_str()).collect();
        Some(self.need_of(&paths))
    }

    fn need_of(&self, paths: &[&str]) -> Need {
        // Events are stored in one style and read in two.
        if !self.is_custom && self.kind == "Event" {
            return Need::Everything;
        }
        let mut need = Need::nothing();
        for path in paths {
            // What a path of a built-in kind means is below its first part, not always at its end.
            let parts = if self.is_custom || is_meta(path) { usize::MAX } else { 1 };
            need.add(path.split('.').take(parts));
        }
        need
    }

    fn check_path(&self, path: &str) -> ApiResult<()> {
        if is_meta(path) {
            return Ok(());
        }
        if self.is_custom {
            return if self.custom.iter().any(|known| known.trim_start_matches('.') == path) {
                Ok(())
            } else {
                Err(ApiError::bad_request(format!("field label not supported: {path}")))
            };
        }
        remuda_objects::fields::check(&self.group, &self.kind, path).map_err(ApiError::bad_request)
    }

    /// Everything matches.
    pub(crate) fn is_open(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    /// Whether it looks at fields of custom objects, which differ from version to version.
    pub(crate) fn reads_content(&self) -> bool {
        self.is_custom
            && self.fields.as_ref().is_some_and(|fields| fields.terms.iter().any(|term| !is_meta(&term.path)))
    }

    /// The name all matches have, if the selector says so.
    pub(crate) fn only_name(&self) -> Option<&str> {
        self.fields.as_ref().and_then(|fields| fields.requires("metadata.name"))
    }

    /// What an index could answer of it: each of these holds for every match.
    pub(crate) fn terms(&self) -> Vec<Term> {
        let mut terms = Vec::new();
        for requirement in self.labels.iter().flat_map(LabelSelector::requirements) {
            let values = match requirement.operator() {
                Operator::Equals | Operator::DoubleEquals | Operator::In => {
                    Some(requirement.values().to_vec())
                }
                Operator::Exists | Operator::GreaterThan | Operator::LessThan => None,
                Operator::NotIn | Operator::NotEquals | Operator::DoesNotExist => continue,
            };
            terms.push(Term { by: By::Label(requirement.key().to_owned()), values });
        }
        for term in self.fields.iter().flat_map(|fields| &fields.terms) {
            if term.operator == FieldOperator::Equals && !is_meta(&term.path) {
                terms.push(Term { by: By::Field(term.path.clone()), values: Some(vec![term.value.clone()]) });
            }
        }
        // Those with a value first: they say more.
        terms.sort_by_key(|term| term.values.is_none());
        terms
    }

    /// A reader of what objects have under a term, as stored.
    pub(crate) fn reader(&self, by: &By) -> Reader<'_> {
        let need = match by {
            By::Label(_) => None,
            By::Field(path) => Some(self.need_of(&[path])),
        };
        Reader { filter: self, by: by.clone(), need }
    }

    pub(crate) fn matches(&self, record: &Record) -> bool {
        if self.is_open() {
            return true;
        }
        self.matches_bytes(&record.value)
    }

    /// Of each object no more is read than is asked for.
    fn matches_bytes(&self, bytes: &[u8]) -> bool {
        if self.labels.is_some() || self.need.is_none() {
            let Ok(Head { metadata: meta }) = serde_json::from_slice::<Head<'_>>(bytes) else { return false };
            let labelled =
                |labels: &LabelSelector| labels.matches_with(|key| meta.labels.get(key).map(AsRef::as_ref));
            if !self.labels.as_ref().is_none_or(labelled) {
                return false;
            }
            if self.need.is_none() {
                return self.fields.as_ref().is_none_or(|fields| {
                    fields.matches_with(|path| {
                        Some(if path == "metadata.name" { &meta.name } else { &meta.namespace }.to_string())
                    })
                });
            }
        }
        let (Some(fields), Some(need)) = (&self.fields, &self.need) else { return true };
        lean::read(bytes, need).is_ok_and(|lean| fields.matches_with(|path| self.field(&lean.object, path)))
    }

    /// Matches an object in the stored version.
    pub(crate) fn matches_object(&self, object: &Value) -> bool {
        self.labels.as_ref().is_none_or(|selector| selector.matches_object(object))
            && self.fields.as_ref().is_none_or(|fields| fields.matches_with(|path| self.field(object, path)))
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        match path {
            "metadata.name" => Some(object["metadata"]["name"].as_str().unwrap_or_default().to_owned()),
            "metadata.namespace" => {
                Some(object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned())
            }
            _ if self.is_custom => {
                let mut node = object;
                for part in path.split('.') {
                    node = &node[part];
                }
                Some(match node {
                    Value::String(text) => text.clone(),
                    Value::Null => String::new(),
                    other => other.to_string(),
                })
            }
            _ => remuda_objects::fields::selectable(&self.group, &self.kind, object, path).map(Into::into),
        }
    }
}

/// What objects can be found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum By {
    Label(String),
    Field(String),
}

/// A condition an index can answer: one of these values, or any.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) by: By,
    pub(crate) values: Option<Vec<String>>,
}

/// Reads one label or field of stored objects.
pub(crate) struct Reader<'a> {
    filter: &'a Filter,
    by: By,
    need: Option<Need>,
}

impl Reader<'_> {
    /// `None` without such a label.
    pub(crate) fn read(&self, bytes: &[u8]) -> Option<String> {
        match (&self.by, &self.need) {
            (By::Field(path), Some(need)) => {
                let object = lean::read(bytes, need).ok()?.object;
                Some(self.filter.field(&object, path).unwrap_or_default())
            }
            (By::Label(key) | By::Field(key), _) => {
                let head: Head<'_> = serde_json::from_slice(bytes).ok()?;
                head.metadata.labels.get(key.as_str()).map(ToString::to_string)
            }
        }
    }
}

/// Fields that every kind can be selected by.
fn is_meta(path: &str) -> bool {
    matches!(path, "metadata.name" | "metadata.namespace")
}

/// The part of an object most selectors look at.
#[derive(serde::Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: HeadMeta<'a>,
}

#[derive(serde::Deserialize)]
struct HeadMeta<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    labels: std::collections::HashMap<Cow<'a, str>, Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The same must come of stored bytes and of the whole object.
    #[track_caller]
    fn check(is_custom: bool, kind: &str, selector: &str, object: &Value, expected: bool) {
        let mut filter = Filter {
            labels: None,
            fields: Some(FieldSelector::parse(selector).unwrap()),
            group: String::new(),
            kind: kind.to_owned(),
            custom: Vec::new(),
            is_custom,
            need: None,
        };
        filter.need = filter.need();
        assert_eq!(filter.matches_object(object), expected, "{selector}");
        assert_eq!(filter.matches_bytes(object.to_string().as_bytes()), expected, "{selector} of bytes");
    }

    #[test]
    fn fields_select_stored_bytes_as_they_select_objects() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "managedFields": [{}]},
            "spec": {"nodeName": "w", "hostNetwork": true, "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
        });
        check(false, "Pod", "spec.nodeName=w", &pod, true);
        check(false, "Pod", "spec.nodeName=w,metadata.name=p,metadata.namespace!=m", &pod, true);
        check(false, "Pod", "spec.nodeName=w,metadata.name=q", &pod, false);
        check(false, "Pod", "spec.hostNetwork=true,status.podIPs=10.0.0.1", &pod, true);
        check(false, "Pod", "status.phase!=Running", &pod, false);
        let secret = json!({"data": {"k": "dg=="}, "metadata": {"name": "s"}, "type": "Opaque"});
        check(false, "Secret", "type=Opaque", &secret, true);
        check(false, "Secret", "type=other", &secret, false);
        let event = json!({"metadata": {}, "regarding": {"name": "x"}, "reportingController": "c"});
        check(false, "Event", "involvedObject.name=x,source=c", &event, true);
        let custom =
            json!({"metadata": {"name": "a"}, "spec": {"deep": {"size": 3, "other": "x"}, "flat": ""}});
        check(true, "Foo", "spec.deep.size=3,spec.flat=", &custom, true);
        check(true, "Foo", "spec.deep.none=,metadata.name=a", &custom, true);
        check(true, "Foo", "spec.deep.size=4", &custom, false);
    }
}
