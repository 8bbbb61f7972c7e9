//! Kubeconfigs of people.

use kube::config::Kubeconfig;

use super::*;

const GENERATE: &str = "/v3/clusters/c-a?action=generateKubeconfig";

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_holds_a_token_of_its_owner_for_one_cluster_and_a_while() {
    let site = Site::start().await;
    let clusters: Api<management::Cluster> = Api::all(site.root().await);
    let mut cluster = management::Cluster::named("c-a");
    cluster.spec.display_name = "demo".to_owned();
    cluster.spec.local_cluster_auth_endpoint.enabled = true;
    cluster.spec.local_cluster_auth_endpoint.fqdn = "k8s.example".to_owned();
    clusters.create(&PostParams::default(), &cluster).await.unwrap();
    site.cluster("c-b").await;
    let ann = site.user("ann", json!({})).await;
    let refused = site.send(Some(&ann), "POST", GENERATE, &[], json!({})).await;
    assert_eq!(refused.code, StatusCode::FORBIDDEN, "{}", refused.text);
    site.bind("c-a", "ann", "cluster-member").await;
    site.enters(&ann, "c-a", 503).await;

    let made = site.send(Some(&ann), "POST", GENERATE, &[], json!({"ttl": 60000})).await;
    assert_eq!((made.code, made.body["type"].as_str()), (StatusCode::OK, Some("generateKubeconfigOutput")));
    let config = Kubeconfig::from_yaml(made.body["config"].as_str().unwrap()).unwrap();
    let server = |at: usize| config.clusters[at].cluster.as_ref().unwrap().server.clone().unwrap();
    assert_eq!(server(0), format!("{}/k8s/clusters/c-a", site.server.url()));
    assert_eq!(server(1), "https://k8s.example");
    assert_eq!(config.contexts.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["demo", "demo-fqdn"]);
    let user = serde_json::to_value(config.auth_infos[0].auth_info.as_ref().unwrap()).unwrap();
    let token = user["token"].as_str().unwrap();
    assert!(token.starts_with("kubeconfig-ann"), "{token}");
    assert_eq!(site.enters(token, "c-a", 503).await.code, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(site.enters(token, "c-b", 401).await.code, StatusCode::UNAUTHORIZED);
    let again = site.send(Some(token), "POST", GENERATE, &[], json!({})).await;
    assert_eq!(again.code, StatusCode::UNAUTHORIZED, "it does not renew itself for ever");
    let name = token.split(':').next().unwrap();
    let listed = site.send(Some(&ann), "GET", &format!("/v3/tokens/{name}"), &[], json!(null)).await;
    assert_eq!((&listed.body["ttl"], &listed.body["clusterId"]), (&json!(60000), &json!("c-a")));

    let bare = site.send(Some(&ann), "POST", GENERATE, &[], json!({"token": false})).await;
    assert!(!bare.body["config"].as_str().unwrap().contains("token"), "{}", bare.text);
    let nowhere = "/v3/clusters/c-x?action=generateKubeconfig";
    assert_eq!(
        site.send(Some(&ann), "POST", nowhere, &[], json!({})).await.code,
        StatusCode::FORBIDDEN,
        "which clusters there are is nobody's business"
    );
    let root = site.post_as_root(GENERATE, &json!({})).await;
    assert_eq!(root["code"], 422, "who has a certificate has no tokens: {root}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_can_be_made_up_and_is_told_once() {
    let site = Site::start().await;
    let users: Api<management::User> = Api::all(site.root().await);
    let user = management::User { username: "ann".to_owned(), ..management::User::named("user-ann") };
    users.create(&PostParams::default(), &user).await.unwrap();
    let body = json!({"generate": true, "mustChangePassword": true});
    let told = site.post_as_root("/v3/users/user-ann?action=setpassword", &body).await;
    let password = told["password"].as_str().unwrap().to_owned();
    assert_eq!(password.len(), 24);
    assert_eq!(site.login("ann", &password).await.code, StatusCode::CONFLICT, "another must be chosen");
    let missing = site.post_as_root("/v3/users/user-x?action=setpassword", &body).await;
    assert_eq!(missing["code"], 404);
    site.stop().await;
}
