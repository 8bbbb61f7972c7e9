//! Static types: what variables are declared as and what the checker infers.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::library::authz::AccessType;

/// The type of a variable, a field or an expression.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Type {
    /// Anything; checked when evaluated. int-or-string fields and preserved data are of this type.
    #[default]
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    /// In JSON: a base64 string.
    Bytes,
    /// In JSON: a date or a date-time string.
    Timestamp,
    /// In JSON: a string in Go's syntax.
    Duration,
    Type,
    List(Arc<ListType>),
    Map(Arc<MapType>),
    Object(Arc<ObjectType>),
    Optional(Arc<Type>),
    Quantity,
    Url,
    Ip,
    Cidr,
    Semver,
    NamedFormat,
    /// A step of a check of what may be done.
    Access(AccessType),
    /// What an expression with a reported error has, so that one mistake is reported once.
    #[doc(hidden)]
    Error,
    /// A type variable of the checker.
    #[doc(hidden)]
    Param(u32),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListType {
    pub item: Type,
    pub semantics: ListSemantics,
}

/// How a list compares and what `+` does with it (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Default)]
pub enum ListSemantics {
    #[default]
    Ordered,
    /// Order does not matter; `+` is a union.
    Set,
    /// Items are identified by these JSON fields; order does not matter; `+` merges by key.
    Map(Vec<String>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct MapType {
    pub key: Type,
    pub value: Type,
}

/// An object with declared fields. Two object types are the same when their names are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ObjectType {
    pub name: String,
    /// By CEL name, as [`crate::escape`] makes it.
    pub fields: BTreeMap<String, Field>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The name in JSON.
    pub json: String,
    pub ty: Type,
}

impl ObjectType {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), fields: BTreeMap::new() }
    }

    /// Adds a field by its JSON name. A name no expression could spell is left out, as it is
    /// in Kubernetes.
    pub fn field(mut self, json: &str, ty: Type) -> Self {
        if let Some(name) = crate::escape::escape(json) {
            self.fields.insert(name, Field { json: json.to_owned(), ty });
        }
        self
    }
}

impl Type {
    pub fn list(item: Type) -> Self {
        Type::List(Arc::new(ListType { item, semantics: ListSemantics::Ordered }))
    }

    pub fn list_with(item: Type, semantics: ListSemantics) -> Self {
        Type::List(Arc::new(ListType { item, semantics }))
    }

    pub fn map(key: Type, value: Type) -> Self {
        Type::Map(Arc::new(MapType { key, value }))
    }

    pub fn object(object: ObjectType) -> Self {
        Type::Object(Arc::new(object))
    }

    pub fn optional(inner: Type) -> Self {
        Type::Optional(Arc::new(inner))
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Dyn => "dyn",
            Type::Null => "null",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Timestamp => "timestamp",
            Type::Duration => "duration",
            Type::Type => "type",
            Type::Quantity => "kubernetes.Quantity",
            Type::Url => "kubernetes.URL",
            Type::Ip => "net.IP",
            Type::Cidr => "net.CIDR",
            Type::Semver => "kubernetes.Semver",
            Type::NamedFormat => "kubernetes.NamedFormat",
            Type::Access(ty) => ty.name(),
            Type::Error => "!error!",
            Type::Object(object) => &object.name,
            Type::List(list) => return write!(f, "list({})", list.item),
            Type::Map(map) => return write!(f, "map({}, {})", map.key, map.value),
            Type::Optional(inner) => return write!(f, "optional_type({inner})"),
            Type::Param(id) => return write!(f, "_var{id}"),
        })
    }
}
