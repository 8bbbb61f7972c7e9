//! Which objects of a collection are meant: filters by field, order and pages of the older API.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::query::{Parameters, encoded};

/// Objects of a page, unless it is said, and at most.
const USUAL: usize = 1_000;
const MOST: usize = 10_000;

/// How a field is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Equal,
    NotEqual,
    In,
    NotIn,
    Null,
    NotNull,
}

/// Endings of the names of parameters. The longest first.
const ENDINGS: [(&str, Compare); 5] = [
    ("_notnull", Compare::NotNull),
    ("_notin", Compare::NotIn),
    ("_null", Compare::Null),
    ("_ne", Compare::NotEqual),
    ("_in", Compare::In),
];

#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    /// Field, how it is compared, and with what.
    filters: Vec<(String, Compare, String)>,
    sort: String,
    descending: bool,
    limit: usize,
    marker: String,
}

/// Parameters that are no filters.
const OTHERS: &[&str] = &["limit", "marker", "sort", "order", "action", "link", "all", "reverse"];

impl Query {
    pub(super) fn parse(parameters: &Parameters) -> Self {
        let filters = parameters.pairs().filter(|(key, _)| !OTHERS.contains(key)).map(|(key, value)| {
            let ending = ENDINGS.iter().find_map(|(end, how)| Some((key.strip_suffix(end)?, *how)));
            let (field, how) = ending.unwrap_or((key, Compare::Equal));
            (field.to_owned(), how, value.to_owned())
        });
        let limit = parameters.get("limit").and_then(|limit| limit.parse::<i64>().ok());
        let limit = match limit {
            None | Some(0) => USUAL,
            // A negative one is for all of them.
            Some(limit) => usize::try_from(limit).map_or(MOST, |limit| limit.min(MOST)),
        };
        let text = |name: &str| parameters.get(name).unwrap_or_default().to_owned();
        Self {
            filters: filters.collect(),
            sort: text("sort"),
            descending: text("order").eq_ignore_ascii_case("desc"),
            limit,
            marker: text("marker"),
        }
    }

    /// The page, and what is said of it.
    pub(super) fn page(&self, mut forms: Vec<Value>, url: &str) -> (Vec<Value>, Value) {
        let known: HashSet<String> =
            forms.iter().filter_map(Value::as_object).flat_map(|form| form.keys().cloned()).collect();
        forms.retain(|form| {
            // Clients send filters of other kinds as well.
            let mut filters = self.filters.iter().filter(|(field, ..)| known.contains(field));
            filters.all(|(field, how, value)| is(&form[field.as_str()], *how, value))
        });
        let id = |form: &Value| form["id"].as_str().unwrap_or_default().to_owned();
        let by = if self.sort.is_empty() { "id" } else { self.sort.as_str() };
        forms.sort_by_cached_key(|form| (flat(&form[by]), id(form)));
        if self.descending {
            forms.reverse();
        }
        let total = forms.len();
        let from = match self.marker.as_str() {
            "" => 0,
            // One that is gone meanwhile: the next one goes on, where the order is that of ids.
            marker => forms.iter().position(|form| id(form).as_str() >= marker).unwrap_or(total),
        };
        let next = forms.get(from.saturating_add(self.limit)).map(id);
        let page: Vec<Value> = forms.into_iter().skip(from).take(self.limit).collect();
        let mut pagination = json!({"limit": self.limit, "total": total});
        if let Some(next) = next {
            pagination["partial"] = true.into();
            pagination["next"] = format!("{url}?limit={}&marker={}", self.limit, encoded(&next)).into();
        }
        (page, pagination)
    }
}

/// A value as it is compared.
fn flat(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

fn is(value: &Value, how: Compare, wanted: &str) -> bool {
    let own = flat(value);
    match how {
        Compare::Equal => own == wanted,
        Compare::NotEqual => own != wanted,
        Compare::In => wanted.split(',').any(|wanted| own == wanted),
        Compare::NotIn => wanted.split(',').all(|wanted| own != wanted),
        Compare::Null => own.is_empty(),
        Compare::NotNull => !own.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &[&str]) {
        let forms = [("a", "active", true), ("b", "inactive", false), ("c", "active", false)].map(|(id, state, on)| {
            json!({"id": id, "state": state, "on": on, "note": if id == "b" { json!("x") } else { json!(null) }})
        });
        let (page, _) =
            Query::parse(&Parameters::parse(Some(query))).page(forms.to_vec(), "https://h/v3/things");
        let ids: Vec<&str> = page.iter().map(|form| form["id"].as_str().unwrap()).collect();
        assert_eq!(ids, expected, "{query}");
    }

    #[test]
    fn filters_choose_by_fields() {
        check("", &["a", "b", "c"]);
        check("state=active", &["a", "c"]);
        check("state_ne=active&state_ne=other", &["b"]);
        check("id_in=a,b&on=false", &["b"]);
        check("id_notin=a,b", &["c"]);
        check("note_null=1", &["a", "c"]);
        check("note_notnull=1", &["b"]);
        check("note=", &["a", "c"]);
        check("all=true&system=false&removed_null=1&limit=-1", &["a", "b", "c"]);
        check("sort=state&order=desc", &["b", "c", "a"]);
    }

    #[test]
    fn pages_walk_all_objects_once() {
        let forms: Vec<Value> = (0..5).map(|number| json!({"id": format!("o{number}")})).collect();
        let (mut query, mut seen) = ("limit=2".to_owned(), Vec::new());
        for _ in 0..5 {
            let (page, pagination) =
                Query::parse(&Parameters::parse(Some(&query))).page(forms.clone(), "https://h/v3/things");
            assert_eq!(pagination["total"], 5);
            seen.extend(page.iter().map(|form| form["id"].as_str().unwrap().to_owned()));
            let Some(next) = pagination["next"].as_str() else { break };
            assert_eq!(pagination["partial"], true);
            next.split_once('?').unwrap().1.clone_into(&mut query);
        }
        assert_eq!(seen, ["o0", "o1", "o2", "o3", "o4"]);
        check("marker=zz", &[]);
        check("limit=99999999999999999999", &["a", "b", "c"]);
    }
}
