//! The setting that says where release data is fetched: `{"url": "…", "refresh-interval-minutes": "1440"}`.

use std::time::Duration;

use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Named, Operation};
use remuda_names::rancher::{group::MANAGEMENT, setting::RELEASE_DATA};
use remuda_schema::FieldError;
use serde_json::{Value, json};

/// Between two looks, if nothing else is said.
const INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// Minutes. Asking more often would only load the source.
const SHORTEST: u64 = 5;

/// Where documents are fetched, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) url: String,
    pub(super) interval: Duration,
}

impl Config {
    /// `None` if nothing is to be fetched.
    pub(super) fn parse(text: &str) -> Result<Option<Config>, String> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))?;
        let map = value.as_object().ok_or("not a JSON object")?;
        let url = match map.get("url") {
            None | Some(Value::Null) => "",
            Some(Value::String(url)) => url.trim(),
            Some(_) => return Err("url is not a string".to_owned()),
        };
        if url.is_empty() {
            return Ok(None);
        }
        let parsed =
            reqwest::Url::parse(url).map_err(|error| format!("url {url:?} cannot be read: {error}"))?;
        if !["https", "http"].contains(&parsed.scheme()) || parsed.host_str().is_none() {
            return Err(format!("url {url:?} does not begin with https:// and a host"));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("url holds credentials, which everybody who reads settings would see".to_owned());
        }
        let interval = match map.get("refresh-interval-minutes") {
            None | Some(Value::Null) => INTERVAL,
            Some(minutes) => {
                let number = match minutes {
                    Value::String(text) => text.trim().parse::<u64>().ok(),
                    other => other.as_u64(),
                };
                let good = number.filter(|minutes| (SHORTEST..=60 * 24 * 365).contains(minutes));
                let minutes = good.ok_or_else(|| {
                    format!("refresh-interval-minutes is not a number of minutes from {SHORTEST} to a year")
                })?;
                Duration::from_secs(minutes * 60)
            }
        };
        Ok(Some(Config { url: url.to_owned(), interval }))
    }
}

/// Refuses a setting that could not be followed.
pub(crate) struct Admission;

impl Hook for Admission {
    fn concerns(&self, request: &Request<'_>) -> bool {
        request.group == MANAGEMENT
            && request.kind == "Setting"
            && request.name == RELEASE_DATA
            && request.operation != Operation::Delete
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let Some(object) = object.filter(|_| self.concerns(request)) else { return Ok(Vec::new()) };
        let value = object["value"].as_str().unwrap_or_default();
        match Config::parse(value) {
            Ok(config) => {
                let plain = config.is_some_and(|config| config.url.starts_with("http:"));
                let warning =
                    "value: the document is fetched without encryption: who is on its way can change it";
                Ok(if plain { vec![warning.to_owned()] } else { Vec::new() })
            }
            Err(reason) => {
                let named = Named { group: request.group, kind: request.kind, name: request.name };
                Err(ApiError::invalid(named, &[FieldError::invalid("value", &json!(value), &reason)]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, reason: &str) {
        let found = Config::parse(text).expect_err("this cannot be followed");
        assert!(found.contains(reason), "{found}");
    }

    #[test]
    fn the_setting_is_read_as_others_write_it() {
        let of = |text: &str| Config::parse(text).unwrap();
        assert_eq!(of(""), None);
        assert_eq!(of(r#"{"refresh-interval-minutes":"1440"}"#), None);
        let config =
            of(r#"{"refresh-interval-minutes":"60","url":"https://x.example/data.json","branch":"b"}"#)
                .unwrap();
        assert_eq!((config.url.as_str(), config.interval.as_secs()), ("https://x.example/data.json", 3600));
        assert_eq!(
            of(r#"{"url":"http://x/","refresh-interval-minutes":30}"#).unwrap().interval.as_secs(),
            1800
        );
        assert_eq!(of(r#"{"url":"http://x/"}"#).unwrap().interval, INTERVAL);
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        refused("https://x.example/data.json", "not a JSON object");
        refused(r#"{"url":"file:///etc/shadow"}"#, "does not begin with https://");
        refused(r#"{"url":"https://me:secret@x.example/"}"#, "holds credentials");
        refused(r#"{"url":"x.example"}"#, "cannot be read");
        refused(r#"{"url":7}"#, "not a string");
        for minutes in [r#""often""#, "0", "-5", "1.5", "99999999"] {
            refused(
                &format!(r#"{{"url":"https://x/","refresh-interval-minutes":{minutes}}}"#),
                "refresh-interval-minutes",
            );
        }
    }
}
