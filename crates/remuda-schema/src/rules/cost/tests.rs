//! Costs as kube-apiserver estimates them.

use serde_json::{Value, json};

use super::measure;
use crate::{check_structural, compile};

/// The estimate for a rule at the root of a schema.
fn cost(mut schema: Value, rule: &str) -> u64 {
    schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
    let schema = compile(&schema).unwrap();
    let measured = measure(&schema, false).unwrap();
    let compiled = schema.validation.as_ref().unwrap().rules[0].compiled.as_ref().unwrap();
    compiled.rule.as_ref().unwrap().cost(rule, &measured.shape)
}

/// A type by its name, bounded if there is a bound.
fn of(name: &str, max: Option<u64>) -> Value {
    let mut schema = match name {
        "int-or-string" => json!({"x-kubernetes-int-or-string": true}),
        "byte" | "duration" | "date" | "date-time" => json!({"type": "string", "format": name}),
        _ => json!({"type": name}),
    };
    let bound = match name {
        "string" | "byte" | "int-or-string" => "maxLength",
        "array" => "maxItems",
        "map" => "maxProperties",
        _ => return schema,
    };
    schema[bound] = json!(max);
    if max.is_none() {
        schema.as_object_mut().unwrap().remove(bound);
    }
    schema
}

fn array(item: Value, max: Option<u64>) -> Value {
    let mut schema = of("array", max);
    schema["items"] = item;
    schema
}

fn map(value: Value, max: Option<u64>) -> Value {
    let mut schema = of("map", max);
    schema["type"] = "object".into();
    schema["additionalProperties"] = value;
    schema
}

/// `make` is given the bound, or none.
#[track_caller]
fn check(make: impl Fn(Option<u64>) -> Value, rule: &str, free: u64, max: u64, bounded: u64) {
    assert_eq!(cost(make(None), rule), free, "{rule} of {}", make(None));
    assert_eq!(cost(make(Some(max)), rule), bounded, "{rule} of {}", make(Some(max)));
}

#[test]
fn loops_cost_as_often_as_there_can_be_elements() {
    let all = "self.all(x, true)";
    for (item, free, max, bounded) in [
        ("number", 4_718_591, 10, 32),
        ("string", 3_145_727, 20, 62),
        ("boolean", 1_887_437, 5, 17),
        ("int-or-string", 4_718_591, 10, 32),
        ("duration", 2_359_295, 5, 17),
        ("date", 725_936, 15, 47),
        ("date-time", 428_963, 25, 77),
    ] {
        check(|max| array(of(item, None), max), all, free, max, bounded);
    }
    for (value, free, max, bounded) in [
        ("number", 1_348_169, 10, 32),
        ("string", 1_179_647, 3, 11),
        ("boolean", 943_718, 100, 302),
        ("int-or-string", 1_348_169, 15, 47),
        ("duration", 1_048_577, 5, 17),
        ("date", 524_288, 10, 32),
        ("date-time", 349_526, 25, 77),
    ] {
        check(|max| map(of(value, None), max), all, free, max, bounded);
    }
    check(|max| array(array(of("number", None), None), max), all, 3_145_727, 100, 302);
    check(|max| map(map(of("number", None), None), max), all, 1_179_647, 10, 32);
    let numbers = |max| array(of("number", None), max);
    check(numbers, "self.all(x, x == 0.0)", 6_291_454, 3 * 1024 * 2048, 25_165_826);
    assert!(cost(numbers(None), "self.all(x, self.all(y, true))") > 10_000_000);
    assert_eq!(cost(numbers(Some(10)), "self.all(x, self.all(y, true))"), 352);
    assert_eq!(cost(numbers(Some(10)), "self.all(x, self.all(y, self.all(z, true)))"), 3552);
    // Keys of maps have no size, values that of their schema.
    check(|max| map(of("string", max), max), "self.all(x, x.contains(self[x]))", 2_752_507, 10, 72);
}

