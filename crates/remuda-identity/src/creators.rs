//! Whoever creates a cluster owns it, by a binding like any other: it is listed, and can be deleted.
//!
//! Reads   provisioning Clusters that say who created them, and that User.
//! Writes  one ClusterRoleTemplateBinding per cluster, then notes on the Cluster that it was made.
//! Never   binds anybody twice: once the note is there, only bindings count.
//!
//! Until the binding is there, and so before there is a management Cluster, the creator has the same rights
//! without one. Clusters of servers that knew no such binding are caught up with once, in the same way.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use remuda_api::{
    management::{self, ClusterRoleTemplateBinding},
    provisioning::Cluster,
};
use remuda_control::{
    Action, Controller, drive,
    write::{get_or_create, owner_reference},
};
use remuda_names::{
    identity::{CREATOR_BINDING, annotation, role},
    rancher::annotation::{CREATOR_ID, NO_CREATOR_RBAC},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Identity,
    identity::{HEARD, management_name},
};

/// Until a management Cluster that is missing is looked for again.
const LATER: Duration = Duration::from_secs(60);

/// Who created a cluster and is to be bound as its owner; `None` if they were, or are not to be.
///
/// A name counts for the User who had it when the cluster was made, and for no User who got it later. Names no
/// User can have, such as those of service accounts, count as they are. What the server itself makes has no owner.
pub(crate) fn unbound_creator(
    cluster: &Cluster,
    user_since: impl FnOnce(&str) -> Option<Timestamp>,
) -> Option<String> {
    let said = |name: &str| cluster.annotations().get(name).map(String::as_str);
    let creator = said(CREATOR_ID).filter(|creator| !creator.is_empty())?;
    if said(NO_CREATOR_RBAC) == Some("true") || said(annotation::CREATOR_BOUND) == Some("true") {
        return None;
    }
    let fits = if is_object_name(creator) {
        let made = cluster.metadata.creation_timestamp.as_ref().map(|time| time.0);
        user_since(creator).zip(made).is_some_and(|(since, made)| since <= made)
    } else {
        !creator.starts_with("system:") || creator.starts_with("system:serviceaccount:")
    };
    fits.then(|| creator.to_owned())
}

fn is_object_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
}

pub(crate) async fn run(identity: Identity, stop: CancellationToken) {
    let ctx = &identity.0.ctx;
    let controller = Controller::on("cluster-creator", ctx, identity.0.provisioned.clone())
        .only_when(|change| {
            let facts = |cluster: &Arc<Cluster>| (management_name(cluster), cluster.annotations().clone());
            change.old.as_ref().map(facts) != change.new.as_ref().map(facts)
        })
        .requires(&identity.0.users);
    drive(controller, reconcile, Arc::new(identity), stop).await;
}

async fn reconcile(cluster: Arc<Cluster>, identity: Arc<Identity>) -> Result<Action, Error> {
    let shared = &identity.0;
    let (name, namespace) = (cluster.name_any(), cluster.namespace().unwrap_or_default());
    let id = management_name(&cluster);
    let creator = unbound_creator(&cluster, |name| shared.user_since(name));
    let Some(creator) = creator.filter(|_| !id.is_empty() && cluster.metadata.deletion_timestamp.is_none())
    else {
        return Ok(Action::AwaitChange);
    };
    let client = shared.ctx.client.clone();
    let managed: Api<management::Cluster> = Api::all(client.clone());
    let found = managed.get_opt(&id).await.map_err(|source| Error::api("read cluster", &id, source))?;
    // Nothing tells when it comes back, if it does.
    let Some(managed) = found.filter(|cluster| cluster.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::RequeueAfter(LATER));
    };
    let binding = ClusterRoleTemplateBinding {
        metadata: ObjectMeta {
            name: Some(CREATOR_BINDING.to_owned()),
            namespace: Some(id.clone()),
            owner_references: Some(vec![owner_reference(&managed, &())?]),
            ..ObjectMeta::default()
        },
        cluster_name: id.clone(),
        user_name: creator.clone(),
        role_template_name: role::CLUSTER_OWNER.to_owned(),
        ..ClusterRoleTemplateBinding::default()
    };
    let bindings: Api<ClusterRoleTemplateBinding> = Api::namespaced(client.clone(), &id);
    let made = get_or_create(&shared.ctx, &bindings, &binding).await?;
    // The rights without a binding end with the note: those with one must be known before.
    shared.cluster_bindings.wait_for(&made.resource_version().unwrap_or_default(), HEARD).await;
    let note = json!({"metadata": {
        "uid": cluster.metadata.uid, "annotations": {annotation::CREATOR_BOUND: "true"},
    }});
    let clusters: Api<Cluster> = Api::namespaced(client, &namespace);
    let noted = clusters.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(note)).await;
    noted.map_err(|source| Error::api("note the creator of cluster", &name, source))?;
    tracing::info!(cluster = id, user = creator, "the creator of a cluster is bound as its owner");
    Ok(Action::AwaitChange)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn cluster(annotations: &[(&str, &str)]) -> Cluster {
        let mut cluster = Cluster::named("demo");
        cluster.metadata.creation_timestamp = Some(Time(at("2026-01-02T00:00:00Z")));
        for (name, value) in annotations {
            cluster.annotations_mut().insert((*name).to_owned(), (*value).to_owned());
        }
        cluster
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(annotations: &[(&str, &str)], since: Option<&str>, expected: Option<&str>) {
        let found = unbound_creator(&cluster(annotations), |_| since.map(at));
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn a_creator_is_bound_once_and_only_as_who_they_were() {
        let before = Some("2026-01-01T00:00:00Z");
        check(&[(CREATOR_ID, "ann")], before, Some("ann"));
        check(&[(CREATOR_ID, "ann")], Some("2026-01-03T00:00:00Z"), None);
        check(&[(CREATOR_ID, "ann")], None, None);
        check(&[(CREATOR_ID, "ann"), (annotation::CREATOR_BOUND, "true")], before, None);
        check(&[(CREATOR_ID, "ann"), (NO_CREATOR_RBAC, "true")], before, None);
        check(&[], before, None);
        check(&[(CREATOR_ID, "kubernetes-admin")], None, None);
        check(&[(CREATOR_ID, "system:remuda:controllers")], None, None);
        check(
            &[(CREATOR_ID, "system:serviceaccount:ci:deploy")],
            None,
            Some("system:serviceaccount:ci:deploy"),
        );
        check(&[(CREATOR_ID, "ann@example.com")], None, Some("ann@example.com"));
    }
}
