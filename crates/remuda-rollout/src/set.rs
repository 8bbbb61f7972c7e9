//! MachineSet: which Machines belong to it, how many more or fewer there should be, and which are replaced.

mod adopt;
mod creation;
mod ladder;
mod order;
mod orphan;
mod preflight;
mod preserve;
mod propagate;
mod remediate;
mod scale;
mod status;

pub use adopt::{Adoption, adopt};
pub use creation::{Creations, Permit, Request as CreationRequest, Throttle};
pub use ladder::{BadLadder, Ladder, Next as NextStep, Step, tried};
pub use order::{DeletionOrder, priority, victims};
pub use orphan::{Candidate, orphans};
pub use preflight::{Check, ControlPlane, Failure, Preflight, preflight, skipped};
pub use preserve::{BadPreserve, Kept, Preserve, expired, keep, next_expiry};
pub use propagate::{IN_PLACE, IN_PLACE_WHEN_DELETING, machine_labels};
pub use remediate::{Budget, Fate, Remediation, remediate};
pub use scale::{Hold, Scale, requeue_after, scale};
pub use status::{Input as StatusInput, Status, status};
