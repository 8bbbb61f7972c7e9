//! Registration of nodes and clusters, tunnels, and the way into clusters.
