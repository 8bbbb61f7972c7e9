//! What core reads of provider objects, and where.
//!
//! Provider kinds are unknown here. Their CRDs say by label which contract they keep, and the contract says
//! where to look. A field that is not there is `None`; a field of the wrong type is an error that names it.

mod conditions;
mod objects;
mod version;

pub use conditions::{conditions, old_conditions, reading};
pub use objects::{
    BootstrapConfig, ControlPlaneObject, FailureDomain, InfraCluster, InfraMachine, InfraMachinePool, failure,
};
pub use version::{Contract, NoContract, choose, compare_versions, crd_name};

use serde_json::Value;

/// A field that holds something else than the contract says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} of {kind} is not {expected}")]
pub struct WrongType {
    pub kind: String,
    pub path: String,
    pub expected: &'static str,
}

/// The value at a dotted path, unless it is missing or null.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let found = path.split('.').try_fold(object, |value, key| value.get(key))?;
    (!found.is_null()).then_some(found)
}

fn typed<'a, T>(
    object: &'a Value,
    path: &str,
    expected: &'static str,
    read: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, WrongType> {
    let Some(value) = at(object, path) else {
        return Ok(None);
    };
    match read(value) {
        Some(value) => Ok(Some(value)),
        None => {
            let kind = at(object, "kind").and_then(Value::as_str).unwrap_or("object").to_owned();
            Err(WrongType { kind, path: path.to_owned(), expected })
        }
    }
}

fn text(object: &Value, path: &str) -> Result<Option<String>, WrongType> {
    typed(object, path, "a string", |value| value.as_str().map(str::to_owned))
}

fn flag(object: &Value, path: &str) -> Result<Option<bool>, WrongType> {
    typed(object, path, "a boolean", Value::as_bool)
}

fn number(object: &Value, path: &str) -> Result<Option<i32>, WrongType> {
    typed(object, path, "a 32 bit integer", |value| i32::try_from(value.as_i64()?).ok())
}

#[cfg(test)]
mod tests;
