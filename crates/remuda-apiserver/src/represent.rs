//! The forms an object or list can be answered in: itself, a Table, or metadata alone.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use remuda_objects::columns;
use remuda_store::Record;
use serde_json::{Value, json};

use crate::{
    lean::{self, Need},
    negotiate::{Form, Shape},
    options::Query,
    registry::{Origin, Resource},
    status::{ApiError, ApiResult},
    typeless,
};

/// What `rows[].object` of a Table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    pub(crate) fn parse(query: &Query) -> Self {
        match query.get("includeObject") {
            Some("None") => Self::None,
            Some("Object") => Self::Object,
            _ => Self::Metadata,
        }
    }

    /// Refuses words that are none of the three, for those who want a Table.
    pub(crate) fn check(query: &Query, form: Form) -> ApiResult<()> {
        match query.get("includeObject") {
            None | Some("" | "None" | "Metadata" | "Object") => Ok(()),
            Some(_) if form.shape != Shape::Table => Ok(()),
            Some(other) => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

fn meta_version(form: Form) -> &'static str {
    if form.beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
}

/// Name, kind and metadata of an object, nothing else.
pub(crate) fn partial(object: &mut Value, form: Form) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": meta_version(form),
        "metadata": object.get_mut("metadata").map(Value::take).unwrap_or_default(),
    })
}

/// Column definitions of a resource's Table.
pub(crate) fn column_definitions(resource: &Resource) -> Value {
    match &resource.origin {
        Origin::Builtin(builtin) => definitions(builtin_columns(builtin)),
        Origin::Custom(custom) => custom
            .columns
            .definitions()
            .iter()
            .map(|column| {
                definition(&column.name, &column.kind, &column.format, &column.description, column.priority)
            })
            .collect(),
    }
}

fn definitions(columns: &columns::Columns) -> Value {
    let definition = |column: &columns::Column| {
        definition(column.name, column.kind, column.format, column.description, column.priority)
    };
    columns.definitions().iter().map(definition).collect()
}

fn builtin_columns(builtin: &remuda_kinds::Resource) -> &'static columns::Columns {
    columns::builtin(builtin.group, builtin.kind).unwrap_or(&columns::DEFAULT)
}

fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i32) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    match &resource.origin {
        Origin::Builtin(builtin) => builtin_columns(builtin).cells(object, now),
        Origin::Custom(custom) => custom.columns.cells(object, now),
    }
}

/// What a row shows of its object beside the cells.
fn included(mut object: Value, form: Form, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial(&mut object, form),
        IncludeObject::Object => object,
    }
}

fn row(resource: &Resource, object: Value, form: Form, include: IncludeObject, now: Timestamp) -> Value {
    let cells = cells(resource, &object, now);
    let conditions =
        resource.builtin().and_then(|builtin| columns::row_conditions(builtin.group, builtin.kind, &object));
    let mut row = json!({"cells": cells, "object": included(object, form, include)});
    if let Some(conditions) = conditions {
        row["conditions"] = conditions;
    }
    row
}

/// A Table of these objects. `metadata` is the list's.
pub(crate) fn table(
    resource: &Resource,
    objects: Vec<Value>,
    metadata: Value,
    form: Form,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let rows: Vec<Value> =
        objects.into_iter().map(|object| row(resource, object, form, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": meta_version(form), "metadata": metadata,
        "columnDefinitions": column_definitions(resource), "rows": rows,
    })
}

/// A `Scale` in the asked shape: its columns are its own, not those of the kind it scales.
pub(crate) fn shape_scale(mut scale: Value, form: Form, include: IncludeObject, now: Timestamp) -> Value {
    match form.shape {
        Shape::Object => scale,
        Shape::PartialMetadata | Shape::PartialMetadataList => partial(&mut scale, form),
        Shape::Table => {
            let columns = columns::builtin("autoscaling", "Scale").unwrap_or(&columns::DEFAULT);
            let metadata = table_metadata(&scale);
            let cells = columns.cells(&scale, now);
            let object = included(scale, form, include);
            json!({
                "kind": "Table", "apiVersion": meta_version(form), "metadata": metadata,
                "columnDefinitions": definitions(columns), "rows": [{"cells": cells, "object": object}],
            })
        }
    }
}

