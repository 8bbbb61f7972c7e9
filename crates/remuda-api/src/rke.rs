//! `rke.cattle.io/v1`: the providers of K3s and RKE2 clusters, and what their configuration is made of.

mod bootstrap;
mod cluster;
pub mod conditions;
mod config;
mod control_plane;
mod machine;
mod snapshot;

pub use bootstrap::*;
pub use cluster::*;
pub use config::*;
pub use control_plane::*;
pub use machine::*;
pub use snapshot::*;

use crate::lenient;

lenient! {
    /// A condition of a kind of Rancher's, which also says when it was written last.
    pub struct Condition {
        /// Type of the condition.
        #[serde(rename = "type")]
        pub kind: String,
        /// True, False or Unknown.
        pub status: String,
        /// When it was written last.
        pub last_update_time: String,
        /// When the status changed last.
        pub last_transition_time: String,
        /// Why, in one word.
        pub reason: String,
        /// Why, for people.
        pub message: String,
    }
}

#[cfg(test)]
mod tests;
