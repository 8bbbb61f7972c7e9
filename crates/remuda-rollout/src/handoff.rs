//! Hand-offs: what core takes over from a provider's object, and when.
//!
//! Everything taken over stays: a provider that goes back on its word does not take its machine back.

use std::fmt;

/// A provider's object, as far as a hand-off looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<T> {
    /// The core object refers to none.
    NoReference,
    NotFound,
    Here(T),
}

/// Bootstrap config to Machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bootstrap {
    /// The secret was named by whoever made the machine.
    Provided,
    /// It went before the machine did.
    Gone,
    /// It should be there.
    Missing,
    Waiting,
    /// The provider says it is done but names no secret.
    Nameless {
        kind: String,
    },
    /// `bootstrapDataSecretCreated` is set; the name is copied unless there is one.
    Done {
        copy: Option<String>,
    },
}

/// What a bootstrap config reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootstrapReport {
    pub kind: String,
    pub created: bool,
    pub secret: Option<String>,
}

/// Takes over the secret a machine boots from. Its name is copied once and never changed.
pub fn bootstrap(config: Found<BootstrapReport>, secret: Option<&str>, deleting: bool) -> Bootstrap {
    match config {
        Found::NoReference => Bootstrap::Provided,
        Found::NotFound if deleting => Bootstrap::Gone,
        Found::NotFound => Bootstrap::Missing,
        Found::Here(_) if secret.is_some() => Bootstrap::Done { copy: None },
        Found::Here(BootstrapReport { created: false, .. }) => Bootstrap::Waiting,
        Found::Here(BootstrapReport { kind, secret: None, .. }) => Bootstrap::Nameless { kind },
        Found::Here(BootstrapReport { secret, .. }) => Bootstrap::Done { copy: secret },
    }
}

impl fmt::Display for Bootstrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bootstrap::Provided => f.write_str("the data secret was provided"),
            Bootstrap::Gone => f.write_str("gone"),
            Bootstrap::Missing => f.write_str("waiting for the bootstrap config to exist"),
            Bootstrap::Waiting => f.write_str("waiting for the bootstrap data secret"),
            Bootstrap::Nameless { kind } => {
                write!(f, "{kind} reports its data secret but no status.dataSecretName")
            }
            Bootstrap::Done { copy: Some(secret) } => write!(f, "done: copy {secret}"),
            Bootstrap::Done { copy: None } => f.write_str("done"),
        }
    }
}

/// Infrastructure or control plane to Cluster, infrastructure to Machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provisioned<T> {
    /// Nothing to wait for.
    NoReference,
    /// It went in the course of a deletion.
    Gone,
    /// It should be there.
    Missing,
    /// It was there, and whoever needs it still is.
    Lost {
        kind: String,
        stage: &'static str,
    },
    Waiting,
    /// It is on its way out; what was taken over stays as it is.
    Leaving,
    /// The flag is set and the report taken over.
    Done(T),
}

/// What such an object reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report<T> {
    pub done: bool,
    pub deleting: bool,
    pub value: T,
}

/// Takes over what an object reports. `before` is the sticky flag, `stage` how its loss is told.
pub fn provisioned<T>(
    object: Found<Report<T>>,
    kind: &str,
    before: bool,
    deleting: bool,
    stage: &'static str,
) -> Provisioned<T> {
    match object {
        Found::NoReference => Provisioned::NoReference,
        Found::NotFound if deleting => Provisioned::Gone,
        Found::NotFound if before => Provisioned::Lost { kind: kind.to_owned(), stage },
        Found::NotFound => Provisioned::Missing,
        Found::Here(report) if !report.done && !before => Provisioned::Waiting,
        Found::Here(report) if report.deleting => Provisioned::Leaving,
        Found::Here(report) => Provisioned::Done(report.value),
    }
}

impl<T> fmt::Display for Provisioned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Provisioned::NoReference => f.write_str("no reference"),
            Provisioned::Gone => f.write_str("gone"),
            Provisioned::Missing => f.write_str("waiting for the object to exist"),
            Provisioned::Lost { kind, stage } => write!(f, "{kind} has been deleted after being {stage}"),
            Provisioned::Waiting => f.write_str("waiting for the provider"),
            Provisioned::Leaving => f.write_str("in deletion"),
            Provisioned::Done(_) => f.write_str("done"),
        }
    }
}

