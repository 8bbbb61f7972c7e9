//! Lists: filtered, sorted and cut into pages, from rows the caller may see.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use remuda_door::Refusal;
use remuda_names::list_api::label::PROJECT;
use serde_json::{Value, json};

use crate::{
    kind::Kind,
    order::Rank,
    query::{ListQuery, Places, Summary},
    relation::Related,
    row::Row,
    show::collection,
    visit::{Snapshot, Visit},
};

/// The answer to a list.
pub(crate) async fn list(
    visit: &Visit,
    kind: &Arc<Kind>,
    namespace: &str,
    query: &ListQuery,
) -> Result<Value, Refusal> {
    let snapshot = visit.rows(kind, namespace, query.revision).await?;
    of_rows(visit, kind, namespace, query, snapshot).await
}

/// The answer to a list of these rows.
pub(crate) async fn of_rows(
    visit: &Visit,
    kind: &Arc<Kind>,
    namespace: &str,
    query: &ListQuery,
    snapshot: Snapshot,
) -> Result<Value, Refusal> {
    let places = match &query.places {
        Some(places) => Some(namespaces_of(visit, places).await?),
        None => None,
    };
    let related = Related::of(visit, query).await?;
    visit.with_owned(kind).await;
    let rows = selected(snapshot.rows, kind, query, places.as_ref(), &related, visit.now);
    let count = rows.len();
    let (page, pages, next) = paged(&rows, query);
    let path = match namespace {
        "" => format!("/{}", kind.plural),
        namespace => format!("/{}/{namespace}", kind.plural),
    };
    let mut answer = collection(&visit.base, &kind.id, &path);
    if visit.rights.sheet().methods(kind).1.contains(&"POST") {
        answer["createTypes"][kind.id.as_str()] = visit.base.collection(kind).into();
    }
    answer["revision"] = snapshot.revision.to_string().into();
    answer["count"] = count.into();
    answer["pages"] = pages.into();
    if let Some(next) = next {
        let limit = query.limit.unwrap_or_default();
        let url = format!("{}{path}?limit={limit}&continue={next}", visit.base.root());
        answer["continue"] = next.to_string().into();
        answer["pagination"] = json!({"limit": limit, "next": url});
    }
    if !query.summary.fields.is_empty() {
        answer["summary"] = summary(&rows, &query.summary, visit.now);
    }
    let only_summary = query.summary.only && !query.summary.fields.is_empty();
    let data = if only_summary { Vec::new() } else { visit.shown(kind, page) };
    let data: Vec<Value> = data.into_iter().map(|object| finished(visit, object, query)).collect();
    answer["data"] = data.into();
    Ok(answer)
}

/// Namespaces a list is restricted to.
struct Restricted {
    namespaces: HashSet<String>,
    not: bool,
}

async fn namespaces_of(visit: &Visit, places: &Places) -> Result<Restricted, Refusal> {
    let mut namespaces: HashSet<String> = places.names.iter().cloned().collect();
    let all = visit.kind("namespace")?;
    // What is in a project is asked with the rights of the caller: others are not told which namespaces it has.
    for row in visit.rows(&all, "", None).await?.rows {
        let project = row.labels.as_ref().and_then(|labels| labels.get(PROJECT)).and_then(Value::as_str);
        if project.is_some_and(|project| places.names.iter().any(|name| name == project)) {
            namespaces.insert(row.name().to_owned());
        }
    }
    Ok(Restricted { namespaces, not: places.not })
}

impl Restricted {
    fn includes(&self, kind: &Kind, row: &Row) -> bool {
        let place = match (kind.namespaced, kind.id.as_str()) {
            (true, _) => row.namespace(),
            (false, "namespace") => row.name(),
            // What is in no namespace is in no project either way.
            (false, _) => return true,
        };
        self.namespaces.contains(place) != self.not
    }
}

