//! What is said on the socket of subscriptions.

use remuda_objects::selector::LabelSelector;
use serde::Deserialize;
use serde_json::{Value, json};

use super::watch::SubscribeError;

/// Between two notices of a subscription without data, unless it says otherwise.
const DEBOUNCE: u64 = 5000;
/// Not less, whatever it says: a notice makes the client ask for its page again.
const SHORTEST: u64 = 50;
const LONGEST: u64 = 600_000;

/// A message of a client.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Received {
    resource_type: String,
    resource_version: Value,
    namespace: String,
    id: String,
    selector: String,
    mode: String,
    debounce_ms: Value,
    stop: bool,
}

/// What a client wants to be told of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Wish {
    pub(crate) resource_type: String,
    pub(crate) namespace: String,
    pub(crate) id: String,
    pub(crate) selector: String,
    pub(crate) mode: String,
    debounce: u64,
}

/// What a client says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Start(Wish, Option<u64>),
    Stop(Wish),
}

impl Said {
    /// `None` for what is no message; it is ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let received: Received = serde_json::from_str(text).ok()?;
        let number = |value: &Value| match value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let debounce = number(&received.debounce_ms).unwrap_or_default();
        let wish = Wish {
            resource_type: received.resource_type,
            namespace: received.namespace,
            id: received.id,
            selector: received.selector,
            mode: received.mode,
            debounce,
        };
        if wish.resource_type.is_empty() {
            return None;
        }
        if received.stop {
            return Some(Self::Stop(wish));
        }
        // Absent, 0 and -1 mean from now on.
        let after = number(&received.resource_version).filter(|version| *version > 0);
        Some(Self::Start(wish, after))
    }
}

impl Wish {
    /// Whether it is told that there are changes, and not what they are.
    pub(crate) fn is_without_data(&self) -> bool {
        self.mode == "resource.changes"
    }

    /// The revision it begins after. What is told at once says no more than that there may be changes, so none is too old.
    pub(crate) fn after(&self, asked: Option<u64>) -> Option<u64> {
        asked.filter(|_| !self.is_without_data())
    }

    pub(crate) fn debounce(&self) -> std::time::Duration {
        let wanted = if self.debounce == 0 { DEBOUNCE } else { self.debounce };
        std::time::Duration::from_millis(wanted.clamp(SHORTEST, LONGEST))
    }

    /// Whether an object is one of those that are wished for.
    pub(crate) fn is_about(&self, id: &str, namespace: &str) -> bool {
        (self.id.is_empty() || self.id == id) && (self.namespace.is_empty() || self.namespace == namespace)
    }

    pub(crate) fn labels(&self) -> Result<LabelSelector, String> {
        LabelSelector::parse(&self.selector).map_err(|error| error.to_string())
    }

    fn message(&self, name: &str) -> Value {
        let mut message = json!({"name": name, "resourceType": self.resource_type});
        let echoed = [
            ("namespace", &self.namespace),
            ("id", &self.id),
            ("selector", &self.selector),
            ("mode", &self.mode),
        ];
        for (field, value) in echoed {
            if !value.is_empty() {
                message[field] = value.as_str().into();
            }
        }
        message
    }

    pub(crate) fn started(&self) -> String {
        self.message("resource.start").to_string()
    }

    pub(crate) fn stopped(&self) -> String {
        self.message("resource.stop").to_string()
    }

    pub(crate) fn failed(&self, error: &SubscribeError) -> String {
        let mut message = self.message("resource.error");
        message["data"] = json!({"error": error.to_string(), "code": error.code()});
        message.to_string()
    }

    /// `name` is `resource.create`, `resource.change` or `resource.remove`.
    pub(crate) fn data(&self, name: &str, revision: u64, data: Value) -> String {
        let mut message = self.message(name);
        message["revision"] = revision.to_string().into();
        message["data"] = data;
        message.to_string()
    }

    pub(crate) fn changes(&self, revision: u64) -> String {
        let mut message = self.message("resource.changes");
        message["revision"] = revision.to_string().into();
        message.to_string()
    }
}

pub(crate) fn ping() -> String {
    json!({"name": "ping", "data": {"version": env!("CARGO_PKG_VERSION")}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_dashboard_are_understood() {
        let text = r#"{"resourceType":"secret","resourceVersion":"12","namespace":"a","mode":"resource.changes","debounceMs":4000}"#;
        let Some(Said::Start(wish, after)) = Said::parse(text) else { panic!() };
        assert_eq!(after, Some(12));
        assert!(wish.is_without_data());
        assert_eq!(wish.debounce().as_millis(), 4000);
        let expected = json!({"name": "resource.start", "resourceType": "secret", "namespace": "a", "mode": "resource.changes"});
        assert_eq!(wish.started(), expected.to_string());
        assert!(wish.is_about("a/x", "a") && !wish.is_about("b/x", "b"));
        let stop = r#"{"resourceType":"secret","namespace":"a","mode":"resource.changes","debounceMs":4000,"stop":true}"#;
        assert_eq!(Said::parse(stop), Some(Said::Stop(wish)), "the version is not part of the key");
    }

    #[test]
    fn versions_that_mean_now() {
        for version in [r#""0""#, r#""-1""#, "null", r#""""#, "-1", r#""x""#] {
            let text = format!(r#"{{"resourceType":"secret","resourceVersion":{version}}}"#);
            let Some(Said::Start(_, after)) = Said::parse(&text) else { panic!("{version}") };
            assert_eq!(after, None, "{version}");
        }
        for bad in ["", "[]", "{}", r#"{"resourceType":7}"#, "\u{0}"] {
            assert_eq!(Said::parse(bad), None, "{bad}");
        }
    }
}
