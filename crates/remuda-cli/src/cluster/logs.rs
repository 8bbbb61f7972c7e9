//! `remuda cluster logs`: what happened while a cluster was made.

use remuda_names::rancher::name;
use serde_json::Value;

use crate::{
    api,
    evidence::tail,
    failure::{Code, Failure},
    follow::{Follower, pause},
    gather,
    session::Session,
};

/// Where a ConfigMap keeps the log.
const KEY: &str = "log";

pub(super) async fn run(
    session: &Session,
    cluster: &str,
    follow: bool,
    lines: Option<usize>,
) -> Result<(), Failure> {
    let managed = loop {
        let found = gather::existing(session, &session.namespace, cluster).await?;
        match found.text("/status/clusterName") {
            "" if follow => pause().await,
            "" => {
                let failure = Failure::new(Code::NotFound, format!("cluster {cluster} has no log yet"));
                return Err(failure.hint(format!("remuda why {cluster}")));
            }
            managed => break managed.to_owned(),
        }
    };
    let maps = api::core("ConfigMap", "configmaps");
    let mut follower = Follower::default();
    let mut first = true;
    loop {
        let map = api::get(&session.client, &maps, Some(&managed), name::PROVISIONING_LOG).await?;
        let log = map.as_ref().and_then(|map| map.0.get("data")?.get(KEY)).and_then(Value::as_str);
        let new = follower.added(log.unwrap_or_default());
        match lines.filter(|_| first) {
            Some(lines) => session.out.line(&tail(&new, lines)),
            None => session.out.text(&new),
        }
        if !follow {
            return Ok(());
        }
        first = false;
        pause().await;
    }
}
