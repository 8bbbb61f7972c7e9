//! The templates Machines are made from.

use kube::ResourceExt;
use remuda_api::core::{Cluster, ContractReference, MachineSpec};
use remuda_control::informer::Cached;
use remuda_names::capi::label;

use crate::{
    Capi, Error,
    managed::{controlled, ensure_owner, plain_owner},
    providers::{Interest, Provided},
};

/// What was found of them.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    pub(crate) bootstrap: Found,
    pub(crate) infrastructure: Found,
}

#[derive(Debug, Default)]
pub(crate) enum Found {
    /// Nothing is referred to, or it could not be told whether it is there.
    #[default]
    Unknown,
    /// There is no such reference.
    NotAsked,
    /// It positively does not exist.
    Missing {
        kind: String,
    },
    Here(Provided),
}

impl Found {
    pub(crate) fn here(&self) -> Option<&Provided> {
        match self {
            Found::Here(provided) => Some(provided),
            _ => None,
        }
    }

    fn is_usable(&self) -> bool {
        matches!(self, Found::Here(_) | Found::NotAsked)
    }
}

impl Templates {
    /// Finds both and makes the Cluster their owner. The reconciled object is woken when one of them changes
    /// or comes.
    pub(crate) async fn find<K: Cached>(
        capi: &Capi,
        interest: &Interest<'_, K>,
        namespace: &str,
        cluster: &Cluster,
        spec: &MachineSpec,
    ) -> (Self, Vec<Error>) {
        let mut templates = Self::default();
        let mut errors = Vec::new();
        let parts = [
            (&spec.infrastructure_ref, &mut templates.infrastructure),
            (&spec.bootstrap.config_ref, &mut templates.bootstrap),
        ];
        for (reference, found) in parts {
            match look_up(capi, interest, namespace, cluster, reference).await {
                Ok(result) => *found = result,
                Err(error) => errors.push(error),
            }
        }
        (templates, errors)
    }

    /// Kinds of those that do not exist, bootstrap first.
    pub(crate) fn missing(&self) -> Vec<String> {
        let parts = [&self.bootstrap, &self.infrastructure];
        let kinds = parts.into_iter().filter_map(|found| match found {
            Found::Missing { kind } => Some(kind.clone()),
            _ => None,
        });
        kinds.collect()
    }

    /// Machines can be made.
    pub(crate) fn exist(&self) -> bool {
        self.infrastructure.here().is_some() && self.bootstrap.is_usable()
    }
}

async fn look_up<K: Cached>(
    capi: &Capi,
    interest: &Interest<'_, K>,
    namespace: &str,
    cluster: &Cluster,
    reference: &ContractReference,
) -> Result<Found, Error> {
    if !reference.is_defined() {
        return Ok(Found::NotAsked);
    }
    if !reference.kind.ends_with("Template") {
        return Err(Error::Invalid(format!("{} {} is no template", reference.kind, reference.name)));
    }
    let Some(template) = capi.providers.get(reference, namespace, interest).await? else {
        return Ok(Found::Missing { kind: reference.kind.clone() });
    };
    // Templates people write may serve several clusters; one that was made for a cluster serves that one.
    let made_for = [label::CLUSTER_NAME, remuda_names::rancher::label::CLUSTER_NAME];
    let made_for = made_for.iter().find_map(|label| template.object.labels().get(*label));
    if let Some(other) = made_for.filter(|name| **name != cluster.name_any()) {
        let kind = &template.kind.resource.kind;
        return Err(controlled(&template.object, kind, format!("Cluster {other}")));
    }
    let mut owners = template.object.owner_references().to_vec();
    if !template.is_deleting() && ensure_owner(&mut owners, plain_owner(cluster)) {
        // Gone meanwhile is the same as not found.
        return Ok(match capi.providers.label_and_own(&template, &[], owners).await? {
            Some(template) => Found::Here(template),
            None => Found::Missing { kind: reference.kind.clone() },
        });
    }
    Ok(Found::Here(template))
}
