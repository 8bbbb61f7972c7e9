//! Bodies of built-in kinds, in protobuf and as JSON of any shape.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let _ = remuda_kinds::decode_protobuf(data);
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    for resource in remuda_kinds::resources() {
        let Some(ty) = remuda_kinds::type_of(resource.group, resource.version, resource.kind) else { continue };
        let mut object = value.clone();
        if remuda_kinds::decode(ty, &mut object, &mut Vec::new()).is_ok() {
            let decoded = object.clone();
            assert!(remuda_kinds::decode(ty, &mut object, &mut Vec::new()).is_ok());
            assert_eq!(object, decoded);
        }
    }
});
