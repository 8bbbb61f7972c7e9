//! From changes in the store to work: what each change may concern.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use remuda_coordination::queue::WorkQueue;
use remuda_objects::quota;
use remuda_store::{Change, Record};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Work,
    accounts::{ACCOUNT_NAME, TOKEN_TYPE},
    volumes,
};
use crate::{
    delete::{FOREGROUND, ORPHAN},
    follow::News,
};

/// The part of an object that controllers go by.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: HeadMeta<'a>,
    /// Of a Secret a text; of others whatever it is.
    #[serde(borrow, default, rename = "type")]
    type_: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMeta<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    owner_references: Vec<OwnerHead<'a>>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    finalizers: Vec<Cow<'a, str>>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerHead<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(default)]
    block_owner_deletion: Option<bool>,
}

/// An owner as its dependent names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnerRef {
    uid: Arc<str>,
    /// An owner that goes in the foreground waits for the dependent.
    blocks: bool,
}

impl HeadMeta<'_> {
    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|known| known == finalizer)
    }
}

impl Head<'_> {
    /// The service account a token Secret is for; `None` of anything else.
    fn account(&self) -> Option<String> {
        let type_: Cow<'_, str> = serde_json::from_str(self.type_?.get()).ok()?;
        if type_ != TOKEN_TYPE {
            return None;
        }
        let annotations = self.metadata.annotations.map_or("{}", RawValue::get);
        let mut annotations: HashMap<Cow<'_, str>, String> =
            serde_json::from_str(annotations).unwrap_or_default();
        Some(annotations.remove(ACCOUNT_NAME).unwrap_or_default())
    }
}

/// Who depends on whom, and what is going.
#[derive(Default)]
pub(crate) struct Triage {
    /// Owner uid to the keys of its dependents.
    dependents: HashMap<Arc<str>, HashSet<Arc<str>>>,
    /// Keys with owners to the owners.
    owners: HashMap<Arc<str>, Vec<OwnerRef>>,
    /// Owners that were seen to go while they had dependents. Their kind may go right after them, and
    /// then nobody could be asked. With whether they were in a namespace.
    absent: HashMap<Arc<str>, bool>,
    /// Objects going in the foreground: uid to key.
    foreground: HashMap<Arc<str>, Arc<str>>,
    /// Namespaces there are.
    namespaces: HashSet<String>,
    /// Namespaces that are going.
    terminating: HashSet<String>,
    /// Dependents whose owner's kind is not served, to be looked at when kinds change.
    unresolved: HashSet<Arc<str>>,
    /// CRDs that are going, by collection prefix.
    going_definitions: HashMap<String, String>,
    tokens: Tokens,
    /// Names of quotas by namespace.
    quotas: HashMap<String, HashSet<String>>,
    /// Keys of claims that are to go and are held, by namespace.
    held_claims: HashMap<String, HashSet<Arc<str>>>,
    /// Addresses of Services by their keys.
    service_addresses: HashMap<Arc<str>, Vec<IpAddr>>,
    /// Networks of Services that are going.
    going_networks: HashSet<String>,
}

/// The part of a Service that has addresses.
#[derive(Deserialize)]
struct Addressed {
    #[serde(default)]
    spec: AddressedSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct AddressedSpec {
    #[serde(default, rename = "clusterIPs")]
    cluster_ips: Vec<String>,
}

/// Token Secrets and the service accounts they are for: with ten thousand Secrets in a namespace nobody should have
/// to look through them because an account went.
#[derive(Default)]
struct Tokens {
    /// Keys of Secrets to `namespace/name` of their accounts…
    accounts: HashMap<Arc<str>, String>,
    /// …and the other way round.
    secrets: HashMap<String, HashSet<Arc<str>>>,
}

impl Tokens {
    /// What a Secret is for now, if it is a token.
    fn set(&mut self, key: &Arc<str>, account: Option<String>) {
        if self.accounts.get(key) == account.as_ref() {
            return;
        }
        if let Some(old) = self.accounts.remove(key)
            && let Some(keys) = self.secrets.get_mut(&old)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.secrets.remove(&old);
            }
        }
        if let Some(account) = account {
            self.secrets.entry(account.clone()).or_default().insert(key.clone());
            self.accounts.insert(key.clone(), account);
        }
    }

    fn of(&self, account: &str) -> impl Iterator<Item = &Arc<str>> {
        self.secrets.get(account).into_iter().flatten()
    }
}

