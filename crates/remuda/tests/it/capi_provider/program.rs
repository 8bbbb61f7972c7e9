//! The program of a provider: what it sees of the server, and webhooks as controller-runtime serves them.

#![allow(clippy::print_stdout, reason = "what a program says is what is looked at")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::Arc,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};

use super::{SIMS, read};
use crate::client::client_with;

/// The command line; without it this is a test that has nothing to do.
pub(super) const ARGUMENTS: &str = "PROVIDER_ARGUMENTS";
pub(super) const PID_FILE: &str = "PROVIDER_PID_FILE";

#[test]
fn plays_a_provider() {
    let Some(arguments) = std::env::var_os(ARGUMENTS) else { return };
    let arguments = arguments.into_string().unwrap();
    let flag = |name: &str| {
        let value = arguments.split(' ').find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("there is no {name} in {arguments:?}")).to_owned()
    };
    assert_eq!(std::env::var_os("POD_NAMESPACE").unwrap(), "sim-system");
    let looked = tokio::runtime::Runtime::new().unwrap().block_on(look());
    if let Err(refused) = looked {
        println!("the program may not list simclusters: {refused}");
        std::process::exit(1);
    }
    let file = std::env::var_os(PID_FILE).unwrap();
    let file = Path::new(&file);
    fs::write(file.with_extension("new"), std::process::id().to_string()).unwrap();
    fs::rename(file.with_extension("new"), file).unwrap();
    serve(flag("--webhook-port").parse().unwrap(), Path::new(&flag("--webhook-cert-dir")));
}

/// What the kubeconfig it was given opens.
async fn look() -> Result<(), u16> {
    let kubeconfig = std::env::var_os("KUBECONFIG").unwrap();
    let client = client_with(Path::new(&kubeconfig), |_| {}).await;
    let get = async |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        match client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.code),
            Err(error) => panic!("{error}"),
        }
    };
    get(SIMS).await?;
    let sims = read(&client, SIMS).await["items"].as_array().unwrap().len();
    println!(
        "the program sees {sims} simclusters, and of secrets: {}",
        get("/api/v1/secrets").await.unwrap_err()
    );
    Ok(())
}

fn serve(port: u16, certificates: &Path) {
    let chain = CertificateDer::pem_file_iter(certificates.join("tls.crt")).unwrap();
    let chain = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(certificates.join("tls.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    for stream in TcpListener::bind(("127.0.0.1", port)).unwrap().incoming().flatten() {
        // Connections that are only tried break off.
        let _ = answer(stream, config.clone());
    }
}

/// One review on one connection.
fn answer(stream: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if path.is_empty() {
            line.split(' ').nth(1).unwrap_or_default().clone_into(&mut path);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let review: Value = serde_json::from_slice(&body)?;
    let mut review_answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"]});
    review_answer["response"] = match path.split('?').next() {
        Some("/validate") => validate(&review["request"]),
        Some("/convert") => convert(&review["request"]),
        _ => panic!("nothing asks for {path}"),
    };
    let text = review_answer.to_string();
    let stream = reader.get_mut();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )?;
    stream.flush()?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn validate(request: &Value) -> Value {
    let refused = request["object"]["spec"]["refuse"] == true;
    json!({"uid": request["uid"], "allowed": !refused, "status": {"message": "this simcluster is refused"}})
}

fn convert(request: &Value) -> Value {
    let mut objects = request["objects"].as_array().unwrap().clone();
    for object in &mut objects {
        object["apiVersion"] = request["desiredAPIVersion"].clone();
        object["converted"] = "by the program".into();
    }
    json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects})
}
