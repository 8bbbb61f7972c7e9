//! Versions of clusters, at a running server.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    client::client,
    foreign::until,
    harness::{Place, Server, remuda, success},
};

const NAMESPACE: &str = "fleet-default";
const SOON: Duration = Duration::from_secs(30);

struct Site {
    place: Place,
    runtime: tokio::runtime::Runtime,
    admin: Client,
    _server: Server,
}

impl Site {
    fn open() -> Self {
        let place = Place::new();
        let server = Server::start(&place.data(), &[]);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let admin = runtime.block_on(client(&server));
        Self { place, runtime, admin, _server: server }
    }

    fn command(&self, line: &str) -> std::process::Command {
        let mut command = remuda();
        command.args(line.split(' ')).arg("--data-dir").arg(self.place.data());
        command.env("HOME", self.place.join("home"));
        command
    }

    fn run(&self, line: &str) -> String {
        success(&mut self.command(line))
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Machine" => ("cluster.x-k8s.io", "v1beta2"),
            _ => ("provisioning.cattle.io", "v1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.admin.clone(), NAMESPACE, &resource)
    }

    fn version(&self) -> Value {
        let cluster = self.runtime.block_on(self.api("Cluster").get("edge")).unwrap();
        cluster.data["spec"]["kubernetesVersion"].clone()
    }

    /// As `kubectl patch` does it; the field and the message of a refusal.
    fn patch(&self, patch: Value) -> Result<(), (String, String)> {
        let api = self.api("Cluster");
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        match self.runtime.block_on(api.patch("edge", &params, &patch)) {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => {
                assert_eq!(status.code, 422, "{}", status.message);
                let cause = status.details.as_ref().and_then(|details| details.causes.first().cloned());
                Err((cause.map(|cause| cause.field).unwrap_or_default(), status.message.clone()))
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn refused(&self, version: &str, reason: &str) {
        let before = self.version();
        let (field, message) = self.patch(json!({"spec": {"kubernetesVersion": version}})).unwrap_err();
        assert_eq!(field, "spec.kubernetesVersion");
        assert!(message.contains(reason), "{message}");
        assert_eq!(self.version(), before, "nothing changed");
    }

    /// A machine of the cluster whose node reports a version.
    fn report(&self, version: &str) {
        let api = self.api("Machine");
        let machine: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "edge-1", "namespace": NAMESPACE},
            "spec": {"clusterName": "edge", "bootstrap": {"dataSecretName": "none"},
                "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "CustomMachine", "name": "none"}},
        }))
        .unwrap();
        self.runtime.block_on(api.create(&PostParams::default(), &machine)).unwrap();
        let info = json!({"kubeletVersion": version, "machineID": "", "systemUUID": "", "bootID": "",
            "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64"});
        let status = Patch::Merge(json!({"status": {"nodeInfo": info}}));
        self.runtime.block_on(api.patch_status("edge-1", &PatchParams::default(), &status)).unwrap();
    }
}

#[test]
fn versions_are_resolved_when_written_and_guarded_when_changed() {
    let site = Site::open();
    let stable = site.run("versions --channel stable --distribution k3s -o name").trim().to_owned();
    assert!(stable.starts_with("v1.") && stable.contains("+k3s"), "{stable}");
    assert!(site.run("versions").contains("END OF LIFE"));
    until("namespaces are there", SOON, || {
        site.command("cluster create edge --custom --version stable").output().unwrap().status.success()
    });
    assert_eq!(site.version(), stable.as_str(), "a word becomes a release");

    site.refused("newest", "is not a version");
    site.refused("1.12", "K3s 1.12 is not in the release data");
    site.refused("v1.35.1+rke2r1", "cannot become one of RKE2");
    // No node ever ran anything: every version of the distribution will do, even one that is not known.
    site.patch(json!({"spec": {"kubernetesVersion": "v1.30.99+k3s1"}})).unwrap();
    site.patch(json!({"spec": {"kubernetesVersion": "1.34.2"}})).unwrap();
    assert_eq!(site.version(), "v1.34.2+k3s1");

    site.report("v1.34.2+k3s1");
    site.refused("v1.33.6+k3s1", "v1.33.6+k3s1 is older than v1.34.2+k3s1");
    site.refused("v1.36.0+k3s1", "go to 1.35 first");
    let told = site.command("cluster upgrade edge --to 1.36").output().unwrap();
    assert_eq!(told.status.code(), Some(2));
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("go to 1.35 first") && told.contains("--force"), "{told}");
    let force = json!({"metadata": {"annotations": {"remuda.io/force-version": "v1.33.6+k3s1"}},
        "spec": {"kubernetesVersion": "v1.33.6+k3s1"}});
    site.patch(force).unwrap();
    assert_eq!(site.version(), "v1.33.6+k3s1");
    assert!(site.run("cluster list").contains("v1.33.6+k3s1 (end of life)"));

    // The node still runs what it ran, so the way back is free.
    site.run("cluster upgrade edge --to v1.34.2+k3s1");
    site.run("cluster upgrade edge --to 1.35");
    assert!(site.version().as_str().unwrap().starts_with("v1.35."));
    site.run("cluster upgrade edge --to v1.36.0+k3s1 --force");
    assert_eq!(site.version(), "v1.36.0+k3s1");
}
