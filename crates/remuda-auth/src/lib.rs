//! Identities, tokens, certificates and RBAC evaluation
