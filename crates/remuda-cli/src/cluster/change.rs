//! `remuda cluster scale` and `remuda cluster upgrade`.

use std::collections::BTreeMap;

use clap::Args;
use remuda_distro::wanted::Wanted;
use remuda_names::provisioning::annotation::FORCE_VERSION;
use serde_json::{Value, json};

use super::{Wait, preflight};
use crate::{
    api,
    evidence::Pool,
    failure::{Code, Failure},
    gather,
    generate::{Distribution, full_version},
    near,
    object::Object,
    progress::Goal,
    session::Session,
    versions,
};

#[derive(Args, Debug)]
pub struct Scale {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,

    /// Pools and how many machines they are to have; a cluster of one pool takes the number alone
    #[arg(required = true, value_name = "POOL=COUNT")]
    pub pools: Vec<String>,

    /// Also if the cluster loses all machines of a role by it
    #[arg(long)]
    pub force: bool,

    /// Let the server check it, and change nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub wait: Wait,
}

#[derive(Args, Debug)]
pub struct Upgrade {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,

    /// The version to change to, such as v1.35.2+k3s1, 1.35.2, 1.35 or stable
    #[arg(long = "to", visible_aliases = ["version", "kubernetes-version"], value_name = "VERSION")]
    pub to: String,

    /// Also to an older version, past a minor version or to the other distribution
    #[arg(long)]
    pub force: bool,

    /// Let the server check it, and change nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub wait: Wait,
}

pub(super) async fn scale(session: &Session, arguments: Scale) -> Result<(), Failure> {
    let (namespace, name) = (session.namespace.as_str(), arguments.name.as_str());
    gather::existing(session, namespace, name).await?;
    let mut said = Vec::new();
    let clusters = api::provisioning_clusters();
    let changed =
        api::change(&session.client, &clusters, Some(namespace), name, arguments.dry_run, |cluster| {
            said = rescale(cluster, &arguments.pools, arguments.force)?;
            Ok(!said.is_empty())
        });
    let changed = changed.await?.is_some();
    if !changed {
        session.out.line(&format!("cluster {name} has those numbers already"));
    }
    for line in said {
        session
            .out
            .line(&format!("cluster {name}: {line}{}", if arguments.dry_run { " (dry run)" } else { "" }));
    }
    if arguments.dry_run {
        return Ok(());
    }
    arguments.wait.until(session, name, Goal::Ready).await
}

/// Writes the numbers into the cluster, and says what changed.
fn rescale(cluster: &mut Object, wanted: &[String], force: bool) -> Result<Vec<String>, Failure> {
    let name = cluster.name().to_owned();
    let pools = cluster.0.pointer_mut("/spec/rkeConfig/machinePools").and_then(Value::as_array_mut);
    let Some(pools) = pools.filter(|pools| !pools.is_empty()) else {
        let failure = Failure::invalid(format!("cluster {name} has no pools"));
        return Err(failure
            .hint(format!("its servers register themselves: remuda cluster registration-command {name}")));
    };
    let names: Vec<String> = pools.iter().map(|pool| Pool(pool).name().to_owned()).collect();
    let mut said = Vec::new();
    for (pool, count) in parse(wanted, &names)? {
        let Some(entry) = pools.iter_mut().find(|entry| Pool(entry).name() == pool) else {
            let failure = Failure::new(Code::NotFound, format!("cluster {name} has no pool {pool}"));
            let list = format!("remuda cluster describe {name}");
            return Err(failure.hint(near::hint(&pool, names.iter().map(String::as_str), &list)));
        };
        let before = Pool(entry).wanted();
        if before != i64::from(count) {
            said.push(format!("pool {pool} changes from {before} to {count} machines"));
            entry["quantity"] = json!(count);
        }
    }
    if !force && !said.is_empty() {
        for (held, role) in
            [("etcdRole", "etcd"), ("controlPlaneRole", "control plane"), ("workerRole", "worker")]
        {
            let counted = pools.iter().filter(|pool| pool[held] == true).map(|pool| Pool(pool).wanted());
            if counted.sum::<i64>() == 0 {
                let failure = Failure::invalid(format!("cluster {name} would have no {role} machine left"));
                return Err(failure.hint("the cluster would stop working; add --force if that is meant"));
            }
        }
    }
    Ok(said)
}

fn parse(wanted: &[String], pools: &[String]) -> Result<BTreeMap<String, u32>, Failure> {
    let mut counts = BTreeMap::new();
    for text in wanted {
        let (pool, count) = match (text.split_once('='), pools) {
            (Some((pool, count)), _) => (pool, count),
            (None, [only]) => (only.as_str(), text.as_str()),
            (None, _) => return Err(Failure::invalid(format!("{text:?} is not POOL=COUNT"))),
        };
        let count = count.parse().ok().filter(|count| *count <= 1000);
        let count = count.ok_or_else(|| {
            Failure::invalid(format!("{text:?}: write a number of machines from 0 to 1000"))
        })?;
        if counts.insert(pool.to_owned(), count).is_some() {
            return Err(Failure::invalid(format!("pool {pool} is named twice")));
        }
    }
    Ok(counts)
}

