//! ComponentStatus: whether what the API stands on is well. A kind of old, which is never stored: it is asked when a client
//! asks. What this server has no part of, such as a scheduler, is not in the list.

use remuda_auth::request_info::Verb;
use serde_json::{Value, json};

use crate::{
    call::{Answer, Call},
    filter::Filter,
    negotiate::response_form,
    options::ListOptions,
    represent,
    server::Inner,
    status::{ApiError, ApiResult, Named},
};

/// The store, under the name clients know it by.
const STORE: &str = "etcd-0";

impl Inner {
    pub(crate) async fn components(&self, call: &Call) -> ApiResult<Answer> {
        let include = represent::IncludeObject::parse(&call.query);
        if call.verb == Verb::Get {
            if call.name() != STORE {
                let named = Named { group: "", kind: "componentstatus", name: call.name() };
                return Err(ApiError::not_found(named));
            }
            let form = response_form(&call.headers, false)?;
            let object =
                represent::shape_object(&call.resource, self.store_status().await, form, include, self.now());
            return Ok(Answer::value(200, object, form));
        }
        let form = response_form(&call.headers, true)?;
        let filter = Filter::new(&call.resource, &ListOptions::parse(&call.query)?)?;
        let mut objects = vec![self.store_status().await];
        objects.retain(|object| filter.matches_object(object));
        let list = represent::shape_list(&call.resource, objects, json!({}), form, include, self.now());
        Ok(Answer::value(200, list, form))
    }

    async fn store_status(&self) -> Value {
        let condition = match self.store.health().await {
            Ok(()) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
            Err(error) => json!({"type": "Healthy", "status": "False", "error": error.to_string()}),
        };
        json!({
            "apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": STORE}, "conditions": [condition],
        })
    }
}
