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
