//! The types of all built-in kinds, read once from `data/types.txt`.
//!
//! Everything else in this crate is driven by this table: schema trees, JSON and protobuf
//! decoding and the OpenAPI documents. The file explains its own format.

use std::{collections::HashMap, sync::LazyLock};

use remuda_schema::{ListType, PatchStrategy};
use serde_json::Value;

static SOURCE: &str = include_str!("../data/types.txt");

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(SOURCE));

/// The table, parsed on first use.
pub fn table() -> &'static Table {
    &TABLE
}

/// Index of a type in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TypeId(u16);

impl TypeId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Type of a field or of the items of a list or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ty {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// `FieldsV1` of managed fields.
    Fields,
    /// `RawExtension`.
    Raw,
    /// Any JSON value.
    Json,
    /// A list of strings that protobuf wraps in a message.
    Strings,
    SchemaOrBool,
    SchemaOrArray,
    SchemaOrStrings,
    Message(TypeId),
    List(Box<Ty>),
    Map(Box<Ty>),
}

/// One field of a type.
#[derive(Debug)]
pub struct Field {
    /// JSON name; `~` for a type whose fields appear in the parent.
    pub name: &'static str,
    /// Protobuf field number.
    pub number: u32,
    pub ty: Ty,
    pub inline: bool,
    pub required: bool,
    /// Optional by pointer: a zero value differs from an absent one.
    pub pointer: bool,
    /// Written even when empty.
    pub keep: bool,
    /// The list type as declared; `None` when upstream says nothing (treated as atomic).
    pub list_type: Option<ListType>,
    pub atomic_map: bool,
    pub patch: PatchStrategy,
    pub has_patch: bool,
    pub enumeration: Vec<String>,
    pub items_enumeration: Vec<String>,
    pub default: Option<Value>,
}

/// One message type.
#[derive(Debug)]
pub struct TypeDef {
    pub id: TypeId,
    /// Name without package, e.g. `PodSpec`.
    pub name: &'static str,
    /// e.g. `core/v1`.
    pub package: &'static str,
    /// e.g. `io.k8s.api.core.v1`.
    pub openapi_package: &'static str,
    /// Applied as a whole (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Carries `apiVersion` and `kind`.
    pub has_kind: bool,
    /// Fields in protobuf order.
    pub fields: Vec<Field>,
    /// JSON names with inlined types flattened, sorted: owner of the field and its position there.
    json: Vec<(&'static str, TypeId, u16)>,
}

impl TypeDef {
    /// Name of the schema in OpenAPI documents, e.g. `io.k8s.api.core.v1.PodSpec`.
    pub fn openapi_name(&self) -> String {
        format!("{}.{}", self.openapi_package, self.name)
    }

    /// The field with this JSON name, also when it lives in an inlined type.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        let at = self.json.binary_search_by(|(candidate, ..)| (*candidate).cmp(name)).ok()?;
        let (_, owner, index) = self.json[at];
        table().get(owner).fields.get(usize::from(index))
    }

    /// All fields as JSON has them (inlined types flattened), sorted by name.
    pub fn json_fields(&self) -> impl Iterator<Item = &'static Field> + '_ {
        self.json.iter().map(|(_, owner, index)| &table().get(*owner).fields[usize::from(*index)])
    }

    /// The field with this protobuf number.
    pub fn by_number(&self, number: u32) -> Option<&Field> {
        let at = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(at)
    }
}

/// All types of the built-in kinds.
#[derive(Debug)]
pub struct Table {
    types: Vec<TypeDef>,
    by_name: HashMap<(&'static str, &'static str), TypeId>,
}

impl Table {
    pub fn get(&self, id: TypeId) -> &TypeDef {
        &self.types[id.index()]
    }

    /// A type by package (`core/v1`) and name (`PodSpec`).
    pub fn find(&self, package: &str, name: &str) -> Option<&TypeDef> {
        self.by_name.get(&(package, name)).map(|id| self.get(*id))
    }

    pub fn types(&self) -> &[TypeDef] {
        &self.types
    }

