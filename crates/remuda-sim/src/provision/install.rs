//! What must be there before clusters can be made.

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use remuda_api::management::DynamicSchema;

use super::kinds;
use crate::define::{self, DefineError, MANAGER};

/// Defines the kinds of the driver, and tells provisioning about them.
pub async fn install(client: &Client) -> Result<(), DefineError> {
    for definition in kinds::definitions() {
        define::define(client, &definition).await?;
    }
    let (schemas, schema): (Api<DynamicSchema>, _) = (Api::all(client.clone()), kinds::schema());
    let name = schema["metadata"]["name"].as_str().unwrap_or_default();
    let applied = schemas.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&schema)).await;
    applied.map(drop).map_err(|source| DefineError::Api {
        verb: "apply DynamicSchema",
        what: name.to_owned(),
        source,
    })
}
