//! The list API: paths, headers and labels that clients of Rancher's Steve know.

/// HTTP paths.
pub mod path {
    /// Everything of the list API of the server itself is here and below.
    pub const ROOT: &str = "/v1";
    /// The same, as the cluster `local`.
    pub const LOCAL_ROOT: &str = "/k8s/clusters/local/v1";
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
