//! Conversion settings. Errors use the field names of the reference's internal form.

use base64::Engine as _;
use serde_json::Value;

use crate::{
    crd::{condition_is_true, flag, present, text, texts},
    error::FieldError,
    names,
};

pub(super) fn check(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(conversion) = present(spec, "conversion") else { return };
    let strategy = text(conversion, "strategy");
    if strategy != "None" && flag(spec, "preserveUnknownFields") {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid("spec.conversion.strategy", &strategy.into(), detail));
    }
    match strategy {
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        "None" | "Webhook" => {}
        other => {
            let supported = ["None", "Webhook"];
            errors.push(FieldError::not_supported("spec.conversion.strategy", &other.into(), &supported));
        }
    }
    let webhook = present(conversion, "webhook");
    let config = webhook.and_then(|webhook| present(webhook, "clientConfig"));
    let reviews: Vec<&str> =
        webhook.map(|webhook| texts(webhook, "conversionReviewVersions").collect()).unwrap_or_default();
    if strategy == "Webhook" {
        client_config(config, old, errors);
        review_versions(&reviews, old, errors);
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if config.is_some() {
        errors.push(FieldError::forbidden("spec.conversion.webhookClientConfig", detail));
    }
    if !reviews.is_empty() {
        errors.push(FieldError::forbidden("spec.conversion.conversionReviewVersions", detail));
    }
}

fn client_config(config: Option<&Value>, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = "spec.conversion.webhookClientConfig";
    let Some(config) = config else {
        errors.push(FieldError::required(path, "required when strategy is set to Webhook"));
        return;
    };
    match (present(config, "url"), present(config, "service")) {
        (Some(url), None) => check_url(url.as_str().unwrap_or_default(), &format!("{path}.url"), errors),
        (None, Some(service)) => check_service(service, &format!("{path}.service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
    let bundle = text(config, "caBundle");
    // Before a definition is established its bundle is often still to be injected.
    if !bundle.is_empty() && !is_bundle(bundle) && !may_be_unusable(old) {
        let detail = "unable to load root certificates: unable to parse bytes as PEM block";
        errors.push(FieldError::invalid(format!("{path}.caBundle"), &bundle.into(), detail));
    }
}

fn may_be_unusable(old: Option<&Value>) -> bool {
    let Some(old) = old else { return true };
    let stored = old_webhook(old)
        .and_then(|webhook| webhook.get("clientConfig"))
        .map(|config| text(config, "caBundle"));
    !condition_is_true(old, "Established")
        || stored.is_some_and(|bundle| !bundle.is_empty() && !is_bundle(bundle))
}

fn old_webhook(old: &Value) -> Option<&Value> {
    old.get("spec")?.get("conversion")?.get("webhook")
}

fn is_bundle(encoded: &str) -> bool {
    let decoded = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    String::from_utf8_lossy(&decoded).contains("-----BEGIN CERTIFICATE-----")
}

fn check_url(url: &str, field: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(field, &scheme.into(), &detail));
    }
    if host.is_empty() {
        errors.push(FieldError::invalid(field, &"".into(), &format!("host must be specified{FORM}")));
    }
    for (part, detail) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            errors.push(FieldError::invalid(field, &part.into(), detail));
        }
    }
}

fn check_service(service: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["name", "namespace"] {
        if text(service, name).is_empty() {
            errors.push(FieldError::required(format!("{path}.{name}"), ""));
        }
    }
    let port = present(service, "port").map_or(443, |port| port.as_i64().unwrap_or_default());
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{path}.port"), &port.into(), detail));
    }
    let url_path = text(service, "path");
    let field = format!("{path}.path");
    let mut wrong = |detail: &str| errors.push(FieldError::invalid(&field, &url_path.into(), detail));
    if url_path.is_empty() || url_path == "/" {
        return;
    }
    if url_path == "//" {
        wrong("segment[0] may not be empty");
        return;
    }
    if !url_path.starts_with('/') {
        wrong("must start with a '/'");
    }
    let inner = url_path.strip_prefix('/').unwrap_or(url_path);
    for (index, segment) in inner.strip_suffix('/').unwrap_or(inner).split('/').enumerate() {
        if segment.is_empty() {
            wrong(&format!("segment[{index}] may not be empty"));
            continue;
        }
        for problem in names::dns1123_subdomain(segment) {
            wrong(&format!("segment[{index}]: {problem}"));
        }
    }
}

fn review_versions(versions: &[&str], old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = "spec.conversion.conversionReviewVersions";
    let known = |version: &str| matches!(version, "v1" | "v1beta1");
    if versions.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let field = format!("{path}[{index}]");
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(field, &(*version).into(), "duplicate version"));
            continue;
        }
        let problems = names::dns1035_label(version);
        errors.extend(problems.iter().map(|detail| FieldError::invalid(&field, &(*version).into(), detail)));
    }
    let stored: Vec<&str> = old
        .and_then(old_webhook)
        .map(|webhook| texts(webhook, "conversionReviewVersions").collect())
        .unwrap_or_default();
    let stored_ok = stored.is_empty() || stored.iter().any(|version| known(version));
    if stored_ok && !versions.iter().any(|version| known(version)) {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(path, &Value::from(versions.to_vec()), detail));
    }
}
