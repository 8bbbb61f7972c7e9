//! Fields of related objects, which lists are filtered and sorted by.
//!
//! `metadata.labels[project]=>[management.cattle.io/v3][Project][metadata.name][spec.clusterName]`: the value on the left
//! leads to the Project of that name, whose `spec.clusterName` counts. The group of Kubernetes itself is `_v1` or `v1`.
//! Related objects are those the caller may see: an order tells nothing of others.

use std::collections::HashMap;

use http::StatusCode;
use remuda_door::Refusal;

use crate::{
    path::{Cell, Path},
    query::ListQuery,
    row::Row,
    visit::Visit,
};

/// Different relations in one query. For each of them all objects of another kind are read once.
const MOST: usize = 4;

/// The kind on the other end, the field that is compared there, and the one that counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Relation {
    api_version: String,
    kind: String,
    by: Path,
    value: Path,
}

/// A field of an object, or of the object it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) path: Path,
    pub(crate) via: Option<Box<Relation>>,
}

impl Field {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (field, rest) = Self::begin(text.trim())?;
        rest.is_empty().then_some(field)
    }

    /// The field a text begins with, and what comes after it.
    pub(crate) fn begin(text: &str) -> Option<(Self, &str)> {
        let end = end(text);
        let path = Path::parse(&text[..end])?;
        let rest = text[end..].trim_start();
        let arrow = rest.strip_prefix("=>").map(str::trim_start).filter(|after| after.starts_with('['));
        let Some(after) = arrow else { return Some((Self { path, via: None }, rest)) };
        let (api_version, after) = bracketed(after)?;
        let (kind, after) = bracketed(after)?;
        let (by, after) = bracketed(after)?;
        let (value, after) = bracketed(after)?;
        let via = Relation {
            api_version: api_version.trim_start_matches('_').to_owned(),
            kind: kind.to_owned(),
            by: Path::parse(by)?,
            value: Path::parse(value)?,
        };
        Some((Self { path, via: Some(Box::new(via)) }, after.trim_start()))
    }
}

/// Where the field ends: at the first operator or space outside of brackets.
fn end(text: &str) -> usize {
    let mut inside = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => inside = true,
            ']' => inside = false,
            '=' | '!' | '~' | '<' | '>' | ' ' | '\t' if !inside => return at,
            _ => {}
        }
    }
    text.len()
}

/// What is in the brackets a text begins with, which may hold others, and what comes after them.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            _ if at == 0 => return None,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[1..at], &text[at + 1..]));
        }
    }
    None
}

/// Values of related objects, by what leads to them.
#[derive(Debug, Default)]
pub(crate) struct Related(HashMap<Relation, HashMap<Box<str>, Cell>>);

impl Related {
    /// Reads what a query needs.
    pub(crate) async fn of(visit: &Visit, query: &ListQuery) -> Result<Self, Refusal> {
        let terms = query.filters.iter().flat_map(|filter| &filter.terms).map(|term| &term.field);
        let fields = terms.chain(query.sort.iter().map(|key| &key.field));
        let mut known = HashMap::new();
        for relation in fields.filter_map(|field| field.via.as_deref()) {
            if known.contains_key(relation) {
                continue;
            }
            if known.len() >= MOST {
                return Err(Refusal::bad(format!("a query leads to {MOST} other kinds at most")));
            }
            known.insert(relation.clone(), values(visit, relation).await?);
        }
        Ok(Self(known))
    }

    /// The value of a field of a row.
    pub(crate) fn value(&self, row: &Row, field: &Field, now: i64) -> Cell {
        let own = row.value(&field.path, now);
        let Some(via) = &field.via else { return own };
        let Some(known) = self.0.get(&**via) else { return Cell::None };
        own.values().iter().find_map(|key| known.get(key).cloned()).unwrap_or_default()
    }
}

/// Nothing of a kind that is not there, or not for the caller.
async fn values(visit: &Visit, relation: &Relation) -> Result<HashMap<Box<str>, Cell>, Refusal> {
    let Some(kind) = visit.catalogue.of(&relation.api_version, &relation.kind).cloned() else {
        return Ok(HashMap::new());
    };
    // Nothing is indexed for callers who would see none of it.
    if visit.is_management() && visit.reach(&kind).await?.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = match visit.rows(&kind, "", None).await {
        Ok(snapshot) => snapshot.rows,
        Err(refusal) if refusal.code == StatusCode::FORBIDDEN => Vec::new(),
        Err(refusal) => return Err(refusal),
    };
    let mut values = HashMap::new();
    for row in rows {
        let value = row.value(&relation.value, visit.now);
        for key in row.value(&relation.by, visit.now).values() {
            // Of several the first counts, in the order of their names.
            values.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kind::Kind;

    #[test]
    fn a_relation_is_read_with_what_it_leads_to() {
        let text = "metadata.labels[a/b] => [management.cattle.io/v3][Project][metadata.labels[x]][spec.clusterName] ~ c";
        let (field, rest) = Field::begin(text).unwrap();
        assert_eq!(rest, "~ c");
        assert_eq!(field.path, Path::parse("metadata.labels[a/b]").unwrap());
        let via = field.via.unwrap();
        assert_eq!((via.api_version.as_str(), via.kind.as_str()), ("management.cattle.io/v3", "Project"));
        assert_eq!(via.by, Path::parse("metadata.labels[x]").unwrap());
        assert_eq!(via.value, Path::parse("spec.clusterName").unwrap());
        let core = Field::parse("spec.a=>[_v1][Namespace][metadata.name][metadata.state.name]").unwrap();
        assert_eq!(core.via.unwrap().api_version, "v1");
        let (plain, rest) = Field::begin("a=>b").unwrap();
        assert!(plain.via.is_none() && rest == "=>b", "an ordinary comparison");
        for bad in ["a=>[", "a=>[x][y]", "a=>[x][y][][z]", "a=>[x]]", "a=>[x][y][b][c"] {
            assert_eq!(Field::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_value_is_that_of_the_related_object() {
        let row = |object: Value| Row::new(&Kind::default(), object, Vec::new(), true).unwrap();
        let field = Field::parse("spec.project=>[g/v1][Project][metadata.name][spec.cluster]").unwrap();
        let values = HashMap::from([("p-1".into(), Cell::text("c-1"))]);
        let related = Related(HashMap::from([((**field.via.as_ref().unwrap()).clone(), values)]));
        let of = |project: Value| {
            let row = row(json!({"metadata": {"name": "n"}, "spec": {"project": project}}));
            related.value(&row, &field, 0)
        };
        assert_eq!(of(json!("p-1")), Cell::text("c-1"));
        assert_eq!(of(json!("p-2")), Cell::None);
        assert_eq!(of(json!(["p-2", "p-1"])), Cell::text("c-1"));
        assert_eq!(of(json!(null)), Cell::None);
    }
}
