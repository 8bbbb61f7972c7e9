//! Whether a caller may use a cluster, and as which user.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    rbac::v1::PolicyRule,
};
use kube::{Api, Client, api::PostParams};
use remuda_api::management::ClusterRoleTemplateBinding;
use remuda_control::{Chain, Ctx, Informer, Scope};
pub use remuda_door::Caller;
use remuda_names::{rancher::group, user::MASTERS};
use tokio::sync::watch;

/// A role in a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    pub name: String,
    /// What it allows; nothing if a ClusterRole of this name in the cluster says so.
    pub rules: Option<Vec<PolicyRule>>,
}

/// Whether somebody may use the API of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub allowed: bool,
    /// For people, when not.
    pub reason: String,
    /// Groups they have in that cluster beside their own.
    pub groups: Vec<String>,
    /// Roles they have there beside what the cluster itself gives them.
    pub roles: Vec<Role>,
}

impl Decision {
    pub fn allow() -> Self {
        Self { allowed: true, reason: String::new(), groups: Vec::new(), roles: Vec::new() }
    }

    pub fn deny(reason: impl Into<String>) -> Self {
        Self { allowed: false, reason: reason.into(), groups: Vec::new(), roles: Vec::new() }
    }

    /// May everything in the cluster.
    pub fn owner() -> Self {
        Self::allow().in_group(MASTERS)
    }

    pub fn in_group(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    pub fn with_roles(mut self, roles: Vec<Role>) -> Self {
        self.roles = roles;
        self
    }
}

/// Decides it. What they may do there is then decided by the cluster itself.
pub trait Authorize: Send + Sync + 'static {
    /// An `Err` is why it could not be decided, for the log.
    fn authorize<'a>(
        &'a self,
        caller: &'a Caller,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Decision, String>>;

    /// Is told after anything changed that may have been decided otherwise now. What is under way is looked at
    /// again then; without it, it goes on.
    fn changes(&self) -> Option<watch::Receiver<()>> {
        None
    }
}

/// A token that is good for one cluster, at the cluster itself too.
#[derive(Debug, Clone)]
pub struct Held {
    /// Its name.
    pub token: String,
    /// What is stored of its key, in the form authenticators in clusters check.
    pub hash: String,
    pub expires: Option<Timestamp>,
    /// When it was made: the newest token of somebody says which groups they are in.
    pub created: Option<Timestamp>,
    /// Whose it is.
    pub caller: Caller,
}

/// Knows who has tokens for clusters.
pub trait Holders: Send + Sync + 'static {
    /// All tokens for a cluster that are good now; `None` while not all are known.
    fn held(&self, cluster: &str) -> Option<Vec<Held>>;

    /// Is told after anything changed that matters here, or to [`Authorize`].
    fn changes(&self) -> watch::Receiver<()>;

    /// A token was used at a cluster.
    fn used(&self, token: &str, at: Timestamp);
}

/// As the management API has it: who may get the management Cluster may use its API, under their own name.
/// Owners, who are bound to `cluster-owner` there or may do everything with the management Cluster, are
/// administrators in the cluster.
pub struct ManagementRights {
    client: Client,
    bindings: Informer<ClusterRoleTemplateBinding>,
}

const OWNER: &str = remuda_names::identity::role::CLUSTER_OWNER;
const BY_CLUSTER: &str = "gateway/cluster";

impl ManagementRights {
    pub fn new(ctx: &Ctx) -> Arc<Self> {
        let bindings: Informer<ClusterRoleTemplateBinding> = ctx.informers.of(Scope::all());
        bindings.add_index(BY_CLUSTER, |binding| vec![binding.cluster_name.clone()]);
        Arc::new(Self { client: ctx.client.clone(), bindings })
    }

    /// The bindings of a caller: whether there is one, and whether one makes them owner.
    fn bound(&self, caller: &Caller, cluster: &str) -> (bool, bool) {
        let bindings = self.bindings.by_index(BY_CLUSTER, cluster);
        let mine = bindings.iter().filter(|binding| {
            // A binding counts where its cluster's things are and nowhere else: elsewhere others may write.
            binding.metadata.namespace.as_deref() == Some(cluster)
                && binding.metadata.deletion_timestamp.is_none()
                && ((!binding.user_name.is_empty() && binding.user_name == caller.name)
                    || (!binding.group_name.is_empty() && caller.groups.contains(&binding.group_name)))
        });
        mine.fold((false, false), |(_, owner), binding| (true, owner || binding.role_template_name == OWNER))
    }

    async fn review(&self, caller: &Caller, cluster: &str, verb: &str) -> Result<bool, String> {
        let attributes = ResourceAttributes {
            group: Some(group::MANAGEMENT.to_owned()),
            version: Some("v3".to_owned()),
            resource: Some("clusters".to_owned()),
            name: Some(cluster.to_owned()),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(caller.name.clone()),
            uid: Some(caller.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(caller.groups.clone()),
            extra: Some(caller.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| Chain(&error).to_string())?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

impl Authorize for ManagementRights {
    fn authorize<'a>(
        &'a self,
        caller: &'a Caller,
        cluster: &'a str,
    ) -> BoxFuture<'a, Result<Decision, String>> {
        Box::pin(async move {
            if caller.groups.iter().any(|group| group == MASTERS) {
                return Ok(Decision::allow());
            }
            let (bound, owner) = self.bound(caller, cluster);
            if owner || self.review(caller, cluster, "*").await? {
                return Ok(Decision::owner());
            }
            if bound || self.review(caller, cluster, "get").await? {
                return Ok(Decision::allow());
            }
            Ok(Decision::deny(format!(
                "user {:?} cannot get the management Cluster {cluster:?}",
                caller.name
            )))
        })
    }
}
