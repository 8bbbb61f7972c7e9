//! A pool of machines as Cluster API knows it: a MachineDeployment, and a MachineHealthCheck if asked for.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube::ResourceExt;
use remuda_api::{
    core::{
        Bootstrap, ContractReference, HealthChecks, HealthRemediation, MachineDeletion, MachineDeployment,
        MachineDeploymentSpec, MachineHealthCheck, MachineHealthCheckSpec, MachineSpec, MachineTemplate,
        RemediationTrigger, RollingUpdate, Rollout, RolloutStrategy, SetDeletion, TemplateMeta,
        UnhealthyCondition,
    },
    provisioning::{Cluster, MachinePool},
};
use remuda_names::{
    capi,
    machines::annotation::ADDRESS_POOL,
    provisioning::annotation::REPLICAS,
    rancher::{annotation, label},
};

use super::problem::Problem;
use crate::{Error, duration, naming};

/// Machines of a pool that says nothing of their number.
pub(crate) const DEFAULT_QUANTITY: i32 = 1;
const LINUX: &str = "linux";

/// What pools must have before anything is made of them.
pub(super) fn validate(pools: &[MachinePool]) -> Result<(), Problem> {
    let mut seen = std::collections::BTreeSet::new();
    for pool in pools {
        let reference = pool.machine_config_ref.as_ref();
        let given = |field: fn(&k8s_openapi::api::core::v1::ObjectReference) -> &Option<String>| {
            reference.and_then(|reference| field(reference).as_deref()).is_some_and(|text| !text.is_empty())
        };
        if pool.name.is_empty() || !given(|reference| &reference.name) || !given(|reference| &reference.kind)
        {
            return Err(Problem::InvalidPool(pool.name.clone()));
        }
        if !pool.etcd_role && !pool.control_plane_role && !pool.worker_role {
            return Err(Problem::NoRole(pool.name.clone()));
        }
        if !seen.insert(&pool.name) {
            return Err(Problem::DuplicatePool(pool.name.clone()));
        }
    }
    Ok(())
}

pub(super) fn quantity(pool: &MachinePool) -> i32 {
    pool.quantity.unwrap_or(DEFAULT_QUANTITY)
}

/// How many machines somebody made of a pool by scaling its MachineDeployment. The pool takes that over, so that
/// neither an autoscaler nor `kubectl scale` is undone.
pub(super) fn scaled(pool: &MachinePool, deployment: &MachineDeployment) -> Option<i32> {
    if deployment.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let applied = deployment.annotations().get(REPLICAS)?.parse::<i32>().ok()?;
    let replicas = deployment.spec.replicas?;
    (quantity(pool) == applied && replicas != applied && replicas >= 0).then_some(replicas)
}

/// What machines of a pool are made from.
pub(super) struct Templates {
    pub(super) bootstrap: ContractReference,
    pub(super) infrastructure: ContractReference,
}

pub(super) fn deployment(
    cluster: &Cluster,
    pool: &MachinePool,
    templates: Templates,
) -> Result<MachineDeployment, Error> {
    let cluster_name = cluster.name_any();
    let name = naming::of::machine_deployment(&cluster_name, &pool.name);
    let os = if pool.machine_os.is_empty() { LINUX } else { &pool.machine_os };

    let mut labels = pool.labels.clone();
    labels.extend(pool.machine_deployment_labels.clone());
    labels.insert(label::OS.to_owned(), os.to_owned());
    let mut annotations = pool.machine_deployment_annotations.clone();
    if let (Some(min), Some(max)) = (pool.autoscaling_min_size, pool.autoscaling_max_size) {
        annotations.insert(capi::annotation::AUTOSCALER_MIN.to_owned(), min.to_string());
        annotations.insert(capi::annotation::AUTOSCALER_MAX.to_owned(), max.to_string());
    }
    annotations.insert(REPLICAS.to_owned(), quantity(pool).to_string());

    let selected = BTreeMap::from([
        (capi::label::CLUSTER_NAME.to_owned(), cluster_name.clone()),
        (capi::label::DEPLOYMENT_NAME.to_owned(), name.clone()),
    ]);
    let mut deployment = MachineDeployment::new(
        &name,
        MachineDeploymentSpec {
            cluster_name: cluster_name.clone(),
            replicas: Some(quantity(pool)),
            rollout: rollout(pool),
            // Cluster API would default it to the same.
            selector: LabelSelector { match_labels: Some(selected), ..LabelSelector::default() },
            template: MachineTemplate {
                metadata: TemplateMeta {
                    labels: machine_labels(&cluster_name, &name, pool, os),
                    annotations: machine_annotations(cluster, pool)?,
                },
                spec: MachineSpec {
                    cluster_name,
                    bootstrap: Bootstrap { config_ref: templates.bootstrap, ..Bootstrap::default() },
                    infrastructure_ref: templates.infrastructure,
                    deletion: MachineDeletion {
                        node_drain_timeout_seconds: seconds(
                            pool,
                            "drainBeforeDeleteTimeout",
                            &pool.drain_before_delete_timeout,
                        )?,
                        ..MachineDeletion::default()
                    },
                    ..MachineSpec::default()
                },
            },
            deletion: SetDeletion { order: "Oldest".to_owned() },
            paused: pool.paused.then_some(true),
            ..MachineDeploymentSpec::default()
        },
    );
    deployment.metadata.namespace = cluster.namespace();
    deployment.metadata.labels = Some(labels);
    deployment.metadata.annotations = Some(annotations);
    Ok(deployment)
}

