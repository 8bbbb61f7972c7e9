//! Operations on a cluster: what could never be carried out is refused where it is written. Stored, a cluster would
//! wait for it for ever, or call it done without having done anything.

use remuda_distro::{
    Distro,
    certificates::{OF_CONTROL_PLANES, OF_ETCD, OF_NODES},
    encryption::{self, Fixed},
};
use remuda_schema::FieldError;
use serde_json::Value;

use super::{Findings, list};

pub(super) fn check(old: Option<&Value>, spec: &Value, findings: &mut Findings) {
    let before = old.map(|old| &old["rkeConfig"]).unwrap_or(&Value::Null);
    let config = &spec["rkeConfig"];
    let field = "spec.rkeConfig";
    if config["rotateCertificates"] != before["rotateCertificates"] {
        services(&format!("{field}.rotateCertificates.services"), config, findings);
    }
    let keys = &config["rotateEncryptionKeys"];
    if *keys != before["rotateEncryptionKeys"] && !keys.is_null() {
        encryption_keys(&format!("{field}.rotateEncryptionKeys"), spec, findings);
    }
}

/// Keys that nothing is encrypted with, or that the distribution rotates in another way.
fn encryption_keys(field: &str, spec: &Value, findings: &mut Findings) {
    // Defaults are of the release, and a release that cannot do it is known to the planner only.
    let Some(version) = spec["kubernetesVersion"].as_str() else { return };
    let config = &spec["rkeConfig"];
    let selected = || list(&config["machineSelectorConfig"]).map(|one| &one["config"]);
    let configs = || std::iter::once(&config["machineGlobalConfig"]).chain(selected());
    let setting = |name: &str| configs().find_map(|config| config.get(name));
    let detail = match encryption::fixed(Distro::of(version), setting) {
        None => return,
        Some(Fixed::NotEncrypted) => {
            "the cluster does not encrypt its Secrets: set machineGlobalConfig.secrets-encryption to true, and have \
             its servers restarted, before keys can be rotated"
                .to_owned()
        }
        Some(Fixed::Provider(provider)) => {
            format!("keys of the provider {provider} are not rotated in steps; those of aescbc are")
        }
    };
    findings.bad(field, &detail);
}

/// A service that is none would be passed over on all nodes.
fn services(field: &str, config: &Value, findings: &mut Findings) {
    let mut known: Vec<&str> = [OF_NODES, OF_CONTROL_PLANES, OF_ETCD].concat();
    known.sort_unstable();
    known.dedup();
    for (place, service) in list(&config["rotateCertificates"]["services"]).enumerate() {
        if service.as_str().is_some_and(|name| !known.contains(&name)) {
            findings.invalid.push(FieldError::not_supported(format!("{field}[{place}]"), service, &known));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is wrong, one line each.
    fn found(old: Option<&Value>, config: &Value) -> String {
        let wrap = |config: &Value| json!({"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": config});
        let mut findings = Findings::default();
        check(old.map(wrap).as_ref(), &wrap(config), &mut findings);
        let all = findings.invalid.iter().chain(&findings.bad);
        all.map(|error| format!("{}: {}", error.field, error.message)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_operation_that_cannot_run_is_refused_at_its_field() {
        for (config, field, words) in [
            (
                json!({"rotateCertificates": {"generation": 1, "services": ["etcd", "postgres"]}}),
                "rotateCertificates.services[1]",
                "\"kubelet\"",
            ),
            (
                json!({"rotateEncryptionKeys": {"generation": 1}}),
                "rotateEncryptionKeys",
                "does not encrypt its Secrets",
            ),
            (
                json!({"rotateEncryptionKeys": {"generation": 1}, "machineSelectorConfig": [
                    {"config": {"secrets-encryption": true, "secrets-encryption-provider": "secretbox"}}]}),
                "rotateEncryptionKeys",
                "the provider secretbox",
            ),
        ] {
            let told = found(None, &config);
            assert!(told.starts_with(&format!("spec.rkeConfig.{field}: ")) && told.contains(words), "{told}");
            assert_eq!(told.lines().count(), 1, "{told}");
            // Stored before there was the rule, it can stay.
            assert_eq!(found(Some(&config), &config), "");
        }
    }

    #[test]
    fn what_can_be_done_is_taken() {
        for config in [
            json!({"rotateCertificates": {"generation": 1}}),
            json!({"rotateCertificates": {"generation": 1, "services": ["etcd", "kubelet", "k3s-server"]}}),
            json!({"rotateEncryptionKeys": {"generation": 1}, "machineGlobalConfig": {"secrets-encryption": true}}),
        ] {
            assert_eq!(found(None, &config), "", "{config}");
        }
    }
}
