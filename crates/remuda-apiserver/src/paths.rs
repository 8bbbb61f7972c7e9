//! Everything outside the resource tree: health, version, discovery, OpenAPI, keys, metrics.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, header};
use remuda_auth::{
    identity::User,
    jwt::discovery::{CONFIGURATION_PATH, JWKS_PATH, configuration, jwks},
    request_info::RequestInfo,
};
use serde_json::{Value, json};

use crate::{
    call::{Answer, Content},
    discovery,
    negotiate::{Form, aggregated_discovery, plain_encoding},
    openapi::is_known,
    options::Query,
    server::Inner,
    status::{ApiError, ApiResult},
};

/// The Kubernetes version whose API this is.
const MAJOR: &str = "1";
const MINOR: &str = "35";
const PATCH: &str = "0";

/// The version this server says it is: that of a distribution it is part of, or its own.
pub(crate) fn git_version(given: Option<&str>) -> String {
    given.map_or_else(|| format!("v{MAJOR}.{MINOR}.{PATCH}+remuda"), str::to_owned)
}

/// The `/version` document.
pub(crate) fn version(given: Option<&str>) -> Value {
    let git = git_version(given);
    let mut numbers = git.trim_start_matches('v').split('.');
    let mut number = |default: &str| match numbers.next() {
        Some(number) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            number.to_owned()
        }
        _ => default.to_owned(),
    };
    json!({
        "major": number(MAJOR), "minor": number(MINOR),
        "emulationMajor": MAJOR, "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR, "minCompatibilityMinor": "34",
        "gitVersion": git,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }),
    })
}

/// Who watches a server's health must hear of trouble while it lasts: a store that does not answer within
/// this time is unhealthy.
const STORE_PATIENCE: Duration = Duration::from_millis(1500);

pub(crate) fn is_health(path: &str) -> bool {
    matches!(head(path), "healthz" | "livez" | "readyz")
}

/// Paths anyone may read, credentials or not, besides what RBAC grants.
fn is_public(path: &str) -> bool {
    is_health(path) || head(path) == "version"
}

fn head(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path).split('/').next().unwrap_or_default()
}

impl Inner {
    pub(crate) async fn serve_path(
        self: &Arc<Self>,
        info: &RequestInfo,
        parts: &http::request::Parts,
        query: &Query,
        user: &User,
    ) -> ApiResult<Answer> {
        let reads = matches!(info.verb, "get" | "head");
        if !(is_public(&info.path) && reads) {
            self.authorize(user, &info.attributes())?;
        }
        if !reads {
            return Err(ApiError::method_not_allowed());
        }
        let headers = &parts.headers;
        let plain = |value: Value| {
            Ok(Answer::value(200, value, Form { encoding: plain_encoding(headers), ..Default::default() }))
        };
        // What was judged is what is answered: a slash more at the end is forgiven, and none elsewhere.
        let path = info.path.trim_end_matches('/');
        let path = path.strip_prefix('/').unwrap_or(path);
        let segments: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
        match segments.as_slice() {
            [] => plain(json!({"paths": self.root_paths()})),
            ["version"] => plain(version(self.config.version.as_deref())),
            ["healthz" | "livez" | "readyz", check @ ..] => self.health(segments[0], check, query).await,
            ["metrics"] => Ok(Answer {
                code: 200,
                content: Content::Other(
                    self.metrics.encode().into(),
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                ),
            }),
            ["api"] => match aggregated_discovery(headers) {
                Some(version) => self.aggregated(true, version, headers),
                None => plain(discovery::api_versions(&self.config.advertise)),
            },
            ["apis"] => match aggregated_discovery(headers) {
                Some(version) => self.aggregated(false, version, headers),
                None => plain(discovery::group_list(&self.registry.load())),
            },
            ["api", version] => self.resources("", version).and_then(plain),
            ["apis", group] => {
                let found = discovery::group(&self.registry.load(), group);
                plain(found.ok_or_else(ApiError::unknown_resource)?)
            }
            ["apis", group, version] => self.resources(group, version).and_then(plain),
            ["openapi", "v2"] => self.openapi_v2(headers),
            ["openapi", "v3"] => plain(self.openapi_index()),
            ["openapi", "v3", rest @ ..] => self.openapi_v3(&rest.join("/"), query, headers),
            ["openid", "v1", "jwks"] => Ok(Answer {
                code: 200,
                content: Content::Other(
                    jwks(self.config.verifier.keys()).to_string().into(),
                    "application/jwk-set+json",
                ),
            }),
            [".well-known", "openid-configuration"] => {
                let keys = format!("https://{}{JWKS_PATH}", self.config.advertise);
                plain(configuration(self.config.issuer.name(), &keys, self.config.verifier.keys()))
            }
            _ => Err(ApiError::unknown_resource()),
        }
    }

