//! `remuda user create`.

use clap::Args;
use remuda_names::identity::LOCAL_PRINCIPAL;
use serde_json::json;

use super::{all, find, grant, label, password};
use crate::{
    api::{self, Which},
    failure::Failure,
    login::prompt,
    object::Object,
    output::Format,
    session::Session,
};

#[derive(Args, Debug)]
pub struct Create {
    /// What they log in with
    pub name: String,

    /// Name for people
    #[arg(long, value_name = "TEXT")]
    pub display_name: Option<String>,

    /// GlobalRole they have; may be given several times [default: those new users have]
    #[arg(long = "role", value_name = "ROLE")]
    pub roles: Vec<String>,

    /// Read the password from standard input
    #[arg(long)]
    pub password_stdin: bool,

    /// Have them choose another password at the first login; a password that was made up always is so
    #[arg(long)]
    pub must_change: bool,

    /// How to print the result; a table is the password alone
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

pub(super) async fn run(session: &Session, arguments: Create) -> Result<(), Failure> {
    check(&arguments.name)?;
    let given = match arguments.password_stdin {
        true => Some(prompt::from_stdin()?),
        false => None,
    };
    let roles = roles(session, &arguments.roles).await?;
    let users = all(session).await?;
    let known = find(&users, &arguments.name);
    let user = match known {
        Some(user) => {
            rename(session, user, arguments.display_name.as_deref()).await?;
            user.clone()
        }
        None => make(session, &arguments).await?,
    };
    // Roles of those who were there are nobody's to add unless asked for.
    if known.is_none() || !arguments.roles.is_empty() {
        for role in &roles {
            grant::on_server(session, &grant::Subject::User(user.clone()), role).await?;
        }
    }
    let made_up = match (given, known) {
        (Some(given), _) => password::set(session, &user, Some(&given), arguments.must_change).await?,
        (None, None) => password::set(session, &user, None, true).await?,
        (None, Some(_)) => None,
    };
    tell(session, &arguments, &user, known.is_some(), made_up.as_deref())
}

fn tell(
    session: &Session,
    arguments: &Create,
    user: &Object,
    known: bool,
    made_up: Option<&str>,
) -> Result<(), Failure> {
    match arguments.output {
        Format::Json | Format::Yaml => {
            let mut result = json!({"name": user.name(), "username": label(user), "existed": known});
            if let Some(password) = made_up {
                result["password"] = password.into();
            }
            return session.out.document(&result, arguments.output);
        }
        Format::Name => session.out.line(user.name()),
        Format::Table | Format::Wide => {
            if let Some(password) = made_up {
                session.out.line(password);
                session.out.note("this is the password; another must be chosen at the first login");
            }
        }
    }
    match known {
        true => session.out.note(&format!(
            "user {} was there already; `remuda user password {}` gives another password",
            label(user),
            label(user)
        )),
        false => session.out.note(&format!("user {} is made", label(user))),
    }
    Ok(())
}

fn check(name: &str) -> Result<(), Failure> {
    let odd = |letter: char| letter.is_whitespace() || letter.is_control() || letter == ':';
    if name.is_empty() || name.chars().count() > 64 || name.chars().any(odd) {
        return Err(Failure::invalid(format!("{name:?} cannot be a name at login"))
            .hint("at most 64 letters, without blanks and colons"));
    }
    Ok(())
}

/// A name that follows from the other, so that nobody is made twice.
fn object_name(username: &str) -> String {
    let username = username.to_lowercase();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if username.bytes().all(plain) && !username.ends_with('-') {
        return format!("user-{username}");
    }
    format!("user-{}", &remuda_plan::sha256_hex(username.as_bytes())[..10])
}

async fn make(session: &Session, arguments: &Create) -> Result<Object, Failure> {
    let name = object_name(&arguments.name);
    let users = api::management("User");
    let user = Object(json!({
        "apiVersion": users.api_version, "kind": users.kind, "metadata": {"name": name},
        "username": arguments.name, "displayName": arguments.display_name.clone().unwrap_or_default(),
        "principalIds": [format!("{LOCAL_PRINCIPAL}{name}")], "enabled": true,
    }));
    api::create(&session.client, &users, None, &user, false).await
}

async fn rename(session: &Session, user: &Object, display_name: Option<&str>) -> Result<(), Failure> {
    let Some(wanted) = display_name else { return Ok(()) };
    let change = |user: &mut Object| {
        let differs = user.text("/displayName") != wanted;
        user.0["displayName"] = wanted.into();
        Ok(differs)
    };
    api::change(&session.client, &api::management("User"), None, user.name(), false, change).await.map(drop)
}

/// The roles that are meant, which must be there.
async fn roles(session: &Session, wanted: &[String]) -> Result<Vec<String>, Failure> {
    let known = api::try_list(&session.client, &api::management("GlobalRole"), None, Which::All).await?;
    if wanted.is_empty() {
        let usual = known.iter().filter(|role| role.flag("/newUserDefault"));
        return Ok(usual.map(|role| role.name().to_owned()).collect());
    }
    for name in wanted {
        if !known.iter().any(|role| role.name() == name) {
            return Err(grant::no_role("GlobalRole", name, &known));
        }
    }
    Ok(wanted.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_after_what_they_log_in_with() {
        assert_eq!(object_name("Ann"), "user-ann");
        for odd in ["ann@example.com", "änn", "ann-", "a.b"] {
            let name = object_name(odd);
            assert!(name.len() == 15 && api::check_name(&name).is_ok(), "{name}");
        }
        assert_ne!(object_name("a.b"), object_name("a_b"));
        assert!(check("ann@example.com").is_ok());
        for bad in ["", "a b", "a:b", "a\n", &"x".repeat(65)] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }
}
