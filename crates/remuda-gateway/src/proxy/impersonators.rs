//! Accounts in clusters through which people act there.
//!
//! The agent of a cluster may do everything in it. Requests of people do not go out with its credentials: each
//! user has an account in the cluster that may act as this user, in the groups they have, and nothing else.
//! A request that lost its headers on the way would then be one of somebody without rights.
//!
//! Accounts are made when they are first needed and changed when the user's groups are others. What has not
//! been needed for long is removed when somebody looks at the cluster.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use parking_lot::Mutex;
use remuda_control::Chain;
use remuda_names::{PROGRAM, gateway::impersonation};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::headers::{self, Abroad};
use crate::{
    gateway::Shared,
    respond::Body,
    route::{Access, Route},
    tokens::sha256,
};

/// For an account to be made and to be allowed what it is for.
const PATIENCE: Duration = Duration::from_secs(15);
/// Tokens are good for an hour and used for most of it.
const TOKEN_SECONDS: i64 = 3600;
const USED_SECONDS: i64 = 2700;
/// Accounts remembered per cluster. Others are asked for again.
const MOST: usize = 4096;
/// Accounts that were not needed for so long are removed.
const UNUSED: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What an account may: act as one user, in these groups, with these extras of any value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rights {
    user: String,
    groups: BTreeSet<String>,
    extras: BTreeSet<String>,
}

impl Rights {
    fn of(who: &Abroad) -> Self {
        Self {
            user: who.user.clone(),
            groups: who.groups.clone(),
            extras: who.extra.keys().cloned().collect(),
        }
    }

    fn include(&self, other: &Self) -> bool {
        other.groups.is_subset(&self.groups) && other.extras.is_subset(&self.extras)
    }

    /// Both: somebody who comes in two ways would otherwise have the account changed with every request.
    fn with(mut self, other: &Self) -> Self {
        self.groups.extend(other.groups.iter().cloned());
        self.extras.extend(other.extras.iter().cloned());
        self
    }

    fn rules(&self) -> Value {
        let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": ["impersonate"]});
        let mut users = rule("", "users");
        users["resourceNames"] = json!([self.user]);
        let mut rules = vec![users];
        if !self.groups.is_empty() {
            let mut groups = rule("", "groups");
            groups["resourceNames"] = json!(self.groups);
            rules.push(groups);
        }
        // Extras say how somebody came in, and are others with every token.
        rules.extend(
            self.extras.iter().map(|key| rule("authentication.k8s.io", &format!("userextras/{key}"))),
        );
        json!(rules)
    }
}

/// An account that is there.
struct Known {
    rights: Rights,
    access: Arc<Access>,
    authorization: HeaderValue,
    until: Timestamp,
}

/// Why somebody cannot act in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unable {
    /// The cluster does not answer in time.
    Silent(Duration),
    /// It cannot be reached.
    Unreachable(String),
    /// It does not do as it is asked.
    Refused(String),
}

impl Unable {
    pub(super) fn api(doing: &'static str) -> impl Fn(kube::Error) -> Self {
        move |error| match &error {
            kube::Error::Api(_) => Self::Refused(format!("{doing}: {}", Chain(&error))),
            _ => Self::Unreachable(Chain(&error).to_string()),
        }
    }

    fn odd(error: impl ToString) -> Self {
        Self::Refused(error.to_string())
    }
}

/// One user in one cluster; the lock is held while the account is made.
type Slot = Arc<tokio::sync::Mutex<Option<Known>>>;

/// All accounts that are known to be there.
#[derive(Default)]
pub(crate) struct Impersonators(Mutex<HashMap<String, HashMap<String, Slot>>>);

impl Impersonators {
    fn slot(&self, cluster: &str, user: &str) -> Slot {
        let mut clusters = self.0.lock();
        let users = clusters.entry(cluster.to_owned()).or_default();
        if users.len() >= MOST && !users.contains_key(user) {
            users.clear();
        }
        users.entry(user.to_owned()).or_default().clone()
    }

    pub(crate) fn forget(&self, cluster: &str) {
        self.0.lock().remove(cluster);
    }

    /// An account the cluster does not know any more.
    pub(super) fn forget_user(&self, cluster: &str, user: &str) {
        if let Some(users) = self.0.lock().get_mut(cluster) {
            users.remove(user);
        }
    }

