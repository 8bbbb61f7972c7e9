//! The command line: mistakes, refusals, backup, restore and rotation.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::{
    client::{client, config_map_value, create_config_map, create_secret, secret_value},
    harness::{Place, Server, contains, ended_with, failure, remuda, success},
};

#[track_caller]
fn refused(arguments: &[&str], expected: &str) {
    assert_eq!(ended_with(remuda().args(arguments), 2), expected);
}

#[test]
fn a_bad_flag_is_one_line_and_a_hint() {
    refused(
        &["server", "--bimd", "x"],
        "error: unexpected argument '--bimd' found\nhint: a similar argument exists: '--bind'\n",
    );
    refused(
        &["server", "--bind", "8443"],
        "error: invalid --bind: \"8443\" is not ADDRESS:PORT\n\
         hint: use ADDRESS:PORT, for example --bind 127.0.0.1:8443 or --bind :8443\n",
    );
    refused(&["server", "--tls-cert", "x"], "error: --tls-cert needs --tls-key as well\n");
    refused(
        &["server", "--log-level", "loud"],
        "error: invalid --log-level: \"loud\" is not a level\n\
         hint: use error, warn, info, debug, trace, or a filter such as info,remuda_store=debug\n",
    );
}

#[test]
fn a_bad_key_in_the_file_is_named_with_its_line() {
    let place = Place::new();
    let file = place.write("config.yaml", "bind: 127.0.0.1:0\ndata_dir: /x\n");
    let text = ended_with(remuda().args(["server", "--config"]).arg(&file), 2);
    assert!(text.starts_with(&format!("error: configuration file {}, line 2: ", file.display())), "{text}");
    assert!(text.contains("data_dir"), "{text}");
}

#[test]
fn a_bad_environment_variable_is_refused_like_its_flag() {
    let text = ended_with(remuda().arg("server").env("REMUDA_DATASTORE", "sqlite"), 2);
    assert!(text.starts_with("error: invalid --datastore: \"sqlite\" is not known\nhint: "), "{text}");
}

#[test]
fn a_used_port_is_refused_before_anything_is_created() {
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut command = remuda();
    command.args(["server", "--bind", &address.to_string(), "--data-dir"]).arg(place.data());
    let text = failure(&mut command);
    let expected = format!("error: port {} is in use by process {} (", address.port(), std::process::id());
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains("\nhint: stop that process, or choose another port with --bind\n"), "{text}");
    assert!(!place.data().exists());
}

#[test]
fn a_directory_that_cannot_be_used_is_refused() {
    let place = Place::new();
    let file = place.write("file", "");
    let start = |dir: &std::path::Path| {
        failure(remuda().args(["server", "--bind", "127.0.0.1:0", "--data-dir"]).arg(dir))
    };
    let text = start(&file);
    assert!(text.contains("is not a directory\nhint: "), "{text}");
    let text = start(&file.join("below"));
    assert!(text.starts_with("error: ") && text.contains("\nhint: "), "{text}");
    let shared = place.join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(shared.join("letter"), "").unwrap();
    assert!(start(&shared).contains("is open to other users and holds other things\nhint: "));
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let place = Place::new();
    let _server = Server::start(&place.data(), &[]);
    let text = failure(remuda().args(["server", "--bind", "127.0.0.1:0", "--data-dir"]).arg(place.data()));
    assert!(text.contains("is in use by process "), "{text}");
    assert!(text.contains("\nhint: stop that server first, or choose another directory"), "{text}");
}

#[test]
fn a_key_others_can_read_is_refused() {
    let place = Place::new();
    Server::start(&place.data(), &[]).stop();
    for name in ["pki/ca.key", "encryption.keys", "pki/service-account.key", "admin.kubeconfig"] {
        let path = place.data().join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let text =
            failure(remuda().args(["server", "--bind", "127.0.0.1:0", "--data-dir"]).arg(place.data()));
        assert!(text.contains(&format!("{name} can be read by other users (mode 0644)")), "{text}");
        assert!(text.contains("\nhint: if nobody has read it: chmod 600 "), "{text}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    Server::start(&place.data(), &[]).stop();
}

#[test]
fn the_doctor_names_what_is_missing_and_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let doctor = |role: &str, bind: &str| {
        let mut command = remuda();
        command.args(["doctor", role, "--bind", bind, "-o", "json", "--data-dir"]).arg(&data);
        let output = command.output().unwrap();
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found["roles"][0]["possible"], output.status.success(), "{found}");
        found["roles"][0].clone()
    };
    assert_eq!(doctor("server", "127.0.0.1:0")["possible"], true);
    assert!(!data.exists());

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = doctor("server", &listener.local_addr().unwrap().to_string());
    let checks = taken["checks"].as_array().unwrap();
    let missing: Vec<_> = checks.iter().filter(|check| check["verdict"] == "missing").collect();
    assert_eq!((missing.len(), missing[0]["about"].as_str()), (1, Some("address")), "{taken}");
    assert!(missing[0]["hint"].as_str().unwrap().contains("--bind"));

    // As a person reads it.
    let text = success(remuda().args(["doctor", "server", "--bind", "127.0.0.1:0", "--data-dir"]).arg(&data));
    assert!(text.starts_with("server:\n") && text.ends_with("server: yes\n"), "{text}");
    assert!(ended_with(remuda().args(["doctor", "cook"]), 2).contains("invalid value 'cook'"));
}

