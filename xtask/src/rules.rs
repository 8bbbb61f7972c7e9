//! The dependency rules of the workspace. A breach fails `cargo test -p xtask`.
//!
//! A rule states what is deliberately absent; `ARCHITECTURE.md` says why.

use std::{collections::BTreeSet, fs};

use crate::graph::{self, Package};

/// Below all others: forms of values, without dependencies of its own. Every crate may use it.
const BASE: &str = "remuda-base";

/// Each crate, and the crates of ours it may use. A new crate takes its place here first.
pub(crate) const MAY_USE: &[(&str, &[&str])] = &[
    (BASE, &[]),
    ("remuda-names", &[]),
    ("remuda-distro", &[]),
    ("remuda-cel", &[]),
    ("remuda-pages", &[]),
    ("remuda-http", &[]),
    ("remuda-snapshot", &[]),
    ("remuda-oci", &[]),
    ("remuda-registry", &["remuda-oci", "remuda-http"]),
    ("remuda-s3", &["remuda-http"]),
    ("remuda-schema", &["remuda-cel"]),
    ("remuda-objects", &["remuda-schema", "remuda-cel"]),
    ("remuda-merge", &["remuda-schema", "remuda-cel"]),
    ("remuda-kinds", &["remuda-schema", "remuda-cel"]),
    ("remuda-store", &["remuda-names"]),
    ("remuda-auth", &["remuda-names"]),
    ("remuda-coordination", &[]),
    (
        "remuda-apiserver",
        &[
            "remuda-names",
            "remuda-coordination",
            "remuda-store",
            "remuda-auth",
            "remuda-cel",
            "remuda-objects",
            "remuda-schema",
            "remuda-merge",
            "remuda-kinds",
        ],
    ),
    (
        "remuda-server",
        &[
            "remuda-snapshot",
            "remuda-s3",
            "remuda-names",
            "remuda-oci",
            "remuda-registry",
            "remuda-distro",
            "remuda-store",
            "remuda-auth",
            "remuda-apiserver",
            "remuda-cel",
            "remuda-objects",
            "remuda-schema",
            "remuda-merge",
            "remuda-kinds",
            "remuda-api",
            "remuda-control",
            "remuda-rollout",
            "remuda-capi",
            "remuda-provisioning",
            "remuda-workload",
            "remuda-install",
            "remuda-plan",
            "remuda-planner",
            "remuda-rke",
            "remuda-machines",
            "remuda-drivers",
            "remuda-gateway",
            "remuda-identity",
            "remuda-door",
            "remuda-login",
            "remuda-dashboard",
            "remuda-steve",
            "remuda-terminal",
            "remuda-tunnel",
            "remuda-sandbox",
            "remuda-coordination",
            "remuda-http",
        ],
    ),
    ("remuda-api", &["remuda-names"]),
    ("remuda-rollout", &["remuda-names", "remuda-distro", "remuda-schema", "remuda-cel"]),
    ("remuda-tunnel", &[]),
    ("remuda-control", &["remuda-names", "remuda-coordination", "remuda-api"]),
    (
        "remuda-capi",
        &[
            "remuda-names",
            "remuda-distro",
            "remuda-api",
            "remuda-control",
            "remuda-rollout",
            "remuda-workload",
            "remuda-schema",
            "remuda-cel",
            "remuda-coordination",
        ],
    ),
    (
        "remuda-sim",
        &[
            "remuda-snapshot",
            "remuda-s3",
            "remuda-names",
            "remuda-distro",
            "remuda-auth",
            "remuda-api",
            "remuda-control",
            "remuda-rollout",
            "remuda-schema",
            "remuda-cel",
            "remuda-plan",
            "remuda-agent",
            "remuda-oci",
            "remuda-tunnel",
            "remuda-coordination",
            "remuda-http",
        ],
    ),
    ("remuda-testkit", &["*"]),
    ("remuda-plan", &["remuda-names"]),
    ("remuda-install", &["remuda-names", "remuda-plan"]),
    ("remuda-workload", &["remuda-names", "remuda-api", "remuda-control", "remuda-coordination"]),
    ("remuda-planner", &["remuda-names", "remuda-distro", "remuda-plan", "remuda-install"]),
    (
        "remuda-provisioning",
        &[
            "remuda-names",
            "remuda-distro",
            "remuda-auth",
            "remuda-plan",
            "remuda-rollout",
            "remuda-install",
            "remuda-api",
            "remuda-control",
            "remuda-objects",
            "remuda-schema",
            "remuda-cel",
            "remuda-coordination",
        ],
    ),
    (
        "remuda-rke",
        &[
            "remuda-names",
            "remuda-distro",
            "remuda-api",
            "remuda-control",
            "remuda-workload",
            "remuda-install",
            "remuda-plan",
            "remuda-snapshot",
            "remuda-planner",
            "remuda-coordination",
        ],
    ),
    (
        "remuda-machines",
        &[
            "remuda-names",
            "remuda-plan",
            "remuda-api",
            "remuda-control",
            "remuda-drivers",
            "remuda-s3",
            "remuda-coordination",
            "remuda-http",
        ],
    ),
    (
        "remuda-identity",
        &[
            "remuda-names",
            "remuda-api",
            "remuda-control",
            "remuda-auth",
            "remuda-coordination",
            "remuda-http",
        ],
    ),
    (
        "remuda-agent",
        &["remuda-names", "remuda-plan", "remuda-snapshot", "remuda-oci", "remuda-s3", "remuda-http"],
    ),
    (
        "remuda-cluster-agent",
        &[
            "remuda-snapshot",
            "remuda-s3",
            "remuda-names",
            "remuda-oci",
            "remuda-tunnel",
            "remuda-agent",
            "remuda-plan",
            "remuda-auth",
            "remuda-http",
        ],
    ),
    (
        "remuda-gateway",
        &[
            "remuda-names",
            "remuda-oci",
            "remuda-registry",
            "remuda-distro",
            "remuda-api",
            "remuda-control",
            "remuda-workload",
            "remuda-install",
            "remuda-plan",
            "remuda-tunnel",
            "remuda-auth",
            "remuda-door",
            "remuda-coordination",
            "remuda-http",
        ],
    ),
    ("remuda-door", &["remuda-names", "remuda-api", "remuda-control", "remuda-auth", "remuda-coordination"]),
    (
        "remuda-login",
        &[
            "remuda-names",
            "remuda-api",
            "remuda-control",
            "remuda-auth",
            "remuda-door",
            "remuda-identity",
            "remuda-coordination",
            "remuda-http",
        ],
    ),
    (
        "remuda-dashboard",
        &[
            "remuda-names",
            "remuda-api",
            "remuda-control",
            "remuda-auth",
            "remuda-door",
            "remuda-coordination",
        ],
    ),
    (
        "remuda-steve",
        &[
            "remuda-names",
            "remuda-api",
            "remuda-control",
            "remuda-auth",
            "remuda-door",
            "remuda-objects",
            "remuda-schema",
            "remuda-cel",
            "remuda-coordination",
        ],
    ),
    (
        "remuda-terminal",
        &[
            "remuda-names",
            "remuda-api",
            "remuda-control",
            "remuda-auth",
            "remuda-door",
            "remuda-coordination",
        ],
    ),
    ("remuda-sandbox", &["remuda-names", "remuda-distro", "remuda-drivers", "remuda-s3", "remuda-http"]),
    ("remuda-sandbox-distro", &["*"]),
    ("remuda-cli", &["*"]),
    ("remuda-drivers", &["remuda-names", "remuda-s3", "remuda-http"]),
    ("remuda", &["*"]),
    ("remuda-bench", &["*"]),
    ("remuda-dist", &["remuda-names", "remuda-oci"]),
    ("xtask", &[]),
];

