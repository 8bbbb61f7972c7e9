//! Which contract a provider's CRD keeps, and in which version.

use std::cmp::{Ordering, Reverse};

use remuda_names::capi::label;

use crate::{selector::Labels, text};

/// The two contracts in use. They differ in where initialization and counters are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    V1Beta1,
    V1Beta2,
}

/// A CRD that keeps no contract we know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "CRD {crd} keeps no known contract: label cluster.x-k8s.io/v1beta2 or cluster.x-k8s.io/v1beta1 is missing or empty"
)]
pub struct NoContract {
    pub crd: String,
}

/// The newest contract of a CRD and the API version that keeps it, by the CRD's labels.
pub fn choose(crd: &str, labels: &Labels) -> Result<(Contract, String), NoContract> {
    let known = [(Contract::V1Beta2, label::CONTRACT_V1BETA2), (Contract::V1Beta1, label::CONTRACT_V1BETA1)];
    known
        .into_iter()
        .find_map(|(contract, label)| {
            let versions = labels.get(label)?.split('_').filter(|version| !version.is_empty());
            let newest = versions.max_by(|a, b| compare_versions(a, b))?;
            Some((contract, newest.to_owned()))
        })
        .ok_or_else(|| NoContract { crd: crd.to_owned() })
}

/// The name of a kind's CRD. Providers whose CRD is named otherwise are not found.
pub fn crd_name(group: &str, kind: &str) -> String {
    format!("{}.{group}", text::plural(&kind.to_lowercase()))
}

/// Order of API versions as Kubernetes prefers them: stable over beta over alpha, then by number. Names that
/// are no versions come before all that are, in reverse alphabetical order.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => Reverse(a).cmp(&Reverse(b)),
    }
}

fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    let rest = &rest[digits..];
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stage, minor) = match rest.strip_prefix("beta") {
        Some(minor) => (1, minor),
        None => (0, rest.strip_prefix("alpha")?),
    };
    let valid = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
    Some((stage, major, minor.parse().ok().filter(|_| valid)?))
}
