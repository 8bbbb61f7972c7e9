//! All of it together: caches, what is made of them, and questions.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use parking_lot::Mutex;
use remuda_api::{
    management::{
        AuthConfig, ClusterRoleTemplateBinding, GlobalRole, GlobalRoleBinding, Principal, RoleTemplate,
        Setting, Token, User,
    },
    provisioning,
};
use remuda_auth::{
    attributes::Attributes,
    identity,
    rbac::{
        object::Key,
        policy::{Policy, RbacChange},
    },
};
use remuda_control::{Chain, Ctx, Informer, ObjectKey, Scope, informer::Subscription};
use remuda_names::rancher::{annotation, group};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    access::Access,
    admission::Removals,
    builtin, creators, rights,
    sso::Sso,
    throttle::Throttle,
    tokens::{Tokens, Verdict},
    user_cleanup,
};

pub(crate) const BY_CLUSTER: &str = "identity/cluster";
const BY_TOKEN_CLUSTER: &str = "identity/token-cluster";
pub(crate) const BY_SUBJECT: &str = "identity/subject";
pub(crate) const BY_USERNAME: &str = "identity/username";
pub(crate) const BY_USER: &str = "identity/user";

/// For a cache to hear of a write of our own.
pub(crate) const HEARD: Duration = Duration::from_secs(2);
/// For the caches to fill at the start; what takes longer is told to callers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between looks at the clock for tokens that have expired.
const TICK: Duration = Duration::from_millis(500);
/// For further changes to come before all of them take effect.
const CROWD: Duration = Duration::from_millis(10);
/// Ticks between writes of when tokens were used last.
const TICKS_PER_FLUSH: u32 = 60;

/// A token that is good for one cluster.
#[derive(Debug, Clone)]
pub struct Held {
    pub name: String,
    pub user: Arc<identity::User>,
    /// What is stored of its key.
    pub hash: String,
    pub expires: Option<Timestamp>,
    pub created: Option<Timestamp>,
}

/// What of a token makes a difference to anybody.
#[derive(PartialEq)]
struct Meaning<'a> {
    key: &'a str,
    owner: &'a str,
    cluster: &'a str,
    provider: &'a str,
    groups: &'a [Principal],
    enabled: bool,
    expires: Option<Timestamp>,
    going: bool,
}

