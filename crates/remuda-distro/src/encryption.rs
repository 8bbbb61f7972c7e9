//! Whether keys for the Secrets of a cluster can be rotated, as far as its configuration and its release say.

use serde_json::Value;

use crate::{Distro, Facts};

/// What a release has whose servers change keys step by step, and from which version of it on.
const FEATURE: &str = "encryption-key-rotation";
const MAJOR: &str = "2";

/// Why they cannot be rotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fixed {
    /// Secrets are not encrypted at all.
    NotEncrypted,
    /// The distribution changes keys of this provider in another way.
    Provider(String),
}

/// `setting` finds a value of the configuration of servers by its name.
pub fn fixed<'a>(distro: Distro, setting: impl Fn(&str) -> Option<&'a Value>) -> Option<Fixed> {
    let is_on = setting("secrets-encryption").map(|value| value.as_bool() == Some(true) || value == "true");
    // RKE2 encrypts unless it is told not to.
    if !is_on.unwrap_or(distro == Distro::Rke2) {
        return Some(Fixed::NotEncrypted);
    }
    let provider = setting("secrets-encryption-provider").and_then(Value::as_str)?;
    (!matches!(provider, "" | "aescbc")).then(|| Fixed::Provider(provider.to_owned()))
}

/// Whether the release has the steps. Of a release that is not known nothing is known.
pub fn has_steps(facts: &Facts) -> bool {
    let version = facts.features.get(FEATURE);
    version.and_then(|version| version.split('.').next()) == Some(MAJOR)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Catalog;

    #[test]
    fn keys_are_fixed_where_nothing_is_encrypted_or_in_another_way() {
        let fixed_by = |distro, config: Value| fixed(distro, |name| config.get(name));
        let off = Some(Fixed::NotEncrypted);
        assert_eq!(fixed_by(Distro::K3s, json!({})), off);
        assert_eq!(fixed_by(Distro::Rke2, json!({})), None);
        for distro in [Distro::K3s, Distro::Rke2] {
            assert_eq!(fixed_by(distro, json!({"secrets-encryption": false})), off);
            assert_eq!(fixed_by(distro, json!({"secrets-encryption": 7})), off);
            for on in [json!(true), json!("true")] {
                assert_eq!(fixed_by(distro, json!({"secrets-encryption": on})), None);
            }
            let config = json!({"secrets-encryption": true, "secrets-encryption-provider": "secretbox"});
            assert_eq!(fixed_by(distro, config), Some(Fixed::Provider("secretbox".to_owned())));
            let config = json!({"secrets-encryption": true, "secrets-encryption-provider": "aescbc"});
            assert_eq!(fixed_by(distro, config), None);
        }
    }

    #[test]
    fn releases_say_whether_they_have_the_steps() {
        let catalog = Catalog::shipped();
        assert!(has_steps(&catalog.facts("v1.35.1+k3s1")));
        assert!(has_steps(&catalog.facts("v1.35.1+rke2r1")));
        assert!(!has_steps(&catalog.facts("v1.99.0+k3s1")));
    }
}
