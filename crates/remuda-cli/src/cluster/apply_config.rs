//! `remuda cluster apply-config`: lets edits of machine configurations replace machines.

use std::time::Duration;

use clap::Args;
use remuda_names::{
    provisioning::annotation::{APPROVED_CONFIGS, CONFIG_POLICY, PENDING_CONFIG},
    rancher::label,
};
use serde_json::{Value, json};

use super::Wait;
use crate::{
    api,
    evidence::{Evidence, Pool},
    failure::{Code, Failure},
    gather::{self, Depth},
    near,
    object::Object,
    progress::Goal,
    session::Session,
};

#[derive(Args, Debug)]
pub struct ApplyConfig {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,

    /// Only for this pool; can be repeated [default: all that wait for it]
    #[arg(long = "pool", value_name = "POOL")]
    pub pools: Vec<String>,

    /// Show what would be replaced, and change nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub wait: Wait,
}

/// An edit that has not reached the machines of a pool.
#[derive(Debug, PartialEq)]
struct Edit {
    pool: String,
    config: String,
    fields: Vec<String>,
    machines: usize,
    policy: String,
    revision: String,
}

pub(super) async fn run(session: &Session, arguments: ApplyConfig) -> Result<(), Failure> {
    let (namespace, name) = (session.namespace.as_str(), arguments.name.as_str());
    gather::existing(session, namespace, name).await?;
    let evidence = gather::cluster(session, namespace, name, Depth::Objects).await?;
    let (chosen, left) = choose(&evidence, &arguments.pools)?;
    for edit in &left {
        session.out.note(&format!("pool {} is left as it is: its policy is Never", edit.pool));
    }
    if chosen.is_empty() {
        session.out.line(&format!("nothing waits to be applied to cluster {name}"));
        return Ok(());
    }
    let clusters = api::provisioning_clusters();
    let approve = |cluster: &mut Object| {
        let before = cluster.annotation(APPROVED_CONFIGS).to_owned();
        let after = merged(&before, &chosen);
        cluster.0["metadata"]["annotations"][APPROVED_CONFIGS] = json!(after);
        Ok(before != after)
    };
    if !arguments.dry_run {
        api::change(&session.client, &clusters, Some(namespace), name, false, approve).await?;
    }
    let verb = if arguments.dry_run { "would be" } else { "will be" };
    for edit in &chosen {
        let machines = if edit.machines == 1 { "machine" } else { "machines" };
        session.out.line(&format!(
            "pool {}: {} {machines} {verb} replaced, as {} says now ({})",
            edit.pool,
            edit.machines,
            edit.config,
            edit.fields.join(", ")
        ));
    }
    if arguments.dry_run || !arguments.wait.wait {
        return Ok(());
    }
    taken_up(session, name, &chosen).await?;
    arguments.wait.until(session, name, Goal::Ready).await
}

