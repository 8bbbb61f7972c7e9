//! How a cluster that is there differs from one that is asked for.

use crate::{
    evidence::Pool, failure::Failure, gather, generate::ClusterShape, object::Object, session::Session,
};

/// What was asked for and is not so, each with the command that makes it so. What was not asked for does not count.
pub async fn differences(
    session: &Session,
    name: &str,
    asked: &ClusterShape,
) -> Result<Vec<String>, Failure> {
    let cluster = gather::existing(session, &session.namespace, name).await?;
    let wanted = asked.manifest(name, &session.namespace)?;
    let Some(wanted) = wanted.last() else { return Ok(Vec::new()) };
    Ok(between(name, &cluster, wanted, asked))
}

fn between(name: &str, cluster: &Object, wanted: &Object, asked: &ClusterShape) -> Vec<String> {
    let mut found = Vec::new();
    let version = "/spec/kubernetesVersion";
    let (here, there) = (cluster.text(version), wanted.text(version));
    if (asked.version.is_some() || asked.distribution.is_some()) && here != there {
        found.push(format!(
            "version {here} to {there}; change it with: remuda cluster upgrade {name} --to {there}"
        ));
    }
    let pools = |object: &'_ Object| -> Vec<(String, i64)> {
        let pools = object.list("/spec/rkeConfig/machinePools").iter().map(Pool);
        pools.map(|pool| (pool.name().to_owned(), pool.wanted())).collect()
    };
    let before = pools(cluster);
    let given = |pool: &str| match pool {
        _ if !asked.pools.is_empty() => true,
        "servers" => asked.servers.is_some(),
        "workers" => asked.workers.is_some(),
        _ => false,
    };
    for (pool, count) in pools(wanted).into_iter().filter(|(pool, _)| given(pool)) {
        match before.iter().find(|(other, _)| *other == pool) {
            Some((_, here)) if *here != count => found.push(format!(
                "pool {pool} from {here} to {count}; change it with: remuda cluster scale {name} {pool}={count}"
            )),
            Some(_) => {}
            None => found.push(format!("there is no pool {pool}; add it with: remuda cluster edit {name}")),
        }
    }
    // Asked for none, which is no pool at all.
    if asked.workers == Some(0)
        && let Some((_, here)) = before.iter().find(|(pool, here)| pool == "workers" && *here > 0)
    {
        found.push(format!(
            "pool workers from {here} to 0; change it with: remuda cluster scale {name} workers=0"
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(asked: &ClusterShape, expected: &[&str]) {
        let shape = ClusterShape { servers: Some(1), workers: Some(2), ..ClusterShape::default() };
        let cluster = shape.manifest("demo", "n").unwrap().pop().unwrap();
        let wanted = asked.manifest("demo", "n").unwrap().pop().unwrap();
        let found = between("demo", &cluster, &wanted, asked);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn only_what_was_asked_for_is_compared() {
        check(&ClusterShape::default(), &[]);
        check(&ClusterShape { servers: Some(1), workers: Some(2), ..ClusterShape::default() }, &[]);
        check(
            &ClusterShape { servers: Some(3), workers: Some(5), ..ClusterShape::default() },
            &["remuda cluster scale demo servers=3", "pool workers from 2 to 5"],
        );
        check(&ClusterShape { workers: Some(0), ..ClusterShape::default() }, &["workers from 2 to 0"]);
        check(
            &ClusterShape { version: Some("v1.34.2+k3s1".to_owned()), ..ClusterShape::default() },
            &["--to v1.34.2+k3s1"],
        );
    }
}
