//! Content negotiation: which form an answer takes, and what a request body is.

use http::HeaderMap;

use crate::status::{ApiError, ApiResult};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Encoding {
    #[default]
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Shape {
    #[default]
    Object,
    Table,
    PartialMetadata,
    PartialMetadataList,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Form {
    pub encoding: Encoding,
    pub shape: Shape,
    /// The `v` of a `meta.k8s.io` shape: v1 or v1beta1.
    pub beta: bool,
}

struct Clause<'a> {
    media: &'a str,
    as_kind: &'a str,
    group: &'a str,
    version: &'a str,
}

fn clauses(accept: &str) -> impl Iterator<Item = Clause<'_>> {
    let mut ordered: Vec<(f32, &str)> = accept
        .split(',')
        .map(str::trim)
        .filter(|clause| !clause.is_empty())
        .map(|clause| {
            let quality = clause
                .split(';')
                .filter_map(|part| part.trim().strip_prefix("q="))
                .find_map(|q| q.parse().ok())
                .unwrap_or(1.0);
            (quality, clause)
        })
        .collect();
    ordered.sort_by(|a, b| b.0.total_cmp(&a.0));
    ordered.into_iter().map(|(_, clause)| {
        let mut parts = clause.split(';').map(str::trim);
        let mut parsed =
            Clause { media: parts.next().unwrap_or_default(), as_kind: "", group: "", version: "" };
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => parsed.as_kind = value,
                Some(("g", value)) => parsed.group = value,
                Some(("v", value)) => parsed.version = value,
                _ => {}
            }
        }
        parsed
    })
}

fn accept_header(headers: &HeaderMap) -> String {
    let values: Vec<&str> =
        headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}

fn encoding_of(media: &str) -> Option<Encoding> {
    match media {
        "application/json" | "application/*" | "*/*" => Some(Encoding::Json),
        // Clients that ask for protobuf alone decode by the answer's content type.
        "application/vnd.kubernetes.protobuf" => Some(Encoding::Json),
        "application/yaml" => Some(Encoding::Yaml),
        _ => None,
    }
}

/// Chooses the answer's form. `list` says whether the answer is a collection.
pub(crate) fn response_form(headers: &HeaderMap, list: bool) -> ApiResult<Form> {
    let accept = accept_header(headers);
    if accept.is_empty() {
        return Ok(Form::default());
    }
    let mut protobuf = false;
    for clause in clauses(&accept) {
        let Some(encoding) = encoding_of(clause.media) else { continue };
        if clause.media == "application/vnd.kubernetes.protobuf" && clause.as_kind.is_empty() {
            protobuf = true;
            continue;
        }
        let known = clause.group == "meta.k8s.io" && matches!(clause.version, "v1" | "v1beta1");
        let shape = match clause.as_kind {
            "" => Shape::Object,
            "Table" if known => Shape::Table,
            "PartialObjectMetadata" if known && !list => Shape::PartialMetadata,
            "PartialObjectMetadataList" if known && list => Shape::PartialMetadataList,
            "PartialObjectMetadata" if known => {
                return Err(ApiError::not_acceptable(
                    "you requested PartialObjectMetadata, but the requested object is a list (List)",
                ));
            }
            _ => continue,
        };
        return Ok(Form { encoding, shape, beta: clause.version == "v1beta1" });
    }
    if protobuf {
        return Ok(Form::default());
    }
    Err(ApiError::not_acceptable(
        "only the following media types are accepted: application/json, application/yaml",
    ))
}

/// The encoding for answers without shapes (errors, discovery documents).
pub(crate) fn plain_encoding(headers: &HeaderMap) -> Encoding {
    clauses(&accept_header(headers))
        .find_map(|clause| clause.as_kind.is_empty().then(|| encoding_of(clause.media)).flatten())
        .unwrap_or_default()
}

/// The version of aggregated discovery the client asked for first, before plain JSON.
pub(crate) fn aggregated_discovery(headers: &HeaderMap) -> Option<&'static str> {
    for clause in clauses(&accept_header(headers)) {
        if clause.media != "application/json" && clause.media != "*/*" {
            continue;
        }
        match (clause.as_kind, clause.group, clause.version) {
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => return Some("v2"),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => return Some("v2beta1"),
            ("", ..) => return None,
            _ => {}
        }
    }
    None
}

/// Whether the client's first acceptable OpenAPI v2 form is the protobuf one.
pub(crate) fn wants_openapi_protobuf(headers: &HeaderMap) -> bool {
    clauses(&accept_header(headers))
        .next()
        .is_some_and(|clause| clause.media.starts_with("application/com.github.proto-openapi.spec.v2"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyType {
    Json,
    Yaml,
    Protobuf,
    JsonPatch,
    MergePatch,
    StrategicPatch,
    ApplyPatch,
    Other,
}

pub(crate) fn body_type(headers: &HeaderMap) -> BodyType {
    let header =
        headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match header.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" | "*/*" => BodyType::Json,
        "application/yaml" => BodyType::Yaml,
        "application/vnd.kubernetes.protobuf" => BodyType::Protobuf,
        "application/json-patch+json" => BodyType::JsonPatch,
        "application/merge-patch+json" => BodyType::MergePatch,
        "application/strategic-merge-patch+json" => BodyType::StrategicPatch,
        "application/apply-patch+yaml" => BodyType::ApplyPatch,
        _ => BodyType::Other,
    }
}

/// Whether to indent: asked for, or a person's tool that did not say.
pub(crate) fn wants_pretty(query: Option<bool>, headers: &HeaderMap) -> bool {
    query.unwrap_or_else(|| {
        headers.get(http::header::USER_AGENT).and_then(|agent| agent.to_str().ok()).is_some_and(|agent| {
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|person| agent.starts_with(person))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(accept: &str, list: bool) -> ApiResult<Form> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, accept.parse().unwrap());
        response_form(&headers, list)
    }

    #[test]
    fn kubectl_gets_a_table_and_go_clients_get_json() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(form(kubectl, true).unwrap().shape, Shape::Table);
        let go = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(form(go, false).unwrap(), Form::default());
        assert_eq!(form("application/vnd.kubernetes.protobuf", false).unwrap(), Form::default());
        assert_eq!(form("*/*", false).unwrap(), Form::default());
        assert_eq!(form("application/yaml", false).unwrap().encoding, Encoding::Yaml);
    }

    #[test]
    fn an_unknown_shape_is_skipped_and_nothing_acceptable_is_refused() {
        assert_eq!(
            form("application/json;as=Foo;g=x;v=v1,application/json", false).unwrap(),
            Form::default()
        );
        assert_eq!(form("text/html", false).unwrap_err().code, 406);
        let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(form(partial, true).unwrap_err().code, 406);
        assert_eq!(form(partial, false).unwrap().shape, Shape::PartialMetadata);
    }
}