/// Rows that pass all filters, in order.
fn selected(
    rows: Vec<Arc<Row>>,
    kind: &Kind,
    query: &ListQuery,
    places: Option<&Restricted>,
    related: &Related,
    now: i64,
) -> Vec<Arc<Row>> {
    let mut rows: Vec<Arc<Row>> = rows
        .into_iter()
        .filter(|row| places.is_none_or(|places| places.includes(kind, row)))
        .filter(|row| query.labels.is_everything() || row.is_selected(&query.labels))
        .filter(|row| {
            query.filters.iter().all(|filter| filter.matches(|field| related.value(row, field, now)))
        })
        .collect();
    if query.sort.is_empty() {
        return rows;
    }
    let ranks: HashMap<*const Row, Vec<Rank>> = rows
        .iter()
        .map(|row| {
            let ranks = query.sort.iter().map(|key| key.rank(&related.value(row, &key.field, now))).collect();
            (Arc::as_ptr(row), ranks)
        })
        .collect();
    // Rows that are equal stay in the order of their names, so pages do not overlap.
    rows.sort_by(|one, other| {
        let (one, other) = (&ranks[&Arc::as_ptr(one)], &ranks[&Arc::as_ptr(other)]);
        let orders = query.sort.iter().zip(one.iter().zip(other));
        let mut orders = orders.map(|(key, (one, other))| key.compare(one, other));
        orders.find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    });
    rows
}

/// The rows of the page that is asked for, how many pages there are, and where the next begins.
fn paged<'a>(rows: &'a [Arc<Row>], query: &ListQuery) -> (&'a [Arc<Row>], usize, Option<usize>) {
    if let Some(size) = query.page_size {
        let from = (query.page - 1).saturating_mul(size).min(rows.len());
        let to = from.saturating_add(size).min(rows.len());
        return (&rows[from..to], rows.len().div_ceil(size).max(1), None);
    }
    if let Some(limit) = query.limit {
        let from = query.offset.min(rows.len());
        let to = from.saturating_add(limit).min(rows.len());
        return (&rows[from..to], rows.len().div_ceil(limit).max(1), (to < rows.len()).then_some(to));
    }
    (rows, 1, None)
}

fn summary(rows: &[Arc<Row>], summary: &Summary, now: i64) -> Value {
    let property = |(name, path): &(String, crate::path::Path)| {
        let mut counts: BTreeMap<String, (usize, BTreeMap<String, usize>)> = BTreeMap::new();
        for row in rows {
            for value in row.value(path, now).values() {
                let (total, namespaces) = counts.entry(value.to_string()).or_default();
                *total += 1;
                if summary.namespaced && !row.namespace().is_empty() {
                    *namespaces.entry(row.namespace().to_owned()).or_default() += 1;
                }
            }
        }
        let counts: serde_json::Map<String, Value> = counts
            .into_iter()
            .map(|(value, (total, namespaces))| {
                let mut count = json!({"total": total});
                if summary.namespaced {
                    count["namespace"] = json!(namespaces);
                }
                (value, count)
            })
            .collect();
        json!({"property": name, "counts": counts})
    };
    summary.fields.iter().map(property).collect()
}

/// With what the query adds and without what it leaves out.
fn finished(visit: &Visit, mut object: Value, query: &ListQuery) -> Value {
    if !query.permissions.is_empty() {
        object["resourcePermissions"] = permissions(visit, &object, &query.permissions);
    }
    projected(object, query)
}

/// An object without what the query leaves out.
pub(crate) fn projected(mut object: Value, query: &ListQuery) -> Value {
    if !query.include.is_empty() {
        let mut only = json!({});
        for field in ["id", "type", "links"] {
            only[field] = object[field].take();
        }
        for path in &query.include {
            path.copy(&object, &mut only);
        }
        object = only;
    }
    for path in &query.exclude {
        path.remove(&mut object);
    }
    for path in &query.blank {
        path.blank(&mut object);
    }
    object
}

