//! Lists and watches as Tables: rows with the cells of the kind's columns, and their objects.

use http::{Request, header};
use serde::Deserialize;
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
    #[serde(rename = "resourceVersion", default)]
    pub(crate) resource_version: String,
    #[serde(rename = "continue", default)]
    pub(crate) next: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TableRow {
    #[serde(default)]
    pub(crate) cells: Vec<Value>,
    #[serde(default)]
    pub(crate) object: Value,
}

/// A request for a Table with whole objects.
pub(crate) fn table_request(uri: &str) -> Option<Request<Vec<u8>>> {
    Request::get(uri).header(header::ACCEPT, TABLE).body(Vec::new()).ok()
}
