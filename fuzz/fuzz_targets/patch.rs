//! Patches of any shape on documents of any shape.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remuda_merge::{json_patch, merge_patch, strategic};

fuzz_target!(|data: &[u8]| {
    let [document, patch] = remuda_fuzz::documents(data);
    let _ = json_patch::apply(&mut document.clone(), &patch);
    merge_patch::apply(&mut document.clone(), &patch);
    if let Some(schema) = remuda_kinds::schema("apps", "v1", "Deployment") {
        let _ = strategic::apply(&mut document.clone(), &patch, &schema);
    }
});
