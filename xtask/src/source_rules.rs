//! Rules about what stands in production code. A breach fails `cargo test -p xtask`.
//!
//! An exception is a file, the text in it, and the reason. One that is no longer needed fails too.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    rules::{MAY_USE, PURE},
    source::{self, Source},
};

/// A file below `crates`, the text that may stand in it, and why.
type Exception = (&'static str, &'static str, &'static str);

/// What reads a clock. `now` of an argument is something else: it has no path before it.
const CLOCKS: &[&str] = &[
    "Timestamp::now",
    "Zoned::now",
    "SystemTime::now",
    "Instant::now",
    "OffsetDateTime::now",
    "Utc::now",
    ".elapsed()",
    "TimeZone::system",
    "thread::sleep",
];

fn crates() -> impl Iterator<Item = &'static str> {
    MAY_USE.iter().map(|(name, _)| *name).filter(|name| *name != "xtask")
}

fn check(found: Vec<(String, usize, String)>, exceptions: &[Exception], rule: &str) {
    let mut used = BTreeSet::new();
    let mut breaches = Vec::new();
    for (path, line, text) in found {
        let excepted =
            exceptions.iter().find(|(file, allowed, _)| path == format!("crates/{file}") && *allowed == text);
        match excepted {
            Some((file, allowed, _)) => {
                used.insert((*file, *allowed));
            }
            None => breaches.push(format!("{path}:{line}: {text:?}")),
        }
    }
    assert!(breaches.is_empty(), "{rule}:\n{}", breaches.join("\n"));
    let stale: Vec<_> = exceptions.iter().filter(|(file, text, _)| !used.contains(&(*file, *text))).collect();
    assert!(stale.is_empty(), "exceptions that nothing needs: {stale:#?}");
}

#[test]
fn pure_crates_read_no_clock() {
    let mut found = Vec::new();
    for source in PURE.iter().flat_map(|name| source::production(name)) {
        for clock in CLOCKS {
            let at = source.code.match_indices(clock).map(|(at, _)| at);
            found.extend(at.map(|at| (source.path.clone(), source.line(at), (*clock).to_owned())));
        }
    }
    check(found, &[], "time is an argument in a pure crate");
}

/// Constants of `remuda-names` by their value. Words of one piece and names of fields are left out: `name`,
/// `Ready` or `expiresAt` means something else elsewhere.
fn constants() -> BTreeMap<String, String> {
    let mut constants = BTreeMap::new();
    for source in source::production("remuda-names") {
        for literal in &source.literals {
            let before = source.code[..literal.at].trim_end();
            let Some((name, _)) = before.rsplit_once(": &str =").filter(|(_, rest)| rest.is_empty()) else {
                continue;
            };
            let name = name.rsplit(' ').next().unwrap_or_default();
            if is_compound(&literal.value) {
                constants.insert(literal.value.clone(), format!("{name} in {}", source.path));
            }
        }
    }
    constants
}

fn is_compound(value: &str) -> bool {
    let (first, rest) = value.split_at(value.chars().next().map_or(0, char::len_utf8));
    let is_field = first.chars().all(|c| c.is_ascii_lowercase());
    let plain =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || (is_field && c.is_ascii_uppercase());
    !rest.chars().all(plain) || first.chars().any(|c| !c.is_ascii_alphabetic())
}

/// Kubernetes' own, which every part that speaks Kubernetes may write.
const KUBERNETES_OWN: &[&str] = &[
    "/metrics",
    "/var/run/secrets/kubernetes.io/serviceaccount",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "NO_PROXY",
    "ca.crt",
    "kube-system",
    "kubernetes.io/config.mirror",
    "kubernetes.io/dockerconfigjson",
    "kubernetes.io/service-account-token",
    "kubernetes.io/service-account.name",
    "kubernetes.io/service-account.uid",
    "system:masters",
];

