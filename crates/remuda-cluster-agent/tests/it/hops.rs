//! Whatever is wrong, the agent says where.

use remuda_cluster_agent::Config;

use crate::{
    agent::Agent,
    world::{Cluster, Management, Tls},
};

async fn complaint(config: Config) -> String {
    let mut agent = Agent::start(config);
    let complaint = agent.complaint().await;
    agent.stop().await;
    complaint
}

#[track_caller]
fn check(complaint: &str, hop: &str, text: &str) {
    assert!(complaint.starts_with(&format!("{hop}: ")) && complaint.contains(text), "{complaint}");
}

#[tokio::test]
async fn the_way_to_the_server_is_told_hop_by_hop() {
    let (tls, cluster) = (Tls::new(), Cluster::start().await);
    let server = Management::start(&tls).await;
    let url = format!("https://{}", server.address);

    check(&complaint(cluster.config("https://nowhere.invalid", &tls)).await, "DNS", "nowhere.invalid");
    check(&complaint(cluster.config("https://127.0.0.1:1", &tls)).await, "TCP", "127.0.0.1:1");

    let config = Config { token: Some("wrong".into()), ..cluster.config(&url, &tls) };
    check(&complaint(config).await, "token", "failed authentication");
    assert!(server.admitted().is_empty());

    // Something else answers there.
    check(&complaint(cluster.config(&format!("{url}/elsewhere"), &tls)).await, "upgrade", "404");
}

#[tokio::test]
async fn a_wrong_authority_is_a_matter_of_tls() {
    let (tls, other, cluster) = (Tls::new(), Tls::new(), Cluster::start().await);
    let server = Management::start(&tls).await;
    let url = format!("https://{}", server.address);

    check(&complaint(cluster.config(&url, &other)).await, "TLS", "checksum");
    let config = Config { strict: false, ..cluster.config(&url, &other) };
    check(&complaint(config).await, "TLS", "checksum");
    let config = Config { ca_checksum: None, strict: false, ..cluster.config(&url, &tls) };
    check(&complaint(config).await, "TLS", "not trusted");
    // Without anything to pin, strict means no less than the system's authorities.
    let config = Config { ca_checksum: None, ..cluster.config(&url, &tls) };
    check(&complaint(config).await, "TLS", "not trusted");
    assert!(server.admitted().is_empty());
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_is_the_cluster_s_fault() {
    let (tls, cluster) = (Tls::new(), Cluster::start().await);
    let server = Management::start(&tls).await;
    let url = format!("https://{}", server.address);

    let config = Config { api: "127.0.0.1:1".into(), ..cluster.config(&url, &tls) };
    check(&complaint(config).await, "cluster", "127.0.0.1:1");
    let config = Config { root: "/nowhere".into(), token: Some("x".into()), ..cluster.config(&url, &tls) };
    check(&complaint(config).await, "cluster", "serviceaccount/ca.crt");
    let config = Config { root: "/nowhere".into(), ..cluster.config(&url, &tls) };
    check(&complaint(config).await, "token", "cattle-credentials/token");
}
