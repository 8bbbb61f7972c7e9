//! Which Jobs the runner may run.
//!
//! The runner turns a Job into a process of the server's own user. Whoever may make Jobs in some namespace must not
//! become that user by it, so the machine provider seals what it makes: a keyed digest over everything that decides
//! what the process does. The key is in a Secret that only administrators can read, and servers that take over from
//! each other share.

use std::{collections::BTreeMap, sync::Arc};

use aws_lc_rs::hmac;
use k8s_openapi::{
    ByteString,
    api::{
        batch::v1::Job,
        core::v1::{PodSpec, Secret},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, ResourceExt};
use remuda_control::{Ctx, write};
use remuda_names::{
    machines::{annotation, label as machine_label, name},
    rancher::{label, name::SYSTEM},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::error::Error;

/// The key, read when it is first needed. Clones share it.
#[derive(Clone)]
pub(crate) struct Seal {
    ctx: Arc<Ctx>,
    key: Arc<OnceCell<hmac::Key>>,
}

impl Seal {
    pub(crate) fn new(ctx: Arc<Ctx>) -> Self {
        Self { ctx, key: Arc::default() }
    }

    async fn key(&self) -> Result<&hmac::Key, Error> {
        self.key.get_or_try_init(|| self.obtain()).await
    }

    async fn obtain(&self) -> Result<hmac::Key, Error> {
        let fresh: [u8; 32] = rand::random();
        let wanted = Secret {
            metadata: ObjectMeta { name: Some(name::SEAL_SECRET.to_owned()), ..ObjectMeta::default() },
            data: Some(BTreeMap::from([(name::SEAL_KEY.to_owned(), ByteString(fresh.to_vec()))])),
            ..Secret::default()
        };
        let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), SYSTEM);
        let secret = write::get_or_create(&self.ctx, &secrets, &wanted).await?;
        let key = secret.data.unwrap_or_default().remove(name::SEAL_KEY).filter(|key| key.0.len() >= 32);
        let missing = || remuda_control::Error::Incomplete {
            what: format!("Secret {SYSTEM}/{}", name::SEAL_SECRET),
            field: name::SEAL_KEY,
        };
        Ok(hmac::Key::new(hmac::HMAC_SHA256, &key.ok_or_else(missing)?.0))
    }

    /// Seals a Job that is about to be made.
    pub(crate) async fn seal(&self, job: &mut Job) -> Result<(), Error> {
        let tag = hmac::sign(self.key().await?, &content(job));
        let text = remuda_base::hex(tag);
        job.metadata.annotations.get_or_insert_default().insert(annotation::SEAL.to_owned(), text);
        Ok(())
    }

    /// Whether a Job is one that was sealed, in what matters.
    pub(crate) async fn holds(&self, job: &Job) -> Result<bool, Error> {
        let key = self.key().await?;
        let digits = job.annotations().get(annotation::SEAL).map(String::as_str).unwrap_or_default();
        let tag: Option<Vec<u8>> = digits
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()))
            .collect();
        Ok(tag.is_some_and(|tag| hmac::verify(key, &content(job), &tag).is_ok()))
    }
}

/// Everything that decides what a Job's process does, and for whom.
fn content(job: &Job) -> Vec<u8> {
    let empty = PodSpec::default();
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).unwrap_or(&empty);
    let labels = [
        label::INFRA_MACHINE_KIND,
        label::INFRA_MACHINE_NAME,
        label::INFRA_REMOVE,
        label::CAPI_MACHINE_NAME,
        label::CLUSTER_NAME,
    ];
    // Only what the API server fills in by itself is left out.
    let containers: Vec<_> = pod
        .containers
        .iter()
        .map(|container| {
            let mounts = container.volume_mounts.as_deref().unwrap_or_default();
            let mounts: Vec<_> = mounts.iter().map(|mount| (&mount.name, &mount.mount_path)).collect();
            let sources = container.env_from.as_deref().unwrap_or_default();
            let sources: Vec<_> =
                sources.iter().map(|source| source.secret_ref.as_ref().map(|secret| &secret.name)).collect();
            json!([container.name, container.command, container.args, sources, container.env, mounts])
        })
        .collect();
    let volumes = pod.volumes.as_deref().unwrap_or_default();
    let volumes: Vec<_> = volumes
        .iter()
        .map(|volume| (&volume.name, volume.secret.as_ref().and_then(|secret| secret.secret_name.as_ref())))
        .collect();
    let mut sealed = json!({
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "labels": labels.map(|key| job.labels().get(key)),
        "account": pod.service_account_name,
        "containers": containers,
        "volumes": volumes,
    });
    // Where it runs, for those that cannot run anywhere.
    if let Some(host) = job.labels().get(machine_label::HOST) {
        sealed["host"] = host.as_str().into();
    }
    sealed.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_about_a_process_is_in_the_seal() {
        let job = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut job = json!({
                "metadata": {"name": "j", "namespace": "a", "labels": {"rke.cattle.io/infra-machine-name": "m"}},
                "spec": {"template": {"spec": {
                    "serviceAccountName": "s",
                    "containers": [{
                        "name": "machine", "args": ["rm", "m"],
                        "envFrom": [{"secretRef": {"name": "env"}}],
                        "volumeMounts": [{"name": "v", "mountPath": "/run"}],
                    }],
                    "volumes": [{"name": "v", "secret": {"secretName": "boot"}}],
                }}},
            });
            change(&mut job);
            content(&serde_json::from_value(job).unwrap())
        };
        let plain = job(&|_| {});
        let same = job(&|job| job["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst".into());
        assert_eq!(plain, same);
        let pod = "/spec/template/spec";
        for (place, value) in [
            ("/metadata/namespace".to_owned(), json!("b")),
            ("/metadata/labels/rke.cattle.io~1infra-machine-name".to_owned(), json!("n")),
            (format!("{pod}/serviceAccountName"), json!("t")),
            (format!("{pod}/containers/0/args/0"), json!("create")),
            (format!("{pod}/containers/0/envFrom/0/secretRef/name"), json!("other")),
            (format!("{pod}/containers/0/volumeMounts/0/mountPath"), json!("/etc")),
            (format!("{pod}/volumes/0/secret/secretName"), json!("other")),
        ] {
            let changed = job(&|job| *job.pointer_mut(&place).unwrap() = value.clone());
            assert_ne!(plain, changed, "{place}");
        }
    }
}
