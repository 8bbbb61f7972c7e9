//! Servers that come with the token of a cluster: a controller makes a Machine for each.

use std::{collections::BTreeMap, sync::Arc};

use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
};
use remuda_control::{Chain, ObjectKey};
use remuda_names::{
    annotation::REMOVED_AT,
    capi,
    rancher::{annotation, label, secret_key, secret_type},
    removed,
};

use super::{
    machine::{self, Machine},
    request::Request,
};
use crate::{
    gateway::{BY_MANAGEMENT_CLUSTER, Shared},
    respond::Refusal,
    tokens::{Registration, sha256},
};

/// Both set: the cluster is one of Cluster API that somebody else makes.
const CAPI_OWNER: &str = "cluster-api.cattle.io/capi-cluster-owner";

fn conflict(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::CONFLICT, message)
}

/// Asks for a Machine and waits until it is there.
pub(super) async fn register(
    shared: &Arc<Shared>,
    request: &Request,
    token: &Registration,
) -> Result<Machine, Refusal> {
    let cluster = token.cluster.as_str();
    let object = shared.cluster(cluster);
    let object = object.ok_or_else(|| {
        Refusal::new(StatusCode::NOT_FOUND, format!("cluster {cluster} of this token does not exist"))
    })?;
    let people = Some(object.spec.display_name.as_str()).filter(|name| !name.is_empty()).unwrap_or(cluster);
    if object.metadata.deletion_timestamp.is_some() {
        return Err(conflict(format!("cluster {people} is being deleted")));
    }
    if object.labels().contains_key(CAPI_OWNER) {
        return Err(conflict(format!("machines of cluster {people} are made by somebody else")));
    }
    if object.annotations().get(annotation::ADMINISTRATED).is_none_or(|value| value != "true") {
        return Err(conflict(format!("cluster {people} is imported: machines cannot be registered with it")));
    }
    if !["role-etcd", "role-control-plane", "role-worker"].iter().any(|role| request.is_true(role)) {
        return Err(Refusal::bad(
            "the machine has no role: use --etcd, --controlplane, --worker or --all-roles",
        ));
    }
    let name = name(&request.id);
    check_id(shared, request, cluster, people, &name).await?;

    let secrets: Api<Secret> = Api::namespaced(shared.ctx.client.clone(), cluster);
    check_removed(&secrets, token, people, &name).await?;
    let created = create(shared, &secrets, request, &name).await?;
    let guard =
        Guard { shared: shared.clone(), secrets: secrets.clone(), name: name.clone(), uid: created.uid() };
    let is_done = |secret: Option<&Secret>| secret.is_none_or(|secret| machine_of(secret).is_some());
    let waiting = remuda_control::wait_for(&secrets, &name, is_done);
    let done = tokio::time::timeout(shared.timing.machine, waiting).await;
    let done =
        done.map_err(|_| Refusal::not_yet(format!("timeout waiting for {cluster}/{name} to be ready")))?;
    let done = done.map_err(|error| Refusal::failed("waiting for a Machine", &error))?;
    let key = done.as_ref().and_then(machine_of);
    drop(guard);
    let gone =
        || Refusal::not_yet(format!("the request {cluster}/{name} was removed before it was answered"));
    let key = key.ok_or_else(gone)?;
    let machine = machine::machine(shared, &key).await?;
    machine.ok_or_else(|| Refusal::not_yet(format!("Machine {key} is gone again")))
}

/// The same for every request of a server.
fn name(id: &str) -> String {
    let digest = sha256(id.as_bytes());
    let digits = remuda_base::hex(&digest[..6]);
    format!("custom-{digits}")
}

fn machine_of(secret: &Secret) -> Option<ObjectKey> {
    let label = |name: &str| secret.labels().get(name).filter(|value| !value.is_empty());
    Some(ObjectKey::namespaced(label(label::MACHINE_NAMESPACE)?, label(label::MACHINE_NAME)?))
}

/// A server that registers again is let in; another one with the same id is not. Servers are often copies of
/// one disk, and two agents that follow one plan would undo each other's work.
async fn check_id(
    shared: &Shared,
    request: &Request,
    cluster: &str,
    people: &str,
    name: &str,
) -> Result<(), Refusal> {
    let advice = "if this is another machine, remove /etc/rancher/agent on it and register again";
    let ours = shared.provisioned.keys_by_index(BY_MANAGEMENT_CLUSTER, cluster);
    if ours.is_empty() {
        return Err(Refusal::not_yet(format!("cluster {people} is not set up yet")));
    }
    for known in machine::with_id(shared, &request.id).await? {
        let labels = known.labels();
        let owner = labels.get(capi::label::CLUSTER_NAME).map_or("", String::as_str);
        let namespace = known.namespace().unwrap_or_default();
        if !ours.contains(&ObjectKey::namespaced(&namespace, owner)) {
            return Err(conflict(format!(
                "this machine id is already registered with another cluster; {advice}"
            )));
        }
        if known.name_any() == name && known.metadata.deletion_timestamp.is_some() {
            return Err(conflict(format!(
                "machine {name} of this id is being deleted; try again when it is gone"
            )));
        }
        let (wanted, has) =
            (request.first("node-name"), labels.get(label::NODE_NAME).map_or("", String::as_str));
        if !wanted.is_empty() && !has.is_empty() && wanted != has {
            return Err(conflict(format!(
                "this machine id is already registered with cluster {people} as node {has}; {advice}"
            )));
        }
    }
    Ok(())
}

