//! There is always a user who is administrator.

use std::{collections::BTreeSet, time::Duration};

use kube::ResourceExt;
use parking_lot::Mutex;
use remuda_api::management::{GlobalRoleBinding, User};
use remuda_control::ObjectKey;
use remuda_names::identity::role;
use serde_json::Value;
use tokio::time::Instant;

use super::{Operation, Refusal, Write, forbidden};
use crate::{Identity, rights};

/// For a cache to hear of a removal that was let through.
const SETTLES: Duration = Duration::from_secs(10);

/// Removals of administrators that were let through just now: of two at the same moment the second must know
/// of the first.
#[derive(Default)]
pub(crate) struct Removals(Mutex<Vec<(Gone, Instant)>>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Gone {
    User { name: String, uid: String },
    Binding { name: String, uid: String },
}

impl Identity {
    /// Refuses a write after which no user would be administrator.
    pub(super) fn keep_an_administrator(&self, write: &Write<'_>) -> Result<(), Refusal> {
        let uid = || {
            let uid = write.old.and_then(|old| old["metadata"]["uid"].as_str());
            uid.unwrap_or_default().to_owned()
        };
        let gone = match write.resource {
            "users" if write.operation == Operation::Delete || is_disabled(write.new) => {
                Gone::User { name: write.name.to_owned(), uid: uid() }
            }
            "globalrolebindings" if write.operation != Operation::Create => {
                Gone::Binding { name: write.name.to_owned(), uid: uid() }
            }
            _ => return Ok(()),
        };
        let now = Instant::now();
        let mut removals = self.0.removals.0.lock();
        removals.retain(|(_, at)| now.saturating_duration_since(*at) < SETTLES);
        let before: Vec<Gone> = removals.iter().map(|(gone, _)| gone.clone()).collect();
        let with = self.administrators(&before, None);
        let after: Vec<Gone> = before.into_iter().chain([gone.clone()]).collect();
        let without = self.administrators(&after, self.administrator_by(write).as_deref());
        if with == without {
            return Ok(());
        }
        if without.is_empty() {
            let who: Vec<&str> = with.iter().map(String::as_str).collect();
            return Err(forbidden(format!(
                "{} is the last administrator; bind another enabled user to GlobalRole {} first",
                who.join(", "),
                role::ADMIN
            )));
        }
        if !write.dry_run {
            removals.push((gone, now));
        }
        Ok(())
    }

    /// The user a binding makes administrator once it is written.
    fn administrator_by(&self, write: &Write<'_>) -> Option<String> {
        let binding = write.new.filter(|_| write.resource == "globalrolebindings")?;
        let binding: GlobalRoleBinding = serde_json::from_value(Value::clone(binding)).ok()?;
        self.made_administrator(&binding)
    }

    fn made_administrator(&self, binding: &GlobalRoleBinding) -> Option<String> {
        let find = |principal: &str| self.0.tokens.user_of_principal(principal);
        if binding.global_role_name != role::ADMIN {
            return None;
        }
        match rights::global_subject(binding, &find)? {
            rights::Subject::User(name) => Some(name),
            // Whether anybody is in a group is known when they log in.
            rights::Subject::Group(_) => None,
        }
    }

    /// Users who can log in and are bound to the role of administrators.
    fn administrators(&self, gone: &[Gone], further: Option<&str>) -> BTreeSet<String> {
        let bindings = self.0.global_bindings.list();
        let bound = bindings.iter().filter(|binding| {
            let (name, uid) = (binding.name_any(), binding.uid().unwrap_or_default());
            !gone.contains(&Gone::Binding { name, uid })
        });
        let named = bound.filter_map(|binding| self.made_administrator(binding));
        let named = named.chain(further.map(str::to_owned));
        let living = |name: &String| {
            self.0.users.get(&ObjectKey::cluster_wide(name)).is_some_and(|user: std::sync::Arc<User>| {
                let (name, uid) = (user.name_any(), user.uid().unwrap_or_default());
                user.enabled.unwrap_or(true)
                    && user.metadata.deletion_timestamp.is_none()
                    && !gone.contains(&Gone::User { name, uid })
            })
        };
        named.filter(living).collect()
    }
}

fn is_disabled(user: Option<&Value>) -> bool {
    user.is_some_and(|user| user["enabled"] == false)
}
