//! Which headers of a request reach a cluster, and which are made for it.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use remuda_door::document_headers;
use remuda_names::{gateway::FOREIGN_PREFIX, identity::group::ROLE_PREFIX};

use crate::access::Caller;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const IMPERSONATE_EXTRA: &str = "impersonate-extra-";
/// A credential in the list of subprotocols of a WebSocket, for callers that cannot set headers.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// About one connection, not about the request.
const HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// What a caller says about themselves; the cluster hears it from us.
fn is_own(name: &HeaderName) -> bool {
    let name = name.as_str();
    [header::AUTHORIZATION.as_str(), header::COOKIE.as_str(), header::HOST.as_str(), "forwarded"]
        .contains(&name)
        || [
            "impersonate-",
            "x-remote-",
            "x-forwarded-",
            "x-api-tunnel-",
            remuda_names::gateway::header::CATTLE_PREFIX,
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// The protocol a request or an answer wants to change to.
pub(super) fn wanted_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(header::CONNECTION);
    let mut words = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let wants = words.any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| wants).cloned()
}

pub(super) fn insert_upgrade(headers: &mut HeaderMap, upgrade: Option<&HeaderValue>) {
    if let Some(upgrade) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, upgrade.clone());
    }
}

/// Removes what is about one connection.
fn end_to_end(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP {
        headers.remove(*name);
    }
}

/// Headers of a cluster's answer that clients of its API have a use for. A cluster is not trusted with the browser of
/// its users: cookies, CORS, service workers, policies and redirections elsewhere are for this server alone.
const ANSWERED: &[&str] = &[
    "accept-ranges",
    "age",
    "allow",
    "audit-id",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-length",
    "content-range",
    "date",
    "etag",
    "expires",
    "last-modified",
    "retry-after",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "vary",
    "warning",
    "x-accepted-stream-protocol-versions",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
    "x-stream-protocol-version",
];

/// What of the headers of a cluster's answer its caller gets.
pub(super) fn answered(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    end_to_end(&mut kept);
    let foreign: Vec<HeaderName> =
        kept.keys().filter(|name| !ANSWERED.contains(&name.as_str())).cloned().collect();
    for name in foreign {
        kept.remove(name);
    }
    // Of several types the first counts, for us and for browsers.
    if let Some(kind) = headers.get(header::CONTENT_TYPE) {
        kept.insert(header::CONTENT_TYPE, kind.clone());
    }
    if let Some(location) = headers.get(header::LOCATION).filter(|location| is_here(location)) {
        kept.insert(header::LOCATION, location.clone());
    }
    document_headers(&mut kept);
    kept
}

/// Whether a redirection stays on this server: `//host` and `/\\host` are other hosts to browsers.
fn is_here(location: &HeaderValue) -> bool {
    match location.as_bytes() {
        [b'/', rest @ ..] => !rest.starts_with(b"/") && !rest.contains(&b'\\'),
        _ => false,
    }
}

/// What of a caller's headers a cluster gets.
pub(super) fn forwarded(headers: &HeaderMap, upgrade: Option<&HeaderValue>) -> HeaderMap {
    let mut kept = headers.clone();
    end_to_end(&mut kept);
    let own: Vec<HeaderName> = kept.keys().filter(|name| is_own(name)).cloned().collect();
    for name in own {
        kept.remove(name);
    }
    if kept.contains_key(header::SEC_WEBSOCKET_PROTOCOL) {
        let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
        let protocols: Vec<&str> = values
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|protocol| !protocol.is_empty() && !protocol.starts_with(BEARER_PROTOCOL))
            .collect();
        kept.remove(header::SEC_WEBSOCKET_PROTOCOL);
        if let Some(value) =
            HeaderValue::try_from(protocols.join(", ")).ok().filter(|value| !value.is_empty())
        {
            kept.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
        }
    }
    insert_upgrade(&mut kept, upgrade);
    kept
}

