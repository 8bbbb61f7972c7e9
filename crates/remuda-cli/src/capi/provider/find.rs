//! Which provider is meant, and whose rights its program has.

use std::collections::BTreeSet;

use remuda_api::clusterctl::{CORE, PROVIDER_NAMESPACE};
use remuda_names::capi::{group, label};

use crate::{
    api::{self, Which},
    failure::{Code, Failure},
    near,
    object::Object,
    session::Session,
};

const LIST: &str = "remuda capi provider list";

/// An entry of the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Value of the label on everything in its components: `infrastructure-docker`.
    pub(super) instance: String,
    /// `docker`
    pub(super) name: String,
    /// `InfrastructureProvider`
    pub(super) kind: String,
    pub(super) version: String,
    pub(super) namespace: String,
}

impl Entry {
    fn of(object: &Object) -> Entry {
        let instance = match object.label(label::PROVIDER) {
            "" => object.name(),
            instance => instance,
        };
        Entry {
            instance: instance.to_owned(),
            name: object.text("/providerName").to_owned(),
            kind: object.text("/type").to_owned(),
            version: object.text("/version").to_owned(),
            namespace: object.namespace().to_owned(),
        }
    }

    /// Whether it is part of the server.
    pub(super) fn is_built_in(&self) -> bool {
        self.instance == CORE || self.namespace == PROVIDER_NAMESPACE
    }

    /// `infrastructure`, `control-plane`: the type as command lines have it.
    pub(super) fn short_kind(&self) -> String {
        let mut short = String::new();
        for letter in self.kind.strip_suffix("Provider").unwrap_or(&self.kind).chars() {
            if letter.is_ascii_uppercase() && !short.is_empty() {
                short.push('-');
            }
            short.push(letter.to_ascii_lowercase());
        }
        short
    }
}

/// What says which provider is meant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) kind: Option<&'a str>,
    pub(super) namespace: Option<&'a str>,
}

pub(super) async fn inventory(session: &Session) -> Result<Vec<Entry>, Failure> {
    let providers = api::resource(group::CLUSTERCTL, "v1alpha3", "Provider", "providers");
    let objects = api::list(&session.client, &providers, None, Which::All).await?;
    let mut entries: Vec<Entry> = objects.iter().map(Entry::of).collect();
    entries.sort_by(|a, b| (&a.instance, &a.namespace).cmp(&(&b.instance, &b.namespace)));
    Ok(entries)
}

/// The kinds a provider has brought.
pub(super) async fn definitions(session: &Session, instance: &str) -> Result<Vec<Object>, Failure> {
    let labels = format!("{}={instance}", label::PROVIDER);
    api::list(&session.client, &crate::capi::definitions(), None, Which::Labels(&labels)).await
}

/// The one entry that is meant.
pub(super) fn choose(entries: &[Entry], wanted: Wanted<'_>) -> Result<Entry, Failure> {
    let fits = |entry: &&Entry| {
        (entry.instance == wanted.name || entry.name == wanted.name)
            && wanted.kind.is_none_or(|kind| entry.kind == kind || entry.short_kind() == kind)
            && wanted.namespace.is_none_or(|namespace| entry.namespace == namespace)
    };
    let found: Vec<&Entry> = entries.iter().filter(fits).collect();
    match found.as_slice() {
        [] => {
            // One may be installed in several namespaces, and what is part of the server is not run.
            let names: BTreeSet<&str> = entries
                .iter()
                .filter(|entry| !entry.is_built_in())
                .map(|entry| entry.instance.as_str())
                .collect();
            let failure = Failure::new(Code::NotFound, format!("there is no provider {}", wanted.name));
            Err(failure.hint(near::hint(wanted.name, names.into_iter(), LIST)))
        }
        [one] if one.is_built_in() => {
            let message = format!("provider {} is part of the server and runs in it", one.instance);
            Err(Failure::invalid(message)
                .hint("programs are run of providers that clusterctl init installed"))
        }
        [one] => Ok((*one).clone()),
        several => {
            let names: BTreeSet<&str> = several.iter().map(|entry| entry.instance.as_str()).collect();
            let hint = if names.len() > 1 {
                format!("name one of {}", names.into_iter().collect::<Vec<_>>().join(", "))
            } else {
                let places: Vec<_> = several.iter().map(|entry| entry.namespace.as_str()).collect();
                format!("--provider-namespace says which: {}", places.join(", "))
            };
            Err(Failure::invalid(format!("there are {} providers {}", several.len(), wanted.name)).hint(hint))
        }
    }
}