impl<'a> Meaning<'a> {
    fn of(token: &'a Token) -> Self {
        Self {
            key: &token.token,
            owner: crate::tokens::owner(token),
            cluster: &token.cluster_name,
            provider: &token.auth_provider,
            groups: &token.group_principals,
            enabled: token.enabled.unwrap_or(true) && !token.expired,
            expires: crate::tokens::expires(token),
            going: token.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// Everybody, and what they may. Clones are the same.
#[derive(Clone)]
pub struct Identity(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) ctx: Arc<Ctx>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) tokens: Tokens,
    pub(crate) token_cache: Informer<Token>,
    pub(crate) users: Informer<User>,
    pub(crate) settings: Informer<Setting>,
    pub(crate) global_roles: Informer<GlobalRole>,
    pub(crate) global_bindings: Informer<GlobalRoleBinding>,
    pub(crate) templates: Informer<RoleTemplate>,
    pub(crate) cluster_bindings: Informer<ClusterRoleTemplateBinding>,
    pub(crate) provisioned: Informer<provisioning::Cluster>,
    pub(crate) auth_configs: Informer<AuthConfig>,
    pub(crate) sso: Sso,
    pub(crate) throttle: Throttle,
    pub(crate) removals: Removals,
    /// Few passwords are hashed at a time: it takes memory and processors.
    pub(crate) hashing: tokio::sync::Semaphore,
    changed: Arc<Notify>,
    /// Told after anything about anybody changed.
    told: watch::Sender<()>,
    /// Told after roles or bindings changed.
    regranted: watch::Sender<()>,
    granted: Mutex<BTreeMap<Key, Value>>,
    subscriptions: OnceLock<Vec<Subscription>>,
}

impl Identity {
    /// Follows users, tokens and roles on the API behind `ctx`, and adds to `policy` what they mean.
    pub fn new(ctx: Arc<Ctx>, policy: Arc<Policy>) -> Self {
        let informers = &ctx.informers;
        let cluster_bindings: Informer<ClusterRoleTemplateBinding> = informers.of(Scope::all());
        cluster_bindings.add_index(BY_CLUSTER, |binding| vec![binding.cluster_name.clone()]);
        let provisioned: Informer<provisioning::Cluster> = informers.of(Scope::all());
        let global_bindings: Informer<GlobalRoleBinding> = informers.of(Scope::all());
        global_bindings.add_index(BY_SUBJECT, |binding| {
            let names = [&binding.user_name, &binding.group_principal_name, &binding.user_principal_name];
            names.into_iter().filter(|name| !name.is_empty()).cloned().collect()
        });
        let users: Informer<User> = informers.of(Scope::all());
        users.add_index(BY_USERNAME, |user| vec![user.username.to_lowercase()]);
        let token_cache: Informer<Token> = informers.of(Scope::all());
        token_cache.add_index(BY_USER, |token| vec![crate::tokens::owner(token).to_owned()]);
        token_cache.add_index(BY_TOKEN_CLUSTER, |token| {
            Some(token.cluster_name.clone()).filter(|name| !name.is_empty()).into_iter().collect()
        });
        let identity = Self(Arc::new(Shared {
            policy,
            tokens: Tokens::default(),
            token_cache,
            users,
            settings: informers.of(Scope::all()),
            global_roles: informers.of(Scope::all()),
            global_bindings,
            templates: informers.of(Scope::all()),
            cluster_bindings,
            provisioned,
            auth_configs: informers.of(Scope::all()),
            sso: Sso::default(),
            throttle: Throttle::default(),
            removals: Removals::default(),
            hashing: tokio::sync::Semaphore::new(2),
            changed: Arc::default(),
            told: watch::Sender::default(),
            regranted: watch::Sender::default(),
            granted: Mutex::default(),
            subscriptions: OnceLock::new(),
            ctx,
        }));
        identity.subscribe();
        identity
    }

    fn subscribe(&self) {
        let shared = &self.0;
        let weak = Arc::downgrade(shared);
        let users = shared.users.subscribe(move |change| {
            let (Some(shared), Some(user)) = (weak.upgrade(), change.object()) else { return };
            match change.is_delete() {
                true => shared.tokens.remove_user(&user.name_any()),
                false => shared.tokens.put_user(user),
            }
            // Bindings may name somebody as their provider does.
            shared.changed.notify_one();
        });
        let weak = Arc::downgrade(shared);
        let tokens = shared.token_cache.subscribe(move |change| {
            let (Some(shared), Some(token)) = (weak.upgrade(), change.object()) else { return };
            match change.is_delete() {
                true => shared.tokens.remove_token(&token.name_any()),
                false => shared.tokens.put_token(token, shared.ctx.clock.now()),
            }
            // When it was used last is written often, and means nothing.
            if change.old.as_deref().map(Meaning::of) != change.new.as_deref().map(Meaning::of) {
                shared.told.send_replace(());
            }
        });
        let weak = Arc::downgrade(shared);
        let providers = shared.auth_configs.subscribe(move |change| {
            let (Some(shared), Some(config)) = (weak.upgrade(), change.object()) else { return };
            shared.tokens.put_provider(&config.name_any(), config.enabled && !change.is_delete());
            shared.told.send_replace(());
        });
        let waker = || {
            let changed = shared.changed.clone();
            move || changed.notify_one()
        };
        let (roles, bindings, templates, clusters, provisioned) =
            (waker(), waker(), waker(), waker(), waker());
        let subscriptions = vec![
            users,
            tokens,
            providers,
            shared.global_roles.subscribe(move |_| roles()),
            shared.global_bindings.subscribe(move |_| bindings()),
            shared.templates.subscribe(move |_| templates()),
            shared.cluster_bindings.subscribe(move |_| clusters()),
            shared.provisioned.subscribe(move |change| {
                // Status is written often, and hardly ever means anything here.
                if change.old.as_ref().map(said) != change.new.as_ref().map(said) {
                    provisioned();
                }
            }),
        ];
        let _ = shared.subscriptions.set(subscriptions);
    }

