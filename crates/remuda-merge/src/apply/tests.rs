use jiff::Timestamp;
use remuda_schema::Schema;
use serde_json::{Value, json};

use super::{ApplyError, Tracked, Write, apply, update};
use crate::{managed, testing::foo};

mod laws;

const STATUS: &[&[&str]] = &[&["status"]];

/// A stored object and the clock, driven as a server would.
struct World {
    schema: Schema,
    object: Option<Value>,
    clock: i64,
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "s1"}, "spec": spec})
}

impl World {
    fn new() -> Self {
        Self { schema: foo(), object: None, clock: 0 }
    }

    fn write<'a>(&mut self, manager: &'a str) -> Write<'a> {
        self.clock += 1;
        Write {
            manager,
            api_version: "x.io/v1",
            subresource: None,
            now: Timestamp::from_second(self.clock).expect("a time"),
            tracked: Tracked::Except(STATUS),
            convert: None,
        }
    }

    /// PUT or POST of a whole spec.
    fn put(&mut self, manager: &str, spec: Value) {
        let mut new = object(spec);
        if let Some(live) = &self.object {
            new["metadata"] = live["metadata"].clone();
            new["status"] = live["status"].clone();
        } else {
            new["metadata"]["uid"] = json!("u1");
        }
        self.store(manager, new);
    }

    fn store(&mut self, manager: &str, mut new: Value) {
        let write = self.write(manager);
        update(self.object.as_ref(), &mut new, Some(&self.schema), &write);
        self.object = Some(new);
    }

    fn try_apply(&mut self, manager: &str, spec: Value, force: bool) -> Result<(), ApplyError> {
        self.try_apply_object(manager, &object(spec), force)
    }

    fn try_apply_object(&mut self, manager: &str, applied: &Value, force: bool) -> Result<(), ApplyError> {
        let write = self.write(manager);
        let mut merged = apply(self.object.as_ref(), applied, Some(&self.schema), &write, force)?;
        merged["metadata"]["uid"] = json!("u1");
        self.object = Some(merged);
        Ok(())
    }

    fn apply(&mut self, manager: &str, spec: Value) {
        self.try_apply(manager, spec, false).expect("no conflict");
    }

    fn conflicts(&mut self, manager: &str, spec: Value) -> String {
        self.try_apply(manager, spec, false).expect_err("a conflict").to_string()
    }

    fn live(&self) -> &Value {
        self.object.as_ref().expect("the object exists")
    }

    fn spec(&self) -> &Value {
        &self.live()["spec"]
    }

    /// `manager/operation` to what it owns below `spec`, in list order.
    fn owners(&self) -> Vec<(String, Value)> {
        let entries = managed::of(self.live()).and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let owner = |entry: Value| {
            (
                format!("{}/{}", text(&entry, "manager"), text(&entry, "operation")),
                entry["fieldsV1"]["f:spec"].clone(),
            )
        };
        entries.into_iter().map(owner).collect()
    }

    fn check(&self, spec: Value, owners: &[(&str, Value)]) {
        let owners: Vec<(String, Value)> =
            owners.iter().map(|(name, set)| ((*name).to_owned(), set.clone())).collect();
        similar_asserts::assert_eq!(self.spec(), &spec);
        similar_asserts::assert_eq!(self.owners(), owners);
    }
}

#[test]
fn a_create_owns_everything_it_brings_with_the_maps_it_made() {
    let mut world = World::new();
    let mut new = json!({"apiVersion": "x.io/v1", "kind": "Foo",
        "metadata": {"name": "s1", "uid": "u", "labels": {"a": "b"}, "finalizers": ["f"], "ownerReferences": [{"uid": "o", "name": "n"}]},
        "spec": {"color": "red", "whole": {"a": "x"}, "ports": [{"name": "a", "port": 1}], "set": ["x"], "args": ["y"], "endpoints": [{"port": 80}]},
        "status": {"phase": "ok"}});
    let write = world.write("m");
    update(None, &mut new, Some(&world.schema), &write);
    similar_asserts::assert_eq!(
        managed::of(&new),
        Some(&json!([{
            "manager": "m", "operation": "Update", "apiVersion": "x.io/v1", "time": "1970-01-01T00:00:01Z", "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:finalizers": {".": {}, "v:\"f\"": {}}, "f:labels": {".": {}, "f:a": {}}, "f:ownerReferences": {".": {}, "k:{\"uid\":\"o\"}": {}}},
                "f:spec": {".": {}, "f:args": {}, "f:color": {}, "f:whole": {},
                    "f:endpoints": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}},
                    "f:ports": {".": {}, "k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:port": {}}},
                    "f:set": {".": {}, "v:\"x\"": {}}}
            }
        }]))
    );
}

