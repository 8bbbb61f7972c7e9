//! Queries as Rancher's dashboard sends them: what each of them finds among a few rows.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{kind::Kind, relation::Related, row::Row};

fn rows() -> Vec<Arc<Row>> {
    let row = |name: &str, namespace: &str, image: &str, ready: bool| {
        let object = json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {"field.cattle.io/projectId": "p-1"}},
            "spec": {"containers": [{"image": image}, {"image": "pause"}], "internal": ready},
        });
        Arc::new(Row::new(&Kind::default(), object, vec![json!(name)], true).unwrap())
    };
    vec![
        row("test", "ns1", "nginx:1", true),
        row("te-st", "ns2", "redis", false),
        row("test1", "system", "nginx:2", false),
        row("te/st", "obscure", "", true),
    ]
}

/// Names of rows that pass all filters of a query.
#[track_caller]
fn check(query: &str, expected: &[&str]) {
    let query = ListQuery::parse(&Parameters::parse(Some(query))).unwrap();
    let related = Related::default();
    let passes = |row: &&Arc<Row>| {
        query.filters.iter().all(|filter| filter.matches(|field| related.value(row, field, 0)))
    };
    let rows = rows();
    let found: Vec<&str> = rows.iter().filter(passes).map(|row| row.name()).collect();
    assert_eq!(found, expected);
}

#[test]
fn filters_of_the_dashboard_find_what_they_are_for() {
    check("", &["test", "te-st", "test1", "te/st"]);
    check("filter=metadata.name=test", &["test"]);
    // What is no plain word is quoted, and encoded within the quotes.
    check("filter=metadata.name=\"te%2Fst\"", &["te/st"]);
    check("filter=metadata.name=\"te-st\"", &["te-st"]);
    check("filter=metadata.name=\"-test\"", &[]);
    check("filter=metadata.name=test1,metadata.namespace=ns1", &["test", "test1"]);
    check("filter=metadata.name=test1&filter=metadata.namespace=ns1", &[]);
    check("filter=spec.containers.image~nginx&filter=metadata.name!=test", &["test1"]);
    check("filter=metadata.name IN (test,test1)&filter=metadata.namespace NOTIN (ns1,ns2)", &["test1"]);
    check("filter=metadata.name%20IN%20(test,test1)", &["test", "test1"]);
    check("filter=metadata.namespace+NOTIN+(obscure,system)", &["test", "te-st"]);
    check("filter=metadata.name=\"\"", &[]);
    check("filter=spec.nothing=\"\"", &["test", "te-st", "test1", "te/st"]);
    check("filter=spec.internal=false", &["te-st", "test1"]);
    check("filter=spec.internal!=true", &["te-st", "test1"]);
    check(
        "filter=metadata.labels[field.cattle.io/projectId]=p-1&filter=metadata.namespace!=p-1",
        &["test", "te-st", "test1", "te/st"],
    );
    // What is no parameter of a list is passed over.
    check("filter=metadata.name~test&far~faz&exclude=metadata.managedFields", &["test", "test1"]);
}

#[test]
fn other_parameters_of_the_dashboard_are_understood() {
    let parsed = |query: &str| ListQuery::parse(&Parameters::parse(Some(query))).unwrap();
    let query = parsed("labelSelector=a=b&exclude=metadata.managedFields&sort=-bar&limit=10");
    assert!(!query.labels.is_everything());
    assert_eq!((query.exclude.len(), query.sort.len(), query.limit), (1, 1, Some(10)));
    assert!(query.sort[0].descending);
    let names = |places: &str| parsed(places).places.map(|places| (places.names, places.not));
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        names("projectsornamespaces=default,kube-system"),
        Some((list(&["default", "kube-system"]), false))
    );
    assert_eq!(names("projectsornamespaces=p-abc123"), Some((list(&["p-abc123"]), false)));
    // Those that are left out are sent with what they are.
    assert_eq!(
        names("projectsornamespaces!=ns://kube-system,project://p-1,cattle-system"),
        Some((list(&["kube-system", "p-1", "cattle-system"]), true))
    );
    let relation = "sort=metadata.labels[field.cattle.io/projectId]=>[management.cattle.io/v3][Project][metadata.name][spec.clusterName],-metadata.name";
    assert_eq!(parsed(relation).sort.len(), 2);
    assert!(parsed(relation).sort[0].field.via.is_some());
}
