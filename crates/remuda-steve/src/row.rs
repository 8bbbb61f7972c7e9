//! A row of the index: an object with what lists look at most often, taken out once.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use remuda_objects::selector::LabelSelector;
use serde_json::{Map, Value};

use crate::{
    kind::Kind,
    path::{Cell, Path},
    state::{Timeline, seconds},
};

/// Values of other fields that a row remembers.
const MOST_REMEMBERED: usize = 8;

/// Namespace and name.
pub(crate) type Key = (Box<str>, Box<str>);

/// An object that owns this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) api_version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) uid: Box<str>,
    pub(crate) revision: u64,
    /// Seconds.
    pub(crate) created: Option<i64>,
    pub(crate) labels: Option<Map<String, Value>>,
    pub(crate) owners: Box<[Owner]>,
    pub(crate) cells: Box<[Value]>,
    /// The cell that is the age of the object.
    age: Option<usize>,
    pub(crate) timeline: Timeline,
    /// The object without its managed fields; nothing in an index that only counts.
    object: Option<Bytes>,
    remembered: Mutex<Vec<(Arc<str>, Cell)>>,
}

impl Row {
    /// `None` for what is no object.
    pub(crate) fn new(kind: &Kind, mut object: Value, cells: Vec<Value>, keep: bool) -> Option<Self> {
        let metadata = object.get_mut("metadata")?.as_object_mut()?;
        metadata.remove("managedFields");
        let text = |field: &str| -> Box<str> {
            metadata.get(field).and_then(Value::as_str).unwrap_or_default().into()
        };
        let name = text("name");
        if name.is_empty() {
            return None;
        }
        let key = (text("namespace"), name);
        let (uid, revision) = (text("uid"), text("resourceVersion").parse().unwrap_or_default());
        let created = metadata.get("creationTimestamp").and_then(seconds);
        let labels = metadata.get("labels").and_then(Value::as_object).cloned();
        let owners = metadata.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
        let owners = owners.map(owner).collect();
        let timeline = Timeline::of(&kind.group, &kind.kind, &object);
        let age = kind.columns.iter().position(crate::kind::Column::is_age).filter(|_| created.is_some());
        let object = keep.then(|| Bytes::from(object.to_string()));
        Some(Self {
            key,
            uid,
            revision,
            created,
            labels,
            owners,
            cells: cells.into(),
            age,
            timeline,
            object,
            remembered: Mutex::default(),
        })
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.key.0
    }

    pub(crate) fn name(&self) -> &str {
        &self.key.1
    }

    pub(crate) fn id(&self) -> String {
        id(self.namespace(), self.name())
    }

    /// The object; an empty one if the index only counts.
    pub(crate) fn object(&self) -> Value {
        let object = self.object.as_ref().and_then(|object| serde_json::from_slice(object).ok());
        object.unwrap_or_else(|| Value::Object(Map::new()))
    }

    pub(crate) fn size(&self) -> usize {
        self.object.as_ref().map_or(0, Bytes::len)
    }

    /// Bytes it holds, about: a value takes more room in memory than in an answer.
    pub(crate) fn weight(&self) -> usize {
        let cells: usize = self.cells.iter().map(weight).sum();
        let labels = self.labels.iter().flatten();
        let labels: usize = labels.map(|(key, value)| 64 + key.len() + weight(value)).sum();
        let owners = size_of_val(&*self.owners);
        size_of::<Self>() + self.size() + cells + labels + owners
    }

    /// Cells as they are shown now: ages grow.
    pub(crate) fn fields(&self, now: i64) -> Vec<Value> {
        let mut cells = self.cells.to_vec();
        if let Some((place, created)) = self.age.zip(self.created)
            && let Some(cell) = cells.get_mut(place)
        {
            *cell = remuda_objects::columns::human_seconds(now - created).into();
        }
        cells
    }

    pub(crate) fn is_selected(&self, selector: &LabelSelector) -> bool {
        selector.matches(self.labels.as_ref())
    }

