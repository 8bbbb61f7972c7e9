//! Controllers of Cluster API.
