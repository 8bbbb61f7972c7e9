//! `remuda debug`: a decision about a cluster of a running server is written down and made again without it.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use crate::people::Desk;

#[test]
fn a_decision_is_written_down_without_secrets_and_made_again_elsewhere() {
    let desk = Desk::open();
    desk.admin("cluster create edge --custom --version v1.35.1+k3s1");
    let (whole, safe) = (desk.file("whole.json"), desk.file("safe.json"));
    let waits = |file: &str| {
        let value: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let code = value.pointer("/decision/waitingFor/code").and_then(Value::as_str);
        (code == Some("Roles") && !token(&value).is_empty()).then_some(value)
    };
    // Once the cluster has all it is made of, it waits for machines.
    let value = desk.until(|| {
        let _ = fs::remove_file(&whole);
        let data = desk.place.data().display().to_string();
        let line = format!("debug planner-input edge --with-secrets --output {whole} --data-dir {data}");
        (desk.say(&line, "").code == 0).then(|| waits(&whole)).flatten()
    });
    assert_eq!(fs::metadata(&whole).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = token(&value).to_owned();
    assert!(secret.len() > 20, "{secret:?}");

    let told = desk.admin(&format!("debug planner-input edge --output {safe}"));
    assert!(told.contains("waiting for at least one control plane"), "{told}");
    let text = fs::read_to_string(&safe).unwrap();
    assert!(!text.contains(&secret), "the token of the cluster is in {text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["redacted"], token(&value)), (&Value::Bool(true), "redacted"));
    assert_eq!(value["redactionChanges"], Value::Null);

    // No server is needed from here on.
    for file in [&whole, &safe] {
        let said = desk.say(&format!("debug replay {file}"), "");
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(said.out.starts_with("outcome: waiting for at least one control plane"), "{}", said.out);
        assert!(said.out.contains("\nwaiting for: Roles\n"), "{}", said.out);
    }
    let said = desk.say("debug replay - -o json", &text);
    let decision: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(decision["differences"], Value::Array(Vec::new()));

    let edited = text.replace("waiting for at least one control plane", "waiting for one control plane");
    let said = desk.say("debug replay -", &edited);
    assert_eq!(said.code, 1, "{}", said.out);
    assert!(said.err.contains("decides otherwise"), "{}", said.err);

    assert!(desk.fails(&format!("debug planner-input edge --output {safe}"), 6).contains("exists"));
    let missing =
        desk.say(&format!("debug planner-input nothing --data-dir {}", desk.place.data().display()), "");
    assert_eq!(missing.code, 3, "{}", missing.err);
    assert!(missing.err.contains("has no RKEControlPlane"), "{}", missing.err);
    assert_eq!(desk.say("debug replay -", "{}").code, 2);
    assert_eq!(desk.say("debug planner-input edge --with-secrets", "").code, 2, "secrets go to a file");
}

fn token(value: &Value) -> &str {
    value.pointer("/input/agentManifest/agent/token").and_then(Value::as_str).unwrap_or_default()
}