/// What the caller may do with objects of other kinds in the place an object stands for.
fn permissions(visit: &Visit, object: &Value, kinds: &[String]) -> Value {
    let place = object["metadata"]["name"].as_str().unwrap_or_default();
    let mut found = serde_json::Map::new();
    for name in kinds {
        let Some(kind) = visit.catalogue.find(name) else { continue };
        let verbs = kind.verbs.iter().filter(|verb| visit.rights.may(verb, kind, place, ""));
        let url = format!("{}/{place}", visit.base.collection(kind));
        let verbs: serde_json::Map<String, Value> =
            verbs.map(|verb| (verb.clone(), url.as_str().into())).collect();
        found.insert(name.clone(), Value::Object(verbs));
    }
    Value::Object(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Parameters;

    fn rows(count: usize) -> Vec<Arc<Row>> {
        let row = |number: usize| {
            let object = json!({
                "metadata": {"name": format!("m-{number:04}"), "namespace": format!("n{}", number % 3),
                             "labels": {"pool": format!("p{}", number % 2)}},
                "spec": {"size": number % 7},
            });
            Arc::new(Row::new(&Kind::default(), object, vec![json!(number)], true).unwrap())
        };
        let mut rows: Vec<Arc<Row>> = (0..count).map(row).collect();
        rows.sort_by(|one, other| one.key.cmp(&other.key));
        rows
    }

    fn asked(query: &str) -> ListQuery {
        ListQuery::parse(&Parameters::parse(Some(query))).unwrap()
    }

    #[test]
    fn pages_together_are_the_whole_list_once() {
        let query = asked("sort=spec.size,-metadata.fields[0]&filter=metadata.labels[pool]=p1&pagesize=7");
        let kind = Kind::default();
        let all = selected(rows(100), &kind, &query, None, &Related::default(), 0);
        assert_eq!(all.len(), 50);
        let mut seen = Vec::new();
        for page in 1..=9 {
            let query = ListQuery { page, ..query.clone() };
            let (page, pages, _) = paged(&all, &query);
            assert_eq!(pages, 8);
            seen.extend(page.iter().map(|row| row.id()));
        }
        assert_eq!(seen, all.iter().map(|row| row.id()).collect::<Vec<_>>());
        let sizes: Vec<u64> = all.iter().map(|row| row.object()["spec"]["size"].as_u64().unwrap()).collect();
        assert!(sizes.is_sorted());
    }

    #[test]
    fn a_limit_leads_from_one_piece_to_the_next() {
        let all = rows(10);
        let (mut query, mut seen) = (asked("limit=4"), 0);
        loop {
            let (page, _, next) = paged(&all, &query);
            seen += page.len();
            match next {
                Some(next) => query.offset = next,
                None => break,
            }
        }
        assert_eq!(seen, 10);
    }

    #[test]
    fn a_summary_counts_values() {
        let query = asked("summary=metadata.labels[pool]&summarynamespaced=true");
        let told = summary(&rows(6), &query.summary, 0);
        let expected = json!([{"property": "metadata.labels[pool]", "counts": {
            "p0": {"total": 3, "namespace": {"n0": 1, "n1": 1, "n2": 1}},
            "p1": {"total": 3, "namespace": {"n0": 1, "n1": 1, "n2": 1}},
        }}]);
        assert_eq!(told, expected);
    }

    #[test]
    fn projections_keep_what_identifies_an_object() {
        let object = json!({"id": "a", "type": "t", "links": {}, "metadata": {"name": "a", "uid": "u"}, "spec": {"b": 1}});
        let shown = projected(object.clone(), &asked("include=metadata.name"));
        assert_eq!(shown, json!({"id": "a", "type": "t", "links": {}, "metadata": {"name": "a"}}));
        let shown = projected(object, &asked("exclude=spec&exclude=metadata.uid&excludeValues=metadata"));
        assert_eq!(shown, json!({"id": "a", "type": "t", "links": {}, "metadata": {"name": ""}}));
    }
}
