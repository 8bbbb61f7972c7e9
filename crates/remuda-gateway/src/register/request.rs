//! What a machine says of itself.

use std::collections::BTreeMap;

use http::{HeaderMap, header};
use remuda_names::gateway::header::CATTLE_PREFIX;
use serde_json::{Map, Value};

use crate::respond::Refusal;

/// Longest id; it is the value of a label.
const LONGEST_ID: usize = 63;
/// All that is kept of one request.
const LARGEST: usize = 16 << 10;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) token: String,
    pub(super) id: String,
    /// All `X-Cattle-*` headers without the prefix.
    pub(super) says: BTreeMap<String, Vec<String>>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({})", self.id)
    }
}

impl Request {
    pub(super) fn parse(headers: &HeaderMap) -> Result<Self, Refusal> {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        let token = token.filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| Refusal::unauthorized("a token is missing"))?.to_owned();
        let mut says: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut size = 0;
        for (name, value) in headers {
            let Some(name) = name.as_str().strip_prefix(CATTLE_PREFIX) else { continue };
            let value = std::str::from_utf8(value.as_bytes())
                .map_err(|_| Refusal::bad(format!("header X-Cattle-{name} is no text")))?;
            size += name.len() + value.len();
            if size > LARGEST {
                return Err(Refusal::bad("the machine says more of itself than can be kept"));
            }
            says.entry(name.to_owned()).or_default().push(value.to_owned());
        }
        let id =
            says.get("id").and_then(|ids| ids.first()).map(|id| id.trim().to_owned()).unwrap_or_default();
        if id.is_empty() {
            return Err(Refusal::unauthorized("header X-Cattle-Id is missing"));
        }
        let ends_well = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let is_label = id.len() <= LONGEST_ID
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && ends_well(id.as_bytes().first())
            && ends_well(id.as_bytes().last());
        if !is_label {
            return Err(Refusal::bad("X-Cattle-Id must be at most 63 letters, digits, '-', '_' and '.'"));
        }
        Ok(Self { token, id, says })
    }

    /// The first value of a header; empty if there is none.
    pub(super) fn first(&self, name: &str) -> &str {
        self.says.get(name).and_then(|values| values.first()).map_or("", |value| value.trim())
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        ["true", "t", "yes", "y"].contains(&self.first(name).to_ascii_lowercase().as_str())
    }

    /// As the controller that makes Machines reads it.
    pub(super) fn data(&self) -> String {
        let map: Map<String, Value> =
            self.says.iter().map(|(name, values)| (name.clone(), values.clone().into())).collect();
        Value::Object(map).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[(&str, &str)]) -> Result<Request, Refusal> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: http::HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        Request::parse(&headers)
    }

    #[test]
    fn headers_are_kept_by_their_lower_case_names() {
        let request = parse(&[
            ("Authorization", "Bearer abc"),
            ("X-Cattle-Id", "m1"),
            ("X-Cattle-Role-Etcd", "Yes"),
            ("X-Cattle-Taints", "a=b:NoSchedule"),
            ("X-Cattle-Taints", "c:NoExecute"),
            ("Accept", "*/*"),
        ])
        .unwrap();
        assert!(request.is_true("role-etcd") && !request.is_true("role-worker"));
        assert_eq!(
            request.data(),
            r#"{"id":["m1"],"role-etcd":["Yes"],"taints":["a=b:NoSchedule","c:NoExecute"]}"#
        );
    }

    #[test]
    fn nonsense_is_refused_before_anything_is_read() {
        let check = |lines: &[(&str, &str)]| parse(lines).unwrap_err().code.as_u16();
        assert_eq!(check(&[("X-Cattle-Id", "m1")]), 401);
        assert_eq!(check(&[("Authorization", "Basic abc"), ("X-Cattle-Id", "m1")]), 401);
        assert_eq!(check(&[("Authorization", "Bearer abc")]), 401);
        let long = "a".repeat(64);
        for id in [long.as_str(), "a b", "a/b", "../x", "-a", "a="] {
            assert_eq!(check(&[("Authorization", "Bearer abc"), ("X-Cattle-Id", id)]), 400, "{id}");
        }
        let large = "x".repeat(LARGEST);
        assert_eq!(
            check(&[("Authorization", "Bearer a"), ("X-Cattle-Id", "m"), ("X-Cattle-Labels", &large)]),
            400
        );
    }
}