    /// Waits until everything is known, though not for ever.
    pub async fn ready(&self) {
        let shared = &self.0;
        if tokio::time::timeout(PATIENCE, shared.synced()).await.is_err() {
            tracing::warn!("users and roles are not known yet; tokens are not good until they are");
            return;
        }
        shared.grant();
        shared.tokens.set_ready();
    }

    /// Keeps rights up to date, ends what has expired and writes when tokens were used last, until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        tokio::join!(
            self.follow(&stop),
            creators::run(self.clone(), stop.clone()),
            user_cleanup::run(self.clone(), stop.clone()),
        );
    }

    async fn follow(&self, stop: &CancellationToken) {
        let shared = &self.0;
        if stop.run_until_cancelled(shared.synced()).await.is_none() {
            return;
        }
        shared.grant();
        shared.tokens.set_ready();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut ticks = 0_u32;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = shared.changed.notified() => {
                    // Changes come in crowds.
                    tokio::time::sleep(CROWD).await;
                    shared.grant();
                }
                _ = tick.tick() => {
                    shared.tokens.expire(shared.ctx.clock.now());
                    ticks = ticks.wrapping_add(1);
                    if ticks.is_multiple_of(TICKS_PER_FLUSH) {
                        shared.flush().await;
                        if shared.ctx.leadership.is_ours() && self.has_sso() {
                            self.sweep_logins(shared.ctx.clock.now()).await;
                        }
                    }
                }
            }
        }
        shared.flush().await;
    }

    /// Who a bearer token stands for.
    pub fn authenticate(&self, bearer: &str) -> Verdict {
        self.0.tokens.check(bearer, self.0.ctx.clock.now())
    }

    /// The tokens that are good for one cluster and nothing else, by the name of its management Cluster. Those of
    /// which more or less than the usual hash is stored are not among them: others could not check them. `None`
    /// while not everything is known.
    pub fn held(&self, cluster: &str) -> Option<Vec<Held>> {
        let (shared, now) = (&self.0, self.0.ctx.clock.now());
        if !shared.tokens.is_ready() {
            return None;
        }
        let tokens = shared.token_cache.by_index(BY_TOKEN_CLUSTER, cluster);
        let held = tokens.iter().filter(|token| remuda_auth::bearer::is_current(&token.token));
        let held = held.filter_map(|token| {
            let name = token.name_any();
            let user = shared.tokens.user_of(&name, now)?;
            let created = token.metadata.creation_timestamp.as_ref().map(|time| time.0);
            Some(Held {
                user,
                hash: token.token.clone(),
                expires: crate::tokens::expires(token),
                created,
                name,
            })
        });
        Some(held.collect())
    }

    /// Is told after anything about anybody changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.told.subscribe()
    }

    /// Is told after roles or bindings changed: what [`Identity::access`] says may be different then.
    pub fn rights_changes(&self) -> watch::Receiver<()> {
        self.0.regranted.subscribe()
    }

    /// A token was used where this server does not see it.
    pub fn note_use(&self, token: &str, at: Timestamp) {
        self.0.tokens.note_use(token, at);
    }

    /// What somebody may in a cluster, by the name of its management Cluster.
    pub fn access(&self, name: &str, groups: &[String], cluster: &str) -> Access {
        let shared = &self.0;
        let user = identity::User::new(name, groups.iter().cloned());
        let may = |verb: &str| {
            let attributes =
                Attributes::resource(verb, group::MANAGEMENT, "clusters").version("v3").name(cluster);
            shared.policy.authorize(&user, &attributes).allowed
        };
        if may("*") {
            return Access::Owner;
        }
        let mut names = self.bound_templates(name, groups, cluster);
        if !builtin::is_local(cluster) {
            names.extend(self.inherited_templates(name, groups));
        }
        match self.access_by_templates(&names) {
            // Auditors read about clusters, and enter those they were given a role in.
            Access::None if may("get") && !self.is_auditor(name, groups) => Access::Member(Vec::new()),
            access => access,
        }
    }

    /// Whether somebody was given a role anywhere.
    pub(crate) fn has_role(&self, name: &str, groups: &[String]) -> bool {
        let find = |principal: &str| self.0.tokens.user_of_principal(principal);
        let is = |subject: Option<rights::Subject>| subject.is_some_and(|subject| subject.is(name, groups));
        self.0.cluster_bindings.list().iter().any(|binding| is(rights::cluster_subject(binding, &find)))
            || self.0.global_bindings.list().iter().any(|binding| is(rights::global_subject(binding, &find)))
    }

    /// A GlobalRole as JSON.
    pub fn global_role(&self, name: &str) -> Option<Value> {
        let role = self.0.global_roles.get(&ObjectKey::cluster_wide(name))?;
        serde_json::to_value(&*role).ok()
    }

    /// Makes what is missing of what must be there. Gives the password of the first user, if it was made now.
    pub async fn ensure(&self) -> Result<Option<crate::FirstUser>, crate::Error> {
        let shared = &self.0;
        let wanted = builtin::global_roles();
        let roles = join_all(wanted.iter().map(|role| {
            shared.keep(role, &shared.global_roles, |known| {
                let same = known.rules == role.rules && known.display_name == role.display_name;
                is_theirs(&role.name_any(), known.builtin) || same && known.builtin
            })
        }));
        let wanted = builtin::role_templates();
        let templates = join_all(wanted.iter().map(|template| {
            shared.keep(template, &shared.templates, |known| {
                let same = RoleTemplate { metadata: template.metadata.clone(), ..RoleTemplate::clone(known) };
                is_theirs(&template.name_any(), known.builtin) || same == *template
            })
        }));
        let (roles, templates, first) = tokio::join!(roles, templates, self.ensure_first_user());
        roles.into_iter().chain(templates).collect::<Result<(), _>>()?;
        first
    }
}

