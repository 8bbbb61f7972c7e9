//! Whom a provider says somebody is.

use remuda_api::management::Principal;
use remuda_names::identity::oidc::{GROUP_PRINCIPAL, PROVIDER, USER_PRINCIPAL};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::config::{AccessMode, Settings};

/// Groups somebody is in, at most.
const MOST_GROUPS: usize = 1000;
const LONGEST: usize = 256;

/// Somebody, as their provider has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// Stays the same whatever they are called.
    pub(crate) subject: String,
    pub(crate) display_name: String,
    pub(crate) login_name: String,
    pub(crate) groups: Vec<String>,
}

impl Profile {
    pub(crate) fn of(claims: &Map<String, Value>, settings: &Settings) -> Self {
        let text = |name: &str| {
            let text = claims.get(name).and_then(Value::as_str).unwrap_or_default();
            text.chars().filter(|letter| !letter.is_control()).take(LONGEST).collect::<String>()
        };
        let first = |names: &[&str]| names.iter().map(|name| text(name)).find(|text| !text.is_empty());
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default().to_owned();
        let login_name = first(&["preferred_username", &settings.email_claim]).unwrap_or_default();
        let display_name = first(&[&settings.name_claim, "preferred_username", &settings.email_claim]);
        Self {
            display_name: display_name.unwrap_or_else(|| subject.clone()),
            login_name,
            groups: groups(claims.get(&settings.groups_claim)),
            subject,
        }
    }

    pub(crate) fn principal_id(&self) -> String {
        format!("{USER_PRINCIPAL}{}", self.subject)
    }

    pub(crate) fn group_ids(&self) -> Vec<String> {
        self.groups.iter().map(|group| format!("{GROUP_PRINCIPAL}{group}")).collect()
    }

    pub(crate) fn principal(&self) -> Principal {
        let other = Map::from_iter([("metadata".to_owned(), json!({"name": self.principal_id()}))]);
        Principal {
            display_name: self.display_name.clone(),
            login_name: self.login_name.clone(),
            principal_type: "user".to_owned(),
            provider: PROVIDER.to_owned(),
            other,
        }
    }

    pub(crate) fn group_principals(&self) -> Vec<Principal> {
        let principal = |(id, name): (String, &String)| Principal {
            display_name: name.clone(),
            principal_type: "group".to_owned(),
            provider: PROVIDER.to_owned(),
            other: Map::from_iter([("metadata".to_owned(), json!({"name": id}))]),
            ..Principal::default()
        };
        self.group_ids().into_iter().zip(&self.groups).map(principal).collect()
    }

    /// Whether they may log in; `has_role` says whether they have one anywhere.
    pub(crate) fn may_log_in(&self, settings: &Settings, has_role: impl FnOnce() -> bool) -> bool {
        let allowed = || {
            let own = self.principal_id();
            let groups = self.group_ids();
            settings.allowed.iter().any(|id| *id == own || groups.contains(id))
        };
        match settings.access {
            AccessMode::Unrestricted => true,
            AccessMode::Required => allowed(),
            AccessMode::Restricted => allowed() || has_role(),
        }
    }
}

/// A list, or one word: providers differ.
fn groups(claim: Option<&Value>) -> Vec<String> {
    let fits = |group: &&str| (1..=LONGEST).contains(&group.len()) && !group.chars().any(char::is_control);
    let mut groups: Vec<String> = match claim {
        Some(Value::Array(list)) => {
            let names = list.iter().filter_map(Value::as_str).filter(fits);
            names.take(MOST_GROUPS).map(str::to_owned).collect()
        }
        Some(Value::String(one)) => Some(one.as_str()).filter(fits).map(str::to_owned).into_iter().collect(),
        _ => Vec::new(),
    };
    groups.sort();
    groups.dedup();
    groups
}

#[cfg(test)]
mod tests {
    use remuda_api::management::AuthConfig;

    use super::*;

    fn settings(mode: &str, allowed: &[&str]) -> Settings {
        let config = AuthConfig {
            enabled: true,
            issuer: "https://op".to_owned(),
            client_id: "c".to_owned(),
            access_mode: mode.to_owned(),
            allowed_principal_ids: allowed.iter().map(ToString::to_string).collect(),
            ..AuthConfig::default()
        };
        Settings::of(&config).unwrap().unwrap()
    }

    fn profile(claims: &Value) -> Profile {
        Profile::of(claims.as_object().unwrap(), &settings("", &[]))
    }

    #[test]
    fn somebody_is_known_by_what_never_changes() {
        let ann =
            profile(&json!({"sub": "7", "name": "Ann", "email": "ann@x", "groups": ["b", "a", "b", "", 3]}));
        assert_eq!(ann.principal_id(), "genericoidc_user://7");
        assert_eq!((ann.display_name.as_str(), ann.login_name.as_str()), ("Ann", "ann@x"));
        assert_eq!(ann.group_ids(), ["genericoidc_group://a", "genericoidc_group://b"]);
        let bare = profile(&json!({"sub": "7", "groups": "one"}));
        assert_eq!((bare.display_name.as_str(), bare.groups), ("7", vec!["one".to_owned()]));
        let odd = profile(&json!({"sub": "7", "name": {"x": 1}, "groups": {"x": 1}}));
        assert!(odd.groups.is_empty());
        let many: Vec<String> = (0..5000).map(|i| i.to_string()).collect();
        assert_eq!(profile(&json!({"sub": "7", "groups": many})).groups.len(), MOST_GROUPS);
    }

    #[test]
    fn who_may_log_in_is_as_configured() {
        let ann = profile(&json!({"sub": "7", "groups": ["dev"]}));
        let check = |mode: &str, allowed: &[&str], has_role: bool| {
            ann.may_log_in(&settings(mode, allowed), || has_role)
        };
        assert!(check("unrestricted", &[], false));
        assert!(!check("required", &[], true));
        assert!(check("required", &["genericoidc_user://7"], false));
        assert!(check("required", &["genericoidc_group://dev"], false));
        assert!(!check("required", &["genericoidc_user://dev", "local://7"], false));
        assert!(check("restricted", &[], true) && !check("restricted", &[], false));
    }
}