#[test]
fn an_apply_owns_leaves_items_and_map_keys() {
    let mut world = World::new();
    world.apply("m", json!({"color": "red", "labels": {"a": "1"}, "nested": {}, "whole": {"a": "x"}, "ports": [{"name": "a", "port": 1}],
        "set": ["x"], "args": ["y"], "free": {"a": {"b": 1, "l": [1]}}, "endpoints": []}));
    let owned = json!({"f:args": {}, "f:color": {}, "f:labels": {"f:a": {}}, "f:nested": {}, "f:whole": {},
        "f:ports": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:port": {}}}, "f:set": {"v:\"x\"": {}},
        "f:endpoints": {}, "f:free": {"f:a": {".": {}, "f:b": {}, "f:l": {}}}});
    assert_eq!(world.owners(), [("m/Apply".to_owned(), owned)]);
    assert_eq!(managed::of(world.live()).expect("managed")[0]["time"], "1970-01-01T00:00:01Z");
}

#[test]
fn an_update_takes_what_it_changes_and_frees_what_it_removes() {
    let mut world = World::new();
    world.put("a", json!({"color": "red", "size": 1, "labels": {"x": "1", "y": "2"}}));
    world.put("b", json!({"color": "blue", "size": 1, "labels": {"x": "1", "z": "3"}}));
    world.check(
        json!({"color": "blue", "size": 1, "labels": {"x": "1", "z": "3"}}),
        &[
            ("a/Update", json!({".": {}, "f:labels": {".": {}, "f:x": {}}, "f:size": {}})),
            ("b/Update", json!({"f:color": {}, "f:labels": {"f:z": {}}})),
        ],
    );
    // Repeating is not claiming, and a no-op leaves even the times alone.
    let before = world.live().clone();
    world.put("c", json!({"color": "blue", "size": 1, "labels": {"x": "1", "z": "3"}}));
    assert_eq!(world.live(), &before);
    // Whoever owned only what is gone is gone.
    world.put("c", json!({"size": 1}));
    world.check(json!({"size": 1}), &[("a/Update", json!({".": {}, "f:size": {}}))]);
}

