//! `remuda user`: people, their passwords and their roles, without a line of YAML.
//!
//! People are named by what they log in with, or by the name of their User. Whatever is as asked for already is
//! left as it is, and said to be.

mod create;
mod grant;
mod list;
mod password;
mod second_factor;

use clap::{Args, Subcommand};
use http::Method;
use remuda_names::identity::path;
use serde_json::{Value, json};

use crate::{
    api::{self, Which},
    failure::{Code, Failure},
    near,
    object::Object,
    session::{Global, Session},
    token,
};

#[derive(Args, Debug)]
pub struct User {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: UserCommand,
}

#[derive(Subcommand, Debug)]
pub enum UserCommand {
    /// Make somebody a user; without a password one is made up and printed, to be changed at the first login
    #[command(after_help = "Examples:
  remuda user create ann --display-name 'Ann'
  remuda user create ops --role admin
  remuda user create ci --role user-base --password-stdin < password")]
    Create(create::Create),
    /// Users and their roles
    #[command(after_help = "Examples:
  remuda user list
  remuda user list -o json")]
    List(list::List),
    /// Keep users out, and end all they have open
    #[command(after_help = "Examples:
  remuda user disable ann")]
    Disable(Names),
    /// Let users in again
    #[command(after_help = "Examples:
  remuda user enable ann")]
    Enable(Names),
    /// Delete users, with their tokens and the roles they were given by name
    #[command(after_help = "Examples:
  remuda user delete ann")]
    Delete(Names),
    /// Choose another password, or give one to somebody
    #[command(after_help = "Examples:
  remuda user password                            your own
  remuda user password ann --generate             printed, and to be changed at the next login
  remuda user password ci --password-stdin < password")]
    Password(password::Password),
    /// Codes of an authenticator, asked for beside the password
    #[command(subcommand)]
    SecondFactor(second_factor::SecondFactor),
    /// Give somebody a role in a cluster, or on the whole server
    #[command(after_help = "Examples:
  remuda user grant ann --cluster demo --role cluster-member
  remuda user grant ann --role admin              on the server, and so in all clusters
  remuda user grant --group genericoidc_group://dev --cluster demo --role cluster-owner")]
    Grant(grant::Grant),
    /// Take a role away again
    #[command(after_help = "Examples:
  remuda user revoke ann --cluster demo           all roles there
  remuda user revoke ann --cluster demo --role cluster-member
  remuda user revoke ann --role admin")]
    Revoke(grant::Revoke),
}

#[derive(Args, Debug)]
pub struct Names {
    /// Names of users
    #[arg(required = true)]
    pub names: Vec<String>,
}

pub(crate) async fn run(session: &Session, command: UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Create(arguments) => create::run(session, arguments).await,
        UserCommand::List(arguments) => list::run(session, &arguments).await,
        UserCommand::Disable(names) => {
            let me = me(session).await?;
            for user in existing(session, &names.names).await? {
                if me.as_deref() == Some(user.name()) {
                    let message = format!("{} is you, and could not be let in again by you", label(&user));
                    return Err(Failure::invalid(message).hint("have another administrator do it"));
                }
                switch(session, &user, false).await?;
            }
            Ok(())
        }
        UserCommand::Enable(names) => {
            for user in existing(session, &names.names).await? {
                switch(session, &user, true).await?;
            }
            Ok(())
        }
        UserCommand::Delete(names) => delete(session, &names.names).await,
        UserCommand::Password(arguments) => password::run(session, arguments).await,
        UserCommand::SecondFactor(command) => second_factor::run(session, command).await,
        UserCommand::Grant(arguments) => grant::grant(session, arguments).await,
        UserCommand::Revoke(arguments) => grant::revoke(session, arguments).await,
    }
}

/// What people call a user.
fn label(user: &Object) -> &str {
    match user.text("/username") {
        "" => user.name(),
        username => username,
    }
}

async fn all(session: &Session) -> Result<Vec<Object>, Failure> {
    api::try_list(&session.client, &api::management("User"), None, Which::All).await
}

fn find<'a>(users: &'a [Object], name: &str) -> Option<&'a Object> {
    let by_login = users
        .iter()
        .find(|user| !name.is_empty() && user.text("/username").to_lowercase() == name.to_lowercase());
    by_login.or_else(|| users.iter().find(|user| user.name() == name))
}

/// Users by their names; a failure if there is none of one.
async fn existing(session: &Session, names: &[String]) -> Result<Vec<Object>, Failure> {
    let users = all(session).await?;
    names
        .iter()
        .map(|name| {
            find(&users, name).cloned().ok_or_else(|| {
                let known = users.iter().map(label);
                Failure::new(Code::NotFound, format!("there is no user {name}")).hint(near::hint(
                    name,
                    known,
                    "remuda user list",
                ))
            })
        })
        .collect()
}

/// The User of whoever asks; nothing if they came otherwise.
async fn me(session: &Session) -> Result<Option<String>, Failure> {
    let path = format!("{}?me=true", path::USERS);
    let answer = token::send(session, "ask who you are", Method::GET, &path, &Value::Null).await?;
    Ok(answer.pointer("/data/0/id").and_then(Value::as_str).map(str::to_owned))
}

async fn switch(session: &Session, user: &Object, on: bool) -> Result<(), Failure> {
    let users = api::management("User");
    let changed = api::change(&session.client, &users, None, user.name(), false, |user| {
        // Absent is enabled.
        let is_on = user.0.get("enabled").and_then(Value::as_bool).unwrap_or(true);
        user.0["enabled"] = on.into();
        Ok(is_on != on)
    });
    let state = if on { "enabled" } else { "disabled" };
    match changed.await? {
        Some(_) => session.out.note(&format!("user {} is {state}", label(user))),
        None => session.out.note(&format!("user {} is {state} already", label(user))),
    }
    Ok(())
}

async fn delete(session: &Session, names: &[String]) -> Result<(), Failure> {
    let (users, me) = (all(session).await?, me(session).await?);
    for name in names {
        let Some(user) = find(&users, name) else {
            session.out.note(&format!("there is no user {name}: nothing to delete"));
            continue;
        };
        // What names them goes first.
        if !user.text("/metadata/deletionTimestamp").is_empty() {
            session.out.note(&format!("user {name} is going already: nothing to delete"));
            continue;
        }
        if me.as_deref() == Some(user.name()) {
            return Err(
                Failure::invalid(format!("{} is you", label(user))).hint("have another administrator do it")
            );
        }
        api::delete(&session.client, &api::management("User"), None, user.name(), false).await?;
        session.out.note(&format!("user {} is deleted", label(user)));
    }
    Ok(())
}

/// What goes when its user goes.
fn owned_by(user: &Object) -> Value {
    json!([{
        "apiVersion": api::management("User").api_version, "kind": "User",
        "name": user.name(), "uid": user.text("/metadata/uid"),
    }])
}
