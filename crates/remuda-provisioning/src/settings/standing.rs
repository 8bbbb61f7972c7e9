//! The URL agents know a server by, which outlives the host the server runs on.
//!
//! Node agents keep the URL they registered at, and that of cluster agents is in plans. So a server that was restored
//! elsewhere, or is started with other addresses, keeps the URL it has: it is for the name service, or whatever stands in
//! front, to lead there.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::ListParams};
use remuda_api::management::{Cluster, Setting};
use remuda_control::Ctx;
use remuda_names::{
    agent::key,
    rancher::{condition, name::LOCAL, secret_type, setting},
};

use crate::Error;

/// Plans are large, and the first report says enough.
const PAGE: u32 = 50;

/// The URL of a server that would call itself `own`: the one it has, while agents know it by that.
pub async fn server_url(ctx: &Ctx, own: &str) -> Result<String, Error> {
    let settings: Api<Setting> = Api::all(ctx.client.clone());
    let read = settings.get_opt(setting::SERVER_URL).await;
    let found = read.map_err(Error::api("read", "settings.management.cattle.io server-url"))?;
    match found.map(|found| found.default).filter(|stored| !stored.is_empty() && stored != own) {
        Some(stored) if is_known_to_agents(ctx).await? => {
            tracing::warn!(
                server_url = stored,
                started_as = own,
                "agents know this server by another URL than it was started with, which stays unless the setting \
                 server-url says otherwise"
            );
            Ok(stored)
        }
        _ => Ok(own.to_owned()),
    }
}

/// Whether the agent of a machine has reported, or that of a cluster has connected. Machines whose agents never came may
/// have been told a URL that is wrong: that is to be changed.
async fn is_known_to_agents(ctx: &Ctx) -> Result<bool, Error> {
    let secrets: Api<Secret> = Api::all(ctx.client.clone());
    let mut page = ListParams::default().fields(&format!("type={}", secret_type::PLAN)).limit(PAGE);
    loop {
        let plans = secrets.list(&page).await.map_err(Error::api("list", "plan Secrets"))?;
        let reported = |plan: &Secret| {
            plan.data.as_ref().is_some_and(|data| key::REPORTED.iter().any(|name| data.contains_key(*name)))
        };
        if plans.items.iter().any(reported) {
            return Ok(true);
        }
        match plans.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    let clusters: Api<Cluster> = Api::all(ctx.client.clone());
    let clusters = clusters.list(&ListParams::default()).await;
    let clusters = clusters.map_err(Error::api("list", "clusters.management.cattle.io"))?;
    Ok(clusters.items.iter().any(|cluster| {
        let mut conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        let is_local = cluster.name_any() == LOCAL || cluster.spec.internal;
        !is_local && conditions.any(|one| one.kind == condition::CONNECTED && one.status == "True")
    }))
}
