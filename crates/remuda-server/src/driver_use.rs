//! Admission of writes that use a driver: who writes them needs the verb `use`. What uses a driver, and what
//! classes of drivers there are, is in [`remuda_machines::trust`].

use std::sync::{Arc, OnceLock};

use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Named, Operation};
use remuda_auth::{attributes::Attributes, identity::User, rbac::policy::Policy};
use remuda_control::Informers;
use remuda_machines::trust::{self, Class, Classes, Use};
use remuda_names::{machines::class, rancher::group::MANAGEMENT};
use serde_json::{Value, json};

const DRIVERS: &str = "nodedrivers";

struct Known {
    policy: Arc<Policy>,
    classes: Classes,
}

/// Judges with what it is told once the API runs.
#[derive(Clone, Default)]
pub(crate) struct Admission(Arc<OnceLock<Known>>);

impl Admission {
    pub(crate) fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        vec![Arc::new(self.clone())]
    }

    /// Begins to judge. Until then only administrators may use drivers.
    pub(crate) fn begin(&self, policy: Arc<Policy>, informers: &Informers) {
        let _ = self.0.set(Known { policy, classes: Classes::follow(informers) });
    }

    /// What a driver is trusted with; `None` while that is not known.
    pub(crate) fn class_of(&self, driver: &str) -> Option<Class> {
        self.0.get()?.classes.class_of(driver)
    }

    fn judge(&self, request: &Request<'_>, used: &Use) -> Result<(), String> {
        let Use { field, driver } = used;
        let known = self.0.get().and_then(|known| Some((known, known.classes.class_of(driver)?)));
        let Some((known, class)) = known else {
            return Err(format!(
                "{field}: this server does not know yet what driver {driver:?} is trusted with"
            ));
        };
        if may_use(&known.policy, request.user, request.namespace, driver, class) {
            return Ok(());
        }
        let what = match class {
            Class::Host => "acts on the server's own host or network",
            Class::Cloud => "makes servers at a provider",
        };
        Err(format!(
            "{field}: driver {driver:?} {what}, and you may not use it: an administrator can give you a role with \
             verb {:?} on {DRIVERS}.{MANAGEMENT} {driver:?}, or on {}.{MANAGEMENT} {:?}",
            class::USE,
            class::RESOURCE,
            class.as_str()
        ))
    }
}

/// A grant in a namespace holds for what is written there.
fn may_use(policy: &Policy, user: &User, namespace: &str, driver: &str, class: Class) -> bool {
    [(DRIVERS, driver), (class::RESOURCE, class.as_str())].into_iter().any(|(resource, name)| {
        let attributes = Attributes::resource(class::USE, MANAGEMENT, resource).version("v3");
        policy.authorize(user, &attributes.namespace(namespace).name(name)).allowed
    })
}

impl Hook for Admission {
    fn concerns(&self, request: &Request<'_>) -> bool {
        request.operation != Operation::Delete
            && request.subresource.is_empty()
            && trust::concerns(request.group, request.resource)
            && !request.user.is_trusted_writer()
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let Some(object) = object.filter(|_| self.concerns(request)) else { return Ok(Vec::new()) };
        for used in trust::introduced(request.group, request.resource, request.old, object) {
            self.judge(request, &used).map_err(|why| {
                let named = Named { group: request.group, kind: request.resource, name: request.name };
                let mut error = ApiError::forbidden(named, &why);
                let cause = json!({"reason": "FieldValueForbidden", "message": why, "field": used.field});
                error.details.get_or_insert_with(|| json!({}))["causes"] = json!([cause]);
                error
            })?;
        }
        Ok(Vec::new())
    }
}