fn rollout(pool: &MachinePool) -> Rollout {
    let update = pool.rolling_update.clone().unwrap_or_default();
    let rolling_update =
        RollingUpdate { max_unavailable: update.max_unavailable, max_surge: update.max_surge };
    let strategy = RolloutStrategy { kind: "RollingUpdate".to_owned(), rolling_update };
    Rollout { strategy, ..Rollout::default() }
}

/// Labels by which everything finds its machines come last: no label of a pool may hide them.
fn machine_labels(cluster: &str, deployment: &str, pool: &MachinePool, os: &str) -> BTreeMap<String, String> {
    let mut labels = pool.labels.clone();
    for role in [label::ETCD_ROLE, label::CONTROL_PLANE_ROLE, label::WORKER_ROLE, capi::label::CONTROL_PLANE]
    {
        labels.remove(role);
    }
    let mut set = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
    set(capi::label::CLUSTER_NAME, cluster);
    set(label::CLUSTER_NAME, cluster);
    set(capi::label::DEPLOYMENT_NAME, deployment);
    set(label::MACHINE_POOL_NAME, &pool.name);
    set(label::OS, os);
    if pool.etcd_role {
        set(label::ETCD_ROLE, "true");
    }
    if pool.control_plane_role {
        set(label::CONTROL_PLANE_ROLE, "true");
        set(capi::label::CONTROL_PLANE, "true");
    }
    if pool.worker_role {
        set(label::WORKER_ROLE, "true");
    }
    labels
}

fn machine_annotations(cluster: &Cluster, pool: &MachinePool) -> Result<BTreeMap<String, String>, Error> {
    let mut annotations = BTreeMap::new();
    if !pool.drain_before_delete {
        annotations.insert(capi::annotation::EXCLUDE_DRAIN.to_owned(), "true".to_owned());
    }
    let default = cluster.spec.rke_config.as_ref();
    let default = default.map_or(0, |config| config.machine_pool_defaults.hostname_length_limit);
    if let Some(limit) =
        [pool.hostname_length_limit, default].into_iter().find(|limit| (10..=63).contains(limit))
    {
        annotations.insert(annotation::HOSTNAME_LENGTH_LIMIT.to_owned(), limit.to_string());
    }
    if let Some(addresses) = pool.machine_deployment_annotations.get(ADDRESS_POOL) {
        annotations.insert(ADDRESS_POOL.to_owned(), addresses.clone());
    }
    let encode = |source| Error::Encode { what: "labels and taints of a pool", source };
    if !pool.labels.is_empty() {
        let labels = serde_json::to_string(&pool.labels).map_err(encode)?;
        annotations.insert(annotation::LABELS.to_owned(), labels);
    }
    if !pool.taints.is_empty() {
        let taints = serde_json::to_string(&pool.taints).map_err(encode)?;
        annotations.insert(annotation::TAINTS.to_owned(), taints);
    }
    Ok(annotations)
}

/// The MachineHealthCheck of a pool that asks for one.
pub(super) fn health_check(
    cluster: &Cluster,
    pool: &MachinePool,
) -> Result<Option<MachineHealthCheck>, Problem> {
    let timeout = seconds(pool, "unhealthyNodeTimeout", &pool.unhealthy_node_timeout)?;
    let Some(timeout) = timeout.filter(|timeout| *timeout > 0) else {
        return Ok(None);
    };
    let cluster_name = cluster.name_any();
    let name = naming::of::machine_deployment(&cluster_name, &pool.name);
    let unhealthy = |status: &str| UnhealthyCondition {
        kind: "Ready".to_owned(),
        status: status.to_owned(),
        timeout_seconds: Some(timeout),
    };
    let selected = BTreeMap::from([(capi::label::DEPLOYMENT_NAME.to_owned(), name.clone())]);
    let trigger_if = RemediationTrigger {
        unhealthy_less_than_or_equal_to: pool
            .max_unhealthy
            .as_deref()
            .filter(|text| !text.is_empty())
            .map(|text| number_or_percentage(pool, text))
            .transpose()?,
        unhealthy_in_range: pool.unhealthy_range.clone().unwrap_or_default(),
    };
    let mut check = MachineHealthCheck::new(
        &name,
        MachineHealthCheckSpec {
            cluster_name,
            selector: LabelSelector { match_labels: Some(selected), ..LabelSelector::default() },
            checks: HealthChecks {
                node_startup_timeout_seconds: seconds(
                    pool,
                    "nodeStartupTimeout",
                    &pool.node_startup_timeout,
                )?,
                unhealthy_node_conditions: vec![unhealthy("Unknown"), unhealthy("False")],
                ..HealthChecks::default()
            },
            remediation: HealthRemediation { trigger_if, ..HealthRemediation::default() },
        },
    );
    check.metadata.namespace = cluster.namespace();
    Ok(Some(check))
}

