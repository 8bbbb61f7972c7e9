//! `remuda user grant` and `remuda user revoke`: roles of people and of groups.

use clap::Args;
use kube::api::ApiResource;
use remuda_plan::naming::safe_concat_name;
use serde_json::{Value, json};

use super::{existing, label, owned_by};
use crate::{
    api::{self, Which},
    failure::{Code, Failure},
    near,
    object::Object,
    session::Session,
    token,
};

#[derive(Args, Debug)]
pub struct Whom {
    /// Name of the user
    #[arg(required_unless_present = "group", conflicts_with = "group")]
    pub name: Option<String>,

    /// Everybody in this group, as the authentication provider names it
    #[arg(long, value_name = "PRINCIPAL")]
    pub group: Option<String>,
}

#[derive(Args, Debug)]
pub struct Grant {
    #[command(flatten)]
    pub whom: Whom,

    /// In this cluster [default: on the whole server]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,

    /// The role: a RoleTemplate in a cluster, such as cluster-member or cluster-owner, else a GlobalRole
    #[arg(long, value_name = "ROLE")]
    pub role: String,
}

#[derive(Args, Debug)]
pub struct Revoke {
    #[command(flatten)]
    pub whom: Whom,

    /// In this cluster [default: on the whole server]
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,

    /// The role [default: all they have in the cluster]
    #[arg(long, value_name = "ROLE", required_unless_present = "cluster")]
    pub role: Option<String>,
}

/// Who has a role.
pub(super) enum Subject {
    User(Object),
    Group(String),
}

impl Subject {
    async fn find(session: &Session, whom: &Whom) -> Result<Self, Failure> {
        match (&whom.name, &whom.group) {
            (Some(name), _) => {
                let mut found = existing(session, std::slice::from_ref(name)).await?;
                Ok(Self::User(found.remove(0)))
            }
            (None, group) => {
                let group = group.clone().unwrap_or_default();
                if group.is_empty() || group.starts_with("system:") {
                    return Err(Failure::invalid(format!(
                        "{group:?} is no group of an authentication provider"
                    ))
                    .hint("such as genericoidc_group://developers"));
                }
                Ok(Self::Group(group))
            }
        }
    }

    fn label(&self) -> String {
        match self {
            Self::User(user) => format!("user {}", label(user)),
            Self::Group(group) => format!("group {group}"),
        }
    }

    fn is_of(&self, binding: &Object) -> bool {
        match self {
            Self::User(user) => binding.text("/userName") == user.name(),
            Self::Group(group) => {
                [binding.text("/groupPrincipalName"), binding.text("/groupName")].contains(&group.as_str())
            }
        }
    }

    /// A binding of a name that follows from what it says.
    fn binding(&self, kind: &ApiResource, prefix: &str, role: &str) -> Object {
        let who = match self {
            Self::User(user) => user.name().to_owned(),
            Self::Group(group) => format!("group-{}", &remuda_plan::sha256_hex(group.as_bytes())[..10]),
        };
        let mut object = json!({
            "apiVersion": kind.api_version, "kind": kind.kind,
            "metadata": {"name": safe_concat_name(&[prefix, &who, role])},
        });
        match self {
            Self::User(user) => {
                object["userName"] = user.name().into();
                object["metadata"]["ownerReferences"] = owned_by(user);
            }
            Self::Group(group) => object["groupPrincipalName"] = group.as_str().into(),
        }
        Object(object)
    }
}

pub(super) async fn grant(session: &Session, arguments: Grant) -> Result<(), Failure> {
    let subject = Subject::find(session, &arguments.whom).await?;
    let (role, who) = (&arguments.role, subject.label());
    let (given, place) = match &arguments.cluster {
        Some(cluster) => {
            exists(session, "RoleTemplate", role).await?;
            let id = token::management_name(session, cluster).await?;
            (in_cluster(session, &subject, &id, role).await?, format!("in cluster {cluster}"))
        }
        None => {
            exists(session, "GlobalRole", role).await?;
            (on_server(session, &subject, role).await?, "on the server".to_owned())
        }
    };
    let already = if given { "" } else { " already" };
    session.out.note(&format!("{who} is {role} {place}{already}"));
    Ok(())
}

