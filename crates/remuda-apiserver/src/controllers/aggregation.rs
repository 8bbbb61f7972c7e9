//! ClusterRoles made of others.

use remuda_auth::{rbac::aggregate::aggregation_change, request_info::Verb};
use remuda_objects::meta;
use remuda_store::ListQuery;
use serde_json::Value;

use crate::{read::store_error, server::Inner, status::ApiResult};

impl Inner {
    pub(super) async fn aggregate_roles(&self) -> ApiResult<()> {
        let prefix = "/rbac.authorization.k8s.io/clusterroles/".to_owned();
        let page = self.store.list(ListQuery { prefix, ..Default::default() }).await.map_err(store_error)?;
        let roles: Vec<Value> =
            page.records.iter().map(|record| crate::convert::parse(record)).collect::<ApiResult<_>>()?;
        for role in &roles {
            let Some(rules) = aggregation_change(role, roles.iter()) else { continue };
            let name = meta::name(role);
            let call =
                self.own_call("rbac.authorization.k8s.io", "clusterroles", Verb::Update, None, Some(name))?;
            // Each change is told and brings us back, so chains of roles settle.
            let changed = self.change(&call, |role| {
                role["rules"] = rules.clone().into();
                Ok(())
            });
            match changed.await {
                Err(error) if error.code == 404 => {}
                result => result.map(drop)?,
            }
        }
        Ok(())
    }
}
