//! `remuda assets`: programs a server hands out to machines of other architectures than its own.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use http::{Method, Request};
use remuda_names::path;
use remuda_oci::agent::{AgentImageError, Build};
use serde_json::Value;

use crate::{
    failure::{Code, Failure, chain},
    output::Format,
    session::{Global, Session},
    table::Table,
    token::send,
};

#[derive(Args, Debug)]
pub struct Assets {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: AssetsCommand,
}

#[derive(Subcommand, Debug)]
pub enum AssetsCommand {
    /// Give the server a build of Remuda for machines of another architecture
    #[command(
        after_help = "It takes the place of one that was added before for the same platform. Of several servers on one datastore, each
is given its own.

Examples:
  remuda assets add remuda-linux-arm64
  remuda assets add remuda-linux-arm64 --sha256 9f2c…"
    )]
    Add(Add),
    /// Programs that were added; the server's own architecture needs none
    #[command(after_help = "Examples:
  remuda assets list
  remuda assets list -o json")]
    List(List),
}

#[derive(Args, Debug)]
pub struct Add {
    /// A build of Remuda: for Linux (ELF) or Windows (PE), at most one minor version from the server's
    pub file: PathBuf,

    /// What its SHA-256 has to be [default: it is not compared with anything]
    #[arg(long, value_name = "HEX")]
    pub sha256: Option<String>,
}

#[derive(Args, Debug)]
pub struct List {
    /// How to print it
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

pub(crate) async fn run(session: &Session, command: AssetsCommand) -> Result<(), Failure> {
    match command {
        AssetsCommand::Add(arguments) => add(session, &arguments).await,
        AssetsCommand::List(arguments) => list(session, &arguments).await,
    }
}

/// Looked at before it is sent, so that a mistake does not take a minute.
async fn add(session: &Session, arguments: &Add) -> Result<(), Failure> {
    let path = arguments.file.clone();
    let looked = tokio::task::spawn_blocking(move || Build::look(&path)).await;
    let looked = looked.map_err(|error| Failure::new(Code::Other, chain(&error)))?;
    let build = looked.map_err(|error| {
        let code = if matches!(error, AgentImageError::Read { .. }) { Code::Other } else { Code::Invalid };
        Failure::new(code, chain(&error))
    })?;
    let sum = build.digest.hex();
    if let Some(wanted) = arguments.sha256.as_ref().filter(|wanted| !wanted.eq_ignore_ascii_case(sum)) {
        let file = arguments.file.display();
        return Err(Failure::invalid(format!("{file} has the SHA-256 {sum}, expected is {wanted}")));
    }
    let bytes = tokio::fs::read(&arguments.file)
        .await
        .map_err(|error| Failure::new(Code::Other, format!("read {}: {error}", arguments.file.display())))?;
    let request = Request::post(format!("{}?sha256={sum}", path::ASSETS))
        .header(http::header::CONTENT_TYPE, "application/octet-stream")
        .body(bytes)
        .map_err(|error| Failure::new(Code::Other, error.to_string()))?;
    let added = session.client.request::<Value>(request).await;
    let added = added.map_err(|error| Failure::api("add the program", &error))?;
    let version = added["version"].as_str().unwrap_or_default();
    session.out.note(&format!("machines with {} get Remuda {version} from now on", platform(&added)));
    Ok(())
}

async fn list(session: &Session, arguments: &List) -> Result<(), Failure> {
    let found = send(session, "list programs", Method::GET, path::ASSETS, &Value::Null).await?;
    let items = found["items"].as_array().cloned().unwrap_or_default();
    match arguments.output {
        Format::Json | Format::Yaml => return session.out.document(&found, arguments.output),
        Format::Name => {
            items.iter().for_each(|item| session.out.line(&platform(item)));
            return Ok(());
        }
        Format::Table | Format::Wide => {}
    }
    let mut table = Table::new(["PLATFORM", "VERSION", "MIB", "SHA256"]);
    for item in &items {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let size = item["size"].as_u64().unwrap_or_default() >> 20;
        table.row(vec![
            platform(item).into(),
            text("version").into(),
            size.to_string().into(),
            text("sha256").into(),
        ]);
    }
    session.out.table(&table, arguments.output);
    Ok(())
}

fn platform(item: &Value) -> String {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    format!("{}/{}", text("os"), text("architecture"))
}
