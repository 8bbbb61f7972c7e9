//! `remuda cluster create`.

use std::{io::Read, path::PathBuf};

use clap::Args;
use remuda_names::{
    driver::facts,
    rancher::{condition, group},
};
use serde_json::{Value, json};

use super::{
    Wait,
    fields::{self, Given},
    protect,
};
use crate::{
    api::{self, Which},
    failure::{Code, Failure},
    generate::{self, ClusterShape},
    object::Object,
    output::Format,
    progress::Goal,
    session::Session,
};

#[derive(Args, Debug)]
pub struct Create {
    /// Name of the cluster
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub name: Option<String>,

    /// Create what this file describes; - is standard input
    #[arg(
        long,
        short,
        value_name = "FILE",
        conflicts_with_all = [
            "distribution", "version", "arguments", "servers", "workers", "pools", "driver", "machine_config", "credential",
            "custom",
        ]
    )]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub shape: ClusterShape,

    #[command(flatten)]
    pub wait: Wait,

    /// Protect it against deletion
    #[arg(long)]
    pub protect: bool,

    /// Let the server check it, and create nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print what was created
    #[arg(long, short, value_enum)]
    pub output: Option<Format>,
}

pub(super) async fn run(session: &Session, arguments: Create) -> Result<(), Failure> {
    let mut objects = match (&arguments.file, &arguments.name) {
        (Some(path), _) => from_file(path, &session.namespace)?,
        (None, Some(name)) => arguments.shape.manifest(name, &session.namespace)?,
        (None, None) => return Err(Failure::invalid("name the cluster, or a file with --file")),
    };
    if arguments.protect {
        objects.iter_mut().filter(|object| is_cluster(object)).for_each(protect::protect);
    }
    for warning in generate::warnings(&objects) {
        session.out.note(&format!("warning: {warning}"));
    }
    let given = if arguments.file.is_some() { Given::File } else { Given::Flags };
    let objects = fields::fit(session, &objects, given).await?;
    let created = create(session, &objects, arguments.dry_run).await?;
    let clusters: Vec<&Object> = created.iter().filter(|object| is_cluster(object)).collect();
    let done = if arguments.dry_run { "would be created" } else { "created" };
    match arguments.output {
        Some(format @ (Format::Json | Format::Yaml | Format::Name)) => {
            let shown: Vec<Object> = created.iter().map(|object| object.clone().presentable()).collect();
            generate::print(&session.out, &shown, format)?;
        }
        _ => clusters
            .iter()
            .for_each(|cluster| session.out.line(&format!("cluster {} {done}", cluster.name()))),
    }
    if arguments.dry_run {
        return Ok(());
    }
    for cluster in &clusters {
        let there = Session { namespace: cluster.namespace().to_owned(), ..session.clone() };
        let custom = cluster.list("/spec/rkeConfig/machinePools").is_empty();
        if custom && !arguments.wait.wait {
            session.out.note(&format!(
                "register servers with: remuda cluster registration-command {}",
                cluster.name()
            ));
        }
        arguments.wait.until(&there, cluster.name(), Goal::Ready).await?;
    }
    Ok(())
}

fn is_cluster(object: &Object) -> bool {
    object.group() == group::PROVISIONING && object.kind() == "Cluster"
}

/// Creates the objects of a manifest, in its order. Machine configurations that are there and say the same are
/// kept; if anything is refused, what was created is taken away again.
pub async fn create(session: &Session, objects: &[Object], dry_run: bool) -> Result<Vec<Object>, Failure> {
    let mut created = Vec::new();
    for object in objects {
        match one(session, object, dry_run).await {
            Ok((object, new)) => created.push((object, new)),
            Err(failure) => {
                if !dry_run {
                    undo(session, &created).await;
                }
                return Err(failure);
            }
        }
    }
    Ok(created.into_iter().map(|(object, _)| object).collect())
}

/// Creates the objects of a manifest unless its cluster is there. Says whether it was created.
pub async fn ensure(session: &Session, objects: &[Object]) -> Result<bool, Failure> {
    let clusters = objects.iter().filter(|object| is_cluster(object));
    let resource = api::provisioning_clusters();
    for cluster in clusters {
        match api::get(&session.client, &resource, Some(cluster.namespace()), cluster.name()).await? {
            Some(there) if there.is_deleting() => {
                let message = format!("cluster {} is still being deleted", there.name());
                return Err(Failure::new(Code::Conflict, message).hint("try again when it is gone"));
            }
            Some(_) => return Ok(false),
            None => {}
        }
    }
    let objects = fields::fit(session, objects, Given::Flags).await?;
    create(session, &objects, false).await.map(|_| true)
}

