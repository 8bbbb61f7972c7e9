//! `remuda user list`.

use std::collections::HashMap;

use clap::Args;
use jiff::Timestamp;

use super::{all, grant::roles_of, label};
use crate::{
    age,
    api::{self, Which},
    failure::Failure,
    object::Object,
    output::{Format, list as objects},
    session::Session,
    table::{Cell, Table, Tone},
};

#[derive(Args, Debug)]
pub struct List {
    /// Also those that stand for clusters and not for people
    #[arg(long, short = 'A')]
    pub all: bool,

    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

pub(super) async fn run(session: &Session, arguments: &List) -> Result<(), Failure> {
    let mut users = all(session).await?;
    users.retain(|user| arguments.all || !is_system(user));
    users.sort_by(|a, b| label(a).cmp(label(b)));
    match arguments.output {
        Format::Json | Format::Yaml => {
            let users = users.into_iter().map(|user| user.0).collect();
            session.out.document(&objects(users), arguments.output)
        }
        Format::Name => {
            users.iter().for_each(|user| session.out.line(user.name()));
            Ok(())
        }
        Format::Table | Format::Wide => {
            let list = |kind: &'static str| async move {
                api::list(&session.client, &api::management(kind), None, Which::All).await
            };
            let (global, cluster, clusters) = tokio::try_join!(
                list("GlobalRoleBinding"),
                list("ClusterRoleTemplateBinding"),
                list("Cluster")
            )?;
            let view = View { global, cluster: named(cluster, &clusters) };
            session.out.table(&table(&users, &view, Timestamp::now()), arguments.output);
            Ok(())
        }
    }
}

fn is_system(user: &Object) -> bool {
    let principals = user.list("/principalIds");
    !principals.is_empty()
        && principals
            .iter()
            .all(|id| id.as_str().is_some_and(|id| id.starts_with(remuda_names::identity::SYSTEM_PRINCIPAL)))
}

/// Bindings of everybody.
struct View {
    global: Vec<Object>,
    cluster: Vec<Object>,
}

/// Says in each binding what people call its cluster, and as what.
fn named(bindings: Vec<Object>, clusters: &[Object]) -> Vec<Object> {
    let names: HashMap<&str, &str> =
        clusters.iter().map(|cluster| (cluster.name(), cluster.text("/spec/displayName"))).collect();
    let told = |mut binding: Object| {
        let id = binding.text("/clusterName");
        let name = names.get(id).copied().filter(|name| !name.is_empty()).unwrap_or(id);
        let told = format!("{name}:{}", binding.text("/roleTemplateName"));
        binding.0["told"] = told.into();
        binding
    };
    bindings.into_iter().map(told).collect()
}

fn table(users: &[Object], view: &View, now: Timestamp) -> Table {
    let mut table = Table::new(["NAME", "USER", "STATE", "ROLES", "CLUSTERS", "AGE"]);
    for user in users {
        let state = match (
            user.0.get("enabled").and_then(serde_json::Value::as_bool),
            user.flag("/mustChangePassword"),
        ) {
            (Some(false), _) => Cell::toned("disabled", Tone::Bad),
            (_, true) => Cell::toned("must change password", Tone::Busy),
            _ => Cell::from("enabled"),
        };
        table.row(vec![
            Cell::from(match user.text("/username") {
                "" => user.text("/displayName"),
                name => name,
            }),
            Cell::from(user.name()),
            state,
            Cell::from(roles_of(user, &view.global, "/globalRoleName").join(",")),
            Cell::from(roles_of(user, &view.cluster, "/told").join(",")),
            Cell::from(age::ago(user.created(), now)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_of_users_says_what_they_are_where() {
        let now: Timestamp = "2026-11-16T04:00:00Z".parse().unwrap();
        let user = |more: serde_json::Value| {
            let mut user =
                json!({"metadata": {"name": "user-ann", "creationTimestamp": "2026-11-16T03:59:00Z"}});
            user.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Object(user)
        };
        let users = [user(json!({"username": "ann"})), user(json!({"displayName": "Ann", "enabled": false}))];
        let bindings = vec![Object(json!({
            "clusterName": "c-1", "roleTemplateName": "cluster-member", "userName": "user-ann",
        }))];
        let clusters = [Object(json!({"metadata": {"name": "c-1"}, "spec": {"displayName": "demo"}}))];
        let view = View {
            global: vec![Object(json!({"globalRoleName": "user", "userName": "user-ann"}))],
            cluster: named(bindings, &clusters),
        };
        let text = anstream::adapter::strip_str(&table(&users, &view, now).render("")).to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["ann", "user-ann", "enabled", "user", "demo:cluster-member", "60s"]);
        assert_eq!(lines[2][..3], ["Ann", "user-ann", "disabled"]);
        assert!(is_system(&user(json!({"principalIds": ["system://provisioning/a/b"]}))));
        assert!(!is_system(&users[0]));
    }
}
