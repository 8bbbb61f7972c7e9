//! What an AuthConfig says about a provider, checked.

use http::Uri;
use remuda_api::management::AuthConfig;
use remuda_names::identity::oidc;

/// A provider as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) issuer: String,
    pub(crate) client: String,
    /// The secret itself, or the Secret with it as `namespace:name`; empty for clients without one.
    pub(crate) secret: String,
    pub(crate) scope: String,
    pub(crate) groups_claim: String,
    pub(crate) name_claim: String,
    pub(crate) email_claim: String,
    pub(crate) access: AccessMode,
    pub(crate) allowed: Vec<String>,
    /// PEM; empty if certificates of the system will do.
    pub(crate) certificate: String,
    /// Where people come back to; empty for this server.
    pub(crate) redirect: String,
    /// What the provider would tell, in place of it.
    pub(crate) endpoints: Endpoints,
}

/// Where a provider answers what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) authorization: String,
    pub(crate) token: String,
    pub(crate) user_info: String,
    pub(crate) keys: String,
}

/// Who of those the provider knows may log in here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessMode {
    Unrestricted,
    Restricted,
    Required,
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{field} {value:?} is no https URL")]
    Url { field: &'static str, value: String },
    #[error("accessMode {0:?} is none of unrestricted, restricted and required")]
    AccessMode(String),
}

impl Settings {
    /// Nothing if people are not meant to log in so.
    pub(crate) fn of(config: &AuthConfig) -> Result<Option<Self>, Unusable> {
        if !config.enabled || config.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let access = match config.access_mode.as_str() {
            "" | "unrestricted" => AccessMode::Unrestricted,
            "restricted" => AccessMode::Restricted,
            "required" => AccessMode::Required,
            other => return Err(Unusable::AccessMode(other.to_owned())),
        };
        for (field, value) in [("issuer", &config.issuer), ("clientId", &config.client_id)] {
            if value.is_empty() {
                return Err(Unusable::Missing(field));
            }
        }
        let urls = [
            ("issuer", &config.issuer),
            ("authEndpoint", &config.auth_endpoint),
            ("tokenEndpoint", &config.token_endpoint),
            ("userInfoEndpoint", &config.user_info_endpoint),
            ("jwksUrl", &config.jwks_url),
            ("rancherUrl", &config.rancher_url),
        ];
        for (field, value) in urls.into_iter().filter(|(_, value)| !value.is_empty()) {
            if !is_safe(value) {
                return Err(Unusable::Url { field, value: value.clone() });
            }
        }
        let or =
            |value: &str, usual: &str| if value.is_empty() { usual.to_owned() } else { value.to_owned() };
        let mut scope = or(&config.scope, oidc::SCOPE);
        if !scope.split_whitespace().any(|word| word == "openid") {
            scope = format!("openid {scope}");
        }
        Ok(Some(Self {
            issuer: config.issuer.clone(),
            client: config.client_id.clone(),
            secret: config.client_secret.clone(),
            scope,
            groups_claim: or(&config.groups_claim, oidc::GROUPS_CLAIM),
            name_claim: or(&config.name_claim, oidc::NAME_CLAIM),
            email_claim: or(&config.email_claim, oidc::EMAIL_CLAIM),
            access,
            allowed: config.allowed_principal_ids.clone(),
            certificate: config.certificate.clone(),
            redirect: config.rancher_url.clone(),
            endpoints: Endpoints {
                authorization: config.auth_endpoint.clone(),
                token: config.token_endpoint.clone(),
                user_info: config.user_info_endpoint.clone(),
                keys: config.jwks_url.clone(),
            },
        }))
    }
}

/// Whether what is sent to a URL is for nobody else. On the way to this machine itself nobody listens.
pub(crate) fn is_safe(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let Some(host) = uri.host().filter(|host| !host.is_empty()) else { return false };
    let loopback = ["127.0.0.1", "[::1]", "localhost"].contains(&host);
    let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    plain && (uri.scheme_str() == Some("https") || (uri.scheme_str() == Some("http") && loopback))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AuthConfig {
        AuthConfig {
            enabled: true,
            issuer: "https://op.example/realm".to_owned(),
            client_id: "remuda".to_owned(),
            ..AuthConfig::named("genericoidc")
        }
    }

    #[test]
    fn what_is_not_said_is_as_usual() {
        let settings = Settings::of(&config()).unwrap().unwrap();
        assert_eq!(settings.scope, "openid profile email groups");
        assert_eq!((settings.groups_claim.as_str(), settings.access), ("groups", AccessMode::Unrestricted));
        assert_eq!(Settings::of(&AuthConfig { enabled: false, ..config() }), Ok(None));
        let scope =
            Settings::of(&AuthConfig { scope: "email".to_owned(), ..config() }).unwrap().unwrap().scope;
        assert_eq!(scope, "openid email");
    }

    #[test]
    fn what_would_not_work_or_not_be_safe_is_refused() {
        assert_eq!(
            Settings::of(&AuthConfig { client_id: String::new(), ..config() }),
            Err(Unusable::Missing("clientId"))
        );
        assert!(Settings::of(&AuthConfig { access_mode: "all".to_owned(), ..config() }).is_err());
        for bad in
            ["http://op.example", "op.example", "https://", "https://a:b@op.example", "ftp://op.example"]
        {
            let refused = Settings::of(&AuthConfig { issuer: bad.to_owned(), ..config() });
            assert!(matches!(refused, Err(Unusable::Url { field: "issuer", .. })), "{bad}");
        }
        assert!(Settings::of(&AuthConfig { issuer: "http://127.0.0.1:5556".to_owned(), ..config() }).is_ok());
        let elsewhere = AuthConfig { token_endpoint: "http://op.example/token".to_owned(), ..config() };
        assert!(Settings::of(&elsewhere).is_err());
    }
}
