//! The manifest by which a cluster is brought along: `/v3/import/<token>_<cluster>.yaml`.

use http::{Response, StatusCode, request::Parts};
use remuda_install::ClusterAgent;
use remuda_names::{gateway::path::IMPORT, rancher::setting};

use crate::{
    gateway::Shared,
    respond::{Body, Refusal, text},
};

pub(crate) async fn handle(shared: &Shared, head: &Parts) -> Result<Response<Body>, Refusal> {
    let name = head.uri.path().strip_prefix(IMPORT).and_then(|name| name.strip_suffix(".yaml"));
    let Some((token, id)) = name.and_then(|name| name.split_once('_')) else {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "a manifest has a name like <token>_<cluster>.yaml"));
    };
    let asked = asked_image(head.uri.query().unwrap_or_default())?;
    if !shared.is_ready() {
        return Err(Refusal::not_yet("this server has just started and is not ready yet"));
    }
    // One answer for every mistake: whether a cluster exists is nobody's business without its token.
    let invalid = || Refusal::bad("cluster not found or invalid token");
    let cluster = shared.cluster(id).ok_or_else(invalid)?;
    if !shared.tokens.is_of(token, id, shared.ctx.clock.now()).await?
        || cluster.metadata.deletion_timestamp.is_some()
    {
        return Err(invalid());
    }
    let settings = &shared.settings;
    let server = settings.server(&head.headers, head.uri.authority());
    let spec = &cluster.spec;
    let registry = Some(spec.cluster_secrets.private_registry_url.clone()).filter(|url| !url.is_empty());
    let registry = registry.unwrap_or_else(|| settings.get(setting::SYSTEM_DEFAULT_REGISTRY));
    let given =
        [&spec.agent_image_override, &spec.desired_agent_image].into_iter().find(|image| !image.is_empty());
    let image = given.cloned().unwrap_or_else(|| resolve(&settings.get(setting::AGENT_IMAGE), &registry));
    let auth = match asked.as_deref() {
        Some(FIXED) => Some(resolve(&settings.get(setting::AUTH_IMAGE), &registry)),
        Some(image) => Some(image.to_owned()),
        None if !spec.local_cluster_auth_endpoint.enabled => None,
        None => Some(match spec.desired_auth_image.as_str() {
            "" | FIXED => resolve(&settings.get(setting::AUTH_IMAGE), &registry),
            image => image.to_owned(),
        }),
    };
    let env: Vec<(String, String)> =
        spec.agent_env_vars.iter().map(|variable| (variable.name.clone(), variable.value.clone())).collect();
    let checksum = server.ca_checksum();
    let (version, uuid) = (settings.get(setting::SERVER_VERSION), settings.get(setting::INSTALL_UUID));
    let agent = ClusterAgent {
        server_url: &server.url,
        ca_checksum: checksum.as_deref(),
        token,
        image: &image,
        auth_image: auth.as_deref(),
        strict: server.strict,
        env: &env,
        registry: &registry,
        server_version: &version,
        install_uuid: &uuid,
        customization: spec.cluster_agent_deployment_customization.as_ref(),
        ..ClusterAgent::default()
    };
    Ok(text(StatusCode::OK, agent.manifest()))
}

/// Stands for the image that is usual.
const FIXED: &str = "fixed";

/// The image of the authenticator a request asks for. It goes into a manifest somebody applies.
fn asked_image(query: &str) -> Result<Option<String>, Refusal> {
    let given = query.split('&').find_map(|pair| pair.strip_prefix("authImage="));
    let Some(given) = given.filter(|given| !given.is_empty()) else { return Ok(None) };
    let image = percent_encoding::percent_decode_str(given).decode_utf8_lossy().into_owned();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:/@".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = image.as_bytes();
    if bytes.len() > 512 || !bytes.iter().copied().all(allowed) || !edge(bytes.first()) || !edge(bytes.last())
    {
        return Err(Refusal::bad("invalid authImage - it is not the name of an image"));
    }
    Ok(Some(image))
}

/// The image in a registry: images without an owner are Rancher's.
fn resolve(image: &str, registry: &str) -> String {
    if registry.is_empty() || image.starts_with(registry) {
        return image.to_owned();
    }
    let owner = if image.contains('/') { "" } else { "rancher/" };
    format!("{}/{owner}{image}", registry.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_asked_for_is_the_name_of_one() {
        let asked = |query: &str| asked_image(query).map_err(|_| ());
        assert_eq!(asked(""), Ok(None));
        assert_eq!(asked("a=b&authImage="), Ok(None));
        assert_eq!(asked("authImage=fixed"), Ok(Some("fixed".to_owned())));
        assert_eq!(asked("authImage=r.io%3A5000/a/b:v1&x=y"), Ok(Some("r.io:5000/a/b:v1".to_owned())));
        for odd in ["authImage=a%0Ab", "authImage=%22", "authImage=-x", "authImage=a%20b", "authImage=a:"] {
            assert_eq!(asked(odd), Err(()), "{odd}");
        }
    }

    #[test]
    fn images_come_from_the_registry_if_there_is_one() {
        assert_eq!(resolve("rancher/agent:v1", ""), "rancher/agent:v1");
        assert_eq!(resolve("rancher/agent:v1", "reg:5000/"), "reg:5000/rancher/agent:v1");
        assert_eq!(resolve("agent:v1", "reg"), "reg/rancher/agent:v1");
        assert_eq!(resolve("reg/agent:v1", "reg"), "reg/agent:v1");
    }
}
