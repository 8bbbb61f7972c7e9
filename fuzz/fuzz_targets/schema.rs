//! Schemas, objects under them, and whole definitions.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [schema, mut new, old] = remuda_fuzz::documents(data);
    let _ = remuda_schema::check_structural(&schema, "schema");
    for schema in [schema.clone(), remuda_fuzz::sample_schema()] {
        let Ok(schema) = remuda_schema::compile(&schema) else { continue };
        let _ = schema.coerce(&mut new);
        schema.prune(&mut new, Some(&mut Vec::new()));
        schema.apply_defaults(&mut new);
        let _ = schema.validate(&new, Some(&old));
        let _ = schema.validate(&new, None);
    }
    let mut definition = new;
    remuda_schema::default_crd(&mut definition);
    let _ = remuda_schema::check_crd(&definition, Some(&old));
    let _ = remuda_schema::crd_warnings(&definition, None);
    let _ = remuda_schema::CrdView::parse(&definition);
});
