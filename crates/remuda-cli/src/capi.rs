//! `remuda capi`: what Cluster API's own tools need of the server, and what they did to it.
//!
//! `remuda capi repository` is in [`repository`], `remuda capi provider` in [`provider`]. `remuda capi reclaim` gives the kinds of Cluster API back to the server.
//!
//! `clusterctl upgrade` or a manifest of upstream's core provider may have been put over the server's own, when it let
//! them: definitions with conversion webhooks, and webhooks of which nothing answers, so that every write of these
//! kinds fails. What was put there is undone; objects of these kinds stay as they are.

pub mod provider;
mod repository;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kube::api::ApiResource;
use remuda_api::{
    clusterctl::{self, CORE, CORE_NAMESPACE, CORE_VERSION},
    crd,
};
use remuda_names::{annotation, capi::group};
use serde_json::{Value, json};

use crate::{
    api::{self, Which},
    failure::{Code, Failure},
    object::Object,
    session::{Global, Session},
};

#[derive(Args, Debug)]
pub struct Capi {
    #[command(subcommand)]
    pub command: CapiCommand,

    #[command(flatten)]
    pub global: Global,
}

#[derive(Subcommand, Debug)]
pub enum CapiCommand {
    /// Look at providers others make, and run their programs beside the server
    Provider(provider::Provider),
    /// Remove definitions and webhooks another core provider has put over the server's own
    #[command(
        after_help = "Webhooks that something answers are left, and then nothing is changed: another core provider runs.

Examples:
  remuda capi reclaim --dry-run       what would be changed
  remuda capi reclaim"
    )]
    Reclaim {
        /// Only say what would be changed
        #[arg(long)]
        dry_run: bool,
    },
    /// Write the releases of the server's providers into a directory, for clusterctl
    #[command(
        after_help = "In them are templates of clusters: the default and `local`, `custom`, and one for each driver.

Examples:
  remuda capi repository clusterctl
  clusterctl --config clusterctl/clusterctl.yaml generate cluster demo \\
    --kubernetes-version v1.35.1 -n fleet-default | kubectl apply -f -"
    )]
    Repository {
        /// An empty or a new directory, or one that was written before
        dir: PathBuf,
    },
}

pub(crate) async fn run(session: &Session, capi: Capi) -> Result<(), Failure> {
    match capi.command {
        CapiCommand::Provider(provider) => provider::run(session, &capi.global, provider.command).await,
        CapiCommand::Reclaim { dry_run } => reclaim(session, dry_run).await,
        CapiCommand::Repository { dir } => repository::run(session, &dir).await,
    }
}

fn configurations() -> [ApiResource; 2] {
    let of = |kind: &str| {
        api::resource("admissionregistration.k8s.io", "v1", kind, &format!("{}s", kind.to_lowercase()))
    };
    [of("MutatingWebhookConfiguration"), of("ValidatingWebhookConfiguration")]
}

fn definitions() -> ApiResource {
    api::resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
}

