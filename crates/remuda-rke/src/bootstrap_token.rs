//! Tokens machines boot with: good for a while, and for a moment after they were used.
//!
//! Reads   token Secrets of bootstrap accounts, and settings.
//! Writes  the annotation that such a token is not good any more.
//! Never   deletes one: whoever shows a token that has ended is to be told so.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::Patch};
use remuda_control::{Action, Controller, ObjectKey, drive};
use remuda_names::rancher::{annotation, setting};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Error, error::is_code, settings, shared::Rke};

const LONG: SignedDuration = SignedDuration::from_mins(30);
const SHORT: SignedDuration = SignedDuration::from_secs(30);

/// What settings of this controller are unless they are set.
pub(crate) fn setting_defaults() -> [(&'static str, String); 3] {
    [
        (setting::INSTALLER_TOKEN_TTL_ENABLED, "true".to_owned()),
        (setting::INSTALLER_TOKEN_LONG_TTL, format!("{}s", LONG.as_secs())),
        (setting::INSTALLER_TOKEN_SHORT_TTL, format!("{}s", SHORT.as_secs())),
    ]
}

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let controller =
        Controller::on("bootstrap-token", &rke.ctx, rke.tokens.clone()).workers(rke.options.workers);
    let tokens = rke.tokens.clone();
    let controller = controller.watches_facts(
        &rke.settings,
        |setting| setting.effective().to_owned(),
        move |setting| {
            if setting.name_any().starts_with("system-agent-installer-token-") {
                tokens.keys()
            } else {
                Vec::new()
            }
        },
    );
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    drive(controller, reconcile, rke, stop).await;
}

async fn reconcile(secret: Arc<Secret>, rke: Arc<Rke>) -> Result<Action, Error> {
    let text = |name| settings::value(&rke.settings, name);
    let limits = Limits {
        enabled: text(setting::INSTALLER_TOKEN_TTL_ENABLED) != "false",
        long: settings::duration(&text(setting::INSTALLER_TOKEN_LONG_TTL)).unwrap_or(LONG),
        short: settings::duration(&text(setting::INSTALLER_TOKEN_SHORT_TTL)).unwrap_or(SHORT),
    };
    match decide(&secret, &limits, rke.ctx.clock.now()) {
        Decision::Nothing => Ok(Action::AwaitChange),
        Decision::Later(left) => Ok(Action::RequeueAfter(left)),
        Decision::Invalidate => {
            let key = ObjectKey::of(&secret.metadata);
            let api: Api<Secret> = rke.api(key.namespace.as_deref().unwrap_or_default());
            let patch = json!({
                "metadata": {"uid": secret.uid(), "annotations": {annotation::BOOTSTRAP_TOKEN_INVALIDATED: "true"}},
            });
            match api.patch(&key.name, &rke.params(), &Patch::Merge(patch)).await {
                Err(error) if !is_code(&error, 404) => {
                    Err(Error::api("write", format!("Secret {key}"))(error))
                }
                _ => Ok(Action::AwaitChange),
            }
        }
    }
}

struct Limits {
    enabled: bool,
    long: SignedDuration,
    short: SignedDuration,
}

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Nothing,
    Later(Duration),
    Invalidate,
}

fn decide(secret: &Secret, limits: &Limits, now: Timestamp) -> Decision {
    let is = |key: &str| secret.annotations().get(key).is_some_and(|value| value == "true");
    let ours = is(annotation::BOOTSTRAP_TOKEN) && !is(annotation::BOOTSTRAP_TOKEN_INVALIDATED);
    if !limits.enabled || !ours || secret.metadata.deletion_timestamp.is_some() {
        return Decision::Nothing;
    }
    let created = secret.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let end = created.saturating_add(limits.long).unwrap_or(Timestamp::MAX);
    let used = secret.annotations().get(annotation::LAST_ACCESS).filter(|time| !time.is_empty());
    // A time nobody can read may be long ago.
    let end = match used.map(|time| time.parse::<Timestamp>()) {
        None => end,
        Some(Err(_)) => now,
        Some(Ok(used)) => end.min(used.saturating_add(limits.short).unwrap_or(Timestamp::MAX)),
    };
    match Duration::try_from(end.duration_since(now)) {
        Ok(left) if !left.is_zero() => Decision::Later(left),
        _ => Decision::Invalidate,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[track_caller]
    fn check(annotations: &[(&str, &str)], now: i64, expected: &Decision) {
        let mut secret = Secret::default();
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        secret.metadata.annotations = Some(annotations.collect());
        secret.metadata.creation_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let limits = Limits { enabled: true, long: LONG, short: SHORT };
        assert_eq!(&decide(&secret, &limits, Timestamp::from_second(now).unwrap()), expected);
    }

    #[test]
    fn a_token_ends_after_half_an_hour_or_half_a_minute_after_its_use() {
        let token = (annotation::BOOTSTRAP_TOKEN, "true");
        check(&[], 9999, &Decision::Nothing);
        check(&[token], 60, &Decision::Later(Duration::from_secs(1740)));
        check(&[token], 1800, &Decision::Invalidate);
        let used = (annotation::LAST_ACCESS, "1970-01-01T00:01:00Z");
        check(&[token, used], 80, &Decision::Later(Duration::from_secs(10)));
        check(&[token, used], 90, &Decision::Invalidate);
        check(&[token, (annotation::LAST_ACCESS, "yesterday")], 80, &Decision::Invalidate);
        check(&[token, (annotation::BOOTSTRAP_TOKEN_INVALIDATED, "true")], 9999, &Decision::Nothing);
    }
}
