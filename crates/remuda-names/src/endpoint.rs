//! The authorized endpoint of clusters: people at the API of a cluster itself, without this server.
//!
//! Names are Rancher's: the authenticator in a cluster may be either's.

/// The DaemonSet of the authenticator, its container and the label `app` of its pods; also the command that runs it.
pub const NAME: &str = "kube-api-auth";
/// Port of the authenticator, on the loopback of every node with an API.
pub const PORT: u16 = 6440;
/// Where it takes a TokenReview.
pub const PATH: &str = "/v1/authenticate";
/// Where it says that it is there.
pub const HEALTH_PATH: &str = "/healthcheck";

/// Group of the kinds it reads.
pub const GROUP: &str = "cluster.cattle.io";
/// Version of the kinds it reads.
pub const VERSION: &str = "v3";
/// A token that is good in the cluster, named like the Token it is made of.
pub const TOKEN_KIND: &str = "ClusterAuthToken";
/// Their resource.
pub const TOKENS: &str = "clusterauthtokens";
/// Somebody with such tokens, named like the User.
pub const USER_KIND: &str = "ClusterUserAttribute";
/// Their resource.
pub const USERS: &str = "clusteruserattributes";
/// Key of the hash in the Secret beside a token.
pub const HASH: &str = "hash";
/// `true` on these Secrets.
pub const SECRET_LABEL: &str = "remuda.io/cluster-auth-token";