    fn root_paths(&self) -> Vec<String> {
        let mut paths: Vec<String> =
            [CONFIGURATION_PATH, "/api", "/api/v1", "/apis"].map(str::to_owned).to_vec();
        for group in self.registry.load().groups.iter().filter(|group| !group.name.is_empty()) {
            paths.push(format!("/apis/{}", group.name));
            for version in &group.versions {
                paths.push(format!("/apis/{}/{}", group.name, version.version));
            }
        }
        paths.extend(
            [
                "/healthz",
                "/livez",
                "/metrics",
                "/openapi/v2",
                "/openapi/v3",
                JWKS_PATH,
                "/readyz",
                "/version",
            ]
            .map(str::to_owned),
        );
        paths.sort();
        paths
    }

    fn resources(&self, group: &str, version: &str) -> ApiResult<Value> {
        let found = discovery::resource_list(&self.registry.load(), group, version);
        found.ok_or_else(ApiError::unknown_resource)
    }

    fn aggregated(&self, core: bool, version: &'static str, headers: &HeaderMap) -> ApiResult<Answer> {
        let (bytes, etag) = self.openapi.aggregated(&self.registry.load_full(), core, version);
        let not_modified = is_known(headers, &etag);
        Ok(Answer {
            code: if not_modified { 304 } else { 200 },
            content: Content::Tagged {
                bytes: if not_modified { Default::default() } else { bytes },
                content_type: discovery::aggregated_content_type(version),
                headers: vec![
                    (header::ETAG, etag),
                    (header::VARY, "Accept".to_owned()),
                    (header::CACHE_CONTROL, "public".to_owned()),
                ],
            },
        })
    }

    async fn health(&self, endpoint: &str, check: &[&str], query: &Query) -> ApiResult<Answer> {
        let ready = self.ready.load(std::sync::atomic::Ordering::Acquire);
        let store = match tokio::time::timeout(STORE_PATIENCE, self.store.health()).await {
            Ok(health) => health.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} ms", STORE_PATIENCE.as_millis())),
        };
        let mut checks: Vec<(&str, Result<(), String>)> = vec![
            ("ping", Ok(())),
            ("log", Ok(())),
            ("etcd", store),
            ("poststarthook/rbac/bootstrap-roles", started(ready)),
            ("poststarthook/start-apiextensions-controllers", started(ready)),
        ];
        if endpoint == "readyz" {
            checks.push((
                "shutdown",
                if self.stop.is_cancelled() { Err("shutting down".to_owned()) } else { Ok(()) },
            ));
        }
        if !check.is_empty() {
            let name = check.join("/");
            let found = checks.iter().find(|(known, _)| *known == name);
            return match found {
                None => Err(ApiError::unknown_resource()),
                Some((_, Ok(()))) => Ok(Answer::text(200, "ok")),
                Some((_, Err(cause))) => Ok(Answer::text(500, format!("internal server error: {cause}\n"))),
            };
        }
        let excluded = |name: &str| query.all("exclude").any(|excluded| excluded == name);
        let failed = checks.iter().any(|(name, result)| result.is_err() && !excluded(name));
        if !failed && query.flag("verbose").is_none() {
            return Ok(Answer::text(200, "ok"));
        }
        let mut text = String::new();
        for (name, result) in &checks {
            match result {
                _ if excluded(name) => text.push_str(&format!("[+]{name} excluded: ok\n")),
                Ok(()) => text.push_str(&format!("[+]{name} ok\n")),
                Err(cause) => text.push_str(&format!("[-]{name} failed: {cause}\n")),
            }
        }
        text.push_str(&format!("{endpoint} check {}\n", if failed { "failed" } else { "passed" }));
        Ok(Answer::text(if failed { 500 } else { 200 }, text))
    }
}

fn started(ready: bool) -> Result<(), String> {
    if ready { Ok(()) } else { Err("not finished".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_distribution_if_there_is_one() {
        let told = |given: Option<&str>| {
            let version = version(given);
            let text = |key: &str| version[key].as_str().unwrap_or_default().to_owned();
            format!("{} {} {}", text("major"), text("minor"), text("gitVersion"))
        };
        assert_eq!(told(Some("v1.34.2+k3s1")), "1 34 v1.34.2+k3s1");
        assert_eq!(told(None), "1 35 v1.35.0+remuda");
        assert_eq!(told(Some("odd")), "1 35 odd");
    }
}
