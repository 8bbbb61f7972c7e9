//! The image of the cluster agent, for machines of clusters that have not chosen another: `/v3/connect/agent-image`.
//!
//! A machine's agent asks with the token of its plan, and puts what it gets where its distribution imports images from.
//! Nothing about it is in plans: they stay as they are, and nothing restarts.
//!
//! Reads   the account a token is of, its Machine, the machine's Cluster, settings.
//! Writes  images, into the server's own directory.

use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use remuda_auth::request_info::parameter;
use remuda_control::ObjectKey;
use remuda_door::Answer;
use remuda_names::{gateway::audit_user, rancher::setting};
use remuda_oci::{Architecture, Reference};

use super::machine::{self, Machine};
use crate::{
    doors,
    gateway::Shared,
    respond::{Body, Refusal},
};

pub(crate) async fn handle(shared: &Shared, head: &Parts) -> Answer {
    let bearer = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if token.is_empty() {
        return Err(Refusal::unauthorized("the token of a machine's plan is needed"));
    }
    if !shared.is_ready() || !shared.provisioned.is_synced() {
        return Err(Refusal::not_yet("this server has just started and is not ready yet"));
    }
    let machine = machine::by_plan_token(shared, token).await?;
    let machine =
        machine.ok_or_else(|| Refusal::unauthorized("this is not the token of a machine's plan"))?;
    let mut response = serve(shared, head, &machine).await?;
    response.extensions_mut().insert(doors::agent(audit_user::MACHINE, &machine.key.to_string()));
    Ok(response)
}

async fn serve(shared: &Shared, head: &Parts, machine: &Machine) -> Result<Response<Body>, Refusal> {
    let Some(name) = wanted(shared, machine.namespace(), &machine.cluster) else {
        return Ok(nothing(StatusCode::NO_CONTENT));
    };
    let query = head.uri.query().unwrap_or_default();
    let architecture = match parameter(query, "architecture") {
        Some(name) => Architecture::named(&name),
        None => Architecture::own(),
    };
    let architecture =
        architecture.ok_or_else(|| Refusal::bad("there are no agents for this architecture"))?;
    let (path, sum) = shared.assets.image(architecture, &name).await?;
    let tag = format!("\"{sum}\"");
    let tag = HeaderValue::try_from(tag).map_err(|error| Refusal::failed("naming the image", &error))?;
    if head.headers.get(header::IF_NONE_MATCH) == Some(&tag) {
        return Ok(nothing(StatusCode::NOT_MODIFIED));
    }
    let mut response = shared.assets.file(&path, &Method::GET).await?;
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

fn nothing(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}

/// What the image is called that a cluster expects from this server; `None` if it is not this server's.
pub(crate) fn wanted(shared: &Shared, namespace: &str, cluster: &str) -> Option<Reference> {
    let cluster = shared.provisioned.get(&ObjectKey::namespaced(namespace, cluster))?;
    let managed = shared.cluster(&cluster.status.as_ref()?.cluster_name)?;
    let is_own = managed.spec.agent_image_override.is_empty()
        && shared.settings.get(setting::SYSTEM_DEFAULT_REGISTRY).is_empty();
    let name = shared.settings.default_of(setting::AGENT_IMAGE).filter(|_| is_own)?;
    Reference::parse(&name).ok()
}