async fn reclaim(session: &Session, dry_run: bool) -> Result<(), Failure> {
    let client = &session.client;
    let webhooks = stray_webhooks(session).await?;
    let mut changed = 0;
    let mut said = |text: String| {
        changed += 1;
        session.out.line(&if dry_run { format!("{text} (dry run)") } else { text });
    };
    // The webhooks first: they are in the way of what follows.
    for (resource, name) in &webhooks {
        api::delete(client, resource, None, name, dry_run).await?;
        said(format!("{} {name} is deleted", resource.kind));
    }
    for shipped in crd::all() {
        let name = shipped["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let Some(live) = api::get(client, &definitions(), None, &name).await? else { continue };
        // Those of another provider are that one's.
        if !is_taken(&live.0) || !crd::is_of_core(&name) {
            continue;
        }
        check_stored(&live.0, &shipped)?;
        let definition = Object(restored(&live.0, &shipped));
        api::replace(client, &definitions(), None, &definition, dry_run).await?;
        said(format!("CustomResourceDefinition {name} is the server's again"));
    }
    let inventory = api::resource(group::CLUSTERCTL, "v1alpha3", "Provider", "providers");
    if let Some(mut entry) = api::get(client, &inventory, Some(CORE_NAMESPACE), CORE).await?
        && entry.0["version"] != CORE_VERSION
    {
        let theirs = entry.0["version"].as_str().unwrap_or_default().to_owned();
        entry.0["version"] = CORE_VERSION.into();
        entry.0["metadata"]["annotations"][annotation::SHIPPED] = crd::REVISION.to_string().into();
        api::replace(client, &inventory, Some(CORE_NAMESPACE), &entry, dry_run).await?;
        said(format!("the inventory says {CORE_VERSION} instead of {theirs}"));
    }
    if changed == 0 {
        session.out.line("the kinds of Cluster API are the server's; there is nothing to reclaim");
    }
    Ok(())
}

/// Webhooks of another core provider that nothing answers. One that is answered is a reason to change nothing.
async fn stray_webhooks(session: &Session) -> Result<Vec<(ApiResource, String)>, Failure> {
    let client = &session.client;
    let mut strays = Vec::new();
    for resource in configurations() {
        let found = api::list(client, &resource, None, Which::All).await?;
        for configuration in found.into_iter().filter(|one| clusterctl::is_core(&one.0)) {
            for service in clusterctl::webhook_services(&configuration.0) {
                let kind = api::resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
                let slices = api::list(client, &kind, Some(&service.0), Which::All).await?;
                let slices: Vec<Value> = slices.into_iter().map(|slice| slice.0).collect();
                if clusterctl::is_served(&slices, &service) {
                    let message = format!(
                        "{} {} is served by {}/{}: another core provider of Cluster API runs",
                        resource.kind,
                        configuration.name(),
                        service.0,
                        service.1
                    );
                    let hint =
                        "stop it and delete its EndpointSlices, or run this server with --controllers=false";
                    return Err(Failure::new(Code::Invalid, message).hint(hint));
                }
            }
            strays.push((resource.clone(), configuration.name().to_owned()));
        }
    }
    Ok(strays)
}

/// Whether a definition is no longer kept by the server.
fn is_taken(live: &Value) -> bool {
    live["spec"]["conversion"]["strategy"] == "Webhook"
        || live["metadata"]["annotations"].get(annotation::SHIPPED).is_none()
}

/// An older schema must not lose objects of a version it does not know.
fn check_stored(live: &Value, shipped: &Value) -> Result<(), Failure> {
    let names = |versions: &Value| -> Vec<String> {
        let versions = versions.as_array().into_iter().flatten();
        versions.filter_map(|version| version["name"].as_str().map(str::to_owned)).collect()
    };
    let known = names(&shipped["spec"]["versions"]);
    let stored = live["status"]["storedVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for version in stored {
        if !known.iter().any(|known| known == version) {
            let name = shipped["metadata"]["name"].as_str().unwrap_or_default();
            let message =
                format!("objects of {name} may be stored as {version}, which this program does not know");
            return Err(Failure::new(Code::Invalid, message).hint("a newer server knows it"));
        }
    }
    Ok(())
}

/// The shipped definition in the place of the live one. What others added to labels and annotations stays, but for
/// what fills in the certificates of webhooks.
fn restored(live: &Value, shipped: &Value) -> Value {
    let mut definition = live.clone();
    definition["spec"] = shipped["spec"].clone();
    for field in ["labels", "annotations"] {
        for (key, value) in shipped["metadata"][field].as_object().into_iter().flatten() {
            definition["metadata"][field][key] = value.clone();
        }
    }
    if let Some(annotations) = definition["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with("cert-manager.io/inject-"));
    }
    definition["metadata"]["annotations"][annotation::SHIPPED] = json!(crd::REVISION.to_string());
    definition
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_put_back_with_what_others_added_to_its_metadata() {
        let shipped = crd::named("machines.cluster.x-k8s.io").unwrap();
        let mut live = shipped.clone();
        live["metadata"]["labels"]["mine"] = "x".into();
        live["metadata"]["resourceVersion"] = "7".into();
        live["metadata"]["annotations"] = json!({"cert-manager.io/inject-ca-from": "a/b"});
        live["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {}});
        live["status"]["storedVersions"] = json!(["v1beta2"]);
        assert!(is_taken(&live));
        check_stored(&live, &shipped).unwrap();
        let back = restored(&live, &shipped);
        assert!(!is_taken(&back));
        assert_eq!(back["spec"], shipped["spec"]);
        assert_eq!(
            (&back["metadata"]["labels"]["mine"], &back["metadata"]["resourceVersion"]),
            (&json!("x"), &json!("7"))
        );
        assert!(back["metadata"]["annotations"].get("cert-manager.io/inject-ca-from").is_none());
        live["status"]["storedVersions"] = json!(["v1beta3"]);
        assert!(check_stored(&live, &shipped).unwrap_err().message.contains("v1beta3"));
    }
}
