//! What is wrong as it is written, or with what it names: no machine comes of it.

use std::{process::Command, time::Duration};

use serde_json::{Value, json};

use super::table::{Table, make, patch, remove};
use crate::{
    harness::skipped,
    lab::{Lab, NEW},
};

const FLEET: &str = "fleet-default";

fn cluster(name: &str, kind: &str, more: &Value) -> Value {
    let mut pool = json!({
        "name": "all", "etcdRole": true, "controlPlaneRole": true, "workerRole": true, "quantity": 1,
        "machineConfigRef": {"kind": kind, "name": name},
    });
    pool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": name, "namespace": FLEET},
        "spec": {"kubernetesVersion": NEW, "rkeConfig": {"machinePools": [pool]}},
    })
}

fn driver(name: &str, active: bool) -> Value {
    json!({
        "apiVersion": "management.cattle.io/v3", "kind": "NodeDriver",
        "metadata": {"name": name}, "spec": {"active": active},
    })
}

/// Creates a cluster with a driver whose kinds may not be served yet.
fn create(lab: &Lab, line: &str) {
    lab.until(line, Duration::from_secs(30), || lab.say(line).0 == 0);
}

pub(crate) fn of_clusters(table: &mut Table<'_>) {
    let lab = table.lab;
    make(lab, &cluster("noconfig", "LocalConfig", &json!({})));
    table.expect("machine configuration that is missing", "noconfig", "config-missing");
    make(lab, &cluster("nodriver", "AcmeConfig", &json!({})));
    table.expect("driver that is not there", "nodriver", "driver-missing");

    // Nothing listens at port 9.
    let mut broken = driver("broken", true);
    broken["spec"] = json!({"active": true, "url": "http://127.0.0.1:9/docker-machine-driver-broken"});
    make(lab, &broken);
    make(lab, &cluster("broken", "BrokenConfig", &json!({})));
    let words = ["onnection refused", "check url and checksum"];
    table.expect_with("driver that cannot be downloaded", "broken", "driver-failed", &words);

    patch(lab, &driver("digitalocean", true));
    let credential = "--driver digitalocean --credential cattle-global-data:cc-none";
    create(lab, &format!("cluster create cloud --version {NEW} {credential}"));
    table.expect("credential that is missing", "cloud", "credential-missing");
    patch(lab, &driver("digitalocean", false));
    table.expect("driver that was switched off", "cloud", "driver-inactive");

    create(
        lab,
        &format!("cluster create host --version {NEW} --driver generic --machine-config ipAddress=127.0.0.1"),
    );
    table.expect_with("driver that wants more", "host", "create-job-failed", &["ssh-key"]);

    make(
        lab,
        &json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {"name": "elsewhere", "namespace": FLEET}, "spec": {},
        }),
    );
    table.expect("import that was never applied", "elsewhere", "cluster-agent-not-connected");

    // What is written later: a webhook that does not answer, and a pause.
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "away"},
        "webhooks": [{
            "name": "away.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:9/validate"},
            "rules": [{
                "apiGroups": ["cluster.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"],
                "resources": ["clusters"],
            }],
        }],
    });
    make(lab, &hook);
    lab.run(&format!("cluster create hooked --version {NEW}"));
    table.expect_with("webhook that does not answer", "hooked", "webhook-not-served", &["away.example.org"]);
    remove(lab, &hook);
    let capi = |paused: bool| {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "hooked", "namespace": FLEET}, "spec": {"paused": paused},
        })
    };
    let there = || lab.objects("cluster.x-k8s.io", "v1beta2", "Cluster");
    lab.until("it is made when the webhook is gone", Duration::from_secs(60), || {
        there().iter().any(|cluster| cluster.metadata.name.as_deref() == Some("hooked"))
    });
    patch(lab, &capi(true));
    table.expect("cluster that is paused", "hooked", "paused");
    patch(lab, &capi(false));

    no_address(table);
    let made = ["noconfig", "nodriver", "broken", "cloud", "host", "elsewhere", "hooked", "addresses"];
    // Only then: what they are deleted with is the driver.
    for name in made {
        lab.run(&format!("cluster delete --yes {name} --wait --timeout 60s"));
    }
    remove(lab, &broken);
}

/// A pool of one address, which is taken.
fn no_address(table: &mut Table<'_>) {
    const POOLS: &str = "ipam.cluster.x-k8s.io";
    let lab = table.lab;
    let pool = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool",
        "metadata": {"name": "few", "namespace": FLEET},
        "spec": {"addresses": ["192.0.2.10"], "prefix": 24, "gateway": "192.0.2.1"},
    });
    make(lab, &pool);
    let claim = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
        "metadata": {"name": "taken", "namespace": FLEET},
        "spec": {"poolRef": {"apiGroup": POOLS, "kind": "InClusterIPPool", "name": "few"}},
    });
    make(lab, &claim);
    lab.until("the address is taken", Duration::from_secs(30), || {
        !lab.objects(POOLS, "v1beta2", "IPAddress").is_empty()
    });
    patch(lab, &driver("proxmoxve", true));
    make(
        lab,
        &json!({
            "apiVersion": "rke-machine-config.cattle.io/v1", "kind": "ProxmoxveConfig",
            "metadata": {"name": "addresses", "namespace": FLEET},
        }),
    );
    let more = json!({"machineDeploymentAnnotations": {"remuda.io/address-pool": "few"}});
    make(lab, &cluster("addresses", "ProxmoxveConfig", &more));
    table.expect("pool without a free address", "addresses", "no-address");
}

pub(crate) fn of_registration(table: &mut Table<'_>) {
    let lab = table.lab;
    lab.run(&format!("cluster create edge --custom --version {NEW}"));
    table.expect("no server registered", "edge", "roles-missing");
    let (code, text) = lab.say("cluster registration-command edge --role worker --taint a_b=c:Never");
    assert_ne!(code, 0, "a taint that is none is refused where it is written: {text}");
    match Command::new("curl").arg("--version").output() {
        Ok(_) => {
            let refused = Command::new("curl")
                .args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Authorization: Bearer wrong"])
                .args(["-H", "X-Cattle-Id: m1", "-H", "X-Cattle-Role-Worker: true"])
                .arg(format!("https://{}/v3/connect/agent", lab.bind))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&refused.stdout), "401");
            let words = ["token is not known"];
            table.expect_with("wrong registration token", "edge", "registration-refused", &words);
        }
        Err(_) => skipped("there is no curl: a server with a wrong token"),
    }
    lab.run("cluster delete --yes edge --wait --timeout 60s");
}
