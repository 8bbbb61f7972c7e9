//! Who has which role. Whoever may not give a role may not take it either: its holder would be left without it,
//! and could then be changed by those they outrank.

use remuda_auth::identity::User;
use remuda_control::ObjectKey;
use serde_json::Value;

use super::{Judgement, Refusal, Write, forbidden, invalid, text};
use crate::Identity;

impl Identity {
    pub(super) fn judge_global_binding(&self, write: &Write<'_>, changed: &[String]) -> Judgement {
        if changed.is_empty() {
            return Ok(Vec::new());
        }
        self.may_give_and_take(write)?;
        self.keep_an_administrator(write)?;
        Ok(Vec::new())
    }

    fn may_give_and_take(&self, write: &Write<'_>) -> Result<(), Refusal> {
        if write.user.is_trusted_writer() {
            return Ok(());
        }
        let roles =
            [write.old, write.new].map(|binding| binding.map(|binding| text(binding, "globalRoleName")));
        for (role, is_given) in roles.into_iter().zip([false, true]) {
            let Some(role) = role else { continue };
            let known = self.global_role(role);
            // What no longer exists gives nothing, and can be taken away by anybody who may delete bindings.
            if known.is_none() && !is_given {
                continue;
            }
            let may = self.may(write.user, "bind", "globalroles", role)
                || known.is_some_and(|known| self.has_global_role(write.user, &known));
            if !may {
                return Err(forbidden(format!(
                    "globalRoleName: GlobalRole {role:?} does not exist or allows what you may not"
                )));
            }
        }
        Ok(())
    }

    pub(super) fn judge_cluster_binding(&self, write: &Write<'_>, changed: &[String]) -> Judgement {
        if changed.is_empty() || write.user.is_trusted_writer() {
            return Ok(Vec::new());
        }
        if let Some(new) = write.new {
            if text(new, "clusterName") != write.namespace {
                return Err(invalid("clusterName", "must be the namespace of the binding"));
            }
            let template = self.0.templates.get(&ObjectKey::cluster_wide(text(new, "roleTemplateName")));
            if template.is_some_and(|template| template.locked) {
                return Err(invalid(
                    "roleTemplateName",
                    "the RoleTemplate is locked and cannot be given any more",
                ));
            }
        }
        for (binding, is_given) in [(write.old, false), (write.new, true)] {
            let Some(binding) = binding else { continue };
            if !self.may_bind_in_cluster(write.user, binding, is_given) {
                return Err(forbidden(format!(
                    "roleTemplateName: {:?} allows what you may not in cluster {:?}",
                    text(binding, "roleTemplateName"),
                    text(binding, "clusterName")
                )));
            }
        }
        Ok(Vec::new())
    }

    fn may_bind_in_cluster(&self, user: &User, binding: &Value, is_given: bool) -> bool {
        let (cluster, role) = (text(binding, "clusterName"), text(binding, "roleTemplateName"));
        // What a template that does not exist yet will allow is not known.
        let is_known = !is_given || self.0.templates.get(&ObjectKey::cluster_wide(role)).is_some();
        self.may(user, "*", "clusters", cluster)
            || self.may(user, "bind", "roletemplates", role)
            || is_known && self.covers_templates(user, Some(cluster), &[role.to_owned()])
    }
}
