//! Query parameters and the options they carry.

use remuda_auth::request_info::{form_decoded, is_true};
use remuda_objects::selector::{FieldSelector, LabelSelector};
use remuda_schema::{FieldError, Reason};
use serde_json::{Value, json};

use crate::status::{ApiError, ApiResult, Named};

/// Decoded query string. Unknown parameters are ignored.
#[derive(Debug, Default, Clone)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (form_decoded(key).into_owned(), form_decoded(value).into_owned())
            })
            .collect();
        Self { pairs }
    }

    pub(crate) fn from_pairs(pairs: Vec<(String, String)>) -> Self {
        Self { pairs }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The same with one more term of the field selector.
    pub(crate) fn with_field(&self, term: &str) -> Self {
        let mut pairs = self.pairs.clone();
        match pairs.iter_mut().find(|(name, _)| name == "fieldSelector") {
            Some((_, selector)) if !selector.is_empty() => *selector = format!("{selector},{term}"),
            Some((_, selector)) => term.clone_into(selector),
            None => pairs.push(("fieldSelector".to_owned(), term.to_owned())),
        }
        Self { pairs }
    }

    /// A boolean as Kubernetes reads it.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(is_true)
    }

    fn non_empty(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    pub(crate) fn integer(&self, key: &str) -> ApiResult<Option<i64>> {
        self.non_empty(key)
            .map(|value| {
                value.parse::<i64>().map_err(|_| {
                    ApiError::bad_request(format!(
                        "unable to decode parameter {key}: {value:?} is not an integer"
                    ))
                })
            })
            .transpose()
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.flag("watch").unwrap_or(false)
    }
}

fn invalid_options(kind: &str, error: FieldError) -> ApiError {
    ApiError::invalid(Named { group: "meta.k8s.io", kind, name: "" }, &[error])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    Exact,
    NotOlderThan,
}

/// List, watch and deletecollection.
#[derive(Debug, Default, Clone)]
pub(crate) struct ListOptions {
    pub labels: Option<LabelSelector>,
    pub fields: Option<FieldSelector>,
    pub limit: usize,
    pub continue_token: Option<String>,
    pub resource_version: Option<u64>,
    pub version_match: Option<VersionMatch>,
    pub watch: bool,
    pub bookmarks: bool,
    pub send_initial_events: Option<bool>,
    pub timeout_seconds: Option<u64>,
}

impl ListOptions {
    pub(crate) fn parse(query: &Query) -> ApiResult<Self> {
        let labels = query
            .non_empty("labelSelector")
            .map(|text| LabelSelector::parse(text).map_err(|error| ApiError::bad_request(error.to_string())))
            .transpose()?;
        let fields = query
            .non_empty("fieldSelector")
            .map(|text| FieldSelector::parse(text).map_err(|error| ApiError::bad_request(error.to_string())))
            .transpose()?;
        let resource_version = parse_version(query.get("resourceVersion").unwrap_or_default())?;
        // A negative limit is no limit.
        let limit = query.integer("limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
        let options = Self {
            labels,
            fields,
            limit,
            continue_token: query.non_empty("continue").map(str::to_owned),
            resource_version,
            version_match: None,
            watch: query.is_watch(),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: query.flag("sendInitialEvents"),
            timeout_seconds: query.integer("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok()),
        };
        options.check_match(query.non_empty("resourceVersionMatch"))
    }

    fn check_match(mut self, text: Option<&str>) -> ApiResult<Self> {
        let forbidden = |field: &str, detail: &str| {
            Err(invalid_options("ListOptions", FieldError::forbidden(field, detail)))
        };
        let version_match = match text {
            None => None,
            Some("Exact") => Some(VersionMatch::Exact),
            Some("NotOlderThan") => Some(VersionMatch::NotOlderThan),
            Some(other) => {
                return Err(invalid_options(
                    "ListOptions",
                    FieldError::not_supported(
                        "resourceVersionMatch",
                        &json!(other),
                        &["Exact", "NotOlderThan", ""],
                    ),
                ));
            }
        };
        if self.watch {
            if self.send_initial_events.is_some() && version_match != Some(VersionMatch::NotOlderThan) {
                return forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
            }
            if version_match.is_some() && self.send_initial_events.is_none() {
                return forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
        } else {
            if self.send_initial_events.is_some() {
                return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
            }
            if version_match.is_some() {
                if self.continue_token.is_some() {
                    return forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden when continue is provided",
                    );
                }
                match (self.resource_version, version_match) {
                    (None, _) => {
                        return forbidden(
                            "resourceVersionMatch",
                            "resourceVersionMatch is forbidden unless resourceVersion is provided",
                        );
                    }
                    (Some(0), Some(VersionMatch::Exact)) => {
                        return forbidden(
                            "resourceVersionMatch",
                            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                        );
                    }
                    _ => {}
                }
            }
        }
        self.version_match = version_match;
        Ok(self)
    }
}

/// A resourceVersion parameter; empty is `None`.
pub(crate) fn parse_version(text: &str) -> ApiResult<Option<u64>> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(version) => Ok(Some(version)),
        Err(_) => Err(ApiError::bad_request(format!("resource version {text:?} is not a number"))),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Create, update and patch.
#[derive(Debug, Default, Clone)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub manager: Option<String>,
    /// `None` if the client leaves it to the server.
    pub validation: Option<FieldValidation>,
    pub force: Option<bool>,
    /// Admission has judged it already, as something else.
    pub admitted: bool,
}

impl WriteOptions {
    /// `kind` is the options' kind in error texts (`CreateOptions`, …).
    pub(crate) fn parse(query: &Query, kind: &'static str) -> ApiResult<Self> {
        let mut errors = Vec::new();
        let dry_run = parse_dry_run(query.all("dryRun"), &mut errors);
        let manager = query.non_empty("fieldManager").map(str::to_owned);
        if let Some(manager) = &manager {
            errors.extend(check_manager(manager));
        }
        let validation = match query.get("fieldValidation").unwrap_or_default() {
            "" => None,
            "Warn" => Some(FieldValidation::Warn),
            "Ignore" => Some(FieldValidation::Ignore),
            "Strict" => Some(FieldValidation::Strict),
            other => {
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    &json!(other),
                    &["Ignore", "Strict", "Warn", ""],
                ));
                None
            }
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid(Named { group: "meta.k8s.io", kind, name: "" }, &errors));
        }
        Ok(Self { dry_run, manager, validation, force: query.flag("force"), admitted: false })
    }
}

