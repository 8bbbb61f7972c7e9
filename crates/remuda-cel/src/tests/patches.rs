//! What expressions of mutating policies make.

use serde_json::{Value as Json, json};

use crate::{Budget, Env, Type, Vars, patch};

fn env() -> Env {
    Env::new().with_patches().variable("object", Type::Dyn)
}

/// What an expression gives, as `read` reads it.
fn made(
    source: &str,
    read: impl Fn(&crate::Value<'_>, &mut Budget) -> Result<Json, crate::EvalError>,
) -> Result<Json, String> {
    let program = env().compile(source).map_err(|errors| errors.to_string())?;
    let object = json!({"metadata": {"name": "n", "labels": {"a": "b"}}, "items": [1, 2]});
    let vars = Vars::new().json("object", &object);
    let mut budget = Budget::new(100_000);
    let value = program.eval(&vars, &mut budget).map_err(|error| error.to_string())?;
    read(&value, &mut budget).map_err(|error| error.to_string())
}

#[test]
fn configurations_are_objects_named_after_their_places() {
    let read = |source: &str| made(source, patch::configuration);
    assert_eq!(read("Object{}"), Ok(json!({})));
    assert_eq!(
        read(
            "Object{spec: Object.spec{n: 1, on: true, items: object.items.map(i, Object.spec.items{i: i}), m: {'k': 1.5}},}"
        ),
        Ok(json!({"spec": {"n": 1, "on": true, "items": [{"i": 1}, {"i": 2}], "m": {"k": 1.5}}}))
    );
    assert_eq!(
        read("Object{?spec: object.?spec, metadata: Object.metadata{labels: object.metadata.labels}}"),
        Ok(json!({"metadata": {"labels": {"a": "b"}}}))
    );
    for wrong in [
        "Object.spec{}",
        "Object{spec: Object{}}",
        "Object{spec: Object.other{}}",
        "Object{spec: [Object.other{}]}",
        "Object{spec: {'k': Object.other{}}}",
        "Object{spec: object.items.size() > 0 ? Object.a{} : Object.b{}}",
    ] {
        let error = read(wrong).unwrap_err();
        let refused =
            error.contains("type mismatch: unexpected type name") || error.contains("no matching overload");
        assert!(refused, "{wrong}: {error}");
    }
    assert_eq!(env().compile("Object{}").unwrap().output(), &patch::configuration_type());
    assert!(read("Object{a: 1, a: 2}").unwrap_err().contains("duplicate field 'a'"));
}

#[test]
fn patches_are_lists_of_operations() {
    let read = |source: &str| made(source, patch::operations);
    assert_eq!(
        read(
            "[JSONPatch{op: 'add', path: '/a', value: Object.spec{x: 1}}, JSONPatch{op: 'move', from: '/a', path: '/b'}]"
        ),
        Ok(
            json!([{"op": "add", "path": "/a", "value": {"x": 1}}, {"op": "move", "from": "/a", "path": "/b"}])
        )
    );
    assert_eq!(
        read("object.items.filter(i, i > 5).map(i, JSONPatch{op: 'remove', path: '/x'})"),
        Ok(json!([]))
    );
    assert_eq!(
        read("[JSONPatch{op: 'test', path: '/' + jsonpatch.escapeKey('a/b~')}]"),
        Ok(json!([{"op": "test", "path": "/a~1b~0"}]))
    );
    let list = env().compile("[JSONPatch{op: 'test'}] + (true ? [] : [JSONPatch{}])").unwrap();
    assert_eq!(list.output(), &patch::operations_type());
    assert!(read("[1]").unwrap_err().contains("should evaluate to array of JSONPatch"));
    let mixed = read("[JSONPatch{op: 'add', path: '', value: Object.spec{x: Object.y{}}}]");
    assert!(mixed.unwrap_err().contains("unexpected type name \"Object.y\", expected \"Object.spec.x\""));
}

#[test]
fn messages_are_made_only_where_they_may_be() {
    for source in ["Object{}", "JSONPatch{op: 'add'}", "jsonpatch.escapeKey('a')"] {
        let errors = Env::new().compile(source).unwrap_err().to_string();
        assert!(errors.contains("undeclared reference to"), "{source}: {errors}");
        assert!(env().compile(source).is_ok(), "{source}");
    }
    for source in
        ["Other{}", "Objects{}", "object.x{}", "Object.{}", "Object{a}", "Object{a: }", "Object{'a': 1}"]
    {
        assert!(env().compile(source).is_err(), "{source}");
    }
}