/// No I/O, no clock, no randomness: the same input gives the same output.
pub(crate) const PURE: &[&str] = &[
    BASE,
    "remuda-names",
    "remuda-distro",
    "remuda-cel",
    "remuda-objects",
    "remuda-schema",
    "remuda-merge",
    "remuda-kinds",
    "remuda-rollout",
    "remuda-plan",
    "remuda-snapshot",
    "remuda-install",
    "remuda-planner",
];

const IMPURE: &[&str] = &[
    "tokio",
    "mio",
    "hyper",
    "reqwest",
    "tonic",
    "rustls",
    "aws-lc-rs",
    "rand",
    "kube",
    "kube-client",
    "kube-runtime",
];

/// Never anywhere: a second TLS stack, or abandoned. `deny.toml` has the list and the reasons.
struct Banned {
    name: String,
    /// Crates that may bring it along, for tests only.
    wrappers: Vec<String>,
}

fn banned() -> Vec<Banned> {
    let text = fs::read_to_string(graph::root().join("deny.toml")).unwrap();
    let bans = text.split("\n[bans]\n").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    let lines = bans.lines().filter_map(|line| line.trim().strip_prefix("{ crate = \""));
    let read = |line: &str| {
        let (name, rest) = line.split_once('"').unwrap();
        let wrappers = rest.split_once("wrappers = [").and_then(|(_, list)| list.split(']').next());
        let wrappers = wrappers.into_iter().flat_map(|list| list.split(','));
        let wrappers = wrappers.map(|wrapper| wrapper.trim().trim_matches('"').to_owned()).collect();
        Banned { name: name.to_owned(), wrappers }
    };
    lines.map(read).collect()
}

