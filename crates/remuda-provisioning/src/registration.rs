//! Registration tokens: by which machines and agents say whose they are.
//!
//! Reads   ClusterRegistrationTokens, their management Clusters, settings.
//! Writes  the Secret of each token, and what people run to register.
//! Never   writes a token anywhere but into its Secret: commands hold a placeholder.

mod commands;
mod rotation;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
    core::PartialObjectMeta,
};
use rand::Rng;
use remuda_api::management::{Cluster, ClusterRegistrationToken, ClusterRegistrationTokenStatus, Setting};
use remuda_control::{
    Action, Controller, Ctx, Informer, ObjectKey, Scope, drive,
    write::{difference, get_or_create, owner_reference},
};
use remuda_names::{
    gateway::secret::TOKEN_PREFIX as SECRET_PREFIX,
    rancher::{secret_key, setting},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::rotation::{Lifetime, Tokens};
use crate::{error::Error, naming, settings::Settings};

struct Registrations {
    ctx: Arc<Ctx>,
    settings: Settings,
    managements: Informer<Cluster>,
    /// All of them, by name only.
    secrets: Informer<PartialObjectMeta<Secret>>,
}

pub(crate) async fn run(ctx: Arc<Ctx>, stop: CancellationToken) {
    let this = Arc::new(Registrations {
        settings: Settings::new(&ctx),
        managements: ctx.informers.of(Scope::all()),
        secrets: ctx.informers.metadata(Scope::all()),
        ctx: ctx.clone(),
    });
    let controller = Controller::<ClusterRegistrationToken>::new("registration-token", &ctx);
    let (tokens, all) = (controller.root().clone(), controller.root().clone());
    let enqueuer = controller.enqueuer();
    // Management Clusters change all the time; commands follow their environment only.
    let watch = this.managements.subscribe(move |change| {
        let environment =
            |state: &Option<Arc<Cluster>>| state.as_ref().map(|state| state.spec.agent_env_vars.clone());
        if let Some(cluster) =
            change.object().filter(|_| environment(&change.old) != environment(&change.new))
        {
            for token in tokens.in_namespace(&cluster.name_any()) {
                enqueuer.enqueue(ObjectKey::of(&token.metadata));
            }
        }
    });
    let controller = controller
        .requires(&this.managements)
        .watches(&this.secrets, |secret| {
            let token = secret.metadata.name.as_deref().and_then(|name| name.strip_prefix(SECRET_PREFIX));
            token.map(|token| ObjectKey::of(&secret.metadata).sibling(token)).into_iter().collect()
        })
        .watches(this.settings.informer(), move |changed: &Setting| {
            let name = changed.name_any();
            let ours = [setting::SERVER_URL, setting::CACERTS, setting::TOKEN_TTL, setting::TOKEN_GRACE];
            if ours.contains(&name.as_str()) { all.keys() } else { Vec::new() }
        });
    drive(controller, reconcile, this, stop).await;
    drop(watch);
}

async fn reconcile(token: Arc<ClusterRegistrationToken>, this: Arc<Registrations>) -> Result<Action, Error> {
    if token.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    let namespace = token.namespace().unwrap_or_default();
    let mut status = token.status.clone().unwrap_or_default();
    let (name, tokens) = match this.settled(&token, &namespace) {
        Some(name) => (name, Tokens::default()),
        None => this.secret(&token, &namespace).await?,
    };
    status.token_secret_name = name;
    // A token of former versions; it is in the Secret now.
    status.token.clear();
    status.expires_at = tokens.expires_at.clone();
    status.grace_period_expires_at = tokens.grace_expires_at.clone();
    let cluster = match token.spec.cluster_name.as_str() {
        "" => namespace.as_str(),
        cluster => cluster,
    };
    let management = this.managements.get(&ObjectKey::cluster_wide(cluster));
    let environment = management.as_ref().map(|cluster| cluster.spec.agent_env_vars.as_slice());
    commands::fill(&mut status, &this.settings.server(), cluster, environment.unwrap_or_default());
    this.write(&token, &namespace, status).await?;
    Ok(tokens.next(this.ctx.clock.now()).map_or(Action::AwaitChange, Action::RequeueAfter))
}

impl Registrations {
    fn lifetime(&self, token: &ClusterRegistrationToken) -> Lifetime {
        Lifetime {
            ttl: token.spec.ttl.or_else(|| self.settings.get(setting::TOKEN_TTL).parse().ok()),
            grace: token.spec.grace_period.or_else(|| self.settings.get(setting::TOKEN_GRACE).parse().ok()),
        }
    }

    /// The Secret of a token that is good for ever, if it is known to be there: then it need not be read.
    fn settled(&self, token: &ClusterRegistrationToken, namespace: &str) -> Option<String> {
        let name = naming::of::registration_secret(&token.name_any());
        let status = token.status.as_ref()?;
        let settled = self.lifetime(token).is_forever()
            && status.token_secret_name == name
            && status.token.is_empty()
            && status.expires_at.is_empty()
            && status.grace_period_expires_at.is_empty()
            && self.secrets.get(&ObjectKey::namespaced(namespace, &name)).is_some();
        settled.then_some(name)
    }

    /// The Secret with the token: made, or with a new token when its time has come.
    async fn secret(
        &self,
        token: &ClusterRegistrationToken,
        namespace: &str,
    ) -> Result<(String, Tokens), Error> {
        let name = naming::of::registration_secret(&token.name_any());
        let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), namespace);
        let now = self.ctx.clock.now();
        let lifetime = self.lifetime(token);
        let legacy =
            token.status.as_ref().map(|status| status.token.clone()).filter(|token| !token.is_empty());
        let first = Tokens { token: legacy.unwrap_or_else(fresh), ..Tokens::default() };
        let made = Secret {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                owner_references: Some(vec![owner_reference(token, &())?]),
                ..ObjectMeta::default()
            },
            data: Some(encode(&first.rotated(lifetime, now, fresh).unwrap_or_else(|| first.clone()))),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        };
        let found = get_or_create(&self.ctx, &secrets, &made).await?;
        let known = decode(&found);
        let Some(wanted) = known.rotated(lifetime, now, fresh) else {
            return Ok((name, known));
        };
        let patch = json!({
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "data": encode(&wanted),
        });
        let written = secrets.patch(&name, &self.params(), &Patch::Merge(patch)).await;
        written.map_err(Error::api("write", format!("secrets {namespace}/{name}")))?;
        Ok((name, wanted))
    }

    /// The kind has no separate status.
    async fn write(
        &self,
        token: &ClusterRegistrationToken,
        namespace: &str,
        status: ClusterRegistrationTokenStatus,
    ) -> Result<(), Error> {
        let encode = |status| {
            serde_json::to_value(status)
                .map_err(|source| Error::Encode { what: "a registration token", source })
        };
        let before = encode(token.status.clone())?;
        let Some(difference) = difference(&before, &encode(Some(status))?) else {
            return Ok(());
        };
        let patch = json!({"metadata": {"uid": token.metadata.uid}, "status": difference});
        let tokens: Api<ClusterRegistrationToken> = Api::namespaced(self.ctx.client.clone(), namespace);
        let written = tokens.patch(&token.name_any(), &self.params(), &Patch::Merge(patch)).await;
        written
            .map(drop)
            .map_err(Error::api("write", format!("registration token {namespace}/{}", token.name_any())))
    }

    fn params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.ctx.field_manager.to_string()), ..PatchParams::default() }
    }
}

/// A token nobody can guess.
fn fresh() -> String {
    loop {
        let mut random = [0u8; 4 * naming::TOKEN_LENGTH];
        rand::rng().fill_bytes(&mut random);
        if let Some(token) = naming::token(random) {
            return token;
        }
    }
}

fn encode(tokens: &Tokens) -> BTreeMap<String, ByteString> {
    let pairs = [
        (secret_key::TOKEN, &tokens.token),
        (secret_key::PREVIOUS_TOKEN, &tokens.previous),
        (secret_key::EXPIRES_AT, &tokens.expires_at),
        (secret_key::GRACE_PERIOD_EXPIRES_AT, &tokens.grace_expires_at),
    ];
    pairs.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec()))).collect()
}

fn decode(secret: &Secret) -> Tokens {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok()).unwrap_or_default()
    };
    Tokens {
        token: text(secret_key::TOKEN),
        previous: text(secret_key::PREVIOUS_TOKEN),
        expires_at: text(secret_key::EXPIRES_AT),
        grace_expires_at: text(secret_key::GRACE_PERIOD_EXPIRES_AT),
    }
}
