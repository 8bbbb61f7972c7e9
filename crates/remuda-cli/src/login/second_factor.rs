//! What a server asks for beside a password: another password, or a code of a second factor.

use std::io::IsTerminal;

use http::Request;
use kube::{Client, core::Status};
use remuda_names::identity::{login_reason, path};
use serde_json::Value;

use super::{Login, failed, prompt};
use crate::{
    failure::{Code, Failure},
    output::Out,
};

/// Questions one login can lead to: a code that is mistyped, a password to be chosen.
const QUESTIONS: usize = 6;

/// Logs in, and answers what the server asks as long as there is a terminal to prompt on.
pub(super) async fn log_in(
    client: &Client,
    body: &mut Value,
    arguments: &Login,
    out: &Out,
) -> Result<Value, Failure> {
    if let Some(code) = &arguments.otp {
        body["otp"] = code.as_str().into();
    }
    for _ in 0..QUESTIONS {
        let error = match ask(client, body).await? {
            Ok(issued) => {
                show_recovery_codes(&issued, out);
                return Ok(issued);
            }
            Err(error) => error,
        };
        let reason = match &error {
            kube::Error::Api(status) => status.reason.as_str(),
            _ => "",
        };
        match reason {
            login_reason::MUST_CHANGE_PASSWORD if !arguments.password_stdin => {
                out.note("another password must be chosen");
                body["newPassword"] = prompt::twice("New password: ")?.into();
            }
            login_reason::SECOND_FACTOR_REQUIRED => {
                if !body["otp"].is_null() {
                    out.note("the code is wrong, was used before or is over");
                }
                body["otp"] = code("Code of your authenticator, or a recovery code")?.into();
            }
            login_reason::SECOND_FACTOR_ENROLMENT_REQUIRED => {
                if let kube::Error::Api(status) = &error {
                    show_enrolment(status, out);
                }
                body["otp"] = code("The code it shows")?.into();
            }
            _ => return Err(failed(body, &error)),
        }
    }
    Err(Failure::new(Code::Forbidden, "log in: too many codes were wrong"))
}

async fn ask(client: &Client, body: &Value) -> Result<Result<Value, kube::Error>, Failure> {
    let request = Request::post(path::LOGIN).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes());
    let request = request.map_err(|error| Failure::new(Code::Other, error.to_string()))?;
    Ok(client.request::<Value>(request).await)
}

pub(crate) fn code(question: &str) -> Result<String, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(Code::Forbidden, "a code of the second factor is needed")
            .hint("there is no terminal to ask for it; give it with --otp"));
    }
    prompt::hidden(&format!("{question}: "))
}

fn show_enrolment(status: &Status, out: &Out) {
    out.note("this server demands a second factor; put this into an authenticator:");
    let causes = status.details.iter().flat_map(|details| &details.causes);
    for cause in causes.filter(|cause| cause.field == "uri") {
        out.note(&format!("  {}", cause.message));
    }
}

pub(crate) fn show_recovery_codes(answer: &Value, out: &Out) {
    let codes = answer["recoveryCodes"].as_array();
    if let Some(codes) = codes.filter(|codes| !codes.is_empty()) {
        out.note("keep these recovery codes; each is good once, when the authenticator is lost:");
        for code in codes.iter().filter_map(Value::as_str) {
            out.note(&format!("  {code}"));
        }
    }
}
