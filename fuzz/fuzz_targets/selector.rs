//! Label and field selectors and JSON paths from URLs and definitions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remuda_objects::{
    jsonpath::JsonPath,
    selector::{FieldSelector, LabelSelector},
};
use serde_json::json;

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        let shown = selector.to_string();
        assert_eq!(LabelSelector::parse(&shown).map(|again| again.to_string()).ok(), Some(shown));
    }
    let _ = FieldSelector::parse(text);
    if let Ok(path) = JsonPath::parse(text) {
        let _ = path.first(&json!({"a": [{"type": "x", "b": 1}], "c": {"d": null}}));
    }
});
