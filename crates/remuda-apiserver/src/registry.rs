//! What is served: built-in resources and, as they come and go, custom ones.
//!
//! A [`Registry`] is an immutable picture; a change makes a new one. Requests hold the picture
//! they started with.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use remuda_objects::columns::{ColumnSpec, CrColumns};
use remuda_schema::{CrdView, Schema, version_rank};
use remuda_store::Revision;

use crate::{convert::Converter, converted::Converted};

/// One resource in one served version.
pub(crate) struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    pub origin: Origin,
    pub schema: Option<Arc<Schema>>,
    /// `/<group or core>/<plural>/`
    pub prefix: String,
    /// `group/version`, or `v1`.
    pub api_version: String,
    /// The apiVersion objects are stored in.
    pub storage_api_version: String,
    /// Distinguishes served forms of the same stored bytes.
    pub tag: u64,
}

pub(crate) struct Subresource {
    pub name: String,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
}

pub(crate) enum Origin {
    Builtin(&'static remuda_kinds::Resource),
    Custom(Custom),
}

/// The parts of a custom resource that built-ins have in code.
pub(crate) struct Custom {
    pub crd: Arc<CrdState>,
    /// Index into `crd.view.versions`.
    pub version: usize,
    pub columns: Arc<CrColumns>,
    /// What a webhook has made of objects stored in another version.
    pub converted: Converted,
}

/// A CRD as it is served.
pub(crate) struct CrdState {
    pub name: String,
    pub uid: String,
    pub view: Arc<CrdView>,
    /// As written, to tell what changes: as text, which is a small part of a value's size.
    pub spec: Arc<str>,
    pub terminating: bool,
    /// Objects older than this may predate the schema and are defaulted and pruned when read.
    pub schema_since: Revision,
    pub converter: Converter,
    /// Ends the watches of this form when the CRD goes or changes, or the server stops.
    pub gone: tokio_util::sync::CancellationToken,
}

/// A CRD and its resources, made once and shared by all pictures that show them.
#[derive(Clone)]
pub(crate) struct Served {
    pub state: Arc<CrdState>,
    /// One per version, also of those that are not served.
    pub resources: Arc<[Arc<Resource>]>,
}

impl Served {
    pub(crate) fn new(state: CrdState) -> Self {
        let state = Arc::new(state);
        let resources = (0..state.view.versions.len()).map(|index| Arc::new(from_crd(&state, index)));
        Self { resources: resources.collect(), state }
    }

    /// The resource in the version it is stored in.
    pub(crate) fn storage(&self) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| resource.api_version == resource.storage_api_version)
    }
}

impl Resource {
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.origin, Origin::Custom(_))
    }

    pub(crate) fn custom(&self) -> Option<&Custom> {
        match &self.origin {
            Origin::Custom(custom) => Some(custom),
            Origin::Builtin(_) => None,
        }
    }

    pub(crate) fn builtin(&self) -> Option<&'static remuda_kinds::Resource> {
        match &self.origin {
            Origin::Builtin(builtin) => Some(builtin),
            Origin::Custom(_) => None,
        }
    }

    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    pub(crate) fn has_status(&self) -> bool {
        match &self.origin {
            Origin::Builtin(builtin) => builtin.has_status,
            Origin::Custom(custom) => custom.crd.view.versions[custom.version].status,
        }
    }

    pub(crate) fn has_generation(&self) -> bool {
        self.builtin().is_none_or(|builtin| builtin.has_generation)
    }

    /// PUT without a resourceVersion overwrites.
    pub(crate) fn unconditional_update(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.unconditional_update)
    }

    pub(crate) fn put_creates(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.put_creates)
    }

    /// `foos.x.io`, as errors and GroupResource texts have it.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) if self.namespaced => format!("{}{namespace}/{name}", self.prefix),
            _ => format!("{}{name}", self.prefix),
        }
    }

    /// The prefix of a collection: all of it, or one namespace.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) if self.namespaced => format!("{}{namespace}/", self.prefix),
            _ => self.prefix.clone(),
        }
    }
}

pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

