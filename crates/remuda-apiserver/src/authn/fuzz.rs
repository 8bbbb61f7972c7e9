//! `Authorization` at random.

use http::{HeaderMap, HeaderValue, header};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use remuda_names::fuzz;

use super::bearer;

fn config() -> Config {
    let told = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u32>().ok();
    let seed = RngSeed::Fixed(told(fuzz::SEED).unwrap_or(1).into());
    Config { cases: told(fuzz::CASES).unwrap_or(512), rng_seed: seed, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_bearer_token_is_what_follows_the_word(value in "([Bb]earer|BEARER|Basic|Bearerx|)[ \t]{0,3}[!-~]{0,8}[ \t]{0,2}|\\PC{0,12}") {
        let mut headers = HeaderMap::new();
        let Ok(sent) = HeaderValue::try_from(value.as_str()) else { return Ok(()) };
        headers.insert(header::AUTHORIZATION, sent);
        if let Some(token) = bearer(&headers) {
            prop_assert!(!token.is_empty() && token.trim() == token);
            prop_assert!(value[..7].eq_ignore_ascii_case("bearer "));
            prop_assert_eq!(value[7..].trim(), token);
        }
    }
}
