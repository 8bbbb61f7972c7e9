//! What a request asks of the API of a cluster, in the terms of its authorization.

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use remuda_auth::attributes::Attributes;
use serde_json::{Value, json};

/// A request as the authorizer of a cluster sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Asks {
    verb: &'static str,
    group: String,
    version: String,
    namespace: String,
    resource: String,
    name: String,
    subresource: String,
    /// Of requests that are not about resources.
    path: String,
}

impl Asks {
    /// `target` is path and query in the cluster.
    pub(super) fn of(method: &Method, target: &Uri) -> Self {
        let path = target.path();
        let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, mut rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Self { verb: plain(method), path: path.to_owned(), ..Self::default() },
        };
        // An old way to ask for a watch.
        let mut watch = target.query().is_some_and(is_watch);
        if let ["watch", after @ ..] = rest {
            (watch, rest) = (true, after);
        }
        let (namespace, rest) = match rest {
            ["namespaces", name] | ["namespaces", name, "status" | "finalize"] => (*name, rest),
            ["namespaces", name, after @ ..] => (*name, after),
            _ => ("", rest),
        };
        let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        Self {
            verb: verb(method, rest.len() > 1, watch),
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            resource: part(0),
            name: part(1),
            subresource: part(2),
            path: String::new(),
        }
    }

    pub(super) fn attributes(&self) -> Attributes<'_> {
        if !self.path.is_empty() {
            return Attributes::path(self.verb, &self.path);
        }
        Attributes::resource(self.verb, &self.group, &self.resource)
            .version(&self.version)
            .namespace(&self.namespace)
            .name(&self.name)
            .subresource(&self.subresource)
    }

    /// A SubjectAccessReview about somebody.
    pub(super) fn review<'a>(&self, user: &str, groups: impl Iterator<Item = &'a String>) -> Value {
        let mut spec = json!({"user": user, "groups": groups.collect::<Vec<_>>()});
        match self.path.is_empty() {
            false => spec["nonResourceAttributes"] = json!({"verb": self.verb, "path": self.path}),
            true => {
                spec["resourceAttributes"] = json!({
                    "verb": self.verb, "group": self.group, "version": self.version,
                    "namespace": self.namespace, "resource": self.resource, "name": self.name,
                    "subresource": self.subresource,
                });
            }
        }
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        name == "watch" && !["0", "false", "False", "FALSE", "f", "F"].contains(&value)
    })
}

fn verb(method: &Method, named: bool, watch: bool) -> &'static str {
    match *method {
        Method::GET | Method::HEAD if watch => "watch",
        Method::GET | Method::HEAD if named => "get",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => plain(method),
    }
}

fn plain(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a request asks for, in one line.
    #[track_caller]
    fn check(request: &str, expected: &str) {
        let (method, target) = request.split_once(' ').unwrap();
        let asks = Asks::of(&method.parse().unwrap(), &target.parse().unwrap());
        let Attributes { verb, group, resource, subresource, namespace, name, path, .. } = asks.attributes();
        let found = match path {
            Some(path) => format!("{verb} {path}"),
            None => format!("{verb} {group}/{resource}/{subresource} {namespace}/{name}"),
        };
        assert_eq!(found, expected, "{request}");
    }

    #[test]
    fn a_request_is_judged_as_the_cluster_judges_it() {
        check("GET /api/v1/pods?watch=true&x=y", "watch /pods/ /");
        check("GET /api/v1/pods?watch=false", "list /pods/ /");
        check("GET /api/v1/pods?watch", "watch /pods/ /");
        check("GET /api/v1/pods?watching=1", "list /pods/ /");
        check("GET /api/v1/watch/namespaces/d/pods", "watch /pods/ d/");
        check("GET /api/v1/namespaces?watch=1", "watch /namespaces/ /");
        check("GET /api/v1/namespaces/d", "get /namespaces/ d/d");
        check("PUT /api/v1/namespaces/d/finalize", "update /namespaces/finalize d/d");
        check("GET /api/v1/namespaces/d/pods/p/log?follow=true", "get /pods/log d/p");
        check("POST /api/v1/namespaces/d/pods/p/exec?command=sh", "create /pods/exec d/p");
        check("GET /apis/apps/v1/namespaces/d/deployments/x", "get apps/deployments/ d/x");
        check("DELETE /apis/apps/v1/namespaces/d/deployments", "deletecollection apps/deployments/ d/");
        check(
            "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab",
            "get rbac.authorization.k8s.io/clusterroles/ /a:b",
        );
        check("GET /version", "get /version");
        check("GET /apis/apps/v1", "get /apis/apps/v1");
        check("GET /api", "get /api");
    }
}
