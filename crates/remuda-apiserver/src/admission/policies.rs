//! ValidatingAdmissionPolicy: refusals written in CEL.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use arc_swap::ArcSwap;
use remuda_cel::{Budget, Env, Program, Type, Vars};
use remuda_store::Change;
use serde_json::{Value, json};

use super::{
    Review,
    matching::{BUDGET, Condition, Rules, all_hold},
    webhooks::request,
};
use crate::{
    follow::News,
    server::{Inner, StartError},
    status::{ApiError, ApiResult},
};

const POLICIES: &str = "/admissionregistration.k8s.io/validatingadmissionpolicies/";
const BINDINGS: &str = "/admissionregistration.k8s.io/validatingadmissionpolicybindings/";

struct Policy {
    constraints: Rules,
    conditions: Vec<Condition>,
    variables: Vec<(String, Result<Program, String>)>,
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

struct Binding {
    policy: String,
    resources: Rules,
    actions: Vec<String>,
    param: Value,
}

type Named<T> = BTreeMap<String, Arc<T>>;

/// Compiled policies and bindings.
#[derive(Default)]
pub(crate) struct Policies {
    policies: ArcSwap<Named<Policy>>,
    bindings: ArcSwap<Named<Binding>>,
}

static ENV: LazyLock<Env> = LazyLock::new(|| {
    ["object", "oldObject", "request", "params", "namespaceObject", "variables"]
        .into_iter()
        .fold(Env::new(), |env, name| env.variable(name, Type::Dyn))
});

fn compile(source: &str) -> Result<Program, String> {
    ENV.compile(source).map_err(|error| error.to_string())
}

pub(super) async fn start(inner: &Arc<Inner>) -> Result<(), StartError> {
    let server = inner.clone();
    inner
        .follow(POLICIES, move |news| tell(&server.policies.policies, POLICIES, news, Policy::parse))
        .await?;
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
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            constraints: Rules::parse_policy(&spec["matchConstraints"]),
            conditions: list("matchConditions").iter().map(Condition::parse).collect(),
            variables: list("variables")
                .iter()
                .map(|variable| (text(&variable["name"]), compile(&text(&variable["expression"]))))
                .collect(),
            validations: list("validations").iter().map(Validation::parse).collect(),
            fail: spec["failurePolicy"] != "Ignore",
            param_kind: spec["paramKind"].as_object().map(|kind| {
                let text =
                    |field: &str| kind.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
                (text("apiVersion"), text("kind"))
            }),
        }
    }
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
    fn parse(object: &Value) -> Self {
        let spec = &object["spec"];
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            resources: Rules::parse_policy(&spec["matchResources"]),
            actions: actions.filter_map(|action| action.as_str().map(str::to_owned)).collect(),
            param: spec["paramRef"].clone(),
        }
    }

    async fn concerns(&self, server: &Inner, review: &Review<'_>, object: Option<&Value>) -> bool {
        if self.resources.is_empty() {
            self.resources.selectors_match(server, review, object).await
        } else {
            self.resources.matches(server, review, object).await
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
        if bindings.is_empty() || review.call.resource.group == "admissionregistration.k8s.io" {
            return Ok(());
        }
        let policies = self.policies.policies.load_full();
        let asked = request(review, object, "");
        let namespace = match review.call.namespace() {
            Some(namespace) => self.read_value(&format!("/core/namespaces/{namespace}")).await,
            None => None,
        }
        .unwrap_or_default();
        for (binding_name, binding) in bindings.iter() {
            let Some(policy) = policies.get(&binding.policy) else { continue };
            if !policy.constraints.matches(self, review, object).await
                || !binding.concerns(self, review, object).await
            {
                continue;
            }
            match all_hold(&policy.conditions, object, review.old, &asked) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) if !policy.fail => continue,
                Err(cause) => {
                    return Err(self
                        .objected(review, binding, binding_name, policy_failure(cause))
                        .unwrap_err());
                }
            }
            let params = match self.params(policy, binding, review).await {
                Ok(params) => params,
                Err(_) if !policy.fail => continue,
                Err(cause) => {
                    self.objected(review, binding, binding_name, policy_failure(cause))?;
                    continue;
                }
            };
            for params in params {
                if let Some(objection) = policy.judge(object, review.old, &asked, &params, &namespace) {
                    self.objected(review, binding, binding_name, objection)?;
                }
            }
        }
        Ok(())
    }

    /// Denies, warns or lets pass, as the binding says.
    fn objected(
        &self,
        review: &Review<'_>,
        binding: &Binding,
        binding_name: &str,
        objection: Objection,
    ) -> ApiResult<()> {
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
        let mut error = ApiError::forbidden(review.call.named(), &text);
        (error.code, error.reason) = (objection.code, objection.reason);
        if let Some(details) = &mut error.details {
            details["causes"] = json!([{"message": text}]);
        }
        Err(error)
    }

    async fn params(
        &self,
        policy: &Policy,
        binding: &Binding,
        review: &Review<'_>,
    ) -> Result<Vec<Value>, String> {
        let (Some((api_version, kind)), Value::Object(_)) = (&policy.param_kind, &binding.param) else {
            return Ok(vec![Value::Null]);
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = review
            .call
            .registry
            .find_kind(group, Some(version), kind)
            .ok_or_else(|| format!("failed to configure policy: no kind {kind:?} in {api_version:?}"))?;
        let namespace = binding.param["namespace"].as_str().or_else(|| review.call.namespace());
        let mut found = Vec::new();
        if let Some(name) = binding.param["name"].as_str() {
            found.extend(self.read_value(&resource.key(namespace, name)).await);
        } else if let Ok(selector) =
            remuda_objects::selector::LabelSelector::from_object(&binding.param["selector"])
        {
            let query =
                remuda_store::ListQuery { prefix: resource.collection(namespace), ..Default::default() };
            let page = self.store.list(query).await.map_err(|error| error.to_string())?;
            for record in page.records {
                let object = crate::convert::parse(&record).map_err(|error| error.to_string())?;
                if selector.matches_object(&object) {
                    found.push(object);
                }
            }
        }
        match (found.is_empty(), binding.param["parameterNotFoundAction"].as_str()) {
            (true, Some("Allow")) => Ok(Vec::new()),
            (true, _) => {
                Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned())
            }
            _ => Ok(found),
        }
    }
}

