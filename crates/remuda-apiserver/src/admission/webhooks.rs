//! Mutating and validating webhooks: which ones a write concerns, and what they say.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures::future::join_all;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::warn;

use super::{
    Operation, Review,
    client::{Client, ClientConfig},
    given::{Given, Rights},
    matching::{Condition, Rules, all_hold},
    verdict::{self, Response, Sort},
};
use remuda_auth::request_info::Verb;

use crate::{
    registry::Resource,
    server::{Inner, StartError},
    status::{ApiError, ApiResult},
};

const MUTATING: &str = "/admissionregistration.k8s.io/mutatingwebhookconfigurations/";
const VALIDATING: &str = "/admissionregistration.k8s.io/validatingwebhookconfigurations/";

/// One webhook of a configuration, ready to be matched.
pub(crate) struct Webhook {
    name: String,
    client: Result<ClientConfig, String>,
    rules: Rules,
    conditions: Vec<Condition>,
    fail: bool,
    timeout: Duration,
    /// `None` and `NoneOnDryRun` may be called for a dry run.
    dry_run_safe: bool,
    reinvoke: bool,
    review_version: Option<&'static str>,
}

type Configurations = BTreeMap<String, Arc<Vec<Webhook>>>;

#[derive(Default)]
pub(crate) struct Webhooks {
    mutating: ArcSwap<Configurations>,
    validating: ArcSwap<Configurations>,
    client: Client,
}

pub(super) async fn start(inner: &Arc<Inner>) -> Result<(), StartError> {
    for prefix in [MUTATING, VALIDATING] {
        let server = inner.clone();
        inner
            .follow(prefix, move |news| {
                let target =
                    if prefix == MUTATING { &server.webhooks.mutating } else { &server.webhooks.validating };
                super::policies::tell(target, prefix, news, |object| {
                    object["webhooks"].as_array().into_iter().flatten().map(Webhook::parse).collect()
                });
            })
            .await?;
    }
    Ok(())
}

