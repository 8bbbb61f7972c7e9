//! Names for completions: quick, and nothing where there is no server.

use std::time::Duration;

use kube::api::ApiResource;

use crate::{
    api::{self, Which},
    hooks::Hooks,
    object::Object,
    session::{Global, Session},
};

/// Whoever presses Tab waits for no server longer than this.
const PATIENCE: Duration = Duration::from_millis(1500);

/// What names are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Named {
    pub clusters: bool,
    pub machines: bool,
}

/// Names of the namespace, sorted; none if they cannot be had at once.
pub async fn names(global: &Global, named: Named) -> Vec<String> {
    let asked = async {
        let session = global.connect(&Hooks::default()).await.ok()?;
        let clusters = of(&session, named.clusters, api::provisioning_clusters());
        let machines = of(&session, named.machines, api::capi("Machine"));
        let (clusters, machines) = futures::future::join(clusters, machines).await;
        Some([clusters, machines].concat())
    };
    let mut names = tokio::time::timeout(PATIENCE, asked).await.ok().flatten().unwrap_or_default();
    names.sort();
    names
}

async fn of(session: &Session, wanted: bool, resource: ApiResource) -> Vec<String> {
    if !wanted {
        return Vec::new();
    }
    let found = api::list(&session.client, &resource, Some(&session.namespace), Which::All).await;
    found.unwrap_or_default().iter().map(Object::name).map(str::to_owned).collect()
}
