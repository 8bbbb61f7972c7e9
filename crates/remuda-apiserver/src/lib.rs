//! The Kubernetes API on a store.
//!
//! [`ApiServer::start`] takes a [`remuda_store::Store`] and serves on it what kube-apiserver serves
//! on etcd: discovery, OpenAPI, all verbs, patches and server-side apply, watches, custom
//! resources, admission, authentication, RBAC, and the controllers that belong to the API itself.
//! It opens no socket: requests come through [`ApiServer::handle`], from a listener or from a
//! client in the same process.

mod addresses;
mod admission;
mod audit;
mod authn;
mod authz;
mod body;
mod bootstrap;
mod call;
mod classes;
mod client;
mod codec;
mod components;
mod connect;
mod controllers;
mod convert;
mod converted;
mod crd;
mod delete;
mod discovery;
mod election;
mod fields;
mod filter;
mod follow;
mod front;
mod index;
mod kinds;
mod lean;
mod limits;
mod metrics;
mod namespaces;
mod negotiate;
mod openapi;
mod options;
mod ownership;
mod patch;
mod paths;
mod pods;
mod poll_when_woken;
mod processes;
mod quotas;
mod read;
mod receive;
mod registry;
mod represent;
mod reviews;
mod scale;
mod server;
mod signers;
mod status;
mod tokens;
mod turns;
mod typeless;
mod watch;
mod websocket;
mod write;

pub use self::{
    admission::{Examination, Found, Hook, Lookup, Operation, Request as AdmissionRequest},
    audit::AuditLog,
    authn::{Identified, Unidentified},
    body::Body,
    client::InProcess,
    convert::NativeConversion,
    front::{Internal, Login, Peer, PeerCertificate},
    limits::Limits,
    openapi::{Descriptions, TypeDescription},
    processes::Kubelets,
    server::{ApiServer, Config, Controllers, StartError},
    status::{ApiError, ApiResult, Named},
    tokens::{Bearer, Remote, Tokens, Verdict},
    watch::{ObservedWatch, WatchObserver},
};
