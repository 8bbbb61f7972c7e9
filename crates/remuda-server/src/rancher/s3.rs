//! Whether snapshots of a cluster can be uploaded where it says, asked before the cluster says it: the bucket exists,
//! and its credential may write there. Nothing is asked about a store that was checked before.
//!
//! The credential is one the writer may read: that is judged before. The store's answers reach the writer as codes
//! only, so that users cannot read through this server what only this server can reach.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_apiserver::{AdmissionRequest as Request, ApiError, Examination, Hook, Lookup, Named, Operation};
use remuda_base::Chain;
use remuda_names::{provisioning::annotation::SKIP_S3_CHECK, rancher::group::PROVISIONING};
use remuda_planner::{
    input::Secret,
    s3::{self, Destination},
    spec::S3,
};
use remuda_s3::{Config, Field, Lookup as BucketLookup, S3Error, Store};
use remuda_schema::FieldError;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

/// For all that is asked of a store.
const PATIENCE: Duration = Duration::from_secs(9);
const AT: &str = "spec.rkeConfig.etcd.s3";
/// An argument of K3s and RKE2, which have no field for it.
const LOOKUP: &str = "etcd-s3-bucket-lookup-type";

/// Admission of Clusters whose snapshots go to a store.
pub(crate) struct S3Check {
    patience: Duration,
}

impl Default for S3Check {
    fn default() -> S3Check {
        S3Check { patience: PATIENCE }
    }
}

/// What is asked for, if it is something else than before.
fn asked(request: &Request<'_>, object: Option<&Value>) -> Option<(S3, String)> {
    let read = |object: &Value| {
        let config = &object["spec"]["rkeConfig"];
        let lookup = config["machineGlobalConfig"][LOOKUP].as_str().unwrap_or_default().to_owned();
        let s3 = S3::deserialize(&config["etcd"]["s3"]).ok()?;
        s3.is_asked_for().then_some((s3, lookup))
    };
    let object = object?;
    let wanted = read(object)?;
    let skipped = object["metadata"]["annotations"][SKIP_S3_CHECK] == "true";
    let before = request.old.and_then(read);
    // How many are kept there is no question to the store.
    let same =
        before.is_some_and(|(s3, lookup)| (S3 { retention: wanted.0.retention, ..s3 }, lookup) == wanted);
    (!skipped && !same).then_some(wanted)
}

fn secret(s3: &S3, namespace: &str) -> Option<Lookup> {
    let (namespace, name) = s3::credential(s3, namespace)?;
    let (group, kind) = (String::new(), "Secret".to_owned());
    Some(Lookup { group, kind, namespace: namespace.to_owned(), name: name.to_owned() })
}

fn credential(found: &Value) -> Secret {
    let data = found["data"].as_object().into_iter().flatten();
    let decode = |value: &Value| BASE64_STANDARD.decode(value.as_str()?).ok();
    let data = data.filter_map(|(key, value)| Some((key.clone(), decode(value)?)));
    Secret { data: data.collect(), ..Secret::default() }
}

impl Hook for S3Check {
    fn concerns(&self, request: &Request<'_>) -> bool {
        request.group == PROVISIONING
            && request.kind == "Cluster"
            && request.subresource.is_empty()
            && matches!(request.operation, Operation::Create | Operation::Update)
            && !request.user.is_controller()
    }

    fn lookups(&self, request: &Request<'_>, object: Option<&Value>) -> Vec<Lookup> {
        asked(request, object).and_then(|(s3, _)| secret(&s3, request.namespace)).into_iter().collect()
    }

    fn examines(&self, request: &Request<'_>, object: Option<&Value>) -> bool {
        asked(request, object).is_some()
    }

    fn examine<'a>(&'a self, request: &Request<'a>, object: Option<&'a Value>) -> Examination<'a> {
        let Some((s3, lookup)) = asked(request, object) else {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        };
        let named = Named { group: request.group, kind: request.kind, name: request.name };
        let wanted = secret(&s3, request.namespace);
        let found = wanted.as_ref().and_then(|wanted| request.found.get(wanted)?.objects.first());
        let (dry_run, patience) = (request.dry_run, self.patience);
        Box::pin(async move {
            if let (Some(wanted), None) = (&wanted, found) {
                return Ok(vec![format!(
                    "{AT}: not checked: there is no Secret {}/{} yet",
                    wanted.namespace, wanted.name
                )]);
            }
            let to = Destination::of(&s3, found.map(credential).as_ref());
            let checked = check(&to, &lookup, dry_run, patience).await;
            checked.map_err(|error| ApiError::invalid(named, &[refusal(&s3, &error)]))
        })
    }
}

async fn check(
    to: &Destination,
    lookup: &str,
    dry_run: bool,
    patience: Duration,
) -> Result<Vec<String>, S3Error> {
    let mut warnings = Vec::new();
    if to.skip_verify {
        warnings.push(format!(
            "{AT}.skipSSLVerify: whoever is between the nodes and the store can read and replace snapshots; \
             {AT}.endpointCA takes the store's own authority"
        ));
    }
    if to.access_key.is_empty() && to.secret_key.is_empty() {
        warnings.push(format!("{AT}: not checked: without keys, each node asks for those of its own role"));
        return Ok(warnings);
    }
    if to.authorities.is_empty() && !to.authorities_path.is_empty() {
        warnings.push(format!("{AT}: not checked: {} is a file on the nodes", to.authorities_path));
        return Ok(warnings);
    }
    let store = Store::new(Config {
        endpoint: to.endpoint.clone(),
        region: to.region.clone(),
        bucket: to.bucket.clone(),
        folder: to.folder.clone(),
        access_key: to.access_key.clone(),
        secret_key: to.secret_key.clone(),
        // Text: the name of a file would be one of this server.
        endpoint_ca: to.authorities.clone(),
        skip_verify: to.skip_verify,
        lookup: BucketLookup::parse(lookup)?,
        timeout: patience,
        ..Config::default()
    })?;
    let checking = async {
        match dry_run {
            true => store.check_exists().await,
            false => store.check().await,
        }
    };
    match timeout(patience, checking).await {
        Ok(checked) => checked.map(|()| warnings),
        Err(_) => Err(S3Error::Silent { what: "check the bucket", host: store.host().to_owned() }),
    }
}

fn refusal(s3: &S3, error: &S3Error) -> FieldError {
    let (field, value) = match error.field() {
        Field::Endpoint | Field::Timeout => ("endpoint", json!(s3.endpoint)),
        Field::EndpointCa => ("endpointCA", json!(format!("{} bytes", s3.endpoint_ca.len()))),
        Field::Bucket => ("bucket", json!(s3.bucket)),
        Field::Folder => ("folder", json!(s3.folder)),
        Field::Region => ("region", json!(s3.region)),
        Field::Credential => ("cloudCredentialName", json!(s3.cloud_credential_name)),
        Field::Lookup => {
            let field = format!("spec.rkeConfig.machineGlobalConfig.{LOOKUP}");
            return FieldError::invalid(field, &json!(""), &Chain(error).to_string());
        }
    };
    let detail = format!(
        "{}; annotation {SKIP_S3_CHECK}=true leaves the check to the nodes, if this server cannot reach the store",
        Chain(error)
    );
    FieldError::invalid(format!("{AT}.{field}"), &value, &detail)
}

#[cfg(test)]
#[path = "tests/s3.rs"]
mod tests;
