//! Roles people have in clusters.
//!
//! What a role allows is written into the cluster, once, and bound to a group of its own. Who is in that group
//! is decided here with every request and nowhere written down: who loses a role has lost it at once, and
//! thousands of users need no thousands of bindings.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use remuda_names::{
    PROGRAM,
    gateway::impersonation,
    identity::{downstream, group::ROLE_PREFIX},
};
use serde_json::json;
use tokio::time::timeout;

use super::impersonators::Unable;
use crate::{
    access::Role,
    gateway::Shared,
    route::{Access, Route},
};

/// For a role to be written, and then to count.
const PATIENCE: Duration = Duration::from_secs(15);
const COUNTS: Duration = Duration::from_secs(3);
/// Roles are written again after this time, which also says that they are in use.
const KNOWN_HOURS: i64 = 12;

struct Known {
    rules: Option<Vec<PolicyRule>>,
    access: Arc<Access>,
    until: Timestamp,
}

/// Roles that are known to be in clusters.
#[derive(Default)]
pub(crate) struct Roles(Mutex<HashMap<String, HashMap<String, Known>>>);

/// The group of those who have a role.
pub(super) fn group(role: &str) -> String {
    format!("{ROLE_PREFIX}{role}")
}

impl Roles {
    pub(crate) fn forget(&self, cluster: &str) {
        self.0.lock().remove(cluster);
    }

    fn is_known(&self, cluster: &str, role: &Role, route: &Route, now: Timestamp) -> bool {
        self.0.lock().get(cluster).and_then(|roles| roles.get(&role.name)).is_some_and(|known| {
            known.access == *route.access() && known.rules == role.rules && now < known.until
        })
    }

    /// Makes sure that roles mean in a cluster what they are to mean.
    pub(crate) async fn ensure(
        &self,
        shared: &Shared,
        cluster: &str,
        route: &Route,
        roles: &[Role],
    ) -> Result<(), Unable> {
        let now = shared.ctx.clock.now();
        let patience = PATIENCE.min(shared.timing.answer);
        for role in roles.iter().filter(|role| !self.is_known(cluster, role, route, now)) {
            timeout(patience, write(route, role, now)).await.unwrap_or(Err(Unable::Silent(patience)))?;
            let until = now.saturating_add(SignedDuration::from_hours(KNOWN_HOURS)).unwrap_or(now);
            let known = Known { rules: role.rules.clone(), access: route.access().clone(), until };
            self.0.lock().entry(cluster.to_owned()).or_default().insert(role.name.clone(), known);
            tracing::info!(cluster, role = role.name, "a role is in the cluster");
        }
        Ok(())
    }
}

async fn write(route: &Route, role: &Role, now: Timestamp) -> Result<(), Unable> {
    let client = Client::new(route.clone(), impersonation::NAMESPACE);
    let own = format!("{}{}", downstream::PREFIX, role.name);
    let borrowed = format!("{}{}", downstream::EXTERNAL_PREFIX, role.name);
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let apply = PatchParams::apply(PROGRAM).force();
    let labels = json!({downstream::LABEL: "true", impersonation::LABEL: "true"});
    let annotations = json!({impersonation::USED: now.strftime("%Y-%m-%dT%H:00:00Z").to_string()});
    let bind = |name: &str, of: &str, owner: serde_json::Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels, "annotations": annotations, "ownerReferences": owner},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": of},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group(&role.name)}],
        })
    };
    let gone = |deleted: Result<(), kube::Error>| match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map_err(Unable::api("remove what the role was")),
    };
    match &role.rules {
        // A role of the cluster's own.
        None => {
            let binding = bind(&borrowed, &role.name, json!([]));
            let written = bindings.patch(&borrowed, &apply, &Patch::Apply(binding)).await;
            written.map_err(Unable::api("bind a role of the cluster"))?;
            gone(roles.delete(&own, &DeleteParams::background()).await.map(drop))?;
            gone(bindings.delete(&own, &DeleteParams::default()).await.map(drop))
        }
        Some(rules) => {
            let definition = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": own, "labels": labels, "annotations": annotations},
                "rules": rules,
            });
            let written = roles.patch(&own, &apply, &Patch::Apply(definition)).await;
            let written = written.map_err(Unable::api("write a role"))?;
            let owner = written.owner_ref(&()).into_iter().collect::<Vec<_>>();
            let binding = bind(&own, &own, json!(owner));
            let bound = bindings.patch(&own, &apply, &Patch::Apply(binding)).await;
            bound.map_err(Unable::api("bind a role"))?;
            gone(bindings.delete(&borrowed, &DeleteParams::default()).await.map(drop))?;
            // Who comes first would otherwise be refused what they have just been given.
            let _ = timeout(COUNTS, until_it_counts(client, &role.name, rules)).await;
            Ok(())
        }
    }
}

/// A cluster takes a moment until a new role counts.
async fn until_it_counts(client: Client, role: &str, rules: &[PolicyRule]) {
    let first = |list: &Option<Vec<String>>| list.as_ref().and_then(|list| list.first().cloned());
    let Some((rule, resource)) = rules.iter().find_map(|rule| Some((rule, first(&rule.resources)?))) else {
        return;
    };
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, subresource),
        None => (resource.as_str(), ""),
    };
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": "remuda:somebody", "groups": [group(role)],
        "resourceAttributes": {
            "verb": rule.verbs.first(), "group": first(&rule.api_groups), "resource": resource,
            "subresource": subresource, "name": first(&rule.resource_names),
        },
    }});
    let Ok(review) = serde_json::from_value::<SubjectAccessReview>(review) else { return };
    let reviews: Api<SubjectAccessReview> = Api::all(client);
    loop {
        let answer = reviews.create(&PostParams::default(), &review).await;
        if answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.allowed)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