async fn one(session: &Session, object: &Object, dry_run: bool) -> Result<(Object, bool), Failure> {
    let resource = resource(object)?;
    let namespace = Some(object.namespace());
    match api::create(&session.client, &resource, namespace, object, dry_run).await {
        Ok(created) => Ok((created, true)),
        Err(failure) if failure.code == Code::Conflict => {
            let there = api::get(&session.client, &resource, namespace, object.name()).await?;
            match there {
                Some(there) if !is_cluster(object) && says_the_same(&there.0, &object.0) => {
                    Ok((there, false))
                }
                Some(there) if there.is_deleting() => {
                    let message = format!("{} is still being deleted", there.reference());
                    Err(Failure::new(Code::Conflict, message).hint("try again when it is gone"))
                }
                Some(there) if is_cluster(object) => {
                    let name = there.name();
                    let message =
                        format!("there is a cluster {name} already in namespace {}", there.namespace());
                    Err(Failure::new(Code::Conflict, message)
                        .hint(format!("change it with: remuda cluster edit {name}")))
                }
                Some(there) => {
                    let message = format!("there is another {} already", there.reference());
                    Err(Failure::new(Code::Conflict, message)
                        .hint("give the cluster or the pool another name"))
                }
                None => Err(failure),
            }
        }
        Err(failure) if failure.code == Code::NotFound && object.group() == group::MACHINE_CONFIG => {
            let driver = driver_of(object);
            let message = format!(
                "the server knows no {}: driver {driver} does not exist or is not active",
                object.kind()
            );
            Err(Failure::new(Code::NotFound, message)
                .hint("kubectl get nodedrivers.management.cattle.io shows the drivers"))
        }
        Err(failure) if failure.code == Code::NotFound && is_cluster(object) => {
            // Either the kind is missing or the namespace.
            match crate::gather::served_clusters(session, None).await {
                Err(other) => Err(other),
                Ok(_) => Err(failure
                    .hint(format!("create the namespace: kubectl create namespace {}", object.namespace()))),
            }
        }
        Err(failure) => Err(failure),
    }
}

pub(super) fn driver_of(config: &Object) -> String {
    config.kind().strip_suffix("Config").unwrap_or(config.kind()).to_lowercase()
}

/// Whether a driver is in use, so that its kinds are to be expected. A server that has just started lists the drivers
/// that come with it one after the other.
pub(super) async fn is_coming(session: &Session, driver: &str) -> Result<bool, Failure> {
    let drivers = match api::list(&session.client, &api::management("NodeDriver"), None, Which::All).await {
        Err(failure) if failure.code == Code::Forbidden => return Ok(false),
        drivers => drivers?,
    };
    let mut named = drivers.iter().filter(|found| is_named(found, driver)).peekable();
    match named.peek() {
        None => Ok(drivers.is_empty() || facts(driver).listing.is_some()),
        Some(_) => Ok(named.any(will_serve)),
    }
}

fn is_named(found: &Object, driver: &str) -> bool {
    found.name() == driver || found.text("/spec/displayName").eq_ignore_ascii_case(driver)
}

fn will_serve(found: &Object) -> bool {
    let failed = found.conditions().any(|condition| {
        [condition::DOWNLOADED, condition::INSTALLED].contains(&condition.kind) && condition.is_false()
    });
    found.flag("/spec/active") && !failed
}

/// Every field of `wanted` is in `there`.
fn says_the_same(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| there.get(key).is_some_and(|found| says_the_same(found, value)))
        }
        (there, wanted) => there == wanted,
    }
}

async fn undo(session: &Session, created: &[(Object, bool)]) {
    for (object, _) in created.iter().rev().filter(|(_, new)| *new) {
        let Ok(resource) = resource(object) else { continue };
        let gone =
            api::delete(&session.client, &resource, Some(object.namespace()), object.name(), false).await;
        if let Err(failure) = gone {
            session.out.note(&format!(
                "warning: {} was left behind: {}",
                object.reference(),
                failure.message
            ));
        }
    }
}