fn check_manager(manager: &str) -> Option<FieldError> {
    if manager.len() > 128 {
        return Some(FieldError::too_long("fieldManager", 128));
    }
    manager.chars().any(char::is_control).then(|| {
        FieldError::invalid("fieldManager", &json!(manager), "should only contain printable characters")
    })
}

fn parse_dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    // An empty value is as wrong as any other: whoever asks for a dry run must not get a write.
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        let message = format!("Unsupported value: {}: supported values: \"All\"", json!(values));
        errors.push(FieldError::new("dryRun", Reason::NotSupported, message));
    }
    !values.is_empty()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// Delete and deletecollection.
#[derive(Debug, Default, Clone)]
pub(crate) struct DeleteOptions {
    pub dry_run: bool,
    pub grace_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// Admission has had its say already, of the request this delete is part of.
    pub admitted: bool,
}

impl DeleteOptions {
    /// The body wins over the query when there is one.
    pub(crate) fn parse(query: &Query, body: Option<&Value>) -> ApiResult<Self> {
        let mut errors = Vec::new();
        let mut options = Self::default();
        let (policy, orphan);
        if let Some(body) = body {
            let dry_run: Vec<&str> = body["dryRun"]
                .as_array()
                .map(|list| list.iter().filter_map(Value::as_str).collect())
                .unwrap_or_default();
            options.dry_run = parse_dry_run(dry_run.into_iter(), &mut errors)
                || parse_dry_run(query.all("dryRun"), &mut errors);
            options.grace_seconds = body["gracePeriodSeconds"].as_i64();
            options.uid = body["preconditions"]["uid"].as_str().map(str::to_owned);
            options.resource_version = body["preconditions"]["resourceVersion"].as_str().map(str::to_owned);
            policy = body["propagationPolicy"].as_str().map(str::to_owned);
            orphan = body["orphanDependents"].as_bool();
        } else {
            options.dry_run = parse_dry_run(query.all("dryRun"), &mut errors);
            options.grace_seconds = query.integer("gracePeriodSeconds")?;
            policy = query.non_empty("propagationPolicy").map(str::to_owned);
            orphan = query.flag("orphanDependents");
        }
        if policy.is_some() && orphan.is_some() {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                &json!(policy),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        options.propagation = match policy.as_deref() {
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    &json!(other),
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
            None => match orphan {
                Some(true) => Some(Propagation::Orphan),
                Some(false) => Some(Propagation::Background),
                None => None,
            },
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid(
                Named { group: "meta.k8s.io", kind: "DeleteOptions", name: "" },
                &errors,
            ));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod selected_names {
    use remuda_auth::request_info::RequestInfo;
    use remuda_objects::selector::FieldSelector;

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(1024))]

        /// Authorization reads a field selector by itself: it must not see a name that the list is not restricted to.
        #[test]
        fn a_name_that_is_judged_is_a_name_that_is_demanded(
            text in "((metadata\\.name|a|!|=|==|!=|\\\\|,|b|/|%2C|\\\\,|\\.)){0,8}",
        ) {
            let encoded = percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC).to_string();
            let info = RequestInfo::parse("GET", "/api/v1/pods", Some(&format!("fieldSelector={encoded}")));
            let selector = FieldSelector::parse(&text).ok();
            let demanded: Vec<&str> = selector
                .iter()
                .flat_map(|selector| &selector.terms)
                .filter(|term| term.path == "metadata.name" && term.operator == remuda_objects::selector::FieldOperator::Equals)
                .map(|term| term.value.as_str())
                .collect();
            let seen = info.selected_name.as_str();
            proptest::prop_assert!(seen.is_empty() || demanded.contains(&seen), "{:?}: {:?}", text, info);
            let plain = demanded.first().filter(|name| !name.is_empty() && !name.contains(['/', '%']) && !matches!(**name, "." | ".."));
            if demanded.len() == 1 && plain.is_some() {
                proptest::prop_assert_eq!(seen, demanded[0]);
            }
        }
    }
}