pub(super) async fn upgrade(session: &Session, arguments: Upgrade) -> Result<(), Failure> {
    let (namespace, name) = (session.namespace.as_str(), arguments.name.as_str());
    let cluster = gather::existing(session, namespace, name).await?;
    if !cluster.has("/spec/rkeConfig") {
        let failure =
            Failure::invalid(format!("cluster {name} was imported and is upgraded where it was made"));
        return Err(failure);
    }
    let mut from = cluster.text("/spec/kubernetesVersion").to_owned();
    let distribution = Distribution::of(&from);
    // Whether a cluster can become one of the other distribution is the server's to say.
    let stay = Some(distribution).filter(|_| !arguments.to.contains('+'));
    let mut to = full_version(Some(&arguments.to), stay)?;
    // A word that was written before keeps its release; who upgrades means what it stands for now.
    if let Some(Wanted::Alias { alias, distro }) = Wanted::parse(&to) {
        to = versions::resolve(session, &alias, distro.unwrap_or(distribution.distro())).await?;
    }
    if from != to {
        preflight::warn(session, name, &to).await;
    }
    let clusters = api::provisioning_clusters();
    let changed =
        api::change(&session.client, &clusters, Some(namespace), name, arguments.dry_run, |cluster| {
            from = cluster.text("/spec/kubernetesVersion").to_owned();
            cluster.0["spec"]["kubernetesVersion"] = json!(to);
            if arguments.force {
                cluster.0["metadata"]["annotations"][FORCE_VERSION] = json!(to);
            }
            Ok(from != to)
        });
    let changed = changed.await.map_err(|failure| match failure.code {
        Code::Invalid if !arguments.force => failure.hint(
            "remuda versions shows what there is; --force lets a cluster go back, past a minor version or to the \
             other distribution",
        ),
        _ => failure,
    });
    match changed? {
        Some(_) if arguments.dry_run => {
            session.out.line(&format!("cluster {name} would change from {from} to {to}"));
        }
        Some(_) => session.out.line(&format!("cluster {name} changes from {from} to {to}")),
        None => session.out.line(&format!("cluster {name} is at {to} already")),
    }
    if arguments.dry_run {
        return Ok(());
    }
    arguments.wait.until(session, name, Goal::Ready).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Object {
        Object(json!({"metadata": {"name": "demo"}, "spec": {"rkeConfig": {"machinePools": [
            {"name": "servers", "etcdRole": true, "controlPlaneRole": true, "quantity": 1},
            {"name": "workers", "workerRole": true},
        ]}}}))
    }

    #[track_caller]
    fn check(wanted: &[&str], force: bool, expected: &str) {
        let wanted: Vec<String> = wanted.iter().map(|text| (*text).to_owned()).collect();
        let mut cluster = cluster();
        let found = match rescale(&mut cluster, &wanted, force) {
            Ok(said) => said.join("; "),
            Err(failure) => format!("{} | {}", failure.message, failure.hint.unwrap_or_default()),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn scaling_changes_the_numbers_of_pools() {
        check(&["workers=5"], false, "pool workers changes from 1 to 5 machines");
        check(
            &["workers=0", "servers=3"],
            true,
            "pool servers changes from 1 to 3 machines; pool workers changes from 1 to 0 machines",
        );
        check(&["workers=1"], false, "");
        check(&["workres=2"], false, "cluster demo has no pool workres | did you mean workers?");
        check(&["5"], false, "\"5\" is not POOL=COUNT | ");
        check(&["workers=many"], false, "\"workers=many\": write a number of machines from 0 to 1000 | ");
        check(&["workers=1", "workers=2"], false, "pool workers is named twice | ");
        check(
            &["servers=0"],
            false,
            "cluster demo would have no etcd machine left | the cluster would stop working; add --force if that is meant",
        );
    }

    #[test]
    fn a_single_pool_takes_the_number_alone() {
        let mut cluster = cluster();
        cluster.0["spec"]["rkeConfig"]["machinePools"] =
            json!([{"name": "all", "etcdRole": true, "controlPlaneRole": true, "workerRole": true}]);
        assert_eq!(
            rescale(&mut cluster, &["3".to_owned()], false).unwrap(),
            ["pool all changes from 1 to 3 machines"]
        );
        assert_eq!(cluster.0["spec"]["rkeConfig"]["machinePools"][0]["quantity"], 3);
    }
}
