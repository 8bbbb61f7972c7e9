//! Nothing an expression says makes the engine panic.

use proptest::prelude::*;
use serde_json::json;

use super::{env, sample};
use crate::{Budget, Vars};

/// Expressions that mostly parse and often check.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("self".to_owned()),
        Just("self.replicas".to_owned()),
        Just("self.name".to_owned()),
        Just("self.items".to_owned()),
        Just("self.names".to_owned()),
        Just("self.set".to_owned()),
        Just("self.labels".to_owned()),
        Just("self.when".to_owned()),
        Just("self.wait".to_owned()),
        Just("self.data".to_owned()),
        Just("self.any".to_owned()),
        Just("oldSelf".to_owned()),
        Just("d".to_owned()),
        Just("dyn(d)".to_owned()),
        any::<i64>().prop_map(|int| int.to_string()),
        any::<u64>().prop_map(|uint| format!("{uint}u")),
        any::<f64>().prop_map(|double| format!("double('{double:e}')")),
        "[a-z0-9.:/%é-]{0,12}".prop_map(|text| format!("'{text}'")),
        Just("b'\\xff\\x00'".to_owned()),
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
        Just("optional.none()".to_owned()),
        Just("quantity('1500m')".to_owned()),
        Just("9223372036854775807".to_owned()),
        Just("-9223372036854775808".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let binary =
            prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in"]);
        let unary_member = prop::sample::select(vec![
            "size",
            "isSorted",
            "sum",
            "min",
            "max",
            "lowerAscii",
            "trim",
            "reverse",
            "first",
            "last",
            "sort",
            "distinct",
            "flatten",
            "getFullYear",
            "getHours",
            "getMilliseconds",
            "hasValue",
            "value",
            "join",
            "isInteger",
            "asInteger",
            "sign",
            "asApproximateFloat",
            "family",
            "masked",
            "major",
        ]);
        let member = prop::sample::select(vec![
            "contains",
            "startsWith",
            "matches",
            "find",
            "findAll",
            "indexOf",
            "lastIndexOf",
            "split",
            "charAt",
            "substring",
            "join",
            "format",
            "or",
            "orValue",
            "add",
            "sub",
            "compareTo",
            "getDate",
            "flatten",
            "containsIP",
            "containsCIDR",
        ]);
        let member_two = prop::sample::select(vec![
            "replace",
            "substring",
            "slice",
            "indexOf",
            "lastIndexOf",
            "split",
            "findAll",
        ]);
        let global = prop::sample::select(vec![
            "int",
            "uint",
            "double",
            "string",
            "bytes",
            "bool",
            "timestamp",
            "duration",
            "type",
            "dyn",
            "url",
            "isURL",
            "ip",
            "isIP",
            "cidr",
            "isCIDR",
            "quantity",
            "isQuantity",
            "semver",
            "isSemver",
            "lists.range",
            "strings.quote",
            "optional.of",
            "optional.ofNonZeroValue",
            "format.named",
            "-",
            "!",
        ]);
        let fold = prop::sample::select(vec![
            "all",
            "exists",
            "exists_one",
            "map",
            "filter",
            "sortBy",
            "optMap",
            "optFlatMap",
        ]);
        let dynamic = |text: String| format!("dyn({text})");
        prop_oneof![
            (inner.clone(), binary, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), unary_member).prop_map(|(a, name)| format!("{a}.{name}()")),
            (inner.clone(), member, inner.clone()).prop_map(|(a, name, b)| format!("{a}.{name}({b})")),
            (inner.clone(), member_two, inner.clone(), inner.clone())
                .prop_map(|(a, name, b, c)| format!("{a}.{name}({b}, {c})")),
            (global, inner.clone()).prop_map(|(name, a)| format!("{name}({a})")),
            (inner.clone(), fold, inner.clone()).prop_map(|(a, name, b)| format!("{a}.{name}(x, {b})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[?{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{{a}: {b}}}")),
            inner.clone().prop_map(|a| format!("{a}.?x.y")),
            inner.prop_map(dynamic),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_parser_never_panics(source in "\\PC{0,80}") {
        let _ = env().compile(&source).map_err(|errors| errors.to_string());
    }

    #[test]
    fn the_parser_never_panics_on_almost_expressions(
        source in "([a-z(){}\\[\\].,:?!&|+*/%<>=\"'\\\\ru0-9xb\n -]|self|\\.all\\(x,|'''|\"\"\"){0,60}"
    ) {
        let _ = env().compile(&source).map_err(|errors| errors.to_string());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn evaluation_never_panics(source in expression()) {
        if let Ok(program) = env().compile(&source) {
            let (object, x, d) = (sample(), json!(5), json!({"k": [1, "two", {"z": null}]}));
            let vars = Vars::new().json("self", &object).json("oldSelf", &object).json("x", &x).json("d", &d);
            let mut budget = Budget::new(100_000);
            if let Ok(value) = program.eval(&vars, &mut budget) {
                let _ = value.to_json(&mut budget);
            }
        }
    }
}