/// Equal to a constant by chance, or needed as a literal.
const SAME_TEXT: &[Exception] = &[
    ("remuda-agent/src/image/push.rs", "/v2", A_REGISTRY),
    ("remuda-agent/src/image/registries.rs", "/v2", A_REGISTRY),
    ("remuda-api/src/rke/cluster.rs", "RKECluster", A_KIND),
    ("remuda-cli/src/evidence.rs", "RKECluster", A_KIND),
    ("remuda-cli/src/gather.rs", "RKECluster", A_KIND),
    ("remuda-drivers/src/azure/api.rs", "AllocationFailed", "an error code of Azure"),
    ("remuda-drivers/src/install.rs", "local://", "the URL of a built-in driver, not a principal"),
    ("remuda-bench/src/machines.rs", "local://", "the URL of a built-in driver, not a principal"),
    ("remuda-machines/src/runner.rs", "machine-jobs", "the name of a controller, not a directory"),
    ("remuda-sandbox-distro/src/config/flags.rs", "system-default-registry", A_FLAG),
    ("remuda-sandbox-distro/src/server/front.rs", "/cacerts", "a path of K3s, not of this server"),
    ("remuda-sandbox-distro/src/server/front.rs", "/ping", "a path of K3s, not of this server"),
    ("remuda-planner/src/desired/config.rs", "system-default-registry", A_FLAG),
    ("remuda-planner/src/distro.rs", "system-default-registry", A_FLAG),
    ("remuda-planner/src/redact/spec.rs", "system-default-registry", A_FLAG),
    ("remuda-provisioning/src/admission/parts.rs", "RKECluster", A_KIND),
    ("remuda-provisioning/src/cluster/graph.rs", "RKECluster", A_KIND),
    ("remuda-provisioning/src/cluster/make.rs", "RKECluster", A_KIND),
    ("remuda-provisioning/src/cluster/observe.rs", "RKECluster", A_KIND),
    ("remuda-provisioning/src/images.rs", "system-default-registry", A_FLAG),
    ("remuda-provisioning/src/management/log.rs", "provisioning-log", "the name of a controller"),
    ("remuda-rke/src/lib.rs", "RKECluster", A_KIND),
    ("remuda-rke/src/rke_cluster.rs", "RKECluster", A_KIND),
    ("remuda-sim/src/objects.rs", "cluster.x-k8s.io/v1beta2", "an API version, not the label"),
    ("remuda-sim/src/provision/steps.rs", "RKECluster", A_KIND),
];

const A_REGISTRY: &str = "a path of every registry, not this server's own";
const A_KIND: &str = "the kind, not the condition";
const A_FLAG: &str = "a flag of K3s and RKE2, not the setting";

#[test]
fn a_name_others_depend_on_is_written_once() {
    let constants = constants();
    assert!(constants.len() > 300, "only {} constants were found", constants.len());
    // Crates below remuda-names in the table know Kubernetes and nothing of ours.
    let may = |name: &str| {
        MAY_USE
            .iter()
            .any(|(other, uses)| *other == name && (uses.contains(&"*") || uses.contains(&"remuda-names")))
    };
    let is_ours = |value: &str| constants.contains_key(value) && !KUBERNETES_OWN.contains(&value);
    let mut found = Vec::new();
    for source in crates().filter(|name| may(name)).flat_map(source::production) {
        for literal in source.literals.iter().filter(|literal| is_ours(&literal.value)) {
            found.push((source.path.clone(), source.line(literal.at), literal.value.clone()));
        }
    }
    check(found, SAME_TEXT, "use the constant of remuda-names");
}

/// What compares or cuts text. Before a literal with words in it, this branches on prose.
const COMPARES: &[&str] = &[
    "contains(",
    "starts_with(",
    "ends_with(",
    "strip_prefix(",
    "strip_suffix(",
    "split_once(",
    "rsplit_once(",
    "find(",
    "split(",
    "==",
    "!=",
];

