//! What strangers can write into URLs and tokens, at random.

use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use remuda_names::fuzz;

use crate::{
    bearer::Stored,
    request_info::{RequestInfo, parameter},
    tokens::BootstrapToken,
};

fn config() -> Config {
    let told = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u32>().ok();
    let seed = RngSeed::Fixed(told(fuzz::SEED).unwrap_or(1).into());
    Config { cases: told(fuzz::CASES).unwrap_or(1024), rng_seed: seed, ..Config::default() }
}

/// Paths of words that mean something, and of what is used to get around them.
fn path() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("api"),
        Just("apis"),
        Just("v1"),
        Just("apps"),
        Just("namespaces"),
        Just("secrets"),
        Just("pods"),
        Just("watch"),
        Just("proxy"),
        Just("status"),
        Just("finalize"),
        Just("log"),
        Just("k8s"),
        Just("clusters"),
        Just("healthz"),
        Just(""),
        Just("."),
        Just(".."),
        Just(";a=b"),
        Just("a:b"),
        Just("*"),
        Just("ä"),
        Just("\0"),
    ]
    .prop_map(str::to_owned);
    let odd = "[a-zA-Z0-9 ;:@&=+$,#\\\\~\u{7f}-\u{ff}]{0,6}";
    proptest::collection::vec(prop_oneof![4 => word, 1 => odd], 0..9)
        .prop_map(|parts| format!("/{}", parts.join("/")))
}

/// The same path, with some of its bytes percent-encoded, in either case of the digits.
fn encoded(path: &str, which: &[u8]) -> String {
    let mut out = String::new();
    for (index, byte) in path.bytes().enumerate() {
        let must = !byte.is_ascii_graphic() || matches!(byte, b'%' | b'?' | b'#');
        match which.get(index % which.len().max(1)).copied().unwrap_or_default() % 4 {
            0 => out.push_str(&format!("%{byte:02x}")),
            1 => out.push_str(&format!("%{byte:02X}")),
            _ if must => out.push_str(&format!("%{byte:02x}")),
            _ => out.push(char::from(byte)),
        }
    }
    out
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn one_path_has_one_reading_however_it_is_encoded(
        path in path(),
        method in "GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|get|[A-Z]{0,5}",
        which in proptest::collection::vec(any::<u8>(), 1..40),
        again in proptest::collection::vec(any::<u8>(), 1..40),
    ) {
        let one = RequestInfo::parse(&method, &encoded(&path, &which), None);
        let other = RequestInfo::parse(&method, &encoded(&path, &again), None);
        prop_assert_eq!(&one, &other);
        // Nothing is decoded twice, and dots are letters.
        let twice = RequestInfo::parse(&method, &encoded(&encoded(&path, &which), &again), None);
        if path.contains('%') || encoded(&path, &which) != path {
            prop_assert!(twice == one || twice.path.contains('%') || format!("{twice:?}").contains('%'), "{twice:?}");
        }
        let parts = [&one.group, &one.version, &one.namespace, &one.resource, &one.name, &one.subresource];
        prop_assert!(parts.iter().all(|part| !part.contains('/')), "{:?}", one);
        let dots = |text: &str| text.split('/').filter(|part| *part == "..").count();
        let kept: usize = parts.iter().map(|part| dots(part)).sum::<usize>() + dots(&one.rest) + dots(&one.path);
        // A namespace is the name of its own object too.
        let twice_told = usize::from(!one.in_namespace && one.namespace == ".." && one.name == "..");
        prop_assert_eq!(kept - twice_told, dots(&path), "{:?}", one);
    }

    #[test]
    fn what_is_judged_is_what_is_done(
        path in path(),
        method in "GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|[A-Z]{0,5}",
        query in "((watch|fieldSelector|action|limit)(=|%3d)(true|0|metadata\\.name(=|!=|==)[a-z%/,\\\\]{0,5}|\\PC{0,4})&?){0,3}",
    ) {
        let info = RequestInfo::parse(&method, &encoded(&path, &[9]), Some(&query));
        let judged = info.attributes();
        prop_assert_eq!(judged.path.is_some(), !info.is_resource());
        prop_assert_eq!(judged.verb, info.verb);
        if let Some(path) = judged.path {
            prop_assert!(info.resource.is_empty() && info.name.is_empty() && !path.is_empty());
            prop_assert!(info.resource_verb().is_none());
        } else {
            prop_assert_eq!(
                (judged.group, judged.version, judged.resource, judged.namespace, judged.subresource),
                (&*info.group, &*info.version, &*info.resource, &*info.namespace, &*info.subresource)
            );
            // The name is that of the path; a selector restricts only what has none.
            prop_assert!(judged.name == info.name || (info.name.is_empty() && judged.name == info.selected_name));
            prop_assert!(!judged.name.contains('/'));
        }
        let review = info.review("somebody", std::iter::empty());
        prop_assert_eq!(review["spec"]["resourceAttributes"].is_object(), info.is_resource());
        prop_assert_eq!(review["spec"]["nonResourceAttributes"].is_object(), !info.is_resource());
    }

    #[test]
    fn anything_at_all_is_read(method in "\\PC*", path in "\\PC*", query in "\\PC*") {
        let info = RequestInfo::parse(&method, &path, Some(&query));
        let _ = (info.attributes(), info.resource_verb(), parameter(&query, "action"));
    }

    #[test]
    fn tokens_have_one_form(text in "[a-z0-9]{5,7}\\.[a-z0-9]{15,17}|\\PC{0,40}|\\$[0-9]:[0-9]:[A-Za-z0-9+/=]{0,20}:\\PC{0,20}") {
        if let Some(token) = BootstrapToken::parse(&text) {
            prop_assert_eq!(token.reveal(), text.clone());
        }
        // Of what is stored in a form that is not known, no key is right; nor is the empty one ever.
        if let Some(stored) = Stored::parse(&text, true) {
            prop_assert!(!stored.verify(""));
        }
    }
}
