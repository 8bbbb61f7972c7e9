//! Headers that tell browsers what an answer is not.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::door::{Access, Door};

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// No answer of ours is a page that may load or run anything, or be shown inside another.
const NOTHING: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const DENY: HeaderValue = HeaderValue::from_static("DENY");

/// Adds what every answer of a door carries. What a handler has set stays.
///
/// There is no `Strict-Transport-Security`: it holds for a host with all its ports, and with an authority of our own
/// it would lock people out of `localhost`.
pub(crate) fn guard(door: &Door, code: StatusCode, headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    headers.insert(header::X_FRAME_OPTIONS, DENY);
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(NOTHING);
    if door.access == Access::Api || code == StatusCode::SWITCHING_PROTOCOLS {
        // Three more fit into the map as it is; nearly all answers of a busy server are these.
        return;
    }
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    if door.personal {
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
}

/// Headers of an answer that comes from elsewhere and that a browser must not take for a page of this server:
/// nothing in it runs, and what it would show as a document is offered as a file.
pub fn document_headers(headers: &mut HeaderMap) {
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("sandbox; default-src 'none'; frame-ancestors 'none'; form-action 'none'"),
    );
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // What is data to every browser. All else may be shown, or be made into something.
    let data = matches!(
        kind.as_str(),
        "application/json" | "application/yaml" | "text/plain" | "application/octet-stream" | ""
    ) || kind.starts_with("application/vnd.kubernetes.")
        || kind.starts_with("application/openmetrics-text")
        || (kind.starts_with("application/") && kind.ends_with("+json"))
        || kind.starts_with("application/com.github.proto-openapi");
    if !data {
        headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    }
}

/// Whether a caller reads answers that are compressed with gzip.
pub fn accepts_gzip(asked: &HeaderMap) -> bool {
    let lines = asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let refused = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0_f32));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_files() {
        let offered = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            document_headers(&mut headers);
            assert!(headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("sandbox;"));
            headers.contains_key(header::CONTENT_DISPOSITION)
        };
        for data in [
            "application/json",
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf",
            "application/apply-patch+json",
            "text/plain; charset=utf-8",
            "application/yaml",
        ] {
            assert!(!offered(data), "{data}");
        }
        for document in [
            "text/html",
            "TEXT/HTML; charset=utf-8",
            " text/html",
            "image/svg+xml",
            "application/xhtml+xml",
            "text/xml",
            "application/pdf",
            "application/javascript",
            "text/css",
            "multipart/x-mixed-replace",
        ] {
            assert!(offered(document), "{document}");
        }
    }
}
