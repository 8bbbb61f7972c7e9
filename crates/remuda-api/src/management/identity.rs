//! Users and their tokens.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use remuda_names::rancher::group::MANAGEMENT;

use super::Other;
use crate::{lenient, object::object, rke::Condition};

lenient! {
    pub struct UserStatus {
        /// Conditions of the user.
        pub conditions: Vec<Condition>,
    }

    /// Somebody an authentication provider knows.
    pub struct Principal {
        /// Name for people.
        pub display_name: String,
        /// Name at login.
        pub login_name: String,
        /// Either user or group.
        pub principal_type: String,
        /// Authentication provider.
        pub provider: String,
        ..other: Other,
    }
}

object! {
    /// Somebody who uses this server.
    mod user; User = "User", MANAGEMENT, "v3", "users", ClusterResourceScope;
    status: UserStatus;
    {
        /// Name for people.
        pub display_name: String,
        /// Who it is.
        pub description: String,
        /// Name at login.
        pub username: String,
        /// Where older servers kept the hash of the password.
        pub password: String,
        /// Another password must be chosen at the next login.
        pub must_change_password: bool,
        /// Names at authentication providers.
        pub principal_ids: Vec<String>,
        /// Is the one who asks.
        pub me: bool,
        /// Whether the user may log in, which is meant when absent.
        pub enabled: Option<bool>,
    }
}

object! {
    /// By which a user is known to the API.
    mod token; Token = "Token", MANAGEMENT, "v3", "tokens", ClusterResourceScope;
    {
        /// The token, or its hash.
        pub token: String,
        /// Who logged in.
        pub user_principal: Principal,
        /// Groups of who logged in.
        pub group_principals: Vec<Principal>,
        /// What the authentication provider keeps.
        pub provider_info: BTreeMap<String, String>,
        /// Name of the User.
        pub user_id: String,
        /// Authentication provider.
        pub auth_provider: String,
        /// Milliseconds it is good for; 0 is for ever.
        pub ttl: i64,
        /// When it was used last.
        pub last_used_at: Option<Time>,
        /// When somebody was last seen behind it.
        pub activity_last_seen_at: Option<Time>,
        /// It was made by a program, not by a login.
        pub is_derived: bool,
        /// What it is for.
        pub description: String,
        /// It is not good any more.
        pub expired: bool,
        /// When it ends.
        pub expires_at: String,
        /// It is the one of this request.
        pub current: bool,
        /// It is good for this cluster only.
        pub cluster_name: String,
        /// Whether it is good, which is meant when absent.
        pub enabled: Option<bool>,
        ..other: Other,
    }
}

object! {
    /// How people log in who have no password here. Fields are those of an OpenID provider.
    mod auth_config; AuthConfig = "AuthConfig", MANAGEMENT, "v3", "authconfigs", ClusterResourceScope;
    {
        /// Kind of the provider: genericOIDCConfig.
        #[serde(rename = "type")]
        pub provider_type: String,
        /// Whether people can log in so.
        pub enabled: bool,
        /// Who may: unrestricted, restricted to those with a role in a cluster or allowed, or required to be allowed.
        pub access_mode: String,
        /// Users and groups that are allowed.
        pub allowed_principal_ids: Vec<String>,
        /// Name of this server at the provider.
        pub client_id: String,
        /// Its secret there, or the Secret with it as namespace:name.
        pub client_secret: String,
        /// URL of the provider.
        pub issuer: String,
        /// Where people log in, if the provider does not tell.
        pub auth_endpoint: String,
        /// Where codes become tokens, if the provider does not tell.
        pub token_endpoint: String,
        /// Where more is told about people, if the provider does not tell.
        pub user_info_endpoint: String,
        /// Where keys are published, if the provider does not tell.
        pub jwks_url: String,
        /// Where the provider sends people back to, if not to this server's own URL.
        pub rancher_url: String,
        /// What is asked for, separated by blanks.
        pub scope: String,
        /// Claim with the groups of somebody.
        pub groups_claim: String,
        /// Claim with the name of somebody for people.
        pub name_claim: String,
        /// Claim with the address of somebody.
        pub email_claim: String,
        /// Certificates the provider is trusted by.
        pub certificate: String,
        ..other: Other,
    }
}
