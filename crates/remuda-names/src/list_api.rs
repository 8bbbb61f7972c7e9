//! The list API: paths, headers and labels that clients of Rancher's Steve know.

use crate::rancher::setting;

/// HTTP paths.
pub mod path {
    /// Everything of the list API of the server itself is here and below.
    pub const ROOT: &str = "/v1";
    /// The same, as the cluster `local`.
    pub const LOCAL_ROOT: &str = "/k8s/clusters/local/v1";
    /// Settings. The login page needs some of them before a login.
    pub const SETTINGS: &str = "/v1/management.cattle.io.settings";
    /// The same, as older clients ask for them.
    pub const SETTINGS_V3: &str = "/v3/settings";
    /// Which kinds there are below `/v3`.
    pub const SCHEMAS_V3: &str = "/v3/schemas";
    /// Registration tokens of clusters, in both spellings of Rancher's clients.
    pub const REGISTRATION_TOKENS_V3: &str = "/v3/clusterregistrationtokens";
    pub const REGISTRATION_TOKENS_V3_CAMEL: &str = "/v3/clusterRegistrationTokens";
    /// Node drivers, in both spellings.
    pub const NODE_DRIVERS_V3: &str = "/v3/nodedrivers";
    pub const NODE_DRIVERS_V3_CAMEL: &str = "/v3/nodeDrivers";
    /// Cloud credentials, in both spellings.
    pub const CREDENTIALS_V3: &str = "/v3/cloudcredentials";
    pub const CREDENTIALS_V3_CAMEL: &str = "/v3/cloudCredentials";
    /// The version of Rancher whose APIs this server speaks.
    pub const VERSION: &str = "/rancherversion";
    /// Extensions of Rancher's dashboard. There are none.
    pub const UI_PLUGINS: &str = "/v1/uiplugins";
}

/// HTTP headers of answers.
pub mod header {
    /// Where the schemas are. Clients begin with it.
    pub const SCHEMAS: &str = "x-api-schemas";
    /// `true` if the request came with good credentials. Pages of Rancher's dashboard decide by it.
    pub const AUTHENTICATED: &str = "x-api-cattle-auth";
}

/// Labels.
pub mod label {
    /// On a Namespace: the project it belongs to. Written by people, read where lists are restricted to projects.
    pub const PROJECT: &str = "field.cattle.io/projectId";
}

/// States of objects that are compounds of words. Written by the list API, shown and sorted by clients.
pub mod state {
    /// The controller of the kind has not done all of the newest spec yet.
    pub const IN_PROGRESS: &str = "in-progress";
}

/// What the dashboard of a user remembers on the server.
pub mod preferences {
    /// Name of the schema.
    pub const ID: &str = "userpreference";
    pub const PLURAL: &str = "userpreferences";
    /// ConfigMaps of the namespace for global data: this, and the name of the user. Written and read by the list API.
    pub const PREFIX: &str = "preferences-";
    /// The same of users whose names cannot be part of one; their names follow in hexadecimal digits.
    pub const ENCODED_PREFIX: &str = "preferences.";
    /// Key of the ConfigMap: a JSON object of texts.
    pub const KEY: &str = "preferences";
}

/// Settings everybody may read, also those who have not logged in: how a page of a login looks, and what this server is
/// trusted by.
pub const PUBLIC_SETTINGS: &[&str] = &[
    setting::CACERTS,
    setting::FIRST_LOGIN,
    "ui-banner-footer",
    "ui-banner-header",
    "ui-banner-login-consent",
    setting::UI_BANNERS,
    setting::UI_BRAND,
    setting::UI_DEFAULT_LANDING,
    "ui-favicon",
    setting::UI_ISSUES,
    "ui-link-color",
    "ui-login-background-dark",
    "ui-login-background-light",
    setting::UI_VENDOR,
    "ui-primary-color",
];

/// The release of Rancher whose APIs are spoken. Its clients compare it; the server's own version is a setting.
pub const RANCHER_VERSION: &str = "v2.15.0";

/// Settings every user may read: clients do nothing without them.
pub const COMMON_SETTINGS: &[&str] = &[
    setting::INSTALL_UUID,
    setting::K8S_VERSION,
    setting::SERVER_URL,
    setting::SERVER_VERSION,
    setting::TELEMETRY,
    setting::UI_COMMUNITY_LINKS,
    setting::UI_CUSTOM_LINKS,
    setting::UI_PERFORMANCE,
];
