//! One request on a resource, and its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use remuda_auth::{
    identity::User,
    request_info::{RequestInfo, Verb},
};
use serde_json::Value;

use crate::{
    body::Body,
    negotiate::Form,
    options::Query,
    registry::{Registry, Resource},
    status::Named,
};

/// A request that found its resource. Everything it is judged by, in one place.
pub(crate) struct Call {
    pub(crate) info: RequestInfo,
    pub(crate) resource: Arc<Resource>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) verb: Verb,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) user: Arc<User>,
    pub(crate) pretty: bool,
    /// Sent as `Warning` headers.
    pub(crate) warnings: Mutex<Vec<String>>,
}

impl Call {
    /// A request the server makes of itself.
    pub(crate) fn internal(
        registry: Arc<Registry>,
        resource: Arc<Resource>,
        verb: Verb,
        namespace: Option<&str>,
        name: Option<&str>,
        user: Arc<User>,
    ) -> Self {
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        let info = RequestInfo {
            verb: verb.as_str(),
            group: resource.group.clone(),
            version: resource.version.clone(),
            namespace: namespace.unwrap_or_default().to_owned(),
            in_namespace: namespace.is_some(),
            resource: resource.plural.clone(),
            name: name.unwrap_or_default().to_owned(),
            ..RequestInfo::default()
        };
        Self {
            info,
            resource,
            registry,
            verb,
            query: Query::default(),
            // What it writes is owned by this name.
            headers: HeaderMap::from_iter([(
                http::header::USER_AGENT,
                HeaderValue::from_static("remuda-apiserver"),
            )]),
            user,
            pretty: false,
            warnings: Mutex::default(),
        }
    }

    /// The same on a subresource: rules for the object itself do not concern it.
    pub(crate) fn through(mut self, subresource: &str) -> Self {
        subresource.clone_into(&mut self.info.subresource);
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.info.name
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.info.in_namespace.then_some(self.info.namespace.as_str())
    }

    pub(crate) fn key(&self) -> String {
        self.resource.key(self.namespace(), self.name())
    }

    /// The object by its resource, for NotFound, Conflict and Forbidden.
    pub(crate) fn named(&self) -> Named<'_> {
        self.named_as(self.name())
    }

    pub(crate) fn named_as<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.resource.group, kind: &self.resource.plural, name }
    }

    /// The object by its kind, for Invalid.
    pub(crate) fn kind_named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.resource.group, kind: &self.resource.kind, name }
    }

    pub(crate) fn subresource(&self) -> &str {
        &self.info.subresource
    }

    pub(crate) fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().push(text.into());
    }

    /// The field manager of a write that names none: the client's name.
    pub(crate) fn default_manager(&self) -> String {
        let agent = self
            .headers
            .get(http::header::USER_AGENT)
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or_default();
        remuda_merge::managed::default_manager(agent)
    }
}

/// What a handler returns; the front encodes it.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    /// Finished JSON.
    Bytes(Bytes),
    Value(Value, Form),
    Body(Body),
    /// Headers of an answer after which the connection speaks another protocol.
    Switch(Vec<(http::HeaderName, String)>),
    /// Plain text, as it comes.
    Text(Body),
    /// Anything but JSON: bytes and their type.
    Other(Bytes, &'static str),
    /// A document with headers of its own.
    Tagged {
        bytes: Bytes,
        content_type: String,
        headers: Vec<(http::HeaderName, String)>,
    },
}

impl Answer {
    pub(crate) fn bytes(code: u16, bytes: Bytes) -> Self {
        Self { code, content: Content::Bytes(bytes) }
    }

    pub(crate) fn value(code: u16, value: Value, form: Form) -> Self {
        Self { code, content: Content::Value(value, form) }
    }

    pub(crate) fn body(code: u16, body: Body) -> Self {
        Self { code, content: Content::Body(body) }
    }

    pub(crate) fn text(code: u16, text: impl Into<Bytes>) -> Self {
        Self { code, content: Content::Other(text.into(), "text/plain; charset=utf-8") }
    }
}
