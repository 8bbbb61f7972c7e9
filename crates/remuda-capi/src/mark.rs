//! Conditions that somebody else than its own controller puts on a Machine.

use jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::core::Machine;
use remuda_rollout::condition::{Condition, old::OldCondition};
use serde_json::json;

use crate::{
    Capi,
    error::{Error, is_code},
    managed::Managed,
    save::PATIENCE,
    view,
};

/// How often others may get in the way.
const ATTEMPTS: usize = 5;

/// What to change about a Machine's conditions.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) set: Vec<Condition>,
    pub(crate) remove: Vec<&'static str>,
    pub(crate) set_old: Vec<OldCondition>,
    pub(crate) remove_old: Vec<&'static str>,
}

impl Marks {
    fn put_on(&self, machine: &mut Machine, now: Timestamp) {
        view::set(machine, self.set.clone(), now);
        machine.conditions_mut().retain(|known| !self.remove.contains(&known.type_.as_str()));
        if self.set_old.is_empty() && self.remove_old.is_empty() {
            return;
        }
        let mut old = view::old_conditions(machine.old_conditions_mut());
        for condition in &self.set_old {
            old.set(condition.clone(), now);
        }
        for kind in &self.remove_old {
            old.remove(kind);
        }
        *machine.old_conditions_mut() = view::write_old(&old);
    }
}

impl Capi {
    /// Puts marks on a Machine and tells how it then is; `None` when it is gone. Nothing is written when the
    /// marks are there already, and conditions of others stay as they are.
    pub(crate) async fn mark(
        &self,
        machine: &Machine,
        marks: &Marks,
        manager: &str,
        now: Timestamp,
    ) -> Result<Option<Machine>, Error> {
        let name = machine.name_any();
        let api = self.api::<Machine>(&machine.namespace().unwrap_or_default());
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let mut base = machine.clone();
        for attempt in 1.. {
            let mut after = base.clone();
            marks.put_on(&mut after, now);
            // Marks that leave nothing behind need not leave an empty status either.
            if after.conditions() == base.conditions()
                && after.old_conditions_mut() == base.clone().old_conditions_mut()
            {
                return Ok(Some(base));
            }
            let mut status = json!({"conditions": after.conditions()});
            if !after.old_conditions_mut().is_empty() || !base.clone().old_conditions_mut().is_empty() {
                status["deprecated"] = json!({"v1beta1": {"conditions": after.old_conditions_mut()}});
            }
            let metadata = json!({"uid": base.uid(), "resourceVersion": base.resource_version()});
            let patch = json!({"metadata": metadata, "status": status});
            match api.patch_status(&name, &params, &Patch::Merge(patch)).await {
                Ok(written) => {
                    if let Some(version) = written.resource_version() {
                        self.machines.wait_for(&version, PATIENCE).await;
                    }
                    return Ok(Some(written));
                }
                Err(error) if is_code(&error, 404) => return Ok(None),
                Err(error) if is_code(&error, 409) && attempt < ATTEMPTS => {
                    let newer = api.get_opt(&name).await.map_err(Error::api("read", &name))?;
                    match newer.filter(|newer| newer.uid() == machine.uid()) {
                        Some(newer) => base = newer,
                        None => return Ok(None),
                    }
                }
                Err(source) => {
                    return Err(Error::Api {
                        verb: "write status of",
                        what: format!("Machine {name}"),
                        source,
                    });
                }
            }
        }
        Ok(None)
    }
}