#[test]
fn completions_and_versions_are_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(success(remuda().args(["completion", shell])).contains("remuda"));
    }
    assert!(success(remuda().arg("version")).starts_with("remuda 0."));
    assert!(success(remuda().args(["version", "-o", "json"])).contains("\"version\""));
    assert!(success(remuda().args(["server", "--help"])).contains("REMUDA_BIND"));
}

#[tokio::test]
async fn a_backup_of_a_running_server_is_restored_elsewhere() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let before = client(&server).await;
    create_secret(&before, "kept", "open-sesame").await;
    create_config_map(&before, "kept", "1").await;

    let file = place.join("backup");
    let text = success(remuda().args(["backup", "--output"]).arg(&file).arg("--data-dir").arg(place.data()));
    assert!(text.contains("keep it private"), "{text}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let after_backup = create_config_map(&before, "later", "2").await;
    let mut again = remuda();
    again.args(["backup", "--output"]).arg(&file).arg("--data-dir").arg(place.data());
    let text = ended_with(&mut again, 6);
    assert!(text.contains(" exists\nhint: "), "{text}");
    server.stop();

    let restored = place.join("restored");
    let mut restore = remuda();
    restore.arg("restore").arg(&file).arg("--data-dir").arg(&restored);
    assert!(success(&mut restore).starts_with("restored the state of "));
    let text = failure(&mut restore);
    assert!(text.contains("is not empty\nhint: "), "{text}");

    let server = Server::start(&restored, &[]);
    let after = client(&server).await;
    assert_eq!(secret_value(&after, "kept").await.as_deref(), Some("open-sesame"));
    assert_eq!(config_map_value(&after, "kept").await.as_deref(), Some("1"));
    assert_eq!(config_map_value(&after, "later").await, None);
    // Whoever saw the revisions after the backup must not see them again.
    assert!(create_config_map(&after, "newer", "3").await > after_backup);
    server.stop();
}

#[tokio::test]
async fn a_stopped_server_is_backed_up_from_its_directory() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    create_secret(&client(&server).await, "kept", "open-sesame").await;
    server.stop();
    let file = place.join("backup");
    success(remuda().args(["backup", "--output"]).arg(&file).arg("--data-dir").arg(place.data()));
    let restored = place.join("restored");
    success(remuda().arg("restore").arg(&file).arg("--data-dir").arg(&restored));
    let server = Server::start(&restored, &[]);
    assert_eq!(secret_value(&client(&server).await, "kept").await.as_deref(), Some("open-sesame"));
}

#[tokio::test]
async fn secrets_are_never_on_disk_in_the_clear_and_survive_a_rotation() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let secret = "correct-horse-battery-staple";
    create_secret(&client(&server).await, "kept", secret).await;
    let before = fs::read_to_string(place.data().join("encryption.keys")).unwrap();
    let text = success(remuda().args(["rotate-keys", "--data-dir"]).arg(place.data()));
    assert!(text.starts_with("everything is encrypted with key "), "{text}");
    let after = fs::read_to_string(place.data().join("encryption.keys")).unwrap();
    assert_ne!(before, after);
    assert_eq!(after.lines().count(), 1);
    assert_eq!(secret_value(&client(&server).await, "kept").await.as_deref(), Some(secret));
    server.kill();
    let server = Server::start(&place.data(), &[]);
    assert_eq!(secret_value(&client(&server).await, "kept").await.as_deref(), Some(secret));
    server.stop();
    success(remuda().args(["rotate-keys", "--data-dir"]).arg(place.data()));
    let encoded = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ==";
    assert!(!contains(&place.data(), secret.as_bytes()) && !contains(&place.data(), encoded.as_bytes()));
    let server = Server::start(&place.data(), &[]);
    assert_eq!(secret_value(&client(&server).await, "kept").await.as_deref(), Some(secret));
}
