//! Protection against deletion, in front of the API: the rules are in `remuda_provisioning`.
//!
//! Every way on which a cluster goes is here, also those of the server's own controllers: its DELETE (single, of a
//! collection, by the garbage collector), and the deletion of its namespace, its management Cluster, or the very
//! definition of its kind.

use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Lookup, Named, Operation};
use remuda_auth::attributes::Attributes;
use remuda_names::{
    capi::group::CORE,
    rancher::{
        group::{MANAGEMENT, PROVISIONING},
        object_set,
    },
};
use remuda_provisioning::admission::{Refused, protection};
use serde_json::Value;

use super::{Kinds, writers::forbidden};

const DEFINITION: &str = "clusters.provisioning.cattle.io";

/// Admission of everything that could take a protected cluster or pool away.
pub struct Protection {
    kinds: Kinds,
}

/// What a request would do to clusters.
enum Way {
    /// Deletes this one.
    Cluster,
    /// Deletes all of a namespace.
    Namespace,
    /// Deletes the one behind a management Cluster.
    Managed,
    /// Deletes all there are.
    Definition,
    /// Changes this one.
    Update,
    /// Changes a pool's MachineDeployment.
    Deployment,
}

fn way(request: &Request<'_>) -> Option<Way> {
    let main = request.subresource.is_empty();
    match (request.operation, request.group, request.kind) {
        (Operation::Delete, PROVISIONING, "Cluster") if main => Some(Way::Cluster),
        (Operation::Delete, "", "Namespace") if main => Some(Way::Namespace),
        (Operation::Delete, MANAGEMENT, "Cluster") if main => Some(Way::Managed),
        (Operation::Delete, "apiextensions.k8s.io", "CustomResourceDefinition") if main => {
            (request.name == DEFINITION).then_some(Way::Definition)
        }
        (Operation::Update, PROVISIONING, "Cluster") if main => Some(Way::Update),
        (Operation::Update, CORE, "MachineDeployment") if main || request.subresource == "scale" => {
            Some(Way::Deployment)
        }
        _ => None,
    }
}

/// Clusters of a namespace, or of all.
fn clusters_in(namespace: &str) -> Lookup {
    let (group, kind) = (PROVISIONING.to_owned(), "Cluster".to_owned());
    Lookup { group, kind, namespace: namespace.to_owned(), name: String::new() }
}

/// The provisioning Cluster a MachineDeployment was made from, if it was: they are named alike.
fn maker(request: &Request<'_>) -> Option<Lookup> {
    let name = request.old?["spec"]["clusterName"].as_str().filter(|name| !name.is_empty())?;
    Some(Lookup { name: name.to_owned(), ..clusters_in(request.namespace) })
}

/// Whether deleting a management Cluster deletes this provisioning Cluster.
fn is_behind(managed: &Value, cluster: &Value) -> bool {
    let metadata = &managed["metadata"];
    match cluster["status"]["clusterName"].as_str().filter(|name| !name.is_empty()) {
        Some(name) => metadata["name"] == name,
        // One that was made from it may not have noted it yet.
        None => {
            metadata["annotations"][object_set::OWNER_NAMESPACE] == cluster["metadata"]["namespace"]
                && metadata["annotations"][object_set::OWNER_NAME] == cluster["metadata"]["name"]
        }
    }
}

impl Protection {
    pub(super) fn new(kinds: Kinds) -> Self {
        Self { kinds }
    }

    fn judge_update(&self, request: &Request<'_>, old: &Value, new: &Value) -> Vec<Refused> {
        if let Some(refused) = protection::refuse_update(old, new) {
            return vec![refused];
        }
        let mut fields = protection::lifted(old, new);
        fields.extend(protection::expires(Some(old), new));
        if fields.is_empty() || self.may_delete(request) {
            return Vec::new();
        }
        let why = format!(
            "taking protection off, and saying when a cluster is deleted, needs the right to delete the cluster, \
             and user {:?} cannot delete {}.{} {:?} in namespace {:?}",
            request.user.name, request.resource, request.group, request.name, request.namespace
        );
        fields.into_iter().map(|field| Refused { field, why: why.clone() }).collect()
    }

    fn may_delete(&self, request: &Request<'_>) -> bool {
        // Protection is a person's word: controllers that delete clusters do not take it back.
        if request.user.is_controller() {
            return false;
        }
        let attributes = Attributes::resource("delete", request.group, request.resource)
            .namespace(request.namespace)
            .name(request.name);
        match self.kinds.policy() {
            Some(policy) => policy.authorize(request.user, &attributes).allowed,
            None => request.user.is_master(),
        }
    }
}

impl Hook for Protection {
    fn concerns(&self, request: &Request<'_>) -> bool {
        way(request).is_some()
    }

    fn lookups(&self, request: &Request<'_>, object: Option<&Value>) -> Vec<Lookup> {
        let empties =
            || request.old.zip(object).is_some_and(|(old, new)| protection::is_scaled_to_nothing(old, new));
        match way(request) {
            Some(Way::Namespace) => vec![clusters_in(request.name)],
            Some(Way::Managed | Way::Definition) => vec![clusters_in("")],
            Some(Way::Deployment) if empties() => maker(request).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let (Some(way), Some(old)) = (way(request), request.old) else { return Ok(Vec::new()) };
        let found: Vec<&Value> = request.found.values().flat_map(|found| &found.objects).collect();
        let refused: Vec<Refused> = match way {
            Way::Cluster => protection::refuse_deletion(old).into_iter().collect(),
            Way::Namespace | Way::Definition => {
                found.into_iter().filter_map(protection::refuse_deletion).collect()
            }
            Way::Managed => {
                let behind = found.into_iter().filter(|cluster| is_behind(old, cluster));
                behind.filter_map(protection::refuse_deletion).collect()
            }
            Way::Update => object.map(|new| self.judge_update(request, old, new)).unwrap_or_default(),
            Way::Deployment => found
                .into_iter()
                .filter_map(|cluster| protection::refuse_scaling(cluster, request.name))
                .collect(),
        };
        if refused.is_empty() {
            return Ok(Vec::new());
        }
        let named = Named { group: request.group, kind: request.resource, name: request.name };
        Err(forbidden(named, &refused))
    }
}