    /// Reads the file. It is part of the program, so a mistake in it is a bug that the first test shows.
    fn parse(source: &'static str) -> Self {
        let mut by_name = HashMap::new();
        let mut types: Vec<TypeDef> = Vec::new();
        let (mut package, mut openapi_package) = ("", "");
        for line in source.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("package") => {
                    package = words.next().expect("package has a name");
                    openapi_package = words.next().expect("package has a prefix");
                }
                Some("type") => {
                    let name = words.next().expect("type has a name");
                    let id = TypeId(u16::try_from(types.len()).expect("fewer than 65536 types"));
                    let (mut atomic, mut has_kind) = (false, false);
                    for word in words {
                        match word {
                            "atomic" => atomic = true,
                            "kind" => has_kind = true,
                            other => panic!("unknown type fact {other}"),
                        }
                    }
                    by_name.insert((package, name), id);
                    let (fields, json) = (Vec::new(), Vec::new());
                    types.push(TypeDef {
                        id,
                        name,
                        package,
                        openapi_package,
                        atomic,
                        has_kind,
                        fields,
                        json,
                    });
                }
                _ => {}
            }
        }
        let mut table = Self { types, by_name };
        table.parse_fields(source);
        table.flatten();
        table
    }

    fn parse_fields(&mut self, source: &'static str) {
        let mut current = None;
        for line in source.lines() {
            if line.starts_with("type ") {
                current = Some(current.map_or(0, |index: usize| index + 1));
            } else if let (Some(index), Some(text)) = (current, line.strip_prefix(' ')) {
                let field = self.parse_field(text, self.types[index].package);
                self.types[index].fields.push(field);
            }
        }
    }

    fn parse_field(&self, text: &'static str, package: &'static str) -> Field {
        let mut words = text.split(' ');
        let number = words.next().and_then(|word| word.parse().ok()).expect("field has a number");
        let name = words.next().expect("field has a name");
        let ty = self.parse_ty(words.next().expect("field has a type"), package);
        let mut field = Field {
            name,
            number,
            ty,
            inline: name == "~",
            required: false,
            pointer: false,
            keep: false,
            list_type: None,
            atomic_map: false,
            patch: PatchStrategy::default(),
            has_patch: false,
            enumeration: Vec::new(),
            items_enumeration: Vec::new(),
            default: None,
        };
        for word in words {
            match word.split_once('=') {
                None => match word {
                    "req" => field.required = true,
                    "ptr" => field.pointer = true,
                    "keep" => field.keep = true,
                    other => panic!("unknown fact {other}"),
                },
                Some(("list", kind)) => field.list_type = Some(list_type(kind)),
                Some(("map", kind)) => field.atomic_map = kind == "atomic",
                Some(("patch", strategy)) => {
                    field.patch = patch_strategy(strategy);
                    field.has_patch = true;
                }
                Some(("enum", values)) => field.enumeration = enumeration(values),
                Some(("items-enum", values)) => field.items_enumeration = enumeration(values),
                Some(("default", json)) => {
                    field.default = Some(serde_json::from_str(json).expect("default is JSON"));
                }
                Some((other, _)) => panic!("unknown fact {other}"),
            }
        }
        field
    }

    fn parse_ty(&self, text: &'static str, package: &'static str) -> Ty {
        if let Some(item) = text.strip_prefix("[]") {
            return Ty::List(Box::new(self.parse_ty(item, package)));
        }
        if let Some(item) = text.strip_prefix("{}") {
            return Ty::Map(Box::new(self.parse_ty(item, package)));
        }
        match text {
            "string" => Ty::String,
            "bool" => Ty::Bool,
            "int32" => Ty::Int32,
            "int64" => Ty::Int64,
            "double" => Ty::Double,
            "bytes" => Ty::Bytes,
            "time" => Ty::Time,
            "microtime" => Ty::MicroTime,
            "quantity" => Ty::Quantity,
            "intorstring" => Ty::IntOrString,
            "fields" => Ty::Fields,
            "raw" => Ty::Raw,
            "json" => Ty::Json,
            "strings" => Ty::Strings,
            "schemaorbool" => Ty::SchemaOrBool,
            "schemaorarray" => Ty::SchemaOrArray,
            "schemaorstrings" => Ty::SchemaOrStrings,
            name => {
                let (package, name) = name.split_once('.').unwrap_or((package, name));
                Ty::Message(*self.by_name.get(&(package, name)).expect("referenced type exists"))
            }
        }
    }

    fn flatten(&mut self) {
        for index in 0..self.types.len() {
            let mut json = Vec::new();
            self.collect(self.types[index].id, &mut json);
            json.sort_unstable_by_key(|(name, ..)| *name);
            self.types[index].json = json;
        }
    }

    fn collect(&self, id: TypeId, into: &mut Vec<(&'static str, TypeId, u16)>) {
        for (position, field) in self.get(id).fields.iter().enumerate() {
            match &field.ty {
                Ty::Message(inner) if field.inline => self.collect(*inner, into),
                _ => into.push((field.name, id, u16::try_from(position).expect("few fields per type"))),
            }
        }
    }
}

