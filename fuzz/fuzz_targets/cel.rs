//! Expressions: compiled, and evaluated within a budget.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remuda_cel::{Budget, Env, Type, Vars};
use serde_json::json;

fuzz_target!(|text: &str| {
    let env = Env::new().variable("self", Type::Dyn).variable("names", Type::list(Type::String));
    let Ok(program) = env.compile(text) else { return };
    let (own, names) = (json!({"a": 1, "b": ["x", 2.5, null], "c": {"d": "2020-01-01T00:00:00Z"}}), json!(["p", "q"]));
    let vars = Vars::new().json("self", &own).json("names", &names);
    let _ = program.eval(&vars, &mut Budget::new(100_000));
});