/// Texts of other programs and formats, which have no other form.
const PROSE: &[Exception] = &[
    ("remuda-objects/src/validate/access.rs", "-----BEGIN NEW CERTIFICATE REQUEST-----", "PEM"),
    ("remuda-auth/src/pki/csr.rs", "client auth", "a usage of certificates in the API"),
    ("remuda-store/src/etcd.rs", "too large", "etcd has one code for all it refuses"),
    ("remuda-server/src/config.rs", ", expected one of ", "of the parser of configuration files"),
    ("remuda-server/src/config.rs", " at line ", "of the parser of configuration files"),
    ("remuda-tunnel/src/stream.rs", "connection refused", "a close frame of remotedialer has text only"),
    (
        "remuda-rollout/src/machine/drain/message.rs",
        "cannot evict pod as it would violate the pod's disruption budget.",
        "the API's answer, and Cluster API's text made of it",
    ),
    (
        "remuda-planner/src/operation/encryption.rs",
        "Current Rotation Stage: ",
        "what K3s and RKE2 print, which all their versions have in this form",
    ),
    ("remuda-planner/src/drain.rs", "error trying to reach service", "the API's answer, in an annotation"),
    ("remuda-cluster-agent/src/hop.rs", "not found", "servers of other makes answer both with 400"),
    ("remuda-drivers/src/digitalocean.rs", "already in use", "the provider has one code for all it refuses"),
    ("remuda-drivers/src/error.rs", "rpc: can't find method", "the plugin protocol has text only"),
    ("remuda-drivers/src/error.rs", " not found", "the plugin protocol has text only"),
    ("remuda-drivers/src/error.rs", "not found", "the plugin protocol has text only"),
    ("remuda-drivers/src/plugin/host.rs", "can't find service", "the plugin protocol has text only"),
    ("remuda-bench/src/process.rs", "remuda is ready", "the output of a process under test"),
    ("remuda-bench/src/provision/local.rs", "machines on this host", "the output of a process under test"),
    ("remuda-cli/src/why/diagnosis.rs", "failed calling webhook \"", "the API's answer, in conditions"),
];

fn branches_on_prose(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.literals.iter().filter(|literal| is_prose(&literal.value)).filter_map(|literal| {
        let before = source.code[..literal.at].trim_end();
        let compared = COMPARES.iter().any(|operator| before.ends_with(operator));
        let compared = compared || constant(before).is_some_and(|name| is_compared(source, name));
        compared.then(|| (source.line(literal.at), literal.value.as_str()))
    })
}

