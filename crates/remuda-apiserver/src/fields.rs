//! Fields that a kind does not know, and keys given twice: refused, told or passed over.

use std::fmt;

use serde_json::Value;

use crate::{
    call::Call,
    options::FieldValidation,
    read::store_error,
    registry::Resource,
    server::Inner,
    status::{ApiError, ApiResult},
};

/// Something a client sent that does not reach the stored object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    Unknown(String),
    Duplicate(String),
    /// In an operation of a JSON patch.
    PatchUnknown(String),
    PatchDuplicate(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(path) => write!(f, "unknown field {path:?}"),
            Self::Duplicate(path) => write!(f, "duplicate field {path:?}"),
            Self::PatchUnknown(path) => write!(f, "json patch unknown field {path:?}"),
            Self::PatchDuplicate(path) => write!(f, "json patch duplicate field {path:?}"),
        }
    }
}

/// How to write anyway, for clients that mean what they sent.
const WAY_OUT: &str =
    "; send fieldValidation=Warn (kubectl: --validate=warn) to have such fields dropped instead";

impl Inner {
    /// What a write without `fieldValidation` gets, and whether it differs from the default of Kubernetes.
    pub(crate) fn validation_of(
        &self,
        call: &Call,
        asked: Option<FieldValidation>,
    ) -> (FieldValidation, bool) {
        let guarded = (self.config.strict_fields)(&call.resource.group, &call.user);
        let otherwise = if guarded { FieldValidation::Strict } else { FieldValidation::Warn };
        (asked.unwrap_or(otherwise), guarded)
    }

    /// Judges the problems of a body. Those to be refused come back as the text of a strict decoding error; of
    /// the others the caller is warned, if they are to be told and this is the first time.
    ///
    /// Where strictness was not asked for, fields of the live object that its definition has dropped since are no
    /// problem of who sends them back.
    pub(crate) async fn judge_fields(
        &self,
        call: &Call,
        asked: Option<FieldValidation>,
        mut problems: Vec<Problem>,
        tell: bool,
    ) -> ApiResult<Option<String>> {
        if problems.is_empty() {
            return Ok(None);
        }
        let (validation, guarded) = self.validation_of(call, asked);
        let mut excused = Vec::new();
        if validation == FieldValidation::Strict && asked.is_none() {
            let stale = self.unknown_to_live(call).await?;
            (excused, problems) = problems.into_iter().partition(|problem| stale.contains(problem));
        }
        let told = match validation {
            FieldValidation::Ignore => return Ok(None),
            FieldValidation::Warn => problems,
            FieldValidation::Strict if problems.is_empty() => excused,
            FieldValidation::Strict => return Ok(Some(strict_error(&call.resource, &problems, guarded))),
        };
        if tell {
            told.iter().for_each(|problem| call.warn(problem.to_string()));
        }
        Ok(None)
    }

    /// What the definition of a stored object no longer knows of it.
    async fn unknown_to_live(&self, call: &Call) -> ApiResult<Vec<Problem>> {
        let mut found = Vec::new();
        if call.name().is_empty() {
            return Ok(found);
        }
        if let Some(record) = self.store.get(&call.key()).await.map_err(store_error)?.value {
            // As it was stored, and as a client may have read it then.
            let mut stored: Value = serde_json::from_slice(&record.value).unwrap_or_default();
            if stored["apiVersion"] == call.resource.api_version.as_str() {
                self.shape_input(&call.resource, &mut stored, &mut found)?;
            }
        }
        Ok(found)
    }

    /// As [`Inner::judge_fields`], for a whole object.
    pub(crate) async fn judge_body(
        &self,
        call: &Call,
        asked: Option<FieldValidation>,
        problems: Vec<Problem>,
    ) -> ApiResult<()> {
        match self.judge_fields(call, asked, problems, true).await? {
            None => Ok(()),
            Some(refused) => {
                let kind = &call.resource.kind;
                Err(ApiError::bad_request(format!(
                    "{kind} in version {:?} cannot be handled as a {kind}: {refused}",
                    call.resource.version
                )))
            }
        }
    }
}

/// The text of Kubernetes; for kinds that are guarded also what was probably meant, and how to write anyway.
fn strict_error(resource: &Resource, problems: &[Problem], guarded: bool) -> String {
    let text = |problem: &Problem| match (problem, &resource.schema) {
        (Problem::Unknown(path), Some(schema)) if guarded => match schema.nearest(path) {
            Some(near) => format!("{problem} (did you mean {near:?}?)"),
            None => problem.to_string(),
        },
        _ => problem.to_string(),
    };
    let problems: Vec<String> = problems.iter().map(text).collect();
    format!("strict decoding error: {}{}", problems.join(", "), if guarded { WAY_OUT } else { "" })
}
