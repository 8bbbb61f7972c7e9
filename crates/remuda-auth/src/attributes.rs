//! What a request wants to do, in the terms of authorization and audit, and the text of its refusal.

use remuda_base::quote::{push, quoted};
use serde_json::Value;

use crate::identity::User;

/// A request as the authorizer sees it. Borrowed from the parsed request: building one allocates nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// Empty at the cluster scope.
    pub namespace: &'a str,
    /// Empty for requests on collections.
    pub name: &'a str,
    /// Set only for requests outside the resource tree, such as `/healthz`; then nothing else but the verb counts.
    pub path: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    pub fn resource(verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Self { verb, group, resource, ..Self::default() }
    }

    /// `verb` is the HTTP method in lower case.
    pub fn path(verb: &'a str, path: &'a str) -> Self {
        Self { verb, path: Some(path), ..Self::default() }
    }

    /// Reads the `spec` of a SubjectAccessReview or its relatives. `None` unless it has either
    /// `resourceAttributes` or `nonResourceAttributes`.
    pub fn from_review(spec: &'a Value) -> Option<Self> {
        let object = |key: &str| spec.get(key).filter(|value| value.is_object());
        let text = |object: &'a Value, key: &str| object.get(key).and_then(Value::as_str).unwrap_or("");
        match (object("resourceAttributes"), object("nonResourceAttributes")) {
            (Some(asked), None) => Some(Self {
                verb: text(asked, "verb"),
                group: text(asked, "group"),
                version: text(asked, "version"),
                resource: text(asked, "resource"),
                subresource: text(asked, "subresource"),
                namespace: text(asked, "namespace"),
                name: text(asked, "name"),
                path: None,
            }),
            (None, Some(asked)) => Some(Self::path(text(asked, "verb"), text(asked, "path"))),
            _ => None,
        }
    }

    pub fn version(self, version: &'a str) -> Self {
        Self { version, ..self }
    }

    pub fn subresource(self, subresource: &'a str) -> Self {
        Self { subresource, ..self }
    }

    pub fn namespace(self, namespace: &'a str) -> Self {
        Self { namespace, ..self }
    }

    pub fn name(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    pub fn is_resource(&self) -> bool {
        self.path.is_none()
    }
}

/// The message of a 403 Status: `pods "x" is forbidden: User "u" cannot get …`, with the authorizer's reason if there
/// is one.
pub fn forbidden_message_because(user: &User, attributes: &Attributes<'_>, reason: &str) -> String {
    let mut detail = sanitized(&denial(user, attributes));
    if !reason.is_empty() {
        detail.push_str(": ");
        detail.push_str(reason);
    }
    let (group, resource) =
        if attributes.is_resource() { (attributes.group, attributes.resource) } else { ("", "") };
    forbidden(group, resource, attributes.name, &detail)
}

/// The message of any 403 about an object: `roles.rbac.authorization.k8s.io "r" is forbidden: DETAIL`.
pub fn forbidden(group: &str, resource: &str, name: &str, detail: &str) -> String {
    if resource.is_empty() {
        return format!("forbidden: {detail}");
    }
    let mut out = qualified(group, resource);
    if !name.is_empty() {
        out.push(' ');
        push(&mut out, name);
    }
    out.push_str(" is forbidden: ");
    out.push_str(detail);
    out
}

/// `resource.group`, or just the resource for the core group.
fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

fn denial(user: &User, attributes: &Attributes<'_>) -> String {
    let name = quoted(&user.name);
    let verb = attributes.verb;
    if let Some(path) = attributes.path {
        return format!("User {name} cannot {verb} path {}", quoted(path));
    }
    let resource = if attributes.subresource.is_empty() {
        quoted(attributes.resource)
    } else {
        quoted(&format!("{}/{}", attributes.resource, attributes.subresource))
    };
    let group = quoted(attributes.group);
    let scope = if attributes.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", quoted(attributes.namespace))
    };
    format!("User {name} cannot {verb} resource {resource} in API group {group} {scope}")
}

/// The text echoes request input: it must not be mistaken for HTML by a browser.
fn sanitized(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn review_specs_ask_about_a_resource_or_a_path_but_not_both() {
        let resource =
            json!({"verb": "get", "group": "apps", "resource": "deployments", "namespace": "d", "name": "x"});
        let path = json!({"verb": "get", "path": "/x"});
        let spec = json!({"user": "u", "resourceAttributes": resource});
        let expected = Attributes::resource("get", "apps", "deployments").namespace("d").name("x");
        assert_eq!(Attributes::from_review(&spec), Some(expected));
        let spec = json!({"nonResourceAttributes": path});
        assert_eq!(Attributes::from_review(&spec), Some(Attributes::path("get", "/x")));
        for spec in
            [json!({}), json!(null), json!({"resourceAttributes": resource, "nonResourceAttributes": path})]
        {
            assert_eq!(Attributes::from_review(&spec), None);
        }
    }

    #[test]
    fn denials_read_as_clients_expect() {
        let user = User::new("u", ["g"]);
        for (attributes, expected) in [
            (
                Attributes::resource("get", "", "pods").namespace("d").name("x"),
                r#"pods "x" is forbidden: User "u" cannot get resource "pods" in API group "" in the namespace "d""#,
            ),
            (
                Attributes::resource("list", "", "pods").namespace("d"),
                r#"pods is forbidden: User "u" cannot list resource "pods" in API group "" in the namespace "d""#,
            ),
            (
                Attributes::resource("list", "", "nodes"),
                r#"nodes is forbidden: User "u" cannot list resource "nodes" in API group "" at the cluster scope"#,
            ),
            (
                Attributes::resource("update", "apps", "deployments")
                    .subresource("scale")
                    .namespace("d")
                    .name("x"),
                r#"deployments.apps "x" is forbidden: User "u" cannot update resource "deployments/scale" in API group "apps" in the namespace "d""#,
            ),
            (Attributes::path("get", "/logs"), r#"forbidden: User "u" cannot get path "/logs""#),
            (Attributes::path("get", "/<b>&"), r#"forbidden: User "u" cannot get path "/&lt;b&gt;&amp;""#),
        ] {
            assert_eq!(forbidden_message_because(&user, &attributes, ""), expected);
        }
        assert_eq!(
            forbidden_message_because(&user, &Attributes::path("get", "/"), "RBAC: <x>"),
            r#"forbidden: User "u" cannot get path "/": RBAC: <x>"#
        );
    }
}
