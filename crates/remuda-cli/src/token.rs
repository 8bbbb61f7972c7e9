//! `remuda token`: tokens for programs, by which they are their owner.

use std::time::Duration;

use clap::{Args, Subcommand};
use http::{Method, Request};
use jiff::Timestamp;
use remuda_names::identity::{path, token_reason::NOT_A_USER};
use serde_json::{Value, json};

use crate::{
    age, api,
    failure::{Code, Failure},
    output::{Format, list as objects},
    session::{Global, Session},
    table::{Cell, Table, Tone},
};

#[derive(Args, Debug)]
pub struct Token {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: TokenCommand,
}

#[derive(Subcommand, Debug)]
pub enum TokenCommand {
    /// Make a token, and print it: it cannot be read again
    #[command(after_help = "Examples:
  remuda token create --description ci --ttl 30d
  remuda token create --cluster demo              good for this cluster only
  remuda token create --user user-abcde           of somebody else, for administrators")]
    Create(Create),
    /// Tokens, without their secrets
    #[command(after_help = "Examples:
  remuda token list
  remuda token list --user user-abcde")]
    List(List),
    /// End tokens, and what is under way with them
    #[command(after_help = "Examples:
  remuda token revoke token-x7k2p")]
    Revoke {
        /// Names of tokens
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Args, Debug)]
pub struct Create {
    /// What it is for
    #[arg(long, short, default_value = "", value_name = "TEXT", hide_default_value = true)]
    pub description: String,

    /// How long it is good for, at most what the server allows [default: what the server says]
    #[arg(long, value_name = "DURATION", value_parser = age::parse)]
    pub ttl: Option<Duration>,

    /// Good for this cluster only
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,

    /// Whose it is: the name of a User [default: yours]
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,

    /// How to print it; a table is the token alone
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

#[derive(Args, Debug)]
pub struct List {
    /// Of this User [default: of you]
    #[arg(long, value_name = "USER", conflicts_with = "all")]
    pub user: Option<String>,

    /// Of everybody
    #[arg(long, short = 'A')]
    pub all: bool,

    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// As the server counts.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    // Nothing is what is usual, which was not meant.
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1)
}

pub(crate) async fn run(session: &Session, command: TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Create(arguments) => create(session, arguments).await,
        TokenCommand::List(arguments) => list(session, arguments).await,
        TokenCommand::Revoke { names } => {
            for name in names {
                api::check_name(&name)?;
                let path = format!("{}/{name}", path::TOKENS);
                send(session, "revoke the token", Method::DELETE, &path, &json!(null)).await?;
                session.out.note(&format!("token {name} is revoked"));
            }
            Ok(())
        }
    }
}

pub(crate) async fn send(
    session: &Session,
    doing: &str,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<Value, Failure> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(body).map_err(|error| Failure::new(Code::Other, error.to_string()))?;
    session.client.request::<Value>(request).await.map_err(|error| Failure::api(doing, &error))
}

async fn create(session: &Session, arguments: Create) -> Result<(), Failure> {
    let cluster = match &arguments.cluster {
        Some(name) => management_name(session, name).await?,
        None => String::new(),
    };
    if let Some(user) = &arguments.user {
        api::check_name(user)?;
    }
    let body = json!({
        "description": arguments.description,
        "ttl": arguments.ttl.map_or(0, milliseconds),
        "clusterId": cluster,
        "userId": arguments.user.unwrap_or_default(),
    });
    let named = body["userId"].as_str().unwrap_or_default();
    let made = send(session, "make a token", Method::POST, path::TOKENS, &body).await;
    let made = made.map_err(|failure| match failure.reason.as_str() {
        NOT_A_USER => no_user(named, failure),
        _ => failure,
    })?;
    match arguments.output {
        Format::Json | Format::Yaml => session.out.document(&made, arguments.output),
        Format::Name => {
            session.out.line(made["name"].as_str().unwrap_or_default());
            Ok(())
        }
        Format::Table | Format::Wide => {
            session.out.line(made["token"].as_str().unwrap_or_default());
            let until = made["expiresAt"].as_str().filter(|at| !at.is_empty()).unwrap_or("it is revoked");
            session.out.note(&format!("good until {until}; it cannot be read again"));
            Ok(())
        }
    }
}

/// Only users have tokens. Whoever has the server's own certificate is none.
fn no_user(named: &str, failure: Failure) -> Failure {
    let (message, hint) = match named {
        "" => (
            "make a token: whoever has the administrator's certificate is no user, and only users have tokens".to_owned(),
            "make one of a user: remuda token create --user NAME (column USER of remuda user list); or log in as one: \
             remuda login",
        ),
        named => (format!("make a token: there is no user {named}"), "column USER of remuda user list has their names"),
    };
    Failure { message, ..failure }.hint(hint)
}

