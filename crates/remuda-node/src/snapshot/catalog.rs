//! The catalogue of snapshots in the cluster: one `ETCDSnapshotFile` for each file, as K3s and RKE2 have it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use remuda_names::rancher::snapshot_file as names;
use serde_json::json;

use super::{Listed, metadata};
use crate::{config::Settings, control, distribution::Distribution};

const MANAGER: &str = "remuda-node";

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(names::GROUP, names::VERSION, names::KIND);
    ApiResource::from_gvk_with_plural(&kind, names::PLURAL)
}

/// What manifests of the manager say about the cluster, to be kept with each snapshot.
pub(super) async fn extra_metadata(client: &Client, distribution: Distribution) -> BTreeMap<String, String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let map = maps.get_opt(&format!("{distribution}-etcd-snapshot-extra-metadata")).await;
    map.ok().flatten().and_then(|map| map.data).unwrap_or_default()
}

/// The name of the object for a file: one for each node and place.
fn object_name(node: &str, listed: &Listed) -> String {
    let place = crate::token::ca_hash(&format!("{node}{}", listed.location));
    format!("local-{}-{}", listed.name.to_lowercase(), &place[..6])
}

/// Makes the objects of this node those of `listed`.
pub(super) async fn write(
    client: &Client,
    settings: &Settings,
    listed: &[Listed],
) -> Result<(), control::Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let node = &settings.node_name;
    let of_node = format!("{}={node}", names::label::NODE);
    let known = api.list(&ListParams::default().labels(&of_node)).await;
    let known = known.map_err(control::failed("list", names::KIND))?;
    let wanted: BTreeMap<String, &Listed> = listed.iter().map(|one| (object_name(node, one), one)).collect();
    for object in known.items.iter().filter(|object| !wanted.contains_key(&object.name_any())) {
        match api.delete(&object.name_any(), &DeleteParams::default()).await {
            Err(error) if !control::is_gone(&error) => {
                return Err(control::failed("delete", format!("{} {}", names::KIND, object.name_any()))(
                    error,
                ));
            }
            _ => {}
        }
    }
    for (name, listed) in wanted {
        if known.items.iter().any(|object| object.name_any() == name && object.data.get("status").is_some()) {
            continue;
        }
        let created = jiff::Timestamp::from_second(listed.created).unwrap_or_default();
        let object = json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": names::KIND,
            "metadata": {"name": name, "labels": {names::label::NODE: node}},
            "spec": {
                "snapshotName": listed.name, "nodeName": node, "location": listed.location,
                "metadata": metadata(settings, &listed.name),
            },
        });
        let status = json!({
            "apiVersion": object["apiVersion"], "kind": names::KIND, "metadata": {"name": name},
            "status": {
                "size": listed.size.to_string(), "creationTime": created.to_string(), "readyToUse": true,
            },
        });
        let params = PatchParams::apply(MANAGER).force();
        let what = || format!("{} {name}", names::KIND);
        api.patch(&name, &params, &Patch::Apply(&object)).await.map_err(control::failed("write", what()))?;
        api.patch_status(&name, &params, &Patch::Apply(&status))
            .await
            .map_err(control::failed("write status of", what()))?;
    }
    Ok(())
}
