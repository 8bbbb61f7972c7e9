//! Texts handed to machines and clusters that join: install scripts, the cluster agent's manifest.
//!
//! Pure: the server hands the same text out by HTTP, in bootstrap Secrets and in plans.