/// Whether the role was not theirs before.
pub(super) async fn on_server(session: &Session, subject: &Subject, role: &str) -> Result<bool, Failure> {
    let kind = api::management("GlobalRoleBinding");
    let known = api::try_list(&session.client, &kind, None, Which::All).await?;
    if known.iter().any(|binding| subject.is_of(binding) && binding.text("/globalRoleName") == role) {
        return Ok(false);
    }
    let mut binding = subject.binding(&kind, "grb", role);
    binding.0["globalRoleName"] = role.into();
    api::create(&session.client, &kind, None, &binding, false).await?;
    Ok(true)
}

async fn in_cluster(session: &Session, subject: &Subject, id: &str, role: &str) -> Result<bool, Failure> {
    let kind = api::management("ClusterRoleTemplateBinding");
    let known = api::try_list(&session.client, &kind, Some(id), Which::All).await?;
    if known.iter().any(|binding| subject.is_of(binding) && binding.text("/roleTemplateName") == role) {
        return Ok(false);
    }
    let mut binding = subject.binding(&kind, "crtb", role);
    binding.0["metadata"]["namespace"] = id.into();
    binding.0["clusterName"] = id.into();
    binding.0["roleTemplateName"] = role.into();
    api::create(&session.client, &kind, Some(id), &binding, false).await?;
    Ok(true)
}

pub(super) async fn revoke(session: &Session, arguments: Revoke) -> Result<(), Failure> {
    let subject = Subject::find(session, &arguments.whom).await?;
    let who = subject.label();
    let (kind, namespace, field, place) = match &arguments.cluster {
        Some(cluster) => {
            let id = token::management_name(session, cluster).await?;
            let kind = api::management("ClusterRoleTemplateBinding");
            (kind, Some(id), "/roleTemplateName", format!("in cluster {cluster}"))
        }
        None => (api::management("GlobalRoleBinding"), None, "/globalRoleName", "on the server".to_owned()),
    };
    let known = api::try_list(&session.client, &kind, namespace.as_deref(), Which::All).await?;
    let wanted = arguments.role.as_deref();
    let meant = |binding: &&Object| {
        subject.is_of(binding) && wanted.is_none_or(|wanted| binding.text(field) == wanted)
    };
    let mut taken = 0;
    for binding in known.iter().filter(meant) {
        api::delete(&session.client, &kind, namespace.as_deref(), binding.name(), false).await?;
        session.out.note(&format!("{who} is no longer {} {place}", binding.text(field)));
        taken += 1;
    }
    if taken == 0 {
        let what = wanted.unwrap_or("anything");
        session.out.note(&format!("{who} is not {what} {place}: nothing to take away"));
    }
    Ok(())
}

async fn exists(session: &Session, kind: &str, name: &str) -> Result<(), Failure> {
    let resource = api::management(kind);
    if api::get(&session.client, &resource, None, name).await?.is_some() {
        return Ok(());
    }
    let known = api::try_list(&session.client, &resource, None, Which::All).await?;
    Err(no_role(kind, name, &known))
}

pub(super) fn no_role(kind: &str, name: &str, known: &[Object]) -> Failure {
    let list = format!("kubectl get {}s.management.cattle.io", kind.to_lowercase());
    Failure::new(Code::NotFound, format!("there is no {kind} {name}")).hint(near::hint(
        name,
        known.iter().map(Object::name),
        &list,
    ))
}

/// Roles of a user, for a table.
pub(super) fn roles_of<'a>(user: &Object, bindings: &'a [Object], field: &str) -> Vec<&'a str> {
    let mine = bindings.iter().filter(|binding| binding.text("/userName") == user.name());
    let mut roles: Vec<&str> =
        mine.filter_map(|binding| binding.0.pointer(field)).filter_map(Value::as_str).collect();
    roles.sort_unstable();
    roles.dedup();
    roles
}
