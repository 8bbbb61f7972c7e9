//! MutatingAdmissionPolicy: changes written in CEL.

use std::sync::Arc;

use arc_swap::ArcSwap;
use remuda_cel::{Program, patch};
use remuda_merge::{apply::merge_granular, json_patch};
use remuda_schema::Schema;
use serde_json::{Value, json};

use super::{
    Operation, Review,
    given::{Given, Rights, STORED_WITH_PATCHES, budget},
    matching::{Condition, Rules, all_hold},
    policies::{Binding, Named, is_exempt, param_kind, tell, variables},
    webhooks::{Seen, request},
};
use crate::{
    registry::Resource,
    server::{Inner, StartError},
    status::{ApiError, ApiResult},
};

const POLICIES: &str = "/admissionregistration.k8s.io/mutatingadmissionpolicies/";
const BINDINGS: &str = "/admissionregistration.k8s.io/mutatingadmissionpolicybindings/";

pub(super) struct Policy {
    constraints: Rules,
    conditions: Vec<Condition>,
    /// Each may use those before it; one that does not compile spoils them all.
    variables: Result<Vec<(String, Program)>, String>,
    mutations: Vec<Mutation>,
    fail: bool,
    /// It wants to see once more what was changed after it.
    again: bool,
    param_kind: Option<(String, String)>,
}

struct Mutation {
    source: String,
    program: Result<Program, String>,
    is_patch: bool,
}

/// Compiled policies and bindings.
#[derive(Default)]
pub(crate) struct Mutating {
    policies: ArcSwap<Named<Policy>>,
    bindings: ArcSwap<Named<Binding>>,
}

/// The policies as they are when a write begins.
pub(super) struct Policies {
    policies: Arc<Named<Policy>>,
    bindings: Arc<Named<Binding>>,
}

/// What policies did to a write.
#[derive(Default)]
pub(super) struct Invoked {
    pub(super) changed: bool,
    /// Bindings whose policy asks to see later changes, with the number of changes when it was done.
    again: Vec<(String, usize)>,
    changes: usize,
}

fn compile(source: &str) -> Result<Program, String> {
    STORED_WITH_PATCHES.compile(source).map_err(|error| error.to_string())
}

pub(super) async fn start(inner: &Arc<Inner>) -> Result<(), StartError> {
    let server = inner.clone();
    inner
        .follow(POLICIES, move |news| {
            tell(&server.policies.mutating.policies, POLICIES, news, Policy::parse);
        })
        .await?;
    let server = inner.clone();
    inner
        .follow(BINDINGS, move |news| {
            tell(&server.policies.mutating.bindings, BINDINGS, news, Binding::parse);
        })
        .await
}

impl Policy {
    fn parse(object: &Value) -> Self {
        let spec = &object["spec"];
        let list = |field: &str| spec[field].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            constraints: Rules::parse_policy(&spec["matchConstraints"]),
            conditions: list("matchConditions").iter().map(Condition::parse).collect(),
            variables: variables(spec, compile),
            mutations: list("mutations").iter().map(Mutation::parse).collect(),
            fail: spec["failurePolicy"] != "Ignore",
            again: spec["reinvocationPolicy"] == "IfNeeded",
            param_kind: param_kind(spec),
        }
    }
}

impl Mutation {
    fn parse(mutation: &Value) -> Self {
        let is_patch = mutation["patchType"] == "JSONPatch";
        let part = if is_patch { "jsonPatch" } else { "applyConfiguration" };
        let source = mutation[part]["expression"].as_str().unwrap_or_default().trim().to_owned();
        Self { program: compile(&source), is_patch, source }
    }
}

impl Mutating {
    /// `None` if no policy can have to do with the write.
    pub(super) fn begin(&self, review: &Review<'_>) -> Option<Policies> {
        let bindings = self.bindings.load();
        if bindings.is_empty() || review.operation == Operation::Delete || is_exempt(&review.call.resource) {
            return None;
        }
        Some(Policies { policies: self.policies.load_full(), bindings: bindings.clone() })
    }
}

/// One policy at work.
struct Work<'p> {
    name: &'p str,
    binding: &'p Binding,
    policy: &'p Policy,
}

impl Policies {
    fn work(&self) -> impl Iterator<Item = Work<'_>> {
        self.bindings.iter().filter_map(|(name, binding)| {
            let policy = self.policies.get(&binding.policy)?;
            Some(Work { name, binding, policy })
        })
    }
}

impl Inner {
    /// Lets every policy change the object.
    pub(super) async fn mutate_by_policies(
        &self,
        policies: &Policies,
        review: &Review<'_>,
        object: &mut Value,
    ) -> ApiResult<Invoked> {
        let mut invoked = Invoked::default();
        let mut failures = Vec::new();
        for work in policies.work() {
            let Some(changed) = self.mutate_by_policy(&work, review, object, &mut failures).await? else {
                continue;
            };
            invoked.changes += usize::from(changed);
            if work.policy.again {
                invoked.again.push((work.name.to_owned(), invoked.changes));
            }
        }
        invoked.changed = invoked.changes > 0;
        refuse(review, object, failures)?;
        Ok(invoked)
    }

