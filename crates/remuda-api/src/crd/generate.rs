//! Writes what the types and names say into the definitions.

use std::{collections::BTreeMap, fmt::Write, fs, path::PathBuf};

use remuda_names::{GROUP, capi::label, rancher};
use serde_json::{Map, Value, json};

use super::{
    REVISION, committed,
    drift::COMMON,
    types::{Shape, Types},
    words,
};

const WIDTH: usize = 110;

/// A definition with everything that follows from elsewhere.
fn generate(mut definition: Value) -> Value {
    let types = Types::of(definition["metadata"]["name"].as_str().unwrap());
    let names = &definition["spec"];
    let labels = labels(names["group"].as_str().unwrap(), names["names"]["kind"].as_str().unwrap());
    definition["metadata"]["labels"] = labels;
    if definition["metadata"]["labels"].is_null() {
        definition["metadata"].as_object_mut().unwrap().remove("labels");
    }
    let kind = definition["spec"]["names"]["kind"].as_str().unwrap().to_owned();
    let mut described = BTreeMap::new();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    // What the stored version says is said of the same fields of the older one.
    versions.sort_by_key(|version| version["storage"] != true);
    for version in versions.iter_mut() {
        let stored = version["storage"] == true;
        let schema = &mut version["schema"]["openAPIV3Schema"];
        strip(schema);
        if stored {
            describe(&types.shape(), schema);
        }
        let text = types.shape().description().map(sentence).or(words::kind(&kind).map(str::to_owned));
        schema["description"] = text.unwrap_or_else(|| panic!("{kind} has no description")).into();
        fill("", schema, &mut described);
    }
    versions.sort_by_key(|version| version["storage"] == true);
    definition
}

/// Takes all descriptions away, so that none stays that is said no more.
fn strip(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("description");
        for part in ["items", "additionalProperties"] {
            fields.get_mut(part).into_iter().for_each(strip);
        }
        let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
        properties.into_iter().flatten().for_each(|(_, property)| strip(property));
    }
}

/// Describes what has no description yet.
fn fill(path: &str, schema: &mut Value, described: &mut BTreeMap<String, String>) {
    for part in ["items", "additionalProperties"] {
        if let Some(part) = schema.get_mut(part).filter(|part| part.is_object()) {
            fill(path, part, described);
        }
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        if path.is_empty() && COMMON.contains(&name.as_str()) {
            continue;
        }
        let parent = path.rsplit('.').next().unwrap_or_default();
        let path = format!("{path}.{name}");
        let known = property["description"].as_str().map(str::to_owned);
        let known = known
            .or_else(|| described.get(&path).cloned())
            .or_else(|| words::field(parent, name).map(str::to_owned));
        if let Some(known) = known {
            property["description"] = known.clone().into();
            described.entry(path.clone()).or_insert(known);
        }
        fill(&path, property, described);
    }
}

fn labels(group: &str, kind: &str) -> Value {
    let indexed = rancher::label::CLUSTER_INDEXED;
    match (group, kind) {
        (_, "Provider") => json!({label::CLUSTERCTL: "", label::CLUSTERCTL_CORE: "inventory"}),
        (rancher::group::MANAGEMENT | GROUP, _) => Value::Null,
        (rancher::group::PROVISIONING, _) | (_, "ETCDSnapshot") => json!({indexed: "true"}),
        (rancher::group::RKE, _) => {
            json!({indexed: "true", label::CONTRACT_V1BETA1: "v1", label::CONTRACT_V1BETA2: "v1"})
        }
        _ => json!({label::CLUSTERCTL: "", label::PROVIDER: "cluster-api"}),
    }
}

/// Gives the fields of our own types their descriptions.
fn describe(shape: &Shape<'_>, schema: &mut Value) {
    if let Some(values) = shape.values() {
        describe(&values, &mut schema["additionalProperties"]);
    } else if let Some(items) = shape.items() {
        describe(&items, &mut schema["items"]);
    }
    for (name, said, field) in shape.fields() {
        let Some(property) = schema.get_mut("properties").and_then(|properties| properties.get_mut(name))
        else {
            continue;
        };
        let own = |shape: &Shape<'_>| shape.description().filter(|_| !shape.foreign).map(str::to_owned);
        let text = said.map(str::to_owned).or_else(|| own(&field));
        if let Some(text) = text.filter(|_| !field.foreign || said.is_some()) {
            property["description"] = sentence(&text).into();
        }
        if !field.foreign {
            describe(&field, property);
        }
    }
}

