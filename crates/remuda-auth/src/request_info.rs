//! What a request asks for: verb, API group, version, namespace, resource, name and subresource, or a path.
//!
//! This is the only place that takes a URL of the Kubernetes API apart. Authorization, execution and audit read the
//! same value, so what is allowed is what is done. The rules are those of `RequestInfoFactory` in Kubernetes'
//! apiserver: the path is percent-decoded as a whole, slashes at its ends do not count, those inside do.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::attributes::Attributes;

/// A verb that can be carried out on a resource, as authorization, audit and discovery name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
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
    pub fn as_str(self) -> &'static str {
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

    pub fn is_mutating(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A request in the terms of its authorization. Strings are percent-decoded; what is not there is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The verb on a resource; otherwise the HTTP method in lower case. Empty for methods with no meaning there.
    pub verb: &'static str,
    /// The whole path of a request that is not about a resource, such as `/healthz`; empty for all others.
    pub path: String,
    pub group: String,
    pub version: String,
    /// As authorization has it: a Namespace object is in the namespace of its own name.
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What follows the subresource: the path behind `…/proxy/`.
    pub rest: String,
    /// The name a list or watch is restricted to by its field selector.
    pub selected_name: String,
    /// Whether the path puts the resource below a namespace, which `/namespaces/NAME` itself does not.
    pub in_namespace: bool,
    /// Whether the verb is in the path: `/api/v1/watch/…`, `/api/v1/proxy/…`.
    pub verb_in_path: bool,
}

/// Subresources of Namespace objects. Any other word behind a namespace's name is a resource in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    /// Takes apart the method, the raw path and the raw query of a request.
    pub fn parse(method: &str, path: &str, query: Option<&str>) -> Self {
        let path = percent_decode_str(path).decode_utf8_lossy();
        let mut parts = path.trim_matches('/').split('/');
        let prefix = parts.next().unwrap_or_default();
        let group = match prefix {
            "api" => Some(""),
            "apis" => parts.next(),
            _ => None,
        };
        let (Some(group), Some(version), Some(mut first)) = (group, parts.next(), parts.next()) else {
            let path = if path.is_empty() { "/".to_owned() } else { path.into_owned() };
            return Self { verb: method_verb(method), path, ..Self::default() };
        };
        let mut info = Self {
            verb: resource_verb(method),
            group: group.to_owned(),
            version: version.to_owned(),
            ..Self::default()
        };
        if let verb @ ("watch" | "proxy") = first {
            info.verb_in_path = true;
            info.verb = if verb == "watch" { "watch" } else { "proxy" };
            // Nothing behind it: a request on a resource without a name, which there is none of.
            first = parts.next().unwrap_or_default();
        }
        info.resource = first.to_owned();
        let mut name = parts.next();
        if let ("namespaces", Some(namespace)) = (first, name) {
            info.namespace = namespace.to_owned();
            let mut behind = parts.clone();
            if let Some(resource) = behind.next().filter(|next| !NAMESPACE_SUBRESOURCES.contains(next)) {
                info.in_namespace = true;
                info.resource = resource.to_owned();
                parts = behind;
                name = parts.next();
            }
        }
        info.name = name.unwrap_or_default().to_owned();
        if info.verb == "proxy" {
            info.rest = joined(parts);
        } else if let Some(subresource) = parts.next() {
            info.subresource = subresource.to_owned();
            info.rest = joined(parts);
        }
        if info.name.is_empty() {
            match info.verb {
                "get" => info.collection(query.unwrap_or_default()),
                "delete" => info.verb = "deletecollection",
                _ => {}
            }
        }
        info
    }

    /// A read without a name is a list or a watch, perhaps of one name.
    fn collection(&mut self, query: &str) {
        let watch = parameter(query, "watch").is_some_and(|value| is_true(&value));
        self.verb = if watch { "watch" } else { "list" };
        if let Some(name) = parameter(query, "fieldSelector").as_deref().and_then(required_name) {
            self.selected_name = name;
        }
    }

    pub fn is_resource(&self) -> bool {
        self.path.is_empty()
    }

    /// The verb that is carried out on the resource; `None` where the method has no meaning, or the verb was in the
    /// path in the manner of old clients.
    pub fn resource_verb(&self) -> Option<Verb> {
        use Verb::{Create, Delete, DeleteCollection, Get, List, Patch, Update, Watch};
        let known = [Get, List, Watch, Create, Update, Patch, Delete, DeleteCollection];
        let found = known.into_iter().find(|verb| verb.as_str() == self.verb);
        found.filter(|_| self.is_resource() && !self.verb_in_path)
    }

    /// What is judged. Borrowed: this allocates nothing.
    pub fn attributes(&self) -> Attributes<'_> {
        if !self.is_resource() {
            return Attributes::path(self.verb, &self.path);
        }
        let name = if self.name.is_empty() { &self.selected_name } else { &self.name };
        Attributes::resource(self.verb, &self.group, &self.resource)
            .version(&self.version)
            .namespace(&self.namespace)
            .name(name)
            .subresource(&self.subresource)
    }

    /// A SubjectAccessReview that asks whether a user may do this.
    pub fn review<'a>(&self, user: &str, groups: impl Iterator<Item = &'a String>) -> Value {
        let mut spec = json!({"user": user, "groups": groups.collect::<Vec<_>>()});
        let Attributes { verb, group, version, resource, subresource, namespace, name, path } =
            self.attributes();
        match path {
            Some(path) => spec["nonResourceAttributes"] = json!({"verb": verb, "path": path}),
            None => {
                spec["resourceAttributes"] = json!({
                    "verb": verb, "group": group, "version": version, "namespace": namespace,
                    "resource": resource, "name": name, "subresource": subresource,
                });
            }
        }
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    }
}