/// A server that was removed stays out, until it comes with a token that was made since. One that was uninstalled has
/// another id.
async fn check_removed(
    secrets: &Api<Secret>,
    token: &Registration,
    people: &str,
    machine: &str,
) -> Result<(), Refusal> {
    let name = removed::name(machine);
    let failed = |error: &kube::Error| Refusal::failed("reading what was removed", error);
    let Some(note) = secrets.get_opt(&name).await.map_err(|error| failed(&error))? else { return Ok(()) };
    let at = note.annotations().get(REMOVED_AT).and_then(|text| text.parse::<Timestamp>().ok());
    let issued = secrets.get_metadata_opt(&token.secret.name).await.map_err(|error| failed(&error))?;
    let issued = issued.and_then(|secret| secret.metadata.creation_timestamp).map(|time| time.0);
    if is_barred(at, issued) {
        return Err(conflict(format!(
            "this machine was removed from cluster {people}; run `remuda agent uninstall` or \
             rancher-system-agent-uninstall.sh on it and register it anew, or use a registration token made since"
        )));
    }
    let preconditions = Preconditions { uid: note.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match secrets.delete(&name, &params).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(Refusal::failed("forgetting that a machine was removed", &error)),
        Ok(_) => Ok(()),
    }
}

/// Whether a token is older than the removal. Times are kept in whole seconds.
fn is_barred(removed: Option<Timestamp>, issued: Option<Timestamp>) -> bool {
    match (removed, issued) {
        (Some(removed), Some(issued)) => issued.as_second() < removed.as_second(),
        (_, None) => true,
        (None, Some(_)) => false,
    }
}

async fn create(
    shared: &Shared,
    secrets: &Api<Secret>,
    request: &Request,
    name: &str,
) -> Result<Secret, Refusal> {
    let mut secret = Secret { type_: Some(secret_type::MACHINE_REQUEST.to_owned()), ..Secret::default() };
    secret.metadata.name = Some(name.to_owned());
    let data = ByteString(request.data().into_bytes());
    secret.data = Some(BTreeMap::from([(secret_key::REQUEST_DATA.to_owned(), data.clone())]));
    let params =
        PostParams { field_manager: Some(shared.ctx.field_manager.to_string()), ..PostParams::default() };
    let failed = |error: &kube::Error| Refusal::failed("creating a request for a Machine", error);
    match secrets.create(&params, &secret).await {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let known = secrets.get_opt(name).await.map_err(|error| failed(&error))?;
            let known =
                known.ok_or_else(|| Refusal::not_yet("this machine was being registered; try again"))?;
            let same =
                known.data.as_ref().and_then(|known| known.get(secret_key::REQUEST_DATA)) == Some(&data);
            if !same {
                return Err(conflict("another machine with this id is being registered right now"));
            }
            Ok(known)
        }
        Err(error) => Err(failed(&error)),
    }
}

/// Removes the request when nobody waits for it any more: answered, timed out, or the caller is gone.
struct Guard {
    shared: Arc<Shared>,
    secrets: Api<Secret>,
    name: String,
    uid: Option<String>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let (secrets, name) = (self.secrets.clone(), std::mem::take(&mut self.name));
        let preconditions = Preconditions { uid: self.uid.take(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.shared.tasks.spawn(async move {
            match secrets.delete(&name, &params).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                // Whoever makes Machines removes what is left over after a while.
                Err(error) => tracing::warn!(name, error = %Chain(&error), "request cannot be removed"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_machine_needs_a_token_made_since() {
        let at = |second| Timestamp::from_second(second).ok();
        assert!(is_barred(at(100), at(99)));
        assert!(!is_barred(at(100), at(100)));
        assert!(!is_barred(at(100), at(101)));
        assert!(is_barred(at(100), None));
        assert!(!is_barred(None, at(1)), "a note without a time bars nobody");
    }

    #[test]
    fn a_request_is_named_by_the_id_alone() {
        // printf m1 | sha256sum | cut -c1-12
        assert_eq!(name("m1"), "custom-ca0df2c95aa1");
    }
}