/// Of a table of one object. What is not stored has no version, and neither has its table.
fn table_metadata(object: &Value) -> Value {
    match &object["metadata"]["resourceVersion"] {
        Value::Null => json!({}),
        version => json!({"resourceVersion": version}),
    }
}

/// One object in the asked shape.
pub(crate) fn shape_object(
    resource: &Resource,
    mut object: Value,
    form: Form,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    match form.shape {
        Shape::Object => object,
        Shape::PartialMetadata | Shape::PartialMetadataList => partial(&mut object, form),
        Shape::Table => {
            let metadata = table_metadata(&object);
            table(resource, vec![object], metadata, form, include, now)
        }
    }
}

/// A list in the asked shape.
pub(crate) fn shape_list(
    resource: &Resource,
    mut objects: Vec<Value>,
    metadata: Value,
    form: Form,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    match form.shape {
        Shape::Table => table(resource, objects, metadata, form, include, now),
        Shape::PartialMetadata | Shape::PartialMetadataList => {
            let items: Vec<Value> =
                objects.into_iter().map(|mut object| partial(&mut object, form)).collect();
            json!({
                "kind": "PartialObjectMetadataList", "apiVersion": meta_version(form),
                "metadata": metadata, "items": items,
            })
        }
        Shape::Object => {
            objects.iter_mut().for_each(|object| typeless::strip(resource, object));
            json!({
                "kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata,
                "items": objects,
            })
        }
    }
}

/// A Table or metadata list made from stored bytes, reading no more of them than it shows.
pub(crate) fn lean_list(
    resource: &Resource,
    records: &[Arc<Record>],
    metadata: &Value,
    form: Form,
    include: IncludeObject,
    now: Timestamp,
) -> Result<Vec<u8>, serde_json::Error> {
    let version = meta_version(form);
    let is_table = form.shape == Shape::Table;
    let need = match (&resource.origin, is_table) {
        (_, false) => Need::Fields(Default::default()),
        (Origin::Builtin(_), true) => Need::Everything,
        (Origin::Custom(custom), true) => Need::of_paths(custom.columns.paths()),
    };
    let mut out = Vec::with_capacity(1024 + records.len() * 1024);
    if is_table {
        let columns = column_definitions(resource);
        out.extend_from_slice(
            format!(
                "{{\"kind\":\"Table\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"columnDefinitions\":{columns},\"rows\":["
            )
            .as_bytes(),
        );
    } else {
        let head = format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":["
        );
        out.extend_from_slice(head.as_bytes());
    }
    let partial_head =
        format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{version}\",\"metadata\":");
    for (index, record) in records.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let lean = lean::read(&record.value, &need)?;
        if is_table {
            out.extend_from_slice(b"{\"cells\":");
            serde_json::to_writer(&mut out, &cells(resource, &lean.object, now))?;
            let conditions = resource
                .builtin()
                .and_then(|builtin| columns::row_conditions(builtin.group, builtin.kind, &lean.object));
            if let Some(conditions) = conditions {
                out.extend_from_slice(b",\"conditions\":");
                serde_json::to_writer(&mut out, &conditions)?;
            }
            out.extend_from_slice(b",\"object\":");
        }
        match (is_table, include) {
            (true, IncludeObject::None) => out.extend_from_slice(b"null"),
            (true, IncludeObject::Object) => out.extend_from_slice(&record.value),
            _ => {
                out.extend_from_slice(partial_head.as_bytes());
                out.extend_from_slice(lean.metadata.as_bytes());
                out.push(b'}');
            }
        }
        if is_table {
            out.push(b'}');
        }
    }
    out.extend_from_slice(b"]}\n");
    Ok(out)
}

/// The bytes before the items of a plain list.
pub(crate) fn list_head(resource: &Resource, metadata: &Value) -> Bytes {
    let head = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
        json!(resource.list_kind),
        json!(resource.api_version)
    );
    Bytes::from(head)
}

/// A watch event's line around an object's bytes.
pub(crate) fn event_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + kind.len() + 24);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    Bytes::from(line)
}

/// What one watcher wants its events in; two watchers with equal views share encoded events.
#[derive(Clone)]
pub(crate) struct View {
    pub resource: Arc<Resource>,
    pub form: Form,
    pub include: IncludeObject,
}

impl View {
    /// Whether stored bytes go out as they are.
    pub(crate) fn is_raw(&self) -> bool {
        self.form.shape == Shape::Object
    }
}
