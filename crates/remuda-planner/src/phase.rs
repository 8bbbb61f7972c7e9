//! How far an operation is, as the status of the control plane says it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A phase of an operation. Its name in the status is Rancher's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Phase {
    /// Nothing was asked for.
    #[default]
    None,
    Started,
    /// Restore: all services stop.
    Shutdown,
    /// Restore: one server is given the state of the snapshot.
    Restore,
    PodCleanup,
    InitialRestart,
    NodeCleanup,
    /// Ordinary plans come back.
    Restart,
    Finished,
    Failed,
    /// Rotation of the encryption key: there is another one.
    Prepare,
    PostPrepareRestart,
    /// Rotation of the encryption key: the other one is used.
    Rotate,
    PostRotateRestart,
    /// Rotation of the encryption key: all is encrypted with it.
    Reencrypt,
    PostReencryptRestart,
    /// Rotation of the encryption key: how it ended well.
    Done,
    /// Of another version or program. Nothing is done about it.
    Other(String),
}

/// Those with a name.
const NAMED: [(Phase, &str); 16] = [
    (Phase::Started, "Started"),
    (Phase::Shutdown, "Shutdown"),
    (Phase::Restore, "Restore"),
    (Phase::PodCleanup, "PostRestorePodCleanup"),
    (Phase::InitialRestart, "InitialRestartCluster"),
    (Phase::NodeCleanup, "PostRestoreNodeCleanup"),
    (Phase::Restart, "RestartCluster"),
    (Phase::Finished, "Finished"),
    (Phase::Failed, "Failed"),
    (Phase::Prepare, "Prepare"),
    (Phase::PostPrepareRestart, "PostPrepareRestart"),
    (Phase::Rotate, "Rotate"),
    (Phase::PostRotateRestart, "PostRotateRestart"),
    (Phase::Reencrypt, "Reencrypt"),
    (Phase::PostReencryptRestart, "PostReencryptRestart"),
    (Phase::Done, "Done"),
];

impl Phase {
    pub fn name(&self) -> &str {
        match self {
            Phase::None => "",
            Phase::Other(name) => name,
            phase => NAMED.iter().find(|(named, _)| named == phase).map_or("", |(_, name)| name),
        }
    }

    pub fn is_none(&self) -> bool {
        *self == Phase::None
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<String> for Phase {
    fn from(name: String) -> Phase {
        if name.is_empty() {
            return Phase::None;
        }
        let named = NAMED.into_iter().find(|(_, known)| *known == name);
        named.map_or(Phase::Other(name), |(phase, _)| phase)
    }
}

impl From<Phase> for String {
    fn from(phase: Phase) -> String {
        phase.name().to_owned()
    }
}

impl PartialEq<str> for Phase {
    fn eq(&self, name: &str) -> bool {
        self.name() == name
    }
}

impl PartialEq<&str> for Phase {
    fn eq(&self, name: &&str) -> bool {
        self.name() == *name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn phases_keep_their_names_in_the_status() {
        for name in [
            "",
            "Started",
            "Shutdown",
            "Restore",
            "PostRestorePodCleanup",
            "InitialRestartCluster",
            "PostRestoreNodeCleanup",
            "RestartCluster",
            "Finished",
            "Failed",
            "Done",
            "Prepare",
            "PostPrepareRestart",
            "Rotate",
            "PostRotateRestart",
            "Reencrypt",
            "PostReencryptRestart",
            "Elsewhere",
        ] {
            let phase: Phase = serde_json::from_value(json!(name)).unwrap();
            assert_eq!(serde_json::to_value(&phase).unwrap(), json!(name));
            assert_eq!(phase, name);
            assert_eq!(matches!(phase, Phase::Other(_)), name == "Elsewhere");
        }
    }
}