/// Who a caller is in another cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Abroad {
    pub(crate) user: String,
    /// In order, each once.
    pub(crate) groups: BTreeSet<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl Abroad {
    pub(crate) fn new(caller: &Caller, more: &[String]) -> Self {
        // Who has which role in a cluster is decided for each cluster, and brought along by nobody.
        let own = caller.groups.iter().filter(|group| !group.starts_with(ROLE_PREFIX));
        Self {
            user: abroad(&caller.name),
            groups: own.chain(more).map(|group| abroad(group)).collect(),
            // Keys of extras are headers, which have no upper case.
            extra: caller.extra.iter().map(|(key, values)| (key.to_lowercase(), values.clone())).collect(),
        }
    }
}

/// Makes the request that of somebody. Fails with what of them cannot be written.
pub(super) fn impersonate(headers: &mut HeaderMap, who: &Abroad) -> Result<(), String> {
    let value =
        |text: &str| HeaderValue::from_bytes(text.as_bytes()).map_err(|_| format!("the name {text:?}"));
    headers.insert(IMPERSONATE_USER, value(&who.user)?);
    for group in &who.groups {
        headers.append(IMPERSONATE_GROUP, value(group)?);
    }
    for (key, values) in &who.extra {
        let name = format!("{IMPERSONATE_EXTRA}{}", percent_encode(key.as_bytes(), KEY)).to_ascii_lowercase();
        let name = HeaderName::try_from(name).map_err(|_| format!("the extra {key:?}"))?;
        for text in values {
            headers.append(&name, value(text)?);
        }
    }
    Ok(())
}

