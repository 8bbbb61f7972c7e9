//! Composes store, API server and controllers into one running server
