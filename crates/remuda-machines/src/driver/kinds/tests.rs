use remuda_drivers::{
    builtin::{Context, Registry},
    log::Log,
};

use super::*;
use crate::driver::schema::{Hints, config_fields};

#[tokio::test]
async fn a_drivers_kinds_have_its_fields_where_rancher_has_them() {
    let driver = Registry::standard().open("digitalocean", Context::new(Log::tracing())).unwrap();
    let fields = config_fields(&driver.flags().await.unwrap(), &Hints::default()).unwrap();
    let config = definition(Role::Config, "digitalocean", &fields, None);
    assert_eq!(config["metadata"]["name"], "digitaloceanconfigs.rke-machine-config.cattle.io");
    assert_eq!(config["spec"]["names"]["kind"], "DigitaloceanConfig");
    let schema = &config["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(schema["properties"]["region"]["default"], "nyc3");
    assert_eq!(schema["properties"]["accessToken"]["default"], "");
    assert_eq!(
        schema["properties"]["ipv6"],
        json!({
            "type": "boolean", "default": false, "description": "Give the droplet an IPv6 address",
        })
    );
    assert!(schema["properties"]["common"].is_null());
    let machine = definition(Role::Machine, "digitalocean", &fields, None);
    let spec = machine.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties").unwrap();
    assert!(spec["region"]["default"].is_null() && spec["providerID"].is_object());
    assert_eq!(machine["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"], "v1");
    let template = definition(Role::Template, "digitalocean", &fields, None);
    assert_eq!(template["metadata"]["name"], "digitaloceanmachinetemplates.rke-machine.cattle.io");
    let at = format!("/spec/versions/0/schema/openAPIV3Schema{}/size/type", Role::Template.fields_at());
    assert_eq!(template.pointer(&at).unwrap(), "string");
}

/// Fields without a description, below a path.
fn silent(path: &str, schema: &Value, found: &mut Vec<String>) {
    for part in ["items", "additionalProperties"].iter().filter_map(|part| schema.get(part)) {
        silent(path, part, found);
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let common = path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str());
        let path = format!("{path}.{name}");
        if !common && property["description"].as_str().is_none_or(str::is_empty) {
            found.push(path.clone());
        }
        silent(&path, property, found);
    }
}

#[tokio::test]
async fn every_field_of_a_built_in_driver_is_explained() {
    for (name, _) in Registry::standard().names() {
        let driver = Registry::standard().open(name, Context::new(Log::tracing())).unwrap();
        let fields = config_fields(&driver.flags().await.unwrap(), &Hints::default()).unwrap();
        for role in ROLES {
            let definition = definition(role, name, &fields, None);
            let mut found = Vec::new();
            silent("", old_schema(&definition).unwrap(), &mut found);
            assert_eq!(found, Vec::<String>::new(), "{}", role.kind(name));
        }
    }
}

#[test]
fn fields_a_driver_lost_stay_for_objects_that_have_them() {
    let field = |kind: &str| SchemaField { kind: kind.into(), ..SchemaField::default() };
    let old = BTreeMap::from([("a".to_owned(), field("string")), ("gone".to_owned(), field("boolean"))]);
    let new = BTreeMap::from([("a".to_owned(), field("boolean"))]);
    for role in ROLES {
        let before = definition(role, "demo", &old, None);
        let after = definition(role, "demo", &new, Some(&before));
        let fields =
            after.pointer(&format!("/spec/versions/0/schema/openAPIV3Schema{}", role.fields_at())).unwrap();
        assert_eq!(fields["gone"]["type"], "boolean", "{role:?}");
        assert_eq!(fields["a"]["type"], "boolean");
    }
}

#[test]
fn kinds_name_their_drivers() {
    assert_eq!(driver_of("DigitaloceanMachine").as_deref(), Some("digitalocean"));
    assert_eq!(driver_of("CustomMachine"), None);
    assert_eq!(driver_of("DigitaloceanMachineTemplate"), None);
    assert_eq!(driver_of("Machine"), None);
}

#[tokio::test]
async fn templates_of_clusters_ask_for_fields_there_are() {
    for (name, _, listing) in remuda_names::driver::listed() {
        // Some are made by others than this registry.
        let Some(driver) = Registry::standard().open(name, Context::new(Log::tracing())) else { continue };
        let fields = config_fields(&driver.flags().await.unwrap(), &Hints::default()).unwrap();
        for (field, _) in listing.asked {
            assert!(fields.contains_key(*field), "{name} has no field {field}");
        }
    }
}