impl Webhook {
    fn parse(config: &Value) -> Self {
        let versions = config["admissionReviewVersions"].as_array().into_iter().flatten();
        let review_version = versions.filter_map(Value::as_str).find_map(|version| match version {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        });
        Self {
            name: config["name"].as_str().unwrap_or_default().to_owned(),
            client: ClientConfig::parse(&config["clientConfig"]),
            rules: Rules::parse(config),
            conditions: config["matchConditions"]
                .as_array()
                .into_iter()
                .flatten()
                .map(Condition::parse)
                .collect(),
            fail: config["failurePolicy"] != "Ignore",
            timeout: Duration::from_secs(config["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30)),
            dry_run_safe: matches!(config["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            reinvoke: config["reinvocationPolicy"] == "IfNeeded",
            review_version,
        }
    }
}

/// What a webhook or policy gets to see: the write in the version it lists.
pub(super) struct Seen<'a> {
    pub(super) resource: Arc<Resource>,
    pub(super) object: Option<Cow<'a, Value>>,
    pub(super) old: Option<Cow<'a, Value>>,
}

impl Webhooks {
    /// For conversion: the same client.
    pub(crate) async fn post(
        &self,
        server: &Inner,
        client: &ClientConfig,
        review: &impl Serialize,
        timeout: Duration,
    ) -> Result<Value, String> {
        self.client.post(server, client, review, timeout).await
    }
}

impl Inner {
    /// Sends the object through every mutating webhook it concerns; says whether one changed it.
    pub(super) async fn call_mutating(&self, review: &Review<'_>, object: &mut Value) -> ApiResult<bool> {
        let configurations = self.webhooks.mutating.load_full();
        if configurations.is_empty() || is_exempt(review) {
            return Ok(false);
        }
        let all: Vec<&Webhook> = configurations.values().flat_map(|webhooks| webhooks.iter()).collect();
        let mut changed_after = vec![false; all.len()];
        let mut changed = false;
        for (index, webhook) in all.iter().enumerate() {
            if self.mutate_by(webhook, review, object).await? {
                changed = true;
                changed_after[..index].fill(true);
            }
        }
        // Those who asked for it see once more what later ones made of it.
        for (webhook, again) in all.iter().zip(changed_after) {
            if again && webhook.reinvoke {
                changed |= self.mutate_by(webhook, review, object).await?;
            }
        }
        Ok(changed)
    }

    async fn mutate_by(&self, webhook: &Webhook, review: &Review<'_>, object: &mut Value) -> ApiResult<bool> {
        let reviewed = (review.operation != Operation::Delete).then_some(&*object);
        let Some(seen) = self.asked(webhook, review, reviewed).await? else { return Ok(false) };
        let answer = self.ask(webhook, review, &seen, Sort::Mutating).await?;
        let Some(patch) = answer.and_then(|response| response.patch) else { return Ok(false) };
        let broken = |cause: String| ApiError::internal(cause);
        let patch: Value = serde_json::from_slice(&patch).map_err(|error| broken(error.to_string()))?;
        if patch.as_array().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        let Some(before) = seen.object else {
            return Err(broken(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                webhook.name
            )));
        };
        let mut patched = before.clone().into_owned();
        remuda_merge::json_patch::apply(&mut patched, &patch).map_err(|error| broken(error.to_string()))?;
        if patched == *before {
            return Ok(false);
        }
        self.take_over(review, &seen.resource, patched, object).await?;
        Ok(true)
    }

    /// Makes the object of a write what was made of it in the form of `resource`.
    pub(super) async fn take_over(
        &self,
        review: &Review<'_>,
        resource: &Arc<Resource>,
        mut patched: Value,
        object: &mut Value,
    ) -> ApiResult<()> {
        if review.call.subresource() == "scale" {
            return crate::scale::put(&review.call.resource, object, &patched);
        }
        if !Arc::ptr_eq(resource, &review.call.resource) {
            let mut objects = [patched];
            self.convert_served(&review.call.resource, &mut objects).await?;
            [patched] = objects;
        }
        // The next one to see it finds the defaults in place.
        if review.is_main_kind() {
            self.shape_input(&review.call.resource, &mut patched, &mut Vec::new())?;
        }
        *object = patched;
        Ok(())
    }

    /// Asks all validating webhooks at once; any refusal refuses.
    pub(super) async fn call_validating(&self, review: &Review<'_>, object: Option<&Value>) -> ApiResult<()> {
        let configurations = self.webhooks.validating.load_full();
        if configurations.is_empty() || is_exempt(review) {
            return Ok(());
        }
        let calls = configurations.values().flat_map(|webhooks| webhooks.iter()).map(|webhook| async move {
            match self.asked(webhook, review, object).await? {
                None => Ok(()),
                Some(seen) => self.ask(webhook, review, &seen, Sort::Validating).await.map(drop),
            }
        });
        join_all(calls).await.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    }

    /// What a webhook is asked about, if it is asked.
    async fn asked<'a>(
        &self,
        webhook: &Webhook,
        review: &Review<'a>,
        object: Option<&'a Value>,
    ) -> ApiResult<Option<Seen<'a>>> {
        let Some(resource) = webhook.rules.matches(self, review, object).await? else { return Ok(None) };
        let seen = self.seen(review, object, resource).await?;
        if webhook.conditions.is_empty() {
            return Ok(Some(seen));
        }
        let request = request(review, &seen, "");
        let rights = &Rights::of(self, review, seen.object.as_deref());
        let given = Given {
            object: seen.object.as_deref(),
            old: seen.old.as_deref(),
            request: &request,
            params: &Value::Null,
            namespace: &Value::Null,
            rights,
        };
        match all_hold(&webhook.conditions, &given) {
            Ok(true) => Ok(Some(seen)),
            Ok(false) => Ok(None),
            Err(cause) if webhook.fail => {
                let detail = format!("admission webhook {:?}: {cause}", webhook.name);
                Err(ApiError::forbidden(review.call.named_as(&review.name(object)), &detail))
            }
            Err(_) => Ok(None),
        }
    }