    /// What to present in a cluster to act as somebody. Fails with why that is not possible.
    pub(super) async fn authorization(
        &self,
        shared: &Shared,
        cluster: &str,
        route: &Route,
        who: &Abroad,
    ) -> Result<HeaderValue, Unable> {
        let patience = PATIENCE.min(shared.timing.answer);
        let slot = self.slot(cluster, &who.user);
        let making = async {
            let mut slot = slot.lock().await;
            let now = shared.ctx.clock.now();
            let mut rights = Rights::of(who);
            let known = slot.as_ref().filter(|known| known.access == *route.access() && now < known.until);
            if let Some(known) = known {
                if known.rights.include(&rights) {
                    return Ok(known.authorization.clone());
                }
                rights = rights.with(&known.rights);
            }
            let authorization = make(route, &rights, now).await?;
            let until = now.saturating_add(SignedDuration::from_secs(USED_SECONDS)).unwrap_or(now);
            let access = route.access().clone();
            *slot = Some(Known { rights, access, authorization: authorization.clone(), until });
            tracing::info!(cluster, user = who.user, "account for a user is there");
            Ok(authorization)
        };
        timeout(patience, making).await.unwrap_or(Err(Unable::Silent(patience)))
    }
}

/// The name of an account: that of the user where it can be, else made of it.
pub(super) fn name(user: &str) -> String {
    let is_plain = user.len() <= 63
        && user.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !user.starts_with('-')
        && !user.ends_with('-');
    if is_plain && !user.is_empty() {
        return format!("{}{user}", impersonation::PREFIX);
    }
    let digest = sha256(user.as_bytes());
    let digits = remuda_base::hex(&digest[..10]);
    // Two dashes, so that no user can have a name that is somebody else's.
    format!("{}-{digits}", impersonation::PREFIX)
}

async fn make(route: &Route, rights: &Rights, now: Timestamp) -> Result<HeaderValue, Unable> {
    let client = Client::new(route.clone(), impersonation::NAMESPACE);
    let name = name(&rights.user);
    let apply = PatchParams::apply(PROGRAM).force();
    let metadata = |owner: Option<&OwnerReference>| {
        json!({
            "name": name,
            "labels": {impersonation::LABEL: "true"},
            "annotations": {
                impersonation::USER: rights.user,
                impersonation::USED: now.strftime("%Y-%m-%dT%H:00:00Z").to_string(),
            },
            "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
        })
    };
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": impersonation::NAMESPACE, "labels": {impersonation::LABEL: "true"},
    }});
    if namespaces
        .get_metadata_opt(impersonation::NAMESPACE)
        .await
        .map_err(Unable::api("read the namespace"))?
        .is_none()
    {
        let applied = namespaces.patch(impersonation::NAMESPACE, &apply, &Patch::Apply(namespace)).await;
        applied.map_err(Unable::api("make the namespace"))?;
    }
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": metadata(None), "rules": rights.rules(),
    });
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let role = roles.patch(&name, &apply, &Patch::Apply(role)).await;
    let role = role.map_err(Unable::api("write the role"))?;
    let owner = role.owner_ref(&());
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(owner.as_ref())});
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let account = accounts.patch(&name, &apply, &Patch::Apply(account)).await;
    account.map_err(Unable::api("write the account"))?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": metadata(owner.as_ref()),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": impersonation::NAMESPACE}],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = bindings.patch(&name, &apply, &Patch::Apply(binding)).await;
    binding.map_err(Unable::api("bind the account"))?;

    let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{name}/token", impersonation::NAMESPACE);
    let body = serde_json::to_vec(&request).map_err(Unable::odd)?;
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json").body(body);
    let request = request.map_err(Unable::odd)?;
    let issued: TokenRequest = client.request(request).await.map_err(Unable::api("get a token"))?;
    let token = issued.status.map(|status| status.token).unwrap_or_default();
    let mut authorization = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| Unable::odd("the cluster issued no token"))?;
    authorization.set_sensitive(true);
    until_allowed(route, rights, &authorization).await?;
    Ok(authorization)
}