/// Clusters and what belongs to them.
fn resource(object: &Object) -> Result<kube::api::ApiResource, Failure> {
    match (object.group(), object.kind()) {
        (group::PROVISIONING, "Cluster") => Ok(api::provisioning_clusters()),
        (group::MACHINE_CONFIG, kind) => Ok(api::driver(group::MACHINE_CONFIG, kind)),
        ("", "Secret") => Ok(api::core("Secret", "secrets")),
        ("", "ConfigMap") => Ok(api::core("ConfigMap", "configmaps")),
        ("", "Namespace") => Ok(api::core("Namespace", "namespaces")),
        _ => {
            let failure = Failure::invalid(format!("{} is no cluster, nor part of one", object.reference()));
            Err(failure.hint("apply other objects with kubectl"))
        }
    }
}

/// Objects of a file, clusters last.
fn from_file(path: &PathBuf, namespace: &str) -> Result<Vec<Object>, Failure> {
    let (text, origin) = match path.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Failure::new(Code::Other, format!("read standard input: {error}")))?;
            (text, "standard input".to_owned())
        }
        false => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::new(Code::NotFound, format!("read {}: {error}", path.display())))?;
            (text, path.display().to_string())
        }
    };
    parse(&text, &origin, namespace)
}

fn parse(text: &str, origin: &str, namespace: &str) -> Result<Vec<Object>, Failure> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| Failure::invalid(format!("{origin} is not YAML: {}", error.without_snippet())))?;
    let mut objects = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            mut list if list["kind"] == "List" => {
                if let Value::Array(items) = list["items"].take() {
                    objects.extend(items.into_iter().map(Object));
                }
            }
            document => objects.push(Object(document)),
        }
    }
    for object in &mut objects {
        if object.kind().is_empty() || object.name().is_empty() {
            return Err(Failure::invalid(format!("{origin}: an object has no kind or no metadata.name")));
        }
        if object.namespace().is_empty() && object.kind() != "Namespace" {
            object.0["metadata"]["namespace"] = json!(namespace);
        }
        resource(object)?;
    }
    if !objects.iter().any(is_cluster) {
        return Err(Failure::invalid(format!("{origin} has no Cluster of {}", group::PROVISIONING)));
    }
    objects.sort_by_key(is_cluster);
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_several_documents_in_any_order() {
        let text = "# first\n---\napiVersion: provisioning.cattle.io/v1\nkind: Cluster\nmetadata: {name: demo}\n---\n\
                    apiVersion: rke-machine-config.cattle.io/v1\nkind: LocalConfig\nmetadata: {name: c, namespace: x}\n";
        let objects = parse(text, "f", "team").unwrap();
        let found: Vec<_> = objects.iter().map(Object::reference).collect();
        assert_eq!(found, ["LocalConfig x/c", "provisioning Cluster team/demo"]);
    }

    #[test]
    fn the_kinds_of_a_driver_are_waited_for_only_if_they_may_come() {
        let driver = |active: bool, installed: &str| {
            Object(json!({
                "metadata": {"name": "nd-1"}, "spec": {"displayName": "Demo", "active": active},
                "status": {"conditions": [{"type": "Installed", "status": installed}]},
            }))
        };
        assert!(is_named(&driver(true, "Unknown"), "demo"));
        assert!(is_named(&driver(true, "Unknown"), "nd-1"));
        assert!(!is_named(&driver(true, "Unknown"), "other"));
        assert!(will_serve(&driver(true, "Unknown")));
        assert!(!will_serve(&driver(false, "True")));
        assert!(!will_serve(&driver(true, "False")));
    }

    #[test]
    fn files_without_a_cluster_are_refused() {
        let refused = |text: &str| parse(text, "f", "team").unwrap_err().message;
        assert_eq!(refused(""), "f has no Cluster of provisioning.cattle.io");
        assert_eq!(refused("kind: Cluster\n"), "f: an object has no kind or no metadata.name");
        assert_eq!(
            refused("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n"),
            "Deployment team/d is no cluster, nor part of one"
        );
        assert!(refused("a: [").starts_with("f is not YAML"));
    }

    #[test]
    fn defaults_the_server_added_do_not_make_a_configuration_another() {
        let there = json!({"size": "big", "sshPort": "22", "metadata": {"name": "x", "uid": "1"}});
        assert!(says_the_same(&there, &json!({"size": "big", "metadata": {"name": "x"}})));
        assert!(!says_the_same(&there, &json!({"size": "small"})));
        assert!(!says_the_same(&there, &json!({"region": "eu"})));
    }
}
