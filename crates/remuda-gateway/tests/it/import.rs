use http::StatusCode;

use crate::world::{TOKEN, World};

#[tokio::test]
async fn the_manifest_is_for_those_with_the_token_of_the_cluster() {
    let world = World::start().await;
    world.bare_cluster("c-m-1", "demo", "false").await;
    world.token("c-m-1", TOKEN).await;
    world.bare_cluster("c-m-2", "other", "false").await;
    let other: String = TOKEN.chars().rev().collect();
    world.token("c-m-2", &other).await;

    let (status, headers, manifest) = world.get_all(&format!("/v3/import/{TOKEN}_c-m-1.yaml"), &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert!(headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    for part in ["cattle-cluster-agent", "rancher/rancher-agent:test", "https://remuda.example.com"] {
        assert!(manifest.contains(part), "{part}");
    }
    let name = remuda_install::credentials_name("https://remuda.example.com", TOKEN, "");
    assert!(manifest.contains(&name));

    for bad in [
        format!("{other}_c-m-1"),
        format!("{TOKEN}_c-m-2"),
        format!("{TOKEN}_c-m-3"),
        format!("{TOKEN}_"),
        "_c-m-1".to_owned(),
        format!("{TOKEN}_c-m-1_x"),
        format!("{TOKEN}_default"),
    ] {
        let (status, text) = world.get(&format!("/v3/import/{bad}.yaml"), &[]).await;
        assert_eq!(
            (status, text.as_str()),
            (StatusCode::BAD_REQUEST, "cluster not found or invalid token"),
            "{bad}"
        );
    }
    for odd in ["", "x.yaml", "a_b", "a_b.json"] {
        assert_eq!(world.get(&format!("/v3/import/{odd}"), &[]).await.0, StatusCode::NOT_FOUND, "{odd}");
    }
}
