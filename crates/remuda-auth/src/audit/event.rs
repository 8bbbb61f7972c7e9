//! One line of the audit log (`audit.k8s.io/v1` Event).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Level, Stage};
use crate::{attributes::Attributes, identity::User};

/// Annotation with the authorizer's verdict: `allow` or `forbid`.
pub const ANNOTATION_DECISION: &str = "authorization.k8s.io/decision";
/// Annotation with the authorizer's reason.
pub const ANNOTATION_REASON: &str = "authorization.k8s.io/reason";

/// Borrowed from the request it describes. Serializes as the JSON of the event.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event<'a> {
    kind: &'static str,
    api_version: &'static str,
    pub level: Level,
    #[serde(rename = "auditID")]
    pub audit_id: &'a str,
    pub stage: Stage,
    #[serde(rename = "requestURI")]
    pub request_uri: &'a str,
    pub verb: &'a str,
    pub user: &'a User,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<&'a User>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<ResponseStatus<'a>>,
    /// Only from level Request on; see [`Event::with_request`].
    #[serde(skip_serializing_if = "Option::is_none")]
    request_object: Option<&'a RawValue>,
    /// Only at level RequestResponse; see [`Event::with_response`].
    #[serde(skip_serializing_if = "Option::is_none")]
    response_object: Option<&'a RawValue>,
    #[serde(serialize_with = "micro_time")]
    pub request_received_timestamp: Timestamp,
    #[serde(serialize_with = "micro_time")]
    pub stage_timestamp: Timestamp,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<&'a str, &'a str>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub subresource: &'a str,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ResponseStatus<'a> {
    metadata: Empty,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub status: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'a str,
    pub code: u16,
}

/// `{}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Empty {}

impl<'a> ResponseStatus<'a> {
    pub fn success(code: u16) -> Self {
        Self { code, ..Self::default() }
    }

    pub fn failure(code: u16, reason: &'a str, message: &'a str) -> Self {
        Self { metadata: Empty {}, status: "Failure", message, reason, code }
    }
}

impl<'a> Event<'a> {
    /// The event of a request as it arrived; the rest is filled in as it becomes known.
    pub fn new(
        level: Level,
        audit_id: &'a str,
        request_uri: &'a str,
        user: &'a User,
        attributes: &Attributes<'a>,
        received: Timestamp,
    ) -> Self {
        let object = attributes.is_resource().then_some(ObjectReference {
            resource: attributes.resource,
            namespace: attributes.namespace,
            name: attributes.name,
            api_group: attributes.group,
            api_version: attributes.version,
            subresource: attributes.subresource,
            ..ObjectReference::default()
        });
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level,
            audit_id,
            stage: Stage::RequestReceived,
            request_uri,
            verb: attributes.verb,
            user,
            impersonated_user: None,
            source_ips: Vec::new(),
            user_agent: "",
            object_ref: object,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: received,
            stage_timestamp: received,
            annotations: BTreeMap::new(),
        }
    }

    pub fn at(mut self, stage: Stage, time: Timestamp) -> Self {
        self.stage = stage;
        self.stage_timestamp = time;
        self
    }

    pub fn decided(mut self, allowed: bool, reason: &'a str) -> Self {
        self.annotations.insert(ANNOTATION_DECISION, if allowed { "allow" } else { "forbid" });
        self.annotations.insert(ANNOTATION_REASON, reason);
        self
    }

    /// Dropped unless the level asks for it.
    pub fn with_request(mut self, body: &'a RawValue) -> Self {
        self.request_object = (self.level >= Level::Request).then_some(body);
        self
    }

    /// Dropped unless the level asks for it.
    pub fn with_response(mut self, body: &'a RawValue) -> Self {
        self.response_object = (self.level >= Level::RequestResponse).then_some(body);
        self
    }

    /// The event as one line, with its line feed.
    pub fn to_line(&self) -> String {
        let mut line =
            serde_json::to_string(self).expect("string-keyed maps and plain values always serialize");
        // Bodies are as the client sent them. JSON has raw line feeds only between tokens, never in
        // strings, so this changes the layout alone.
        if line.contains(['\n', '\r']) {
            line = line.replace(['\n', '\r'], " ");
        }
        line.push('\n');
        line
    }
}

fn micro_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_event_is_one_line_of_json() {
        let user = User::new("u", ["g"]);
        let other = User::new("o", ["h"]);
        let received: Timestamp = "2026-11-15T12:00:00.5Z".parse().unwrap();
        let done: Timestamp = "2026-11-15T12:00:01Z".parse().unwrap();
        let attributes =
            Attributes::resource("update", "apps", "deployments").version("v1").namespace("d").name("x");
        let body = RawValue::from_string("{\n  \"a\": 1\r\n}".into()).unwrap();
        let mut event = Event::new(Level::Request, "id", "/apis/apps/v1/x", &user, &attributes, received)
            .at(Stage::ResponseComplete, done)
            .decided(true, "RBAC: allowed")
            .with_request(&body)
            .with_response(&body);
        event.impersonated_user = Some(&other);
        event.source_ips = vec!["10.0.0.1".into()];
        event.user_agent = "kubectl/1";
        event.response_status = Some(ResponseStatus::success(200));
        let line = event.to_line();
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            json!({
                "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "auditID": "id",
                "stage": "ResponseComplete", "requestURI": "/apis/apps/v1/x", "verb": "update",
                "user": {"username": "u", "groups": ["g"]},
                "impersonatedUser": {"username": "o", "groups": ["h"]},
                "sourceIPs": ["10.0.0.1"], "userAgent": "kubectl/1",
                "objectRef": {"resource": "deployments", "namespace": "d", "name": "x", "apiGroup": "apps", "apiVersion": "v1"},
                "responseStatus": {"metadata": {}, "code": 200},
                "requestObject": {"a": 1},
                "requestReceivedTimestamp": "2026-11-15T12:00:00.500000Z",
                "stageTimestamp": "2026-11-15T12:00:01.000000Z",
                "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "RBAC: allowed"},
            })
        );
    }

    #[test]
    fn bodies_are_dropped_below_their_level() {
        let user = User::anonymous();
        let body = RawValue::from_string("\"s3cret\"".into()).unwrap();
        let attributes = Attributes::path("get", "/x");
        let now = Timestamp::UNIX_EPOCH;
        let event = Event::new(Level::Metadata, "id", "/x", &user, &attributes, now)
            .with_request(&body)
            .with_response(&body);
        assert!(!event.to_line().contains("s3cret"));
        assert!(!event.to_line().contains("objectRef"));
    }
}
