//! `remuda login`: a password becomes a context in a kubeconfig file.

mod prompt;

use std::{io::Read, path::PathBuf, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use http::{Request, StatusCode};
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions},
};
use remuda_names::identity::{FIRST_USERNAME, path};
use serde_json::{Value, json};

use crate::{
    age,
    failure::{Code, Failure, chain},
    kubeconfig,
    output::Out,
    session::Global,
    token,
};

#[derive(Args, Debug)]
pub struct Login {
    /// Where the server is, as https://HOST:PORT [default: the one that is known]
    pub server: Option<String>,

    /// Name at login
    #[arg(long, short, default_value = FIRST_USERNAME, value_name = "NAME")]
    pub username: String,

    /// Read the password from standard input
    #[arg(long)]
    pub password_stdin: bool,

    /// Certificates the server is trusted by [default: those of the system, or of the server that is known]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// How long the login is good for, at most what the server allows [default: what the server says]
    #[arg(long, value_name = "DURATION", value_parser = age::parse)]
    pub ttl: Option<Duration>,

    /// The kubeconfig file to put it into [default: ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub into: Option<PathBuf>,

    /// What the context is called
    #[arg(long = "as", value_name = "NAME", default_value = "remuda")]
    pub called: String,

    /// Replace a context of the same name that leads to another server
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub global: Global,
}

pub(crate) async fn run(arguments: &Login) -> Result<(), Failure> {
    let out = Out::default();
    let config = server(arguments).await?;
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let ca: String = config.root_cert.iter().flatten().map(|der| pem(der)).collect();
    let client = Client::try_from(config)
        .map_err(|error| Failure::new(Code::Unreachable, format!("{url}: {}", chain(&error))))?;
    let password = if arguments.password_stdin {
        let mut text = String::new();
        let read = std::io::stdin().take(4096).read_to_string(&mut text);
        read.map_err(|error| Failure::invalid(format!("read the password: {error}")))?;
        text.trim_end_matches(['\r', '\n']).to_owned()
    } else {
        prompt::hidden(&format!("Password of {} at {url}: ", arguments.username))?
    };
    let mut body = json!({
        "username": arguments.username, "password": password, "responseType": "json",
        "description": "remuda login", "ttl": arguments.ttl.map_or(0, token::milliseconds),
    });
    let issued = match ask(&client, &body).await {
        Err(failure) if failure.code == Code::Conflict && !arguments.password_stdin => {
            out.note("another password must be chosen");
            let new = prompt::hidden("New password: ")?;
            if prompt::hidden("Again: ")? != new {
                return Err(Failure::invalid("the two are not the same"));
            }
            body["newPassword"] = new.into();
            ask(&client, &body).await?
        }
        answer => answer?,
    };
    let token = issued["token"].as_str().unwrap_or_default();
    let path = kubeconfig::add(
        &entry(&url, &ca, token),
        &arguments.called,
        arguments.into.clone(),
        true,
        arguments.force,
    )?;
    let until = issued["expiresAt"].as_str().filter(|at| !at.is_empty());
    let until = until.map(|at| format!(" until {at}")).unwrap_or_default();
    out.note(&format!("logged in{until}; {} has context {}", path.display(), arguments.called));
    Ok(())
}

/// How the server is reached, without anybody's credentials.
async fn server(arguments: &Login) -> Result<Config, Failure> {
    let mut config = match &arguments.server {
        Some(server) => {
            let given = server.trim_end_matches('/');
            let url = given.parse::<http::Uri>().ok().filter(|url| url.scheme_str() == Some("https"));
            let Some(url) = url else {
                return Err(Failure::invalid(format!("{server:?} is not the address of a server"))
                    .hint("write it as https://HOST:PORT"));
            };
            Config::new(url)
        }
        None => {
            let (kubeconfig, origin) = arguments.global.find()?;
            let context = arguments.global.context.clone();
            let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            config.map_err(|error| Failure::new(Code::Unreachable, format!("{origin}: {}", chain(&error))))?
        }
    };
    if let Some(path) = &arguments.ca_file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(Code::NotFound, format!("read {}: {error}", path.display())))?;
        let certificates = certificates(&text);
        if certificates.is_empty() {
            return Err(Failure::invalid(format!("there is no certificate in {}", path.display())));
        }
        config.root_cert = Some(certificates);
    }
    config.auth_info = AuthInfo::default();
    Ok(config)
}

async fn ask(client: &Client, body: &Value) -> Result<Value, Failure> {
    let request = Request::post(path::LOGIN).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes());
    let request = request.map_err(|error| Failure::new(Code::Other, error.to_string()))?;
    client.request::<Value>(request).await.map_err(|error| match &error {
        kube::Error::Api(status) if status.code == StatusCode::UNAUTHORIZED.as_u16() => {
            Failure::new(Code::Forbidden, "log in: the name or the password is wrong")
        }
        kube::Error::Api(_) => Failure::api("log in", &error),
        _ => Failure::api("log in", &error).hint(
            "if the server's certificate is its own, name its authority with --ca-file: the server gives it at /cacerts",
        ),
    })
}

fn entry(url: &str, ca: &str, token: &str) -> Value {
    let mut cluster = json!({"server": url});
    if !ca.is_empty() {
        cluster["certificate-authority-data"] = BASE64_STANDARD.encode(ca).into();
    }
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "remuda",
        "clusters": [{"name": "remuda", "cluster": cluster}],
        "users": [{"name": "remuda", "user": {"token": token}}],
        "contexts": [{"name": "remuda", "context": {"cluster": "remuda", "user": "remuda"}}],
    })
}

fn pem(der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn certificates(text: &str) -> Vec<Vec<u8>> {
    let parts = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    let bodies = parts.filter_map(|part| part.split("-----END CERTIFICATE-----").next());
    bodies
        .filter_map(|body| BASE64_STANDARD.decode(body.split_whitespace().collect::<String>()).ok())
        .filter(|der| !der.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_survive_a_round_trip() {
        let text = format!("# mine\n{}{}", pem(&[1; 100]), pem(&[2; 3]));
        assert_eq!(certificates(&text), [vec![1; 100], vec![2; 3]]);
        assert!(certificates("nothing").is_empty());
        assert!(certificates("-----BEGIN CERTIFICATE-----\n!\n").is_empty());
    }

    #[test]
    fn an_entry_leads_to_the_server_with_the_token() {
        let entry = entry("https://h:1", "", "token-a:key");
        assert_eq!(entry["clusters"][0]["cluster"], json!({"server": "https://h:1"}));
        assert_eq!(entry["users"][0]["user"]["token"], "token-a:key");
    }
}
