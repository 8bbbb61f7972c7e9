//! The Kubernetes API on a store
