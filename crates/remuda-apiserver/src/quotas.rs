//! ResourceQuotas: objects are charged to them before they are stored.
//!
//! Charging and storing happen under one lock per namespace, and so does counting: within this process nothing is
//! counted that is charged and not stored yet. Of several servers on one store each charges by comparing versions; what
//! another one does in between is found when things are counted again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use remuda_objects::{compute::Amounts, meta, quota};
use remuda_store::{Change, ListQuery, Record, Write};
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;

use crate::{
    call::Call,
    codec,
    follow::News,
    read::store_error,
    server::{Inner, StartError},
    status::{ApiError, ApiResult},
};

pub(crate) const PREFIX: &str = "/core/resourcequotas/";

/// Which namespaces have quotas, and whose turn it is there.
#[derive(Default)]
pub(crate) struct Quotas {
    names: RwLock<HashMap<String, HashSet<String>>>,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

pub(crate) async fn start(inner: &Arc<Inner>) -> Result<(), StartError> {
    let server = inner.clone();
    inner.follow(PREFIX, move |news| server.quotas.tell(news)).await
}

fn place(record: &Record) -> Option<(&str, &str)> {
    record.key.strip_prefix(PREFIX)?.split_once('/')
}

impl Quotas {
    fn tell(&self, news: News<'_>) {
        let mut names = self.names.write();
        let mut set = |record: &Record, there: bool| {
            let Some((namespace, name)) = place(record) else { return };
            let known = names.entry(namespace.to_owned()).or_default();
            if there {
                known.insert(name.to_owned());
            } else {
                known.remove(name);
            }
            if known.is_empty() {
                names.remove(namespace);
                self.turns.lock().remove(namespace);
            }
        };
        match news {
            News::Reset(records) => {
                let there: HashSet<&str> = records.iter().map(|record| &*record.key).collect();
                set_all(&mut names, &there);
            }
            News::Changed(event) => set(&event.record, event.change != Change::Deleted),
        }
    }

    pub(crate) fn concern(&self, namespace: &str) -> bool {
        self.names.read().contains_key(namespace)
    }

    async fn turn(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let turn = self.turns.lock().entry(namespace.to_owned()).or_default().clone();
        turn.lock_owned().await
    }
}

fn set_all(names: &mut HashMap<String, HashSet<String>>, keys: &HashSet<&str>) {
    names.clear();
    for (namespace, name) in keys.iter().filter_map(|key| key.strip_prefix(PREFIX)?.split_once('/')) {
        names.entry(namespace.to_owned()).or_default().insert(name.to_owned());
    }
}

/// What was charged: nobody else charges or counts in the namespace until this is dropped.
pub(crate) struct Charge {
    namespace: String,
    charged: bool,
    _turn: OwnedMutexGuard<()>,
}

/// What a namespace's quotas become by a charge: each record with its new use.
type Plan = Vec<(Arc<Record>, Value)>;

impl Inner {
    /// Charges a write to the quotas it concerns, or refuses it. What comes back is kept until the write is done.
    pub(crate) async fn charge(
        &self,
        call: &Call,
        live: Option<&Value>,
        new: &Value,
        dry_run: bool,
    ) -> ApiResult<Option<Charge>> {
        let resource = &*call.resource;
        let Some(namespace) = call.namespace().filter(|namespace| self.quotas.concern(namespace)) else {
            return Ok(None);
        };
        if !resource.namespaced
            || resource.prefix == "/core/events/"
            || resource.prefix == PREFIX && live.is_some()
        {
            return Ok(None);
        }
        let usage = |object: &Value| quota::usage(&resource.group, &resource.plural, object);
        let before = live.map(usage).unwrap_or_default();
        let more = quota::increase(&before, &usage(new));
        if more.is_empty() {
            return Ok(None);
        }
        let turn = self.quotas.turn(namespace).await;
        let mut charge = Charge { namespace: namespace.to_owned(), charged: false, _turn: turn };
        loop {
            let plan = self.plan_charge(call, live.is_none(), new, &more).await?;
            if dry_run || plan.is_empty() {
                return Ok(None);
            }
            if self.write_used(plan).await? {
                charge.charged = true;
                return Ok(Some(charge));
            }
            // Somebody wrote a quota meanwhile, and some may be charged already.
            self.count(namespace).await?;
        }
    }

