//! ValidatingAdmissionPolicy: refusals written in CEL.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use remuda_cel::{Program, Vars};
use remuda_store::Change;
use serde_json::{Value, json};

use super::{
    Review,
    given::{Given, Rights, STORED, budget},
    matching::{Condition, Rules, all_hold},
    mutations::Mutating,
    webhooks::{Seen, request},
};
use crate::{
    follow::News,
    registry::Resource,
    server::{Inner, StartError},
    status::{ApiError, ApiResult},
};

const POLICIES: &str = "/admissionregistration.k8s.io/validatingadmissionpolicies/";
const BINDINGS: &str = "/admissionregistration.k8s.io/validatingadmissionpolicybindings/";

struct Policy {
    constraints: Rules,
    conditions: Vec<Condition>,
    /// Each may use those before it; one that does not compile spoils them all.
    variables: Result<Vec<(String, Program)>, String>,
    validations: Vec<Validation>,
    fail: bool,
    param_kind: Option<(String, String)>,
}

struct Validation {
    source: String,
    program: Result<Program, String>,
    message: Option<String>,
    message_program: Option<Program>,
    reason: &'static str,
    code: u16,
}

pub(super) struct Binding {
    pub(super) policy: String,
    resources: Rules,
    actions: Vec<String>,
    pub(super) param: Value,
}

pub(super) type Named<T> = BTreeMap<String, Arc<T>>;

/// Compiled policies and bindings.
#[derive(Default)]
pub(crate) struct Policies {
    policies: ArcSwap<Named<Policy>>,
    bindings: ArcSwap<Named<Binding>>,
    pub(super) mutating: Mutating,
}

fn compile(source: &str) -> Result<Program, String> {
    STORED.compile(source).map_err(|error| error.to_string())
}

pub(super) async fn start(inner: &Arc<Inner>) -> Result<(), StartError> {
    let server = inner.clone();
    inner
        .follow(POLICIES, move |news| tell(&server.policies.policies, POLICIES, news, Policy::parse))
        .await?;
    super::mutations::start(inner).await?;
    let server = inner.clone();
    inner.follow(BINDINGS, move |news| tell(&server.policies.bindings, BINDINGS, news, Binding::parse)).await
}

/// Keeps a map of parsed objects equal to what is stored under a prefix.
pub(super) fn tell<T>(
    target: &ArcSwap<BTreeMap<String, Arc<T>>>,
    prefix: &str,
    news: News<'_>,
    parse: impl Fn(&Value) -> T,
) {
    let mut known = BTreeMap::clone(&target.load());
    let name = |record: &remuda_store::Record| record.key.trim_start_matches(prefix).to_owned();
    let put = |known: &mut BTreeMap<String, Arc<T>>, record: &remuda_store::Record| {
        if let Ok(object) = serde_json::from_slice::<Value>(&record.value) {
            known.insert(name(record), Arc::new(parse(&object)));
        }
    };
    match news {
        News::Reset(records) => {
            known.clear();
            records.iter().for_each(|record| put(&mut known, record));
        }
        News::Changed(event) if event.change == Change::Deleted => {
            known.remove(&name(&event.record));
        }
        News::Changed(event) => put(&mut known, &event.record),
    }
    target.store(Arc::new(known));
}

impl Policy {
    fn parse(object: &Value) -> Self {
        let spec = &object["spec"];
        let list = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
        Self {
            constraints: Rules::parse_policy(&spec["matchConstraints"]),
            conditions: list("matchConditions").iter().map(Condition::parse).collect(),
            variables: variables(spec, compile),
            validations: list("validations").iter().map(Validation::parse).collect(),
            fail: spec["failurePolicy"] != "Ignore",
            param_kind: param_kind(spec),
        }
    }
}

/// The variables of a policy in order, or what is wrong with one. Kinds of policies have environments of their own.
pub(super) fn variables(
    spec: &Value,
    compile: fn(&str) -> Result<Program, String>,
) -> Result<Vec<(String, Program)>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let listed = spec["variables"].as_array().map(Vec::as_slice).unwrap_or_default();
    listed
        .iter()
        .map(|variable| Ok((text(&variable["name"]), compile(&text(&variable["expression"]))?)))
        .collect()
}

/// `apiVersion` and `kind` of a policy's parameters.
pub(super) fn param_kind(spec: &Value) -> Option<(String, String)> {
    let text = |field: &str| spec["paramKind"][field].as_str().unwrap_or_default().to_owned();
    spec["paramKind"].is_object().then(|| (text("apiVersion"), text("kind")))
}