pub(crate) fn storage_prefix(group: &str, plural: &str) -> String {
    format!("/{}/{plural}/", if group.is_empty() { "core" } else { group })
}

/// A served group and its versions, best first.
pub(crate) struct Group {
    pub name: String,
    pub versions: Vec<GroupVersion>,
}

pub(crate) struct GroupVersion {
    pub version: String,
    pub resources: Vec<Arc<Resource>>,
    /// Changes with what is in it: documents made from it are good as long as it stays.
    pub stamp: u64,
}

/// Built-in resources never change.
static BUILTINS: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(|| {
    remuda_kinds::resources().iter().map(|builtin| Arc::new(from_builtin(builtin))).collect()
});

static TAGS: AtomicU64 = AtomicU64::new(1);

fn next_tag() -> u64 {
    TAGS.fetch_add(1, Ordering::Relaxed)
}

/// A picture of everything served.
pub(crate) struct Registry {
    /// In order of preference: built-ins, then custom groups by name.
    pub groups: Vec<Group>,
    by_path: HashMap<(String, String, String), Arc<Resource>>,
    by_kind: HashMap<(String, String), Vec<Arc<Resource>>>,
    /// By name, established ones only.
    pub crds: BTreeMap<String, Served>,
    /// Changes with every change of what is served.
    pub generation: u64,
}

impl Registry {
    pub(crate) fn new(crds: BTreeMap<String, Served>, generation: u64) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for builtin in BUILTINS.iter() {
            add(&mut groups, builtin.clone());
        }
        let builtin_groups = groups.len();
        for crd in crds.values() {
            for (version, resource) in crd.state.view.versions.iter().zip(&*crd.resources) {
                if version.served {
                    add(&mut groups, resource.clone());
                }
            }
        }
        groups[builtin_groups..].sort_by(|a, b| a.name.cmp(&b.name));
        for group in &mut groups[builtin_groups..] {
            group.versions.sort_by_key(|version| std::cmp::Reverse(version_rank(&version.version)));
        }
        let mut by_path = HashMap::new();
        let mut by_kind: HashMap<_, Vec<Arc<Resource>>> = HashMap::new();
        for group in &mut groups {
            for version in &mut group.versions {
                for resource in &version.resources {
                    version.stamp =
                        (version.stamp.rotate_left(5) ^ resource.tag).wrapping_mul(0x0100_0000_01b3);
                    let path = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
                    by_path.insert(path, resource.clone());
                    by_kind
                        .entry((resource.group.clone(), resource.kind.clone()))
                        .or_default()
                        .push(resource.clone());
                }
            }
        }
        Self { groups, by_path, by_kind, crds, generation }
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// A resource of a kind, in the asked version if it is served, else the preferred one.
    pub(crate) fn find_kind(&self, group: &str, version: Option<&str>, kind: &str) -> Option<&Arc<Resource>> {
        let served = self.by_kind.get(&(group.to_owned(), kind.to_owned()))?;
        version
            .and_then(|version| served.iter().find(|resource| resource.version == version))
            .or_else(|| served.first())
    }

    /// A resource in its preferred version.
    pub(crate) fn preferred(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        let group = self.groups.iter().find(|known| known.name == group)?;
        group
            .versions
            .iter()
            .find_map(|version| version.resources.iter().find(|resource| resource.plural == plural))
    }

    /// Every stored resource once, in its preferred version. `events` of two groups share storage.
    pub(crate) fn stored(&self) -> Vec<Arc<Resource>> {
        let mut seen = std::collections::HashSet::new();
        let mut stored = Vec::new();
        for resource in
            self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources)
        {
            let is_virtual = resource.builtin().is_some_and(|builtin| builtin.is_virtual);
            if !is_virtual && seen.insert(resource.prefix.clone()) {
                stored.push(resource.clone());
            }
        }
        stored
    }
}

