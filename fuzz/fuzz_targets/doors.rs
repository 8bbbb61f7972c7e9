//! Which door a path leads to, of which cluster it is, and the cookies that come with it.
//!
//! The input is a path and a `Cookie` header, one per line.
#![no_main]

use http::{HeaderMap, HeaderValue, header};
use libfuzzer_sys::fuzz_target;
use remuda_door::{ANY_METHOD, Access, Cookie, Door, Owned, Shown, Table, cookie};
use remuda_gateway::doors::{ALL, cluster_of};

static REST: Door = Door {
    name: "rest",
    purpose: "everything else",
    paths: &[Owned::Rest],
    methods: ANY_METHOD,
    access: Access::Api,
    cookie: Cookie::Proof,
    shown: Shown::Query,
    body: usize::MAX,
    personal: true,
};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let (path, cookies) = text.split_once('\n').unwrap_or((&text, ""));
    let table = Table::new(ALL.into_iter().chain([&REST]));
    let found = table.doors()[table.find(path)];
    assert_eq!(cluster_of(path).is_some(), found.name == "clusters");
    if let Ok(value) = HeaderValue::try_from(cookies) {
        let headers = HeaderMap::from_iter([(header::COOKIE, value)]);
        if let Some(session) = cookie(&headers, "R_SESS") {
            assert!(!session.is_empty() && !session.contains(';'));
        }
    }
});
