use std::cell::RefCell;

use remuda_testkit::World;
use serde_json::json;

use super::*;

async fn world() -> (World, Session, Object) {
    let world = World::bare().await;
    world.define(remuda_api::crd::named("clusters.provisioning.cattle.io").unwrap()).await;
    let session = Session::new(world.client());
    let namespace = Object(json!({"metadata": {"name": "fleet-default"}}));
    api::create(&session.client, &api::core("Namespace", "namespaces"), None, &namespace, false)
        .await
        .unwrap();
    let cluster = Object(json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "demo", "namespace": "fleet-default"},
        "spec": {"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {}},
    }));
    let clusters = api::provisioning_clusters();
    let created =
        api::create(&session.client, &clusters, Some("fleet-default"), &cluster, false).await.unwrap();
    (world, session, created)
}

async fn version(session: &Session) -> String {
    let cluster = gather::existing(session, "fleet-default", "demo").await.unwrap();
    cluster.text("/spec/kubernetesVersion").to_owned()
}

#[tokio::test]
async fn what_is_left_as_it_was_changes_nothing() {
    let (world, session, cluster) = world().await;
    let writes = world.writes().len();
    assert_eq!(edit(&session, cluster.clone(), |text| Ok(text.to_owned())).await, Ok(false));
    assert_eq!(edit(&session, cluster, |_| Ok(String::new())).await, Ok(false));
    assert_eq!(world.writes().len(), writes);
}

#[tokio::test]
async fn what_is_refused_is_opened_again_with_the_reason_on_top() {
    let (_world, session, cluster) = world().await;
    let seen = RefCell::new(Vec::new());
    let result = edit(&session, cluster, |text| {
        seen.borrow_mut().push(text.to_owned());
        let edited = match seen.borrow().len() {
            1 => text.replace("kubernetesVersion: v1.35.1+k3s1", "kubernetesVersion: [broken"),
            2 => text.replace("kubernetesVersion: [broken", "kubernetesVersion: {no: text}"),
            _ => text.replace("kubernetesVersion: {no: text}", "kubernetesVersion: v1.35.2+k3s1"),
        };
        Ok(edited)
    })
    .await;
    assert_eq!(result, Ok(true));
    let seen = seen.into_inner();
    assert_eq!(seen.len(), 3);
    assert!(seen[0].starts_with("# Cluster demo."), "{}", seen[0]);
    assert!(seen[1].starts_with("# Refused:\n#   this is not YAML"), "{}", seen[1]);
    assert!(seen[2].starts_with("# Refused:\n#   change Cluster demo"), "{}", seen[2]);
    assert!(seen[2].contains("kubernetesVersion"), "{}", seen[2]);
    assert_eq!(version(&session).await, "v1.35.2+k3s1");
}

#[tokio::test]
async fn giving_up_on_a_refused_change_is_a_failure_that_changed_nothing() {
    let (_world, session, cluster) = world().await;
    let mut times = 0;
    let result = edit(&session, cluster, |text| {
        times += 1;
        Ok(text.replace("name: demo", "name: other"))
    })
    .await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code, Code::Invalid);
    assert!(
        failure.message.contains("name, namespace and kind cannot be changed here"),
        "{}",
        failure.message
    );
    assert_eq!((times, version(&session).await.as_str()), (2, "v1.35.1+k3s1"));
}

#[tokio::test]
async fn a_change_by_somebody_else_is_not_lost() {
    let (_world, session, cluster) = world().await;
    let clusters = api::provisioning_clusters();
    let other = |object: &mut Object| {
        object.0["spec"]["kubernetesVersion"] = json!("v1.35.3+k3s1");
        Ok(true)
    };
    api::change(&session.client, &clusters, Some("fleet-default"), "demo", false, other).await.unwrap();
    let mut times = 0;
    let result = edit(&session, cluster, |text| {
        times += 1;
        Ok(text.replace("v1.35.1+k3s1", "v1.35.2+k3s1"))
    })
    .await;
    assert!(result.unwrap_err().message.contains("somebody else changed the cluster meanwhile"));
    assert_eq!(version(&session).await, "v1.35.3+k3s1");
}

#[test]
fn remarks_are_only_on_top() {
    assert_eq!(strip("# a\n# b\nspec: 1\n# mine\n"), "spec: 1\n# mine\n");
    assert_eq!(strip("# only"), "");
    assert_eq!(strip(""), "");
}

#[test]
fn an_editor_may_have_arguments() {
    assert_eq!(open(&"sed -i s/a/b/".into(), "a\n").unwrap(), "b\n");
    let failure = open(&"false".into(), "a\n").unwrap_err();
    assert!(failure.message.contains("nothing was changed"), "{}", failure.message);
}
