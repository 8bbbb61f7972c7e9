//! Infrastructure, bootstrap and control plane of K3s and RKE2 clusters.
