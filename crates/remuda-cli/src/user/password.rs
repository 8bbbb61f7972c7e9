//! `remuda user password`.

use clap::Args;
use http::Method;
use remuda_names::identity::path;
use serde_json::json;

use super::existing;
use crate::{
    failure::{Code, Failure},
    login::prompt,
    object::Object,
    session::Session,
    token,
};

#[derive(Args, Debug)]
pub struct Password {
    /// Whose [default: your own]
    pub name: Option<String>,

    /// Read the new password from standard input; for your own, the present one in a line before it
    #[arg(long)]
    pub password_stdin: bool,

    /// Make one up and print it
    #[arg(long, conflicts_with = "password_stdin", requires = "name")]
    pub generate: bool,

    /// Have them choose another one at the next login
    #[arg(long, requires = "name")]
    pub must_change: bool,
}

pub(super) async fn run(session: &Session, arguments: Password) -> Result<(), Failure> {
    let Some(name) = &arguments.name else { return own(session, arguments.password_stdin).await };
    let user = existing(session, std::slice::from_ref(name)).await?.remove(0);
    let given = match (arguments.generate, arguments.password_stdin) {
        (true, _) => None,
        (false, true) => Some(prompt::from_stdin()?),
        (false, false) => Some(prompt::twice(&format!("New password of {name}: "))?),
    };
    let must_change = arguments.must_change || arguments.generate;
    if let Some(password) = set(session, &user, given.as_deref(), must_change).await? {
        session.out.line(&password);
    }
    let then = if must_change { "; another must be chosen at the next login" } else { "" };
    session.out.note(&format!("user {name} has another password{then}"));
    Ok(())
}

async fn own(session: &Session, from_input: bool) -> Result<(), Failure> {
    let (current, new) = if from_input {
        let text = prompt::from_stdin()?;
        let Some((current, new)) = text.split_once('\n') else {
            return Err(Failure::invalid(
                "there are two lines to be read: the present password and the new one",
            ));
        };
        (current.trim_end_matches('\r').to_owned(), new.to_owned())
    } else {
        (prompt::hidden("Present password: ")?, prompt::twice("New password: ")?)
    };
    let path = format!("{}?action=changepassword", path::USERS);
    let body = json!({"currentPassword": current, "newPassword": new});
    let sent = token::send(session, "change your password", Method::POST, &path, &body).await;
    sent.map_err(|failure| match failure.code {
        // The session is good: it is the password that is not.
        Code::Forbidden => {
            Failure { hint: None, ..Failure::new(Code::Forbidden, "the present password is another") }
        }
        _ => failure,
    })?;
    session.out.note("your password is changed; your other sessions have ended");
    Ok(())
}

/// Sets somebody's password, or has the server make one up, which is given then.
pub(super) async fn set(
    session: &Session,
    user: &Object,
    given: Option<&str>,
    must_change: bool,
) -> Result<Option<String>, Failure> {
    let path = format!("{}/{}?action=setpassword", path::USERS, user.name());
    let mut body = json!({"mustChangePassword": must_change});
    match given {
        Some(given) => body["newPassword"] = given.into(),
        None => body["generate"] = true.into(),
    }
    let doing = format!("set the password of {}", super::label(user));
    let answer = token::send(session, &doing, Method::POST, &path, &body).await?;
    Ok(answer["password"].as_str().map(str::to_owned).filter(|_| given.is_none()))
}
