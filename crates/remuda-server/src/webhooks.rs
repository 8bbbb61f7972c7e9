//! Signed messages to other systems: something is broken, is well again, will expire, or can be updated.
//!
//! ```text
//! Clusters, Machines, releases, certificates ─ fact ─► what is so now ─┐
//!                                                                      ├ due ─► messages ─ send ─► receiver
//! Secrets of type remuda.io/webhook ─ target ─► what was told before ──┘            └► ConfigMap webhook-<name>
//! ```
//!
//! What is told is the difference between what is so and what was told, so nothing is lost when a server stops or a
//! receiver is away, and nothing waits in a queue. The leader sends; the ConfigMap tells the next leader where it was.
//!
//! Where messages go is said by Secrets in `cattle-system`, which only administrators can write: the user who chooses
//! the
//! address makes this server speak to it.

mod due;
mod fact;
mod run;
mod send;
mod sign;
mod target;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

pub(crate) use self::{
    fact::Certificates,
    run::{Sources, run},
    target::Admission,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    webhook: String,
    outcome: &'static str,
}

/// How many messages were sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deliveries(Family<Labels, Counter>);

impl Deliveries {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "remuda_webhook_deliveries",
            "Messages sent to receivers, by webhook and outcome",
            self.0.clone(),
        );
    }

    fn count(&self, webhook: &str, delivered: bool) {
        let outcome = if delivered { "delivered" } else { "failed" };
        self.0.get_or_create(&Labels { webhook: webhook.to_owned(), outcome }).inc();
    }
}

#[cfg(test)]
mod tests;
