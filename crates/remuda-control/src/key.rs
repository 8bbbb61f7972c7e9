//! Names of objects and kinds.

use std::{borrow::Cow, fmt, sync::Arc};

use kube::{
    Resource,
    core::{ApiResource, GroupVersionKind, ObjectMeta},
};

/// Where an object is, within its kind. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// `None` for objects of cluster-wide kinds.
    pub namespace: Option<Arc<str>>,
    pub name: Arc<str>,
}

impl ObjectKey {
    pub fn namespaced(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self { namespace: Some(namespace.as_ref().into()), name: name.as_ref().into() }
    }

    pub fn cluster_wide(name: impl AsRef<str>) -> Self {
        Self { namespace: None, name: name.as_ref().into() }
    }

    /// An object without a name, which the API never returns, gets the empty one.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.as_deref().filter(|namespace| !namespace.is_empty()).map(Arc::from),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }

    /// Another object of the same namespace.
    pub fn sibling(&self, name: impl AsRef<str>) -> Self {
        Self { namespace: self.namespace.clone(), name: name.as_ref().into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A kind as the API names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
}

impl Kind {
    pub fn of<K: Resource>(dynamic: &K::DynamicType) -> Self {
        Self {
            group: K::group(dynamic).into_owned(),
            version: K::version(dynamic).into_owned(),
            kind: K::kind(dynamic).into_owned(),
            plural: K::plural(dynamic).into_owned(),
        }
    }

    pub fn api_version(&self) -> Cow<'_, str> {
        match self.group.as_str() {
            "" => Cow::Borrowed(&self.version),
            group => Cow::Owned(format!("{group}/{}", self.version)),
        }
    }

    pub fn api_resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        ApiResource::from_gvk_with_plural(&kind, &self.plural)
    }

    /// The name its CustomResourceDefinition has, if there is one.
    pub fn crd_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}