/// Until then the cluster is as ready as it was before.
async fn taken_up(session: &Session, name: &str, chosen: &[Edit]) -> Result<(), Failure> {
    for _ in 0..100 {
        let evidence = gather::cluster(session, &session.namespace, name, Depth::Objects).await?;
        let waits = |edit: Edit| {
            chosen.iter().any(|other| (&other.pool, &other.revision) == (&edit.pool, &edit.revision))
        };
        if !evidence.pools().filter_map(|pool| self::edit(&evidence, pool)).any(waits) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err(Failure::new(Code::TimedOut, "nobody has taken up the change").hint(format!("remuda why {name}")))
}

/// The edits that are meant, and those that no approval lets through.
fn choose(evidence: &Evidence, wanted: &[String]) -> Result<(Vec<Edit>, Vec<Edit>), Failure> {
    let names: Vec<&str> = evidence.pools().map(Pool::name).collect();
    if let Some(unknown) = wanted.iter().find(|pool| !names.contains(&pool.as_str())) {
        let name = evidence.name();
        let failure = Failure::new(Code::NotFound, format!("cluster {name} has no pool {unknown}"));
        let list = format!("remuda cluster describe {name}");
        return Err(failure.hint(near::hint(unknown, names.into_iter(), &list)));
    }
    let edits = evidence.pools().filter_map(|pool| edit(evidence, pool));
    let (left, chosen): (Vec<Edit>, Vec<Edit>) = edits
        .filter(|edit| wanted.is_empty() || wanted.contains(&edit.pool))
        .partition(|edit| edit.policy == "Never");
    if let Some(edit) = left.iter().find(|edit| wanted.contains(&edit.pool)) {
        let failure = Failure::invalid(format!("the policy of pool {} is Never", edit.pool));
        return Err(failure.hint(format!("change it first: {CONFIG_POLICY}, of the pool or the cluster")));
    }
    Ok((chosen, left))
}

fn edit(evidence: &Evidence, pool: Pool<'_>) -> Option<Edit> {
    let of_pool = |deployment: &&Object| {
        let labels = deployment.0.pointer("/spec/template/metadata/labels");
        labels.is_some_and(|labels| labels[label::MACHINE_POOL_NAME] == pool.name())
    };
    let deployment = evidence.deployments.iter().find(of_pool)?;
    let pending: Value = serde_json::from_str(deployment.annotation(PENDING_CONFIG)).ok()?;
    let text = |key: &str| pending[key].as_str().unwrap_or_default().to_owned();
    let fields = pending["fields"].as_array().into_iter().flatten();
    let mine = evidence.machines.iter().filter(|machine| pool.owns(machine) && !machine.is_deleting());
    Some(Edit {
        pool: pool.name().to_owned(),
        config: text("config"),
        fields: fields.filter_map(|field| field.as_str().map(str::to_owned)).collect(),
        machines: mine.count(),
        policy: text("policy"),
        revision: text("revision"),
    })
}

/// Approvals with these in place of those for the same pools.
fn merged(before: &str, edits: &[Edit]) -> String {
    let entry = |text: &str| Some(text.trim().split_once('=')?.0.to_owned());
    let kept = before
        .split(',')
        .map(str::trim)
        .filter(|text| entry(text).is_some_and(|pool| !edits.iter().any(|edit| edit.pool == pool)));
    let mut all: Vec<String> = kept.map(str::to_owned).collect();
    all.extend(edits.iter().map(|edit| format!("{}={}", edit.pool, edit.revision)));
    all.sort();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence() -> Evidence {
        let deployment = |pool: &str, policy: &str| {
            let pending =
                json!({"config": "XConfig/nc", "fields": ["size"], "policy": policy, "revision": "2-ab"});
            Object(json!({
                "metadata": {
                    "name": format!("demo-{pool}"),
                    "annotations": {(PENDING_CONFIG): pending.to_string()},
                },
                "spec": {"template": {"metadata": {"labels": {(label::MACHINE_POOL_NAME): pool}}}},
            }))
        };
        let machine =
            |pool: &str| Object(json!({"metadata": {"labels": {(label::MACHINE_POOL_NAME): pool}}}));
        Evidence {
            cluster: Some(Object(
                json!({"metadata": {"name": "demo"}, "spec": {"rkeConfig": {"machinePools": [
                    {"name": "a"}, {"name": "b"}, {"name": "c"},
                ]}}}),
            )),
            deployments: vec![deployment("a", "Ask"), deployment("b", "Never")],
            machines: vec![machine("a"), machine("a"), machine("b")],
            ..Evidence::default()
        }
    }

    #[test]
    fn edits_that_ask_are_chosen_and_others_are_named() {
        let evidence = evidence();
        let (chosen, left) = choose(&evidence, &[]).unwrap();
        assert_eq!((chosen.len(), chosen[0].pool.as_str(), chosen[0].machines), (1, "a", 2));
        assert_eq!(left[0].pool, "b");
        assert_eq!(choose(&evidence, &["c".to_owned()]).unwrap().0, []);
        let never = choose(&evidence, &["b".to_owned()]).unwrap_err();
        assert_eq!(never.message, "the policy of pool b is Never");
        assert_eq!(choose(&evidence, &["x".to_owned()]).unwrap_err().code, Code::NotFound);
    }

    #[test]
    fn an_approval_replaces_the_one_for_the_same_pool() {
        let (chosen, _) = choose(&evidence(), &[]).unwrap();
        assert_eq!(merged("", &chosen), "a=2-ab");
        assert_eq!(merged("a=1-ab, b=7-x,rubbish", &chosen), "a=2-ab,b=7-x");
    }
}
