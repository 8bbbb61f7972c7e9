//! `remuda login`: a password, or a login in a browser, becomes a context in a kubeconfig file, and the server commands
//! go to; `remuda logout` ends that.

mod first_password;
pub(crate) mod prompt;
pub(crate) mod second_factor;
mod sso;

use std::{path::PathBuf, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use http::StatusCode;
use kube::{Client, Config, config::AuthInfo};
use remuda_names::{
    gateway::path::CACERTS,
    identity::{FIRST_USERNAME, path::LOGOUT},
};
use serde_json::{Value, json};

use crate::{
    age,
    failure::{Code, Failure, chain},
    kubeconfig,
    locate::Surroundings,
    output::{self, Out},
    session::{Global, Session, config},
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

    /// A code of the second factor, or a recovery code [default: asked for if it is needed]
    #[arg(long, value_name = "CODE", conflicts_with = "sso")]
    pub otp: Option<String>,

    /// Log in with a browser, at the provider the server trusts
    #[arg(long, conflicts_with_all = ["username", "password_stdin"])]
    pub sso: bool,

    /// With --sso: print where to log in, and do not start a browser
    #[arg(long, requires = "sso")]
    pub no_browser: bool,

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

#[derive(Args, Debug)]
pub struct Logout {}

pub(crate) async fn run(arguments: &Login) -> Result<(), Failure> {
    let (config, known_from) = server(arguments).await?;
    log_in(arguments, config).await.map_err(|failure| failure.at(known_from))
}

async fn log_in(arguments: &Login, config: Config) -> Result<(), Failure> {
    let out = Out::default();
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let ca: String = config.root_cert.iter().flatten().map(|der| pem(der)).collect();
    let client = Client::try_from(config)
        .map_err(|error| Failure::new(Code::Unreachable, format!("{url}: {}", chain(&error))))?;
    check_reachable(&client, &url).await?;
    let mut body = if arguments.sso {
        sso::login(&url, !arguments.no_browser, &out).await?
    } else {
        let password = match arguments.password_stdin {
            true => prompt::from_stdin()?,
            false => prompt::hidden(&format!("Password of {} at {url}: ", arguments.username))?,
        };
        json!({"username": arguments.username, "password": password})
    };
    body["responseType"] = "json".into();
    body["description"] = "remuda login".into();
    body["ttl"] = arguments.ttl.map_or(0, token::milliseconds).into();
    let issued = second_factor::log_in(&client, &mut body, arguments, &out).await?;
    let token = issued["token"].as_str().unwrap_or_default();
    let entry = entry(&url, &ca, token);
    let path = kubeconfig::add(&entry, &arguments.called, arguments.into.clone(), true, arguments.force)?;
    // A file that was named is for whoever named it.
    if arguments.into.is_none() {
        remember(&entry)?;
    }
    let until = issued["expiresAt"].as_str().filter(|at| !at.is_empty());
    let until = until.map(|at| format!(" until {at}")).unwrap_or_default();
    out.note(&format!("logged in{until}; {} has context {}", path.display(), arguments.called));
    if let Some(password) = body["password"].as_str() {
        first_password::offer(&client, token, password, !arguments.password_stdin, &out).await?;
    }
    Ok(())
}

/// Checked before the prompt, so that no password is typed for a server that is away, or not the one that is meant.
async fn check_reachable(client: &Client, url: &str) -> Result<(), Failure> {
    let request = http::Request::get(CACERTS).body(Vec::new());
    let request = request.map_err(|error| Failure::new(Code::Other, error.to_string()))?;
    let error = match client.request_text(request).await {
        Ok(_) | Err(kube::Error::Api(_)) => return Ok(()),
        Err(error) => error,
    };
    let told = chain(&error);
    if !told.contains("certificate") {
        return Err(Failure::api("log in", &error));
    }
    Err(Failure::new(Code::Unreachable, format!("the certificate of {url} is not trusted: {told}")).hint(format!(
        "if it is the server's own, fetch its authority, compare it with pki/ca.crt in its data directory, and name \
         it: curl -k {url}{CACERTS} -o ca.pem && remuda login {url} --ca-file ca.pem"
    )))
}

/// Notes the server apart from what kubectl uses: where commands go does not change with its contexts.
fn remember(entry: &Value) -> Result<(), Failure> {
    match Surroundings::here().remembered() {
        Some(path) => kubeconfig::write_private(&path, &output::yaml(entry)?),
        None => Ok(()),
    }
}

/// Ends the session at the server, as far as that answers, and forgets it.
pub(crate) async fn logout(_: &Logout) -> Result<(), Failure> {
    let out = Out::default();
    let Some(path) = Surroundings::here().remembered().filter(|path| path.exists()) else {
        return Err(Failure::new(Code::NotFound, "no login is remembered").hint("remuda login makes one"));
    };
    let global = Global { kubeconfig: Some(path.clone()), ..Global::default() };
    let located = global.locate()?;
    let ended = async {
        let client = Client::try_from(config(&located).await?)
            .map_err(|error| Failure::new(Code::Unreachable, chain(&error)))?;
        let session = Session::new(client);
        token::send(&session, "log out", http::Method::POST, LOGOUT, &json!({})).await
    };
    let ended = ended.await;
    std::fs::remove_file(&path)
        .map_err(|error| Failure::new(Code::Other, format!("remove {}: {error}", path.display())))?;
    match ended {
        Ok(_) => out.note(&format!("logged out of {}", located.url)),
        // Whoever is not known any more is logged out.
        Err(failure) if failure.code == Code::Forbidden => {
            out.note(&format!("the login at {} was over already; it is forgotten", located.url));
        }
        Err(failure) => {
            return Err(Failure {
                message: format!("the login is forgotten here, but {}", failure.message),
                ..failure
            }
            .hint("it may be good until it ends: revoke it with remuda token revoke, or wait")
            .at(&located));
        }
    }
    Ok(())
}

/// How the server is reached, without anybody's credentials, and where it is known from.
async fn server(arguments: &Login) -> Result<(Config, String), Failure> {
    let (mut config, known_from) = match &arguments.server {
        Some(server) => {
            let given = server.trim_end_matches('/');
            let url = given.parse::<http::Uri>().ok().filter(|url| url.scheme_str() == Some("https"));
            let Some(url) = url else {
                return Err(Failure::invalid(format!("{server:?} is not the address of a server"))
                    .hint("write it as https://HOST:PORT"));
            };
            (Config::new(url), given.to_owned())
        }
        None => {
            let located = arguments.global.locate()?;
            (config(&located).await?, located.to_string())
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
    Ok((config, known_from))
}

/// Why a login failed that cannot be helped by asking further.
fn failed(body: &Value, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) if status.code == StatusCode::UNAUTHORIZED.as_u16() => {
            let wrong =
                if body["code"].is_null() { "the name or the password is wrong" } else { "it took too long" };
            Failure::new(Code::Forbidden, format!("log in: {wrong}"))
        }
        kube::Error::Api(_) => Failure::api("log in", error),
        _ => Failure::api("log in", error),
    }
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
