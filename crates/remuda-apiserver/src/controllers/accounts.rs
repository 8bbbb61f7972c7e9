//! What every namespace has: the default service account, the root CA, and tokens in Secrets.

use base64::{Engine, engine::general_purpose::STANDARD};
use remuda_auth::{jwt::claims::ObjectRef, request_info::Verb};
use remuda_objects::meta;
use serde_json::json;

use crate::{
    server::Inner,
    status::{ApiError, ApiResult},
};

pub(super) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
pub(super) const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const ROOT_CA: &str = "kube-root-ca.crt";

impl Inner {
    /// Creates or restores what a living namespace must have.
    pub(super) async fn fill_namespace(&self, name: &str) -> ApiResult<()> {
        let Some(namespace) = self.read_object(&format!("/core/namespaces/{name}")).await? else {
            return Ok(());
        };
        if meta::is_deleting(&namespace) {
            return Ok(());
        }
        let made = async {
            let account = json!({"metadata": {"name": "default", "namespace": name}});
            self.ensure("", "serviceaccounts", account).await?;
            self.publish_root_ca(name).await
        };
        match made.await {
            // The namespace began to go meanwhile.
            Err(error) if error.code == 403 || error.code == 404 => Ok(()),
            result => result,
        }
    }

    async fn publish_root_ca(&self, namespace: &str) -> ApiResult<()> {
        let data = json!({"ca.crt": self.config.root_ca_pem});
        let key = format!("/core/configmaps/{namespace}/{ROOT_CA}");
        match self.read_object(&key).await? {
            Some(existing) if existing["data"] == data => Ok(()),
            Some(_) => {
                let call = self.own_call("", "configmaps", Verb::Update, Some(namespace), Some(ROOT_CA))?;
                let restored = self.change(&call, |object| {
                    object["data"] = data.clone();
                    Ok(())
                });
                restored.await.map(drop)
            }
            None => {
                let object = json!({
                    "metadata": {"name": ROOT_CA, "namespace": namespace, "annotations": {
                        "kubernetes.io/description": "The certificate authority of this API server's own certificate. \
                         Clients inside the cluster verify the API server with it."}},
                    "data": data,
                });
                self.ensure("", "configmaps", object).await.map(drop)
            }
        }
    }

    /// Fills a token Secret, or removes one whose account is not there, or is another one of that name.
    pub(super) async fn complete_token_secret(&self, key: &str) -> ApiResult<()> {
        let Some(secret) = self.read_object(key).await? else { return Ok(()) };
        if secret["type"] != TOKEN_TYPE || meta::is_deleting(&secret) {
            return Ok(());
        }
        let (namespace, name) = (meta::namespace(&secret), meta::name(&secret));
        let account_name = meta::annotation(&secret, ACCOUNT_NAME).unwrap_or_default().to_owned();
        let account = self.read_object(&format!("/core/serviceaccounts/{namespace}/{account_name}")).await?;
        let uid = account.as_ref().map(|account| meta::uid(account).to_owned());
        let claimed = meta::annotation(&secret, ACCOUNT_UID).filter(|uid| !uid.is_empty());
        let call = self.own_call("", "secrets", Verb::Update, Some(namespace), Some(name))?;
        let Some(uid) = uid.filter(|uid| claimed.is_none_or(|claimed| claimed == uid)) else {
            let options = crate::options::DeleteOptions {
                uid: Some(meta::uid(&secret).to_owned()),
                ..Default::default()
            };
            return match self.delete_object(&call, &options).await {
                Err(error) if error.code == 404 => Ok(()),
                result => result.map(drop),
            };
        };
        let complete = ["token", "ca.crt", "namespace"].iter().all(|key| secret["data"][*key].is_string());
        if complete && claimed.is_some() {
            return Ok(());
        }
        let token = self
            .config
            .issuer
            .issue_legacy(namespace, ObjectRef::new(account_name, uid.clone()), name)
            .map_err(|error| ApiError::internal(error.to_string()))?;
        let filled = self.change(&call, |secret| {
            secret["metadata"]["annotations"][ACCOUNT_UID] = uid.as_str().into();
            let data =
                [("ca.crt", self.config.root_ca_pem.as_str()), ("namespace", namespace), ("token", &token)];
            for (key, value) in data {
                if key == "namespace" || !secret["data"][key].is_string() {
                    secret["data"][key] = STANDARD.encode(value).into();
                }
            }
            Ok(())
        });
        match filled.await {
            Err(error) if error.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }
}
