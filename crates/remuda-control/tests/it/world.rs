//! An API server that can be switched off, and a kind to control.

use std::{collections::BTreeMap, ops::Deref, sync::Arc, time::Duration};

use kube::{Api, CustomResource, core::ApiResource};
use remuda_control::Ctx;
use remuda_testkit::definition;
pub(crate) use remuda_testkit::until;
use serde::{Deserialize, Serialize};

/// What should happen happens by then.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Something with a spec, a status and no meaning.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "test.remuda",
    version = "v1",
    kind = "Thing",
    plural = "things",
    namespaced,
    status = "ThingStatus",
    schema = "disabled"
)]
pub(crate) struct ThingSpec {
    #[serde(default)]
    pub(crate) size: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uses: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ThingStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seen: Option<i64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) notes: BTreeMap<String, String>,
}

pub(crate) fn thing(name: &str) -> Thing {
    let mut thing = Thing::new(name, ThingSpec::default());
    thing.metadata.namespace = Some("default".to_owned());
    thing
}

/// A server with the kind of this module.
#[derive(Clone)]
pub(crate) struct World(remuda_testkit::World);

impl Deref for World {
    type Target = remuda_testkit::World;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        let world = Self::bare().await;
        world.define_things().await;
        world
    }

    pub(crate) async fn bare() -> Self {
        Self(remuda_testkit::World::bare().await)
    }

    pub(crate) async fn define_things(&self) {
        self.define(definition(&ApiResource::erase::<Thing>(&()))).await;
    }

    pub(crate) fn ctx(&self) -> Arc<Ctx> {
        Arc::new(Ctx::new(self.client(), "remuda-test"))
    }

    pub(crate) fn things(&self) -> Api<Thing> {
        Api::namespaced(self.client(), "default")
    }
}
