//! What the cluster knows of a token: asked anew each time, so that what was taken away is gone at once.

use std::{path::PathBuf, sync::Arc};

use http::{Method, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use remuda_agent::{client::HttpError, tls::TrustError};
use remuda_names::{cluster_agent::file, endpoint, rancher::name::SYSTEM};
use rustls::ClientConfig;
use serde_json::{Value, json};

use super::review::{Known, user_of};
use crate::{
    api::{self, Api, ApiError},
    config::{MountError, mounted},
};

/// Why it cannot be found out. The token may be good all the same.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("use the certificates of the cluster's API")]
    Trust(#[from] TrustError),
    #[error("ask the cluster's API")]
    Api(#[source] HttpError),
    #[error("the cluster's API answered {0}")]
    Status(StatusCode),
}

impl From<ApiError> for Trouble {
    fn from(error: ApiError) -> Trouble {
        match error {
            ApiError::Failed(error) => Trouble::Api(error),
            ApiError::Refused(status) => Trouble::Status(status),
        }
    }
}

/// The API of the cluster this runs in.
pub(super) struct Lookup {
    root: PathBuf,
    address: String,
    /// Certificates as they were read last, and what was made of them.
    tls: Mutex<Option<(String, Arc<ClientConfig>)>>,
}

impl Lookup {
    pub(super) fn new(root: PathBuf, address: String) -> Lookup {
        Lookup { root, address, tls: Mutex::new(None) }
    }

    fn trust(&self) -> Result<Arc<ClientConfig>, Trouble> {
        let ca = mounted(&self.root, file::SERVICE_ACCOUNT, "ca.crt")? + "\n";
        let mut known = self.tls.lock();
        if let Some((_, tls)) = known.as_ref().filter(|(text, _)| *text == ca) {
            return Ok(tls.clone());
        }
        let tls = api::trust(&ca)?;
        *known = Some((ca, tls.clone()));
        Ok(tls)
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Option<Value>, Trouble> {
        // The mounted token is another one every hour or so.
        let token = mounted(&self.root, file::SERVICE_ACCOUNT, "token")?;
        let api = Api { tls: self.trust()?, address: &self.address, token: &token };
        match api.call(method, path, body).await {
            Ok(found) => Ok(Some(found)),
            Err(ApiError::Refused(StatusCode::NOT_FOUND)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn object(resource: &str, name: &str) -> String {
        let (group, version) = (endpoint::GROUP, endpoint::VERSION);
        format!("/apis/{group}/{version}/namespaces/{SYSTEM}/{resource}/{name}")
    }

    /// All that is needed to judge a token; nothing if there is no such token.
    pub(super) async fn known(&self, name: &str) -> Result<Option<Known>, Trouble> {
        let Some(token) = self.call(Method::GET, &Self::object(endpoint::TOKENS, name), None).await? else {
            return Ok(None);
        };
        let user = async {
            match user_of(&token) {
                Some(user) => self.call(Method::GET, &Self::object(endpoint::USERS, user), None).await,
                None => Ok(None),
            }
        };
        let path = format!("/api/v1/namespaces/{SYSTEM}/secrets/{name}");
        let (user, secret) = tokio::try_join!(user, self.call(Method::GET, &path, None))?;
        Ok(Some(Known { token, user, secret }))
    }

    /// Writes that a token was used.
    pub(super) async fn touch(&self, name: &str, now: Timestamp) -> Result<(), Trouble> {
        let patch = json!({"lastUsedAt": remuda_base::rfc3339(now.as_second())});
        self.call(Method::PATCH, &Self::object(endpoint::TOKENS, name), Some(&patch)).await.map(drop)
    }
}
