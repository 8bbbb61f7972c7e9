//! What exists from the first start: system namespaces, RBAC defaults, priority classes, our own Service.

use std::sync::Arc;

use remuda_auth::{
    bootstrap::{Reconcile, cluster_role_bindings, cluster_roles, reconcile_binding, reconcile_role},
    identity::User,
    request_info::Verb,
};
use remuda_objects::meta;
use serde_json::{Value, json};

use crate::{
    call::Call,
    options::WriteOptions,
    server::{Inner, StartError},
    status::{ApiError, ApiResult},
    write::{Ownership, Part},
};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl Inner {
    /// A call of the server on itself.
    pub(crate) fn own_call(
        &self,
        group: &str,
        plural: &str,
        verb: Verb,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> ApiResult<Call> {
        let registry = self.registry.load_full();
        let resource = registry.preferred(group, plural).cloned().ok_or_else(ApiError::unknown_resource)?;
        Ok(Call::internal(registry, resource, verb, namespace, name, Arc::new(User::api_server())))
    }

    /// Creates an object of our own; one that is there already is fine.
    pub(crate) async fn ensure(&self, group: &str, plural: &str, mut object: Value) -> ApiResult<bool> {
        let namespace = Some(meta::namespace(&object).to_owned()).filter(|namespace| !namespace.is_empty());
        let name = meta::name(&object).to_owned();
        let call = self.own_call(group, plural, Verb::Create, namespace.as_deref(), None)?;
        let key = call.resource.key(namespace.as_deref(), &name);
        if self.store.get(&key).await.map_err(crate::read::store_error)?.value.is_some() {
            return Ok(false);
        }
        object["apiVersion"] = call.resource.api_version.as_str().into();
        object["kind"] = call.resource.kind.as_str().into();
        self.shape_input(&call.resource, &mut object, &mut Vec::new())?;
        match self.create_object(&call, object, &own_options(), Ownership::Compute).await {
            Ok(_) => Ok(true),
            Err(error) if error.reason == "AlreadyExists" => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Writes of the server itself are owned by it.
pub(crate) fn own_options() -> WriteOptions {
    WriteOptions { manager: Some("remuda-apiserver".to_owned()), ..Default::default() }
}

pub(crate) async fn run(inner: &Arc<Inner>) -> Result<(), StartError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: ApiError| StartError::Bootstrap { what, detail: error.to_string() }
    };
    for name in NAMESPACES {
        let object = json!({"metadata": {"name": name}});
        inner.ensure("", "namespaces", object).await.map_err(failed(&format!("namespace {name}")))?;
    }
    roles(inner).await.map_err(failed("default roles"))?;
    for (name, value, detail) in [
        ("system-cluster-critical", 2_000_000_000, "pods the cluster cannot do without, which may move"),
        ("system-node-critical", 2_000_001_000, "pods their node cannot do without"),
    ] {
        let object = json!({"metadata": {"name": name}, "value": value, "description": detail});
        let created = inner.ensure("scheduling.k8s.io", "priorityclasses", object).await;
        created.map_err(failed(&format!("priority class {name}")))?;
    }
    service_network(inner).await.map_err(failed("service network"))?;
    own_service(inner).await.map_err(failed("service default/kubernetes"))
}

async fn roles(inner: &Inner) -> ApiResult<()> {
    let group = "rbac.authorization.k8s.io";
    for desired in cluster_roles() {
        reconcile(inner, group, "clusterroles", &desired, reconcile_role).await?;
    }
    for desired in cluster_role_bindings() {
        reconcile(inner, group, "clusterrolebindings", &desired, reconcile_binding).await?;
    }
    Ok(())
}

/// Servers that share the store may start at the same time, and do the same.
const TRIES: usize = 5;

async fn reconcile(
    inner: &Inner,
    group: &str,
    plural: &str,
    desired: &Value,
    decide: fn(Option<&Value>, &Value) -> Option<Reconcile>,
) -> ApiResult<()> {
    for _ in 1..TRIES {
        match reconcile_once(inner, group, plural, desired, decide).await {
            // Whoever was faster may have done all of it; looking again tells.
            Err(error) if error.code == 409 || error.code == 404 => {}
            result => return result,
        }
    }
    reconcile_once(inner, group, plural, desired, decide).await
}

async fn reconcile_once(
    inner: &Inner,
    group: &str,
    plural: &str,
    desired: &Value,
    decide: fn(Option<&Value>, &Value) -> Option<Reconcile>,
) -> ApiResult<()> {
    let name = meta::name(desired);
    let call = inner.own_call(group, plural, Verb::Update, None, Some(name))?;
    let live = inner.store.get(&call.key()).await.map_err(crate::read::store_error)?.value;
    let existing = live.as_ref().map(|record| crate::convert::parse(record)).transpose()?;
    match decide(existing.as_ref(), desired) {
        None => Ok(()),
        Some(Reconcile::Create(object)) => inner.ensure(group, plural, object).await.map(drop),
        // A changed roleRef cannot be updated, only replaced.
        Some(Reconcile::Recreate(object)) => {
            inner.delete_object(&call, &Default::default()).await?;
            inner.ensure(group, plural, object).await.map(drop)
        }
        Some(Reconcile::Update(mut object)) => {
            inner.shape_input(&call.resource, &mut object, &mut Vec::new())?;
            inner.put_object(&call, object, &own_options(), Part::Main).await.map(drop)
        }
    }
}

/// The network Services get their addresses from.
async fn service_network(inner: &Inner) -> ApiResult<()> {
    let object = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [crate::addresses::NETWORK]}});
    inner.ensure("networking.k8s.io", "servicecidrs", object).await.map(drop)
}

/// `default/kubernetes`, by which clients inside a cluster find the API.
async fn own_service(inner: &Inner) -> ApiResult<()> {
    let (host, port) = inner.config.advertise.rsplit_once(':').unwrap_or((&inner.config.advertise, "443"));
    let port: u16 = port.parse().unwrap_or(443);
    let service = json!({
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]},
    });
    inner.ensure("", "services", service).await?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let Ok(address) = host.parse::<std::net::IpAddr>() else { return Ok(()) };
    if address.is_loopback() || address.is_unspecified() {
        return Ok(());
    }
    let slice = json!({
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if address.is_ipv6() { "IPv6" } else { "IPv4" },
        "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    inner.ensure("discovery.k8s.io", "endpointslices", slice).await.map(drop)
}