/// The endpoint a Cluster gets: its own if it is valid, else what the provider reports, once.
pub fn endpoint<'a>(own: (&'a str, i32), reported: Option<(&'a str, i32)>) -> Option<(&'a str, i32)> {
    let valid = |(host, port): (&str, i32)| !host.is_empty() && port != 0;
    if valid(own) { None } else { reported.filter(|reported| valid(*reported)) }
}

/// Who owns an object, for the question whether the Cluster should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ownership {
    pub has_controller: bool,
    pub owned_by_cluster: bool,
    pub owned_by_deployment: bool,
    /// Labels say that a set, a pool, a control plane or a deployment made it.
    pub made_by_somebody: bool,
}

/// A Machine is the Cluster's own if nobody made it. After a restore its owner may not have adopted it yet.
pub fn cluster_owns_machine(owners: Ownership) -> bool {
    !owners.has_controller && !owners.owned_by_cluster && !owners.made_by_somebody
}

/// A MachineSet is the Cluster's own if it is no deployment's.
pub fn cluster_owns_set(owners: Ownership) -> bool {
    !owners.owned_by_deployment && !owners.owned_by_cluster && !owners.made_by_somebody
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(created: bool, secret: Option<&str>) -> Found<BootstrapReport> {
        Found::Here(BootstrapReport { kind: "Config".into(), created, secret: secret.map(str::to_owned) })
    }

    #[test]
    fn the_secrets_name_is_taken_over_once() {
        let told = |config, secret, deleting| bootstrap(config, secret, deleting).to_string();
        assert_eq!(told(Found::NoReference, Some("s"), false), "the data secret was provided");
        assert_eq!(told(report(false, None), None, false), "waiting for the bootstrap data secret");
        assert_eq!(told(report(true, Some("a")), None, false), "done: copy a");
        assert_eq!(told(report(true, Some("b")), Some("a"), false), "done");
        assert_eq!(
            told(report(true, None), None, false),
            "Config reports its data secret but no status.dataSecretName"
        );
        assert_eq!(told(Found::NotFound, None, true), "gone");
        assert_eq!(told(Found::NotFound, None, false), "waiting for the bootstrap config to exist");
    }

    #[test]
    fn what_was_provisioned_once_stays_provisioned() {
        let here = |done, deleting| Found::Here(Report { done, deleting, value: () });
        let told = |object, before, deleting| {
            provisioned(object, "Server", before, deleting, "provisioned").to_string()
        };
        assert_eq!(told(here(false, false), false, false), "waiting for the provider");
        assert_eq!(told(here(true, false), false, false), "done");
        assert_eq!(told(here(false, false), true, false), "done");
        assert_eq!(told(here(true, true), true, false), "in deletion");
        assert_eq!(told(Found::NotFound, true, false), "Server has been deleted after being provisioned");
        assert_eq!(told(Found::NotFound, true, true), "gone");
        assert_eq!(told(Found::NotFound, false, false), "waiting for the object to exist");
    }

    #[test]
    fn a_valid_endpoint_is_never_overwritten() {
        assert_eq!(endpoint(("", 0), Some(("h", 1))), Some(("h", 1)));
        assert_eq!(endpoint(("mine", 0), Some(("h", 1))), Some(("h", 1)));
        assert_eq!(endpoint(("mine", 2), Some(("h", 1))), None);
        assert_eq!(endpoint(("", 0), Some(("h", 0))), None);
        assert_eq!(endpoint(("", 0), None), None);
    }

    #[test]
    fn the_cluster_owns_only_what_nobody_made() {
        let nobody = Ownership::default();
        assert!(cluster_owns_machine(nobody) && cluster_owns_set(nobody));
        assert!(!cluster_owns_machine(Ownership { made_by_somebody: true, ..nobody }));
        assert!(!cluster_owns_machine(Ownership { has_controller: true, ..nobody }));
        assert!(!cluster_owns_set(Ownership { owned_by_deployment: true, ..nobody }));
        assert!(!cluster_owns_set(Ownership { owned_by_cluster: true, ..nobody }));
    }
}