fn joined<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for part in parts {
        if !text.is_empty() {
            text.push('/');
        }
        text.push_str(part);
    }
    text
}

fn resource_verb(method: &str) -> &'static str {
    match method {
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The verb of a request that is not about a resource.
pub fn method_verb(method: &str) -> &'static str {
    match method {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        "CONNECT" => "connect",
        "TRACE" => "trace",
        _ => "",
    }
}

/// The first value of a query parameter, decoded.
pub fn parameter<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query.split('&').filter(|pair| !pair.is_empty()).find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (form_decoded(key) == name).then(|| form_decoded(value))
    })
}

/// Decodes a key or a value of a query string.
pub fn form_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('+') {
        return percent_decode_str(text).decode_utf8_lossy();
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
}

/// A boolean of a query: everything but `false` and `0` is true, nothing at all too.
pub fn is_true(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

/// The name a field selector demands. Nothing if the selector cannot be read, or if the name could be no part of a
/// path.
fn required_name(selector: &str) -> Option<String> {
    let mut found = None;
    let mut rest = Some(selector);
    while let Some(text) = rest {
        let end = unescaped(text, b',');
        let term = &text[..end];
        rest = text.get(end + 1..);
        if term.is_empty() {
            continue;
        }
        // The first sign decides; a field has none in its name.
        let sign = term.find('=')?;
        let (field, mut value) = (&term[..sign], &term[sign + 1..]);
        if field.ends_with('!') {
            unescape(value)?;
            continue;
        }
        value = value.strip_prefix('=').unwrap_or(value);
        let value = unescape(value)?;
        if field == "metadata.name" && found.is_none() {
            found = Some(value);
        }
    }
    found.filter(|name| !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '%']))
}

/// Where a byte stands that no backslash precedes; the end if there is none.
fn unescaped(text: &str, wanted: u8) -> usize {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            byte if byte == wanted => return index,
            _ => {}
        }
    }
    text.len()
}

