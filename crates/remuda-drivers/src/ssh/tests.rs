use super::*;
use crate::{
    fake::ssh::SshServer,
    keys,
    log::{Log, MemoryLog},
};

const SOON: Duration = Duration::from_secs(10);

fn target(port: u16, key: &str) -> Target {
    Target {
        host: "127.0.0.1".into(),
        port,
        user: "root".into(),
        key: Secret::new(key),
        host_key: String::new(),
        patience: SOON,
    }
}

async fn world() -> (SshServer, Target) {
    let (private, public) = keys::generate("user").unwrap();
    let server = SshServer::start(&public).await;
    let target = target(server.port, &private);
    (server, target)
}

#[tokio::test]
async fn a_command_gets_its_input_and_its_output_streams_back() {
    let (_server, target) = world().await;
    let session = Session::connect(&target).await.unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = session
        .run("cat; echo oops >&2; exit 3", b"hello", SOON, |stream, data| match stream {
            Stream::Out => out.extend_from_slice(data),
            Stream::Err => err.extend_from_slice(data),
        })
        .await
        .unwrap();
    assert_eq!((status, out.as_slice(), err.as_slice()), (3, &b"hello"[..], &b"oops\n"[..]));
}

#[tokio::test]
async fn a_large_file_arrives_whole_under_its_name_and_mode() {
    use std::os::unix::fs::PermissionsExt;
    let (_server, target) = world().await;
    let session = Session::connect(&target).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("it's a file");
    let content: Vec<u8> = (0..3_000_000u32).map(|number| number as u8).collect();
    session.upload(&content, path.to_str().unwrap(), 0o640, SOON).await.unwrap();
    assert!(std::fs::read(&path).unwrap() == content);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    let error = session.upload(b"x", "/nonexistent/dir/file", 0o600, SOON).await.unwrap_err();
    assert!(error.to_string().starts_with("write '/nonexistent/dir/file'"), "{error}");
}

#[tokio::test]
async fn the_host_key_is_pinned_at_first_contact() {
    let (_server, mut target) = world().await;
    let first = Session::connect(&target).await.unwrap();
    assert!(first.host_key().starts_with("ssh-ed25519 "));
    target.host_key = first.host_key().to_owned();
    Session::connect(&target).await.unwrap();

    // Another host at the same place.
    let key = PrivateKey::from_openssh(target.key.expose()).unwrap();
    let other = SshServer::start(&key.public_key().to_openssh().unwrap()).await;
    target.port = other.port;
    let error = Session::connect(&target).await.err().unwrap();
    assert!(error.to_string().contains("has changed: known is SHA256:"), "{error}");
    assert!(error.clone().context("log in").is_host_key_changed());
}

#[tokio::test]
async fn wrong_keys_silence_and_closed_ports_have_their_class() {
    let (server, target) = world().await;
    let (stranger, _) = keys::generate("stranger").unwrap();
    let refused = Target { key: Secret::new(stranger), ..target.clone() };
    assert_eq!(Session::connect(&refused).await.err().unwrap().class(), Class::Credentials);
    let unreadable = Target { key: Secret::new("canary no key"), ..target.clone() };
    let error = Session::connect(&unreadable).await.err().unwrap();
    assert!(error.class() == Class::Credentials && !error.to_string().contains("canary"), "{error}");

    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let mute = Target { port, patience: Duration::from_millis(100), ..target.clone() };
    assert_eq!(Session::connect(&mute).await.err().unwrap().class(), Class::Timeout);
    drop(silent);
    assert_eq!(Session::connect(&mute).await.err().unwrap().class(), Class::Network);

    let session = Session::connect(&target).await.unwrap();
    let late = session.run("sleep 30", b"", Duration::from_millis(100), |_, _| {}).await;
    assert_eq!(late.unwrap_err().class(), Class::Timeout);
    drop(server);
}

#[tokio::test]
async fn logged_commands_keep_secrets_out_and_explain_failure() {
    let (_server, target) = world().await;
    let session = Session::connect(&target).await.unwrap();
    let memory = Arc::new(MemoryLog::default());
    let log = Log::new(memory.clone());
    log.redactor().learn("canary-token");
    session.run_logged("cat", b"one\ncanary-token\n", SOON, &log).await.unwrap();
    assert_eq!(memory.text(), "one\n[redacted]\n");
    let error = session.run_logged("echo no canary-token here; exit 2", b"", SOON, &log).await.unwrap_err();
    assert!(error.to_string().ends_with("ended with status 2: no [redacted] here"), "{error}");
}

#[test]
fn words_for_the_shell_are_quoted() {
    assert_eq!(quote("it's"), r"'it'\''s'");
}
