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
use remuda_names::rancher::{annotation::driver as annotation, group};

use crate::error::Error;

/// What people are told about a driver that comes with us.
struct Known {
    name: &'static str,
    description: &'static str,
    credential: bool,
    annotations: &'static [(&'static str, &'static str)],
}

const KNOWN: &[Known] = &[
    Known {
        name: "amazonec2",
        description: "Instances of Amazon EC2",
        credential: true,
        annotations: &[
            (annotation::PUBLIC_CREDENTIALS, "accessKey"),
            (annotation::PRIVATE_CREDENTIALS, "secretKey"),
            (annotation::FILE_ALIASES, "sshKeyContents:sshKeypath,userdata:userdata"),
        ],
    },
    Known {
        name: "digitalocean",
        description: "Droplets of DigitalOcean",
        credential: false,
        annotations: &[
            (annotation::PRIVATE_CREDENTIALS, "accessToken"),
            (annotation::FILE_ALIASES, "sshKeyContents:sshKeyPath,userdata:userdata"),
        ],
    },
    Known {
        name: "generic",
        description: "Servers that exist, reached over SSH",
        credential: false,
        annotations: &[(annotation::FILE_ALIASES, "sshKey:sshKey")],
    },
    Known {
        name: "local",
        description: "Machines inside the server's own host, to try things out",
        credential: false,
        annotations: &[(annotation::FILE_ALIASES, "userData:userData")],
    },
];

pub(crate) fn node_driver(name: &str, active: bool) -> NodeDriver {
    let known = KNOWN.iter().find(|known| known.name == name);
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
fn roles_for_kinds() -> [ClusterRole; 2] {
    let role =
        |name: &str, verbs: &[&str], parts: &[&str]| ClusterRole {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(BTreeMap::from_iter(parts.iter().map(|part| {
                    (format!("rbac.authorization.k8s.io/aggregate-to-{part}"), "true".to_owned())
                }))),
                ..ObjectMeta::default()
            },
            rules: Some(vec![PolicyRule {
                api_groups: Some(vec![group::MACHINE_CONFIG.to_owned(), group::MACHINE.to_owned()]),
                resources: Some(vec!["*".to_owned()]),
                verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
                ..PolicyRule::default()
            }]),
            ..ClusterRole::default()
        };
    let edit = ["create", "delete", "deletecollection", "patch", "update", "get", "list", "watch"];
    [
        role("remuda:machine-kinds:edit", &edit, &["admin", "edit"]),
        role("remuda:machine-kinds:view", &["get", "list", "watch"], &["view"]),
    ]
}
