//! Server-side apply of anything on anything, managers included; applying twice changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remuda_merge::apply::{Tracked, Write, apply, update};
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let [live, applied, mut new] = remuda_fuzz::documents(data);
    let schema = remuda_schema::compile(&remuda_fuzz::sample_schema()).expect("the sample compiles");
    let api_version = applied.get("apiVersion").and_then(Value::as_str).unwrap_or("x.io/v1").to_owned();
    let write = Write {
        manager: "fuzz",
        api_version: &api_version,
        subresource: None,
        now: jiff::Timestamp::UNIX_EPOCH,
        tracked: Tracked::Except(&[&["status"]]),
        convert: None,
    };
    update(Some(&live), &mut new, Some(&schema), &write);
    for schema in [Some(&*schema), None] {
        let _ = apply(None, &applied, schema, &write, false);
        if let Ok(merged) = apply(Some(&live), &applied, schema, &write, true) {
            let again = apply(Some(&merged), &applied, schema, &write, false);
            assert_eq!(again.ok().as_ref(), Some(&merged));
        }
    }
});
