//! `remuda cluster protect` and `remuda cluster unprotect`.

use clap::Args;
use remuda_names::provisioning::annotation::PROTECTED;
use serde_json::{Value, json};

use crate::{
    api,
    evidence::Pool,
    failure::{Code, Failure},
    gather, near,
    object::Object,
    session::Session,
};

#[derive(Args, Debug)]
pub struct Protect {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,

    /// Only this pool
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
}

pub(super) async fn run(session: &Session, arguments: &Protect, on: bool) -> Result<(), Failure> {
    let (namespace, name) = (session.namespace.as_str(), arguments.name.as_str());
    gather::existing(session, namespace, name).await?;
    let clusters = api::provisioning_clusters();
    let changed = api::change(&session.client, &clusters, Some(namespace), name, false, |cluster| {
        mark(cluster, arguments.pool.as_deref(), on)
    });
    let what = match &arguments.pool {
        Some(pool) => format!("pool {pool} of cluster {name}"),
        None => format!("cluster {name}"),
    };
    let line = match (changed.await?.is_some(), on) {
        (true, true) => format!("{what} is protected against deletion"),
        (true, false) => format!("{what} is no longer protected against deletion"),
        (false, true) => format!("{what} is protected already"),
        (false, false) => format!("{what} is not protected"),
    };
    session.out.line(&line);
    Ok(())
}

/// Protects a cluster that is still to be created.
pub(super) fn protect(cluster: &mut Object) {
    set(&mut cluster.0["metadata"]["annotations"], true);
}

/// What of a cluster is protected, for people.
pub(super) fn shown(cluster: &Object) -> String {
    let pools = cluster.list("/spec/rkeConfig/machinePools");
    let pools = pools.iter().filter(|pool| pool["machineDeploymentAnnotations"][PROTECTED] == "true");
    let pools: Vec<&str> = pools.map(|pool| Pool(pool).name()).collect();
    match (cluster.0["metadata"]["annotations"][PROTECTED] == "true", pools.is_empty()) {
        (true, true) => "yes".to_owned(),
        (true, false) => format!("yes, and pools {}", pools.join(", ")),
        (false, false) => format!("pools {}", pools.join(", ")),
        (false, true) => "no".to_owned(),
    }
}

/// Says whether anything changed.
fn mark(cluster: &mut Object, pool: Option<&str>, on: bool) -> Result<bool, Failure> {
    let Some(pool) = pool else { return Ok(set(&mut cluster.0["metadata"]["annotations"], on)) };
    let name = cluster.name().to_owned();
    let pools = cluster.0.pointer_mut("/spec/rkeConfig/machinePools").and_then(Value::as_array_mut);
    let pools = pools.map(Vec::as_mut_slice).unwrap_or_default();
    let names: Vec<String> = pools.iter().map(|known| Pool(known).name().to_owned()).collect();
    let Some(found) = pools.iter_mut().find(|known| Pool(known).name() == pool) else {
        let failure = Failure::new(Code::NotFound, format!("cluster {name} has no pool {pool}"));
        let list = format!("remuda cluster describe {name}");
        return Err(failure.hint(near::hint(pool, names.iter().map(String::as_str), &list)));
    };
    Ok(set(&mut found["machineDeploymentAnnotations"], on))
}

fn set(annotations: &mut Value, on: bool) -> bool {
    if !annotations.is_object() {
        *annotations = json!({});
    }
    let Some(annotations) = annotations.as_object_mut() else { return false };
    match on {
        true => annotations.insert(PROTECTED.to_owned(), "true".into()) != Some("true".into()),
        false => annotations.remove(PROTECTED).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Object {
        Object(json!({
            "metadata": {"name": "demo"}, "spec": {"rkeConfig": {"machinePools": [{"name": "a"}, {"name": "b"}]}}}))
    }

    #[test]
    fn clusters_and_pools_are_marked_and_shown() {
        let mut object = cluster();
        assert_eq!(shown(&object), "no");
        assert!(mark(&mut object, Some("b"), true).unwrap());
        assert!(!mark(&mut object, Some("b"), true).unwrap());
        assert_eq!(shown(&object), "pools b");
        assert!(mark(&mut object, None, true).unwrap());
        assert_eq!(shown(&object), "yes, and pools b");
        assert!(mark(&mut object, Some("b"), false).unwrap() && mark(&mut object, None, false).unwrap());
        assert!(!mark(&mut object, None, false).unwrap());
        assert_eq!(shown(&object), "no");
        let failure = mark(&mut object, Some("c"), true).unwrap_err();
        assert_eq!(failure.message, "cluster demo has no pool c");
    }
}
