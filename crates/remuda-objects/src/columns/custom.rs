//! Tables of custom objects, from the printer columns of their definition.

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use crate::{
    jsonpath::{JsonPath, JsonPathError},
    meta,
};

/// A printer column as the definition of a custom kind gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSpec {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
}

/// The columns of a custom kind with their paths compiled.
#[derive(Debug, Clone)]
pub struct CrColumns {
    definitions: Vec<ColumnSpec>,
    paths: Vec<(CellType, JsonPath)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellType {
    Text,
    Integer,
    Number,
    Boolean,
    Date,
    Unknown,
}

impl CrColumns {
    /// Compiles the given columns, each with its JSONPath. Without any, objects show name and age.
    pub fn compile(columns: &[(ColumnSpec, &str)]) -> Result<Self, JsonPathError> {
        let mut definitions = vec![column("Name", "string", "name", "Name of the object.")];
        let mut paths = Vec::with_capacity(columns.len());
        if columns.is_empty() {
            definitions.push(column("Age", "date", "", "Time since the object was created."));
            paths.push((CellType::Date, JsonPath::parse(".metadata.creationTimestamp")?));
        }
        for (spec, path) in columns {
            let kind = match spec.kind.as_str() {
                "string" => CellType::Text,
                "integer" => CellType::Integer,
                "number" => CellType::Number,
                "boolean" => CellType::Boolean,
                "date" => CellType::Date,
                _ => CellType::Unknown,
            };
            paths.push((kind, JsonPath::parse(path)?));
            definitions.push(spec.clone());
        }
        Ok(Self { definitions, paths })
    }

    pub fn definitions(&self) -> &[ColumnSpec] {
        &self.definitions
    }

    /// The paths the cells are read from, besides the name.
    pub fn paths(&self) -> impl Iterator<Item = &JsonPath> {
        self.paths.iter().map(|(_, path)| path)
    }

    /// The cells of one object; what is missing or of the wrong type is null.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut cells = Vec::with_capacity(self.definitions.len());
        cells.push(Value::from(meta::name(object)));
        for (kind, path) in &self.paths {
            cells.push(path.first(object).map_or(Value::Null, |value| cell(*kind, value, now)));
        }
        cells
    }
}

fn column(name: &str, kind: &str, format: &str, description: &str) -> ColumnSpec {
    ColumnSpec {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: format.to_owned(),
        description: description.to_owned(),
        priority: 0,
    }
}

fn cell(kind: CellType, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        (CellType::Text, Value::String(text)) => Value::from(text.as_str()),
        // Anything can be shown as text: numbers as they are, lists and objects as JSON.
        (CellType::Text, other) => Value::from(other.to_string()),
        (CellType::Integer, Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::from(integer),
            // Like Go's conversion for all that fits; the cast saturates for what does not.
            (None, Some(float)) => Value::from(float as i64),
            (None, None) => Value::Null,
        },
        (CellType::Number, Value::Number(_)) | (CellType::Boolean, Value::Bool(_)) => value.clone(),
        (CellType::Date, Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(_) => Value::from(age(text, now)),
            Err(_) if text.is_empty() => Value::from("<unknown>"),
            Err(_) => Value::from("<invalid>"),
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(name: &str, kind: &str) -> ColumnSpec {
        column(name, kind, "", "")
    }

    #[test]
    fn cells_follow_the_types_of_their_columns() {
        let columns = CrColumns::compile(&[
            (spec("Ready", "string"), ".status.conditions[?(@.type==\"Ready\")].status"),
            (spec("Replicas", "integer"), ".spec.replicas"),
            (spec("Text", "integer"), ".spec.text"),
            (spec("Gone", "string"), ".spec.gone"),
            (spec("List", "string"), ".spec.list"),
            (spec("Age", "date"), ".metadata.creationTimestamp"),
            (spec("Bad", "date"), ".spec.text"),
        ])
        .unwrap();
        let object = json!({
            "metadata": {"name": "a", "creationTimestamp": "1969-12-31T23:50:00Z"},
            "spec": {"replicas": 3, "text": "x", "list": ["a", 1]},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        assert_eq!(
            columns.cells(&object, Timestamp::UNIX_EPOCH),
            [
                json!("a"),
                json!("True"),
                json!(3),
                json!(null),
                json!(null),
                json!("[\"a\",1]"),
                json!("10m"),
                json!("<invalid>")
            ]
        );
        assert_eq!(columns.definitions().len(), 8);
    }

    #[test]
    fn without_columns_there_are_name_and_age() {
        let columns = CrColumns::compile(&[]).unwrap();
        let names: Vec<_> = columns.definitions().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["Name", "Age"]);
        assert_eq!(columns.cells(&json!({}), Timestamp::UNIX_EPOCH), [json!(""), json!(null)]);
    }
}
