//! Lists and watches as Tables: rows with the cells of the kind's columns, and their objects.

use http::{Request, header};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::kind::Column;

/// The form of lists and watches: with cells, and the object in each row.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Table {
    #[serde(default)]
    pub(crate) metadata: TableMeta,
    #[serde(rename = "columnDefinitions", default)]
    pub(crate) columns: Option<Vec<Column>>,
    #[serde(default)]
    pub(crate) rows: Option<Vec<TableRow>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct TableMeta {
    #[serde(rename = "resourceVersion", default, deserialize_with = "or_nothing")]
    pub(crate) resource_version: String,
    #[serde(rename = "continue", default, deserialize_with = "or_nothing")]
    pub(crate) next: String,
    /// Objects behind this page, as far as the API says how many.
    #[serde(rename = "remainingItemCount", default)]
    pub(crate) remaining: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TableRow {
    #[serde(default, deserialize_with = "or_nothing")]
    pub(crate) cells: Vec<Value>,
    #[serde(default)]
    pub(crate) object: Value,
}

/// APIs write `null` for what there is not, as for the revision of what is computed.
fn or_nothing<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// A request for a Table with whole objects.
pub(crate) fn table_request(uri: &str) -> Option<Request<Vec<u8>>> {
    Request::get(uri).header(header::ACCEPT, TABLE).body(Vec::new()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_there_is_not_may_be_null() {
        let table =
            json!({"metadata": {"resourceVersion": null, "continue": null}, "rows": [{"cells": null}]});
        let table: Table = serde_json::from_value(table).unwrap();
        assert_eq!((table.metadata.resource_version.as_str(), table.metadata.next.as_str()), ("", ""));
        assert_eq!(table.rows.unwrap()[0].cells, Vec::<Value>::new());
    }
}