/// The name of the constant that text is, if code ends with `const NAME: &str =`.
fn constant(before: &str) -> Option<&str> {
    let (_, name) = before.strip_suffix(": &str =")?.rsplit_once("const ")?;
    Some(name).filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// Whether text is compared with a constant of the same file.
fn is_compared(source: &Source, name: &str) -> bool {
    source.code.match_indices(name).any(|(at, _)| {
        let whole =
            !source.code[at + name.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let before = source.code[..at].trim_end();
        whole && COMPARES.iter().any(|operator| before.ends_with(operator))
    })
}

/// Two words with a space between them.
fn is_prose(value: &str) -> bool {
    let value = value.trim();
    let mut words = value
        .split(' ')
        .filter(|word| word.len() > 1 && word.chars().all(|c| c.is_alphabetic() || c == '\''));
    words.next().is_some() && words.next().is_some()
}

#[test]
fn nothing_branches_on_prose() {
    let mut found = Vec::new();
    for source in crates().flat_map(source::production) {
        let branches = branches_on_prose(&source);
        found.extend(branches.map(|(line, text)| (source.path.clone(), line, text.to_owned())));
    }
    check(found, PROSE, "a reason is a code, and text is made of it at the end");
}

/// Names whose meaning has a home, the crates that may write them, the rule, and exceptions.
type Home<'a> = (&'a [&'a str], &'static [&'static str], &'static str, &'static [Exception]);

const AT_HOME: &[Home<'static>] = &[(
    &["k3s", "rke2", "k3s1", "rke2r1", "k3s-agent", "rke2-agent", "rke2-server"],
    &["remuda-distro", "remuda-names"],
    "what K3s and RKE2 are stands in remuda_distro::Distro",
    &[("remuda-planner/src/idempotent.rs", "rke2", "the bytes of an instruction, which stay as they are")],
)];

/// Names of drivers that are words of their own, and mean something else elsewhere.
const ORDINARY: &[&str] = &["generic", "google", "local", "pod"];

/// The drivers in the table of `remuda-names`.
fn drivers() -> Vec<String> {
    let sources = source::production("remuda-names");
    let table = sources.iter().find(|source| source.path.ends_with("/driver.rs")).unwrap();
    let begin = table.code.find("const KNOWN").unwrap();
    // The first of each pair: a literal after which the facts begin.
    let is_name = |literal: &&source::Literal| {
        let after = table.code[literal.at + 1..].split_once('"').map_or("", |(_, after)| after);
        literal.at > begin && after.trim_start_matches([',', ' ', '\n']).starts_with("Facts {")
    };
    table.literals.iter().filter(is_name).map(|literal| literal.value.clone()).collect()
}

#[test]
fn facts_about_drivers_and_distributions_are_asked_at_home() {
    let drivers = drivers();
    assert!(drivers.len() > 5, "only {drivers:?} were found");
    let drivers: Vec<&str> =
        drivers.iter().map(String::as_str).filter(|name| !ORDINARY.contains(name)).collect();
    let homes: &[&str] = &["remuda-names", "remuda-drivers", "remuda-bench"];
    let of_drivers: Home<'_> =
        (&drivers, homes, "what is different for a driver stands in remuda_names::driver", &[]);
    for (names, homes, rule, exceptions) in AT_HOME.iter().chain([&of_drivers]) {
        let mut found = Vec::new();
        for source in crates().filter(|name| !homes.contains(name)).flat_map(source::production) {
            for literal in source.literals.iter().filter(|literal| names.contains(&literal.value.as_str())) {
                found.push((source.path.clone(), source.line(literal.at), literal.value.clone()));
            }
        }
        check(found, exceptions, rule);
    }
}

/// What makes a client of HTTP.
const CLIENTS: &[&str] = &[
    "Client::builder(",
    "ClientBuilder",
    "reqwest::Client::new",
    "reqwest::get(",
    "client::conn::",
    "client::legacy",
];

/// Where `remuda-http` is not what is needed.
const OWN_CLIENTS: &[Exception] = &[
    (
        "remuda-agent/src/client.rs",
        "client::conn::",
        "the node agent stays small, and tunnels begin below HTTP",
    ),
    (
        "remuda-apiserver/src/admission/client.rs",
        "client::conn::",
        "webhooks: TLS by bundle as Kubernetes has it",
    ),
    ("remuda-bench/src/dashboard/browser.rs", "client::conn::", "a browser's driver, on this host"),
    ("remuda-bench/src/http.rs", "client::conn::", "measures a server, with as little of its own as can be"),
    ("remuda-gateway/src/route.rs", "Client::builder(", THROUGH_A_TUNNEL),
    ("remuda-gateway/src/route.rs", "client::legacy", THROUGH_A_TUNNEL),
    ("remuda-sandbox-distro/src/http.rs", "client::conn::", "nodes of the sandbox speak as the agent does"),
    (
        "remuda-sandbox-distro/src/server/kubelets.rs",
        "client::conn::",
        "connections are handed over by upgrades",
    ),
    (
        "remuda-server/src/admin.rs",
        "client::conn::",
        "one connection to a server of this program, with its certificate",
    ),
    ("remuda-sim/src/provision/door.rs", "client::conn::", "thousands of simulated agents"),
];

const THROUGH_A_TUNNEL: &str = "connections go through the tunnel of a cluster";

#[test]
fn clients_of_http_are_made_in_one_place() {
    let mut found = Vec::new();
    for source in crates().filter(|name| *name != "remuda-http").flat_map(source::production) {
        for made in CLIENTS {
            let at = source.code.match_indices(made).map(|(at, _)| at);
            found.extend(at.map(|at| (source.path.clone(), source.line(at), (*made).to_owned())));
        }
    }
    check(found, OWN_CLIENTS, "remuda_http::client bounds waits and follows no redirects");
}

#[test]
fn the_rules_see_what_they_are_about() {
    let source =
        source::parse("x.rs", "fn f(m: &str) -> bool { m.starts_with(\"waiting for\") || m == \"a b\" }");
    assert_eq!(branches_on_prose(&source).collect::<Vec<_>>(), [(1, "waiting for")]);
    let source = source::parse(
        "x.rs",
        "const SAID: &str = \"waiting for\";\nconst TOLD: &str = \"some text\";\nfn f(m: &str) -> bool { m.contains(SAID) }",
    );
    assert_eq!(branches_on_prose(&source).collect::<Vec<_>>(), [(1, "waiting for")]);
    for (value, compound) in [
        ("name", false),
        ("Ready", false),
        ("expiresAt", false),
        ("UpToDate", true),
        ("a.b", true),
        ("/x", true),
    ] {
        assert_eq!(is_compound(value), compound, "{value}");
    }
}