#[test]
fn two_appliers_and_an_updater_share_and_contest_fields() {
    let mut world = World::new();
    world.apply("m1", json!({"color": "red", "ports": [{"name": "a", "port": 1}]}));
    world.apply("m2", json!({"size": 3, "ports": [{"name": "b", "port": 2}]}));
    // The same value is shared.
    world.apply("m3", json!({"color": "red"}));
    assert_eq!(
        world.conflicts("m2", json!({"color": "blue", "size": 3, "ports": [{"name": "a", "port": 9}]})),
        "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .spec.color\n- .spec.ports[name=\"a\"].port\nconflicts with \"m3\":\n- .spec.color"
    );
    assert_eq!(
        world.conflicts("m1", json!({"size": 4})),
        "Apply failed with 1 conflict: conflict with \"m2\": .spec.size"
    );
    world.put(
        "upd",
        json!({"color": "green", "size": 3, "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}),
    );
    let error = world.try_apply("m1", json!({"color": "red"}), false).expect_err("a conflict");
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"upd\" using x.io/v1: .spec.color"
    );
    let ApplyError::Conflicts(conflicts) = error else { panic!("a conflict") };
    assert_eq!(conflicts.causes()[0].message, "conflict with \"upd\" using x.io/v1");
    assert_eq!(conflicts.causes()[0].field, ".spec.color");
    assert_eq!(conflicts.causes()[0].reason, "FieldManagerConflict");
    // Force takes the field, and the item that nobody else states goes.
    world.try_apply("m1", json!({"color": "red"}), true).expect("forced");
    world.check(
        json!({"color": "red", "size": 3, "ports": [{"name": "b", "port": 2}]}),
        &[
            ("m2/Apply", json!({"f:size": {}, "f:ports": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:port": {}}}})),
            ("m1/Apply", json!({"f:color": {}})),
        ],
    );
}

#[test]
fn a_field_left_out_goes_only_if_nobody_else_owns_it() {
    let mut world = World::new();
    world.apply("m1", json!({"color": "red", "size": 1, "labels": {"a": "1", "b": "2"}, "set": ["x", "y"]}));
    world.apply("m2", json!({"color": "red", "labels": {"b": "2"}, "set": ["y"]}));
    world.apply("m1", json!({}));
    world.check(
        json!({"color": "red", "labels": {"b": "2"}, "set": ["y"]}),
        &[
            ("m2/Apply", json!({"f:color": {}, "f:labels": {"f:b": {}}, "f:set": {"v:\"y\"": {}}})),
            ("m1/Apply", json!({})),
        ],
    );
    world.apply("m2", json!({"labels": {}}));
    world.check(json!({"labels": {}}), &[("m1/Apply", json!({})), ("m2/Apply", json!({"f:labels": {}}))]);
}

#[test]
fn defaults_in_a_struct_go_with_its_last_owner() {
    let mut world = World::new();
    world.apply("m", json!({"nested": {"a": "1"}, "color": "red"}));
    world.object.as_mut().expect("stored")["spec"]["nested"]["b"] = json!("default");
    world.apply("m", json!({"color": "red"}));
    world.check(json!({"color": "red"}), &[("m/Apply", json!({"f:color": {}}))]);
}

#[test]
fn an_item_goes_with_its_owner_even_if_an_updater_touched_a_field_in_it() {
    let mut world = World::new();
    world.apply("m", json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}));
    world.put("upd", json!({"ports": [{"name": "a", "port": 1, "target": "t"}, {"name": "b", "port": 2}]}));
    assert_eq!(
        world.owners()[1],
        ("upd/Update".to_owned(), json!({"f:ports": {"k:{\"name\":\"a\"}": {"f:target": {}}}}))
    );
    world.apply("m", json!({"ports": [{"name": "b", "port": 2}]}));
    world.check(
        json!({"ports": [{"name": "b", "port": 2}]}),
        &[("m/Apply", json!({"f:ports": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:port": {}}}}))],
    );
}

#[test]
fn list_order_follows_the_applier_for_its_items() {
    let names = |world: &World| -> String {
        let ports = world.spec()["ports"].as_array().cloned().unwrap_or_default();
        ports.iter().filter_map(|port| port["name"].as_str().map(str::to_owned)).collect()
    };
    let ports = |names: &str| json!({"ports": names.chars().map(|name| json!({"name": name.to_string()})).collect::<Vec<_>>()});
    for (stored, applied, expected) in [
        ("abc", "c", "abc"),
        ("abc", "ca", "bca"),
        ("abc", "d", "abcd"),
        ("abc", "dc", "abdc"),
        ("ab", "xby", "axby"),
        ("", "ba", "ba"),
        ("cab", "abc", "abc"),
    ] {
        let mut world = World::new();
        world.put("u", ports(stored));
        world.try_apply("m", ports(applied), true).expect("forced");
        assert_eq!(names(&world), expected, "{applied} on {stored}");
    }
}

#[test]
fn keys_left_out_take_their_default() {
    let mut world = World::new();
    world.apply("m1", json!({"endpoints": [{"port": 80, "name": "a"}]}));
    world.object.as_mut().expect("stored")["spec"]["endpoints"][0]["protocol"] = json!("TCP");
    world.apply("m1", json!({"endpoints": [{"port": 80, "name": "b"}, {"port": 80, "protocol": "UDP"}]}));
    world.check(
        json!({"endpoints": [{"port": 80, "name": "b", "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}]}),
        &[(
            "m1/Apply",
            json!({"f:endpoints": {
                "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}},
                "k:{\"port\":80,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}, "f:protocol": {}}}}),
        )],
    );
    let error = world.try_apply("m1", json!({"endpoints": [{"name": "x"}]}), false);
    assert!(error.is_ok(), "the default of one key is enough to tell items apart");
}

#[test]
fn atomic_values_have_one_owner_and_are_replaced() {
    let mut world = World::new();
    world.apply("m1", json!({"whole": {"a": "1"}, "args": ["x", "y"], "free": {"l": [{"a": 1}]}}));
    assert_eq!(
        world.conflicts("m2", json!({"whole": {"b": "1"}, "args": ["x"], "free": {"l": [], "n": 1}})),
        "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .spec.args\n- .spec.whole\n- .spec.free.l"
    );
    world.try_apply("m2", json!({"whole": {"b": "1"}, "args": ["x"]}), true).expect("forced");
    world.check(
        json!({"whole": {"b": "1"}, "args": ["x"], "free": {"l": [{"a": 1}]}}),
        &[("m1/Apply", json!({"f:free": {"f:l": {}}})), ("m2/Apply", json!({"f:args": {}, "f:whole": {}}))],
    );
}

#[test]
fn configurations_of_the_wrong_type_are_refused_with_the_words_of_the_reference() {
    for (spec, text) in [
        (json!({"nope": 1}), ".spec.nope: field not declared in schema"),
        (json!({"color": 1}), ".spec.color: expected string, got &value.valueUnstructured{Value:1}"),
        (json!({"size": "x"}), ".spec.size: expected numeric (int or float), got string"),
        (json!({"ports": {"a": 1}}), ".spec.ports: expected list, got &{map[a:1]}"),
        (json!({"nested": [1]}), ".spec.nested: expected map, got &{[1]}"),
        (
            json!({"ports": [{"name": "a"}, {"name": "a"}]}),
            ".spec.ports: duplicate entries for key [name=\"a\"]",
        ),
        (json!({"set": ["a", "a"]}), ".spec.set: duplicate entries for key [=\"a\"]"),
        (
            json!({"ports": [{"port": 1}]}),
            ".spec.ports: element 0: associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)",
        ),
        (
            json!({"ports": [{"name": "a", "x": 1}]}),
            ".spec.ports[name=\"a\"].x: field not declared in schema",
        ),
        (json!({"args": ["a", 1]}), ".spec.args[1]: expected string, got &value.valueUnstructured{Value:1}"),
        (json!({"whole": {"x": 1}}), ".spec.whole.x: field not declared in schema"),
        (
            json!({"color": 1, "size": true}),
            "errors:\n  .spec.color: expected string, got &value.valueUnstructured{Value:1}\n  .spec.size: expected numeric (int or float), got bool",
        ),
    ] {
        let error = World::new().try_apply("m", spec, false).expect_err("a bad type");
        let prefix = "failed to create typed patch object (/s1; x.io/v1, Kind=Foo): ";
        assert_eq!(error, ApplyError::Typed(format!("{prefix}{text}")));
    }
    let mut own = object(json!({}));
    own["metadata"]["managedFields"] = json!([]);
    let error = World::new().try_apply_object("m", &own, false).expect_err("not allowed");
    assert_eq!(error, ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    let mut unknown = object(json!({}));
    unknown["metadata"]["foo"] = json!(1);
    let error = World::new().try_apply_object("m", &unknown, false).expect_err("not allowed");
    assert!(error.to_string().ends_with(".metadata.foo: field not declared in schema"));
}

#[test]
fn status_and_main_endpoint_do_not_own_each_others_fields() {
    let mut world = World::new();
    world.put("u", json!({"color": "red"}));
    let mut new = world.live().clone();
    new["status"] = json!({"phase": "ok"});
    new["spec"]["color"] = json!("ignored");
    let write = Write { subresource: Some("status"), tracked: Tracked::Only(STATUS), ..world.write("ctl") };
    update(world.object.as_ref(), &mut new, Some(&world.schema), &write);
    let entry = &managed::of(&new).expect("managed")[1];
    assert_eq!(entry["fieldsV1"], json!({"f:status": {".": {}, "f:phase": {}}}));
    assert_eq!(entry["subresource"], "status");
    world.object = Some(new);
    world.put("u", json!({"color": "blue"}));
    assert_eq!(managed::of(world.live()).and_then(Value::as_array).map(Vec::len), Some(2));
    let applied = json!({"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "s1"}, "status": {"phase": "bad"}});
    let write = Write { subresource: Some("status"), tracked: Tracked::Only(STATUS), ..world.write("m") };
    let error =
        apply(world.object.as_ref(), &applied, Some(&world.schema), &write, false).expect_err("a conflict");
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"ctl\" with subresource \"status\" using x.io/v1: .status.phase"
    );
}

#[test]
fn scale_is_recorded_on_the_parent() {
    let mut world = World::new();
    world.apply("m", json!({"size": 1}));
    let mut new = world.live().clone();
    new["spec"]["size"] = json!(5);
    let write = Write {
        subresource: Some("scale"),
        tracked: Tracked::Only(&[&["spec", "size"]]),
        ..world.write("hpa")
    };
    update(world.object.as_ref(), &mut new, Some(&world.schema), &write);
    let entries = managed::of(&new).expect("managed");
    assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:size": {}}}));
    assert_eq!(entries[0]["subresource"], "scale");
    assert_eq!(entries.as_array().map(Vec::len), Some(1));
}

#[test]
fn clients_may_replace_reset_or_forget_the_list() {
    let mut world = World::new();
    world.put("a", json!({"color": "red"}));
    let entries = managed::of(world.live()).cloned().expect("managed");
    // Missing or unreadable: kept.
    for given in [None, Some(json!(null)), Some(json!([{"manager": "x"}])), Some(json!("x"))] {
        let mut new = world.live().clone();
        managed::strip(&mut new);
        if let Some(given) = given {
            new["metadata"]["managedFields"] = given;
        }
        world.store("b", new);
        assert_eq!(managed::of(world.live()), Some(&entries));
    }
    // A readable list counts, in canonical form and order.
    let mut new = world.live().clone();
    new["metadata"]["managedFields"] = json!([
        {"manager": "z", "operation": "Update", "apiVersion": "x.io/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {".": {}}}, "time": "1970-01-01T00:00:05Z"},
        {"manager": "y", "operation": "Apply", "apiVersion": "x.io/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:color": {}}}, "time": "1970-01-01T00:00:09Z"},
    ]);
    world.store("b", new);
    world.check(json!({"color": "red"}), &[("y/Apply", json!({"f:color": {}})), ("z/Update", json!({}))]);
    // Reset, after which updates stay untracked and the first apply remembers what was there.
    for reset in [json!([]), json!([{}])] {
        let mut new = world.live().clone();
        new["metadata"]["managedFields"] = reset;
        new["spec"]["size"] = json!(1);
        world.store("b", new);
        assert_eq!(managed::of(world.live()), None);
        world.put("c", json!({"color": "blue", "size": 2}));
        assert_eq!(managed::of(world.live()), None);
        assert_eq!(
            world.conflicts("m", json!({"size": 3})),
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using x.io/v1: .spec.size"
        );
        world.apply("m", json!({"size": 2}));
        world.check(
            json!({"color": "blue", "size": 2}),
            &[
                ("m/Apply", json!({"f:size": {}})),
                ("before-first-apply/Update", json!({".": {}, "f:color": {}, "f:size": {}})),
            ],
        );
    }
}

#[test]
fn too_many_updaters_are_combined_oldest_first() {
    let mut world = World::new();
    for index in 0..13 {
        let labels: Value = (0..=index)
            .map(|label| (format!("l{label}"), json!("x")))
            .collect::<serde_json::Map<_, _>>()
            .into();
        world.put(&format!("m{index:02}"), json!({"labels": labels}));
    }
    let owners = world.owners();
    assert_eq!(owners.len(), managed::MAX_UPDATE_ENTRIES);
    assert_eq!(owners[0].0, "ancient-changes/Update");
    assert_eq!(
        owners[0].1,
        json!({".": {}, "f:labels": {".": {}, "f:l0": {}, "f:l1": {}, "f:l2": {}, "f:l3": {}}})
    );
    assert_eq!(owners[9].0, "m12/Update");
}

#[test]
fn kubectl_moves_from_client_side_to_server_side() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut world = World::new();
    let configuration = object(json!({"color": "red", "size": 1}));
    let mut created = configuration.clone();
    created["metadata"]["uid"] = json!("u1");
    created["metadata"]["annotations"] = json!({ LAST: configuration.to_string() });
    world.store("kubectl-client-side-apply", created);
    // Fields that still have the last applied value are taken without force.
    let changed = object(json!({"color": "blue", "size": 1}));
    world.try_apply_object("kubectl", &changed, false).expect("own field of client-side apply");
    assert_eq!(world.live()["metadata"]["annotations"][LAST], format!("{changed}\n"));
    // The annotation gets an owner of its own.
    let mut annotation = object(json!({}));
    annotation.as_object_mut().map(|map| map.remove("spec"));
    annotation["metadata"]["annotations"] = json!({ LAST: world.live()["metadata"]["annotations"][LAST] });
    world.try_apply_object("kubectl-last-applied", &annotation, false).expect("shared");
    // The JSON patch moves the old update entry into the apply entry.
    let mut patched = world.live().clone();
    let list = patched["metadata"]["managedFields"].as_array_mut().expect("entries");
    list.retain(|entry| entry["operation"] == "Apply");
    for entry in list.iter_mut().filter(|entry| entry["manager"] == "kubectl") {
        entry["fieldsV1"] = json!({"f:metadata": {"f:annotations": {".": {}, format!("f:{LAST}"): {}}}, "f:spec": {".": {}, "f:color": {}, "f:size": {}}});
    }
    world.store("kubectl", patched);
    assert_eq!(managed::of(world.live()).and_then(Value::as_array).map(Vec::len), Some(2));
    // The last apply drops what only client-side apply had.
    world.try_apply_object("kubectl", &object(json!({"color": "blue"})), false).expect("no conflict");
    assert_eq!(world.spec(), &json!({"color": "blue"}));
    let owners: Vec<String> = world.owners().into_iter().map(|(name, _)| name).collect();
    assert_eq!(owners, ["kubectl-last-applied/Apply", "kubectl/Apply"]);
}

#[test]
fn entries_of_other_versions_are_compared_after_conversion() {
    let mut world = World::new();
    world.apply("old", json!({"color": "red"}));
    // In v2 the field is called `labels.color`.
    let convert = |version: &str, object: &Value| -> Option<Value> {
        let mut object = object.clone();
        if version == "x.io/v1"
            && let Some(color) = object.pointer("/spec/labels/color").cloned()
        {
            object["spec"] = json!({ "color": color });
        }
        (version != "x.io/v0").then_some(object)
    };
    let mut new = json!({"apiVersion": "x.io/v2", "kind": "Foo", "metadata": world.live()["metadata"], "spec": {"labels": {"color": "red"}}});
    let live = new.clone();
    new["spec"]["labels"]["color"] = json!("blue");
    let write = Write { api_version: "x.io/v2", convert: Some(&convert), ..world.write("new") };
    let applied = json!({"apiVersion": "x.io/v2", "kind": "Foo", "metadata": {"name": "s1"}, "spec": {"labels": {"color": "blue"}}});
    let error = apply(Some(&live), &applied, Some(&world.schema), &write, false).expect_err("a conflict");
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"old\": .spec.color");
    update(Some(&live), &mut new, Some(&world.schema), &write);
    let entries = managed::of(&new).and_then(Value::as_array).cloned().expect("entries");
    assert_eq!(entries.len(), 1, "the old owner lost its only field: {entries:?}");
    assert_eq!(entries[0]["manager"], "new");
    // A version that is gone takes its entries along.
    let mut gone = live.clone();
    gone["metadata"]["managedFields"][0]["apiVersion"] = json!("x.io/v0");
    let mut new = gone.clone();
    new["spec"]["size"] = json!(1);
    update(Some(&gone), &mut new, Some(&world.schema), &write);
    assert_eq!(managed::of(&new).and_then(Value::as_array).map(Vec::len), Some(1));
}

#[test]
fn objects_without_schema_have_granular_maps_and_atomic_lists() {
    let write = World::new().write("m");
    let applied = object(json!({"a": {"b": 1}, "l": [{"name": "x"}]}));
    let merged = apply(None, &applied, None, &write, false).expect("nothing to conflict with");
    let entries = managed::of(&merged).expect("managed");
    assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:l": {}}}));
    let other = Write { manager: "o", ..write };
    let error = apply(Some(&merged), &object(json!({"a": {"c": 1}, "l": []})), None, &other, false);
    assert_eq!(
        error.expect_err("a conflict").to_string(),
        "Apply failed with 1 conflict: conflict with \"m\": .spec.l"
    );
}

#[test]
fn only_times_make_no_write() {
    let mut world = World::new();
    world.apply("m", json!({"color": "red"}));
    let mut other = world.live().clone();
    other["metadata"]["managedFields"][0]["time"] = json!("2026-01-01T00:00:00Z");
    assert!(managed::is_noop(world.live(), &other));
    other["metadata"]["managedFields"][0]["manager"] = json!("n");
    assert!(!managed::is_noop(world.live(), &other));
    let mut other = world.live().clone();
    other["metadata"]["labels"] = json!({});
    assert!(!managed::is_noop(world.live(), &other));
    assert!(!managed::is_noop(&other, world.live()));
}

#[test]
fn repeated_items_are_owned_together() {
    let mut world = World::new();
    let ports = |values: &[i64]| -> Value {
        values.iter().map(|value| json!({"name": "a", "port": value})).collect()
    };
    world.put("u1", json!({"ports": ports(&[1, 2]), "set": ["x", "x"]}));
    let item = json!({".": {}, "k:{\"name\":\"a\"}": {}});
    assert_eq!(world.owners()[0].1, json!({".": {}, "f:ports": item, "f:set": {".": {}, "v:\"x\"": {}}}));
    world.put("u2", json!({"ports": ports(&[1, 3]), "set": ["x", "x"]}));
    assert_eq!(world.owners()[1], ("u2/Update".to_owned(), json!({"f:ports": {"k:{\"name\":\"a\"}": {}}})));
    // An apply makes one of them.
    world.try_apply("m", json!({"ports": ports(&[4])}), true).expect("forced");
    assert_eq!(world.spec()["ports"], ports(&[4]));
}

#[test]
fn null_states_a_field_without_emptying_a_map() {
    let mut world = World::new();
    world.put("u", json!({"labels": {"a": "1"}, "ports": [{"name": "a"}]}));
    world.apply("m", json!({"labels": null, "ports": null, "color": null}));
    assert_eq!(world.spec(), &json!({"labels": {"a": "1"}, "ports": [{"name": "a"}], "color": null}));
    assert_eq!(
        world.owners()[0],
        ("m/Apply".to_owned(), json!({"f:labels": {}, "f:ports": {}, "f:color": {}}))
    );
}

#[test]
fn an_emptied_map_that_is_owned_stays_empty() {
    let mut world = World::new();
    world.put("u", json!({"labels": {"a": "1"}}));
    world.try_apply("m", json!({"labels": {"a": "2"}}), true).expect("forced");
    world.apply("m", json!({"color": "red"}));
    world.check(
        json!({"labels": {}, "color": "red"}),
        &[("m/Apply", json!({"f:color": {}})), ("u/Update", json!({".": {}, "f:labels": {}}))],
    );
}

#[test]
fn the_version_of_a_configuration_must_be_that_of_the_request() {
    let mut other = object(json!({}));
    other["apiVersion"] = json!("x.io/v2");
    let error = World::new().try_apply_object("m", &other, false).expect_err("another version");
    let text =
        "Incorrect version specified in apply patch. Specified patch version: x.io/v2, expected: x.io/v1";
    assert_eq!(error, ApplyError::BadRequest(text.to_owned()));
}

#[test]
fn sets_follow_a_type_that_became_atomic() {
    let mut world = World::new();
    world.apply("m", json!({"nested": {"a": "1", "b": "2"}, "ports": [{"name": "a"}], "color": "red"}));
    assert!(!managed::reconcile(world.object.as_mut().expect("stored"), &world.schema));
    let mut schema = world.schema.clone();
    let spec = std::sync::Arc::make_mut(schema.properties.get_mut("spec").expect("spec"));
    std::sync::Arc::make_mut(spec.properties.get_mut("nested").expect("nested")).atomic_map = true;
    std::sync::Arc::make_mut(spec.properties.get_mut("ports").expect("ports")).list_type = Default::default();
    assert!(managed::reconcile(world.object.as_mut().expect("stored"), &schema));
    assert_eq!(world.owners()[0].1, json!({"f:nested": {}, "f:ports": {}, "f:color": {}}));
}

#[test]
fn the_default_manager_is_the_product_of_the_user_agent() {
    for (agent, name) in
        [("kubectl/v1.36 (linux)", "kubectl"), ("", "unknown"), ("/x", "unknown"), ("a\u{7}b", "ab")]
    {
        assert_eq!(managed::default_manager(agent), name);
    }
    assert_eq!(managed::default_manager(&"é".repeat(100)).len(), 128);
}
