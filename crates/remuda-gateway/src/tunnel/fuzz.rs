//! The beginning of a tunnel, at random.

use http::{HeaderMap, HeaderName, HeaderValue, Request};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use remuda_names::fuzz;

use super::{BASE64_STANDARD, Engine, PARAMS_HEADER, TOKEN_HEADER, one, uploaded, websocket_accept};

fn config() -> Config {
    let told = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u32>().ok();
    let seed = RngSeed::Fixed(told(fuzz::SEED).unwrap_or(1).into());
    Config { cases: told(fuzz::CASES).unwrap_or(512), rng_seed: seed, ..Config::default() }
}

fn lines() -> impl Strategy<Value = Vec<(String, String)>> {
    let line = prop_oneof![
        ("connection", "(keep-alive, ?)?[Uu]pgrade|close|[ -~]{0,8}"),
        ("upgrade", "websocket|WebSocket|h2c|[ -~]{0,8}"),
        ("sec-websocket-version", "13|12|13, 8|"),
        ("sec-websocket-key", "[A-Za-z0-9+/]{22}==|[ -~]{0,30}"),
        (TOKEN_HEADER, "[ -~]{0,20}"),
        (PARAMS_HEADER, "[A-Za-z0-9+/=]{0,40}"),
    ];
    proptest::collection::vec(line.prop_map(|(name, value)| (name.to_owned(), value)), 0..8)
}

fn headers(lines: &[(String, String)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        if let Ok(value) = HeaderValue::try_from(value.as_str()) {
            headers.append(HeaderName::try_from(name.to_ascii_lowercase()).unwrap(), value);
        }
    }
    headers
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_handshake_is_whole_or_refused(method in "GET|POST|CONNECT", lines in lines()) {
        let mut request = Request::builder().method(method.as_str()).uri("/v3/connect").body(()).unwrap();
        *request.headers_mut() = headers(&lines);
        let (head, ()) = request.into_parts();
        match websocket_accept(&head) {
            Ok(accept) => {
                prop_assert_eq!(method, "GET");
                prop_assert_eq!(accept.len(), 28);
                prop_assert!(one(&head.headers, "sec-websocket-version").is_none_or(|version| version == "13"));
            }
            Err(refusal) => prop_assert!(refusal.code.is_client_error() && !refusal.message.is_empty()),
        }
        // Two headers of one name are two readings.
        for name in [TOKEN_HEADER, PARAMS_HEADER] {
            let count = head.headers.get_all(name).iter().count();
            prop_assert!(count < 2 || one(&head.headers, name).is_none());
        }
    }

    #[test]
    fn what_an_agent_says_of_its_cluster_is_whole_or_refused(
        address in "([a-z0-9.:-]{0,20}|https?://[a-z0-9.:/@-]{0,20}|\\PC{0,10})",
        ca in "[ -~]{0,20}|-----BEGIN CERTIFICATE-----\n[A-Za-z0-9]{0,20}",
        token in "[ -~]{0,10}",
        broken in any::<bool>(),
    ) {
        let params = serde_json::json!({"cluster": {
            "address": address, "token": token,
            "caCert": if broken { ca.clone() } else { BASE64_STANDARD.encode(&ca) },
        }});
        let value = BASE64_STANDARD.encode(params.to_string());
        if let Err(refusal) = uploaded(&headers(&[(PARAMS_HEADER.to_owned(), value)])) {
            prop_assert!(refusal.code.is_client_error());
            // What a client sent is not sent back: it may be a token.
            prop_assert!(token.len() < 6 || !refusal.message.contains(&token), "{}", refusal.message);
        }
    }
}