impl Shared {
    async fn synced(&self) {
        tokio::join!(
            self.token_cache.wait_synced(),
            self.users.wait_synced(),
            self.settings.wait_synced(),
            self.global_roles.wait_synced(),
            self.global_bindings.wait_synced(),
            self.templates.wait_synced(),
            self.cluster_bindings.wait_synced(),
            self.auth_configs.wait_synced(),
            self.provisioned.wait_synced(),
        );
    }

    /// Puts into the policy what has changed.
    fn grant(&self) {
        let sources = rights::Sources {
            roles: self.global_roles.list(),
            bindings: self.global_bindings.list(),
            templates: self.templates.list(),
            cluster_bindings: self.cluster_bindings.list(),
            provisioned: self.provisioned.list().iter().filter_map(|cluster| self.facts(cluster)).collect(),
        };
        let wanted = rights::grants(&sources, &|principal| self.tokens.user_of_principal(principal));
        let mut granted = self.granted.lock();
        // What is no longer so goes first: a moment with too little is better than one with too much.
        for key in granted.keys().filter(|key| !wanted.contains_key(key)) {
            self.policy.apply(RbacChange::Delete(key.clone()));
        }
        for (key, object) in wanted.iter().filter(|(key, object)| granted.get(key) != Some(object)) {
            self.policy.apply(RbacChange::Put(key.kind, object));
        }
        *granted = wanted;
        drop(granted);
        self.told.send_replace(());
        self.regranted.send_replace(());
    }

    fn facts(&self, cluster: &Arc<provisioning::Cluster>) -> Option<rights::Provisioned> {
        Some(rights::Provisioned {
            namespace: cluster.namespace()?,
            name: cluster.name_any(),
            management: management_name(cluster),
            creator: creators::unbound_creator(cluster, |name| self.user_since(name)),
            kubeconfig: kubeconfig_name(cluster),
        })
    }

