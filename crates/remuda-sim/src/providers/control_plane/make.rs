//! What a control plane makes.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    ByteString,
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Api, ResourceExt, api::PostParams};
use remuda_api::core::{Cluster, ContractReference, Machine, MachineSpec};
use remuda_control::{
    Error,
    write::{get_or_create, owner_reference},
};
use remuda_names::capi::{annotation, label};
use serde_json::json;

use super::{Shell, api_error, decide::name, is_code, key_of};
use crate::{
    kinds::{SimBootstrap, SimControlPlane, SimMachine, SimMachineTemplate},
    names::{GROUP, SECRET_TYPE},
    providers::Provided,
};

/// Keeps the secret by which the cluster is reached.
pub(super) async fn kubeconfig(
    shell: &Shell,
    object: &SimControlPlane,
    cluster: &Cluster,
) -> Result<(), Error> {
    let providers = &shell.providers;
    let uid = object.uid().unwrap_or_default();
    let text = providers.workloads.kubeconfig(&key_of(cluster));
    if shell.kubeconfigs.lock().get(&uid) == Some(&text) {
        return Ok(());
    }
    let value = ByteString(text.clone().into_bytes());
    let labels = BTreeMap::from([(label::CLUSTER_NAME.to_owned(), cluster.name_any())]);
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(format!("{}-kubeconfig", cluster.name_any())),
            labels: Some(labels),
            owner_references: Some(vec![owner_reference(object, &())?]),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some([("value".to_owned(), value.clone())].into()),
        ..Secret::default()
    };
    let secrets: Api<Secret> = providers.api(object);
    let found = get_or_create(&providers.ctx, &secrets, &secret).await?;
    let wanted = &secret.metadata;
    let same = found.data == secret.data && found.metadata.owner_references == wanted.owner_references;
    if !same {
        let patch =
            json!({"metadata": {"ownerReferences": wanted.owner_references}, "data": {"value": value}});
        let patch = kube::api::Patch::Merge(patch);
        let patched = secrets.patch(&secret.name_any(), &Default::default(), &patch).await;
        patched.map_err(|source| api_error("write", &secret, source))?;
    }
    shell.kubeconfigs.lock().insert(uid, text);
    Ok(())
}

/// Makes a Machine and what it refers to. Whatever is there already was made by a reconcile that got no further.
pub(super) async fn machine(
    shell: &Shell,
    object: &SimControlPlane,
    cluster: &Cluster,
    machines: &[Arc<Machine>],
    ordinal: usize,
) -> Result<(), Error> {
    let providers = &shell.providers;
    let name = name(&object.name_any(), ordinal);
    let controller = owner_reference(object, &())?;
    // Until the Machine takes them over they are ours, but not under our control.
    let plain = OwnerReference { controller: None, block_owner_deletion: None, ..controller.clone() };
    let labels = labels(object, cluster);
    let reference = &object.spec.machine_template.spec.infrastructure_ref;
    let templates: Api<SimMachineTemplate> = providers.api(object);
    let template = templates.get(&reference.name).await.map_err(|source| Error::Api {
        verb: "read",
        what: format!("SimMachineTemplate {}", key_of(object).sibling(&reference.name)),
        source,
    })?;
    own_template(&templates, &template, cluster).await?;
    let cloned = BTreeMap::from([
        (annotation::CLONED_FROM_NAME.to_owned(), template.name_any()),
        (annotation::CLONED_FROM_GROUP_KIND.to_owned(), format!("SimMachineTemplate.{GROUP}")),
    ]);

    let body = &template.spec.template;
    let mut server = SimMachine::new(&name, body.spec.clone());
    server.metadata.labels = Some(body.metadata.labels.clone().into_iter().chain(labels.clone()).collect());
    server.metadata.annotations =
        Some(body.metadata.annotations.clone().into_iter().chain(cloned.clone()).collect());
    server.metadata.owner_references = Some(vec![plain.clone()]);
    create(&providers.api(object), &server).await?;

    let mut bootstrap = SimBootstrap::new(&name, object.spec.bootstrap.clone());
    bootstrap.metadata.labels = Some(labels.clone());
    bootstrap.metadata.owner_references = Some(vec![plain]);
    create(&providers.api(object), &bootstrap).await?;

    let spec = MachineSpec {
        cluster_name: cluster.name_any(),
        version: object.spec.version.clone(),
        bootstrap: remuda_api::core::Bootstrap {
            config_ref: reference_to("SimBootstrap", &name),
            data_secret_name: None,
        },
        infrastructure_ref: reference_to("SimMachine", &name),
        failure_domain: failure_domain(cluster, machines),
        deletion: object.spec.machine_template.spec.deletion.clone(),
        ..MachineSpec::default()
    };
    let mut machine = Machine::new(&name, spec);
    machine.metadata.labels = Some(labels);
    let annotations = object.spec.machine_template.metadata.annotations.clone();
    machine.metadata.annotations = Some(annotations.into_iter().chain(cloned).collect());
    machine.metadata.owner_references = Some(vec![controller]);
    let machines: Api<Machine> = providers.api(object);
    create(&machines, &machine).await
}

/// A template goes with the cluster it is used in.
async fn own_template(
    templates: &Api<SimMachineTemplate>,
    template: &SimMachineTemplate,
    cluster: &Cluster,
) -> Result<(), Error> {
    let uid = cluster.uid().unwrap_or_default();
    if template.owner_references().iter().any(|owner| owner.uid == uid) {
        return Ok(());
    }
    let owner =
        OwnerReference { controller: None, block_owner_deletion: None, ..owner_reference(cluster, &())? };
    let mut owners = template.owner_references().to_vec();
    owners.push(owner);
    let metadata = json!({"ownerReferences": owners, "resourceVersion": template.resource_version()});
    let patch = kube::api::Patch::Merge(json!({"metadata": metadata}));
    let patched = templates.patch(&template.name_any(), &Default::default(), &patch).await;
    patched.map(drop).map_err(|source| api_error("write", template, source))
}

fn labels(object: &SimControlPlane, cluster: &Cluster) -> BTreeMap<String, String> {
    let mut labels = object.spec.machine_template.metadata.labels.clone();
    labels.insert(label::CLUSTER_NAME.to_owned(), cluster.name_any());
    labels.insert(label::CONTROL_PLANE.to_owned(), String::new());
    labels.insert(label::CONTROL_PLANE_NAME.to_owned(), object.name_any());
    labels
}

fn reference_to(kind: &str, name: &str) -> ContractReference {
    ContractReference { api_group: GROUP.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}

/// The failure domain with the fewest Machines, the first of several.
fn failure_domain(cluster: &Cluster, machines: &[Arc<Machine>]) -> String {
    let domains = cluster.status.iter().flat_map(|status| &status.failure_domains);
    let domains = domains.filter(|domain| domain.control_plane == Some(true));
    let used = |name: &str| machines.iter().filter(|machine| machine.spec.failure_domain == name).count();
    domains.map(|domain| domain.name.clone()).min_by_key(|name| used(name)).unwrap_or_default()
}

async fn create<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Provided + serde::Serialize,
{
    match api.create(&PostParams::default(), object).await {
        Err(error) if is_code(&error, 409) => Ok(()),
        created => created.map(drop).map_err(|source| api_error("create", object, source)),
    }
}
