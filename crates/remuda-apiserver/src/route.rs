//! From a URL to what is asked for: the path's parts and the verb.

use http::Method;
use percent_encoding::percent_decode_str;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/healthz`, `/version`, `/openapi/…`, discovery.
    Path(String),
    Resource(ResourcePath),
}

/// The parts of a resource URL, percent-decoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub resource: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

/// Parses a path. Anything below `/api/v1/` and `/apis/<group>/<version>/` is a resource.
pub(crate) fn parse(path: &str) -> Route {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => {
            let trimmed = path.trim_end_matches('/');
            return Route::Path(if trimmed.is_empty() { "/".to_owned() } else { trimmed.to_owned() });
        }
    };
    let mut parts = ResourcePath { group: decode(group), version: decode(version), ..Default::default() };
    let rest = match rest {
        // `/namespaces/X` and its own subresources are the Namespace object itself.
        ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => rest,
        ["namespaces", namespace, rest @ ..] => {
            parts.namespace = Some(decode(namespace));
            rest
        }
        _ => rest,
    };
    let mut rest = rest.iter();
    parts.resource = rest.next().map(|segment| decode(segment)).unwrap_or_default();
    parts.name = rest.next().map(|segment| decode(segment));
    let tail: Vec<String> = rest.map(|segment| decode(segment)).collect();
    parts.subresource = (!tail.is_empty()).then(|| tail.join("/"));
    Route::Resource(parts)
}

fn decode(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

/// A request verb as authorization, audit and discovery name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    pub(crate) fn is_mutating(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// The verb of a resource request; `None` where the method has no meaning.
    pub(crate) fn of(method: &Method, has_name: bool, watch: bool) -> Option<Self> {
        Some(match (method.as_str(), has_name) {
            ("GET" | "HEAD", _) if watch => Self::Watch,
            ("GET" | "HEAD", true) => Self::Get,
            ("GET" | "HEAD", false) => Self::List,
            ("POST", _) => Self::Create,
            ("PUT", true) => Self::Update,
            ("PATCH", true) => Self::Patch,
            ("DELETE", true) => Self::Delete,
            ("DELETE", false) => Self::DeleteCollection,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> String {
        match parse(path) {
            Route::Path(path) => format!("path {path}"),
            Route::Resource(parts) => format!(
                "{}/{} ns={} {} name={} sub={}",
                parts.group,
                parts.version,
                parts.namespace.unwrap_or_default(),
                parts.resource,
                parts.name.unwrap_or_default(),
                parts.subresource.unwrap_or_default()
            ),
        }
    }

    #[test]
    fn paths_name_resources() {
        for (path, expected) in [
            ("/api/v1/pods", "/v1 ns= pods name= sub="),
            ("/api/v1/namespaces", "/v1 ns= namespaces name= sub="),
            ("/api/v1/namespaces/x", "/v1 ns= namespaces name=x sub="),
            ("/api/v1/namespaces/x/finalize", "/v1 ns= namespaces name=x sub=finalize"),
            ("/api/v1/namespaces/x/pods/", "/v1 ns=x pods name= sub="),
            ("/apis/apps/v1/namespaces/d/deployments/a/scale", "apps/v1 ns=d deployments name=a sub=scale"),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "rbac.authorization.k8s.io/v1 ns= clusterroles name=system:node sub=",
            ),
            ("/apis/apps/v1", "path /apis/apps/v1"),
            ("/api/", "path /api"),
            ("/", "path /"),
            ("/healthz/ping", "path /healthz/ping"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }
}
