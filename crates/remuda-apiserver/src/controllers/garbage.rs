//! Garbage collection by ownerReferences.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use futures::stream::{StreamExt, TryStreamExt};
use remuda_auth::{identity::User, request_info::Verb};
use remuda_objects::meta;
use serde_json::{Value, json};

use super::Controllers;
use crate::{
    bootstrap::own_options,
    call::Call,
    delete::{FOREGROUND, ORPHAN},
    options::{DeleteOptions, Propagation},
    read::store_error,
    registry::Resource,
    server::Inner,
    status::ApiResult,
    write::{Failed, Ownership, Part},
};

/// Deletions of one owner's dependents under way at once.
const AT_ONCE: usize = 64;

/// What a reference turns out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Solid,
    /// Gone, or another object of that name.
    Absent,
    /// Going in the foreground: it waits for its dependents.
    Waiting,
    /// Its kind is not served; nothing can be said.
    Unknown,
}

/// What to do with a dependent.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    /// Drop the references to these uids.
    Detach(Vec<String>),
    Delete {
        waiting: bool,
    },
    /// An owner's kind may come (back).
    Unresolved,
}

fn judge(owners: &[(String, Owner)]) -> Verdict {
    let is = |wanted: Owner| owners.iter().any(|(_, owner)| *owner == wanted);
    let dangling: Vec<String> = owners
        .iter()
        .filter(|(_, owner)| matches!(owner, Owner::Absent | Owner::Waiting))
        .map(|(uid, _)| uid.clone())
        .collect();
    match (is(Owner::Solid), is(Owner::Unknown), dangling.is_empty()) {
        (_, false, true) => Verdict::Keep,
        (true, _, false) => Verdict::Detach(dangling),
        (true, true, true) => Verdict::Keep,
        (false, true, _) => Verdict::Unresolved,
        (false, false, false) => Verdict::Delete { waiting: is(Owner::Waiting) },
    }
}

impl Inner {
    fn collector_call(&self, resource: &Arc<Resource>, object: &Value, verb: Verb) -> Call {
        let user = User::kubernetes_controller("generic-garbage-collector");
        Call::internal(
            self.registry.load_full(),
            resource.clone(),
            verb,
            Some(meta::namespace(object)),
            Some(meta::name(object)),
            Arc::new(user),
        )
    }

    /// The object at a key, with its resource.
    pub(super) async fn object_at(&self, key: &str) -> ApiResult<Option<(Arc<Resource>, Value)>> {
        let Some(record) = self.store.get(key).await.map_err(store_error)?.value else { return Ok(None) };
        let object = crate::convert::parse(&record)?;
        let (group, version) = split_version(object["apiVersion"].as_str().unwrap_or_default());
        let registry = self.registry.load();
        let kind = object["kind"].as_str().unwrap_or_default();
        Ok(registry.find_kind(group, Some(version), kind).cloned().map(|resource| (resource, object)))
    }

    pub(super) async fn collect_dependent(&self, controllers: &Controllers, key: &Arc<str>) -> ApiResult<()> {
        let Some((resource, object)) = self.object_at(key).await? else { return Ok(()) };
        let mut owners = Vec::new();
        for reference in meta::owner_references(&object) {
            let uid = reference["uid"].as_str().unwrap_or_default().to_owned();
            let absent = controllers.triage.lock().is_absent(&uid, resource.namespaced);
            let owner =
                if absent { Owner::Absent } else { self.find_owner(&resource, &object, reference).await? };
            owners.push((uid, owner));
        }
        match judge(&owners) {
            Verdict::Keep => Ok(()),
            Verdict::Unresolved => {
                controllers.triage.lock().unresolved(key);
                Ok(())
            }
            Verdict::Detach(uids) => self.detach(&resource, &object, &uids).await,
            Verdict::Delete { waiting } => {
                let has = |wanted: &str| meta::finalizers(&object).any(|name| name == wanted);
                let blocks = || !controllers.triage.lock().dependents_of(meta::uid(&object)).is_empty();
                let propagation = if has(ORPHAN) {
                    Propagation::Orphan
                } else if has(FOREGROUND) || (waiting && blocks()) {
                    Propagation::Foreground
                } else {
                    Propagation::Background
                };
                self.collect(&resource, &object, propagation).await
            }
        }
    }

