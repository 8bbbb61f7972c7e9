//! Releases of our own providers, in the layout in which `clusterctl` reads them, and the door they are behind.
//!
//! ```text
//! /remuda/v1/clusterctl                                                          what there is, as JSON
//! /remuda/v1/clusterctl/infrastructure-remuda/v0.1.0/metadata.yaml               which contract it keeps
//! /remuda/v1/clusterctl/infrastructure-remuda/v0.1.0/infrastructure-components.yaml
//! /remuda/v1/clusterctl/infrastructure-remuda/v0.1.0/cluster-template.yaml       and one for each driver
//! ```
//!
//! There is one release, that of this server, and so it is with the core provider: who reads releases here is never
//! offered a newer one than what is running. `clusterctl` takes releases from GitHub, GitLab and directories only, so
//! `remuda capi repository` copies them into one; a single template it reads from the URL.

use std::{fmt::Write as _, sync::Arc};

use futures::future::BoxFuture;
use http::{HeaderValue, Response, header};
use remuda_api::{clusterctl, crd};
use remuda_door::{Access, Answer, Body, Call, Cookie, Door, Handler, Opening, Owned, Refusal, Shown};
use remuda_names::{
    PROGRAM,
    capi::group,
    driver::{self, Listing},
    path,
    rancher::{annotation::driver::PRIVATE_CREDENTIALS, group as rancher},
};
use serde_json::{Value, json};

use crate::VERSION;

/// It is the same for everybody, and no secret: names of kinds and of fields.
pub(crate) static REPOSITORY: Door = Door {
    name: "clusterctl",
    purpose: "releases of the providers in this server, as clusterctl reads them: metadata, components, templates",
    paths: &[Owned::Tree(path::CLUSTERCTL)],
    methods: &["GET"],
    access: Access::Anonymous,
    cookie: Cookie::Never,
    shown: Shown::Path,
    body: 0,
    personal: false,
};

const YAML: HeaderValue = HeaderValue::from_static("application/yaml");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const METADATA: &str = "metadata.yaml";
const TEMPLATE: &str = "cluster-template";
/// The driver of the template that has no name.
const DEFAULT_DRIVER: &str = "local";
/// The template of clusters whose servers register themselves.
const CUSTOM: &str = "custom";

/// The release that this server is.
pub(crate) fn version() -> String {
    format!("v{VERSION}")
}

/// A provider that is part of this server.
pub(crate) struct Provider {
    pub(crate) name: &'static str,
    /// `InfrastructureProvider` and the like.
    pub(crate) kind: &'static str,
    /// What its name begins with in labels and directories.
    prefix: &'static str,
    components: &'static str,
    /// Its definitions.
    definitions: &'static [&'static str],
}

/// Ours beside the core.
pub(crate) static OWN: [Provider; 3] = [
    Provider {
        name: PROGRAM,
        kind: "InfrastructureProvider",
        prefix: "infrastructure-",
        components: "infrastructure-components.yaml",
        definitions: &["rkeclusters.rke.cattle.io", "custommachines.rke.cattle.io"],
    },
    Provider {
        name: PROGRAM,
        kind: "BootstrapProvider",
        prefix: "bootstrap-",
        components: "bootstrap-components.yaml",
        definitions: &["rkebootstraps.rke.cattle.io", "rkebootstraptemplates.rke.cattle.io"],
    },
    Provider {
        name: PROGRAM,
        kind: "ControlPlaneProvider",
        prefix: "control-plane-",
        components: "control-plane-components.yaml",
        definitions: &["rkecontrolplanes.rke.cattle.io", "etcdsnapshots.rke.cattle.io"],
    },
];

impl Provider {
    /// How clusterctl calls it in labels, directories and its inventory.
    pub(crate) fn label(&self) -> String {
        format!("{}{}", self.prefix, self.name)
    }

    fn directory(&self) -> String {
        format!("{}/{}", self.label(), version())
    }

    fn has_templates(&self) -> bool {
        self.kind == OWN[0].kind
    }
}

/// A file by its path, and how it is made.
struct File {
    path: String,
    text: Box<dyn Fn() -> String + Send + Sync>,
}

impl File {
    fn new(path: String, text: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { path, text: Box::new(text) }
    }
}