impl Validation {
    fn parse(validation: &Value) -> Self {
        let source = validation["expression"].as_str().unwrap_or_default().to_owned();
        let (reason, code) = match validation["reason"].as_str() {
            Some("Unauthorized") => ("Unauthorized", 401),
            Some("Forbidden") => ("Forbidden", 403),
            Some("RequestEntityTooLarge") => ("RequestEntityTooLarge", 413),
            _ => ("Invalid", 422),
        };
        Self {
            program: compile(&source),
            message: validation["message"].as_str().map(str::to_owned),
            message_program: validation["messageExpression"].as_str().and_then(|text| compile(text).ok()),
            reason,
            code,
            source,
        }
    }
}

impl Binding {
    pub(super) fn parse(object: &Value) -> Self {
        let spec = &object["spec"];
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            resources: Rules::parse_policy(&spec["matchResources"]),
            actions: actions.filter_map(|action| action.as_str().map(str::to_owned)).collect(),
            param: spec["paramRef"].clone(),
        }
    }

    pub(super) async fn concerns(
        &self,
        server: &Inner,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> ApiResult<bool> {
        if self.resources.is_empty() {
            self.resources.selectors_match(server, review, object).await
        } else {
            Ok(self.resources.matches(server, review, object).await?.is_some())
        }
    }
}

/// What a validation found against the request.
struct Objection {
    message: String,
    reason: &'static str,
    code: u16,
}

impl Inner {
    pub(super) async fn check_policies(&self, review: &Review<'_>, object: Option<&Value>) -> ApiResult<()> {
        let bindings = self.policies.bindings.load_full();
        if bindings.is_empty() || is_exempt(&review.call.resource) {
            return Ok(());
        }
        let policies = self.policies.policies.load_full();
        for (binding_name, binding) in bindings.iter() {
            let Some(policy) = policies.get(&binding.policy) else { continue };
            let Some(resource) = policy.constraints.matches(self, review, object).await? else { continue };
            if !binding.concerns(self, review, object).await? {
                continue;
            }
            let seen = self.seen(review, object, resource).await?;
            for objection in self.object_to(policy, binding, review, &seen).await {
                self.objected(review, binding, binding_name, objection, object)?;
            }
        }
        Ok(())
    }

    async fn object_to(
        &self,
        policy: &Policy,
        binding: &Binding,
        review: &Review<'_>,
        seen: &Seen<'_>,
    ) -> Vec<Objection> {
        let failed = |cause| if policy.fail { vec![failure(cause)] } else { Vec::new() };
        let request = &request(review, seen, "");
        let rights = &Rights::of(self, review, seen.object.as_deref());
        let (object, old, null) = (seen.object.as_deref(), seen.old.as_deref(), &Value::Null);
        let given = Given { object, old, request, params: null, namespace: null, rights };
        let params = match self.params(&policy.param_kind, &binding.param, review).await {
            Ok(params) => params,
            Err(cause) => {
                // What the policy is not about needs no parameters: they can be made after their binding.
                let about = all_hold(&policy.conditions, &given);
                return if about == Ok(false) { Vec::new() } else { failed(cause) };
            }
        };
        let mut objections = Vec::new();
        for params in &params {
            let given = Given { params, ..given };
            match all_hold(&policy.conditions, &given) {
                Ok(true) => {
                    let namespace = &self.namespace_of(review).await;
                    objections.extend(policy.judge(&Given { namespace, ..given }));
                }
                Ok(false) => {}
                Err(cause) => objections.extend(failed(cause)),
            }
        }
        objections
    }