/// What the server calls a cluster people know by another name.
pub(crate) async fn management_name(session: &Session, name: &str) -> Result<String, Failure> {
    let clusters = api::provisioning_clusters();
    let found = match api::get(&session.client, &clusters, Some(&session.namespace), name).await {
        // They may know it by its id only.
        Err(failure) if failure.code == Code::Forbidden => None,
        found => found?,
    };
    let Some(cluster) = found else {
        if api::get(&session.client, &api::management("Cluster"), None, name).await?.is_some() {
            return Ok(name.to_owned());
        }
        return Err(Failure::new(Code::NotFound, format!("there is no cluster {name}")));
    };
    let id = cluster.0.pointer("/status/clusterName").and_then(Value::as_str).filter(|id| !id.is_empty());
    id.map(str::to_owned).ok_or_else(|| {
        Failure::new(Code::NotFound, format!("cluster {name} is not known to the gateway yet"))
            .hint(format!("remuda why {name}"))
    })
}

async fn list(session: &Session, arguments: List) -> Result<(), Failure> {
    let path = match (&arguments.user, arguments.all) {
        (Some(user), _) => {
            api::check_name(user)?;
            format!("{}?userId={user}", path::TOKENS)
        }
        (None, true) => format!("{}?userId=", path::TOKENS),
        (None, false) => path::TOKENS.to_owned(),
    };
    let answer = send(session, "list tokens", Method::GET, &path, &json!(null)).await?;
    let tokens = answer["data"].as_array().cloned().unwrap_or_default();
    match arguments.output {
        Format::Json | Format::Yaml => session.out.document(&objects(tokens), arguments.output),
        Format::Name => {
            for token in &tokens {
                session.out.line(token["name"].as_str().unwrap_or_default());
            }
            Ok(())
        }
        Format::Table | Format::Wide => {
            session.out.table(&table(&tokens, Timestamp::now()), arguments.output);
            Ok(())
        }
    }
}

fn table(tokens: &[Value], now: Timestamp) -> Table {
    let mut table = Table::new(["NAME", "USER", "CLUSTER", "AGE", "LAST USED", "EXPIRES", "DESCRIPTION"]);
    for token in tokens {
        let text = |field: &str| token[field].as_str().unwrap_or_default().to_owned();
        let time = |field: &str| token[field].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        let expires = match time("expiresAt") {
            _ if token["enabled"] == false => Cell::toned("disabled", Tone::Bad),
            None => Cell::from("never"),
            Some(at) if at <= now => Cell::toned("expired", Tone::Bad),
            Some(at) => Cell::from(format!("in {}", age::short(at.as_second() - now.as_second()))),
        };
        let cluster = text("clusterId");
        let used = time("lastUsedAt")
            .map_or_else(|| "-".to_owned(), |at| format!("{} ago", age::ago(Some(at), now)));
        table.row(vec![
            Cell::from(text("name")),
            Cell::from(text("userId")),
            Cell::from(if cluster.is_empty() { "all".to_owned() } else { cluster }),
            Cell::from(age::ago(time("created"), now)),
            Cell::from(used),
            expires,
            Cell::from(text("description")),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_tokens_says_how_long_they_are_good() {
        let now: Timestamp = "2026-11-16T04:00:00Z".parse().unwrap();
        let tokens = [
            json!({"name": "token-a", "userId": "ann", "created": "2026-11-16T03:59:00Z",
                   "expiresAt": "2026-11-16T05:00:00Z", "lastUsedAt": "2026-11-16T03:59:30Z", "description": "ci"}),
            json!({"name": "token-b", "userId": "ann", "clusterId": "c-1", "expiresAt": "2026-11-16T03:00:00Z"}),
            json!({"name": "token-c", "userId": "ann", "enabled": false}),
        ];
        let text = anstream::adapter::strip_str(&table(&tokens, now).render("")).to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["token-a", "ann", "all", "60s", "30s", "ago", "in", "60m", "ci"]);
        assert_eq!(lines[2], ["token-b", "ann", "c-1", "-", "-", "expired", "-"]);
        assert_eq!(lines[3], ["token-c", "ann", "all", "-", "-", "disabled", "-"]);
    }

    #[test]
    fn no_time_at_all_is_not_the_usual_time() {
        assert_eq!(milliseconds(Duration::ZERO), 1);
        assert_eq!(milliseconds(Duration::MAX), i64::MAX);
    }
}
