//! Messages to other systems about what happened to clusters.

/// Type of the Secrets in `cattle-system` that say where messages go. Administrators write them, the server reads them.
pub const SECRET_TYPE: &str = "remuda.io/webhook";

/// Before the name of the Secret: the ConfigMap beside it, in which the server notes what it has told.
pub const TOLD_PREFIX: &str = "webhook-";

/// Keys of the Secret.
pub mod key {
    /// Where messages are posted.
    pub const URL: &str = "url";
    /// What messages are signed with: `whsec_` and base64, several of them separated by spaces.
    pub const KEY: &str = "key";
    /// Which happenings are told, separated by commas; without it all of them.
    pub const EVENTS: &str = "events";
    /// How long something has to be broken before it is told, as a duration.
    pub const AFTER: &str = "after";
    /// Authorities the receiver is known by, as PEM; without it those of the system.
    pub const CA: &str = "ca.crt";
}

/// Key of the ConfigMap: what was told, as JSON.
pub const TOLD: &str = "told.json";

/// How keys begin.
pub const KEY_PREFIX: &str = "whsec_";

/// Headers of a message, as the Standard Webhooks specification names them. Receivers read them.
pub mod header {
    /// The same for each try of one message.
    pub const ID: &str = "webhook-id";
    /// Seconds since 1970 at which this try was signed.
    pub const TIMESTAMP: &str = "webhook-timestamp";
    /// `v1,` and the base64 of an HMAC-SHA256 for each key, separated by spaces.
    pub const SIGNATURE: &str = "webhook-signature";
}
