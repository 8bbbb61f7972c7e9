//! The list API: any kind as rows with state, filtered, sorted, paged, counted and subscribed to on the server.
//!
//! It speaks as Rancher's Steve does (`/v1`, and `/k8s/clusters/<id>/v1` for other clusters). Rows of the management API
//! come from indexes that all callers share ([`ListApi`]); what a caller sees of them is decided for each query by the
//! API's own policy. Single objects and writes go through the Kubernetes API as the caller.
//!
//! Decisions are pure modules: `filter`, `order`, `query`, `state`, `relationship`, `rights`, `show`, `list`. The door,
//! the indexes and the sockets are shells around them.

mod actions;
mod answer;
mod api;
mod cluster;
mod counts;
mod discovery;
pub mod doors;
mod ext;
mod filter;
#[cfg(test)]
mod fuzz;
mod index;
mod indexes;
mod kind;
mod list;
mod older;
mod order;
mod parts;
mod path;
mod preferences;
mod query;
mod relation;
mod relationship;
mod rights;
mod row;
mod schema;
mod schema_definition;
mod settings;
mod show;
mod state;
mod subscribe;
mod table;
mod visit;
mod write;

pub use self::{
    actions::{CredentialChecks, DrainInput, NodeActions, Verdict},
    api::{ListApi, ListApiOptions},
    parts::{PartOf, PartOfCluster},
};
