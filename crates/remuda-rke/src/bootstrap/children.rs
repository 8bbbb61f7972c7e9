//! What belongs to an RKEBootstrap: the plan Secret and who may read it, and what the machine boots with.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{Secret, ServiceAccount},
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
};
use kube::{Resource, ResourceExt, core::ObjectMeta};
use remuda_api::{
    core::{Cluster, Machine},
    rke::RkeBootstrap,
};
use remuda_control::write::is_controlled_by;
use remuda_names::{
    annotation::APPLIED,
    capi::{annotation as capi_annotation, group},
    gateway::secret::{ACCOUNT_NAME, ACCOUNT_TOKEN_TYPE},
    rancher::{annotation, label, secret_key, secret_type},
};
use remuda_plan::{naming::safe_concat_name, sha256_hex};
use serde::Serialize;

use crate::objects;

/// What the machine boots with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Payload {
    /// Nothing any more: the machine is going.
    Withdrawn,
    /// There is an account, and no token yet.
    Pending,
    Ready(String),
}

/// Everything there should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Children {
    pub(super) accounts: Vec<ServiceAccount>,
    pub(super) role: Role,
    pub(super) binding: RoleBinding,
    pub(super) secrets: Vec<Secret>,
}

/// Token Secret of an account.
pub(super) fn token_name(account: &str) -> String {
    safe_concat_name(&[account, "token"])
}

pub(super) fn children(
    bootstrap: &RkeBootstrap,
    machine: &Machine,
    cluster: &Cluster,
    payload: &Payload,
) -> Children {
    let name = bootstrap.name_any();
    let plan = objects::plan_name(&name);
    let boot = objects::bootstrap_name(&name);
    let namespace = bootstrap.namespace().unwrap_or_default();
    let account = |account: &str, role: &str| {
        let mut labels = BTreeMap::from([
            (label::MACHINE_NAME.to_owned(), machine.name_any()),
            (label::SERVICE_ACCOUNT_ROLE.to_owned(), role.to_owned()),
        ]);
        if role == "plan" {
            labels.insert(label::PLAN_SECRET_NAME.to_owned(), plan.clone());
        }
        let token = format!("{namespace}/{}", token_name(account));
        ServiceAccount {
            metadata: ObjectMeta {
                annotations: Some([(annotation::SERVICE_ACCOUNT_SECRET_REF.to_owned(), token)].into()),
                ..named(account, labels)
            },
            ..ServiceAccount::default()
        }
    };
    let mut accounts = vec![account(&plan, "plan")];
    let mut secrets = vec![plan_secret(bootstrap, machine, cluster, &plan), token(&plan, false)];
    if *payload != Payload::Withdrawn {
        accounts.push(account(&boot, "bootstrap"));
        secrets.push(token(&boot, true));
    }
    if let Payload::Ready(text) = payload {
        secrets.push(Secret {
            metadata: named(&boot, [(label::MACHINE_NAME.to_owned(), machine.name_any())].into()),
            type_: Some(secret_type::BOOTSTRAP.to_owned()),
            data: Some([(secret_key::VALUE.to_owned(), ByteString(text.clone().into_bytes()))].into()),
            ..Secret::default()
        });
    }
    let mut children = Children { accounts, role: role(&plan), binding: binding(&plan, &namespace), secrets };
    children.stamp();
    children
}

fn named(name: &str, labels: BTreeMap<String, String>) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

/// The Secret through which planner and agent talk. It is made without data: that is theirs.
fn plan_secret(bootstrap: &RkeBootstrap, machine: &Machine, cluster: &Cluster, name: &str) -> Secret {
    let mut labels = bootstrap.labels().clone();
    let own = [
        (label::MACHINE_NAME, machine.name_any()),
        (label::CLUSTER_NAME, bootstrap.spec.cluster_name.clone()),
        (label::BACKUP, "true".to_owned()),
        (label::lifecycle::MACHINE_GROUP, group::CORE.to_owned()),
        (label::lifecycle::MACHINE_KIND, "Machine".to_owned()),
        (label::lifecycle::MACHINE_NAME, machine.name_any()),
        (label::lifecycle::CLUSTER_GROUP, group::CORE.to_owned()),
        (label::lifecycle::CLUSTER_KIND, "Cluster".to_owned()),
        (label::lifecycle::CLUSTER_NAME, cluster.name_any()),
    ];
    labels.extend(own.map(|(key, value)| (key.to_owned(), value)));
    let mut annotations = bootstrap.annotations().clone();
    for key in [capi_annotation::LAST_APPLIED, APPLIED] {
        annotations.remove(key);
    }
    Secret {
        metadata: ObjectMeta { annotations: Some(annotations), ..named(name, labels) },
        type_: Some(secret_type::PLAN.to_owned()),
        ..Secret::default()
    }
}

/// A Secret that the API fills with a token of an account.
fn token(account: &str, bootstrap: bool) -> Secret {
    let mut annotations = BTreeMap::from([(ACCOUNT_NAME.to_owned(), account.to_owned())]);
    if bootstrap {
        annotations.insert(annotation::BOOTSTRAP_TOKEN.to_owned(), "true".to_owned());
    }
    let labels = [(label::SERVICE_ACCOUNT_NAME.to_owned(), account.to_owned())].into();
    Secret {
        metadata: ObjectMeta { annotations: Some(annotations), ..named(&token_name(account), labels) },
        type_: Some(ACCOUNT_TOKEN_TYPE.to_owned()),
        ..Secret::default()
    }
}

