//! `RKECluster`: the infrastructure of a cluster whose machines bring their own.
//!
//! Reads   the RKECluster and its Cluster.
//! Writes  the endpoint, if nobody gave one, and that everything is there.
//! Never   makes anything: there is no infrastructure beside the machines.

use std::sync::Arc;

use kube::{Api, ResourceExt, api::Patch};
use remuda_api::{
    core::{Cluster, Endpoint},
    rke::{Provisioned, RkeCluster, RkeClusterStatus},
};
use remuda_control::{Controller, Next, ObjectKey, drive, write::write_status};
use remuda_names::rancher::group;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Error, objects, shared::Rke};

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let controller = Controller::on("rke-cluster", &rke.ctx, rke.rke_clusters.clone())
        .workers(rke.options.workers)
        .wakes(&rke.clusters, infrastructure);
    drive(controller, reconcile, rke, stop).await;
}

fn infrastructure(cluster: &Cluster) -> Vec<ObjectKey> {
    let reference = &cluster.spec.infrastructure_ref;
    let ours = reference.kind == "RKECluster" && reference.api_group == group::RKE;
    ours.then(|| ObjectKey::of(&cluster.metadata).sibling(&reference.name)).into_iter().collect()
}

async fn reconcile(object: Arc<RkeCluster>, rke: Arc<Rke>) -> Result<Next, Error> {
    let key = ObjectKey::of(&object.metadata);
    let owner = objects::owner(&object.metadata, "Cluster");
    let cluster = owner.and_then(|owner| rke.clusters.get(&key.sibling(&owner.name)));
    let Some(decision) = decide(&object, cluster.as_deref()) else {
        return Ok(Next::Done);
    };
    let api: Api<RkeCluster> = rke.api(key.namespace.as_deref().unwrap_or_default());
    let mut object = (*object).clone();
    if let Some(endpoint) = decision.endpoint {
        let patch = json!({"metadata": {"uid": object.uid()}, "spec": {"controlPlaneEndpoint": endpoint}});
        let written = api.patch(&key.name, &rke.params(), &Patch::Merge(patch)).await;
        object = written.map_err(Error::api("write", format!("RKECluster {key}")))?;
    }
    let written = write_status(&rke.ctx, &api, &object, &decision.status).await?;
    rke.seen(&rke.rke_clusters, written.as_ref()).await;
    Ok(Next::Done)
}

#[derive(Debug, PartialEq)]
struct Decision {
    endpoint: Option<Endpoint>,
    status: RkeClusterStatus,
}

/// `None` until there is a Cluster that may be worked on; its event brings the next look.
fn decide(object: &RkeCluster, cluster: Option<&Cluster>) -> Option<Decision> {
    let cluster = cluster?;
    if objects::is_deleting(&object.metadata) || objects::is_paused(cluster, &object.metadata) {
        return None;
    }
    // A place holder: clusters are reached through their agents.
    let placeholder = Endpoint { host: "localhost".to_owned(), port: 6443 };
    let endpoint = (!object.spec.control_plane_endpoint.is_valid()).then_some(placeholder);
    let status = RkeClusterStatus {
        conditions: Vec::new(),
        initialization: Provisioned { provisioned: Some(true) },
        ..object.status.clone().unwrap_or_default()
    };
    Some(Decision { endpoint, status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_happens_while_the_cluster_is_missing_or_paused() {
        let object = RkeCluster::named("demo");
        assert_eq!(decide(&object, None), None);
        let mut cluster = Cluster::default();
        cluster.spec.paused = Some(true);
        assert_eq!(decide(&object, Some(&cluster)), None);
    }

    #[test]
    fn an_endpoint_somebody_gave_is_kept() {
        let mut object = RkeCluster::named("demo");
        let decision = decide(&object, Some(&Cluster::default())).unwrap();
        assert_eq!(decision.endpoint, Some(Endpoint { host: "localhost".into(), port: 6443 }));
        assert_eq!(decision.status.initialization.provisioned, Some(true));
        object.spec.control_plane_endpoint = Endpoint { host: "demo.example.com".into(), port: 443 };
        assert_eq!(decide(&object, Some(&Cluster::default())).unwrap().endpoint, None);
    }
}
