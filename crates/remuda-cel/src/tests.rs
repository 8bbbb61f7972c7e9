//! Tables of expressions and what they come to.

mod authz;
mod compile;
mod library;
mod patches;
mod properties;
mod semantics;

use serde_json::{Value as Json, json};

use crate::{Budget, Env, ListSemantics, ObjectType, Type, Value, Vars};

/// The object the tables look at as `self`.
fn sample_type() -> Type {
    let item = || ObjectType::new("Item").field("name", Type::String).field("weight", Type::Int);
    let keyed = Type::list_with(Type::object(item()), ListSemantics::Map(vec!["name".to_owned()]));
    let object = ObjectType::new("Object")
        .field("replicas", Type::Int)
        .field("ratio", Type::Double)
        .field("name", Type::String)
        .field("missing", Type::String)
        .field("nothing", Type::String)
        .field("namespace", Type::String)
        .field("a-b", Type::Int)
        .field("when", Type::Timestamp)
        .field("day", Type::Timestamp)
        .field("wait", Type::Duration)
        .field("data", Type::Bytes)
        .field("broken", Type::Timestamp)
        .field("port", Type::Dyn)
        .field("any", Type::Dyn)
        .field("names", Type::list(Type::String))
        .field("set", Type::list_with(Type::String, ListSemantics::Set))
        .field("items", Type::list(Type::object(item())))
        .field("keyed", keyed)
        .field("labels", Type::map(Type::String, Type::String));
    Type::object(object)
}

fn sample() -> Json {
    json!({
        "replicas": 3,
        "ratio": 2,
        "name": "demo",
        "nothing": null,
        "namespace": "default",
        "a-b": 7,
        "when": "2024-02-29T12:30:00Z",
        "day": "2024-02-29",
        "wait": "1h30m",
        "data": "aGVsbG8=",
        "broken": "yesterday",
        "port": "http",
        "any": {"x": [1, 2.5, "three", null, true]},
        "names": ["a", "b", "c"],
        "set": ["x", "y"],
        "items": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}],
        "keyed": [{"name": "k", "weight": 1}, {"name": "l", "weight": 2}],
        "labels": {"app": "web", "a/b": "c"},
        "unknown": 1
    })
}

fn env() -> Env {
    Env::new()
        .variable("self", sample_type())
        .variable("oldSelf", Type::optional(sample_type()))
        .variable("x", Type::Int)
        .variable("d", Type::Dyn)
}

/// The result as text: a value's debug form by `show`, `error: …` or `compile: …`.
fn run(expression: &str) -> String {
    let env = env();
    let program = match env.compile(expression) {
        Ok(program) => program,
        Err(errors) => return format!("compile: {}", errors.issues[0].message),
    };
    let (object, x, d) = (sample(), json!(5), json!({"k": [1, "two"]}));
    let vars =
        Vars::new().json("self", &object).value("oldSelf", Value::Optional(None)).json("x", &x).json("d", &d);
    let mut budget = Budget::new(1_000_000);
    match program.eval(&vars, &mut budget) {
        Ok(value) => show(&value),
        Err(error) => format!("error: {error}"),
    }
}

fn show(value: &Value<'_>) -> String {
    match value {
        Value::Uint(uint) => format!("{uint}u"),
        Value::Double(double) => format!("{double:?}"),
        Value::Bytes(bytes) => format!("b{:?}", String::from_utf8_lossy(bytes)),
        Value::Timestamp(time) => time.to_string(),
        Value::Duration(nanos) => crate::time::format_duration(*nanos),
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(inner)) => format!("some({})", show(inner)),
        Value::Type(name) => name.to_string(),
        Value::Ip(ip) => ip.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        Value::List(list) => {
            let items: Vec<String> = list
                .iter()
                .map(|item| item.map_or_else(|error| error.to_string(), |item| show(&item)))
                .collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let mut budget = Budget::new(1_000_000);
            let keys = map.keys().unwrap_or_default();
            let entry = |key: crate::Key<'_>| {
                let value = map.get(&key, &mut budget).ok().flatten();
                format!(
                    "{}: {}",
                    show(&key.into_value()),
                    value.map_or_else(String::new, |value| show(&value))
                )
            };
            format!("{{{}}}", keys.into_iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        other => match other.to_json(&mut Budget::new(1_000_000)) {
            Ok(Some(json)) => json.to_string(),
            _ => format!("{other:?}"),
        },
    }
}

/// Each line is `expression ⇒ result`.
#[track_caller]
fn check(table: &str) {
    let mut wrong = Vec::new();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (expression, expected) = line.split_once('⇒').expect("every line of a table has an arrow");
        let (expression, expected) = (expression.trim(), expected.trim());
        let found = run(expression);
        if found != expected {
            wrong.push(format!("{expression}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
