//! Claims of addresses, addresses, and their pools.

use std::net::IpAddr;

use remuda_schema::FieldError;
use serde_json::Value;

use super::path::{at, text};
use crate::addresses::{Pool, Spec};

fn unchangeable(kind: &str, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match old {
        Some(old) if old["spec"] != object["spec"] => {
            vec![FieldError::forbidden("spec", &format!("{kind} spec is immutable"))]
        }
        _ => Vec::new(),
    }
}

pub(super) fn claim(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    unchangeable("IPAddressClaim", object, old)
}

pub(super) fn address(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if old.is_some() {
        return unchangeable("IPAddress", object, old);
    }
    let mut errors = Vec::new();
    let mut read = |field: &str, path: &[&str]| {
        let written = text(object, path);
        let found = written.parse::<IpAddr>().ok();
        if found.is_none() && at(object, path).is_some() {
            errors.push(FieldError::invalid(field, &written.into(), "not a valid IP address"));
        }
        found
    };
    let found = read("spec.address", &["spec", "address"]);
    read("spec.gateway", &["spec", "gateway"]);
    if let Some(prefix) = at(object, &["spec", "prefix"]) {
        let bits = prefix.as_i64().unwrap_or_default();
        let problem = match found {
            _ if bits < 0 => "prefix cannot be negative",
            Some(IpAddr::V4(_)) if bits > 32 => "prefix is too large for an IPv4 address",
            Some(IpAddr::V6(_)) if bits > 128 => "prefix is too large for an IPv6 address",
            _ => return errors,
        };
        errors.push(FieldError::invalid("spec.prefix", prefix, problem));
    }
    errors
}

/// What was accepted once is not judged again, so that a pool of another version of these rules can be changed at all.
pub(super) fn pool(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if old.is_some_and(|old| old["spec"] == object["spec"]) {
        return Vec::new();
    }
    Pool::read(&Spec::of(object)).err().unwrap_or_default()
}
