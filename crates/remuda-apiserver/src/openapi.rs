//! OpenAPI and aggregated discovery: documents made when asked for, kept until what is served changes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderMap, header};
use parking_lot::Mutex;
use remuda_kinds::openapi::{self, KindDoc};
use serde_json::{Value, json};

use crate::{
    call::{Answer, Content},
    discovery,
    negotiate::wants_openapi_protobuf,
    options::Query,
    registry::{Registry, Resource, api_version},
    server::Inner,
    status::{ApiError, ApiResult},
};

/// Whether the client has this already.
pub(crate) fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|known| known.trim() == etag)
}

/// A finished document.
#[derive(Clone)]
struct Document {
    bytes: Bytes,
    hash: String,
}

impl Document {
    fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let hash = content_hash(&bytes);
        Self { bytes, hash }
    }

    /// The status and body for a client that may have the document.
    fn unless_known(&self, asked: &HeaderMap, etag: &str) -> (u16, Bytes) {
        if is_known(asked, etag) { (304, Bytes::new()) } else { (200, self.bytes.clone()) }
    }
}

/// Documents and what each was made from.
#[derive(Default)]
pub(crate) struct OpenApi {
    kept: Mutex<HashMap<String, (u64, Document)>>,
}

/// More documents than this many group-versions have are left over from CRDs that went.
const MAX_KEPT: usize = 2000;

impl OpenApi {
    /// The document of this key, made once for what the stamp stands for.
    fn get(&self, stamp: u64, key: &str, make: impl FnOnce() -> Bytes) -> Document {
        if let Some((made_from, document)) = self.kept.lock().get(key)
            && *made_from == stamp
        {
            return document.clone();
        }
        let document = Document::new(make());
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(key.to_owned(), (stamp, document.clone()));
        document
    }

    /// Aggregated discovery and its entity tag.
    pub(crate) fn aggregated(&self, registry: &Registry, core: bool, version: &str) -> (Bytes, String) {
        let key = format!("discovery/{core}/{version}");
        let document = self.get(registry.generation, &key, || {
            discovery::aggregated(registry, core, version).to_string().into()
        });
        (document.bytes, format!("\"{}\"", document.hash))
    }
}

/// FNV-1a over the content, twice with different seeds: a cache key, not a signature.
fn content_hash(bytes: &[u8]) -> String {
    let mut hashes = [0xcbf2_9ce4_8422_2325_u64, 0x8422_2325_cbf2_9ce4];
    for byte in bytes {
        for hash in &mut hashes {
            *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hashes[1] = hashes[1].rotate_left(5);
    }
    format!("{:016X}{:016X}", hashes[0], hashes[1])
}

fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{}", api_version(group, version)) }
}

fn kind_doc(resource: &Resource) -> KindDoc {
    KindDoc {
        group: resource.group.clone(),
        version: resource.version.clone(),
        kind: resource.kind.clone(),
        list_kind: resource.list_kind.clone(),
        plural: resource.plural.clone(),
        namespaced: resource.namespaced,
        verbs: resource.verbs.clone(),
        subresources: resource
            .subresources
            .iter()
            .map(|sub| openapi::SubresourceDoc {
                name: sub.name.clone(),
                group: sub.group.clone(),
                version: sub.version.clone(),
                kind: sub.kind.clone(),
                verbs: sub.verbs.clone(),
            })
            .collect(),
        schema: match resource.custom() {
            None => openapi::Source::BuiltIn,
            Some(custom) => {
                let schema = &custom.crd.view.versions[custom.version].schema_json;
                openapi::Source::Custom(serde_json::from_str(schema).ok().map(Arc::new))
            }
        },
        selectable_fields: resource
            .custom()
            .map(|custom| custom.crd.view.versions[custom.version].selectable_fields.clone())
            .unwrap_or_default(),
    }
}

/// What a type and its fields mean, by the type's OpenAPI name.
pub type Descriptions = BTreeMap<String, TypeDescription>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeDescription {
    pub text: String,
    pub fields: BTreeMap<String, String>,
}

