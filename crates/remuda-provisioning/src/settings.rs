//! Settings and namespaces that everything else relies on.
//!
//! Settings get the defaults this server was started with; a value that a user set stays and wins. The server's URL is
//! the exception: while agents know one, no start of a server takes it from them (`standing`).

pub(crate) mod standing;

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::management::Setting;
use remuda_control::{Chain, Ctx, Informer, ObjectKey, Scope, write::get_or_create};
use remuda_names::{
    cluster_agent,
    rancher::{name, setting},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Error, Options};

/// How long until what could not be ensured is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// Objects in clusters are the same for ours and for the original, which everybody can pull.
const AUTH_IMAGE: &str = "rancher/kube-api-auth:v0.15.0";
/// Namespaces there always are.
pub const NAMESPACES: [&str; 4] = [name::FLEET_DEFAULT, name::FLEET_LOCAL, name::GLOBAL_DATA, name::SYSTEM];

/// Settings as they are now.
#[derive(Debug, Clone)]
pub(crate) struct Settings(Informer<Setting>);

impl Settings {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        Self(ctx.informers.of(Scope::all()))
    }

    pub(crate) fn informer(&self) -> &Informer<Setting> {
        &self.0
    }

    /// The effective value; empty if there is none.
    pub(crate) fn get(&self, name: &str) -> String {
        let setting = self.0.get(&ObjectKey::cluster_wide(name));
        setting.map(|setting| setting.effective().to_owned()).unwrap_or_default()
    }

    /// Where clusters are reached, and by which certificates.
    pub(crate) fn server(&self) -> Server {
        let url = self.get(setting::SERVER_URL);
        let ca = self.get(setting::CACERTS);
        let internal = self.get(setting::INTERNAL_CACERTS);
        Server {
            url: url.trim_end_matches('/').to_owned(),
            internal_ca: if internal.trim().is_empty() { ca.clone() } else { internal },
            ca,
        }
    }
}

/// Where this server is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) url: String,
    /// PEM; empty if certificates of the system will do.
    pub(crate) ca: String,
    /// The same, for those who come from within.
    pub(crate) internal_ca: String,
}

/// Names and defaults of the settings there always are.
pub(crate) fn defaults(options: &Options) -> Vec<(&'static str, String)> {
    let agent_image = match (options.agent_image.as_str(), options.server_version.as_str()) {
        ("", "") => format!("{}:latest", cluster_agent::IMAGE),
        ("", version) => format!("{}:{version}", cluster_agent::IMAGE),
        (image, _) => image.to_owned(),
    };
    let own = [
        (setting::SERVER_URL, options.server_url.clone()),
        (setting::CACERTS, options.ca_pem.clone()),
        (setting::INTERNAL_CACERTS, options.internal_ca_pem.clone()),
        (setting::AGENT_TLS_MODE, options.agent_tls_mode.clone()),
        (setting::INSTALLER_IMAGE, options.installer_image.clone()),
        (setting::SYSTEM_DEFAULT_REGISTRY, options.default_registry.clone()),
        (setting::SYSTEM_AGENT_VERSION, options.system_agent_version.clone()),
        (setting::AGENT_IMAGE, agent_image),
        (setting::AUTH_IMAGE, AUTH_IMAGE.to_owned()),
        (setting::RELEASE_DATA, String::new()),
        (setting::SERVER_VERSION, options.server_version.clone()),
        (setting::K8S_VERSION, String::new()),
        (setting::UI_DEFAULT_LANDING, "vue".to_owned()),
        (setting::UI_VENDOR, String::new()),
        (setting::UI_BANNERS, "{}".to_owned()),
        (setting::UI_BRAND, String::new()),
        (setting::UI_ISSUES, String::new()),
        (setting::UI_PERFORMANCE, String::new()),
        (setting::UI_CUSTOM_LINKS, String::new()),
        // This server has no community of Rancher's behind it: its links would lead to people who know nothing of it.
        (setting::UI_COMMUNITY_LINKS, "false".to_owned()),
        (setting::FIRST_LOGIN, "false".to_owned()),
        (setting::TELEMETRY, "out".to_owned()),
        (setting::TOKEN_TTL, String::new()),
        (setting::TOKEN_GRACE, String::new()),
    ];
    own.into_iter().chain(options.other_settings.iter().cloned()).collect()
}

/// Ensures all, and tries again until it is done or told to stop.
pub(crate) async fn keep_ensuring(ctx: &Ctx, options: &Options, stop: &CancellationToken) {
    loop {
        match ensure(ctx, options).await {
            Ok(()) => return,
            Err(error) => tracing::warn!(error = %Chain(&error), "settings cannot be ensured yet"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

async fn ensure(ctx: &Ctx, options: &Options) -> Result<(), Error> {
    let namespaces: Api<Namespace> = Api::all(ctx.client.clone());
    for name in NAMESPACES {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        get_or_create(ctx, &namespaces, &namespace).await?;
    }
    let settings: Api<Setting> = Api::all(ctx.client.clone());
    for (name, mut default) in defaults(options) {
        if name == setting::SERVER_URL {
            default = standing::server_url(ctx, &default).await?;
        }
        let mut wanted = Setting::named(name);
        wanted.default.clone_from(&default);
        wanted.source = "default".to_owned();
        let found = get_or_create(ctx, &settings, &wanted).await?;
        if found.default != default {
            write(ctx, &settings, &found, json!({"default": default})).await?;
        }
    }
    let mut uuid = Setting::named(setting::INSTALL_UUID);
    uuid.value = uuid::Uuid::new_v4().to_string();
    let found = get_or_create(ctx, &settings, &uuid).await?;
    if found.effective().is_empty() {
        write(ctx, &settings, &found, json!({"value": uuid.value})).await?;
    }
    Ok(())
}

async fn write(
    ctx: &Ctx,
    settings: &Api<Setting>,
    found: &Setting,
    mut patch: serde_json::Value,
) -> Result<(), Error> {
    patch["metadata"] = json!({"resourceVersion": found.metadata.resource_version});
    let params = PatchParams { field_manager: Some(ctx.field_manager.to_string()), ..PatchParams::default() };
    let name = found.name_any();
    let written = settings.patch(&name, &params, &Patch::Merge(patch)).await;
    written.map(drop).map_err(Error::api("write", format!("settings.management.cattle.io {name}")))
}
