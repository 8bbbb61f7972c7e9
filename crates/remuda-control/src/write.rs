//! Writes that controllers share. Each writes only what differs: a write wakes every watcher.

mod children;
pub mod conditions;
mod create;
mod delete;
mod evict;
mod finalize;
mod owners;
mod status;

use std::fmt;

use kube::Resource;

pub use self::{
    children::{Applied, ApplySet, Child, Need, delete_exactly, dynamic_api},
    create::get_or_create,
    delete::delete,
    evict::evict,
    finalize::{Finalizer, ensure_finalizer, finalize, remove_finalizer},
    owners::{controller_of, is_controlled_by, owner_reference, set_controller_reference},
    status::{apply_status, difference, merge_status, patch_status, write_status},
};
use crate::key::{Kind, ObjectKey};

/// An object in an error's text: `machines.cluster.x-k8s.io demo/m-1`.
struct Named(Kind, ObjectKey);

impl Named {
    fn of<K: Resource>(object: &K, dynamic: &K::DynamicType) -> Self {
        Self(Kind::of::<K>(dynamic), ObjectKey::of(object.meta()))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}
