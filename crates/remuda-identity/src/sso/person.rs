//! Users of people who come from a provider.

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use remuda_api::management::{GlobalRoleBinding, Principal, Token, User};
use remuda_auth::principal;
use remuda_control::write::owner_reference;
use remuda_names::identity::{label::HASHED_PRINCIPAL, oidc::PROVIDER};
use serde_json::json;

use super::{config::Settings, profile::Profile};
use crate::{Error, Identity, identity::HEARD};

impl Identity {
    /// The User of somebody, made if they come for the first time.
    pub(super) async fn person(&self, profile: &Profile, settings: &Settings) -> Result<User, Error> {
        let shared = &self.0;
        let id = profile.principal_id();
        if shared.tokens.claimants(&id).len() > 1 {
            tracing::warn!(principal = id, "several users have this principal, and none of them can log in");
            return Err(Error::NotAllowed("several users of this server have your principal".to_owned()));
        }
        let known = shared.tokens.user_of_principal(&id).and_then(|name| self.user(&name));
        let groups = profile.group_ids();
        let has_role = || {
            known.as_ref().is_some_and(|user| self.has_role(&user.name_any(), &groups))
                || self.has_role("", &groups)
        };
        if !profile.may_log_in(settings, has_role) {
            return Err(Error::NotAllowed(
                "this server lets in only some of those the provider knows".to_owned(),
            ));
        }
        let users: Api<User> = Api::all(shared.ctx.client.clone());
        let Some(user) = known else { return self.newcomer(&users, profile).await };
        if !user.enabled.unwrap_or(true) || user.metadata.deletion_timestamp.is_some() {
            return Err(Error::NotAllowed("the user is disabled".to_owned()));
        }
        if user.display_name == profile.display_name {
            return Ok((*user).clone());
        }
        let patch = Patch::Merge(json!({"displayName": profile.display_name}));
        let patched = users.patch(&user.name_any(), &PatchParams::default(), &patch).await;
        patched.map_err(|source| Error::api("change the user", &user.name_any(), source))
    }

    async fn newcomer(&self, users: &Api<User>, profile: &Profile) -> Result<User, Error> {
        let shared = &self.0;
        let id = profile.principal_id();
        let name = principal::user(&id);
        let mut user = User {
            display_name: profile.display_name.clone(),
            principal_ids: vec![id.clone()],
            enabled: Some(true),
            ..User::named(&name)
        };
        user.labels_mut().insert(principal::label(&id), HASHED_PRINCIPAL.to_owned());
        let user = match users.create(&PostParams::default(), &user).await {
            Ok(user) => {
                tracing::info!(user = name, principal = id, "somebody came for the first time");
                user
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = users.get(&name).await;
                let found = found.map_err(|source| Error::api("read user", &name, source))?;
                // Whoever took the principal away from the user did not mean them any more.
                if !found.principal_ids.contains(&id) || !found.enabled.unwrap_or(true) {
                    return Err(Error::NotAllowed("the user is somebody else or disabled".to_owned()));
                }
                found
            }
            Err(source) => return Err(Error::api("create user", &name, source)),
        };
        let bindings: Api<GlobalRoleBinding> = Api::all(shared.ctx.client.clone());
        for role in shared.global_roles.list().iter().filter(|role| role.new_user_default) {
            let role = role.name_any();
            let mut binding = GlobalRoleBinding {
                user_name: name.clone(),
                global_role_name: role.clone(),
                ..GlobalRoleBinding::named(&format!("grb-{name}-{role}"))
            };
            binding.metadata.owner_references = owner_reference(&user, &()).ok().map(|mut owner| {
                owner.controller = None;
                owner.block_owner_deletion = None;
                vec![owner]
            });
            match bindings.create(&PostParams::default(), &binding).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(source) => return Err(Error::api("bind user", &name, source)),
            }
        }
        shared.users.wait_for(&user.resource_version().unwrap_or_default(), HEARD).await;
        Ok(user)
    }

    /// Tokens somebody made before say the groups they are in now.
    pub(super) async fn refresh_groups(&self, user: &str, groups: &[Principal]) -> Result<(), Error> {
        let tokens: Api<Token> = Api::all(self.0.ctx.client.clone());
        for token in self.tokens_of(user) {
            if token.auth_provider != PROVIDER || token.group_principals == groups {
                continue;
            }
            let patch = Patch::Merge(json!({"groupPrincipals": groups}));
            match tokens.patch(&token.name_any(), &PatchParams::default(), &patch).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(source) => return Err(Error::api("change the token", &token.name_any(), source)),
            }
        }
        Ok(())
    }
}