/// Two versions of these do not work together, or cost too much.
const SINGLE: &[&str] =
    &["tokio", "rustls", "hyper", "http", "tokio-tungstenite", "kube-core", "k8s-openapi"];

fn names(packages: &BTreeSet<Package>) -> BTreeSet<&str> {
    packages.iter().map(|package| package.name.as_str()).collect()
}

fn ours() -> BTreeSet<String> {
    let mut ours = BTreeSet::from(["xtask".to_owned()]);
    for entry in fs::read_dir(graph::root().join("crates")).unwrap() {
        let entry = entry.unwrap();
        if entry.path().join("Cargo.toml").exists() {
            ours.insert(entry.file_name().into_string().unwrap());
        }
    }
    ours
}

fn check_absent(below: &str, absent: &[&str]) {
    let packages = graph::below(below).unwrap();
    let names = names(&packages);
    let present: Vec<_> = absent.iter().filter(|name| names.contains(**name)).collect();
    assert!(
        present.is_empty(),
        "{below} must not use {present:?}; cargo tree -p {below} -i NAME shows through whom"
    );
}

#[test]
fn every_crate_has_its_place_in_the_table() {
    let table: BTreeSet<_> = MAY_USE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(table, ours());
}

#[test]
fn nothing_points_up() {
    let ours = ours();
    for (name, may_use) in MAY_USE {
        if may_use.contains(&"*") {
            continue;
        }
        let packages = graph::below(name).unwrap();
        let used = names(&packages);
        let breach: Vec<_> = used
            .iter()
            .filter(|used| **used != BASE && ours.contains(**used) && !may_use.contains(used))
            .collect();
        assert!(breach.is_empty(), "{name} must not use {breach:?}");
    }
}

#[test]
fn pure_crates_have_no_input_or_output_below_them() {
    for name in PURE {
        check_absent(name, IMPURE);
    }
}

#[test]
fn the_store_and_the_api_server_know_no_kubernetes_client() {
    for name in ["remuda-store", "remuda-auth", "remuda-apiserver", "remuda-tunnel"] {
        check_absent(name, &["kube", "kube-core", "kube-client", "kube-runtime", "k8s-openapi"]);
    }
}

#[test]
fn only_programs_use_anyhow() {
    for (name, _) in MAY_USE.iter().filter(|(name, _)| {
        !matches!(*name, "remuda" | "remuda-cli" | "remuda-bench" | "remuda-dist" | "xtask")
    }) {
        let manifest =
            fs::read_to_string(graph::root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
        assert!(!dependencies.contains("anyhow"), "{name} is a library: its errors are enums");
    }
}

#[test]
fn banned_crates_are_absent() {
    let packages = graph::everything().unwrap();
    let names = names(&packages);
    let banned = banned();
    assert!(banned.iter().any(|banned| banned.name == "ring"), "the list was not found");
    let program = graph::below("remuda").unwrap();
    for Banned { name, wrappers } in banned.iter().filter(|banned| names.contains(banned.name.as_str())) {
        let through = graph::dependents(name).unwrap();
        assert!(
            through.iter().all(|dependent| wrappers.contains(dependent)),
            "{name} comes with {through:?}: cargo tree --workspace -i {name} shows through whom"
        );
        assert!(!program.iter().any(|package| package.name == *name), "{name} is part of the program");
    }
}

#[test]
fn there_is_one_version_of_what_must_be_one() {
    let packages = graph::everything().unwrap();
    for name in SINGLE {
        let versions: BTreeSet<_> =
            packages.iter().filter(|package| package.name == *name).map(|package| &package.version).collect();
        assert!(versions.len() <= 1, "{name}: {versions:?}");
    }
}

#[test]
fn json_numbers_and_key_order_stay_as_they_are() {
    // Either feature changes every program that links serde_json: sorted keys are relied on.
    for package in graph::everything().unwrap().iter().filter(|package| package.name == "serde_json") {
        for feature in ["preserve_order", "arbitrary_precision"] {
            assert!(!package.features.iter().any(|on| on == feature), "serde_json has {feature}");
        }
    }
}

/// The one crate that may have `unsafe` code, which the lints of the workspace forbid.
const UNSAFE: &str = "remuda-pages";

#[test]
fn every_crate_follows_the_workspace_lints() {
    for name in ours().into_iter().filter(|name| name != UNSAFE) {
        let dir = if name == "xtask" { name.clone() } else { format!("crates/{name}") };
        let manifest = fs::read_to_string(graph::root().join(dir).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name}");
    }
}

#[test]
fn the_api_server_knows_no_kind_of_ours() {
    let source = graph::root().join("crates/remuda-apiserver/src");
    let mut pending = vec![source];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            for group in ["cattle.io", "cluster.x-k8s.io"] {
                assert!(!text.contains(group), "{} mentions {group}", path.display());
            }
        }
    }
}