    async fn collect(
        &self,
        resource: &Arc<Resource>,
        object: &Value,
        propagation: Propagation,
    ) -> ApiResult<()> {
        if meta::is_deleting(object) && propagation == Propagation::Background {
            return Ok(());
        }
        let call = self.collector_call(resource, object, Verb::Delete);
        let options = DeleteOptions {
            propagation: Some(propagation),
            uid: Some(meta::uid(object).to_owned()),
            resource_version: Some(meta::resource_version(object).to_owned()),
            ..Default::default()
        };
        match self.delete_object(&call, &options).await {
            Err(error) if error.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }

    async fn find_owner(
        &self,
        resource: &Resource,
        dependent: &Value,
        reference: &Value,
    ) -> ApiResult<Owner> {
        let (group, version) = split_version(reference["apiVersion"].as_str().unwrap_or_default());
        let kind = reference["kind"].as_str().unwrap_or_default();
        let Some(owner) = self.registry.load().find_kind(group, Some(version), kind).cloned() else {
            return Ok(Owner::Unknown);
        };
        if owner.namespaced && !resource.namespaced {
            // A cluster-scoped object cannot say which namespace its owner is in.
            self.report_misplaced(resource, dependent, reference).await?;
            return Ok(Owner::Unknown);
        }
        let namespace = owner.namespaced.then(|| meta::namespace(dependent));
        let name = reference["name"].as_str().unwrap_or_default();
        let found = self.store.get(&owner.key(namespace, name)).await.map_err(store_error)?.value;
        let Some(record) = found else { return Ok(Owner::Absent) };
        let object = crate::convert::parse(&record)?;
        if meta::uid(&object) != reference["uid"].as_str().unwrap_or_default() {
            return Ok(Owner::Absent);
        }
        let foreground =
            meta::is_deleting(&object) && meta::finalizers(&object).any(|name| name == FOREGROUND);
        Ok(if foreground { Owner::Waiting } else { Owner::Solid })
    }

    /// Tells people of a reference that can never be resolved.
    async fn report_misplaced(
        &self,
        resource: &Resource,
        dependent: &Value,
        reference: &Value,
    ) -> ApiResult<()> {
        let (name, uid) = (meta::name(dependent), meta::uid(dependent));
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let message = format!(
            "ownerRef [{}/{}, namespace: , name: {}, uid: {}] does not exist in namespace {:?}",
            text("apiVersion"),
            text("kind"),
            text("name"),
            text("uid"),
            ""
        );
        let now = self.now_text();
        // One for each dependent and owner, however often we look.
        let mut digest = std::hash::DefaultHasher::new();
        (uid, text("uid")).hash(&mut digest);
        let event = json!({
            "metadata": {"name": format!("{name}.{:016x}", digest.finish()), "namespace": "default"},
            "involvedObject": {"apiVersion": resource.api_version, "kind": resource.kind, "name": name, "uid": uid},
            "reason": "OwnerRefInvalidNamespace", "message": message, "type": "Warning", "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "source": {"component": "garbage-collector-controller"},
        });
        self.ensure("", "events", event).await.map(drop)
    }

    /// Removes owner references by uid.
    async fn detach(&self, resource: &Arc<Resource>, object: &Value, uids: &[String]) -> ApiResult<()> {
        let call = self.collector_call(resource, object, Verb::Patch);
        let result = self
            .change(&call, |object| {
                if let Some(references) = object["metadata"]["ownerReferences"].as_array_mut() {
                    references.retain(|known| !uids.iter().any(|uid| known["uid"] == uid.as_str()));
                    if references.is_empty() {
                        object["metadata"].as_object_mut().map(|meta| meta.remove("ownerReferences"));
                    }
                }
                Ok(())
            })
            .await;
        match result {
            Err(error) if error.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }

    pub(super) async fn collect_owner(&self, controllers: &Controllers, key: &Arc<str>) -> ApiResult<()> {
        let Some((resource, object)) = self.object_at(key).await? else { return Ok(()) };
        if !meta::is_deleting(&object) {
            return Ok(());
        }
        let uid = meta::uid(&object).to_owned();
        let (dependents, waiting) = {
            let triage = controllers.triage.lock();
            (triage.dependents_of(&uid), triage.waiting_for(key))
        };
        let has = |wanted: &str| meta::finalizers(&object).any(|name| name == wanted);
        if has(ORPHAN) {
            futures::stream::iter(dependents)
                .map(Ok)
                .try_for_each_concurrent(AT_ONCE, |key| {
                    let uid = uid.clone();
                    async move {
                        match self.object_at(&key).await? {
                            Some((resource, object)) => self.detach(&resource, &object, &[uid]).await,
                            None => Ok(()),
                        }
                    }
                })
                .await?;
            return self.remove_finalizer(&resource, &object, ORPHAN).await;
        }
        if !has(FOREGROUND) {
            return Ok(());
        }
        let mut blocking = false;
        let mut doomed = Vec::new();
        for key in &dependents {
            let Some((dependent_resource, dependent)) = self.object_at(key).await? else { continue };
            let Some(reference) =
                meta::owner_references(&dependent).find(|known| known["uid"] == uid.as_str())
            else {
                continue;
            };
            // An object in another namespace cannot hold what is not its own.
            if resource.namespaced && meta::namespace(&dependent) != meta::namespace(&object) {
                continue;
            }
            // A dependent that waits for this owner must not be waited for: owners may form a cycle.
            blocking |= reference["blockOwnerDeletion"] == true && !waiting.contains(key);
            if !meta::is_deleting(&dependent) {
                doomed.push((dependent_resource, dependent));
            }
        }
        // The ordinary judgement of each dependent deletes it, unless another owner keeps it.
        for (dependent_resource, dependent) in doomed {
            let key = dependent_resource.key(Some(meta::namespace(&dependent)), meta::name(&dependent));
            controllers.queue.add(super::Work::Dependent(Arc::from(key.as_str())));
        }
        if blocking { Ok(()) } else { self.remove_finalizer(&resource, &object, FOREGROUND).await }
    }

    pub(super) async fn remove_finalizer(
        &self,
        resource: &Arc<Resource>,
        object: &Value,
        finalizer: &str,
    ) -> ApiResult<()> {
        let call = self.collector_call(resource, object, Verb::Patch);
        let mut turn = self.turns.first();
        loop {
            let Some(record) = self.store.get(&call.key()).await.map_err(store_error)?.value else {
                return Ok(());
            };
            let mut live = self.decode(resource, &record).await?;
            if meta::uid(&live) != meta::uid(object) {
                return Ok(());
            }
            if let Some(finalizers) = live["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|name| name != finalizer);
            }
            match self
                .update_object(&call, &record, live, &own_options(), Ownership::Compute, Part::Other)
                .await
            {
                Ok(_) => return Ok(()),
                Err(Failed::Conflict) => turn.lost(&record.key).await,
                Err(Failed::Api(error)) if error.code == 404 => return Ok(()),
                Err(Failed::Api(error)) => return Err(error),
            }
        }
    }
}

fn split_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(owners: &[Owner], expected: Verdict) {
        let owners: Vec<(String, Owner)> =
            owners.iter().enumerate().map(|(index, owner)| (format!("u{index}"), *owner)).collect();
        assert_eq!(judge(&owners), expected);
    }

    #[test]
    fn a_dependent_lives_while_one_owner_is_solid() {
        check(&[Owner::Solid], Verdict::Keep);
        check(&[Owner::Solid, Owner::Absent], Verdict::Detach(vec!["u1".to_owned()]));
        check(&[Owner::Waiting, Owner::Solid], Verdict::Detach(vec!["u0".to_owned()]));
        check(&[], Verdict::Keep);
    }

    #[test]
    fn nothing_is_deleted_while_an_owner_cannot_be_resolved() {
        check(&[Owner::Unknown], Verdict::Unresolved);
        check(&[Owner::Unknown, Owner::Absent], Verdict::Unresolved);
        check(&[Owner::Unknown, Owner::Solid], Verdict::Keep);
    }

    #[test]
    fn without_a_solid_owner_it_goes() {
        check(&[Owner::Absent], Verdict::Delete { waiting: false });
        check(&[Owner::Absent, Owner::Waiting], Verdict::Delete { waiting: true });
    }
}
