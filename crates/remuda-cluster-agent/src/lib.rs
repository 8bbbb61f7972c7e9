//! The end of the tunnel inside a cluster.