fn seconds(pool: &MachinePool, field: &'static str, text: &Option<String>) -> Result<Option<i32>, Problem> {
    let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let invalid = || Problem::InvalidField { pool: pool.name.clone(), field, value: text.to_owned() };
    duration::seconds(text).filter(|seconds| *seconds >= 0).map(Some).ok_or_else(invalid)
}

fn number_or_percentage(pool: &MachinePool, text: &str) -> Result<IntOrString, Problem> {
    if let Ok(number) = text.parse() {
        return Ok(IntOrString::Int(number));
    }
    let percentage = text.strip_suffix('%').is_some_and(|number| number.parse::<u32>().is_ok());
    if percentage {
        return Ok(IntOrString::String(text.to_owned()));
    }
    Err(Problem::InvalidField { pool: pool.name.clone(), field: "maxUnhealthy", value: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(value: serde_json::Value) -> MachinePool {
        let mut pool =
            json!({"name": "p", "workerRole": true, "machineConfigRef": {"kind": "XConfig", "name": "x"}});
        pool.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(pool).unwrap()
    }

    #[track_caller]
    fn check(pools: &[MachinePool], expected: &str) {
        let found = validate(pools).err().map(|problem| problem.to_string()).unwrap_or_default();
        assert_eq!(found, expected);
    }

    #[test]
    fn pools_are_checked_in_words_people_know() {
        check(&[pool(json!({}))], "");
        check(&[pool(json!({"name": ""}))], "invalid machinePool [] missing name or valid config");
        check(
            &[pool(json!({"machineConfigRef": null}))],
            "invalid machinePool [p] missing name or valid config",
        );
        check(
            &[pool(json!({"workerRole": false}))],
            "at least one role of etcd, control-plane or worker must be assigned to machinePool [p]",
        );
        check(&[pool(json!({})), pool(json!({}))], "duplicate machinePool name [p] used");
    }

    #[test]
    fn a_scaled_deployment_is_told_from_an_edited_pool() {
        let scaled = |quantity, applied: &str, replicas| {
            let deployment: MachineDeployment = serde_json::from_value(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
                "metadata": {"name": "x", "annotations": {REPLICAS: applied}},
                "spec": {"replicas": replicas},
            }))
            .unwrap();
            super::scaled(&pool(json!({"quantity": quantity})), &deployment)
        };
        assert_eq!(scaled(3, "3", 3), None);
        assert_eq!(scaled(3, "3", 5), Some(5));
        assert_eq!(scaled(4, "3", 3), None);
        assert_eq!(scaled(4, "3", 5), None);
        assert_eq!(scaled(3, "x", 5), None);
    }

    #[test]
    fn machines_are_told_the_pool_of_addresses_of_their_pool() {
        let cluster: Cluster =
            serde_json::from_value(json!({"metadata": {"name": "demo"}, "spec": {}})).unwrap();
        let annotations = json!({ADDRESS_POOL: "lan", "else": "stays at the deployment"});
        let named = pool(json!({"machineDeploymentAnnotations": annotations}));
        let found = machine_annotations(&cluster, &named).unwrap();
        assert_eq!(found.get(ADDRESS_POOL).map(String::as_str), Some("lan"));
        assert!(!found.contains_key("else"));
        assert!(!machine_annotations(&cluster, &pool(json!({}))).unwrap().contains_key(ADDRESS_POOL));
    }

    #[test]
    fn labels_of_a_pool_cannot_hide_whose_machines_they_are() {
        let labels = machine_labels(
            "demo",
            "demo-p",
            &pool(
                json!({"labels": {label::ETCD_ROLE: "true", label::CLUSTER_NAME: "other", "tier": "apps"}}),
            ),
            "linux",
        );
        assert_eq!(labels.get(label::ETCD_ROLE), None);
        assert_eq!(labels[label::CLUSTER_NAME], "demo");
        assert_eq!(labels["tier"], "apps");
    }

    #[test]
    fn numbers_and_times_that_are_none_are_problems() {
        let cluster = Cluster::named("demo");
        let fails = |value| health_check(&cluster, &pool(value)).unwrap_err().to_string();
        assert_eq!(
            fails(json!({"unhealthyNodeTimeout": "soon"})),
            "invalid unhealthyNodeTimeout [soon] of machinePool [p]"
        );
        assert_eq!(
            fails(json!({"unhealthyNodeTimeout": "5m", "maxUnhealthy": "all"})),
            "invalid maxUnhealthy [all] of machinePool [p]"
        );
        assert_eq!(health_check(&cluster, &pool(json!({"unhealthyNodeTimeout": "0s"}))), Ok(None));
    }
}