/// The part of an IPAddress that says whose it is.
#[derive(Deserialize)]
struct Taken {
    spec: TakenSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TakenSpec {
    parent_ref: Parent,
}

#[derive(Deserialize)]
struct Parent {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

/// The parts of a storage key.
struct Parts<'a> {
    group: &'a str,
    plural: &'a str,
    rest: &'a str,
}

fn split(key: &str) -> Option<Parts<'_>> {
    let mut parts = key.strip_prefix('/')?.splitn(3, '/');
    Some(Parts { group: parts.next()?, plural: parts.next()?, rest: parts.next()? })
}

impl Triage {
    pub(crate) fn tell(&mut self, news: News<'_>, queue: &WorkQueue<Work>) {
        match news {
            News::Reset(records) => {
                let unresolved = std::mem::take(&mut self.unresolved);
                *self = Self { unresolved, ..Self::default() };
                let names = records.iter().filter_map(|record| record.key.strip_prefix("/core/namespaces/"));
                self.namespaces = names.map(str::to_owned).collect();
                for record in records {
                    self.changed(record, Change::Created, queue);
                }
            }
            News::Changed(event) => self.changed(&event.record, event.change, queue),
        }
    }

    /// Keys of the objects that name this uid as an owner.
    pub(crate) fn dependents_of(&self, uid: &str) -> Vec<Arc<str>> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Keys of the objects going in the foreground that wait for the object at `key`, themselves or through others.
    /// If it waits for one of them in turn, that is a cycle of owners in which all would wait for ever.
    pub(crate) fn waiting_for(&self, key: &str) -> HashSet<Arc<str>> {
        let mut waiting = HashSet::new();
        let mut next = vec![key];
        while let Some(key) = next.pop() {
            let owners = self.owners.get(key).map(Vec::as_slice).unwrap_or_default();
            for owner in owners.iter().filter(|owner| owner.blocks) {
                if let Some(owner) = self.foreground.get(&owner.uid)
                    && waiting.insert(owner.clone())
                {
                    next.push(owner);
                }
            }
        }
        waiting
    }

    /// Whether the owner of this uid is known to be gone. An object outside namespaces cannot have had
    /// one inside.
    pub(crate) fn is_absent(&self, uid: &str, namespaced: bool) -> bool {
        self.absent.get(uid).is_some_and(|owner_namespaced| namespaced || !owner_namespaced)
    }

    pub(crate) fn unresolved(&mut self, key: &Arc<str>) {
        self.unresolved.insert(key.clone());
    }

