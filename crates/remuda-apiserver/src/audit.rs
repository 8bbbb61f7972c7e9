//! The audit log: who did what, one JSON line each.

use std::{borrow::Cow, io::Write, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use remuda_auth::{
    attributes::Attributes,
    audit::{
        AuditLine, Level, Stage,
        event::{Event, ResponseStatus},
        policy::AuditPolicy,
    },
    identity::User,
    request_info::RequestInfo,
};
use serde_json::value::RawValue;
use tracing::error;

use crate::{
    call::{Answer, Content},
    front::Peer,
    server::{ApiServer, Inner},
    status::ApiResult,
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
        if let Err(error) = sink.write_all(line.as_bytes()) {
            error!(%error, "audit line lost");
        }
    }

    pub(crate) fn flush(&self) {
        // The next write reports what goes wrong.
        let _ = self.sink.lock().flush();
    }
}

impl ApiServer {
    /// Puts a request that was answered beside the API into the audit log, if there is one.
    pub fn audit(&self, request: &AuditLine<'_>) {
        let Some(log) = &self.inner.config.audit else { return };
        let verb = request.method.to_ascii_lowercase();
        let attributes = Attributes::path(&verb, request.path);
        let decision = log.policy.decide(&attributes, request.as_user.unwrap_or(request.user));
        if decision.level == Level::None || !decision.records(Stage::ResponseComplete) {
            return;
        }
        let (id, now) = (uuid::Uuid::new_v4().to_string(), self.inner.now());
        let mut event = Event::new(decision.level, &id, request.uri, request.user, &attributes, now);
        event.impersonated_user = request.as_user;
        event.source_ips = vec![request.source.to_string()];
        event.user_agent = request.user_agent;
        let (reason, message) = request.refusal.unwrap_or_default();
        event.response_status = Some(match request.code {
            code @ 0..400 => ResponseStatus::success(code),
            code => ResponseStatus::failure(code, reason, message),
        });
        event = event.at(Stage::ResponseComplete, now);
        if let Some(allowed) = request.allowed {
            event = event.decided(allowed, "");
        }
        log.write(&event.to_line());
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
    info: RequestInfo,
    agent: String,
    source: Option<String>,
    received: Timestamp,
    /// What authorization said, with its reason; nothing if it was never asked.
    judgement: Option<(bool, Arc<str>)>,
    body: Option<Box<RawValue>>,
    response: Option<Box<RawValue>>,
    failure: Option<(Cow<'static, str>, String)>,
}

impl Auditing {
    pub(crate) fn begin(server: &Inner, parts: &http::request::Parts, info: &RequestInfo) -> Self {
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let id = match header("audit-id").filter(|id| id.len() <= 128) {
            Some(id) => id.to_owned(),
            None => uuid::Uuid::new_v4().to_string(),
        };
        let record = server.config.audit.as_ref().map(|_| {
            Box::new(Record {
                uri: parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
                info: info.clone(),
                agent: header("user-agent").unwrap_or_default().to_owned(),
                source: parts.extensions.get::<Peer>().map(|peer| peer.address.ip().to_string()),
                received: server.now(),
                judgement: None,
                body: None,
                response: None,
                failure: None,
            })
        });
        Self { id, user: None, impersonated: None, record }
    }

    /// Takes down what authorization said: the reason to allow it, or nothing.
    pub(crate) fn judged(&mut self, allowed: Option<&Arc<str>>) {
        if let Some(record) = &mut self.record {
            record.judgement = Some((allowed.is_some(), allowed.cloned().unwrap_or_default()));
        }
    }

    /// How much the policy wants to know of a request on a resource.
    fn level(&self, server: &Inner) -> Level {
        let (Some(log), Some(record)) = (&server.config.audit, &self.record) else { return Level::None };
        let Some(user) = self.user.as_ref().filter(|_| record.info.is_resource()) else { return Level::None };
        let user = self.impersonated.as_ref().unwrap_or(user);
        log.policy.level_for(&record.info.attributes(), user)
    }

    /// Keeps the body of a write where the policy wants it. Only JSON can become part of a line.
    pub(crate) fn request_body(&mut self, server: &Inner, body: &Bytes) {
        if self.record.is_some() && !body.is_empty() && self.level(server) >= Level::Request {
            let kept = one_line(body);
            if let Some(record) = &mut self.record {
                record.body = kept;
            }
        }
    }

    /// Keeps the answer where the policy wants it, and why a request failed.
    pub(crate) fn answered(&mut self, server: &Inner, result: &ApiResult<Answer>) {
        if self.record.is_none() {
            return;
        }
        let wanted = self.level(server) >= Level::RequestResponse;
        let Some(record) = &mut self.record else { return };
        match result {
            Err(error) => record.failure = Some((error.reason.clone(), error.message.clone())),
            Ok(Answer { content: Content::Bytes(bytes), .. }) if wanted => record.response = one_line(bytes),
            Ok(Answer { content: Content::Value(value, _), .. }) if wanted => {
                record.response = serde_json::value::to_raw_value(value).ok();
            }
            Ok(_) => {}
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
        let attributes = record.info.attributes();
        let decision = log.policy.decide(&attributes, effective);
        if decision.level == Level::None || !decision.records(Stage::ResponseComplete) {
            return;
        }
        let mut event = Event::new(decision.level, &self.id, &record.uri, user, &attributes, record.received);
        event.impersonated_user = self.impersonated.as_deref();
        event.source_ips = record.source.into_iter().collect();
        event.user_agent = &record.agent;
        event.response_status = Some(match &record.failure {
            Some((reason, message)) => ResponseStatus::failure(code, reason, message),
            None => ResponseStatus::success(code),
        });
        event = event.at(Stage::ResponseComplete, server.now());
        if let Some((allowed, reason)) = &record.judgement {
            event = event.decided(*allowed, reason);
        }
        if let Some(body) = &record.body {
            event = event.with_request(body);
        }
        if let Some(body) = &record.response {
            event = event.with_response(body);
        }
        log.write(&event.to_line());
    }
}

/// A line is a line, however the client laid out its JSON.
fn one_line(json: &[u8]) -> Option<Box<RawValue>> {
    let value: serde_json::Value = serde_json::from_slice(json).ok()?;
    serde_json::value::to_raw_value(&value).ok()
}