fn core_directory() -> String {
    format!("{}/{}", clusterctl::CORE, clusterctl::CORE_VERSION)
}

const CORE_COMPONENTS: &str = "core-components.yaml";

fn files() -> Vec<File> {
    let core = core_directory();
    let mut files = vec![
        File::new(format!("{core}/{METADATA}"), || metadata(clusterctl::CORE_VERSION)),
        File::new(format!("{core}/{CORE_COMPONENTS}"), || {
            components(clusterctl::CORE_NAMESPACE, crd::all().collect())
        }),
    ];
    for provider in &OWN {
        let directory = provider.directory();
        let definitions = provider.definitions;
        files.push(File::new(format!("{directory}/{METADATA}"), || metadata(&version())));
        files.push(File::new(format!("{directory}/{}", provider.components), move || {
            let definitions = definitions.iter().filter_map(|name| crd::named(name)).collect();
            components(clusterctl::PROVIDER_NAMESPACE, definitions)
        }));
        if provider.has_templates() {
            files.extend(templates(&directory));
        }
    }
    files
}

fn templates(directory: &str) -> Vec<File> {
    let of = |name: &str, listing: &'static Listing| {
        let name = name.to_owned();
        move || template(&name, listing)
    };
    let mut files = Vec::new();
    for (name, _, listing) in driver::listed() {
        if name == DEFAULT_DRIVER {
            files.push(File::new(format!("{directory}/{TEMPLATE}.yaml"), of(name, listing)));
        }
        files.push(File::new(format!("{directory}/{TEMPLATE}-{name}.yaml"), of(name, listing)));
    }
    files.push(File::new(format!("{directory}/{TEMPLATE}-{CUSTOM}.yaml"), custom));
    files.sort_by(|left, right| left.path.cmp(&right.path));
    files
}

/// Which contract each series of releases keeps. There is the one series.
fn metadata(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next().unwrap_or("0").to_owned();
    let (major, minor) = (number(), number());
    format!(
        "apiVersion: {}/v1alpha3\nkind: Metadata\nreleaseSeries:\n- major: {major}\n  minor: {minor}\n  contract: v1beta2\n",
        group::CLUSTERCTL
    )
}

/// Definitions, for those who want to see them or to check manifests. Every JSON document is a YAML document.
fn components(namespace: &str, definitions: Vec<Value>) -> String {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let objects = [namespace].into_iter().chain(definitions);
    objects.map(|object| format!("{object}\n")).collect::<Vec<_>>().join("---\n")
}

/// A cluster of machines of a driver.
fn template(driver: &str, listing: &Listing) -> String {
    let kind = remuda_machines::config_kind(driver);
    let mut text = String::new();
    for pool in ["servers", "workers"] {
        let _ = write!(
            text,
            "apiVersion: {}/v1\nkind: {kind}\nmetadata:\n  name: nc-${{CLUSTER_NAME}}-{pool}\n",
            rancher::MACHINE_CONFIG
        );
        for (field, usual) in listing.asked {
            let usual = usual.map(|usual| format!(":={usual}")).unwrap_or_default();
            let _ = writeln!(text, "{field}: \"${{{}{usual}}}\"", variable(driver, field));
        }
        text.push_str("---\n");
    }
    let needs_credential = listing.annotations.iter().any(|(name, _)| *name == PRIVATE_CREDENTIALS);
    text.push_str(&head());
    if needs_credential {
        text.push_str("  cloudCredentialSecretName: \"${CLOUD_CREDENTIAL}\"\n");
    }
    text.push_str("  rkeConfig:\n    machinePools:\n");
    for (pool, count, roles) in [
        ("servers", "CONTROL_PLANE_MACHINE_COUNT:=1", &["controlPlaneRole", "etcdRole", "workerRole"][..]),
        ("workers", "WORKER_MACHINE_COUNT:=0", &["workerRole"][..]),
    ] {
        let _ = write!(text, "    - name: {pool}\n      quantity: ${{{count}}}\n");
        for role in roles {
            let _ = writeln!(text, "      {role}: true");
        }
        let _ = write!(
            text,
            "      drainBeforeDelete: true\n      drainBeforeDeleteTimeout: 10m\n      machineConfigRef:\n        \
             kind: {kind}\n        name: nc-${{CLUSTER_NAME}}-{pool}\n"
        );
    }
    text
}