/// A comment as one line.
fn sentence(text: &str) -> String {
    text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// YAML with what is short on one line.
fn print(definition: &Value) -> String {
    let mut text = String::new();
    block(&mut text, definition, 0);
    text
}

fn block(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) => {
            for (key, value) in ordered(fields) {
                let _ = write!(text, "{:indent$}{}:", "", scalar(key));
                nested(text, value, indent, indent + key.len() + 2);
            }
        }
        Value::Array(items) => {
            for item in items {
                let _ = write!(text, "{:indent$}-", "");
                match inline(item).filter(|line| indent + 2 + line.len() <= WIDTH) {
                    Some(line) => {
                        let _ = writeln!(text, " {line}");
                    }
                    None => {
                        let mut inner = String::new();
                        block(&mut inner, item, indent + 2);
                        let _ = write!(text, " {}", inner.trim_start());
                    }
                }
            }
        }
        other => {
            let _ = writeln!(text, "{:indent$}{}", "", inline(other).unwrap());
        }
    }
}

fn nested(text: &mut String, value: &Value, indent: usize, column: usize) {
    match inline(value).filter(|line| column + line.len() <= WIDTH || !value.is_object() && !value.is_array())
    {
        Some(line) => {
            let _ = writeln!(text, " {line}");
        }
        None => {
            text.push('\n');
            let deeper = if value.is_array() { indent } else { indent + 2 };
            block(text, value, deeper);
        }
    }
}

/// Name before labels and the like; otherwise by name.
fn ordered(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let is_metadata = fields.contains_key("labels") && fields.contains_key("name");
    let (first, rest): (Vec<_>, Vec<_>) = fields.iter().partition(|(key, _)| is_metadata && *key == "name");
    first.into_iter().chain(rest)
}

/// On one line, if nothing is nested in it.
fn inline(value: &Value) -> Option<String> {
    let is_scalar = |value: &Value| !value.is_object() && !value.is_array();
    Some(match value {
        Value::Object(fields) if fields.values().all(is_scalar) => {
            let fields =
                fields.iter().map(|(key, value)| Some(format!("{}: {}", scalar(key), inline(value)?)));
            format!("{{{}}}", fields.collect::<Option<Vec<_>>>()?.join(", "))
        }
        Value::Array(items) if items.iter().all(is_scalar) => {
            format!("[{}]", items.iter().map(inline).collect::<Option<Vec<_>>>()?.join(", "))
        }
        Value::String(text) => scalar(text),
        Value::Object(_) | Value::Array(_) => return None,
        other => other.to_string(),
    })
}

/// A string, in quotes wherever it might be taken for something else.
fn scalar(text: &str) -> String {
    let word =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-' | '_' | ' ' | '(' | ')' | ';');
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '.')
        && !text.ends_with(' ')
        && text.chars().all(word)
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

/// Tells apart what is committed, by the number of FNV-1a.
fn fingerprint(texts: &[String]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in texts.iter().flat_map(|text| text.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crds").join(file)
}

#[test]
fn definitions_are_as_generated() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut texts = Vec::new();
    for committed in committed() {
        let name = committed.name;
        let definition = committed.parse();
        let text = print(&generate(definition.clone()));
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, generate(definition), "{name} does not read as it was written");
        if update {
            fs::write(path(committed.file), &text).unwrap();
        } else {
            assert!(text == committed.text, "{name} is not as generated; run cargo xtask crds");
        }
        texts.push(text);
    }
    let recorded = fs::read_to_string(path("revision")).unwrap();
    let current = fingerprint(&texts);
    if recorded.split_whitespace().nth(1) == Some(current.as_str()) {
        return;
    }
    assert!(update, "the definitions changed and their revision did not; run cargo xtask crds");
    fs::write(path("revision"), format!("{} {current}\n", REVISION + 1)).unwrap();
}