/// A cluster takes a moment until a new role counts.
async fn until_allowed(route: &Route, rights: &Rights, authorization: &HeaderValue) -> Result<(), Unable> {
    let attributes = |resource: &str, name: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
            "resourceAttributes": {"verb": "impersonate", "resource": resource, "name": name},
        }})
    };
    // Rules of one role count together; the last is as good as all.
    let review = match rights.groups.last() {
        Some(group) => attributes("groups", group),
        None => attributes("users", &rights.user),
    };
    loop {
        let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(review.to_string()))
            .map_err(Unable::odd)?;
        let answer = route.send_as(request, authorization.clone(), PATIENCE).await;
        let answer = answer.map_err(|error| Unable::Unreachable(Chain(&error).to_string()))?;
        if answer.status().is_success() {
            let body = Limited::new(answer.into_body(), 1 << 16).collect().await;
            let body = body.map_err(Unable::odd)?.to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap_or_default();
            if review["status"]["allowed"] == true {
                return Ok(());
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whose matter an answer is.
pub(super) enum Judged {
    /// The caller's, to be streamed.
    Answer(Response<Incoming>),
    /// The caller's, read already.
    Theirs(Response<Body>),
    /// Ours: not the caller was refused, but the account they act through.
    Ours,
}

/// Tells a refusal of the caller from one of their account, which somebody in the cluster removed or changed.
pub(super) async fn judge(answer: Response<Incoming>) -> Judged {
    /// No refusal is longer.
    const LIMIT: u64 = 64 << 10;
    let account = format!("system:serviceaccount:{}:", impersonation::NAMESPACE);
    if answer.status() == StatusCode::UNAUTHORIZED {
        return Judged::Ours;
    }
    let is_short = answer.body().size_hint().upper().is_some_and(|length| length < LIMIT);
    if answer.status() != StatusCode::FORBIDDEN || !is_short {
        return Judged::Answer(answer);
    }
    let (mut parts, body) = answer.into_parts();
    let Ok(Ok(body)) = timeout(PATIENCE, body.collect()).await else { return Judged::Ours };
    let body = body.to_bytes();
    if String::from_utf8_lossy(&body).contains(&account) {
        return Judged::Ours;
    }
    parts.headers = headers::answered(&parts.headers);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    Judged::Theirs(response)
}

/// Removes accounts that nobody has needed for long. The rest of an account goes with its role.
pub(crate) async fn sweep(route: &Route, now: Timestamp) -> Result<usize, kube::Error> {
    let roles: Api<ClusterRole> = Api::all(Client::new(route.clone(), impersonation::NAMESPACE));
    let selector = ListParams::default().labels(&format!("{}=true", impersonation::LABEL));
    let mut removed = 0;
    for role in roles.list_metadata(&selector).await?.items {
        // Those of others say nothing of their use, and are theirs.
        let used =
            role.annotations().get(impersonation::USED).and_then(|used| used.parse::<Timestamp>().ok());
        if used.is_some_and(|used| now.duration_since(used) > UNUSED) {
            roles.delete(&role.name_any(), &DeleteParams::background()).await?;
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_has_an_account_of_their_own() {
        assert_eq!(name("u-abcde"), "cattle-impersonation-u-abcde");
        let odd = ["ann@example.com", "ANN@example.com", "-", "", "a/b", "system:admin"];
        let names: std::collections::HashSet<String> = odd.iter().map(|user| name(user)).collect();
        assert_eq!(names.len(), odd.len());
        for name in names {
            assert!(name.starts_with("cattle-impersonation--") && name.len() < 64, "{name}");
        }
        assert!(!name(&"x".repeat(300)).contains("xx"));
    }

    #[test]
    fn an_account_may_act_as_its_user_and_nobody_else() {
        let who = |groups: &[&str], token: &str| Abroad {
            user: "ann".to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            extra: [("scopes".to_owned(), vec![token.to_owned()])].into(),
        };
        let rights = Rights::of(&who(&["b", "a"], "x"));
        let rules = rights.rules();
        let rules = rules.as_array().unwrap().iter();
        let text: Vec<String> = rules
            .map(|rule| format!("{} {} {}", rule["verbs"], rule["resources"], rule["resourceNames"]))
            .collect();
        assert_eq!(
            text,
            [
                r#"["impersonate"] ["users"] ["ann"]"#,
                r#"["impersonate"] ["groups"] ["a","b"]"#,
                r#"["impersonate"] ["userextras/scopes"] null"#,
            ]
        );
        assert!(rights.include(&Rights::of(&who(&["a"], "another token"))));
        let other = Rights::of(&who(&["c"], "x"));
        assert!(!rights.include(&other));
        let both = other.clone().with(&rights);
        assert!(both.include(&rights) && both.include(&other));
    }
}
