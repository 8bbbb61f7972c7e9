//! The catalogue of snapshots in the cluster: one `ETCDSnapshotFile` for each file, as K3s and RKE2 have it.
//!
//! Each server writes the objects of its own files. Those of a store are written by all servers, which see the same
//! files there. What could not be taken, or not be put into the store, has an object with its error, and is kept for a
//! while.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use remuda_names::rancher::snapshot_file as names;
use serde_json::{Value, json};

use super::{Listed, metadata, s3::S3Snapshots};
use crate::{config::Settings, control, distribution::Distribution};

const MANAGER: &str = "remuda-node";
/// Failures that are kept.
const FAILURES: usize = 5;
/// Another server may have put a file there after the list was read.
const YOUNG: SignedDuration = SignedDuration::from_mins(1);

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

/// What was kept about snapshots: beside the files of this server, and in the store.
pub(super) struct Kept<'a> {
    pub(super) settings: &'a Settings,
    pub(super) s3: Option<&'a S3Snapshots>,
}

impl Kept<'_> {
    async fn about(&self, name: &str) -> BTreeMap<String, String> {
        match (metadata(self.settings, name), self.s3) {
            (own, Some(s3)) if own.is_empty() => s3.metadata(name).await,
            (own, _) => own,
        }
    }
}

/// The objects of one holder of files.
pub(super) struct Catalogue {
    api: Api<DynamicObject>,
    /// A node, or the store.
    holder: String,
    /// What says where the store is.
    s3: Option<Value>,
}

impl Catalogue {
    pub(super) fn of_node(client: &Client, node: &str) -> Catalogue {
        let api = Api::all_with(client.clone(), &resource());
        Catalogue { api, holder: node.to_owned(), s3: None }
    }

    pub(super) fn of_store(client: &Client, place: Value) -> Catalogue {
        let api = Api::all_with(client.clone(), &resource());
        Catalogue { api, holder: names::S3_NODE.to_owned(), s3: Some(place) }
    }

    /// The name of the object for a file: one for each holder and place.
    fn object_name(&self, listed: &Listed) -> String {
        let place = crate::token::ca_hash(&format!("{}{}", self.holder, listed.location));
        let kind = if self.s3.is_some() { "s3" } else { "local" };
        format!("{kind}-{}-{}", listed.name.to_lowercase(), &place[..6])
    }

    async fn known(&self) -> Result<Vec<DynamicObject>, control::Error> {
        let own = format!("{}={}", names::label::NODE, self.holder);
        let known = self.api.list(&ListParams::default().labels(&own)).await;
        Ok(known.map_err(control::failed("list", names::KIND))?.items)
    }

    /// Makes the objects those of `listed`, which was read at `read`.
    pub(super) async fn write(
        &self,
        listed: &[Listed],
        read: Timestamp,
        kept: &Kept<'_>,
    ) -> Result<(), control::Error> {
        let known = self.known().await?;
        let wanted: BTreeMap<String, &Listed> =
            listed.iter().map(|one| (self.object_name(one), one)).collect();
        let stays = self.stays(&known, read);
        for object in known.iter().filter(|object| !wanted.contains_key(&object.name_any())) {
            if !stays.contains(&object.name_any()) {
                self.remove(&object.name_any()).await?;
            }
        }
        let is_complete = |object: &&DynamicObject| object.data["status"]["readyToUse"] == true;
        let complete: BTreeSet<String> =
            known.iter().filter(is_complete).map(ResourceExt::name_any).collect();
        for (name, listed) in wanted {
            if !complete.contains(&name) {
                self.put(listed, &kept.about(&listed.name).await, None).await?;
            }
        }
        Ok(())
    }

    /// Objects without a file that stay nevertheless.
    fn stays(&self, known: &[DynamicObject], read: Timestamp) -> BTreeSet<String> {
        let failed = |object: &&DynamicObject| object.data["status"]["readyToUse"] == false;
        let created = |object: &DynamicObject| object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let mut failures: Vec<&DynamicObject> = known.iter().filter(failed).collect();
        failures.sort_by_key(|object| std::cmp::Reverse(created(object)));
        // Only the server itself writes entries of its own files.
        let shared = self.s3.is_some();
        let young =
            known.iter().filter(|object| shared && created(object).is_some_and(|at| at + YOUNG > read));
        failures.into_iter().take(FAILURES).chain(young).map(ResourceExt::name_any).collect()
    }

    /// Writes the object of a file, or of one that could not be put there.
    pub(super) async fn put(
        &self,
        listed: &Listed,
        metadata: &BTreeMap<String, String>,
        error: Option<&str>,
    ) -> Result<(), control::Error> {
        let name = self.object_name(listed);
        let created = Timestamp::from_second(listed.created).unwrap_or_default().to_string();
        let mut object = json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": names::KIND,
            "metadata": {"name": name, "labels": {names::label::NODE: self.holder}},
            "spec": {
                "snapshotName": listed.name, "nodeName": self.holder, "location": listed.location,
                "metadata": metadata,
            },
        });
        if let Some(place) = &self.s3 {
            object["spec"]["s3"] = place.clone();
        }
        let mut status = json!({
            "apiVersion": object["apiVersion"], "kind": names::KIND, "metadata": {"name": name},
            "status": {
                "size": listed.size.to_string(), "creationTime": created, "readyToUse": error.is_none(),
            },
        });
        if let Some(error) = error {
            status["status"]["error"] = json!({"message": error, "time": created});
        }
        let params = PatchParams::apply(MANAGER).force();
        let what = || format!("{} {name}", names::KIND);
        let written = self.api.patch(&name, &params, &Patch::Apply(&object)).await;
        written.map_err(control::failed("write", what()))?;
        let written = self.api.patch_status(&name, &params, &Patch::Apply(&status)).await;
        written.map_err(control::failed("write status of", what()))?;
        Ok(())
    }

    /// Removes the object of a file that was deleted.
    pub(super) async fn forget(&self, listed: &Listed) -> Result<(), control::Error> {
        self.remove(&self.object_name(listed)).await
    }

    async fn remove(&self, name: &str) -> Result<(), control::Error> {
        match self.api.delete(name, &DeleteParams::default()).await {
            Err(error) if !control::is_gone(&error) => {
                Err(control::failed("delete", format!("{} {name}", names::KIND))(error))
            }
            _ => Ok(()),
        }
    }
}