impl Inner {
    /// Adds descriptions to schemas that have none of their own.
    fn describe(&self, schemas: &mut Value) {
        let Some(descriptions) = self.config.descriptions else { return };
        let descriptions = descriptions();
        for (name, schema) in schemas.as_object_mut().into_iter().flatten() {
            let Some(known) = descriptions.get(name) else { continue };
            if schema["description"].is_null() && !known.text.is_empty() {
                schema["description"] = known.text.as_str().into();
            }
            for (field, property) in schema["properties"].as_object_mut().into_iter().flatten() {
                if let (Some(text), Some(Value::Null) | None) =
                    (known.fields.get(field), property.get("description"))
                    && property.is_object()
                {
                    property["description"] = text.as_str().into();
                }
            }
        }
    }

    fn v3_document(&self, registry: &Arc<Registry>, group: &str, version: &str) -> Option<Document> {
        let found = registry.groups.iter().find(|known| known.name == group)?;
        let found = found.versions.iter().find(|known| known.version == version)?;
        Some(self.openapi.get(found.stamp, &group_path(group, version), || {
            let kinds: Vec<KindDoc> = found.resources.iter().map(|resource| kind_doc(resource)).collect();
            let mut document = openapi::v3_document(group, version, &kinds);
            self.describe(&mut document["components"]["schemas"]);
            document.to_string().into()
        }))
    }

    pub(crate) fn openapi_index(&self) -> Value {
        let registry = self.registry.load_full();
        let mut paths = serde_json::Map::new();
        for group in &registry.groups {
            for version in &group.versions {
                let path = group_path(&group.name, &version.version);
                if let Some(document) = self.v3_document(&registry, &group.name, &version.version) {
                    let url = format!("/openapi/v3/{path}?hash={}", document.hash);
                    paths.insert(path, json!({"serverRelativeURL": url}));
                }
            }
        }
        json!({"paths": paths})
    }

    pub(crate) fn openapi_v3(&self, path: &str, query: &Query, asked: &HeaderMap) -> ApiResult<Answer> {
        let registry = self.registry.load_full();
        let segments: Vec<&str> = path.split('/').collect();
        let document = match segments.as_slice() {
            ["api", version] => self.v3_document(&registry, "", version),
            ["apis", group, version] => self.v3_document(&registry, group, version),
            _ => None,
        };
        let document = document.ok_or_else(ApiError::unknown_resource)?;
        let etag = format!("\"{}\"", document.hash);
        let (code, bytes) = document.unless_known(asked, &etag);
        let etag = (header::ETAG, etag);
        let content_type = "application/json".to_owned();
        match query.get("hash") {
            Some(hash) if hash != document.hash => {
                let location = format!("/openapi/v3/{path}?hash={}", document.hash);
                let headers = vec![(header::LOCATION, location)];
                Ok(Answer {
                    code: 301,
                    content: Content::Tagged { bytes: Bytes::new(), content_type, headers },
                })
            }
            Some(_) => {
                let next_year = self.now() + jiff::SignedDuration::from_hours(365 * 24);
                let expires = next_year.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
                let headers = vec![
                    etag,
                    (header::CACHE_CONTROL, "public, immutable".to_owned()),
                    (header::EXPIRES, expires),
                    (header::VARY, "Accept".to_owned()),
                ];
                Ok(Answer { code, content: Content::Tagged { bytes, content_type, headers } })
            }
            None => {
                Ok(Answer { code, content: Content::Tagged { bytes, content_type, headers: vec![etag] } })
            }
        }
    }

    pub(crate) fn openapi_v2(&self, headers: &HeaderMap) -> ApiResult<Answer> {
        let registry = self.registry.load_full();
        let whole = || {
            let kinds: Vec<KindDoc> = registry
                .groups
                .iter()
                .flat_map(|group| &group.versions)
                .flat_map(|version| &version.resources)
                .map(|resource| kind_doc(resource))
                .collect();
            let mut document =
                openapi::v2_document(&kinds, &crate::paths::git_version(self.config.version.as_deref()));
            self.describe(&mut document["definitions"]);
            document
        };
        let (document, content_type) = if wants_openapi_protobuf(headers) {
            let document = self
                .openapi
                .get(registry.generation, "v2/protobuf", || openapi::v2_protobuf(&whole()).into());
            (document, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
        } else {
            (
                self.openapi.get(registry.generation, "v2/json", || whole().to_string().into()),
                "application/json",
            )
        };
        let etag = format!("\"{}\"", document.hash);
        let (code, bytes) = document.unless_known(headers, &etag);
        let headers = vec![(header::ETAG, etag), (header::VARY, "Accept".to_owned())];
        let content_type = content_type.to_owned();
        Ok(Answer { code, content: Content::Tagged { bytes, content_type, headers } })
    }
}
