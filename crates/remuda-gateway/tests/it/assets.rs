use base64::{Engine, prelude::BASE64_STANDARD};
use http::StatusCode;

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
    assert!(text.contains(&format!("for {own} only")), "{text}");
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