    /// The value of a field, of those the list API adds too.
    pub(crate) fn value(&self, path: &Path, now: i64) -> Cell {
        let state = || self.timeline.at(now);
        let flag = |flag: bool| Cell::text(if flag { "true" } else { "false" });
        match path.parts().as_slice() {
            ["id"] => Cell::Text(self.id().into()),
            ["metadata", "name"] => Cell::Text(self.name().into()),
            ["metadata", "namespace"] if self.namespace().is_empty() => Cell::None,
            ["metadata", "namespace"] => Cell::Text(self.namespace().into()),
            ["metadata", "creationTimestamp"] => match self.created {
                Some(seconds) => Cell::Text(remuda_base::calendar::rfc3339(seconds).into()),
                None => Cell::None,
            },
            ["metadata", "labels", label] => match self.labels.as_ref().and_then(|labels| labels.get(*label))
            {
                Some(value) => Cell::of(value),
                None => Cell::None,
            },
            ["metadata", "fields", place] => match place.parse::<usize>() {
                Ok(place) if self.age == Some(place) => {
                    Cell::Text((now - self.created.unwrap_or(now)).to_string().into())
                }
                Ok(place) => self.cells.get(place).map(Cell::of).unwrap_or_default(),
                Err(_) => Cell::None,
            },
            ["metadata", "state", "name"] => Cell::text(&state().name),
            ["metadata", "state", "message"] => Cell::text(&state().message),
            ["metadata", "state", "error"] => flag(state().error),
            ["metadata", "state", "transitioning"] => flag(state().transitioning),
            ["metadata", "cause", "code"] => {
                state().cause.as_ref().map_or(Cell::None, |cause| Cell::text(&cause.code))
            }
            _ => self.remembered(path),
        }
    }

    /// The value of any other field. The object is read once for it, and not again for the next query.
    fn remembered(&self, path: &Path) -> Cell {
        let mut remembered = self.remembered.lock();
        if let Some((_, cell)) = remembered.iter().find(|(key, _)| key == path.key()) {
            return cell.clone();
        }
        let cell = path.value(&self.object());
        if remembered.len() >= MOST_REMEMBERED {
            remembered.remove(0);
        }
        remembered.push((path.key().clone(), cell.clone()));
        cell
    }
}

/// `namespace/name`, or the name.
pub(crate) fn id(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

fn weight(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| 64 + key.len() + weight(value)).sum(),
        _ => 0,
    };
    size_of::<Value>() + inner
}

fn owner(reference: &Value) -> Owner {
    let text = |field: &str| -> Box<str> { reference[field].as_str().unwrap_or_default().into() };
    Owner { api_version: text("apiVersion"), kind: text("kind"), name: text("name"), uid: text("uid") }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kind::Column;

    fn column(name: &str) -> Column {
        let (kind, format, description) = <(String, String, String)>::default();
        Column { name: name.to_owned(), kind, format, description, priority: 0 }
    }

    #[test]
    fn fields_of_the_list_api_are_values_like_others() {
        let kind = Kind { columns: vec![column("Name"), column("Age")], ..Kind::default() };
        let object = json!({
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7", "labels": {"x": "y"},
                         "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"manager": "m"}]},
            "spec": {"size": 3},
        });
        let row = Row::new(&kind, object, vec![json!("a"), json!("1s")], true).unwrap();
        let now = 1_767_225_600 + 120;
        let value = |path: &str| row.value(&Path::parse(path).unwrap(), now).first().to_owned();
        assert_eq!(value("id"), "n/a");
        assert_eq!(value("metadata.labels[x]"), "y");
        assert_eq!(value("metadata.state.name"), "active");
        assert_eq!(value("metadata.fields[1]"), "120", "ages are compared in seconds");
        assert_eq!(value("metadata.creationTimestamp"), "2026-01-01T00:00:00Z");
        assert_eq!(value("spec.size"), "3");
        assert_eq!(value("spec.size"), "3", "once more, as it was remembered");
        assert_eq!(row.fields(now), [json!("a"), json!("2m")]);
        assert!(row.object()["metadata"].get("managedFields").is_none());
        assert_eq!(row.revision, 7);
        for hostile in [json!(null), json!({"metadata": 1}), json!({"metadata": {"name": ""}})] {
            assert!(Row::new(&kind, hostile, Vec::new(), true).is_none());
        }
    }
}
