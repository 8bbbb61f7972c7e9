//! The sandbox distribution: a small Kubernetes that installs and joins as K3s does.
