use serde_json::json;

use super::{capacity::Nodes, look::KubernetesVersion, *};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn observed(connection: Connection) -> Observed<'static> {
    Observed { is_local: false, administrated: false, connection, fact: Fact::default(), access: None }
}

fn conditions(status: &ClusterStatus) -> String {
    let lines: Vec<String> = status
        .conditions
        .iter()
        .map(|known| {
            format!("{}={} {} {}", known.kind, known.status, known.reason, known.message)
                .trim_end()
                .to_owned()
        })
        .collect();
    lines.join("; ")
}

#[test]
fn conditions_follow_the_session() {
    let mut status = ClusterStatus::default();
    decide(&mut status, &observed(Connection::Never), "c-1", at(1));
    assert_eq!(
        conditions(&status),
        "Connected=False Disconnected Cluster agent is not connected; AgentDeployed=False; \
         Ready=False Disconnected Cluster agent is not connected"
    );
    let mut now = observed(Connection::Connected(at(2)));
    decide(&mut status, &now, "c-1", at(2));
    assert_eq!(
        conditions(&status),
        "Connected=True; AgentDeployed=True; Ready=False Disconnected Cluster agent is not connected"
    );
    now.fact.asked = true;
    decide(&mut status, &now, "c-1", at(3));
    assert_eq!(conditions(&status), "Connected=True; AgentDeployed=True; Ready=True");
    let before = status.clone();
    decide(&mut status, &now, "c-1", at(4));
    assert_eq!(status, before, "what is so already is not written again");
    now.fact.trouble = Some("it answered 500".to_owned());
    decide(&mut status, &now, "c-1", at(5));
    assert!(conditions(&status).ends_with(
        "Ready=False Unreachable the API of the cluster does not answer through the tunnel: it answered 500"
    ));
    now.fact.trouble = None;
    now.fact.excess = Some("the answer to /api/v1/nodes is larger than 16 MiB".to_owned());
    decide(&mut status, &now, "c-1", at(5));
    assert!(
        conditions(&status).contains("Ready=False Unreachable") && conditions(&status).contains("16 MiB")
    );
    let lost = Connection::Lost { since: at(6), error: "transport failed".to_owned() };
    decide(&mut status, &observed(lost), "c-1", at(6));
    assert_eq!(
        conditions(&status),
        "Connected=False Disconnected Cluster agent is not connected: transport failed; AgentDeployed=True; \
         Ready=False Disconnected Cluster agent is not connected: transport failed"
    );
    assert_eq!(status.conditions[1].last_transition_time, "1970-01-01T00:00:02Z");
}

#[test]
fn while_nodes_change_ready_is_the_control_planes() {
    let mut status = ClusterStatus { ready_reconciling: true, ..ClusterStatus::default() };
    let mut now = observed(Connection::Connected(at(1)));
    now.fact.asked = true;
    decide(&mut status, &now, "c-1", at(1));
    assert_eq!(conditions(&status), "Connected=True; AgentDeployed=True");
}

#[test]
fn version_nodes_and_credentials_reach_the_status() {
    let access = Access::for_tests("10.43.0.1:443");
    let mut now = observed(Connection::Connected(at(1)));
    now.access = Some(&access);
    now.fact = Fact {
        asked: true,
        trouble: None,
        version: Some(KubernetesVersion {
            git_version: "v1.35.1+k3s1".to_owned(),
            major: "1".to_owned(),
            minor: "35".to_owned(),
        }),
        nodes: Some(Nodes {
            count: 3,
            capacity: [("cpu".to_owned(), "12".to_owned())].into(),
            requested: Some([("cpu".to_owned(), "150m".to_owned())].into()),
            linux_workers: 2,
            ..Nodes::default()
        }),
        excess: None,
    };
    let mut status = ClusterStatus::default();
    decide(&mut status, &now, "c-1", at(1));
    assert_eq!(status.version.as_ref().unwrap().git_version, "v1.35.1+k3s1");
    assert_eq!((status.driver.as_str(), status.provider.as_str(), status.node_count), ("imported", "k3s", 3));
    assert_eq!(status.other["capacity"], json!({"cpu": "12"}));
    assert_eq!(status.other["requested"], json!({"cpu": "150m"}));
    assert_eq!((&status.other["linuxWorkerCount"], status.other.get("limits")), (&json!(2), None));
    assert_eq!(status.api_endpoint, "https://10.43.0.1:443");
    assert_eq!(status.service_account_token_secret, "cluster-serviceaccounttoken-c-1");
    // Away: what was seen last stays.
    let before = status.clone();
    decide(&mut status, &observed(Connection::Never), "c-1", at(2));
    assert_eq!((&status.other, status.node_count), (&before.other, 3));
    assert_eq!((&status.version, &status.provider), (&before.version, &before.provider));
    // Nodes say more than the version does, and agents may stop telling what Pods ask for.
    now.fact.nodes = Some(Nodes { provider: Some("harvester"), ..Nodes::default() });
    decide(&mut status, &now, "c-1", at(3));
    assert_eq!((status.provider.as_str(), status.node_count), ("harvester", 0));
    assert_eq!(status.other.get("requested"), None);
    let mut made = ClusterStatus::default();
    now.administrated = true;
    decide(&mut made, &now, "c-1", at(1));
    assert_eq!(made.driver, "imported", "also of clusters that are made here");
}

#[test]
fn the_local_cluster_needs_no_agent() {
    let mut status = ClusterStatus::default();
    decide(&mut status, &Observed { is_local: true, ..observed(Connection::Never) }, "local", at(1));
    assert_eq!(conditions(&status), "Connected=True; AgentDeployed=True; Ready=True");
}