    /// Denies, warns or lets pass, as the binding says.
    fn objected(
        &self,
        review: &Review<'_>,
        binding: &Binding,
        binding_name: &str,
        objection: Objection,
        object: Option<&Value>,
    ) -> ApiResult<()> {
        let name = review.name(object);
        let text = format!(
            "ValidatingAdmissionPolicy '{}' with binding '{binding_name}' denied request: {}",
            binding.policy, objection.message
        );
        if binding.actions.iter().any(|action| action == "Warn") {
            review.call.warn(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{binding_name}': {}",
                binding.policy, objection.message
            ));
        }
        if !binding.actions.iter().any(|action| action == "Deny") {
            return Ok(());
        }
        let mut error = ApiError::forbidden(review.call.named_as(&name), &text);
        (error.code, error.reason) = (objection.code, objection.reason.into());
        if let Some(details) = &mut error.details {
            details["causes"] = json!([{"message": text}]);
        }
        Err(error)
    }

    /// The namespace of what is written, or null.
    pub(super) async fn namespace_of(&self, review: &Review<'_>) -> Value {
        match review.call.namespace() {
            Some(namespace) => self.read_value(&format!("/core/namespaces/{namespace}")).await,
            None => None,
        }
        .unwrap_or_default()
    }

    /// The parameters a binding's reference leads to.
    pub(super) async fn params(
        &self,
        param_kind: &Option<(String, String)>,
        param: &Value,
        review: &Review<'_>,
    ) -> Result<Vec<Value>, String> {
        let (Some((api_version, kind)), Value::Object(_)) = (param_kind, param) else {
            return Ok(vec![Value::Null]);
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = review
            .call
            .registry
            .find_kind(group, Some(version), kind)
            .ok_or_else(|| format!("failed to configure policy: no kind {kind:?} in {api_version:?}"))?;
        let namespace = param["namespace"].as_str().or_else(|| review.call.namespace());
        let mut found = Vec::new();
        if let Some(name) = param["name"].as_str() {
            let key = resource.key(namespace, name);
            let record = self.store.get(&key).await.map_err(|error| error.to_string())?.value;
            if let Some(record) = record {
                found.push(self.decode(resource, &record).await.map_err(|error| error.to_string())?);
            }
        } else if let Ok(selector) = remuda_objects::selector::LabelSelector::from_object(&param["selector"])
        {
            let query =
                remuda_store::ListQuery { prefix: resource.collection(namespace), ..Default::default() };
            let page = self.store.list(query).await.map_err(|error| error.to_string())?;
            let objects = self.decode_all(resource, &page.records).await;
            let objects = objects.map_err(|error| error.to_string())?;
            found.extend(objects.into_iter().filter(|object| selector.matches_object(object)));
        }
        match (found.is_empty(), param["parameterNotFoundAction"].as_str()) {
            (true, Some("Allow")) => Ok(Vec::new()),
            (true, _) => {
                Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned())
            }
            _ => Ok(found),
        }
    }
}

/// Policies do not judge policies, so that a broken one stays mendable, nor questions that are answered and not stored.
pub(super) fn is_exempt(resource: &Resource) -> bool {
    let is_policy = resource.group == "admissionregistration.k8s.io"
        && (resource.plural.ends_with("policies") || resource.plural.ends_with("policybindings"));
    is_policy || resource.builtin().is_some_and(|builtin| builtin.is_virtual)
}

fn failure(cause: String) -> Objection {
    Objection { message: cause, reason: "Invalid", code: 422 }
}

fn with_variables<'a>(definitions: &'a [(String, Program)], vars: Vars<'a>) -> Vars<'a> {
    vars.clone().value("variables", remuda_cel::variables(definitions, vars))
}

impl Policy {
    /// Everything the policy has against a write.
    fn judge<'a>(&'a self, given: &Given<'a>) -> Vec<Objection> {
        let mut budget = budget();
        let definitions = match &self.variables {
            Ok(definitions) => definitions,
            Err(_) if !self.fail => return Vec::new(),
            Err(cause) => return vec![failure(format!("variables: {cause}"))],
        };
        let vars = with_variables(definitions, given.vars());
        let for_messages = with_variables(definitions, given.vars_without_rights());
        let mut objections = Vec::new();
        for validation in &self.validations {
            let result = match &validation.program {
                Ok(program) => program.eval(&vars, &mut budget).map_err(|error| error.to_string()),
                Err(error) => Err(error.clone()),
            };
            match result.map(|value| value.as_bool()) {
                Ok(Some(true)) => {}
                Ok(_) => {
                    let computed = validation
                        .message_program
                        .as_ref()
                        .and_then(|program| program.eval(&for_messages, &mut budget).ok())
                        .and_then(|value| value.as_str().map(|text| text.trim().to_owned()))
                        .filter(|text| !text.is_empty() && !text.contains('\n'));
                    let message = computed
                        .or_else(|| validation.message.clone().filter(|text| !text.is_empty()))
                        .unwrap_or_else(|| format!("failed expression: {}", validation.source.trim()));
                    objections.push(Objection { message, reason: validation.reason, code: validation.code });
                }
                Err(_) if !self.fail => {}
                Err(cause) => {
                    let text = format!("expression '{}' resulted in error: {cause}", validation.source);
                    objections.push(failure(text));
                }
            }
        }
        objections
    }
}
