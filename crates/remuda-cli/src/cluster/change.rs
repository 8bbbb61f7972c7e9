//! `remuda cluster scale` and `remuda cluster upgrade`.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use super::Wait;
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
};

#[derive(Args, Debug)]
pub struct Scale {
    /// Name of the cluster
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
    pub name: String,

    /// The version to change to, such as v1.35.2+k3s1 or 1.35.2
    #[arg(long = "to", visible_aliases = ["version", "kubernetes-version"], value_name = "VERSION")]
    pub to: String,

    /// Also to an older version, or past a minor version
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
    let mut from = String::new();
    let mut to = String::new();
    let clusters = api::provisioning_clusters();
    let changed =
        api::change(&session.client, &clusters, Some(namespace), name, arguments.dry_run, |cluster| {
            from = cluster.text("/spec/kubernetesVersion").to_owned();
            to = full_version(Some(&arguments.to), Some(Distribution::of(&from)))?;
            judge(&from, &to, arguments.force)?;
            cluster.0["spec"]["kubernetesVersion"] = json!(to);
            Ok(from != to)
        });
    match changed.await? {
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

/// Kubernetes goes from one minor version to the next, and never back.
fn judge(from: &str, to: &str, force: bool) -> Result<(), Failure> {
    let parse = |text: &str| semver::Version::parse(text.strip_prefix('v').unwrap_or(text)).ok();
    let (Some(old), Some(new)) = (parse(from), parse(to)) else { return Ok(()) };
    if force {
        return Ok(());
    }
    if new.cmp_precedence(&old).is_lt() {
        let failure = Failure::invalid(format!("{to} is older than {from}"));
        return Err(failure.hint(
            "nodes of older versions may not read what newer ones wrote; add --force if that is meant",
        ));
    }
    if new.major == old.major && new.minor > old.minor + 1 {
        let failure = Failure::invalid(format!("from {from} to {to} a minor version is left out"));
        let hint = format!("go to {}.{} first, or add --force if that is meant", old.major, old.minor + 1);
        return Err(failure.hint(hint));
    }
    Ok(())
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

    #[test]
    fn upgrades_go_one_minor_version_at_a_time() {
        let refused = |from: &str, to: &str| judge(from, to, false).err().map(|failure| failure.message);
        assert_eq!(refused("v1.34.1+k3s1", "v1.34.2+k3s1"), None);
        assert_eq!(refused("v1.34.1+k3s1", "v1.35.0+k3s1"), None);
        assert_eq!(refused("v1.34.1+k3s1", "v1.34.1+k3s2"), None);
        assert_eq!(
            refused("v1.35.1+k3s1", "v1.34.9+k3s1").as_deref(),
            Some("v1.34.9+k3s1 is older than v1.35.1+k3s1")
        );
        assert_eq!(
            refused("v1.33.1+k3s1", "v1.35.0+k3s1").as_deref(),
            Some("from v1.33.1+k3s1 to v1.35.0+k3s1 a minor version is left out")
        );
        assert_eq!(judge("v1.35.1+k3s1", "v1.30.0+k3s1", true), Ok(()));
    }
}
