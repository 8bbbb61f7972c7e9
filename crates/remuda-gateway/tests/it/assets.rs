use base64::{Engine, prelude::BASE64_STANDARD};
use http::StatusCode;
use remuda_gateway::ProgramOptions;

use crate::world::{TOKEN, World};

#[tokio::test]
async fn certificates_are_served_as_they_are_pinned() {
    let world = World::start().await;
    let (status, headers, body) = world.get_all("/cacerts", &[]).await;
    assert_eq!(status, StatusCode::OK);
    assert!(headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert!(body.ends_with("-----END CERTIFICATE-----\n"));
    let (_, script) = world.get("/system-agent-install.sh", &[]).await;
    let checksum = remuda_install::ca_checksum(&body);
    assert!(script.contains(&format!("CATTLE_CA_CHECKSUM=\"{checksum}\"\n")), "{}", &script[..500]);
    assert!(script.contains("CATTLE_SERVER=https://remuda.example.com\n"));
    assert!(!script.contains("CATTLE_ROLE_NONE=true\n"));
    let (_, powershell) = world.get("/wins-agent-install.ps1", &[]).await;
    assert!(powershell.contains("Invoke-WinsInstaller @PSBoundParameters"));
    let (_, setting) = world.get("/v3/settings/cacerts", &[]).await;
    let setting: serde_json::Value = serde_json::from_str(&setting).unwrap();
    assert_eq!(format!("{}\n", setting["value"].as_str().unwrap()), body);
    assert_eq!(world.get("/ping", &[]).await, (StatusCode::OK, "pong".to_owned()));
}

#[tokio::test]
async fn certificates_can_be_proven_to_whoever_knows_a_token() {
    use aws_lc_rs::{digest, hmac};
    let world = World::start().await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let shown = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, TOKEN.as_bytes()));
    let bearer = format!("Bearer {shown}");
    let (_, headers, body) =
        world.get_all("/cacerts", &[("x-cattle-nonce", "n1"), ("authorization", &bearer)]).await;
    let key = hmac::Key::new(hmac::HMAC_SHA512, TOKEN.as_bytes());
    let tag = hmac::sign(&key, format!("n1\0{body}\0").as_bytes());
    assert_eq!(headers["x-cattle-hash"].to_str().unwrap(), BASE64_STANDARD.encode(tag));
    let wrong = format!("Bearer {}", BASE64_STANDARD.encode([7_u8; 32]));
    for bearer in [wrong.as_str(), "Bearer x", "Bearer "] {
        let (status, headers, _) =
            world.get_all("/cacerts", &[("x-cattle-nonce", "n1"), ("authorization", bearer)]).await;
        assert_eq!(status, StatusCode::OK);
        assert!(!headers.contains_key("x-cattle-hash"));
    }
}

#[tokio::test]
async fn the_agent_is_handed_out_with_its_checksum() {
    let directory = tempfile::tempdir().unwrap();
    let binary = directory.path().join("agent");
    std::fs::write(&binary, b"an agent").unwrap();
    let world = World::with(|options| options.agent_binary = binary.clone()).await;
    let own = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let path = format!("/assets/rancher-system-agent-{own}");
    let (status, headers, body) = world.get_all(&path, &[]).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "an agent"));
    assert_eq!(headers["content-length"], "8");
    let (_, sum) = world.get(&format!("{path}.sha256"), &[]).await;
    // printf 'an agent' | sha256sum
    let expected = remuda_install_sum(b"an agent");
    assert_eq!(sum, format!("{expected}  rancher-system-agent-{own}\n"));
    std::fs::write(&binary, b"another agent").unwrap();
    let (_, sum) = world.get(&format!("{path}.sha256"), &[]).await;
    assert!(sum.starts_with(&remuda_install_sum(b"another agent")));

    let (status, text) = world.get("/assets/rancher-system-agent-s390x", &[]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("no agent for linux/s390x; give it one with `remuda assets add FILE`"), "{text}");
    let (status, text) = world.get("/assets/wins.exe", &[]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("no agent for windows/amd64; give it one with `remuda assets add FILE`"), "{text}");
    for odd in
        ["", "..", "../etc/passwd", "%2e%2e/x", "rancher-system-agent-", "rancher-system-agent-amd64/x"]
    {
        let (status, _) = world.get(&format!("/assets/{odd}"), &[]).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{odd}");
    }
    let response = world.send(world.request("HEAD", &path, &[])).await;
    assert_eq!(response.headers()["content-length"], "13");
    let response = world.send(world.request("POST", "/cacerts", &[])).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    std::fs::remove_file(&binary).unwrap();
    let (status, text) = world.get(&path, &[]).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!text.contains("agent\""), "paths of the server are nobody's business: {text}");
}

