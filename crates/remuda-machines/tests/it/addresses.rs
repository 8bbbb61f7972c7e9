//! Machines with addresses from a pool. Who answers claims is played here.

use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use remuda_api::ipam::{IpAddress, IpAddressClaim};
use serde_json::json;

use crate::world::{NAMESPACE, World, until};

const POOL: &str = "remuda.io/address-pool";

impl World {
    fn claims(&self) -> Api<IpAddressClaim> {
        Api::namespaced(self.api.client(), NAMESPACE)
    }

    /// Says of a claim what the controller of claims would.
    async fn answer(&self, claim: &str, ready: &str, reason: &str) {
        let condition = json!({
            "type": "Ready", "status": ready, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        self.claims().patch_status(claim, &PatchParams::default(), &status).await.unwrap();
    }

    async fn give(&self, claim: &IpAddressClaim, address: &str) {
        let given: IpAddress = serde_json::from_value(json!({
            "metadata": {"name": claim.name_any(), "ownerReferences": [{
                "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "name": claim.name_any(),
                "uid": claim.uid(), "controller": true,
            }]},
            "spec": {"address": address, "prefix": 24, "gateway": "10.0.0.1",
                "claimRef": {"name": claim.name_any()}, "poolRef": claim.spec.pool_ref},
        }))
        .unwrap();
        let addresses: Api<IpAddress> = Api::namespaced(self.api.client(), NAMESPACE);
        addresses.create(&PostParams::default(), &given).await.unwrap();
        self.answer(&claim.name_any(), "True", "Ready").await;
    }

    async fn pooled(&self, name: &str, kind: &str, pool: &str) {
        self.machine_with(name, kind, json!({}), json!({ POOL: pool })).await;
    }

    async fn says(&self, kind: &str, name: &str, message: &str) {
        until(message, async || self.condition_of(kind, name, "Ready").await.1 == message).await;
    }
}

#[tokio::test]
async fn a_machine_claims_an_address_and_gives_it_back() {
    let world = World::start().await;
    let running = world.run();
    world.activate("proxmoxve").await;
    world.cluster().await;
    let kind = "ProxmoxveMachine";
    world.pooled("m1", kind, "lan").await;
    until("it is claimed", async || world.claims().get_opt("m1").await.unwrap().is_some()).await;
    let claim = world.claims().get("m1").await.unwrap();
    assert_eq!(
        (claim.spec.pool_ref.kind.as_str(), claim.spec.pool_ref.name.as_str()),
        ("InClusterIPPool", "lan")
    );
    assert_eq!(claim.spec.cluster_name, "demo");
    assert_eq!(claim.finalizers(), ["remuda.io/address-in-use"]);
    let owner = &claim.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.controller), (kind, "m1", Some(true)));
    world.says(kind, "m1", "waiting for an address of InClusterIPPool lan").await;
    world.answer("m1", "False", "PoolExhausted").await;
    world.says(kind, "m1", "no address is free in InClusterIPPool lan").await;

    // Another pool is named before there was a server: what was claimed is given back.
    let machines = world.objects("rke-machine.cattle.io", "v1", kind);
    let other = Patch::Merge(json!({"metadata": {"annotations": { POOL: "GlobalInClusterIPPool/wide" }}}));
    machines.patch("m1", &PatchParams::default(), &other).await.unwrap();
    until("another one is claimed", async || {
        let claim = world.claims().get_opt("m1").await.unwrap();
        claim.is_some_and(|claim| claim.spec.pool_ref.kind == "GlobalInClusterIPPool")
    })
    .await;
    let jobs: Api<Job> = Api::namespaced(world.api.client(), NAMESPACE);
    assert!(jobs.get_opt("m1-machine-provision").await.unwrap().is_none());

    let claim = world.claims().get("m1").await.unwrap();
    world.give(&claim, "10.0.0.5").await;
    until("its job is made", async || jobs.get_opt("m1-machine-provision").await.unwrap().is_some()).await;
    let job = jobs.get("m1-machine-provision").await.unwrap();
    let args = job.spec.unwrap().template.spec.unwrap().containers.remove(0).args.unwrap();
    assert!(args.contains(&"--proxmoxve-vm-ipconfig=ip=10.0.0.5/24,gw=10.0.0.1".to_owned()), "{args:?}");

    // A claim that is deleted by hand does not take the address away from the machine.
    world.claims().delete("m1", &DeleteParams::default()).await.unwrap();
    assert!(world.claims().get("m1").await.unwrap().metadata.deletion_timestamp.is_some());
    machines.delete("m1", &DeleteParams::default()).await.unwrap();
    until("the machine is gone", async || machines.get_opt("m1").await.unwrap().is_none()).await;
    assert!(world.claims().get_opt("m1").await.unwrap().is_none(), "the address is given back before");
    running.stop().await;
}

#[tokio::test]
async fn what_cannot_be_claimed_is_told_and_nothing_is_made() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.activate("proxmoxve").await;
    world.cluster().await;
    let unfit =
        "driver digitalocean takes no address, and annotation remuda.io/address-pool names a pool of them";
    world.pooled("a", "DigitaloceanMachine", "lan").await;
    world.says("DigitaloceanMachine", "a", unfit).await;
    world.pooled("b", "ProxmoxveMachine", "Subnet/lan").await;
    let odd = "\"Subnet/lan\" in annotation remuda.io/address-pool is no pool of addresses";
    world.says("ProxmoxveMachine", "b", odd).await;
    // There is a claim of this name that is not of the machine.
    let mut claim = IpAddressClaim::named("c");
    claim.spec.pool_ref.api_group = "ipam.cluster.x-k8s.io".to_owned();
    (claim.spec.pool_ref.kind, claim.spec.pool_ref.name) = ("InClusterIPPool".to_owned(), "lan".to_owned());
    world.claims().create(&PostParams::default(), &claim).await.unwrap();
    world.pooled("c", "ProxmoxveMachine", "lan").await;
    let taken = "there is an IPAddressClaim of this name that is not of this machine";
    world.says("ProxmoxveMachine", "c", taken).await;
    assert_eq!(world.cloud.api.droplets(), Vec::<serde_json::Value>::new());
    for (kind, name) in [("DigitaloceanMachine", "a"), ("ProxmoxveMachine", "b"), ("ProxmoxveMachine", "c")] {
        let machines = world.objects("rke-machine.cattle.io", "v1", kind);
        machines.delete(name, &DeleteParams::default()).await.unwrap();
        until("it is gone", async || machines.get_opt(name).await.unwrap().is_none()).await;
    }
    assert_eq!(
        world.claims().list(&Default::default()).await.unwrap().items.len(),
        1,
        "that of others stays"
    );
    running.stop().await;
}
