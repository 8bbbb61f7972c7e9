//! `remuda cluster logs`: what happened while a cluster was made.

use std::time::Duration;

use remuda_names::rancher::name;
use serde_json::Value;

use crate::{
    api,
    failure::{Code, Failure},
    gather,
    session::Session,
    why,
};

/// Where a ConfigMap keeps the log.
const KEY: &str = "log";

pub(super) async fn run(
    session: &Session,
    cluster: &str,
    follow: bool,
    tail: Option<usize>,
) -> Result<(), Failure> {
    let managed = loop {
        let found = gather::existing(session, &session.namespace, cluster).await?;
        match found.text("/status/clusterName") {
            "" if follow => pause().await?,
            "" => {
                let failure = Failure::new(Code::NotFound, format!("cluster {cluster} has no log yet"));
                return Err(failure.hint(format!("remuda why {cluster}")));
            }
            managed => break managed.to_owned(),
        }
    };
    let maps = api::core("ConfigMap", "configmaps");
    let mut last: Option<String> = None;
    loop {
        let map = api::get(&session.client, &maps, Some(&managed), name::PROVISIONING_LOG).await?;
        let log = map
            .as_ref()
            .and_then(|map| map.0.get("data")?.get(KEY))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let new = match (&last, tail) {
            (None, Some(lines)) => why::tail(log, lines),
            (None, None) => log.trim_end().to_owned(),
            (Some(last), _) => added(last, log).join("\n"),
        };
        if !new.is_empty() {
            session.out.line(&new);
        }
        if !follow {
            return Ok(());
        }
        last = Some(log.trim_end().lines().next_back().unwrap_or_default().to_owned());
        pause().await?;
    }
}

async fn pause() -> Result<(), Failure> {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(1)) => Ok(()),
        _ = tokio::signal::ctrl_c() => Err(Failure::silent(Code::Interrupted)),
    }
}

/// Lines after the last one that was printed. Old lines leave the log, so it is found by what it says.
fn added<'a>(last: &str, log: &'a str) -> Vec<&'a str> {
    let lines: Vec<&str> = log.trim_end().lines().collect();
    match lines.iter().rposition(|line| *line == last) {
        Some(place) => lines[place + 1..].to_vec(),
        None => lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_lines_are_printed() {
        assert_eq!(added("b", "a\nb\nc\nd\n"), ["c", "d"]);
        assert_eq!(added("b", "a\nb\n"), Vec::<&str>::new());
        assert_eq!(added("gone", "x\ny"), ["x", "y"]);
        assert_eq!(added("", ""), Vec::<&str>::new());
    }
}