fn remuda_install_sum(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    remuda_base::hex(digest)
}

/// A static program of ours for another processor than this host's.
pub(crate) fn program(machine: u16, version: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    bytes[16] = 2;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes.extend_from_slice(format!("remuda-binary/v1 version={version}\n").as_bytes());
    bytes
}

/// Somebody who may add programs.
const MASTER: (&str, &str) = ("authorization", "Bearer admin,system:masters");

/// The other of the two processors: its number in ELF files, and its name.
pub(crate) fn other() -> (u16, &'static str) {
    if cfg!(target_arch = "aarch64") { (62, "amd64") } else { (183, "arm64") }
}

#[tokio::test]
async fn a_program_of_another_architecture_is_handed_out_when_it_was_added() {
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("assets");
    let world = World::with(|options| {
        options.programs = Some(ProgramOptions {
            directory: programs.clone(),
            images: directory.path().join("images"),
            version: "0.4.0".to_owned(),
        });
    })
    .await;
    let (machine, name) = other();
    let agent = program(machine, "0.5.1");
    let sum = remuda_install_sum(&agent);
    let add = async |query: &str, bytes: &[u8]| {
        let mut request = world.request("POST", &format!("/remuda/v1/assets{query}"), &[MASTER]);
        *request.body_mut() = bytes.to_vec().into();
        let response = world.send(request).await;
        let status = response.status();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    for (query, bytes, reason) in [
        ("", b"#!/bin/sh\n".to_vec(), "neither an ELF nor a PE executable"),
        ("", program(machine, "no version"), "not a build of Remuda"),
        ("", program(machine, "0.6.0"), "the file is Remuda 0.6.0, and this server is 0.4.0"),
        ("", program(62 + 183 - machine, "0.4.0"), "hands out itself"),
        ("", agent[..40].to_vec(), "cut off"),
        ("?sha256=00", agent.clone(), "expected is 00"),
    ] {
        let (status, text) = add(query, &bytes).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
        assert!(text.contains(reason), "{text}");
        assert!(!text.contains(directory.path().to_str().unwrap()), "paths are nobody's business: {text}");
    }
    let path = format!("/assets/rancher-system-agent-{name}");
    assert_eq!(world.get(&path, &[]).await.0, StatusCode::NOT_FOUND);
    for stranger in [&[][..], &[("authorization", "Bearer somebody")]] {
        let response = world.send(world.request("POST", "/remuda/v1/assets", stranger)).await;
        assert!([401, 403].contains(&response.status().as_u16()), "{}", response.status());
    }
    let (status, text) = add(&format!("?sha256={sum}"), &agent).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert!(text.contains(&sum) && text.contains("\"version\":\"0.5.1\""), "{text}");
    let (_, listed) = world.get("/remuda/v1/assets", &[MASTER]).await;
    assert!(listed.contains(&sum) && listed.contains(name), "{listed}");
    let response = world.send(world.request("HEAD", &path, &[])).await;
    assert_eq!(response.headers()["content-length"].to_str().unwrap(), agent.len().to_string());
    assert_eq!(
        world.get(&format!("{path}.sha256"), &[]).await.1,
        format!("{sum}  rancher-system-agent-{name}\n")
    );
    let left: Vec<_> =
        std::fs::read_dir(&programs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [std::ffi::OsString::from(format!("linux-{name}"))]);
}
