//! Headers of machines that register, at random.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use remuda_names::fuzz;

use super::request::Request;

fn config() -> Config {
    let told = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u32>().ok();
    let seed = RngSeed::Fixed(told(fuzz::SEED).unwrap_or(1).into());
    Config { cases: told(fuzz::CASES).unwrap_or(512), rng_seed: seed, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_registration_is_read_or_refused(
        lines in proptest::collection::vec(
            (
                "authorization|x-cattle-(id|role-etcd|role-worker|labels?|taints?|address|node-name|[a-z-]{0,6})|[a-z-]{1,8}",
                "(Bearer |bearer |Basic |)[ -~]{0,20}|true|[0-9a-f]{63,65}|[a-z=,:\"{}]{0,12}|\\PC{0,8}",
            ),
            0..10,
        ),
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in &lines {
            let name = HeaderName::try_from(name.as_str());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
                headers.append(name, value);
            }
        }
        match Request::parse(&headers) {
            Ok(request) => {
                prop_assert!(!request.token.is_empty() && !request.id.is_empty());
                let shown = format!("{request:?}");
                prop_assert!(!shown.contains(&request.token) || request.token.len() < 12);
                prop_assert!(serde_json::from_str::<serde_json::Value>(&request.data()).is_ok());
            }
            Err(refusal) => prop_assert!(refusal.code.is_client_error() && !refusal.message.is_empty()),
        }
    }
}