    /// The write in another version of its resource.
    pub(super) async fn seen<'a>(
        &self,
        review: &Review<'a>,
        object: Option<&'a Value>,
        resource: Arc<Resource>,
    ) -> ApiResult<Seen<'a>> {
        let (object, old) = (object.map(Cow::Borrowed), review.old.map(Cow::Borrowed));
        let mut seen = Seen { resource, object, old };
        let own = &review.call.resource;
        for side in [&mut seen.object, &mut seen.old] {
            let Some(value) = side else { continue };
            if review.call.subresource() == "scale" {
                *value = Cow::Owned(crate::scale::of(own, value)?);
            } else if !Arc::ptr_eq(&seen.resource, own) && review.is_main_kind() {
                let mut objects = [value.clone().into_owned()];
                self.convert_served(&seen.resource, &mut objects).await?;
                let [converted] = objects;
                *value = Cow::Owned(converted);
            }
        }
        Ok(seen)
    }

    /// Calls a webhook. `None`: it could not be asked, and that is allowed.
    async fn ask(
        &self,
        webhook: &Webhook,
        review: &Review<'_>,
        seen: &Seen<'_>,
        sort: Sort,
    ) -> ApiResult<Option<Response>> {
        if review.dry_run && !webhook.dry_run_safe {
            return Err(ApiError::bad_request(format!(
                "admission webhook {:?} does not support dry run",
                webhook.name
            )));
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let outcome = match (&webhook.client, webhook.review_version) {
            (Err(cause), _) => Err(format!("failed to call webhook: {cause}")),
            (_, None) => Err("failed to call webhook: no known admissionReviewVersions".to_owned()),
            (Ok(client), Some(version)) => {
                let body = Question {
                    kind: "AdmissionReview",
                    api_version: format!("admission.k8s.io/{version}"),
                    request: Asking {
                        head: request(review, seen, &uid),
                        object: seen.object.as_deref(),
                        old_object: seen.old.as_deref(),
                    },
                };
                match self.webhooks.client.post(self, client, &body, webhook.timeout).await {
                    Ok(answer) => verdict::read(answer, version, &uid, sort)
                        .map_err(|cause| format!("received invalid webhook response: {cause}")),
                    Err(cause) => Err(format!("failed to call webhook: {cause}")),
                }
            }
        };
        let response = match outcome {
            Ok(response) => response,
            Err(cause) if webhook.fail => {
                return Err(ApiError::internal(format!(
                    "failed calling webhook {:?}: {cause}",
                    webhook.name
                )));
            }
            Err(cause) => {
                warn!(webhook = %webhook.name, %cause, "webhook could not be asked, going on");
                return Ok(None);
            }
        };
        for warning in &response.warnings {
            review.call.warn(warning);
        }
        match &response.denied {
            None => Ok(Some(response)),
            Some(status) => Err(verdict::denial(&webhook.name, status)),
        }
    }
}

/// Webhook configurations and policies are never sent to webhooks: a broken one must stay mendable.
fn is_exempt(review: &Review<'_>) -> bool {
    review.call.resource.group == "admissionregistration.k8s.io"
}

/// An AdmissionReview on its way out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    kind: &'static str,
    api_version: String,
    request: Asking<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asking<'a> {
    #[serde(flatten)]
    head: Value,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
}

/// The `request` of an AdmissionReview, without the objects: what expressions see as `request`.
pub(super) fn request(review: &Review<'_>, seen: &Seen<'_>, uid: &str) -> Value {
    let call = review.call;
    let kind = |resource: &Resource| match review.other_kind(resource) {
        Some(other) => json!({"group": other.group, "version": other.version, "kind": other.kind}),
        None => json!({"group": resource.group, "version": resource.version, "kind": resource.kind}),
    };
    let plural = |resource: &Resource| json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let own = &call.resource;
    let name = review.name(seen.object.as_deref());
    let mut request = json!({
        "uid": uid, "kind": kind(&seen.resource), "resource": plural(&seen.resource),
        "requestKind": kind(own), "requestResource": plural(own),
        "operation": review.operation.as_str(), "userInfo": call.user.to_user_info(),
        "dryRun": review.dry_run, "options": options(review),
    });
    if !name.is_empty() {
        request["name"] = name.as_str().into();
    }
    if let Some(namespace) = super::namespace_of_request(call, &name) {
        request["namespace"] = namespace.into();
    }
    if !call.subresource().is_empty() {
        request["subResource"] = call.subresource().into();
        request["requestSubResource"] = call.subresource().into();
    }
    request
}

/// The options of the request, as far as they say anything.
fn options(review: &Review<'_>) -> Value {
    let query = &review.call.query;
    let kind = match (review.operation, review.call.verb) {
        (Operation::Connect, _) => return Value::Null,
        (Operation::Delete, _) => "DeleteOptions",
        (_, Verb::Patch) => "PatchOptions",
        (Operation::Create, _) => "CreateOptions",
        (Operation::Update, _) => "UpdateOptions",
    };
    let mut options = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
    for field in ["fieldManager", "fieldValidation"] {
        if let Some(text) = query.get(field).filter(|text| !text.is_empty()) {
            options[field] = text.into();
        }
    }
    if review.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    if let Some(delete) = review.options {
        if let Some(seconds) = delete.grace_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        if let Some(policy) = delete.propagation {
            options["propagationPolicy"] = format!("{policy:?}").into();
        }
        let preconditions = [("uid", &delete.uid), ("resourceVersion", &delete.resource_version)];
        for (field, wanted) in preconditions {
            if let Some(wanted) = wanted {
                options["preconditions"][field] = wanted.as_str().into();
            }
        }
    }
    options
}
