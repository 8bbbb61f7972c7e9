//! Makes a cluster know what it is to know, and nothing else.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use remuda_names::{PROGRAM, endpoint, rancher::name::SYSTEM};
use serde_json::{Value, json};

use super::{
    Error,
    wanted::{Wanted, definitions, differs, user_object},
};

/// For a cluster to serve a kind that was just defined.
const SERVED: Duration = Duration::from_secs(10);

type Objects = BTreeMap<String, DynamicObject>;

/// The objects of people in one cluster.
pub(super) struct There {
    client: Client,
    tokens: Api<DynamicObject>,
    users: Api<DynamicObject>,
    secrets: Api<Secret>,
}

impl There {
    pub(super) fn new(client: Client) -> There {
        let of = |kind: &str, plural: &str| {
            let kind = GroupVersionKind::gvk(endpoint::GROUP, endpoint::VERSION, kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, plural);
            Api::namespaced_with(client.clone(), SYSTEM, &resource)
        };
        There {
            tokens: of(endpoint::TOKEN_KIND, endpoint::TOKENS),
            users: of(endpoint::USER_KIND, endpoint::USERS),
            secrets: Api::namespaced(client.clone(), SYSTEM),
            client,
        }
    }

    /// Brings the cluster up to date. Gives when tokens were used there.
    pub(super) async fn write(&self, wanted: &Wanted) -> Result<Vec<(String, Timestamp)>, Error> {
        self.define().await?;
        let (tokens, users) = (list(&self.tokens).await?, list(&self.users).await?);
        let hashes = self.hashes().await?;
        // What is no longer so goes first: a moment with too little is better than one with too much.
        self.take_away(wanted, &tokens, &users, &hashes).await?;
        for (name, groups) in &wanted.users {
            apply(&self.users, users.get(name), &user_object(name, groups)).await?;
        }
        for (name, token) in &wanted.tokens {
            // The hash comes first: an authenticator sees nothing of a token, or all that makes it good.
            if hashes.get(name) != Some(&token.hash) && !self.keep_hash(name, &token.hash).await? {
                continue;
            }
            apply(&self.tokens, tokens.get(name), &token.object(name)).await?;
        }
        let used = tokens.iter().filter_map(|(name, token)| {
            Some((name.clone(), token.data.get("lastUsedAt")?.as_str()?.parse().ok()?))
        });
        Ok(used.collect())
    }

    /// Makes the cluster know nobody.
    pub(super) async fn withdraw(&self) -> Result<(), Error> {
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), SYSTEM);
        gone(sets.delete(endpoint::NAME, &DeleteParams::background()).await.map(drop))
            .map_err(Error::api("remove the authenticator"))?;
        let served = |listed: Result<Objects, Error>| match listed {
            Err(Error::Api { source: kube::Error::Api(status), .. }) if status.code == 404 => {
                Ok(Objects::new())
            }
            listed => listed,
        };
        let (tokens, users) = (served(list(&self.tokens).await)?, served(list(&self.users).await)?);
        self.take_away(&Wanted::default(), &tokens, &users, &self.hashes().await?).await
    }

    async fn take_away(
        &self,
        wanted: &Wanted,
        tokens: &Objects,
        users: &Objects,
        hashes: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let remove = DeleteParams::default();
        for name in hashes.keys().filter(|name| !wanted.tokens.contains_key(*name)) {
            gone(self.secrets.delete(name, &remove).await.map(drop)).map_err(Error::api("remove a hash"))?;
        }
        for name in tokens.keys().filter(|name| !wanted.tokens.contains_key(*name)) {
            gone(self.tokens.delete(name, &remove).await.map(drop)).map_err(Error::api("remove a token"))?;
        }
        for name in users.keys().filter(|name| !wanted.users.contains_key(*name)) {
            gone(self.users.delete(name, &remove).await.map(drop)).map_err(Error::api("remove a user"))?;
        }
        Ok(())
    }

    /// The hashes we have written, by the names of their tokens.
    async fn hashes(&self) -> Result<BTreeMap<String, String>, Error> {
        let selector = ListParams::default().labels(&format!("{}=true", endpoint::SECRET_LABEL));
        let listed = self.secrets.list(&selector).await.map_err(Error::api("list hashes"))?;
        let hash = |secret: &Secret| {
            let value = secret.data.as_ref().and_then(|data| data.get(endpoint::HASH));
            String::from_utf8(value.map(|value| value.0.clone()).unwrap_or_default()).unwrap_or_default()
        };
        Ok(listed.items.iter().map(|secret| (secret.name_any(), hash(secret))).collect())
    }

    /// Writes the hash of a token. Not where another Secret is: its name is all they have in common.
    async fn keep_hash(&self, name: &str, hash: &str) -> Result<bool, Error> {
        let found = self.secrets.get_opt(name).await.map_err(Error::api("read a hash"))?;
        let only_hash = |secret: &Secret| {
            secret.type_.as_deref() == Some("Opaque")
                && secret.data.iter().flatten().all(|(key, _)| key == endpoint::HASH)
        };
        if found.as_ref().is_some_and(|secret| !only_hash(secret)) {
            tracing::warn!(
                token = name,
                "a Secret of this name is something else: the token is good through here only"
            );
            return Ok(false);
        }
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "labels": {endpoint::SECRET_LABEL: "true"}},
            "data": {endpoint::HASH: BASE64_STANDARD.encode(hash)},
        });
        let params = PatchParams::apply(PROGRAM).force();
        let written = self.secrets.patch(name, &params, &Patch::Apply(secret)).await;
        written.map(|_| true).map_err(Error::api("write a hash"))
    }

    /// The kinds, if the cluster does not have them.
    async fn define(&self) -> Result<(), Error> {
        let missing = |listed: Result<Objects, Error>| match listed {
            Err(Error::Api { source: kube::Error::Api(status), .. }) if status.code == 404 => Ok(true),
            listed => listed.map(|_| false),
        };
        if !missing(list(&self.tokens).await)? && !missing(list(&self.users).await)? {
            return Ok(());
        }
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let kinds: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        for definition in definitions() {
            let definition: DynamicObject = serde_json::from_value(definition).map_err(Error::Encode)?;
            match kinds.create(&PostParams::default(), &definition).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                made => made.map(drop).map_err(Error::api("define a kind"))?,
            }
        }
        let served = async {
            while missing(list(&self.tokens).await)? || missing(list(&self.users).await)? {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        };
        tokio::time::timeout(SERVED, served).await.unwrap_or(Err(Error::NotServed))
    }
}

async fn list(api: &Api<DynamicObject>) -> Result<Objects, Error> {
    let listed =
        api.list(&ListParams::default()).await.map_err(Error::api("list what is known of people"))?;
    Ok(listed.items.into_iter().map(|object| (object.name_any(), object)).collect())
}

/// Writes an object unless it is there already.
async fn apply(api: &Api<DynamicObject>, found: Option<&DynamicObject>, wanted: &Value) -> Result<(), Error> {
    if found.is_some_and(|found| !differs(wanted, &found.data)) {
        return Ok(());
    }
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply(PROGRAM).force();
    let written = api.patch(name, &params, &Patch::Apply(wanted)).await;
    written.map(drop).map_err(Error::api("write what is known of people"))
}

fn gone(deleted: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted,
    }
}