#[test]
fn texts_cost_by_their_length() {
    let text = |max| of("string", max);
    check(text, "self.contains('test')", 314_574, 10, 5);
    check(text, "self.startsWith('test')", 2, 15, 2);
    check(text, "self.endsWith('test')", 2, 30, 2);
    check(text, r#"size(self + "hello") > size("hello")"#, 314_578, 4, 7);
    check(text, r#"self.matches("x")"#, 314_574, 50, 22);
    check(text, r#""".matches("(((((((((())))))))))[0-9]")"#, 7, 10, 7);
    check(text, r#"self.matches("")"#, 1, 100, 1);
    check(text, r#"self == "x""#, 2, 0, 1);
    check(text, "self.find('[0-9]+') == ''", 629_147, 10, 11);
    check(text, "self.lowerAscii() == 'lower!'", 314_575, 10, 6);
    check(|max| of("byte", max), r#"self == b"x""#, 2, 0, 1);
    check(|max| of("int-or-string", max), "isQuantity(self)", 314_574, 20, 9);
    let words = |max: Option<u64>| {
        let mut schema = of("string", max);
        schema["enum"] = json!(["A", "B", "C", "LongValue"]);
        schema
    };
    check(words, "self.contains('A')", 2, 1000, 401);
    let object = |max| {
        json!({"type": "object", "properties": {
            "str": of("string", max), "separator": of("string", max), "before": of("string", Some(2)),
            "after": of("string", Some(4)),
        }})
    };
    let rule = "self.str.replace(self.before, self.after) == 'does not matter'";
    check(object, rule, 629_154, 4, 12);
    check(object, "self.str.split(self.separator) == []", 629_160, 10, 22);
    let texts = |max| array(of("string", max), max);
    check(texts, "self.join(' ') == 'aa bb'", 329_853_068_905, 10, 43);
    check(texts, "self.isSorted() == true", 329_854_432_052, 10, 52);
}

#[test]
fn elements_are_as_large_as_their_schema_lets_them_be() {
    let numbers = |max| array(of("number", None), max);
    check(numbers, "self[1] == 0.0", 2, 5000, 2);
    check(|max| array(of("string", None), max), "self[1] == self[1]", 314_577, 8, 314_577);
    check(|max| array(of("int-or-string", None), max), "self[0] == 5", 3, 10, 3);
    check(|max| array(of("boolean", None), max), "self[0] == false", 2, 25, 2);
    check(|max| array(numbers(None), max), "self[0][0] == -1.0", 3, 51, 3);
    check(|max| array(map(of("number", None), None), max), "self.all(x, x.y == 25.2)", 6_291_452, 12, 74);
    check(|max| array(map(of("number", None), None), max), "self[0].x > 2.0", 4, 3000, 4);
    check(|max| array(of("duration", None), max), "self[0].getHours() == 2", 4, 525, 4);
    check(|max| array(of("date", None), max), "self[2].getDayOfMonth() == 13", 4, 42, 4);
    check(|max| map(of("number", None), max), r#"self["x"] == 0.0"#, 2, 0, 2);
    check(|max| map(of("integer", None), max), "oldSelf.size() == self.size()", 5, 10, 5);
    check(|max| map(of("date-time", None), max), r#"self["a"] == self["b"]"#, 8, 7, 8);
    check(|max| map(of("duration", None), max), r#"self["c"] == self["d"]"#, 8, 42, 8);
    let nested = |inner: Option<u64>, max: Option<u64>| {
        let object = json!({"type": "object", "properties": {"required": of("string", inner)}});
        array(map(object, inner), max)
    };
    let rule = r#"self.all(x, x["y"].required == "z")"#;
    check(|max| nested(max, max), rule, 7_340_027, 10, 72);
}

#[test]
fn recorded_costs_are_ours() {
    let tables: Vec<Value> = serde_json::from_str(include_str!("costs.json")).unwrap();
    let (mut seen, mut wrong) = (0, Vec::new());
    for table in &tables {
        for (rule, expected) in table["costs"].as_object().unwrap() {
            seen += 1;
            let found = cost(table["schema"].clone(), rule);
            if *expected != found {
                wrong.push(format!("{}: {rule} costs {found}, not {expected}", table["about"]));
            }
        }
    }
    assert!(seen > 200, "{seen}");
    assert!(wrong.is_empty(), "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn rules_that_cost_too_much_are_refused_with_by_how_much() {
    let advice = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and \
                  strings are declared)";
    let schema = |list: Value, rule: &str| {
        let mut list = list;
        list["x-kubernetes-validations"] = json!([{"rule": rule}]);
        json!({"type": "object", "properties": {"list": list}})
    };
    let found = |schema: &Value| -> Vec<String> {
        check_structural(schema, "s").iter().map(ToString::to_string).collect()
    };
    let numbers = |max| array(of("number", None), max);
    assert_eq!(found(&schema(numbers(Some(100)), "self.all(x, self.all(y, x == y))")), [""; 0]);
    let place = "s.properties[list].x-kubernetes-validations[0].rule: Forbidden:";
    let rule = "self.all(x, self.all(y, x == y))";
    let total = "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds \
                 budget by factor of";
    assert_eq!(
        found(&schema(numbers(None), rule)),
        [
            format!("{place} estimated rule cost exceeds budget by factor of more than 100x {advice}"),
            format!(
                "{place} contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            ),
            format!("{total} more than 100x {advice}"),
        ]
    );
    let found = found(&schema(numbers(Some(1700)), rule));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("by factor of 1.4") && found[0].contains("x (try"), "{found:?}");
}

#[test]
fn a_rule_counts_for_each_place_it_can_be_at() {
    let text = |max| of("string", max);
    let under = |max: Option<u64>| {
        let mut item = text(Some(1000));
        item["x-kubernetes-validations"] = json!([{"rule": "self.contains('abcdefghijk')"}]);
        json!({"type": "object", "properties": {"list": array(item, max)}})
    };
    assert_eq!(check_structural(&under(Some(1000)), "s"), []);
    // Without a bound there are as many as fit into a request.
    let found = check_structural(&under(None), "s");
    assert_eq!(found[0].field, "s.properties[list].items.x-kubernetes-validations[0].rule");
    assert!(
        found[0].message.contains("more than") || found[0].message.contains("exceeds budget by factor of 8"),
        "{found:?}"
    );
}
