//! A definition as the API server uses it: parsed once, schemas compiled.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    compile::compile,
    crd::{flag, list, present, schema_json, text, texts, version_rank},
    props::SchemaError,
    schema::Schema,
};

/// A stored definition that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    #[error("read definition: {0} is missing")]
    Missing(&'static str),
    #[error("compile schema of version {version}")]
    Schema { version: String, source: SchemaError },
}

#[derive(Debug, Clone)]
pub struct CrdView {
    pub group: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub versions: Vec<CrdVersion>,
    pub conversion: Conversion,
}

#[derive(Debug, Clone)]
pub struct CrdVersion {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    /// The warning to send with every answer of a deprecated version.
    pub deprecated: Option<String>,
    pub schema: Arc<Schema>,
    /// As written, for publishing: as text, since as a value it takes twenty times the room.
    pub schema_json: Arc<str>,
    /// Has a status subresource.
    pub status: bool,
    pub scale: Option<ScalePaths>,
    /// As declared; none means the default column with the age.
    pub columns: Vec<Column>,
    /// JSON paths, each with its leading dot.
    pub selectable_fields: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    pub json_path: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Conversion {
    /// Only `apiVersion` changes.
    None,
    Webhook {
        /// `url` or `service`, and `caBundle`, as written.
        client_config: Value,
        review_versions: Vec<String>,
    },
}

impl CrdView {
    /// Reads a (defaulted) definition.
    pub fn parse(crd: &Value) -> Result<Self, CrdError> {
        let spec = present(crd, "spec").ok_or(CrdError::Missing("spec"))?;
        let names = present(spec, "names").ok_or(CrdError::Missing("spec.names"))?;
        let group = text(spec, "group").to_owned();
        let kind = text(names, "kind").to_owned();
        if text(names, "plural").is_empty() {
            return Err(CrdError::Missing("spec.names.plural"));
        }
        let owned = |name: &str, default: String| match text(names, name) {
            "" => default,
            text => text.to_owned(),
        };
        let mut versions = Vec::new();
        for version in list(spec, "versions") {
            versions.push(CrdVersion::parse(version)?);
        }
        for (index, version) in list(spec, "versions").iter().enumerate() {
            if flag(version, "deprecated") {
                versions[index].deprecated = Some(match text(version, "deprecationWarning") {
                    "" => deprecation(&group, &kind, &versions[index].name, list(spec, "versions")),
                    warning => warning.to_owned(),
                });
            }
        }
        Ok(Self {
            plural: text(names, "plural").to_owned(),
            singular: owned("singular", kind.to_lowercase()),
            list_kind: owned("listKind", format!("{kind}List")),
            short_names: texts(names, "shortNames").map(str::to_owned).collect(),
            categories: texts(names, "categories").map(str::to_owned).collect(),
            namespaced: text(spec, "scope") == "Namespaced",
            versions,
            conversion: Conversion::parse(spec),
            group,
            kind,
        })
    }

    pub fn version(&self, name: &str) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub fn storage_version(&self) -> Option<&CrdVersion> {
        self.versions.iter().find(|version| version.storage)
    }
}

/// What is said about a deprecated version that has no words of its own: it names the best version that is
/// better.
fn deprecation(group: &str, kind: &str, name: &str, versions: &[Value]) -> String {
    let better = versions
        .iter()
        .filter(|version| flag(version, "served") && !flag(version, "deprecated"))
        .map(|version| text(version, "name"))
        .filter(|other| version_rank(other) > version_rank(name))
        .max_by_key(|other| version_rank(other));
    let advice = better.map(|better| format!("; use {group}/{better} {kind}")).unwrap_or_default();
    format!("{group}/{name} {kind} is deprecated{advice}")
}

impl CrdVersion {
    fn parse(version: &Value) -> Result<Self, CrdError> {
        let name = text(version, "name").to_owned();
        // Without a schema everything but the metadata is unknown.
        let unknown = serde_json::json!({"type": "object"});
        let schema_json = schema_json(version).unwrap_or(&unknown);
        let schema =
            compile(schema_json).map_err(|source| CrdError::Schema { version: name.clone(), source })?;
        let subresources = present(version, "subresources");
        let scale =
            subresources.and_then(|subresources| present(subresources, "scale")).map(|scale| ScalePaths {
                spec_replicas: text(scale, "specReplicasPath").to_owned(),
                status_replicas: text(scale, "statusReplicasPath").to_owned(),
                label_selector: Some(text(scale, "labelSelectorPath"))
                    .filter(|path| !path.is_empty())
                    .map(str::to_owned),
            });
        Ok(Self {
            served: flag(version, "served"),
            storage: flag(version, "storage"),
            deprecated: None,
            schema,
            schema_json: schema_json.to_string().into(),
            status: subresources.is_some_and(|subresources| present(subresources, "status").is_some()),
            scale,
            columns: list(version, "additionalPrinterColumns").iter().map(Column::parse).collect(),
            selectable_fields: list(version, "selectableFields")
                .iter()
                .map(|field| text(field, "jsonPath").to_owned())
                .collect(),
            name,
        })
    }
}

impl Column {
    fn parse(column: &Value) -> Self {
        let priority = column.get("priority").and_then(Value::as_i64).unwrap_or_default();
        Self {
            name: text(column, "name").to_owned(),
            kind: text(column, "type").to_owned(),
            format: text(column, "format").to_owned(),
            description: text(column, "description").to_owned(),
            priority: i32::try_from(priority).unwrap_or_default(),
            json_path: text(column, "jsonPath").to_owned(),
        }
    }
}

impl Conversion {
    fn parse(spec: &Value) -> Self {
        let conversion = present(spec, "conversion");
        let webhook = conversion
            .filter(|conversion| text(conversion, "strategy") == "Webhook")
            .and_then(|conversion| present(conversion, "webhook"));
        match webhook {
            None => Self::None,
            Some(webhook) => Self::Webhook {
                client_config: webhook.get("clientConfig").cloned().unwrap_or_default(),
                review_versions: texts(webhook, "conversionReviewVersions").map(str::to_owned).collect(),
            },
        }
    }
}
