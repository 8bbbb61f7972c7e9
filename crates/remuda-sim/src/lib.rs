//! Simulated providers and workload clusters for Cluster API.
