//! Requests that store nothing: access reviews, token reviews, and subresources that act.

use bytes::Bytes;
use remuda_auth::{
    attributes::Attributes,
    identity::User,
    jwt::{
        claims::{Bound, ObjectRef},
        issue::TokenSpec,
    },
    request_info::Verb,
};
use remuda_objects::meta;
use remuda_schema::FieldError;
use serde_json::{Value, json};

use crate::{
    admission::{Operation, Review},
    call::{Answer, Call},
    codec,
    negotiate::response_form,
    options::{DeleteOptions, WriteOptions},
    server::{Inner, time_text},
    status::{ApiError, ApiResult, Named},
    write::{Failed, Ownership, Part, place},
};

/// Tries to take a disruption from a contended budget before the client is asked to wait.
const TRIES: usize = 20;

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

impl Inner {
    /// POST of a kind that is answered, not stored.
    pub(crate) async fn review(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let options = WriteOptions::parse(&call.query, "CreateOptions")?;
        let form = response_form(&call.headers, false)?;
        let (mut review, problems) = self.decode_body(call, &body)?;
        self.judge_body(call, options.validation, problems).await?;
        self.admit(&Review::new(call, Operation::Create, None, options.dry_run), &mut review).await?;
        let spec = review["spec"].clone();
        review["status"] = match call.resource.kind.as_str() {
            "SelfSubjectReview" => json!({"userInfo": call.user.to_user_info()}),
            "TokenReview" => self.review_token(&spec).await?,
            "SelfSubjectAccessReview" => self.review_access(call, &call.user, &spec)?,
            "SubjectAccessReview" => self.review_access(call, &review_user(call, &spec)?, &spec)?,
            "LocalSubjectAccessReview" => {
                let namespace = call.namespace().unwrap_or_default();
                if spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default() != namespace {
                    let error = FieldError::invalid(
                        "spec.resourceAttributes.namespace",
                        &spec["resourceAttributes"]["namespace"],
                        "must match metadata.namespace",
                    );
                    return Err(ApiError::invalid(call.kind_named(""), &[error]));
                }
                self.review_access(call, &review_user(call, &spec)?, &spec)?
            }
            "SelfSubjectRulesReview" => {
                let namespace = spec["namespace"].as_str().unwrap_or_default();
                if namespace.is_empty() {
                    return Err(ApiError::bad_request("no namespace on request"));
                }
                self.policy.rules_for(&call.user, namespace).review_status()
            }
            _ => return Err(ApiError::unknown_resource()),
        };
        Ok(Answer::value(201, review, form))
    }