fn add(groups: &mut Vec<Group>, resource: Arc<Resource>) {
    let index = groups.iter().position(|group| group.name == resource.group).unwrap_or_else(|| {
        groups.push(Group { name: resource.group.clone(), versions: Vec::new() });
        groups.len() - 1
    });
    let versions = &mut groups[index].versions;
    match versions.iter_mut().find(|version| version.version == resource.version) {
        Some(version) => version.resources.push(resource),
        None => {
            versions.push(GroupVersion {
                version: resource.version.clone(),
                resources: vec![resource],
                stamp: 0,
            });
        }
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn from_builtin(builtin: &'static remuda_kinds::Resource) -> Resource {
    let api_version = api_version(builtin.group, builtin.version);
    // Events have one storage and two faces.
    let (prefix, storage_api_version) = if builtin.group == "events.k8s.io" {
        (storage_prefix("", "events"), "v1".to_owned())
    } else if builtin.group == remuda_objects::autoscaling::GROUP {
        // So have autoscalers: two versions.
        (storage_prefix(builtin.group, builtin.plural), format!("{}/v2", builtin.group))
    } else {
        (storage_prefix(builtin.group, builtin.plural), api_version.clone())
    };
    Resource {
        group: builtin.group.to_owned(),
        version: builtin.version.to_owned(),
        plural: builtin.plural.to_owned(),
        singular: builtin.singular.to_owned(),
        kind: builtin.kind.to_owned(),
        list_kind: format!("{}List", builtin.kind),
        namespaced: builtin.namespaced,
        short_names: strings(builtin.short_names),
        categories: strings(builtin.categories),
        verbs: strings(builtin.verbs),
        subresources: builtin
            .subresources
            .iter()
            .map(|sub| Subresource {
                name: sub.name.to_owned(),
                group: sub.group.to_owned(),
                version: sub.version.to_owned(),
                kind: sub.kind.to_owned(),
                verbs: strings(sub.verbs),
            })
            .collect(),
        origin: Origin::Builtin(builtin),
        schema: remuda_kinds::schema(builtin.group, builtin.version, builtin.kind),
        prefix,
        api_version,
        storage_api_version,
        tag: next_tag(),
    }
}

/// The verbs of a resource with everything.
pub(crate) const ALL_VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

fn from_crd(crd: &Arc<CrdState>, index: usize) -> Resource {
    let view = &crd.view;
    let version = &view.versions[index];
    let storage = view.versions.iter().find(|version| version.storage).unwrap_or(version);
    let mut subresources = Vec::new();
    let modify = strings(&["get", "patch", "update"]);
    if version.status {
        subresources.push(Subresource {
            name: "status".to_owned(),
            group: view.group.clone(),
            version: version.name.clone(),
            kind: view.kind.clone(),
            verbs: modify.clone(),
        });
    }
    if version.scale.is_some() {
        subresources.push(Subresource {
            name: "scale".to_owned(),
            group: "autoscaling".to_owned(),
            version: "v1".to_owned(),
            kind: "Scale".to_owned(),
            verbs: modify,
        });
    }
    let specs: Vec<(ColumnSpec, &str)> = version
        .columns
        .iter()
        .map(|column| {
            let spec = ColumnSpec {
                name: column.name.clone(),
                kind: column.kind.clone(),
                format: column.format.clone(),
                description: column.description.clone(),
                priority: column.priority,
            };
            (spec, column.json_path.as_str())
        })
        .collect();
    // Paths were checked when the CRD was written; a CRD from elsewhere falls back to the default columns.
    let columns = CrColumns::compile(&specs).or_else(|_| CrColumns::compile(&[]));
    let columns = columns.expect("no columns always compile");
    Resource {
        group: view.group.clone(),
        version: version.name.clone(),
        plural: view.plural.clone(),
        singular: view.singular.clone(),
        kind: view.kind.clone(),
        list_kind: view.list_kind.clone(),
        namespaced: view.namespaced,
        short_names: view.short_names.clone(),
        categories: view.categories.clone(),
        verbs: strings(ALL_VERBS),
        subresources,
        schema: Some(version.schema.clone()),
        prefix: storage_prefix(&view.group, &view.plural),
        api_version: api_version(&view.group, &version.name),
        storage_api_version: api_version(&view.group, &storage.name),
        tag: next_tag(),
        origin: Origin::Custom(Custom {
            crd: crd.clone(),
            version: index,
            columns: Arc::new(columns),
            converted: Converted::default(),
        }),
    }
}
