//! How a command fails: one line, perhaps a hint, and an exit code that says which kind of failure it was.

use std::{fmt, process::ExitCode};

use kube::core::Status;
pub(crate) use remuda_base::chain::one_line as chain;

use crate::{denied::Denied, output};

/// What the exit code of a command says. The numbers are a promise to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// 1: anything that has no code of its own.
    Other,
    /// 2: what was asked for makes no sense, or the server refuses it as it stands.
    Invalid,
    /// 3: there is no such cluster, machine, kind or file.
    NotFound,
    /// 4: no server answers.
    Unreachable,
    /// 5: the server knows who asks and says no, or does not know who asks.
    Forbidden,
    /// 6: it exists already, or somebody changed it meanwhile.
    Conflict,
    /// 7: `--wait` ended before the cluster got there.
    TimedOut,
    /// 10, of `remuda why`: not there yet, and nothing is wrong.
    Waiting,
    /// 11, of `remuda why`: not there, and it will not get there by itself; of `remuda cluster preflight`: something is
    /// missing.
    Blocked,
    /// 130: Ctrl-C.
    Interrupted,
    /// Whatever a command in a machine ended with.
    Command(u8),
}

impl Code {
    /// The exit code of the process.
    pub fn number(self) -> u8 {
        match self {
            Code::Other => 1,
            Code::Invalid => 2,
            Code::NotFound => 3,
            Code::Unreachable => 4,
            Code::Forbidden => 5,
            Code::Conflict => 6,
            Code::TimedOut => 7,
            Code::Waiting => 10,
            Code::Blocked => 11,
            Code::Interrupted => 130,
            Code::Command(code) => code,
        }
    }
}

/// Why a command did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    pub code: Code,
    /// Everything has been said; only the exit code is left.
    pub said: bool,
    /// The server's word for it, for programs.
    pub reason: String,
    /// The right that is missing, if it is known which.
    pub denied: Option<Box<Denied>>,
    /// The server it is about, and where that is from.
    pub server: Option<String>,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            hint: None,
            code,
            said: false,
            reason: String::new(),
            denied: None,
            server: None,
        }
    }

    /// With the right that was missing.
    pub(crate) fn denied(mut self, denied: Denied) -> Failure {
        self.denied = Some(Box::new(denied));
        self
    }

    /// With the server it is about, unless the failure has nothing to do with any.
    pub fn at(mut self, server: impl fmt::Display) -> Failure {
        let about = !matches!(self.code, Code::Interrupted | Code::Command(_));
        if about && self.server.is_none() {
            self.server = Some(server.to_string());
        }
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Nothing but an exit code.
    pub(crate) fn silent(code: Code) -> Failure {
        Failure { said: true, ..Failure::new(code, "") }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(Code::Invalid, message)
    }

    /// What `doing` failed with, from the server or on the way to it.
    pub(crate) fn api(doing: &str, error: &kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) => Failure::status(doing, status),
            error => {
                let failure = Failure::new(Code::Unreachable, format!("{doing}: {}", chain(error)));
                failure.hint(
                    "is the server running? start one with `remuda up` or `remuda server`, or name another \
                     with --kubeconfig or --data-dir",
                )
            }
        }
    }

    fn status(doing: &str, status: &Status) -> Failure {
        let reason = status.message.trim();
        let reason = if reason.is_empty() { status.reason.as_str() } else { reason };
        let message = format!("{doing}: {reason}");
        let failure = match status.code {
            401 => Failure::new(Code::Forbidden, message)
                .hint("the credentials in the kubeconfig are not known to this server, or no longer good"),
            403 => Failure::new(Code::Forbidden, message)
                .hint("ask an administrator for the rights, or use another kubeconfig"),
            404 => Failure::new(Code::NotFound, message),
            409 => Failure::new(Code::Conflict, message).hint("look at it as it is now, and try again"),
            400 | 413 | 422 => {
                let failure = Failure::invalid(message);
                match fields(status) {
                    Some(fields) => failure.hint(fields),
                    None => failure,
                }
            }
            429 | 502..=504 => Failure::new(Code::Unreachable, message).hint("try again in a moment"),
            _ => Failure::new(Code::Other, message),
        };
        Failure { reason: status.reason.clone(), ..failure }
    }

    /// Says what has to be said, and how the process ends.
    pub fn report(&self) -> ExitCode {
        if !self.said {
            output::note(&format!("error: {}", self.message));
            if let Some(server) = &self.server {
                output::note(&format!("server: {server}"));
            }
            if let Some(hint) = &self.hint {
                output::note(&format!("hint: {hint}"));
            }
        }
        ExitCode::from(self.code.number())
    }
}

/// Which fields the server objects to.
fn fields(status: &Status) -> Option<String> {
    let causes = &status.details.as_ref()?.causes;
    let named: Vec<_> =
        causes.iter().map(|cause| cause.field.as_str()).filter(|name| !name.is_empty()).collect();
    match named.as_slice() {
        [] => None,
        [one] => Some(format!("the field is {one}")),
        several => Some(format!("the fields are {}", several.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str, fields: &[&str]) -> kube::Error {
        let causes: Vec<_> = fields.iter().map(|field| serde_json::json!({"field": field})).collect();
        let status = serde_json::json!({
            "code": code, "message": message, "reason": "Why", "details": {"causes": causes},
        });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[track_caller]
    fn check(code: u16, message: &str, expected: Code, text: &str) {
        let failure = Failure::api("create cluster demo", &status(code, message, &["spec.x"]));
        assert_eq!((failure.code, failure.message.as_str()), (expected, text));
    }

    #[test]
    fn each_kind_of_refusal_has_an_exit_code_of_its_own() {
        check(404, "no", Code::NotFound, "create cluster demo: no");
        check(403, "no", Code::Forbidden, "create cluster demo: no");
        check(401, "", Code::Forbidden, "create cluster demo: Why");
        check(409, "no", Code::Conflict, "create cluster demo: no");
        check(422, "no", Code::Invalid, "create cluster demo: no");
        check(503, "no", Code::Unreachable, "create cluster demo: no");
        check(500, "no", Code::Other, "create cluster demo: no");
    }

    #[test]
    fn the_hint_names_the_field_that_was_refused() {
        let failure = Failure::api("x", &status(422, "no", &["a", "b", ""]));
        assert_eq!(failure.hint.as_deref(), Some("the fields are a, b"));
    }

    #[test]
    fn exit_codes_are_a_promise() {
        let codes = [
            (Code::Other, 1),
            (Code::Invalid, 2),
            (Code::NotFound, 3),
            (Code::Unreachable, 4),
            (Code::Forbidden, 5),
            (Code::Conflict, 6),
            (Code::TimedOut, 7),
            (Code::Waiting, 10),
            (Code::Blocked, 11),
            (Code::Interrupted, 130),
            (Code::Command(42), 42),
        ];
        for (code, number) in codes {
            assert_eq!(code.number(), number);
        }
    }
}
