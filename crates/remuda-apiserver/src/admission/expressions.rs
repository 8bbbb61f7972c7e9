//! What is checked of the expressions in webhook configurations and policies before they are stored.

use remuda_cel::{Env, Type, patch};
use remuda_schema::FieldError;
use serde_json::Value;

use super::given::Names;

/// Whether a value of the type could be what is wanted.
fn may_be(ty: &Type, wanted: &[Type]) -> bool {
    matches!(ty, Type::Dyn | Type::Error | Type::Param(_)) || wanted.contains(ty)
}

fn type_name(ty: &Type) -> String {
    match ty {
        Type::Null => "null_type".to_owned(),
        ty => ty.to_string(),
    }
}

/// Expressions of a webhook configuration or policy that do not compile or cannot give what they must.
/// Those that were there before stay: a server that has become stricter must not make objects unwritable.
pub(crate) fn check_expressions(kind: &str, new: &Value, live: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut check = |field: &str, value: &Value, env: &Env, wanted: &[Type]| {
        let Some(source) = value.as_str().filter(|source| !source.trim().is_empty()) else { return };
        match env.compile(source) {
            Err(cause) => {
                errors.push(FieldError::invalid(field, value, &format!("compilation failed: {cause}")));
            }
            Ok(program) if !wanted.is_empty() && !may_be(program.output(), wanted) => {
                let names: Vec<String> = wanted.iter().map(type_name).collect();
                let wanted = match names.as_slice() {
                    [name] => name.clone(),
                    names => format!("one of [{}]", names.join(" ")),
                };
                let detail = format!("must evaluate to {wanted} but got {}", type_name(program.output()));
                errors.push(FieldError::invalid(field, value, &detail));
            }
            Ok(_) => {}
        }
    };
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            if live.is_some_and(|live| live["webhooks"] == new["webhooks"]) {
                return errors;
            }
            let env = Names { authorizer: true, ..Names::default() }.env();
            for (index, webhook) in list(new, "webhooks").iter().enumerate() {
                for (place, condition) in list(webhook, "matchConditions").iter().enumerate() {
                    let field = format!("webhooks[{index}].matchConditions[{place}].expression");
                    check(&field, &condition["expression"], &env, &[Type::Bool]);
                }
            }
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            let mutating = kind == "MutatingAdmissionPolicy";
            if live.is_some_and(|live| live["spec"] == new["spec"]) {
                return errors;
            }
            let params = new["spec"]["paramKind"].is_object().then_some(Type::Dyn);
            let mut names = Names { params, authorizer: true, ..Names::default() };
            let env = names.env();
            for (index, condition) in list(&new["spec"], "matchConditions").iter().enumerate() {
                let field = format!("spec.matchConditions[{index}].expression");
                check(&field, &condition["expression"], &env, &[Type::Bool]);
            }
            names.patches = mutating;
            for (index, variable) in list(&new["spec"], "variables").iter().enumerate() {
                let field = format!("spec.variables[{index}].expression");
                check(&field, &variable["expression"], &names.env(), &[]);
                names.add_variable(variable);
            }
            let env = names.env();
            let env_of_messages = Names { authorizer: false, ..names.clone() }.env();
            for (index, mutation) in list(&new["spec"], "mutations").iter().enumerate() {
                for (part, wanted) in [
                    ("applyConfiguration", patch::configuration_type()),
                    ("jsonPatch", patch::operations_type()),
                ] {
                    let field = format!("spec.mutations[{index}].{part}.expression");
                    check(&field, &mutation[part]["expression"], &env, &[wanted]);
                }
            }
            for (part, name, env, wanted) in [
                ("validations", "expression", &env, [Type::Bool].as_slice()),
                ("validations", "messageExpression", &env_of_messages, &[Type::String]),
                ("auditAnnotations", "valueExpression", &env, &[Type::String, Type::Null]),
            ] {
                for (index, entry) in list(&new["spec"], part).iter().enumerate() {
                    check(&format!("spec.{part}[{index}].{name}"), &entry[name], env, wanted);
                }
            }
        }
        _ => {}
    }
    errors
}
