//! NodeDrivers for the drivers inside the program, and the rights everybody has on their kinds.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::rbac::v1::{ClusterRole, PolicyRule},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Api;
use remuda_api::management::{NodeDriver, NodeDriverSpec};
use remuda_control::{Ctx, write};
use remuda_drivers::{builtin::Registry, install::BUILT_IN};
use remuda_names::{driver::facts, machines::class, rancher::group};

use crate::error::Error;

pub(crate) fn node_driver(name: &str, active: bool) -> NodeDriver {
    let known = facts(name).listing;
    let mut driver = NodeDriver::named(name);
    driver.spec = NodeDriverSpec {
        display_name: name.to_owned(),
        description: known.map(|known| known.description.to_owned()).unwrap_or_default(),
        url: BUILT_IN.to_owned(),
        builtin: true,
        active,
        add_cloud_credential: known.is_some_and(|known| known.credential),
        ..NodeDriverSpec::default()
    };
    let annotations = known.map(|known| known.annotations).unwrap_or_default();
    if !annotations.is_empty() {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        driver.metadata.annotations = Some(annotations.collect());
    }
    driver
}

/// Makes the NodeDrivers there should be. One that exists belongs to whoever changed it.
pub(crate) async fn ensure(ctx: &Ctx, drivers: &Registry) -> Result<(), Error> {
    let api: Api<NodeDriver> = Api::all(ctx.client.clone());
    for (name, active) in drivers.names() {
        write::get_or_create(ctx, &api, &node_driver(name, active)).await?;
    }
    let roles: Api<ClusterRole> = Api::all(ctx.client.clone());
    for role in roles_for_kinds() {
        write::get_or_create(ctx, &roles, &role).await?;
    }
    Ok(())
}

/// Whoever may edit or view a namespace may do so with the kinds of drivers, whichever there are.
fn roles_for_kinds() -> [ClusterRole; 3] {
    let role =
        |name: &str, rule: PolicyRule, parts: &[&str]| ClusterRole {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(BTreeMap::from_iter(parts.iter().map(|part| {
                    (format!("rbac.authorization.k8s.io/aggregate-to-{part}"), "true".to_owned())
                }))),
                ..ObjectMeta::default()
            },
            rules: Some(vec![rule]),
            ..ClusterRole::default()
        };
    let owned = |list: &[&str]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
    let kinds = |verbs: &[&str]| PolicyRule {
        api_groups: Some(owned(&[group::MACHINE_CONFIG, group::MACHINE])),
        resources: Some(owned(&["*"])),
        verbs: owned(verbs),
        ..PolicyRule::default()
    };
    let cloud = PolicyRule {
        api_groups: Some(owned(&[group::MANAGEMENT])),
        resources: Some(owned(&[class::RESOURCE])),
        resource_names: Some(owned(&[class::CLOUD])),
        verbs: owned(&[class::USE]),
        ..PolicyRule::default()
    };
    let edit = ["create", "delete", "deletecollection", "patch", "update", "get", "list", "watch"];
    [
        role("remuda:machine-kinds:edit", kinds(&edit), &["admin", "edit"]),
        role("remuda:machine-kinds:view", kinds(&["get", "list", "watch"]), &["view"]),
        role("remuda:cloud-drivers:use", cloud, &["admin", "edit"]),
    ]
}