/// The ServiceAccount whose rights the program has: that of the provider's Deployment, unless one is named.
pub(super) async fn account(
    session: &Session,
    provider: &Entry,
    named: Option<&str>,
) -> Result<String, Failure> {
    let namespace = Some(provider.namespace.as_str());
    let name = match named {
        Some(name) => name.to_owned(),
        None => {
            let deployments = api::resource("apps", "v1", "Deployment", "deployments");
            let labels = format!("{}={}", label::PROVIDER, provider.instance);
            let found = api::list(&session.client, &deployments, namespace, Which::Labels(&labels)).await?;
            one_account(provider, &found)?
        }
    };
    let accounts = api::core("ServiceAccount", "serviceaccounts");
    if api::get(&session.client, &accounts, namespace, &name).await?.is_none() {
        let message = format!("there is no ServiceAccount {}/{name}", provider.namespace);
        return Err(Failure::new(Code::NotFound, message).hint(
            "it is in the provider's components: install them, or name another one with --service-account",
        ));
    }
    Ok(name)
}

fn one_account(provider: &Entry, deployments: &[Object]) -> Result<String, Failure> {
    let account = |deployment: &Object| match deployment.text("/spec/template/spec/serviceAccountName") {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    let names: BTreeSet<String> = deployments.iter().map(account).collect();
    let mut names = names.into_iter();
    let Entry { instance, namespace, .. } = provider;
    let hint = "--service-account says whose rights the program has";
    match (names.next(), names.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => {
            let message = format!("provider {instance} has no Deployment in namespace {namespace}");
            Err(Failure::new(Code::NotFound, message).hint(hint))
        }
        (Some(one), Some(other)) => {
            let message =
                format!("Deployments of provider {instance} have several ServiceAccounts: {one}, {other}");
            Err(Failure::invalid(message).hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(instance: &str, name: &str, kind: &str, namespace: &str) -> Entry {
        let text = str::to_owned;
        Entry {
            instance: text(instance),
            name: text(name),
            kind: text(kind),
            version: text("v1.0.0"),
            namespace: text(namespace),
        }
    }

    #[track_caller]
    fn check(name: &str, kind: Option<&str>, namespace: Option<&str>, expected: &str) {
        let entries = [
            entry("bootstrap-kubeadm", "kubeadm", "BootstrapProvider", "kb"),
            entry("cluster-api", "cluster-api", "CoreProvider", "capi-system"),
            entry("control-plane-kubeadm", "kubeadm", "ControlPlaneProvider", "kcp"),
            entry("infrastructure-docker", "docker", "InfrastructureProvider", "capd-system"),
            entry("infrastructure-remuda", "remuda", "InfrastructureProvider", PROVIDER_NAMESPACE),
            entry("infrastructure-twice", "twice", "InfrastructureProvider", "a"),
            entry("infrastructure-twice", "twice", "InfrastructureProvider", "b"),
        ];
        let said = match choose(&entries, Wanted { name, kind, namespace }) {
            Ok(entry) => format!("{}/{}", entry.namespace, entry.instance),
            Err(failure) => format!("{}; {}", failure.message, failure.hint.unwrap_or_default()),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn a_provider_is_meant_by_its_name_or_by_that_of_its_components() {
        check("docker", None, None, "capd-system/infrastructure-docker");
        check("infrastructure-docker", None, None, "capd-system/infrastructure-docker");
        check(
            "kubeadm",
            None,
            None,
            "there are 2 providers kubeadm; name one of bootstrap-kubeadm, control-plane-kubeadm",
        );
        check("kubeadm", Some("control-plane"), None, "kcp/control-plane-kubeadm");
        check("kubeadm", Some("BootstrapProvider"), None, "kb/bootstrap-kubeadm");
        check("twice", None, None, "there are 2 providers twice; --provider-namespace says which: a, b");
        check("twice", None, Some("b"), "b/infrastructure-twice");
        check(
            "infrastructure-doker",
            None,
            None,
            "there is no provider infrastructure-doker; did you mean infrastructure-docker or infrastructure-twice?",
        );
        for (name, instance) in [("cluster-api", "cluster-api"), ("remuda", "infrastructure-remuda")] {
            let expected = format!(
                "provider {instance} is part of the server and runs in it; programs are run of providers that clusterctl \
                 init installed"
            );
            check(name, None, None, &expected);
        }
    }

    #[test]
    fn the_account_is_that_of_the_deployment() {
        let provider = entry("infrastructure-x", "x", "InfrastructureProvider", "x-system");
        let of = |name: &str| Object(json!({"spec": {"template": {"spec": {"serviceAccountName": name}}}}));
        assert_eq!(one_account(&provider, &[of("manager")]).unwrap(), "manager");
        assert_eq!(one_account(&provider, &[of("")]).unwrap(), "default");
        assert_eq!(one_account(&provider, &[]).unwrap_err().code, Code::NotFound);
        let several = one_account(&provider, &[of("a"), of("b")]).unwrap_err();
        assert!(several.message.ends_with("several ServiceAccounts: a, b"), "{}", several.message);
    }
}