/// All that may not be in the name of a header, and the sign that says so.
const KEY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Accounts and nodes of the management API are not those of the same name elsewhere.
pub(super) fn abroad(name: &str) -> String {
    const AT_HOME: &[&str] = &[
        "system:serviceaccount:",
        "system:serviceaccounts",
        "system:node:",
        "system:nodes",
        "system:bootstrap",
    ];
    if AT_HOME.iter().any(|prefix| name.starts_with(prefix)) {
        return format!("{FOREIGN_PREFIX}{}", name.strip_prefix("system:").unwrap_or(name));
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn text(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn credentials_and_hops_end_here() {
        let given = headers(&[
            ("authorization", "Bearer secret"),
            ("cookie", "R_SESS=x"),
            ("impersonate-user", "root"),
            ("impersonate-group", "system:masters"),
            ("impersonate-extra-scopes", "all"),
            ("impersonate-uid", "1"),
            ("x-remote-user", "root"),
            ("x-forwarded-for", "1.2.3.4"),
            ("proxy-authorization", "Basic x"),
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("transfer-encoding", "chunked"),
            ("host", "remuda"),
            ("accept", "application/json"),
            ("content-type", "application/json"),
        ]);
        assert_eq!(
            text(&forwarded(&given, None)),
            ["accept: application/json", "content-type: application/json"]
        );
    }

    #[test]
    fn a_cluster_has_no_say_in_the_browser_of_its_users() {
        let answer = headers(&[
            ("content-type", "text/html"),
            ("content-type", "application/json"),
            ("set-cookie", "R_SESS=evil"),
            ("service-worker-allowed", "/"),
            ("access-control-allow-origin", "*"),
            ("access-control-allow-credentials", "true"),
            ("clear-site-data", "*"),
            ("strict-transport-security", "max-age=1"),
            ("refresh", "0;url=https://evil.example"),
            ("location", "https://evil.example"),
            ("link", "</x>; rel=preload"),
            ("content-security-policy", "default-src *"),
            ("content-disposition", "inline"),
            ("www-authenticate", "Basic"),
            ("x-frame-options", "ALLOWALL"),
            ("report-to", "{}"),
            ("sourcemap", "/x"),
            ("etag", "1"),
            ("warning", "299 - x"),
            ("connection", "close, etag2"),
            ("etag2", "x"),
        ]);
        assert_eq!(
            text(&answered(&answer)),
            [
                "content-disposition: attachment",
                "content-security-policy: sandbox; default-src 'none'; frame-ancestors 'none'; form-action 'none'",
                "content-type: text/html",
                "etag: 1",
                "warning: 299 - x",
            ]
        );
        for (location, kept) in [
            ("/apis", true),
            ("//evil.example", false),
            ("/\\evil.example", false),
            ("https:/x", false),
            ("javascript:x", false),
            ("", false),
        ] {
            let answer = headers(&[("location", location)]);
            assert_eq!(answered(&answer).contains_key("location"), kept, "{location}");
        }
    }

    #[test]
    fn an_upgrade_is_kept_without_the_credential_in_it() {
        let given = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"),
            ("sec-websocket-protocol", "v4.channel.k8s.io"),
        ]);
        let upgrade = wanted_upgrade(&given);
        assert_eq!(
            text(&forwarded(&given, upgrade.as_ref())),
            [
                "connection: Upgrade",
                "sec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io",
                "upgrade: websocket",
            ]
        );
        assert_eq!(wanted_upgrade(&headers(&[("upgrade", "SPDY/3.1")])), None);
    }

    #[test]
    fn a_caller_is_named_with_groups_and_extras() {
        let caller = Caller {
            name: "ann".to_owned(),
            groups: vec!["dev".to_owned(), "system:authenticated".to_owned()],
            extra: [("example.org/Scope%".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into(),
            ..Caller::default()
        };
        let mut made = HeaderMap::new();
        impersonate(&mut made, &Abroad::new(&caller, &["system:masters".to_owned()])).unwrap();
        assert_eq!(
            text(&made),
            [
                "impersonate-extra-example.org%2fscope%25: a",
                "impersonate-extra-example.org%2fscope%25: b",
                "impersonate-group: dev",
                "impersonate-group: system:authenticated",
                "impersonate-group: system:masters",
                "impersonate-user: ann",
            ]
        );
        let odd = Caller { name: "a\r\nImpersonate-Group: system:masters".to_owned(), ..Caller::default() };
        assert!(impersonate(&mut HeaderMap::new(), &Abroad::new(&odd, &[])).is_err());
    }

    #[test]
    fn accounts_of_the_management_api_are_strangers_elsewhere() {
        for (here, there) in [
            ("system:serviceaccount:kube-system:x", "remuda:serviceaccount:kube-system:x"),
            ("system:serviceaccounts", "remuda:serviceaccounts"),
            ("system:node:a", "remuda:node:a"),
            ("system:nodes", "remuda:nodes"),
            ("system:authenticated", "system:authenticated"),
            ("system:masters", "system:masters"),
            ("ann", "ann"),
        ] {
            assert_eq!(abroad(here), there);
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

        #[test]
        fn nothing_a_caller_sends_makes_them_somebody_else(
            lines in proptest::collection::vec(("[a-zA-Z-]{1,20}|(?i)impersonate-[a-z-]{1,9}|(?i)authorization|(?i)connection", "[ -~]{0,30}"), 0..20),
        ) {
            let mut given = HeaderMap::new();
            for (name, value) in &lines {
                if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
                    given.append(name, value);
                }
            }
            let upgrade = wanted_upgrade(&given);
            let mut made = forwarded(&given, upgrade.as_ref());
            proptest::prop_assert!(!made.contains_key(header::AUTHORIZATION) && !made.contains_key(header::COOKIE));
            let foreign = made.keys().any(|name| name.as_str().starts_with("impersonate-"));
            proptest::prop_assert!(!foreign);
            let caller = Caller { name: "ann".to_owned(), ..Caller::default() };
            impersonate(&mut made, &Abroad::new(&caller, &[])).unwrap();
            proptest::prop_assert_eq!(made.get_all("impersonate-user").iter().count(), 1);
        }
    }
}
