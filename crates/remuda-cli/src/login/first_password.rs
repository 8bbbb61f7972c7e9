//! The password that was shown at the first start of a server is in its log: whoever logs in with it is asked for
//! another.

use std::io::IsTerminal;

use http::{Method, Request};
use kube::Client;
use remuda_names::identity::path;
use serde_json::{Value, json};

use super::prompt;
use crate::{
    failure::{Code, Failure},
    output::Out,
};

const LATER: &str = "the password is still the one the server showed at its first start; choose another with: remuda user \
                     password";

pub(super) async fn offer(
    client: &Client,
    token: &str,
    password: &str,
    asking: bool,
    out: &Out,
) -> Result<(), Failure> {
    // Servers that do not say are not asked further: the login is done.
    let me = send(client, token, Method::GET, &format!("{}?me=true", path::USERS), &Value::Null).await;
    if !me.is_ok_and(|me| me["data"][0]["firstPassword"] == true) {
        return Ok(());
    }
    if !asking || !std::io::stdin().is_terminal() {
        out.note(LATER);
        return Ok(());
    }
    out.note("this password was shown at the server's first start; choose another (Ctrl-C keeps it)");
    let new = match prompt::twice("New password: ") {
        Ok(new) => new,
        Err(failure) if failure.code == Code::Interrupted => {
            out.note(LATER);
            return Ok(());
        }
        Err(failure) => return Err(failure),
    };
    let body = json!({"currentPassword": password, "newPassword": new});
    let path = format!("{}?action=changepassword", path::USERS);
    let changed = send(client, token, Method::POST, &path, &body).await;
    changed.map_err(|error| {
        Failure::api("you are logged in, but change your password", &error).hint("remuda user password")
    })?;
    out.note("your password is changed");
    Ok(())
}

async fn send(
    client: &Client,
    token: &str,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<Value, kube::Error> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {token}"))
        .body(body)
        .map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await
}
