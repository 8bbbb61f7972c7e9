//! Deleting through an API that others serve.

use kube::{Client, Error, api::DeleteParams, core::Request};

/// Deletes an object of a collection. Not `Api::delete`, which takes an answer that is neither the object nor a whole
/// `Status` for a failure: servers and what is in front of them answer with nothing, with 202 and a text, or with a
/// `Status` without a code, and the object is gone all the same.
pub async fn delete(
    client: &Client,
    collection: &str,
    name: &str,
    params: &DeleteParams,
) -> Result<(), Error> {
    let request = Request::new(collection).delete(name, params).map_err(Error::BuildRequest)?;
    client.request_text(request).await.map(drop)
}
