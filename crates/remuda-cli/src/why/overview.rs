//! `remuda why` without a name: everything that is not well.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;

use super::{Finding, State, decide, ended};
use crate::{
    Why, age,
    api::{self, Which},
    confirm::counted,
    failure::Failure,
    gather::{self, Depth},
    object::Object,
    output::Format,
    progress::{ClusterKey, tone},
    session::Session,
    table::{Cell, Table},
};

/// Clusters that are looked at at once; each is a dozen requests.
const PARALLEL: usize = 8;

pub(super) async fn run(session: &Session, arguments: &Why) -> Result<(), Failure> {
    let namespace = arguments.global.namespace.as_deref();
    let seen = gather::served_clusters(session, namespace).await?;
    if seen.withheld.is_some() {
        session.out.note("clusters you have no role in are not looked at");
    }
    let now = Timestamp::now();
    // Clusters of Cluster API that no provisioning Cluster owns are clusters too.
    let plain = api::list(&session.client, &api::capi("Cluster"), namespace, Which::All).await;
    let plain = plain.unwrap_or_default();
    let keys: BTreeSet<ClusterKey> = seen.objects.iter().chain(&plain).map(key).collect();
    let total = keys.len();
    let looked = stream::iter(keys).map(|key| async move {
        let evidence = gather::cluster(session, &key.namespace, &key.name, Depth::Objects).await?;
        // One that went meanwhile is neither well nor ill.
        let there = evidence.cluster.is_some() || evidence.capi.is_some();
        Ok::<_, Failure>(there.then(|| (key, decide(&evidence, now))))
    });
    let looked: Vec<_> = looked.buffer_unordered(PARALLEL).try_collect().await?;
    let mut ill: Vec<(ClusterKey, Finding)> =
        looked.into_iter().flatten().filter(|(_, finding)| !finding.is_ready()).collect();
    ill.sort_by(|(one, first), (other, second)| (first.state, one).cmp(&(second.state, other)));
    let worst = ill.iter().map(|(_, finding)| finding.state).min().unwrap_or(State::Ready);
    match arguments.output {
        Format::Json | Format::Yaml => {
            let findings: Vec<&Finding> = ill.iter().map(|(_, finding)| finding).collect();
            session.out.document(&findings, arguments.output)?;
        }
        Format::Name => ill.iter().for_each(|(key, _)| session.out.line(&path(key))),
        Format::Table | Format::Wide if ill.is_empty() => session.out.line(&well(total)),
        Format::Table | Format::Wide => {
            session.out.table(&table(&ill, now), arguments.output);
            let well = match total - ill.len() {
                0 => String::new(),
                count => format!("; {} well", counted(count, "other")),
            };
            let (key, _) = &ill[0];
            session.out.note(&format!("remuda why {} -n {} says more{well}", key.name, key.namespace));
        }
    }
    ended(worst)
}

fn key(cluster: &Object) -> ClusterKey {
    ClusterKey { namespace: cluster.namespace().to_owned(), name: cluster.name().to_owned() }
}

fn path(key: &ClusterKey) -> String {
    format!("{}/{}", key.namespace, key.name)
}

fn well(total: usize) -> String {
    match total {
        0 => "there are no clusters".to_owned(),
        1 => "the one cluster is well".to_owned(),
        total => format!("all {total} clusters are well"),
    }
}

fn table(ill: &[(ClusterKey, Finding)], now: Timestamp) -> Table {
    let mut table = Table::new(["CLUSTER", "STATE", "FOR", "WHY"]);
    for (key, finding) in ill {
        let state = match (finding.state, finding.deleting) {
            (_, true) => "deleting",
            (State::Blocked, _) => "blocked",
            _ => "waiting",
        };
        table.row(vec![
            path(key).into(),
            Cell::toned(state, tone(finding.state)),
            age::ago(finding.since, now).into(),
            finding.summary.as_str().into(),
        ]);
    }
    table
}