fn list_type(text: &str) -> ListType {
    match text.split_once(':') {
        Some((_, keys)) => ListType::Map(keys.split(',').map(str::to_owned).collect()),
        None if text == "set" => ListType::Set,
        None => ListType::Atomic,
    }
}

fn patch_strategy(text: &str) -> PatchStrategy {
    let (strategies, key) = match text.split_once(':') {
        Some((strategies, key)) => (strategies, Some(key.to_owned())),
        None => (text, None),
    };
    let has = |name: &str| strategies.split(',').any(|strategy| strategy == name);
    PatchStrategy {
        merge: has("merge"),
        retain_keys: has("retainKeys"),
        replace: has("replace"),
        merge_key: key,
    }
}

fn enumeration(text: &str) -> Vec<String> {
    text.split(',').map(|value| value.replace('+', " ")).collect()
}

/// Package of the table that holds a group-version's types.
pub(crate) fn package_of(group: &str, version: &str) -> Option<&'static str> {
    if (group, version) == ("autoscaling", "v2") {
        return Some("autoscaling/v2");
    }
    if version != "v1" {
        return None;
    }
    let package = match group {
        "" => "core/v1",
        "admissionregistration.k8s.io" => "admissionregistration/v1",
        "apiextensions.k8s.io" => "apiextensions/v1",
        "apiregistration.k8s.io" => "apiregistration/v1",
        "apps" => "apps/v1",
        "authentication.k8s.io" => "authentication/v1",
        "authorization.k8s.io" => "authorization/v1",
        "autoscaling" => "autoscaling/v1",
        "batch" => "batch/v1",
        "certificates.k8s.io" => "certificates/v1",
        "coordination.k8s.io" => "coordination/v1",
        "discovery.k8s.io" => "discovery/v1",
        "events.k8s.io" => "events/v1",
        "meta.k8s.io" => "meta/v1",
        "networking.k8s.io" => "networking/v1",
        "node.k8s.io" => "node/v1",
        "policy" => "policy/v1",
        "rbac.authorization.k8s.io" => "rbac/v1",
        "scheduling.k8s.io" => "scheduling/v1",
        "storage.k8s.io" => "storage/v1",
        _ => return None,
    };
    Some(package)
}

/// Kinds of `meta/v1` that every group-version carries, so their group in a body says nothing.
const EVERYWHERE: [&str; 7] = [
    "DeleteOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
    "GetOptions",
    "ListOptions",
    "WatchEvent",
];

/// The type of a built-in kind. Options kinds are found under any group, `Status` also under `v1`.
pub fn type_of(group: &str, version: &str, kind: &str) -> Option<&'static TypeDef> {
    if EVERYWHERE.contains(&kind) || (kind == "Status" && group.is_empty() && version == "v1") {
        return table().find("meta/v1", kind);
    }
    table().find(package_of(group, version)?, kind).filter(|ty| ty.has_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_parses_and_has_the_expected_shape() {
        let table = table();
        assert!(table.types().len() > 300, "{}", table.types().len());
        let pod = type_of("", "v1", "Pod").unwrap();
        assert!(pod.has_kind);
        assert_eq!(pod.openapi_name(), "io.k8s.api.core.v1.Pod");
        assert_eq!(pod.by_number(2).unwrap().name, "spec");
        let volume = table.find("core/v1", "Volume").unwrap();
        assert_eq!(volume.field("secret").unwrap().number, 6);
        assert!(volume.field("nope").is_none());
    }

    #[test]
    fn field_numbers_are_sorted_and_unique() {
        for ty in table().types() {
            assert!(ty.fields.windows(2).all(|pair| pair[0].number < pair[1].number), "{}", ty.name);
            assert!(ty.json.windows(2).all(|pair| pair[0].0 < pair[1].0), "{}", ty.name);
        }
    }

    #[test]
    fn types_that_are_no_kinds_are_not_found_as_kinds() {
        assert!(type_of("", "v1", "PodSpec").is_none());
        assert!(type_of("", "v2", "Pod").is_none());
        assert!(type_of("apps", "v1", "DeleteOptions").is_some());
    }
}