    fn changed(&mut self, record: &Record, change: Change, queue: &WorkQueue<Work>) {
        let Some(parts) = split(&record.key) else { return };
        let gone = change == Change::Deleted;
        // Events own nothing, are owned by nothing, and are many.
        let is_event = parts.group == "core" && parts.plural == "events";
        if !is_event && let Ok(head) = serde_json::from_slice::<Head<'_>>(&record.value) {
            self.owners(&record.key, &head.metadata, gone, queue);
            self.kinds(record, &parts, &head, gone, queue);
        }
        if change != Change::Updated
            && let Some((namespace, _)) = parts.rest.split_once('/')
        {
            // A create that passed its check just before the namespace began to go must not outlive it.
            let homeless = change == Change::Created && !self.namespaces.contains(namespace);
            if homeless || self.terminating.contains(namespace) {
                queue.add(Work::Namespace(namespace.to_owned()));
            }
        }
        self.quotas(record, &parts, change, queue);
        if gone
            && !self.going_definitions.is_empty()
            && let Some(name) = self.going_definitions.get(&format!("/{}/{}/", parts.group, parts.plural))
        {
            queue.add(Work::Definition(name.clone()));
        }
    }

    /// What is created is charged when it is; what becomes less is counted again, and so is a quota that changes.
    fn quotas(&mut self, record: &Record, parts: &Parts<'_>, change: Change, queue: &WorkQueue<Work>) {
        let Some((namespace, name)) = parts.rest.split_once('/') else { return };
        if record.key.starts_with(crate::quotas::PREFIX) {
            let names = self.quotas.entry(namespace.to_owned()).or_default();
            if change == Change::Deleted {
                names.remove(name);
                if names.is_empty() {
                    self.quotas.remove(namespace);
                }
                return;
            }
            names.insert(name.to_owned());
            let counted = serde_json::from_slice(&record.value).is_ok_and(|it| quota::is_counted(&it));
            if change == Change::Created || !counted {
                queue.add(Work::Quotas(namespace.to_owned()));
            }
            return;
        }
        let lessens = match (parts.group, parts.plural) {
            ("core", "pods" | "services" | "persistentvolumeclaims") => change != Change::Created,
            ("core", "events") => false,
            _ => change == Change::Deleted,
        };
        if lessens && self.quotas.contains_key(namespace) {
            queue.add(Work::Quotas(namespace.to_owned()));
        }
    }

    fn owners(&mut self, key: &Arc<str>, meta: &HeadMeta<'_>, gone: bool, queue: &WorkQueue<Work>) {
        let new: Vec<OwnerRef> = if gone {
            Vec::new()
        } else {
            let owners = meta.owner_references.iter();
            owners
                .map(|owner| OwnerRef {
                    uid: Arc::from(owner.uid.as_ref()),
                    blocks: owner.block_owner_deletion == Some(true),
                })
                .collect()
        };
        let known = self.owners.get(key).map(Vec::as_slice).unwrap_or_default();
        if new != known {
            let old = self.owners.remove(key).unwrap_or_default();
            for owner in &new {
                self.dependents.entry(owner.uid.clone()).or_default().insert(key.clone());
            }
            for OwnerRef { uid, .. } in old {
                if !new.iter().any(|owner| owner.uid == uid)
                    && let Some(keys) = self.dependents.get_mut(&uid)
                {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.dependents.remove(&uid);
                        self.absent.remove(&uid);
                    }
                }
                // An owner may have waited for just this.
                if let Some(owner) = self.foreground.get(&uid) {
                    queue.add(Work::Owner(owner.clone()));
                }
            }
            if !new.is_empty() {
                queue.add(Work::Dependent(key.clone()));
                self.owners.insert(key.clone(), new);
            }
        }
        let going = meta.deletion_timestamp.is_some();
        if gone {
            self.foreground.remove(meta.uid.as_ref());
            if let Some((uid, dependents)) = self.dependents.get_key_value(meta.uid.as_ref()) {
                let namespaced = split(key).is_some_and(|parts| parts.rest.contains('/'));
                self.absent.insert(uid.clone(), namespaced);
                dependents.iter().for_each(|dependent| queue.add(Work::Dependent(dependent.clone())));
            }
        } else if going && meta.finalizers.iter().any(|name| name == FOREGROUND || name == ORPHAN) {
            if meta.finalizers.iter().any(|name| name == FOREGROUND) {
                self.foreground.insert(Arc::from(meta.uid.as_ref()), key.clone());
            }
            queue.add(Work::Owner(key.clone()));
        }
    }

    /// Pods are looked through for a claim only while it is held.
    fn held_claim(&mut self, key: &Arc<str>, place: &str, held: bool, queue: &WorkQueue<Work>) {
        let namespace = place.split_once('/').map_or("", |(namespace, _)| namespace);
        if held {
            self.held_claims.entry(namespace.to_owned()).or_default().insert(key.clone());
            queue.add(Work::Claim(key.clone()));
        } else if let Some(claims) = self.held_claims.get_mut(namespace) {
            claims.remove(key);
            if claims.is_empty() {
                self.held_claims.remove(namespace);
            }
        }
    }

    /// An address that a Service gets or loses is looked at.
    fn addresses(&mut self, record: &Record, gone: bool, queue: &WorkQueue<Work>) {
        let read =
            || serde_json::from_slice::<Addressed>(&record.value).map(|service| service.spec.cluster_ips);
        let texts = if gone { Vec::new() } else { read().unwrap_or_default() };
        let new: Vec<IpAddr> = texts.iter().filter_map(|text| text.parse().ok()).collect();
        let old = self.service_addresses.remove(&record.key).unwrap_or_default();
        for address in
            new.iter().filter(|it| !old.contains(it)).chain(old.iter().filter(|it| !new.contains(it)))
        {
            queue.add(Work::Address(*address, record.key.clone()));
        }
        if !new.is_empty() {
            self.service_addresses.insert(record.key.clone(), new);
        }
    }

    fn kinds(
        &mut self,
        record: &Record,
        parts: &Parts<'_>,
        head: &Head<'_>,
        gone: bool,
        queue: &WorkQueue<Work>,
    ) {
        let going = head.metadata.deletion_timestamp.is_some();
        match (parts.group, parts.plural) {
            ("core", "namespaces") => {
                let name = parts.rest.to_owned();
                if gone {
                    self.terminating.remove(&name);
                    self.namespaces.remove(&name);
                    return;
                }
                self.namespaces.insert(name.clone());
                if going {
                    self.terminating.insert(name.clone());
                    queue.add(Work::Namespace(name));
                } else {
                    queue.add(Work::NamespaceDefaults(name));
                }
            }
            ("core", "serviceaccounts") => {
                if let Some((namespace, name)) = parts.rest.split_once('/')
                    && gone
                {
                    // Token Secrets go with their account.
                    self.tokens.of(parts.rest).for_each(|key| queue.add(Work::TokenSecret(key.clone())));
                    if name == "default" {
                        queue.add(Work::NamespaceDefaults(namespace.to_owned()));
                    }
                }
            }
            ("core", "configmaps") => {
                if let Some((namespace, "kube-root-ca.crt")) = parts.rest.split_once('/') {
                    queue.add(Work::NamespaceDefaults(namespace.to_owned()));
                }
            }
            ("core", "secrets") => {
                let account = head.account().filter(|_| !gone);
                if account.is_some() {
                    queue.add(Work::TokenSecret(record.key.clone()));
                }
                let namespace = parts.rest.split_once('/').map(|(namespace, _)| namespace);
                let account = account.zip(namespace).map(|(name, namespace)| format!("{namespace}/{name}"));
                self.tokens.set(&record.key, account);
            }
            ("core", "persistentvolumeclaims") => {
                let held = going && !gone && head.metadata.has(volumes::OF_CLAIMS);
                self.held_claim(&record.key, parts.rest, held, queue);
            }
            ("core", "persistentvolumes") if going && !gone && head.metadata.has(volumes::OF_VOLUMES) => {
                queue.add(Work::Volume(record.key.clone()));
            }
            ("core", "pods") => {
                let namespace = parts.rest.split_once('/').map_or("", |(namespace, _)| namespace);
                for claim in self.held_claims.get(namespace).into_iter().flatten() {
                    queue.add(Work::Claim(claim.clone()));
                }
            }
            ("rbac.authorization.k8s.io", "clusterroles") => queue.add(Work::Aggregation),
            ("certificates.k8s.io", "certificatesigningrequests") if !gone => {
                queue.add(Work::CertificateRequest(parts.rest.to_owned()));
            }
            ("core", "services") => self.addresses(record, gone, queue),
            ("networking.k8s.io", "ipaddresses") => {
                // What was deleted may be in use, and what was held back by it may go.
                if !gone {
                    // The Service may have gone while no controller ran.
                    if let (Ok(address), Ok(object)) =
                        (parts.rest.parse(), serde_json::from_slice::<Taken>(&record.value))
                        && object.spec.parent_ref.resource == "services"
                    {
                        let Parent { namespace, name, .. } = object.spec.parent_ref;
                        let service = format!("/core/services/{namespace}/{name}");
                        queue.add(Work::Address(address, service.into()));
                    }
                } else if let Ok(address) = parts.rest.parse::<IpAddr>() {
                    let mut services = self.service_addresses.iter();
                    if let Some((service, _)) = services.find(|(_, held)| held.contains(&address)) {
                        queue.add(Work::Address(address, service.clone()));
                    }
                }
                self.going_networks.iter().for_each(|name| queue.add(Work::ServiceNetwork(name.clone())));
            }
            ("networking.k8s.io", "servicecidrs") => {
                let name = parts.rest.to_owned();
                if going && !gone {
                    self.going_networks.insert(name.clone());
                } else {
                    self.going_networks.remove(&name);
                }
                if !gone {
                    queue.add(Work::ServiceNetwork(name));
                }
                // It may cover what others wait for.
                self.going_networks.iter().for_each(|name| queue.add(Work::ServiceNetwork(name.clone())));
            }
            ("admissionregistration.k8s.io", "validatingadmissionpolicies") if !gone => {
                queue.add(Work::Policy(parts.rest.to_owned()));
            }
            ("apiextensions.k8s.io", "customresourcedefinitions") => {
                let name = parts.rest.to_owned();
                if let Some((plural, group)) = name.split_once('.') {
                    let prefix = format!("/{group}/{plural}/");
                    if gone {
                        self.going_definitions.remove(&prefix);
                    } else if going {
                        self.going_definitions.insert(prefix, name.clone());
                    }
                }
                queue.add(Work::Definition(name));
                queue.add(Work::ApiServices);
                for key in self.unresolved.drain() {
                    queue.add(Work::Dependent(key));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;

    fn tell(triage: &mut Triage, queue: &WorkQueue<Work>, change: Change, key: &str, object: &Value) {
        let value = Bytes::from(object.to_string());
        let record = Record { key: key.into(), created: 1, revision: 1, value, slot: None };
        triage.changed(&record, change, queue);
    }

    fn token_of(account: &str) -> Value {
        json!({"metadata": {"annotations": {ACCOUNT_NAME: account}}, "type": TOKEN_TYPE})
    }

    #[test]
    fn an_account_that_goes_concerns_its_own_token_secrets() {
        let (mut triage, queue) = (Triage::default(), crate::controllers::queue());
        let secret = |name: &str| format!("/core/secrets/ns/{name}");
        let account = json!({"metadata": {"uid": "u"}});
        let mut learn = |change, name: &str, object: &Value| {
            tell(&mut triage, &crate::controllers::queue(), change, &secret(name), object);
        };
        learn(Change::Created, "mine", &token_of("a"));
        learn(Change::Created, "other", &token_of("b"));
        learn(Change::Created, "moved", &token_of("a"));
        learn(Change::Updated, "moved", &token_of("b"));
        learn(Change::Created, "gone", &token_of("a"));
        learn(Change::Deleted, "gone", &token_of("a"));
        learn(Change::Created, "plain", &json!({"metadata": {}, "type": {"a": "b"}}));
        tell(&mut triage, &queue, Change::Deleted, "/core/serviceaccounts/elsewhere/a", &account);
        assert_eq!(queue.next().now_or_never().flatten(), None);
        tell(&mut triage, &queue, Change::Deleted, "/core/serviceaccounts/ns/a", &account);
        assert_eq!(queue.next().now_or_never().flatten(), Some(Work::TokenSecret(secret("mine").into())));
        assert_eq!(queue.next().now_or_never().flatten(), None);
        assert_eq!((triage.tokens.accounts.len(), triage.tokens.secrets.len()), (3, 2));
    }
}