    /// Shows policies that ask for it what was changed after they were done.
    pub(super) async fn mutate_again(
        &self,
        policies: &Policies,
        invoked: &mut Invoked,
        by_webhooks: bool,
        review: &Review<'_>,
        object: &mut Value,
    ) -> ApiResult<()> {
        let changes = invoked.changes;
        let stale = |work: &Work<'_>| {
            let known = invoked.again.iter().find(|(name, _)| name == work.name);
            known.is_some_and(|(_, seen)| by_webhooks || *seen < changes)
        };
        let stale: Vec<Work<'_>> = policies.work().filter(stale).collect();
        let mut failures = Vec::new();
        for work in stale {
            let changed = self.mutate_by_policy(&work, review, object, &mut failures).await?;
            invoked.changed |= changed == Some(true);
        }
        refuse(review, object, failures)
    }

    /// Says whether the policy changed the object; `None` if it has nothing to do with the write. What goes wrong is
    /// added to `failures`.
    async fn mutate_by_policy(
        &self,
        work: &Work<'_>,
        review: &Review<'_>,
        object: &mut Value,
        failures: &mut Vec<String>,
    ) -> ApiResult<Option<bool>> {
        let Work { name, binding, policy } = work;
        let Some(resource) = policy.constraints.matches(self, review, Some(object)).await? else {
            return Ok(None);
        };
        if !binding.concerns(self, review, Some(object)).await? {
            return Ok(None);
        }
        let mut failed = |cause: String| {
            if policy.fail {
                let policy = &binding.policy;
                failures.push(format!("policy '{policy}' with binding '{name}' denied request: {cause}"));
            }
        };
        let params = match self.params(&policy.param_kind, &binding.param, review).await {
            Ok(params) => params,
            Err(cause) => {
                failed(format!("failed to configure binding: {cause}"));
                return Ok(Some(false));
            }
        };
        let Seen { resource, object: before, old } = self.seen(review, Some(object), resource).await?;
        let Some(before) = before.map(std::borrow::Cow::into_owned) else { return Ok(None) };
        let old = old.map(std::borrow::Cow::into_owned);
        let seen = Seen { resource, object: Some(std::borrow::Cow::Borrowed(&before)), old: None };
        let request = request(review, &seen, "");
        let resource = seen.resource.clone();
        let namespace = self.namespace_of(review).await;
        let schema = self.reviewed_schema(review, &resource);
        let rights = &Rights::of(self, review, Some(&before));
        let mut current = before.clone();
        for params in &params {
            let (request, namespace, old) = (&request, &namespace, old.as_ref());
            let given = Given { object: None, old, request, params, namespace, rights };
            match all_hold(&policy.conditions, &Given { object: Some(&current), ..given }) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(cause) => {
                    failed(cause);
                    continue;
                }
            }
            for mutation in &policy.mutations {
                let seen = Given { object: Some(&current), ..given };
                match policy.run(mutation, &current, &seen, schema.as_deref()) {
                    Ok(mut patched) => {
                        if review.is_main_kind() {
                            self.shape_input(&resource, &mut patched, &mut Vec::new())?;
                        }
                        current = patched;
                    }
                    Err(cause) => failed(cause),
                }
            }
        }
        if current == before {
            return Ok(Some(false));
        }
        self.take_over(review, &resource, current, object).await?;
        Ok(Some(true))
    }

    /// The schema of what is reviewed: of the resource, or of what its subresource speaks.
    fn reviewed_schema(&self, review: &Review<'_>, resource: &Resource) -> Option<Arc<Schema>> {
        match review.other_kind(resource) {
            Some(other) => remuda_kinds::schema(&other.group, &other.version, &other.kind),
            None => resource.schema.clone(),
        }
    }
}

/// The answer to a write some policies failed on: the first says why.
fn refuse(review: &Review<'_>, object: &Value, failures: Vec<String>) -> ApiResult<()> {
    let Some(first) = failures.first() else { return Ok(()) };
    let mut error = ApiError::forbidden(review.call.named_as(&review.name(Some(object))), first);
    first.clone_into(&mut error.message);
    error.reason = "Invalid".into();
    if let Some(details) = &mut error.details {
        details["causes"] = failures.iter().map(|message| json!({"message": message})).collect();
    }
    Err(error)
}

impl Policy {
    /// The object after a mutation.
    fn run(
        &self,
        mutation: &Mutation,
        object: &Value,
        given: &Given<'_>,
        schema: Option<&Schema>,
    ) -> Result<Value, String> {
        let definitions = self.variables.as_ref().map_err(|cause| format!("variables: {cause}"))?;
        let program = mutation.program.as_ref().map_err(Clone::clone)?;
        let vars = given.vars();
        let vars = vars.clone().value("variables", remuda_cel::variables(definitions, vars));
        let mut budget = budget();
        let value = program
            .eval(&vars, &mut budget)
            .map_err(|error| format!("expression '{}' resulted in error: {error}", mutation.source))?;
        if mutation.is_patch {
            let operations = patch::operations(&value, &mut budget).map_err(|error| error.to_string())?;
            let mut patched = object.clone();
            return match json_patch::apply(&mut patched, &operations) {
                Ok(()) => Ok(patched),
                // A test is how a patch says when it applies.
                Err(json_patch::PatchError::TestFailed(_)) => Ok(object.clone()),
                Err(error) => Err(format!("JSON Patch: {error}")),
            };
        }
        let mut applied = patch::configuration(&value, &mut budget).map_err(|error| error.to_string())?;
        for field in ["apiVersion", "kind"] {
            applied[field] = object[field].clone();
        }
        merge_granular(object, &applied, schema).map_err(|error| format!("error applying patch: {error}"))
    }
}
