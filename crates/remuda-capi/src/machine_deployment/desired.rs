//! MachineSets as their deployment wants them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use remuda_api::core::{MachineDeployment, MachineSet, MachineSetSpec, MachineSpec};
use remuda_control::write::difference;
use remuda_names::capi::{annotation, finalizer, label};
use remuda_rollout::{
    deployment::{
        Create, Deployment, Desired, Numbers, Set, set_annotations, set_labels, template_hash,
        template_labels,
    },
    view::Counts,
};
use serde_json::{Map, Value, json};

use crate::{
    imprint::{self, Given},
    managed::controller,
    view,
};

/// A set as decisions see it.
pub(super) fn view(set: &MachineSet) -> Set {
    let status = set.status.clone().unwrap_or_default();
    let note = |key: &str| set.annotations().get(key).cloned();
    let number = |key: &str| note(key).and_then(|text| text.parse().ok());
    Set {
        name: set.name_any(),
        created: view::created(&set.metadata),
        deleting: set.metadata.deletion_timestamp.is_some(),
        observed: status.observed_generation >= set.metadata.generation.unwrap_or(0),
        replicas: set.spec.replicas.unwrap_or(0),
        counts: Counts {
            replicas: status.replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            up_to_date: status.up_to_date_replicas,
        },
        template: view::template(&set.spec.template),
        annotations: Numbers {
            revision: note(annotation::REVISION),
            revision_history: note(annotation::REVISION_HISTORY),
            desired_replicas: number(annotation::DESIRED_REPLICAS),
            max_replicas: number(annotation::MAX_REPLICAS),
        },
    }
}

/// A set that does not exist yet.
pub(super) fn new_set(
    deployment: &MachineDeployment,
    asked: &Deployment,
    create: &Create,
    name: &str,
    suffix: &str,
) -> MachineSet {
    let hash = template_hash(&asked.template, suffix);
    let desired = Desired {
        name: name.to_owned(),
        current: true,
        from: 0,
        replicas: create.replicas,
        revision: Some(create.revision.clone()),
        revision_history: None,
        disable_create: false,
        notes: Vec::new(),
    };
    let template = with_cluster(deployment);
    let mut labels = deployment.spec.selector.match_labels.clone().unwrap_or_default();
    labels.insert(label::CLUSTER_NAME.to_owned(), deployment.spec.cluster_name.clone());
    labels.insert(label::TEMPLATE_HASH.to_owned(), hash.clone());
    let selector = LabelSelector { match_labels: Some(labels), ..deployment.spec.selector.clone() };
    let mut spec = MachineSetSpec {
        cluster_name: deployment.spec.cluster_name.clone(),
        replicas: Some(create.replicas),
        selector,
        template: deployment.spec.template.clone(),
        machine_naming: deployment.spec.machine_naming.clone(),
        deletion: deployment.spec.deletion.clone(),
    };
    spec.template.metadata.labels = template_labels(&template, &hash);
    let mut set = MachineSet::new(name, spec);
    set.metadata.namespace = deployment.namespace();
    set.metadata.labels = Some(set_labels(&template, &deployment.name_any(), &hash));
    set.metadata.annotations = Some(set_annotations(deployment.annotations(), asked, &desired));
    set.metadata.finalizers = Some(vec![finalizer::MACHINE_SET.to_owned()]);
    set.metadata.owner_references = Some(vec![controller(deployment)]);
    set
}

/// Labels of the template, with the Cluster's name: sets see to it that theirs has it.
fn with_cluster(deployment: &MachineDeployment) -> BTreeMap<String, String> {
    let mut labels = deployment.spec.template.metadata.labels.clone();
    labels.insert(label::CLUSTER_NAME.to_owned(), deployment.spec.cluster_name.clone());
    labels
}

/// The merge patch that makes of a set what it should be; `None` if it is.
pub(super) fn patch(
    deployment: &MachineDeployment,
    asked: &Deployment,
    set: &MachineSet,
    desired: &Desired,
) -> Option<Value> {
    let template = with_cluster(deployment);
    // The hash stays for the life of the set. Without one it was made by somebody else and adopted.
    let hash = set.labels().get(label::TEMPLATE_HASH);
    let (labels, template_labels) = match hash {
        Some(hash) => (set_labels(&template, &deployment.name_any(), hash), template_labels(&template, hash)),
        None => {
            let mut labels = template.clone();
            labels.insert(label::DEPLOYMENT_NAME.to_owned(), deployment.name_any());
            (labels, template)
        }
    };
    let annotations = set_annotations(deployment.annotations(), asked, desired);
    let given = Given::read(&set.metadata, imprint::DEPLOYMENT);
    let mut metadata = given.patch(&set.metadata, &labels, &annotations);

    let mut spec = set.spec.clone();
    spec.replicas = Some(desired.replicas);
    spec.deletion = deployment.spec.deletion.clone();
    spec.machine_naming = deployment.spec.machine_naming.clone();
    spec.template.metadata.labels = selected(set, template_labels);
    spec.template.metadata.annotations = deployment.spec.template.metadata.annotations.clone();
    take_in_place(&mut spec.template.spec, &deployment.spec.template.spec);
    let spec = spec_patch(&set.spec, &spec);

    if metadata.is_empty() && spec.is_empty() {
        return None;
    }
    metadata.insert("uid".to_owned(), json!(set.uid()));
    let mut patch = json!({"metadata": metadata});
    if !spec.is_empty() {
        patch["spec"] = Value::Object(spec);
    }
    Some(patch)
}

/// A set's selector never changes, so its template keeps the labels that the selector asks for.
fn selected(set: &MachineSet, mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    if let Ok(asked) = view::selector(&set.spec.selector).as_labels() {
        labels.extend(asked);
    }
    labels
}

/// What follows a deployment without a rollout.
fn take_in_place(spec: &mut MachineSpec, wanted: &MachineSpec) {
    spec.readiness_gates = wanted.readiness_gates.clone();
    spec.min_ready_seconds = wanted.min_ready_seconds;
    spec.deletion = wanted.deletion.clone();
    spec.taints = wanted.taints.clone();
}

fn spec_patch(has: &MachineSetSpec, wanted: &MachineSetSpec) -> Map<String, Value> {
    if has == wanted {
        return Map::new();
    }
    let encode = |spec: &MachineSetSpec| serde_json::to_value(spec).unwrap_or_default();
    match difference(&encode(has), &encode(wanted)) {
        Some(Value::Object(patch)) => patch,
        _ => Map::new(),
    }
}