    /// The object was not stored after all.
    pub(crate) async fn uncharge(&self, charge: Option<Charge>) {
        let Some(charge) = charge.filter(|charge| charge.charged) else { return };
        if let Err(error) = self.count(&charge.namespace).await {
            tracing::warn!(namespace = charge.namespace, %error, "quotas not counted again");
        }
    }

    async fn plan_charge(&self, call: &Call, is_new: bool, new: &Value, more: &Amounts) -> ApiResult<Plan> {
        let (group, plural) = (&call.resource.group, &call.resource.plural);
        let namespace = call.namespace().unwrap_or_default();
        let refuse = |detail: &str| Err(ApiError::forbidden(call.named_as(meta::name(new)), detail));
        let mut plan = Plan::new();
        for record in self.quotas_of(namespace).await? {
            let mut quota = crate::convert::parse(&record)?;
            if !quota::concerns(&quota, group, plural, new) {
                continue;
            }
            if !quota::is_counted(&quota) {
                quota["status"]["used"] = self.used(namespace, &quota).await?;
            }
            if is_new
                && group.is_empty()
                && plural == "pods"
                && let Some(unsaid) = quota::unsaid(&quota, new)
            {
                return refuse(&format!("failed quota: {}: {unsaid}", meta::name(&quota)));
            }
            match quota::charge(&quota, more) {
                None => {}
                Some(Ok(used)) => plan.push((record, used)),
                Some(Err(detail)) => return refuse(&detail),
            }
        }
        Ok(plan)
    }

    async fn quotas_of(&self, namespace: &str) -> ApiResult<Vec<Arc<Record>>> {
        let query = ListQuery { prefix: format!("{PREFIX}{namespace}/"), ..ListQuery::default() };
        Ok(self.store.list(query).await.map_err(store_error)?.records)
    }

    /// Says whether each was still what it is changed from.
    async fn write_used(&self, plan: Plan) -> ApiResult<bool> {
        for (record, used) in plan {
            let mut quota = crate::convert::parse(&record)?;
            let hard = quota["spec"]["hard"].clone();
            let status = serde_json::json!({"hard": hard, "used": used});
            if quota["status"] == status {
                continue;
            }
            quota["status"] = status;
            let (key, expected) = (record.key.to_string(), record.revision);
            let write = Write::Update { key, expected, value: codec::encode(&quota) };
            match self.store.write(write).await {
                Ok(_) => {}
                Err(remuda_store::Error::Conflict { .. } | remuda_store::Error::Missing) => return Ok(false),
                Err(error) => return Err(store_error(error)),
            }
        }
        Ok(true)
    }

    /// Counts what the quotas of a namespace limit.
    pub(crate) async fn recount(&self, namespace: &str) -> ApiResult<()> {
        let _turn = self.quotas.turn(namespace).await;
        self.count(namespace).await
    }

    async fn count(&self, namespace: &str) -> ApiResult<()> {
        loop {
            let mut plan = Plan::new();
            for record in self.quotas_of(namespace).await? {
                let quota = crate::convert::parse(&record)?;
                let used = self.used(namespace, &quota).await?;
                plan.push((record, used));
            }
            if self.write_used(plan).await? {
                return Ok(());
            }
        }
    }

    async fn used(&self, namespace: &str, quota: &Value) -> ApiResult<Value> {
        let registry = self.registry.load_full();
        let names = quota["spec"]["hard"].as_object().into_iter().flatten();
        let kinds: HashSet<(&str, &str)> = names.filter_map(|(name, _)| quota::counted(name)).collect();
        let mut objects = Vec::new();
        for (group, plural) in kinds {
            let Some(resource) = registry.preferred(group, plural).filter(|resource| resource.namespaced)
            else {
                continue;
            };
            let query = ListQuery { prefix: resource.collection(Some(namespace)), ..ListQuery::default() };
            for record in self.store.list(query).await.map_err(store_error)?.records {
                // Of most kinds there is nothing to know but that they are there.
                let detailed = matches!(plural, "pods" | "services" | "persistentvolumeclaims");
                let object = if detailed { crate::convert::parse(&record)? } else { Value::Null };
                objects.push((group, plural, object));
            }
        }
        Ok(quota::used(quota, objects.iter().map(|(group, plural, object)| (*group, *plural, object))))
    }
}
