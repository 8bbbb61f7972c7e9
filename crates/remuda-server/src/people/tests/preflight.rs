//! What is behind the door `preflight`: who is told what machines of a cluster would get.

use remuda_oci::Architecture;
use remuda_registry::bundle::{self, Source};

use super::*;

const DOOR: &str = "/remuda/v1/preflight?namespace=fleet-default&cluster=demo";

/// State and message of a part.
#[track_caller]
fn part(got: &Got, kind: &str, platform: &str) -> String {
    let items = got.body["items"].as_array().unwrap_or_else(|| panic!("{}", got.text));
    let item = items.iter().find(|item| item["kind"] == kind && item["platform"] == platform).unwrap();
    format!("{}: {}", item["state"].as_str().unwrap(), item["message"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_read_a_cluster_is_told_what_its_machines_get() {
    let site = Site::start().await;
    let first = site.server.first_user().unwrap().clone();
    let admin = site.login(&first.username, &first.password).await.body["token"].as_str().unwrap().to_owned();
    let ann = site.user("ann", json!({})).await;
    let namespace = json!({"metadata": {"name": "fleet-default"}});
    site.post_as_root("/api/v1/namespaces", &namespace).await;
    let cluster = |name: &str, spec: Value| {
        json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {"name": name, "namespace": "fleet-default"}, "spec": spec})
    };
    let clusters = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";
    let spec = json!({"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {}});
    for (name, spec) in [("demo", spec), ("brought", json!({}))] {
        let made = site.post_as_root(clusters, &cluster(name, spec)).await;
        assert_eq!(made["metadata"]["name"], name, "{made}");
    }
    let refused = site.send(Some(&ann), "GET", DOOR, &[], json!(null)).await;
    assert_eq!(refused.code.as_u16(), 403, "{}", refused.text);
    let absent = site.gets(&admin, &DOOR.replace("=demo", "=other"), 404).await;
    assert_eq!(absent.code.as_u16(), 404, "{}", absent.text);
    let brought = site.gets(&admin, &DOOR.replace("=demo", "=brought"), 400).await;
    assert!(brought.text.contains("no plans are made for it"), "{}", brought.text);

    let own = Architecture::own().unwrap();
    let other = Architecture::ALL.into_iter().find(|one| *one != own).unwrap();
    let (here, there) = (format!("linux/{own}"), format!("linux/{other}"));
    let asked = format!("{DOOR}&platform={here},{there}");
    let got = site.gets(&admin, &asked, 200).await;
    assert_eq!(part(&got, "agent", &here), "ready: this server's own program");
    assert_eq!(part(&got, "agent", &there), format!("missing: this server has no agent for {there}"));
    let nowhere = "elsewhere: not on this server: machines ask docker.io themselves";
    assert_eq!(part(&got, "installer", &here), nowhere);
    assert_eq!(got.body["local"], json!(null));

    let directory = tempfile::tempdir().unwrap();
    let mut source = Source::default();
    let mut add = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        json!({"digest": source.add(path).unwrap(), "size": content.len()})
    };
    let config = add("config", &json!({"architecture": own.name()}).to_string());
    let manifest = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
        "layers": [add("layer", "run.sh")],
    });
    let manifest = add("manifest", &manifest.to_string())["digest"].as_str().unwrap().to_owned();
    let name = "docker.io/rancher/system-agent-installer-k3s:v1.35.1-k3s1";
    source.images.insert(name.to_owned(), manifest);
    let bundles = site.dir.path().join("bundles");
    std::fs::create_dir_all(&bundles).unwrap();
    bundle::write(&bundles.join("k3s.bundle"), &source).unwrap();
    let got = site.gets(&admin, &asked, 200).await;
    assert_eq!(part(&got, "installer", &here), "ready: in bundle k3s.bundle");
    assert_eq!(
        part(&got, "installer", &there),
        format!("missing: what this server has of it is not made for {there}")
    );
    let later = site.gets(&admin, &format!("{DOOR}&version=v1.35.2%2Bk3s1"), 200).await;
    assert_eq!(
        (later.body["version"].as_str(), part(&later, "installer", &here)),
        (Some("v1.35.2+k3s1"), nowhere.to_owned())
    );
    for bad in ["&version=stable", "&platform=sparc"] {
        assert_eq!(site.gets(&admin, &format!("{DOOR}{bad}"), 400).await.code.as_u16(), 400, "{bad}");
    }
    site.stop().await;
}
