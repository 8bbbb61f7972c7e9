//! Lists with selectors do not look at every object.

use serde_json::{Value, json};

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Objects looked at so far to answer lists of a resource.
fn evaluated(server: &Server, resource: &str) -> u64 {
    let metrics = server.api.metrics();
    let name = "apiserver_storage_list_evaluated_objects_total{";
    let resource = format!("resource=\"{resource}\"");
    let line = metrics.lines().find(|line| line.starts_with(name) && line.contains(&resource));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// What a list selects, and how many objects were looked at for it.
async fn look(server: &Server, path: &str) -> (Vec<String>, u64) {
    let resource = path.split(['/', '?']).find(|part| matches!(*part, "configmaps" | "secrets" | "foos"));
    let resource = resource.unwrap();
    let before = evaluated(server, resource);
    let list = server.get(path).await.expect(200);
    let found = names(&list).into_iter().map(str::to_owned).collect();
    (found, evaluated(server, resource) - before)
}

async fn make(server: &Server, path: &str, name: &str, labels: Value) {
    let object = json!({"metadata": {"name": name, "labels": labels}});
    server.post(path, object).await.expect(201);
}

async fn make_many(server: &Server, count: usize) {
    for number in 0..count {
        let labels = json!({"number": number.to_string(), "even": (number % 2 == 0).to_string()});
        make(server, MAPS, &format!("map-{number:05}"), labels).await;
    }
}

#[tokio::test]
async fn a_label_list_looks_at_candidates_only_and_sees_every_write_before_it() {
    let server = Server::quiet().await;
    make_many(&server, 600).await;
    let path = format!("{MAPS}?labelSelector=number%3D7");
    for _ in 0..2 {
        assert_eq!(look(&server, &path).await.0, ["map-00007"]);
    }
    assert_eq!(look(&server, &path).await, (vec!["map-00007".to_owned()], 1));
    // Each of these is looked at once, when it is listed again.
    make(&server, MAPS, "another", json!({"number": "7"})).await;
    let moved = json!({"metadata": {"labels": {"number": "8"}}});
    server.patch(&format!("{MAPS}/map-00007"), MERGE_PATCH, moved).await.expect(200);
    let came = json!({"metadata": {"labels": {"number": "7"}}});
    server.patch(&format!("{MAPS}/map-00100"), MERGE_PATCH, came).await.expect(200);
    server.delete(&format!("{MAPS}/map-00200")).await.expect(200);
    assert_eq!(look(&server, &path).await, (vec!["another".to_owned(), "map-00100".to_owned()], 4 + 2));
    let (found, seen) = look(&server, &format!("{MAPS}?labelSelector=number%20in%20(8,9,200)")).await;
    assert_eq!((found, seen), (vec!["map-00007".into(), "map-00008".into(), "map-00009".into()], 3));
    // Other conditions hold for what an index finds, too.
    let both = format!("{MAPS}?labelSelector=number%20in%20(8,9),even%3Dfalse");
    assert_eq!(look(&server, &both).await.0, ["map-00007", "map-00009"]);
    // Where nearly all match, all are looked at.
    let (found, seen) = look(&server, &format!("{MAPS}?labelSelector=number")).await;
    assert_eq!(found.len() as u64, seen);
}

#[tokio::test]
async fn pages_of_an_index_are_one_state_in_order() {
    let server = Server::quiet().await;
    for number in 0..600 {
        let labels = json!({"tenth": (number % 10).to_string()});
        make(&server, MAPS, &format!("map-{number:05}"), labels).await;
    }
    let path = format!("{MAPS}?labelSelector=tenth%3D3");
    let (all, _) = look(&server, &path).await;
    look(&server, &path).await;
    assert_eq!(look(&server, &path).await, (all.clone(), 60));
    let page = format!("{path}&limit=25");
    let mut found = Vec::new();
    let mut token = String::new();
    let mut versions = std::collections::BTreeSet::new();
    for round in 0..3 {
        let list = server.get(&format!("{page}&continue={token}")).await.expect(200);
        found.extend(names(&list).into_iter().map(str::to_owned));
        versions.insert(list["metadata"]["resourceVersion"].clone().to_string());
        token = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        assert_eq!(token.is_empty(), round == 2, "{list}");
        // What is written meanwhile is in none of the pages.
        make(&server, MAPS, &format!("map-00009-{round}"), json!({"tenth": "3"})).await;
    }
    assert_eq!((found, versions.len()), (all, 1));
    let exact = format!("{path}&resourceVersionMatch=Exact&resourceVersion=");
    let now = server.get(&path).await.expect(200);
    let version = now["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    make(&server, MAPS, "map-later", json!({"tenth": "3"})).await;
    let then = server.get(&format!("{exact}{version}")).await.expect(200);
    assert_eq!(names(&then), names(&now));
    assert_eq!(look(&server, &path).await.0.len(), names(&now).len() + 1);
}

#[tokio::test]
async fn a_field_list_looks_at_candidates_only() {
    let server = Server::quiet().await;
    for number in 0..400 {
        let kind = if number == 77 { "example.com/rare" } else { "Opaque" };
        let secret = json!({"metadata": {"name": format!("s-{number:05}")}, "type": kind});
        server.post(SECRETS, secret).await.expect(201);
    }
    let path = format!("{SECRETS}?fieldSelector=type%3Dexample.com/rare");
    for _ in 0..2 {
        assert_eq!(look(&server, &path).await.0, ["s-00077"]);
    }
    assert_eq!(look(&server, &path).await, (vec!["s-00077".to_owned()], 1));
    // Another namespace is another list.
    let nowhere = path.replace("/default/", "/elsewhere/");
    assert_eq!(look(&server, &nowhere).await, (Vec::new(), 0));
}
