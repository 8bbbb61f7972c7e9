//! The part of a machine template that decides whether machines must be replaced.

use std::fmt;

use crate::name::fnv32a;

/// A reference to an object or a template of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub group: String,
    pub kind: String,
    pub name: String,
}

/// Fields whose change means new machines. Labels, annotations, timeouts, taints, readiness gates and
/// `minReadySeconds` are not among them: those are propagated in place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    pub version: String,
    pub bootstrap: Option<Reference>,
    pub data_secret: Option<String>,
    pub infrastructure: Reference,
    pub failure_domain: String,
}

/// One way in which a set's template is not what its deployment asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    Version { current: String, wanted: String },
    Bootstrap { kind: String },
    DataSecret { current: Option<String>, wanted: Option<String> },
    Infrastructure { kind: String },
    FailureDomain { current: String, wanted: String },
    RolloutAfterExpired,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |kind: &str| kind.strip_suffix("Template").unwrap_or(kind).to_owned();
        match self {
            Difference::Version { current, wanted } => write!(f, "Version {current}, {wanted} required"),
            Difference::Bootstrap { kind } | Difference::Infrastructure { kind } => {
                write!(f, "{} is not up-to-date", bare(kind))
            }
            Difference::DataSecret { current, wanted } => {
                let text = |name: &Option<String>| name.clone().unwrap_or_else(|| "nil".into());
                let (current, wanted) = (text(current), text(wanted));
                write!(f, "spec.bootstrap.dataSecretName {current}, {wanted} required")
            }
            Difference::FailureDomain { current, wanted } => {
                write!(f, "Failure domain {current}, {wanted} required")
            }
            Difference::RolloutAfterExpired => f.write_str("MachineDeployment spec.rolloutAfter expired"),
        }
    }
}

impl Template {
    /// What would have to change for this template to be `wanted`.
    pub fn differences(&self, wanted: &Template) -> Vec<Difference> {
        let mut found = Vec::new();
        if self.version != wanted.version {
            found.push(Difference::Version { current: self.version.clone(), wanted: wanted.version.clone() });
        }
        if (&self.bootstrap, &self.data_secret) != (&wanted.bootstrap, &wanted.data_secret) {
            found.push(match &self.bootstrap {
                Some(reference) => Difference::Bootstrap { kind: reference.kind.clone() },
                None => Difference::DataSecret {
                    current: self.data_secret.clone(),
                    wanted: wanted.data_secret.clone(),
                },
            });
        }
        if self.infrastructure != wanted.infrastructure {
            found.push(Difference::Infrastructure { kind: self.infrastructure.kind.clone() });
        }
        if self.failure_domain != wanted.failure_domain {
            let (current, wanted) = (self.failure_domain.clone(), wanted.failure_domain.clone());
            found.push(Difference::FailureDomain { current, wanted });
        }
        found
    }

    /// A number for the `machine-template-hash` label. Equal templates have equal numbers.
    pub fn hash(&self) -> u32 {
        let bootstrap = self.bootstrap.clone().unwrap_or_default();
        let secret = self.data_secret.as_deref().map_or_else(|| "-".into(), |name| format!("+{name}"));
        let parts = [
            &self.version,
            &bootstrap.group,
            &bootstrap.kind,
            &bootstrap.name,
            &secret,
            &self.infrastructure.group,
            &self.infrastructure.kind,
            &self.infrastructure.name,
            &self.failure_domain,
        ];
        fnv32a(parts.map(String::as_str).join("\0").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> Template {
        let reference =
            |kind: &str| Reference { group: "rke.cattle.io".into(), kind: kind.into(), name: "demo".into() };
        Template {
            version: "v1.33.0".into(),
            bootstrap: Some(reference("RKEBootstrapTemplate")),
            data_secret: None,
            infrastructure: reference("VmwarevsphereMachineTemplate"),
            failure_domain: "a".into(),
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Template), expected: &str) {
        let current = template();
        let mut wanted = template();
        change(&mut wanted);
        let found: Vec<_> = current.differences(&wanted).iter().map(ToString::to_string).collect();
        assert_eq!(found.join("; "), expected);
        assert_eq!(expected.is_empty(), current.hash() == wanted.hash());
    }

    #[test]
    fn differences_are_told_as_conditions_tell_them() {
        check(|_| {}, "");
        check(|wanted| wanted.version = "v1.34.0".into(), "Version v1.33.0, v1.34.0 required");
        check(|wanted| wanted.bootstrap = None, "RKEBootstrap is not up-to-date");
        check(|wanted| wanted.infrastructure.name = "other".into(), "VmwarevsphereMachine is not up-to-date");
        check(|wanted| wanted.failure_domain.clear(), "Failure domain a,  required");
    }

    #[test]
    fn without_a_bootstrap_reference_the_secret_is_named() {
        let none = Template { bootstrap: None, ..template() };
        let some = Template { data_secret: Some("mine".into()), ..none.clone() };
        let found = none.differences(&some);
        assert_eq!(found[0].to_string(), "spec.bootstrap.dataSecretName nil, mine required");
    }
}
