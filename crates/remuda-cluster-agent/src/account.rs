//! How the server is to use the cluster's API: address, authority and a token.
//!
//! The token mounted into the pod ends soon after the pod does, so the server is given one of a Secret made for
//! it. Where the agent may not make one, or the cluster fills none in, the mounted one has to do; it is
//! read again from time to time.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{Method, StatusCode};
use remuda_names::{
    cluster_agent::{SERVICE_ACCOUNT, TOKEN_SECRET},
    gateway::secret::{ACCOUNT_NAME, ACCOUNT_TOKEN_TYPE},
    rancher::{annotation::SERVICE_ACCOUNT_SECRET_REF, label::SERVICE_ACCOUNT_NAME},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    api::{self, Api, ApiError, is_name},
    config::Config,
    hop::{Failure, Hop},
};

/// How often and how long to look for the token.
const POLL: Duration = Duration::from_millis(250);
const POLLS: usize = 20;

/// What the server is told.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// Host and port.
    pub address: String,
    /// PEM.
    pub ca: String,
    /// Bearer token.
    pub token: String,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Account {
    /// The parameters of a registration, as the header carries them.
    pub fn parameters(&self) -> String {
        let cluster = json!({"cluster": {
            "address": self.address,
            "caCert": BASE64_STANDARD.encode(&self.ca),
            "token": self.token,
        }});
        BASE64_STANDARD.encode(cluster.to_string())
    }

    /// Finds out what to tell the server.
    pub async fn read(config: &Config) -> Result<Account, Failure> {
        let file = |name| config.account_file(name).map_err(|error| Failure::new(Hop::Cluster, &error));
        let (ca, mounted) = (file("ca.crt")? + "\n", file("token")?);
        let namespace = file("namespace")?;
        let tls = api::trust(&ca).map_err(|error| Failure::new(Hop::Cluster, &error))?;
        let api = Api { tls, address: &config.api, token: &mounted };
        let own = Own { api, namespace: &namespace };
        let token = own.lasting_token().await.map_err(|error| match error {
            ApiError::Failed(error) => Failure::new(Hop::Cluster, &error),
            ApiError::Refused(status) => {
                Failure { hop: Hop::Cluster, reason: format!("{} answered {status}", config.api) }
            }
        })?;
        if token.is_none() {
            tracing::info!("the cluster gives no lasting token; the server gets the one of the pod");
        }
        Ok(Account { address: config.api.clone(), ca, token: token.unwrap_or(mounted) })
    }
}

/// What belongs to the account itself.
struct Own<'a> {
    api: Api<'a>,
    namespace: &'a str,
}

impl Own<'_> {
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let path = format!("/api/v1/namespaces/{}/{path}", self.namespace);
        self.api.call(method, &path, body).await
    }

    /// The token of the Secret the account names, or of one made for it. None if the API does not let us.
    async fn lasting_token(&self) -> Result<Option<String>, ApiError> {
        let account = match self.call(Method::GET, &format!("serviceaccounts/{SERVICE_ACCOUNT}"), None).await
        {
            Err(ApiError::Refused(status)) if status.is_client_error() => return Ok(None),
            other => other?,
        };
        let reference =
            account.pointer("/metadata/annotations").and_then(|all| all.get(SERVICE_ACCOUNT_SECRET_REF));
        let named = reference.and_then(Value::as_str).and_then(|text| text.split_once('/'));
        if let Some((_, name)) =
            named.filter(|(namespace, name)| *namespace == self.namespace && is_name(name))
            && let Some(token) = self.token_of(name).await?
        {
            return Ok(Some(token));
        }
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": ACCOUNT_TOKEN_TYPE,
            "metadata": {
                "name": TOKEN_SECRET,
                "labels": {SERVICE_ACCOUNT_NAME: SERVICE_ACCOUNT},
                "annotations": {ACCOUNT_NAME: SERVICE_ACCOUNT},
            },
        });
        let polls = match self.call(Method::POST, "secrets", Some(&secret)).await {
            Ok(_) => POLLS,
            // A cluster that has not filled it in by now hardly will.
            Err(ApiError::Refused(StatusCode::CONFLICT)) => 2,
            Err(ApiError::Refused(status)) if status.is_client_error() => return Ok(None),
            Err(error) => return Err(error),
        };
        for _ in 0..polls {
            if let Some(token) = self.token_of(TOKEN_SECRET).await? {
                let reference = format!("{}/{TOKEN_SECRET}", self.namespace);
                let patch = json!({"metadata": {"annotations": {SERVICE_ACCOUNT_SECRET_REF: reference}}});
                let path = format!("serviceaccounts/{SERVICE_ACCOUNT}");
                // Only saves the next agent the search.
                let _ = self.call(Method::PATCH, &path, Some(&patch)).await;
                return Ok(Some(token));
            }
            sleep(POLL).await;
        }
        Ok(None)
    }

    /// The token in a Secret, if it is one of the account and filled in.
    async fn token_of(&self, name: &str) -> Result<Option<String>, ApiError> {
        let secret = match self.call(Method::GET, &format!("secrets/{name}"), None).await {
            Err(ApiError::Refused(status)) if status.is_client_error() => return Ok(None),
            other => other?,
        };
        Ok(token_in(&secret))
    }
}

fn token_in(secret: &Value) -> Option<String> {
    let account = secret.pointer("/metadata/annotations").and_then(|all| all.get(ACCOUNT_NAME));
    if secret["type"] != ACCOUNT_TOKEN_TYPE || account.and_then(Value::as_str) != Some(SERVICE_ACCOUNT) {
        return None;
    }
    let token = BASE64_STANDARD.decode(secret.pointer("/data/token")?.as_str()?).ok()?;
    String::from_utf8(token).ok().filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_the_form_servers_read() {
        let account = Account { address: "10.43.0.1:443".into(), ca: "PEM\n".into(), token: "t".into() };
        let text = BASE64_STANDARD.decode(account.parameters()).unwrap();
        let expected = r#"{"cluster":{"address":"10.43.0.1:443","caCert":"UEVNCg==","token":"t"}}"#;
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert!(!format!("{account:?}").contains("\"t\""));
    }

    #[test]
    fn only_tokens_of_the_account_are_taken() {
        let mut secret = json!({
            "type": ACCOUNT_TOKEN_TYPE, "metadata": {"annotations": {ACCOUNT_NAME: SERVICE_ACCOUNT}},
            "data": {"token": BASE64_STANDARD.encode("lasting")},
        });
        assert_eq!(token_in(&secret).as_deref(), Some("lasting"));
        secret["metadata"]["annotations"][ACCOUNT_NAME] = "other".into();
        assert_eq!(token_in(&secret), None);
        assert_eq!(token_in(&Value::Null), None);
        assert_eq!(token_in(&json!({"type": ACCOUNT_TOKEN_TYPE})), None);
    }
}
