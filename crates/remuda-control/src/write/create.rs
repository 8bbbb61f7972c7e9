//! Creating what must exist.

use std::fmt::Debug;

use kube::{Api, Resource, ResourceExt, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};

use super::Named;
use crate::{
    ctx::Ctx,
    error::{Context, Error, is_code},
};

/// The object of that name, created as `wanted` if there is none. Whoever creates it at the same
/// time wins, and all get the same one.
pub async fn get_or_create<K>(ctx: &Ctx, api: &Api<K>, wanted: &K) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug,
{
    let what = Named::of(wanted, &());
    let name = wanted.name_any();
    if let Some(found) = api.get_opt(&name).await.context("read", &what)? {
        return Ok(found);
    }
    let params = PostParams { field_manager: Some(ctx.field_manager.to_string()), ..PostParams::default() };
    match api.create(&params, wanted).await {
        Err(error) if is_code(&error, 409) => api.get(&name).await.context("read", &what),
        created => created.context("create", &what),
    }
}
