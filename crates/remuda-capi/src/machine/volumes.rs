//! Waiting until the volumes of a Node are detached: a server that goes before may take them with it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume},
    storage::v1::VolumeAttachment,
};
use kube::{Api, ResourceExt, api::ListParams};
use remuda_rollout::machine::volumes::{Volume, attached};
use remuda_workload::Lease;

use super::{
    Machines, Pass,
    delete::{Progress, Trouble},
    drain::{Survey, list, survey},
    node::is_unreachable,
};
use crate::error::Error;

pub(super) async fn wait(
    machines: &Machines,
    pass: &Pass,
    name: &str,
    since: Timestamp,
) -> Result<Progress, Trouble> {
    let lease = machines.capi.workloads.lease(&pass.cluster_key, &machines.enqueuer, &pass.key)?;
    let nodes: Api<Node> = Api::all(lease.client());
    // What is attached is not kept of nodes.
    let node = lease.call(nodes.get_opt(name)).await?.map_err(Error::api("read", format!("Node {name}")))?;
    let Some(node) = node else {
        return Ok(Progress::Done);
    };
    if is_unreachable(&node) {
        // Nobody there detaches anything.
        return Ok(Progress::Done);
    }
    let on_node = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
    let on_node: BTreeSet<String> = on_node.into_iter().flatten().map(|volume| volume.name.clone()).collect();
    let by_attachment = attachments(&lease, name).await?;
    if on_node.is_empty() && by_attachment.is_empty() {
        return Ok(Progress::Done);
    }
    let ignored = claims_that_stay(&survey(machines, pass, &lease, name, false).await?);
    let api: Api<PersistentVolume> = Api::all(lease.client());
    let volumes = list(&lease, &api, ListParams::default(), "persistentvolumes").await?;
    let volumes: Vec<Volume> = volumes.iter().map(volume).collect();
    let found = attached(&on_node, &by_attachment, &volumes, &ignored);
    if found.is_empty() {
        return Ok(Progress::Done);
    }
    Ok(Progress::Waiting(found.message(since)))
}

/// Volumes that are attached to the Node, by name.
async fn attachments(lease: &Lease, node: &str) -> Result<BTreeSet<String>, Trouble> {
    let api: Api<VolumeAttachment> = Api::all(lease.client());
    let all = list(lease, &api, ListParams::default(), "volumeattachments").await?;
    let here = all.into_iter().filter(|attachment| {
        attachment.spec.node_name == node && attachment.status.as_ref().is_some_and(|status| status.attached)
    });
    here.map(|attachment| {
        let name = attachment.name_any();
        attachment.spec.source.persistent_volume_name.ok_or_else(|| {
            let why = format!("spec.source.persistentVolumeName for VolumeAttachment {name} is not set");
            Error::Invalid(why).into()
        })
    })
    .collect()
}

/// Claims of pods that the drain leaves alone, as `namespace/name`.
fn claims_that_stay(survey: &Survey) -> BTreeSet<String> {
    let skipped: BTreeSet<&str> = survey.plan.skipped.iter().map(|(pod, _)| pod.as_str()).collect();
    let mut claims = BTreeSet::new();
    for pod in &survey.pods {
        let namespace = pod.namespace().unwrap_or_default();
        if !skipped.contains(format!("{namespace}/{}", pod.name_any()).as_str()) {
            continue;
        }
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
        let named =
            volumes.into_iter().flatten().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        claims.extend(named.map(|claim| format!("{namespace}/{}", claim.claim_name)));
    }
    claims
}

fn volume(volume: &PersistentVolume) -> Volume {
    let spec = volume.spec.as_ref();
    let csi = spec.and_then(|spec| spec.csi.as_ref());
    let claim = spec.and_then(|spec| spec.claim_ref.as_ref());
    Volume {
        name: volume.name_any(),
        csi: csi.map(|csi| (csi.driver.clone(), csi.volume_handle.clone())),
        claim: claim.map(|claim| {
            (claim.namespace.clone().unwrap_or_default(), claim.name.clone().unwrap_or_default())
        }),
    }
}