    async fn review_token(&self, spec: &Value) -> ApiResult<Value> {
        let token = spec["token"].as_str().unwrap_or_default();
        if token.is_empty() {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        let asked = texts(&spec["audiences"]);
        Ok(match self.authenticate_token(token, &asked).await? {
            Some((user, good)) => {
                json!({"authenticated": true, "user": user.to_user_info(), "audiences": good})
            }
            None => json!({"user": {}, "error": "invalid bearer token"}),
        })
    }

    fn review_access(&self, call: &Call, user: &User, spec: &Value) -> ApiResult<Value> {
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let decision = match (&spec["resourceAttributes"], &spec["nonResourceAttributes"]) {
            (resource @ Value::Object(_), Value::Null) => {
                let (verb, group, version) =
                    (text(resource, "verb"), text(resource, "group"), text(resource, "version"));
                let (plural, sub) = (text(resource, "resource"), text(resource, "subresource"));
                let (namespace, name) = (text(resource, "namespace"), text(resource, "name"));
                let attributes = Attributes::resource(&verb, &group, &plural)
                    .version(&version)
                    .subresource(&sub)
                    .namespace(&namespace)
                    .name(&name);
                self.policy.authorize(user, &attributes)
            }
            (Value::Null, path @ Value::Object(_)) => {
                self.policy.authorize(user, &Attributes::path(&text(path, "verb"), &text(path, "path")))
            }
            _ => {
                let error = FieldError::invalid(
                    "spec.resourceAttributes",
                    &spec["resourceAttributes"],
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified",
                );
                return Err(ApiError::invalid(call.kind_named(""), &[error]));
            }
        };
        let mut status = json!({"allowed": decision.allowed});
        if !decision.reason.is_empty() {
            status["reason"] = (*decision.reason).into();
        }
        Ok(status)
    }

    /// Subresources other than status and scale.
    pub(crate) async fn subresource(&self, call: &Call, sub: &str, body: Bytes) -> ApiResult<Answer> {
        match (call.resource.kind.as_str(), sub) {
            ("ServiceAccount", "token") => self.request_token(call, body).await,
            ("Pod", "eviction") => self.evict(call, body).await,
            ("Pod", "binding") => self.bind(call, body).await,
            ("Namespace", "finalize") => self.finalize(call, body).await,
            ("CertificateSigningRequest", "approval") if call.verb == Verb::Get => self.get(call).await,
            ("CertificateSigningRequest", "approval") => self.approve(call, body).await,
            ("Pod", "ephemeralcontainers" | "resize") => match call.verb {
                Verb::Get => self.get(call).await,
                Verb::Update => self.update(call, body).await,
                _ => self.patch(call, body).await,
            },
            _ => {
                // The object is only stored here; there is no process behind it to talk to.
                self.admit_connect(call).await?;
                self.record(call).await?;
                Err(ApiError::bad_request(format!(
                    "{} {:?} runs on no node of this server: {sub} is not available",
                    call.resource.singular,
                    call.name()
                )))
            }
        }
    }

    fn decode_as(&self, call: &Call, body: &[u8], kind: &str) -> ApiResult<Value> {
        let unreadable = |cause: String| ApiError::bad_request(format!("couldn't decode {kind}: {cause}"));
        let mut value = codec::read_body(&call.headers, body, kind)?;
        if !value.is_object() || value["kind"].as_str().is_some_and(|given| given != kind) {
            return Err(unreadable(format!("the body is not a {kind}")));
        }
        let (group, api_version) = match kind {
            "TokenRequest" => ("authentication.k8s.io", "authentication.k8s.io/v1"),
            "Eviction" => ("policy", "policy/v1"),
            _ => ("", "v1"),
        };
        if let Some(table) = remuda_kinds::type_of(group, "v1", kind) {
            remuda_kinds::decode(table, &mut value, &mut Vec::new())
                .map_err(|error| unreadable(error.to_string()))?;
        }
        let name = meta::name(&value);
        if !name.is_empty() && name != call.name() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.name()
            )));
        }
        // Admission sees whole objects, as everywhere.
        value["apiVersion"] = api_version.into();
        value["kind"] = kind.into();
        Ok(value)
    }

    /// TokenRequest: a token for the service account, bound to what the request names.
    async fn request_token(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let form = response_form(&call.headers, false)?;
        let options = WriteOptions::parse(&call.query, "CreateOptions")?;
        let mut request = self.decode_as(call, &body, "TokenRequest")?;
        let review = Review::new(call, Operation::Create, None, options.dry_run);
        self.mutate(&review, &mut request).await?;
        let account = self.decode(&call.resource, &*self.record(call).await?).await?;
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
        let invalid = |field: &str, value: Value, detail: &str| {
            let named = Named { group: "authentication.k8s.io", kind: "TokenRequest", name: call.name() };
            ApiError::invalid(named, &[FieldError::invalid(field, &value, detail)])
        };
        if seconds < 600 {
            let detail = "may not specify a duration less than 10 minutes";
            return Err(invalid("spec.expirationSeconds", json!(seconds), detail));
        }
        if seconds > 1 << 32 {
            let detail = "may not specify a duration larger than 2^32 seconds";
            return Err(invalid("spec.expirationSeconds", json!(seconds), detail));
        }
        let mut audiences = texts(&request["spec"]["audiences"]);
        if audiences.is_empty() {
            audiences = self.config.verifier.audiences().to_vec();
        }
        let namespace = call.namespace().unwrap_or_default();
        let bound = match &request["spec"]["boundObjectRef"] {
            Value::Object(_) => self.bound_object(call, &request["spec"]["boundObjectRef"]).await?,
            _ => Bound::Nothing,
        };
        request["metadata"] = json!({
            "name": call.name(), "namespace": namespace, "creationTimestamp": self.now_text(),
        });
        request["spec"]["audiences"] = json!(audiences);
        request["spec"]["expirationSeconds"] = seconds.into();
        self.validate_admission(&review, Some(&request)).await?;
        let spec = TokenSpec {
            namespace: namespace.to_owned(),
            service_account: ObjectRef::new(call.name(), meta::uid(&account)),
            audiences,
            lifetime_seconds: seconds,
            bound,
            warn_after_seconds: None,
        };
        let issued = self
            .config
            .issuer
            .issue(spec, self.now().as_second())
            .map_err(|error| ApiError::internal(error.to_string()))?;
        let expires = jiff::Timestamp::from_second(issued.expires).unwrap_or_else(|_| self.now());
        request["status"] = json!({"token": issued.token, "expirationTimestamp": time_text(expires)});
        Ok(Answer::value(201, request, form))
    }

    async fn bound_object(&self, call: &Call, reference: &Value) -> ApiResult<Bound> {
        let namespace = call.namespace().unwrap_or_default();
        let name = reference["name"].as_str().unwrap_or_default().to_owned();
        let (plural, key) = match reference["kind"].as_str() {
            Some("Pod") => ("pods", format!("/core/pods/{namespace}/{name}")),
            Some("Secret") => ("secrets", format!("/core/secrets/{namespace}/{name}")),
            Some("Node") => ("nodes", format!("/core/nodes/{name}")),
            other => {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token to object of type {}, Kind={}",
                    reference["apiVersion"].as_str().unwrap_or_default(),
                    other.unwrap_or_default()
                )));
            }
        };
        let object = self
            .read_value(&key)
            .await
            .ok_or_else(|| ApiError::not_found(Named { group: "", kind: plural, name: &name }))?;
        let uid = meta::uid(&object).to_owned();
        let wanted = reference["uid"].as_str().unwrap_or_default();
        if !wanted.is_empty() && wanted != uid {
            let detail = format!(
                "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(Named { group: "", kind: plural, name: &name }, &detail));
        }
        if plural == "pods" && object["spec"]["serviceAccountName"] != call.name() {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                call.name()
            )));
        }
        Ok(match plural {
            "pods" => {
                let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
                let found = self.read_value(&format!("/core/nodes/{node}")).await;
                let node = found.map(|found| ObjectRef::new(node, meta::uid(&found)));
                Bound::Pod { pod: ObjectRef::new(name, uid), node }
            }
            "secrets" => Bound::Secret(ObjectRef::new(name, uid)),
            _ => Bound::Node(ObjectRef::new(name, uid)),
        })
    }

    /// Eviction: a delete that disruption budgets may hold up.
    async fn evict(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let form = response_form(&call.headers, false)?;
        let mut eviction = self.decode_as(call, &body, "Eviction")?;
        let delete = &eviction["deleteOptions"];
        let mut options = DeleteOptions::parse(&call.query, delete.is_object().then_some(delete))?;
        let pod = self.decode(&call.resource, &*self.record(call).await?).await?;
        options.uid = options.uid.or_else(|| Some(meta::uid(&pod).to_owned()));
        // To admission this is the creation of an Eviction, not a delete.
        let review = Review::new(call, Operation::Create, None, options.dry_run);
        self.mutate(&review, &mut eviction).await?;
        self.validate_admission(&review, Some(&eviction)).await?;
        options.admitted = true;
        let one = Call::internal(
            call.registry.clone(),
            call.resource.clone(),
            Verb::Delete,
            call.namespace(),
            Some(call.name()),
            call.user.clone(),
        );
        let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"));
        if !over && !meta::is_deleting(&pod) {
            self.take_disruption(call, &pod, options.dry_run).await?;
        }
        self.delete_object(&one, &options).await?;
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        });
        Ok(Answer::value(201, status, form))
    }

    /// Takes one disruption from the budget that covers the pod, or says why not.
    async fn take_disruption(&self, call: &Call, pod: &Value, dry_run: bool) -> ApiResult<()> {
        let Some(budgets) = call.registry.preferred("policy", "poddisruptionbudgets").cloned() else {
            return Ok(());
        };
        for attempt in 1.. {
            let query = remuda_store::ListQuery {
                prefix: budgets.collection(call.namespace()),
                ..Default::default()
            };
            let page = self.store.list(query).await.map_err(crate::read::store_error)?;
            let mut covering = Vec::new();
            for record in page.records {
                let budget = crate::convert::parse(&record)?;
                let selects =
                    remuda_objects::selector::LabelSelector::from_object(&budget["spec"]["selector"])
                        .is_ok_and(|selector| selector.matches_object(pod));
                if selects {
                    covering.push((record, budget));
                }
            }
            let Some((record, mut budget)) = covering.pop() else { return Ok(()) };
            if !covering.is_empty() {
                let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource \
                               does not support.";
                return Err(ApiError::new(500, "InternalError", message));
            }
            let name = meta::name(&budget).to_owned();
            let ready = pod["status"]["conditions"].as_array().is_some_and(|conditions| {
                conditions.iter().any(|known| known["type"] == "Ready" && known["status"] == "True")
            });
            let status = &budget["status"];
            let healthy = status["currentHealthy"].as_i64().unwrap_or(0);
            let desired = status["desiredHealthy"].as_i64().unwrap_or(0);
            let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
            if !ready && (always || (healthy >= desired && desired > 0)) {
                return Ok(());
            }
            let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
            if status["observedGeneration"].as_i64().unwrap_or(0) < meta::generation(&budget) {
                return Err(budget_error(
                    &name,
                    format!("The disruption budget {name} is still being processed by the server."),
                    Some(10),
                ));
            }
            if allowed <= 0 {
                let detail = format!(
                    "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
                );
                return Err(budget_error(&name, detail, None));
            }
            if dry_run {
                return Ok(());
            }
            budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
            budget["status"]["disruptedPods"][meta::name(pod)] = self.now_text().into();
            let write = remuda_store::Write::Update {
                key: record.key.to_string(),
                expected: record.revision,
                value: codec::encode(&budget),
            };
            match self.store.write(write).await {
                Ok(_) => return Ok(()),
                Err(remuda_store::Error::Conflict { .. } | remuda_store::Error::Missing)
                    if attempt < TRIES => {}
                Err(_) => return Err(budget_error(&name, "too much contention".to_owned(), Some(10))),
            }
        }
        unreachable!("the loop returns")
    }

    /// Binding: gives a pod its node, once.
    async fn bind(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let form = response_form(&call.headers, false)?;
        // To admission this is the creation of a Binding, not the update of a Pod.
        let mut options = WriteOptions::parse(&call.query, "CreateOptions")?;
        let review = Review::new(call, Operation::Create, None, options.dry_run);
        let mut binding = self.decode_as(call, &body, "Binding")?;
        place(call, &mut binding)?;
        self.mutate(&review, &mut binding).await?;
        let target = &binding["target"];
        let node = target["name"].as_str().unwrap_or_default().to_owned();
        let mut errors = Vec::new();
        if !matches!(target["kind"].as_str().unwrap_or_default(), "" | "Node") {
            errors.push(FieldError::not_supported("target.kind", &target["kind"], &["Node", "<empty>"]));
        }
        if node.is_empty() {
            errors.push(FieldError::required("target.name", ""));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(Named { group: "", kind: "Binding", name: call.name() }, &errors));
        }
        self.validate_admission(&review, Some(&binding)).await?;
        options.admitted = true;
        let now = self.now_text();
        self.change_with(call, &options, |pod| {
            if pod["spec"]["nodeName"].as_str().is_some_and(|bound| !bound.is_empty()) {
                let detail =
                    format!("pod {} is already assigned to node {}", call.name(), pod["spec"]["nodeName"]);
                return Err(ApiError::conflict(call.named_as(call.name()), &detail));
            }
            pod["spec"]["nodeName"] = node.as_str().into();
            let mut status = pod["status"].take();
            crate::crd::set_condition(&mut status, "PodScheduled", "True", "", "", &now);
            pod["status"] = status;
            Ok(())
        })
        .await?;
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        Ok(Answer::value(201, status, form))
    }

    /// Reads, changes and writes an object through a subresource.
    pub(crate) async fn change(
        &self,
        call: &Call,
        change: impl FnMut(&mut Value) -> ApiResult<()>,
    ) -> ApiResult<Value> {
        let options = WriteOptions::parse(&call.query, "UpdateOptions")?;
        self.change_with(call, &options, change).await
    }

    async fn change_with(
        &self,
        call: &Call,
        options: &WriteOptions,
        mut change: impl FnMut(&mut Value) -> ApiResult<()>,
    ) -> ApiResult<Value> {
        let mut turn = self.turns.first();
        loop {
            let record = self.record(call).await?;
            let mut object = self.decode(&call.resource, &record).await?;
            change(&mut object)?;
            match self.update_object(call, &record, object, options, Ownership::Compute, Part::Other).await {
                Ok(stored) => return Ok(stored.object),
                Err(Failed::Conflict) => turn.lost(&record.key).await,
                Err(Failed::Api(error)) => return Err(error),
            }
        }
    }

    /// `namespaces/finalize`: only `spec.finalizers` counts.
    async fn finalize(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let form = response_form(&call.headers, false)?;
        let (mut wanted, problems) = self.decode_body(call, &body)?;
        self.judge_body(call, None, problems).await?;
        place(call, &mut wanted)?;
        let version = meta::resource_version(&wanted).to_owned();
        let finalizers = wanted["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        let namespace = self
            .change(call, |namespace| {
                if !version.is_empty() && version != meta::resource_version(namespace) {
                    return Err(ApiError::modified(call.named()));
                }
                if finalizers.is_empty() {
                    namespace["spec"].as_object_mut().map(|spec| spec.remove("finalizers"));
                } else {
                    namespace["spec"]["finalizers"] = finalizers.clone().into();
                }
                Ok(())
            })
            .await?;
        Ok(Answer::value(200, namespace, form))
    }

    /// `certificatesigningrequests/approval`: only the verdict conditions count, and what people note in metadata.
    async fn approve(&self, call: &Call, body: Bytes) -> ApiResult<Answer> {
        let form = response_form(&call.headers, false)?;
        let patch = match call.verb {
            Verb::Patch => Some(self.parse_patch(call, &body)?.0),
            _ => None,
        };
        let given = match patch {
            None => {
                let (given, problems) = self.decode_body(call, &body)?;
                self.judge_body(call, None, problems).await?;
                Some(given)
            }
            Some(_) => None,
        };
        let now = self.now_text();
        let request = self
            .change(call, |request| {
                let mut wanted = match (&given, &patch) {
                    (Some(given), _) => given.clone(),
                    (None, Some(patch)) => {
                        let mut patched = request.clone();
                        crate::patch::apply(call, patch, &mut patched)?;
                        patched
                    }
                    (None, None) => return Ok(()),
                };
                self.check_signer(call, "approve", request)?;
                let version = meta::resource_version(&wanted);
                if !version.is_empty() && version != meta::resource_version(request) {
                    return Err(ApiError::modified(call.named()));
                }
                let mut conditions = wanted["status"]["conditions"].take();
                for condition in conditions.as_array_mut().into_iter().flatten() {
                    for field in ["lastUpdateTime", "lastTransitionTime"] {
                        if condition[field].is_null() {
                            condition[field] = now.as_str().into();
                        }
                    }
                    if condition["status"].is_null() {
                        condition["status"] = "True".into();
                    }
                }
                let has = |kind: &str| {
                    conditions.as_array().is_some_and(|list| list.iter().any(|known| known["type"] == kind))
                };
                if has("Approved") && has("Denied") {
                    let error = FieldError::invalid(
                        "status.conditions",
                        &json!("Approved"),
                        "Approved and Denied conditions are mutually exclusive",
                    );
                    return Err(ApiError::invalid(call.kind_named(call.name()), &[error]));
                }
                if !conditions.is_null() {
                    request["status"]["conditions"] = conditions;
                }
                for field in ["labels", "annotations"] {
                    match wanted["metadata"][field].take() {
                        Value::Null => {
                            request["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
                        }
                        given => request["metadata"][field] = given,
                    }
                }
                Ok(())
            })
            .await?;
        Ok(Answer::value(200, request, form))
    }
}

fn budget_error(name: &str, detail: String, retry_after: Option<u32>) -> ApiError {
    ApiError {
        details: Some(json!({
            "name": name,
            "causes": [{"reason": "DisruptionBudget", "message": detail}],
        })),
        retry_after,
        ..ApiError::new(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        )
    }
}

fn review_user(call: &Call, spec: &Value) -> ApiResult<User> {
    let name = spec["user"].as_str().unwrap_or_default();
    let groups = texts(&spec["groups"]);
    if name.is_empty() && groups.is_empty() {
        let error =
            FieldError::invalid("spec.user", &json!(""), "at least one of user or group must be specified");
        return Err(ApiError::invalid(call.kind_named(""), &[error]));
    }
    Ok(User::new(name, groups))
}
