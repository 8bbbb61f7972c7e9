//! What runs on the API of this server: who gets which way to workload clusters, and which options.

use std::{path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use http::{Request, Response, header, request::Parts};
use http_body_util::{BodyExt, Full};
use remuda_apiserver::{ApiServer, Peer};
use remuda_control::Ctx;
use remuda_drivers::builtin::Registry;
use remuda_gateway::{Authenticate, Caller, Gateway, GatewayOptions, TunnelConnect};
use remuda_workload::{KubeconfigSecret, Workloads};
use serde::Deserialize;
use serde_json::json;

use crate::{
    controllers::{Run, group},
    front,
};

/// What the groups are told about the server they run in.
pub struct Site {
    pub ctx: Arc<Ctx>,
    pub gateway: Gateway,
    /// Where nodes, agents and people reach this server.
    pub server_url: String,
    /// Where programs on this machine do.
    pub local_url: String,
    /// By which they trust it; empty if those of the system will do.
    pub ca_pem: String,
    pub data_dir: PathBuf,
}

/// All of them, with the drivers that come with us.
pub fn all(site: &Site) -> Vec<Run> {
    with_drivers(site, Registry::standard())
}

/// All of them, with these drivers.
pub fn with_drivers(site: &Site, drivers: Registry) -> Vec<Run> {
    let other = Arc::new(KubeconfigSecret::new(&site.ctx));
    let connect = Arc::new(TunnelConnect::new(&site.gateway, Some(other)));
    let workloads = Workloads::new(site.ctx.clone(), remuda_workload::Options::default(), connect);
    let settings = remuda_provisioning::Options {
        server_url: site.server_url.clone(),
        ca_pem: site.ca_pem.clone(),
        system_agent_version: format!("v{}", env!("CARGO_PKG_VERSION")),
        server_version: format!("v{}", env!("CARGO_PKG_VERSION")),
        ..remuda_provisioning::Options::default()
    };
    let machines = remuda_machines::Options {
        server_ca: Some(site.ca_pem.clone()).filter(|pem| !pem.is_empty()),
        ..remuda_machines::Options::new(drivers, site.local_url.clone(), site.data_dir.clone())
    };
    let (connections, cluster_api, rke) = (workloads.clone(), workloads.clone(), workloads);
    let gateway = site.gateway.clone();
    vec![
        group(move |_, stop| remuda_workload::run(connections.clone(), stop)),
        group(move |ctx, stop| {
            remuda_capi::run(ctx, remuda_capi::Options::default(), cluster_api.clone(), stop)
        }),
        group(move |ctx, stop| remuda_provisioning::run(ctx, settings.clone(), stop)),
        group(move |ctx, stop| remuda_rke::run(ctx, remuda_rke::Options::default(), rke.clone(), stop)),
        group(move |ctx, stop| remuda_machines::run(ctx, machines.clone(), stop)),
        group(move |_, stop| {
            let gateway = gateway.clone();
            async move { gateway.run(stop).await }
        }),
    ]
}

/// The gateway of a server.
pub(crate) fn gateway(ctx: &Arc<Ctx>, api: &ApiServer) -> Gateway {
    Gateway::new(GatewayOptions::new(ctx.clone(), Arc::new(ByApi(api.clone()))))
}

/// Asks the API who somebody is, so that every way to log in counts here too, and impersonation by its rules.
struct ByApi(ApiServer);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewStatus {
    user_info: UserInfo,
}

#[derive(Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: std::collections::BTreeMap<String, Vec<String>>,
}

impl Authenticate for ByApi {
    fn authenticate<'a>(
        &'a self,
        head: &'a Parts,
    ) -> BoxFuture<'a, Result<Caller, Response<remuda_gateway::Body>>> {
        Box::pin(async move {
            let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
            let mut request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::new(bytes::Bytes::from(review.to_string())))
                .expect("the parts are constant");
            front::copy_credentials(head, &mut request);
            if let Some(peer) = head.extensions.get::<Peer>() {
                request.extensions_mut().insert(peer.clone());
            }
            let response = self.0.handle(request).await;
            let (parts, body) = response.into_parts();
            let Ok(body) = body.collect().await;
            let body = body.to_bytes();
            let refuse = |parts, body| {
                let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
                Err(Response::from_parts(parts, body))
            };
            if !parts.status.is_success() {
                return refuse(parts, body);
            }
            match serde_json::from_slice::<Review>(&body) {
                Ok(Review { status: ReviewStatus { user_info } }) => Ok(Caller {
                    name: user_info.username,
                    uid: user_info.uid,
                    groups: user_info.groups,
                    extra: user_info.extra,
                    by: None,
                    revoked: None,
                }),
                Err(_) => refuse(parts, body),
            }
        })
    }
}
