//! `remuda user second-factor`.

use clap::Subcommand;
use http::Method;
use remuda_names::identity::{path, second_factor::action};
use serde_json::{Value, json};

use super::{existing, label};
use crate::{
    failure::Failure,
    login::{prompt, second_factor},
    session::Session,
    token,
};

#[derive(Subcommand, Debug)]
pub enum SecondFactor {
    /// Have a code of an authenticator asked for when you log in
    #[command(after_help = "Examples:
  remuda user second-factor enrol")]
    Enrol,
    /// Give up your second factor, with your password and a code of it
    #[command(after_help = "Examples:
  remuda user second-factor remove")]
    Remove,
    /// Take away the second factor of somebody who has lost it
    #[command(after_help = "Examples:
  remuda user second-factor reset ann")]
    Reset {
        /// Whose
        name: String,
    },
}

async fn send(session: &Session, doing: &str, path: &str, body: &Value) -> Result<Value, Failure> {
    token::send(session, doing, Method::POST, path, body).await
}

pub(super) async fn run(session: &Session, command: SecondFactor) -> Result<(), Failure> {
    let own = |action: &str| format!("{}?action={action}", path::USERS);
    match command {
        SecondFactor::Enrol => {
            let doing = "enrol a second factor";
            let body = json!({"currentPassword": prompt::hidden("Password: ")?});
            let begun = send(session, doing, &own(action::ENROL), &body).await?;
            session.out.note("put this into an authenticator; it is shown once:");
            session.out.note(&format!("  {}", begun["uri"].as_str().unwrap_or_default()));
            let body = json!({"otp": second_factor::code("The code it shows")?});
            let done = send(session, doing, &own(action::CONFIRM), &body).await?;
            second_factor::show_recovery_codes(&done, &session.out);
            session.out.note("a code is asked for from the next login on");
        }
        SecondFactor::Remove => {
            let password = prompt::hidden("Password: ")?;
            let otp = second_factor::code("Code of your authenticator, or a recovery code")?;
            let body = json!({"currentPassword": password, "otp": otp});
            send(session, "remove your second factor", &own(action::REMOVE), &body).await?;
            session.out.note("no code is asked for any more");
        }
        SecondFactor::Reset { name } => {
            let user = existing(session, std::slice::from_ref(&name)).await?.remove(0);
            let path = format!("{}/{}?action={}", path::USERS, user.name(), action::RESET);
            let doing = format!("reset the second factor of {}", label(&user));
            send(session, &doing, &path, &json!({})).await?;
            session.out.note(&format!("user {} has no second factor any more", label(&user)));
        }
    }
    Ok(())
}
