//! Conditions that we put on Machines, whose controller is somebody else.

use jiff::Timestamp;
use kube::{Api, ResourceExt, api::Patch};
use remuda_api::core::Machine;
use remuda_control::{
    ObjectKey,
    write::conditions::{self, ConditionUpdate},
};
use serde_json::json;

use crate::{Error, error::is_code, shared::Rke};

/// How often others may get in the way.
const ATTEMPTS: usize = 5;

impl Rke {
    /// Sets a condition of a Machine and tells its new version. Nothing is written, and `None` told, when it is
    /// so already or the Machine is gone; conditions of others stay as they are.
    pub(crate) async fn mark(
        &self,
        key: &ObjectKey,
        says: ConditionUpdate<'_>,
    ) -> Result<Option<String>, Error> {
        self.mark_at(key, says, self.ctx.clock.now()).await
    }

    /// [`Rke::mark`] of what has been so since `since`.
    pub(crate) async fn mark_at(
        &self,
        key: &ObjectKey,
        says: ConditionUpdate<'_>,
        since: Timestamp,
    ) -> Result<Option<String>, Error> {
        let Some(machine) = self.machines.get(key) else {
            return Ok(None);
        };
        let api: Api<Machine> = self.api(key.namespace.as_deref().unwrap_or_default());
        let mut base = (*machine).clone();
        for attempt in 1.. {
            let mut known = base.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
            if !conditions::set(&mut known, says, since) {
                return Ok(None);
            }
            let metadata = json!({"uid": base.uid(), "resourceVersion": base.resource_version()});
            let patch = json!({"metadata": metadata, "status": {"conditions": known}});
            match api.patch_status(&key.name, &self.params(), &Patch::Merge(patch)).await {
                Ok(written) => return Ok(written.resource_version()),
                Err(error) if is_code(&error, 404) => return Ok(None),
                Err(error) if is_code(&error, 409) && attempt < ATTEMPTS => {
                    let newer = api.get_opt(&key.name).await;
                    let newer = newer.map_err(Error::api("read", format!("Machine {key}")))?;
                    match newer.filter(|newer| newer.uid() == base.uid()) {
                        Some(newer) => base = newer,
                        None => return Ok(None),
                    }
                }
                Err(source) => return Err(Error::api("write status of", format!("Machine {key}"))(source)),
            }
        }
        Ok(None)
    }
}
