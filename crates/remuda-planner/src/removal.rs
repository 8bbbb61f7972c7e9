//! May an etcd machine go?
//!
//! A hook annotation on every etcd Machine keeps CAPI from destroying the server. It is taken off when the
//! machine's etcd member is out, or when there is nothing to protect. The order is: nobody is configured
//! to join the machine any more, the others can do without the member, etcd has let it go.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use remuda_distro::Distro;
use remuda_names::rancher::annotation;

use crate::{
    entry::{Entry, Roles},
    input::Machine,
    quorum::{Members, Refusal},
};

/// After this long without a member etcd has found a new leader.
const ELECTION: SignedDuration = SignedDuration::from_secs(20);

/// What is looked at for one machine.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    pub now: Timestamp,
    pub machine: &'a Machine,
    /// `metadata.deletionTimestamp` of the Machine.
    pub deleted_at: Option<Timestamp>,
    /// The Machine has the label of the etcd role, whatever its value.
    pub etcd_label: bool,
    /// The Machine has the hook annotation.
    pub hooked: bool,
    pub bootstrap_deleting: bool,
    /// The RKEBootstrap is annotated `etcd-force-remove: "true"`.
    pub force: bool,
    pub cluster: Cluster,
    pub distro: Distro,
    /// All machines of the cluster, this one included.
    pub machines: &'a [Machine],
    pub node: Node,
}

/// The cluster the machine belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cluster {
    Alive,
    /// It, its control plane or the way to it is missing or being deleted.
    Gone,
}

/// The downstream Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Not looked at; [`Decision::ReadNode`] asks for it.
    Unread,
    Missing,
    Present {
        /// Annotation `etcd.<distribution>.cattle.io/removed-node-name`.
        removed: bool,
    },
}

/// What to do about the hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Nothing,
    AddHook,
    RemoveHook(Gone),
    /// Read the downstream Node and ask again.
    ReadNode,
    /// Mark the plan secret with [`remuda_names::annotation::ETCD_LEAVING`], then annotate the Node with `annotation=true`;
    /// look again in 5 s.
    RemoveMember {
        annotation: String,
    },
    /// Look again after so many seconds.
    Wait(Held, u64),
}

/// Why the machine may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    NotEtcd,
    Forced,
    ClusterGone,
    NeverJoined,
    MemberRemoved,
    NodeMissing,
}

/// Why the machine must stay for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// These are configured to join it.
    Joined {
        machines: Vec<String>,
    },
    /// The remaining one of two members has just been asked to carry on alone.
    Election,
    Quorum(Refusal),
    /// etcd has been asked.
    Removing,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Held::Joined { machines } => {
                let shown = machines.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(",");
                write!(f, "waiting for machine(s) {shown} to join another server")
            }
            Held::Election => f.write_str("waiting for etcd to elect a leader"),
            Held::Quorum(refusal) => write!(f, "waiting for etcd: {refusal}"),
            Held::Removing => f.write_str("waiting for etcd member to be removed"),
        }
    }
}

/// Decides about the hook of one machine.
pub fn decide(input: &Input<'_>) -> Decision {
    let release = |why| if input.hooked { Decision::RemoveHook(why) } else { Decision::Nothing };
    if !input.etcd_label {
        return release(Gone::NotEtcd);
    }
    if input.force {
        return release(Gone::Forced);
    }
    if input.deleted_at.is_none() && !input.bootstrap_deleting {
        return if input.hooked { Decision::Nothing } else { Decision::AddHook };
    }
    if !input.hooked {
        return Decision::Nothing;
    }
    if input.cluster == Cluster::Gone {
        return Decision::RemoveHook(Gone::ClusterGone);
    }
    let entry = Entry::new(input.machine);
    let members = Members::of(input.machines);
    if input.machine.node.is_none() {
        // A machine without a node may still have a member that votes.
        return match members.may_vanish(&input.machine.name) {
            Ok(()) => Decision::RemoveHook(Gone::NeverJoined),
            Err(refusal) => Decision::Wait(Held::Quorum(refusal), 5),
        };
    }
    let leaving = !entry.annotation(remuda_names::annotation::ETCD_LEAVING).is_empty();
    if let Some(held) = held(input, &entry, &members).filter(|_| !leaving) {
        return held;
    }
    match input.node {
        Node::Unread => Decision::ReadNode,
        Node::Missing => Decision::RemoveHook(Gone::NodeMissing),
        Node::Present { removed: true } => Decision::RemoveHook(Gone::MemberRemoved),
        // Asking again does no harm, and a server that stopped between the mark and the request is made good.
        Node::Present { removed: false } => {
            Decision::RemoveMember { annotation: format!("etcd.{}.cattle.io/remove", input.distro.name()) }
        }
    }
}

/// The annotation in which etcd's controller says that the member is out.
pub fn removed_annotation(distro: Distro) -> String {
    format!("etcd.{}.cattle.io/removed-node-name", distro.name())
}

fn held(input: &Input<'_>, entry: &Entry<'_>, members: &Members) -> Option<Decision> {
    let url = entry.join_url();
    let joined_here = |machine: &&Machine| {
        let secret = machine.plan_secret.as_ref();
        let joined_to = secret.and_then(|secret| secret.annotations.get(annotation::JOINED_TO));
        machine.name != input.machine.name && joined_to.is_some_and(|joined_to| joined_to == url)
    };
    if !url.is_empty() {
        let mut machines: Vec<String> =
            input.machines.iter().filter(joined_here).map(|machine| machine.name.clone()).collect();
        if !machines.is_empty() {
            machines.sort_unstable();
            return Some(Decision::Wait(Held::Joined { machines }, 5));
        }
    }
    let is_etcd = |machine: &&Machine| {
        machine.plan_secret.as_ref().is_some_and(|secret| Roles::of(&secret.labels).etcd)
    };
    let mut others = input.machines.iter().filter(is_etcd).filter(|other| other.name != input.machine.name);
    if let (Some(other), None) = (others.next(), others.next())
        && !other.deleting
        && let Some(since) = input.deleted_at
    {
        let left = ELECTION - input.now.duration_since(since);
        if left > SignedDuration::ZERO {
            return Some(Decision::Wait(Held::Election, left.as_secs().unsigned_abs().max(1)));
        }
    }
    let refusal = members.may_remove(&input.machine.name).err()?;
    Some(Decision::Wait(Held::Quorum(refusal), 5))
}