/// An agent sees its own plan and nothing else.
fn role(name: &str) -> Role {
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        resource_names: Some(vec![name.to_owned()]),
        verbs: ["watch", "get", "update", "list"].map(str::to_owned).into(),
        ..PolicyRule::default()
    };
    Role { metadata: named(name, BTreeMap::new()), rules: Some(vec![rule]) }
}

fn binding(name: &str, namespace: &str) -> RoleBinding {
    let account = Subject {
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Subject::default()
    };
    RoleBinding {
        metadata: named(name, BTreeMap::new()),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: name.to_owned(),
        },
        subjects: Some(vec![account]),
    }
}

impl Children {
    /// Writes on each child what it was applied as.
    fn stamp(&mut self) {
        self.accounts.iter_mut().for_each(stamp);
        stamp(&mut self.role);
        stamp(&mut self.binding);
        self.secrets.iter_mut().for_each(stamp);
    }
}

fn stamp<K: Resource + Serialize>(child: &mut K) {
    // Objects of the API always have a text.
    let text = serde_json::to_vec(child).unwrap_or_default();
    let mut digest = sha256_hex(&text);
    digest.truncate(32);
    child.meta_mut().annotations.get_or_insert_default().insert(APPLIED.to_owned(), digest);
}

/// Whether `existing` is what `wanted` makes of it, as far as metadata tell: it was applied as this, it is
/// ours, and nobody took anything away since.
pub(super) fn is_applied(existing: &ObjectMeta, wanted: &ObjectMeta, owner: &str) -> bool {
    let has = |existing: &Option<BTreeMap<String, String>>, wanted: &Option<BTreeMap<String, String>>| {
        let existing = existing.as_ref();
        wanted.iter().flatten().all(|(key, value)| existing.and_then(|map| map.get(key)) == Some(value))
    };
    existing.deletion_timestamp.is_none()
        && is_controlled_by(existing, owner)
        && has(&existing.labels, &wanted.labels)
        && has(&existing.annotations, &wanted.annotations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(payload: &Payload) -> Children {
        let mut bootstrap = RkeBootstrap::named("demo-abc");
        bootstrap.metadata.namespace = Some("fleet-default".into());
        bootstrap.spec.cluster_name = "demo".into();
        bootstrap.metadata.labels = Some([(label::ETCD_ROLE.into(), "true".into())].into());
        bootstrap.metadata.annotations = Some(
            [(annotation::TAINTS.into(), "[]".into()), (capi_annotation::LAST_APPLIED.into(), "{}".into())]
                .into(),
        );
        let mut machine = Machine::default();
        machine.metadata.name = Some("m-1".into());
        let mut cluster = Cluster::default();
        cluster.metadata.name = Some("demo".into());
        children(&bootstrap, &machine, &cluster, payload)
    }

    fn names(children: &Children) -> String {
        let accounts = children.accounts.iter().map(ResourceExt::name_any);
        let secrets = children.secrets.iter().map(ResourceExt::name_any);
        let all: Vec<String> = accounts.chain(secrets).collect();
        all.join(" ").replace("demo-abc-machine-", "")
    }

    #[test]
    fn what_a_machine_boots_with_comes_with_its_token_and_goes_with_the_machine() {
        assert_eq!(names(&made(&Payload::Withdrawn)), "plan plan plan-token");
        assert_eq!(names(&made(&Payload::Pending)), "plan bootstrap plan plan-token bootstrap-token");
        let ready = made(&Payload::Ready("script".into()));
        assert_eq!(names(&ready), "plan bootstrap plan plan-token bootstrap-token bootstrap");
        assert_eq!(ready.secrets[3].data.as_ref().unwrap()["value"].0, b"script");
    }

    #[test]
    fn a_plan_secret_has_the_labels_of_its_bootstrap_and_no_data() {
        let children = made(&Payload::Pending);
        let plan = &children.secrets[0];
        assert_eq!(plan.data, None);
        assert_eq!(plan.labels()[label::ETCD_ROLE], "true");
        assert_eq!(plan.labels()[label::CLUSTER_NAME], "demo");
        assert_eq!(plan.labels()[label::lifecycle::MACHINE_NAME], "m-1");
        assert_eq!(plan.annotations()[annotation::TAINTS], "[]");
        assert!(!plan.annotations().contains_key(capi_annotation::LAST_APPLIED));
        let rule = &children.role.rules.as_ref().unwrap()[0];
        assert_eq!(rule.resource_names.as_ref().unwrap(), &["demo-abc-machine-plan"]);
    }

    #[test]
    fn a_child_is_applied_while_it_keeps_what_it_was_given() {
        let children = made(&Payload::Pending);
        let wanted = &children.secrets[0].metadata;
        let mut existing = wanted.clone();
        assert!(!is_applied(&existing, wanted, "1"), "nobody owns it");
        existing.owner_references =
            Some(vec![k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
                uid: "1".into(),
                controller: Some(true),
                ..Default::default()
            }]);
        existing.labels.as_mut().unwrap().insert("theirs".into(), "x".into());
        assert!(is_applied(&existing, wanted, "1"));
        assert!(!is_applied(&existing, wanted, "2"));
        existing.labels.as_mut().unwrap().remove(label::BACKUP);
        assert!(!is_applied(&existing, wanted, "1"));
    }
}