fn unescape(value: &str) -> Option<String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(letter) = chars.next() {
        match letter {
            '\\' => plain.push(chars.next().filter(|next| matches!(next, '\\' | ',' | '='))?),
            ',' | '=' => return None,
            letter => plain.push(letter),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a request asks for, in one line: `verb group/version namespace resource name subresource rest`.
    fn shown(request: &str) -> String {
        let (method, target) = request.split_once(' ').unwrap();
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let info = RequestInfo::parse(method, path, query);
        if !info.is_resource() {
            return format!("{} {}", info.verb, info.path);
        }
        let or = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let name = info.attributes().name.to_owned();
        let parts =
            [&info.namespace, &info.resource, &name, &info.subresource, &info.rest].map(|part| or(part));
        format!("{} {}/{} {}", or(info.verb), info.group, info.version, parts.join(" "))
    }

    #[track_caller]
    fn check(table: &[(&str, &str)]) {
        for (request, expected) in table {
            assert_eq!(shown(request), *expected, "{request}");
        }
    }

    #[test]
    fn requests_on_resources() {
        check(&[
            ("GET /api/v1/pods", "list /v1 - pods - - -"),
            ("GET /api/v1/namespaces", "list /v1 - namespaces - - -"),
            ("GET /api/v1/namespaces/d", "get /v1 d namespaces d - -"),
            ("HEAD /api/v1/namespaces/d", "get /v1 d namespaces d - -"),
            ("PUT /api/v1/namespaces/d/status", "update /v1 d namespaces d status -"),
            ("PUT /api/v1/namespaces/d/finalize", "update /v1 d namespaces d finalize -"),
            ("PUT /api/v1/namespaces/d/finalize/x", "update /v1 d namespaces d finalize x"),
            ("GET /api/v1/namespaces/d/pods", "list /v1 d pods - - -"),
            ("GET /api/v1/namespaces/d/pods/", "list /v1 d pods - - -"),
            ("POST /api/v1/namespaces/d/pods", "create /v1 d pods - - -"),
            ("POST /api/v1/namespaces/d/pods/p", "create /v1 d pods p - -"),
            ("POST /api/v1/namespaces/d/pods/p/exec?command=sh", "create /v1 d pods p exec -"),
            ("GET /api/v1/namespaces/d/pods/p/log?follow=true", "get /v1 d pods p log -"),
            ("GET /api/v1/namespaces/d/pods/p/proxy/a/b", "get /v1 d pods p proxy a/b"),
            ("PUT /api/v1/namespaces/d/pods", "update /v1 d pods - - -"),
            ("PATCH /api/v1/nodes/n", "patch /v1 - nodes n - -"),
            ("DELETE /api/v1/nodes/n", "delete /v1 - nodes n - -"),
            ("OPTIONS /api/v1/nodes/n", "- /v1 - nodes n - -"),
            ("GET /apis/apps/v1/namespaces/d/deployments/x/scale", "get apps/v1 d deployments x scale -"),
            ("DELETE /apis/apps/v1/namespaces/d/deployments", "deletecollection apps/v1 d deployments - - -"),
            ("GET /apis/any.io/v1/namespaces/x", "get any.io/v1 x namespaces x - -"),
        ]);
    }

    #[test]
    fn watches_and_selected_names() {
        check(&[
            ("GET /api/v1/pods?watch=true&x=y", "watch /v1 - pods - - -"),
            ("GET /api/v1/pods?watch", "watch /v1 - pods - - -"),
            ("GET /api/v1/pods?w%61tch=1", "watch /v1 - pods - - -"),
            ("GET /api/v1/pods?watch=f", "watch /v1 - pods - - -"),
            ("GET /api/v1/pods?watch=False", "list /v1 - pods - - -"),
            ("GET /api/v1/pods?watch=0&watch=1", "list /v1 - pods - - -"),
            ("GET /api/v1/pods?watching=1", "list /v1 - pods - - -"),
            ("GET /api/v1/namespaces/d/pods/p?watch=1", "get /v1 d pods p - -"),
            ("DELETE /api/v1/pods?watch=1", "deletecollection /v1 - pods - - -"),
            ("GET /api/v1/watch/namespaces/d/pods", "watch /v1 d pods - - -"),
            ("GET /api/v1/watch/namespaces/d/pods/p", "watch /v1 d pods p - -"),
            ("GET /api/v1/watch", "watch /v1 - - - - -"),
            ("GET /api/v1/proxy/namespaces/d/pods/p/a/b", "proxy /v1 d pods p - a/b"),
            ("GET /api/v1/pods?fieldSelector=metadata.name%3Da", "list /v1 - pods a - -"),
            ("GET /api/v1/pods?fieldSelector=metadata.name==a,spec.x!=y&watch=1", "watch /v1 - pods a - -"),
            ("GET /api/v1/pods?fieldSelector=metadata.name!=a", "list /v1 - pods - - -"),
            ("GET /api/v1/pods?fieldSelector=metadata.name=a/b", "list /v1 - pods - - -"),
            ("GET /api/v1/pods?fieldSelector=metadata.name=..", "list /v1 - pods - - -"),
            ("GET /api/v1/pods?fieldSelector=metadata.name=a,nonsense", "list /v1 - pods - - -"),
            // One name cannot be asked of a deletion of many.
            ("DELETE /api/v1/pods?fieldSelector=metadata.name=a", "deletecollection /v1 - pods - - -"),
        ]);
    }

    #[test]
    fn paths_are_decoded_before_they_are_split() {
        check(&[
            (
                "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab",
                "get rbac.authorization.k8s.io/v1 - clusterroles a:b - -",
            ),
            ("GET /api/v1/namespaces/d%2Fsecrets", "list /v1 d secrets - - -"),
            ("GET /api/v1%2Fnamespaces/d%2fsecrets/s", "get /v1 d secrets s - -"),
            ("GET /%61pi/v1/pods", "list /v1 - pods - - -"),
            ("GET //api/v1/pods//", "list /v1 - pods - - -"),
            // Slashes inside count: there is no resource without a name.
            ("GET /api/v1//pods", "get /v1 - - pods - -"),
            ("GET /api//v1/pods", "get / - v1 pods - -"),
            ("GET /api/v1/namespaces//pods", "list /v1 - pods - - -"),
            ("GET /api/v1/../secrets", "get /v1 - .. secrets - -"),
        ]);
    }

    #[test]
    fn requests_on_paths() {
        check(&[
            ("GET /version", "get /version"),
            ("HEAD /healthz/ping", "head /healthz/ping"),
            ("POST /healthz", "post /healthz"),
            ("BREW /healthz", " /healthz"),
            ("GET /", "get /"),
            ("GET /api", "get /api"),
            ("GET /api/", "get /api/"),
            ("GET /api/v1", "get /api/v1"),
            ("GET /apis/apps/v1", "get /apis/apps/v1"),
            ("GET /%6detrics", "get /metrics"),
            ("GET /openapi/v3/apis/apps/v1", "get /openapi/v3/apis/apps/v1"),
        ]);
    }

    #[test]
    fn the_verb_that_is_carried_out() {
        let verb = |method: &str, path: &str| RequestInfo::parse(method, path, None).resource_verb();
        assert_eq!(verb("GET", "/api/v1/pods"), Some(Verb::List));
        assert_eq!(verb("DELETE", "/api/v1/pods"), Some(Verb::DeleteCollection));
        assert_eq!(verb("GET", "/api/v1/watch/pods"), None);
        assert_eq!(verb("GET", "/api/v1/proxy/pods/p"), None);
        assert_eq!(verb("TRACE", "/api/v1/pods"), None);
        assert_eq!(verb("GET", "/healthz"), None);
    }

    #[test]
    fn queries_are_decoded() {
        let query = "labelSelector=a%3Db%2Cc+in+%28d%29&watch=true&&x=%zz&y";
        assert_eq!(parameter(query, "labelSelector").unwrap(), "a=b,c in (d)");
        assert_eq!(parameter(query, "watch").unwrap(), "true");
        assert_eq!(parameter(query, "x").unwrap(), "%zz");
        assert_eq!(parameter(query, "y").unwrap(), "");
        assert_eq!(parameter(query, "label"), None);
    }

    #[test]
    fn a_review_asks_what_would_be_judged() {
        let groups = ["g".to_owned()];
        let info = RequestInfo::parse("GET", "/api/v1/namespaces/d/pods/p/log", None);
        let spec = &info.review("ann", groups.iter())["spec"];
        assert_eq!(Attributes::from_review(spec), Some(info.attributes()));
        let info = RequestInfo::parse("GET", "/version", None);
        let spec = &info.review("ann", groups.iter())["spec"];
        assert_eq!(Attributes::from_review(spec), Some(info.attributes()));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(512))]

        #[test]
        fn no_path_breaks_anything_and_names_have_no_slash(
            path in "(/|//|%2[fF]|%2e|%25|%[0-9a-fx]{2}|\\.\\.|\\?|api|apis|v1|apps|namespaces|watch|proxy|status|pods|[a-z%.]{1,4}|\\PC){0,12}",
            query in "((watch|fieldSelector|w%61tch)(=|%3D)?[a-z.=,!\\\\%01]{0,12}&?){0,3}",
        ) {
            for method in ["GET", "PUT", "DELETE", "X"] {
                let info = RequestInfo::parse(method, &path, Some(&query));
                let parts = [&info.group, &info.version, &info.namespace, &info.resource, &info.name, &info.subresource, &info.selected_name];
                proptest::prop_assert!(parts.iter().all(|part| !part.contains('/')), "{:?}", info);
                // Either a path or a resource, never both.
                proptest::prop_assert_eq!(info.attributes().path.is_some(), info.version.is_empty() && info.resource.is_empty() && !info.path.is_empty());
            }
        }
    }
}