/// A cluster of servers that register themselves.
fn custom() -> String {
    format!("{}  rkeConfig: {{}}\n", head())
}

fn head() -> String {
    format!(
        "apiVersion: {}/v1\nkind: Cluster\nmetadata:\n  name: ${{CLUSTER_NAME}}\nspec:\n  kubernetesVersion: \
         ${{KUBERNETES_VERSION}}\n",
        rancher::PROVISIONING
    )
}

/// The variable of a field: `HETZNER_SERVER_TYPE` of `serverType`.
fn variable(driver: &str, field: &str) -> String {
    let mut name = format!("{}_", driver.to_ascii_uppercase());
    for letter in field.chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// What there is: each provider with the place of its components, and all files.
fn index() -> Value {
    let entry = |name: &str, kind: &str, path: String| json!({"name": name, "type": kind, "path": path});
    let core = entry(clusterctl::CORE, "CoreProvider", format!("{}/{CORE_COMPONENTS}", core_directory()));
    let own = OWN.iter().map(|provider| {
        entry(provider.name, provider.kind, format!("{}/{}", provider.directory(), provider.components))
    });
    let paths: Vec<String> = files().into_iter().map(|file| file.path).collect();
    let providers: Vec<Value> = [core].into_iter().chain(own).collect();
    json!({"providers": providers, "files": paths})
}

/// What is behind the door.
pub(crate) struct Repository;

impl Repository {
    pub(crate) fn opening() -> Opening {
        Opening { door: &REPOSITORY, handler: Arc::new(Repository) }
    }
}

impl Handler for Repository {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        let answer = answer(call.path());
        Box::pin(async move { answer })
    }
}

fn answer(asked: &str) -> Answer {
    let rest = asked.strip_prefix(path::CLUSTERCTL).unwrap_or_default().trim_matches('/');
    let (kind, text) = match rest {
        "" => (JSON, format!("{:#}\n", index())),
        rest => {
            let file = files().into_iter().find(|file| file.path == rest).ok_or_else(Refusal::not_found)?;
            (YAML, (file.text)())
        }
    };
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> String {
        files().into_iter().find(|file| file.path.ends_with(path)).map(|file| (file.text)()).unwrap()
    }

    /// The template with its variables put in, as clusterctl does it.
    fn filled(text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (inside, after) = after.split_once('}').unwrap();
            let (_, usual) = inside.split_once(":=").unwrap_or((inside, "x"));
            filled.push_str(before);
            filled.push_str(usual);
            rest = after;
        }
        filled + rest
    }

    #[test]
    fn every_driver_has_a_template_and_all_files_are_yaml() {
        for file in files() {
            let text = filled(&(file.text)());
            for document in text.split("---\n") {
                let read: Value =
                    serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{}: {error}", file.path));
                assert!(read["kind"].is_string(), "{}: {document}", file.path);
            }
        }
        for (driver, ..) in driver::listed() {
            assert!(text(&format!("cluster-template-{driver}.yaml")).contains("${CLUSTER_NAME}"));
        }
        assert_eq!(text("cluster-template.yaml"), text("cluster-template-local.yaml"));
        assert!(
            text("cluster-template-hetzner.yaml").contains("serverType: \"${HETZNER_SERVER_TYPE:=cx23}\"")
        );
        assert!(text("cluster-template-hetzner.yaml").contains("${CLOUD_CREDENTIAL}"));
        assert!(!text("cluster-template-local.yaml").contains("CREDENTIAL"));
    }

    #[test]
    fn what_a_provider_is_called_is_the_same_everywhere() {
        let index = index();
        let paths: Vec<&str> = index["files"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for provider in index["providers"].as_array().unwrap() {
            assert!(paths.contains(&provider["path"].as_str().unwrap()), "{provider}");
        }
        let labels: Vec<String> = OWN.iter().map(Provider::label).collect();
        assert_eq!(labels, ["infrastructure-remuda", "bootstrap-remuda", "control-plane-remuda"]);
        assert!(metadata("v1.14.0").contains("major: 1\n  minor: 14\n  contract: v1beta2"));
        assert!(answer("/remuda/v1/clusterctl/../backup").is_err());
        assert!(answer("/remuda/v1/clusterctl").is_ok());
    }
}