    /// When the living User of a name was made.
    pub(crate) fn user_since(&self, name: &str) -> Option<Timestamp> {
        let user = self.users.get(&ObjectKey::cluster_wide(name))?;
        let living = user.metadata.deletion_timestamp.is_none();
        user.metadata.creation_timestamp.as_ref().map(|time| time.0).filter(|_| living)
    }

    /// Writes when tokens were used last, and removes those that were over long ago.
    async fn flush(&self) {
        let tokens: Api<Token> = Api::all(self.ctx.client.clone());
        for (name, at) in self.tokens.used() {
            let patch = json!({"lastUsedAt": Time(at)});
            let params = PatchParams::apply(&self.ctx.field_manager);
            let params = PatchParams { force: false, ..params };
            if let Err(error) = tokens.patch(&name, &params, &Patch::Merge(patch)).await {
                tracing::debug!(token = &*name, error = %Chain(&error), "the last use of a token is not written");
            }
        }
        if !self.ctx.leadership.is_ours() {
            return;
        }
        for name in self.tokens.long_over(self.ctx.clock.now()) {
            if let Err(error) = tokens.delete(&name, &DeleteParams::default()).await {
                tracing::debug!(token = &*name, error = %Chain(&error), "an expired token is not removed");
            }
        }
    }

    /// Creates an object that comes with us, or brings it up to date.
    async fn keep<K>(
        &self,
        wanted: &K,
        cache: &Informer<K>,
        is_same: impl Fn(&Arc<K>) -> bool,
    ) -> Result<(), crate::Error>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + serde::Serialize
            + serde::de::DeserializeOwned
            + std::fmt::Debug
            + Send
            + Sync
            + 'static,
    {
        let name = wanted.name_any();
        if cache.get(&ObjectKey::cluster_wide(&name)).is_some_and(|known| is_same(&known)) {
            return Ok(());
        }
        let api: Api<K> = Api::all(self.ctx.client.clone());
        let params = PatchParams::apply(&self.ctx.field_manager).force();
        let applied = api.patch(&name, &params, &Patch::Apply(wanted)).await;
        applied.map(drop).map_err(|source| crate::Error::api("write", &name, source))
    }

    /// The number a setting says, else `default`.
    pub(crate) fn number(&self, setting: &str, default: i64) -> i64 {
        let setting = self.settings.get(&ObjectKey::cluster_wide(setting));
        setting.and_then(|setting| setting.effective().parse().ok()).unwrap_or(default)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.ctx.clock.now()
    }
}

/// A role of this name was there before the server came with one. Its holders were not meant to have ours.
fn is_theirs(name: &str, is_builtin: bool) -> bool {
    let is_theirs = !is_builtin && builtin::came_later(name);
    if is_theirs {
        tracing::warn!(
            role = name,
            "the role is not the server's own, and is left as it is; delete it to get that"
        );
    }
    is_theirs
}

pub(crate) fn management_name(cluster: &provisioning::Cluster) -> String {
    cluster.status.as_ref().map(|status| status.cluster_name.clone()).unwrap_or_default()
}

/// What of a cluster rights depend on.
fn said(cluster: &Arc<provisioning::Cluster>) -> (String, Option<String>, [Option<String>; 3]) {
    let annotations = [
        annotation::CREATOR_ID,
        annotation::NO_CREATOR_RBAC,
        remuda_names::identity::annotation::CREATOR_BOUND,
    ];
    let annotations = annotations.map(|name| cluster.annotations().get(name).cloned());
    (management_name(cluster), kubeconfig_name(cluster), annotations)
}

/// The Secret with the kubeconfig of a cluster, once the server has made it.
fn kubeconfig_name(cluster: &provisioning::Cluster) -> Option<String> {
    let name = cluster.status.as_ref().map(|status| status.client_secret_name.clone());
    name.filter(|name| !name.is_empty())
}