fn policy_failure(cause: String) -> Objection {
    Objection { message: cause, reason: "Invalid", code: 422 }
}

/// What expressions may look at.
struct Inputs<'a> {
    object: &'a Value,
    old: &'a Value,
    request: &'a Value,
    params: &'a Value,
    namespace: &'a Value,
}

impl Inputs<'_> {
    fn vars<'a>(&'a self, variables: &'a Value) -> Vars<'a> {
        Vars::new()
            .json("object", self.object)
            .json("oldObject", self.old)
            .json("request", self.request)
            .json("params", self.params)
            .json("namespaceObject", self.namespace)
            .json("variables", variables)
    }
}

impl Policy {
    fn judge(
        &self,
        object: Option<&Value>,
        old: Option<&Value>,
        request: &Value,
        params: &Value,
        namespace: &Value,
    ) -> Option<Objection> {
        let mut budget = Budget::new(BUDGET);
        let mut variables = json!({});
        let inputs = Inputs {
            object: object.unwrap_or(&Value::Null),
            old: old.unwrap_or(&Value::Null),
            request,
            params,
            namespace,
        };
        for (name, program) in &self.variables {
            let value = program.as_ref().map_err(Clone::clone).and_then(|program| {
                let value =
                    program.eval(&inputs.vars(&variables), &mut budget).map_err(|error| error.to_string())?;
                value.to_json(&mut budget).map_err(|error| error.to_string())
            });
            // A variable that fails only matters to those who use it; they find it missing.
            if let Ok(Some(value)) = value {
                variables[name] = value;
            }
        }
        for validation in &self.validations {
            let vars = inputs.vars(&variables);
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
                        .and_then(|program| program.eval(&vars, &mut budget).ok())
                        .and_then(|value| value.as_str().map(|text| text.trim().to_owned()))
                        .filter(|text| !text.is_empty());
                    let message = computed
                        .or_else(|| validation.message.clone())
                        .unwrap_or_else(|| format!("failed expression: {}", validation.source.trim()));
                    return Some(Objection { message, reason: validation.reason, code: validation.code });
                }
                Err(_) if !self.fail => {}
                Err(cause) => {
                    let message = format!("expression '{}' resulted in error: {cause}", validation.source);
                    return Some(Objection { message, reason: "Invalid", code: 422 });
                }
            }
        }
        None
    }
}
