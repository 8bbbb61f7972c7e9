//! The audit log: who did what, one JSON line each.

use std::{io::Write, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use remuda_auth::{
    attributes::Attributes,
    audit::{
        Level, Stage,
        event::{Event, ResponseStatus},
        policy::AuditPolicy,
    },
    identity::User,
};
use serde_json::value::RawValue;
use tracing::error;

use crate::{
    call::Call,
    front::Peer,
    options::Query,
    route::{ResourcePath, Route, Verb},
    server::Inner,
};

/// Where audit lines go, and which.
pub struct AuditLog {
    policy: AuditPolicy,
    sink: Mutex<Box<dyn Write + Send>>,
}

impl AuditLog {
    pub fn new(policy: AuditPolicy, sink: Box<dyn Write + Send>) -> Self {
        Self { policy, sink: Mutex::new(sink) }
    }

    fn write(&self, line: &str) {
        let mut sink = self.sink.lock();
        let result = sink.write_all(line.as_bytes()).and_then(|()| sink.write_all(b"\n"));
        if let Err(error) = result {
            error!(%error, "audit line lost");
        }
    }

    pub(crate) fn flush(&self) {
        // The next write reports what goes wrong.
        let _ = self.sink.lock().flush();
    }
}

/// What the log will say of one request.
pub(crate) struct Auditing {
    pub(crate) id: String,
    pub(crate) user: Option<Arc<User>>,
    pub(crate) impersonated: Option<Arc<User>>,
    record: Option<Box<Record>>,
}

/// Gathered only when there is a log.
struct Record {
    uri: String,
    path: Option<ResourcePath>,
    verb: String,
    agent: String,
    source: Option<String>,
    received: Timestamp,
    allowed: bool,
    body: Option<Box<RawValue>>,
}

impl Auditing {
    pub(crate) fn begin(server: &Inner, parts: &http::request::Parts, route: &Route) -> Self {
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let id = match header("audit-id").filter(|id| id.len() <= 128) {
            Some(id) => id.to_owned(),
            None => uuid::Uuid::new_v4().to_string(),
        };
        let record = server.config.audit.as_ref().map(|_| {
            let path = match route {
                Route::Resource(path) => Some(path.clone()),
                Route::Path(_) => None,
            };
            let verb = match &path {
                Some(path) => {
                    let watch = Query::parse(parts.uri.query()).is_watch();
                    Verb::of(&parts.method, path.name.is_some(), watch).map(|verb| verb.as_str().to_owned())
                }
                None => None,
            };
            Box::new(Record {
                uri: parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
                path,
                verb: verb.unwrap_or_else(|| parts.method.as_str().to_ascii_lowercase()),
                agent: header("user-agent").unwrap_or_default().to_owned(),
                source: parts.extensions.get::<Peer>().map(|peer| peer.address.ip().to_string()),
                received: server.now(),
                allowed: false,
                body: None,
            })
        });
        Self { id, user: None, impersonated: None, record }
    }

    pub(crate) fn allowed(&mut self) {
        if let Some(record) = &mut self.record {
            record.allowed = true;
        }
    }

    /// Keeps the body of a write where the policy wants it. Only JSON can become part of a line.
    pub(crate) fn request_body(&mut self, server: &Inner, call: &Call, body: &Bytes) {
        let (Some(log), Some(record)) = (&server.config.audit, &mut self.record) else { return };
        if body.is_empty() {
            return;
        }
        let attributes = record.path.as_ref().map(|path| resource_attributes(path, &record.verb));
        let level = attributes.map(|attributes| log.policy.level_for(&attributes, &call.user));
        if level >= Some(Level::Request) {
            let text = std::str::from_utf8(body).ok();
            // A line is a line, however the client laid out its JSON.
            record.body = text
                .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
                .and_then(|value| serde_json::value::to_raw_value(&value).ok());
        }
    }

    pub(crate) fn end(self, server: &Inner, code: u16) {
        let (Some(log), Some(record)) = (&server.config.audit, self.record) else { return };
        let anonymous;
        let user = match &self.user {
            Some(user) => &**user,
            None => {
                anonymous = User::anonymous();
                &anonymous
            }
        };
        let effective = self.impersonated.as_deref().unwrap_or(user);
        let attributes = match &record.path {
            Some(path) => resource_attributes(path, &record.verb),
            None => Attributes::path(&record.verb, record.uri.split('?').next().unwrap_or_default()),
        };
        let decision = log.policy.decide(&attributes, effective);
        if decision.level == Level::None || !decision.records(Stage::ResponseComplete) {
            return;
        }
        let mut event = Event::new(decision.level, &self.id, &record.uri, user, &attributes, record.received);
        event.impersonated_user = self.impersonated.as_deref();
        event.source_ips = record.source.into_iter().collect();
        event.user_agent = &record.agent;
        event.response_status = Some(if code < 400 {
            ResponseStatus::success(code)
        } else {
            ResponseStatus::failure(code, "", "")
        });
        event = event.at(Stage::ResponseComplete, server.now()).decided(record.allowed, "");
        if decision.level >= Level::Request
            && let Some(body) = &record.body
        {
            event = event.with_request(body);
        }
        log.write(&event.to_line());
    }
}

fn resource_attributes<'a>(path: &'a ResourcePath, verb: &'a str) -> Attributes<'a> {
    Attributes::resource(verb, &path.group, &path.resource)
        .version(&path.version)
        .subresource(path.subresource.as_deref().unwrap_or_default())
        .namespace(path.namespace.as_deref().unwrap_or_default())
        .name(path.name.as_deref().unwrap_or_default())
}
