//! The account of a machine's plan, and its token.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams, WatchParams},
    core::WatchEvent,
};
use remuda_base::Backoff;
use remuda_control::wait_for;
use remuda_names::{
    gateway::secret::{ACCOUNT_NAME, ACCOUNT_TOKEN_TYPE},
    rancher::{annotation, label, secret_key, secret_type},
};
use tokio::time::{Instant, timeout_at};

use super::machine::{self, Machine, PLAN};
use crate::{gateway::Shared, respond::Refusal};

/// Between watches of accounts, at first and at most.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// How a machine's agent gets to its plan.
pub(super) struct Account {
    /// Name of the plan Secret, in the namespace of the Machine.
    pub(super) plan: String,
    pub(super) token: String,
}

/// The account of a machine's plan. It may be about to be made, so this waits for it, and for the plan Secret:
/// an agent that comes before its Secret, or before its Role, which is made earlier, would be refused.
pub(super) async fn of_plan(shared: &Shared, machine: &Machine) -> Result<Account, Refusal> {
    let until = Instant::now() + shared.timing.plan;
    let account = timeout_at(until, find(shared, machine)).await;
    let account = account.map_err(|_| {
        Refusal::not_yet(format!("machine {} has no account for its plan yet", machine.key.name))
    })??;
    let plan = account.labels().get(label::PLAN_SECRET_NAME).cloned().unwrap_or_default();
    let token = timeout_at(until, token(shared, &account)).await;
    let token = token.map_err(|_| {
        Refusal::not_yet(format!("the account of machine {} has no token yet", machine.key.name))
    })??;
    let secrets: Api<Secret> = Api::namespaced(shared.ctx.client.clone(), machine.namespace());
    let exists = |secret: Option<&Secret>| {
        secret.is_some_and(|secret| secret.type_.as_deref() == Some(secret_type::PLAN))
    };
    let waiting = timeout_at(until, wait_for(&secrets, &plan, exists)).await;
    let found = waiting
        .map_err(|_| Refusal::not_yet(format!("machine {} has no plan Secret yet", machine.key.name)))?;
    found.map_err(|error| Refusal::failed("waiting for the plan Secret", &error))?;
    Ok(Account { plan, token })
}

async fn find(shared: &Shared, machine: &Machine) -> Result<ServiceAccount, Refusal> {
    let accounts: Api<ServiceAccount> = Api::namespaced(shared.ctx.client.clone(), machine.namespace());
    let selector =
        format!("{}={},{}={PLAN}", label::MACHINE_NAME, machine.key.name, label::SERVICE_ACCOUNT_ROLE);
    let mut attempts = BACKOFF.begin();
    loop {
        match look(shared, machine, &accounts, &selector).await {
            Ok(Some(account)) => return Ok(account),
            Ok(None) => {}
            Err(Look::Refused(refusal)) => return Err(refusal),
            Err(Look::Failed(error)) => tracing::debug!(%error, "watch of accounts failed"),
        }
        tokio::time::sleep(attempts.delay()).await;
    }
}

/// Why a look at the accounts ended early.
enum Look {
    /// The list or the watch failed: it is tried again.
    Failed(kube::Error),
    Refused(Refusal),
}

impl From<kube::Error> for Look {
    fn from(error: kube::Error) -> Look {
        Look::Failed(error)
    }
}

/// The account, if it is there or comes before the watch ends.
async fn look(
    shared: &Shared,
    machine: &Machine,
    accounts: &Api<ServiceAccount>,
    selector: &str,
) -> Result<Option<ServiceAccount>, Look> {
    let found = accounts.list(&ListParams::default().labels(selector)).await?;
    let version = found.metadata.resource_version.unwrap_or_default();
    for account in found.items {
        if is_of(shared, machine, &account).await.map_err(Look::Refused)? {
            return Ok(Some(account));
        }
    }
    let events = accounts.watch(&WatchParams::default().labels(selector), &version).await?;
    pin_mut!(events);
    while let Some(event) = events.next().await.transpose()? {
        match event {
            WatchEvent::Added(account) | WatchEvent::Modified(account) => {
                if is_of(shared, machine, &account).await.map_err(Look::Refused)? {
                    return Ok(Some(account));
                }
            }
            WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
        }
    }
    Ok(None)
}

/// Whether an account is of this very machine, and not of one that had its name before.
async fn is_of(shared: &Shared, machine: &Machine, account: &ServiceAccount) -> Result<bool, Refusal> {
    let has_plan = account.labels().get(label::PLAN_SECRET_NAME).is_some_and(|name| !name.is_empty());
    let owner = machine::owner(shared, account).await?;
    Ok(has_plan && owner.is_some_and(|owner| owner.uid == machine.uid))
}

/// The token of an account, from a Secret that is made if there is none.
async fn token(shared: &Shared, account: &ServiceAccount) -> Result<String, Refusal> {
    let failed =
        |error: &(dyn std::error::Error + 'static)| Refusal::failed("making a token for a plan", error);
    let name = account.name_any();
    let namespace = account.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(shared.ctx.client.clone(), &namespace);
    let referred = account.annotations().get(annotation::SERVICE_ACCOUNT_SECRET_REF);
    let referred = referred.and_then(|text| text.strip_prefix(&format!("{namespace}/")));
    let secret = referred.map_or_else(|| format!("{name}-token"), str::to_owned);
    let mut wanted = Secret { type_: Some(ACCOUNT_TOKEN_TYPE.to_owned()), ..Secret::default() };
    wanted.metadata.name = Some(secret.clone());
    wanted.metadata.labels = Some(BTreeMap::from([(label::SERVICE_ACCOUNT_NAME.to_owned(), name.clone())]));
    wanted.metadata.annotations = Some(BTreeMap::from([(ACCOUNT_NAME.to_owned(), name.clone())]));
    let params =
        PostParams { field_manager: Some(shared.ctx.field_manager.to_string()), ..PostParams::default() };
    if secrets.get_metadata_opt(&secret).await.map_err(|error| failed(&error))?.is_none() {
        match secrets.create(&params, &wanted).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    let has_token = |secret: Option<&Secret>| secret.and_then(token_of).is_some();
    let filled = wait_for(&secrets, &secret, has_token).await.map_err(|error| failed(&error))?;
    let filled = filled.filter(|secret| {
        secret.type_.as_deref() == Some(ACCOUNT_TOKEN_TYPE)
            && secret.annotations().get(ACCOUNT_NAME) == Some(&name)
    });
    let token = filled.as_ref().and_then(token_of).map(str::to_owned);
    token.ok_or_else(|| Refusal::unauthorized("the account of this machine has no token"))
}

fn token_of(secret: &Secret) -> Option<&str> {
    let token = secret.data.as_ref()?.get(secret_key::TOKEN)?;
    std::str::from_utf8(&token.0).ok().filter(|token| !token.is_empty())
}
