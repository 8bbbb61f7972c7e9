//! The second factor of the caller, and that of others; sessions of the caller that end together.

use remuda_door::{Answer, Body, Call, Refusal};
use remuda_names::identity::second_factor::action::{CONFIRM, ENROL, REMOVE};
use serde::Deserialize;
use serde_json::json;

use crate::{Login, collection, may, ok, person, refusal, token};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecondFactorBody {
    #[serde(default)]
    current_password: String,
    /// A code of the authenticator, or a recovery code.
    #[serde(default)]
    otp: String,
}

#[derive(Deserialize)]
struct RevokeBody {
    /// Also tokens that are no sessions.
    #[serde(default)]
    all: bool,
}

/// Whether an action is about the caller's own.
pub(crate) fn is_action(action: &str) -> bool {
    [ENROL, CONFIRM, REMOVE].contains(&action)
}

impl Login {
    /// The caller, with what is known of their second factor.
    pub(crate) async fn me(&self, call: &Call) -> Answer {
        let name = &call.caller.name;
        let Some(user) = self.identity.user(name) else { return Ok(collection(Vec::new())) };
        let factor = self.identity.second_factor_state(name).await.map_err(refusal)?;
        let mut me = person(&user);
        me["firstPassword"] = self.identity.has_first_password(name).await.map_err(refusal)?.into();
        me["secondFactor"] = json!({
            "enrolled": factor.enrolled, "required": factor.required,
            "recoveryCodesLeft": factor.recovery_codes_left,
        });
        Ok(collection(vec![me]))
    }

    pub(crate) async fn second_factor(&self, call: &Call, action: &str, body: Body) -> Answer {
        let asked: SecondFactorBody = body.json().await?;
        let (user, address) = (&call.caller.name, call.peer.ip());
        let (password, otp) = (&asked.current_password, &asked.otp);
        match action {
            ENROL => {
                let enrolment = self.identity.enrol_second_factor(user, password, address).await;
                let enrolment = enrolment.map_err(refusal)?;
                Ok(ok(&json!({"uri": enrolment.uri, "secret": enrolment.secret})))
            }
            CONFIRM => {
                let codes = self.identity.confirm_second_factor(user, otp).await.map_err(refusal)?;
                Ok(ok(&json!({"recoveryCodes": codes})))
            }
            _ => {
                let removed = self.identity.remove_second_factor(user, password, otp, address).await;
                removed.map_err(refusal)?;
                Ok(ok(&json!({})))
            }
        }
    }

    /// Whoever could then log in as another user with their password alone must be able to do what they may.
    pub(crate) async fn reset_second_factor(&self, call: &Call, name: &str) -> Answer {
        let may = may(call, "update", "users", name).await;
        if !may || !self.identity.outranks(&call.caller.user(), name) {
            return Err(Refusal::forbidden(format!("you may not reset the second factor of user {name:?}")));
        }
        self.identity.reset_second_factor(name).await.map_err(refusal)?;
        Ok(ok(&json!({})))
    }

    pub(crate) async fn revoke_others(&self, call: &Call, body: Body) -> Answer {
        let asked: RevokeBody = body.json().await?;
        let ended = self.identity.revoke_others(&call.caller.name, token(call), asked.all).await;
        Ok(ok(&json!({"revoked": ended.map_err(refusal)?})))
    }
}
