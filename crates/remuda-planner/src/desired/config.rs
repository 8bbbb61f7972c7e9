//! The distribution's configuration file.

use std::{collections::BTreeMap, rc::Rc};

use remuda_distro::Distro;
use remuda_names::rancher::{annotation, label};
use serde_json::{Value, json};

use super::{Renderer, Unrenderable, addresses, s3, values};
use crate::{distro, entry::Entry, node_plan::File, selector};

pub(super) type Config = BTreeMap<String, Value>;

pub(super) const CONTROLLER_MANAGER: Component =
    Component { name: "kube-controller-manager", port: "10257", arg: "kube-controller-manager-arg" };
pub(super) const SCHEDULER: Component =
    Component { name: "kube-scheduler", port: "10259", arg: "kube-scheduler-arg" };

/// A component that must serve its health over TLS with a certificate the agent can find.
pub(super) struct Component {
    pub(super) name: &'static str,
    pub(super) port: &'static str,
    pub(super) arg: &'static str,
}

impl Component {
    pub(super) fn cert_dir(&self, data_dir: &str) -> String {
        format!("{data_dir}/server/tls/{}", self.name)
    }

    /// Adds the arguments probes rely on, unless the user has set them.
    fn complete(&self, config: &mut Config, distro: Distro, data_dir: &str) {
        let mut args = values::texts(config.get(self.arg));
        let own_file = values::argument(&args, "tls-cert-file");
        let own_dir = values::argument(&args, "cert-dir");
        let default = self.cert_dir(data_dir);
        let effective = match (own_file, own_dir) {
            ("", "") => default.clone(),
            ("", dir) => dir.to_owned(),
            (file, _) => parent(file).to_owned(),
        };
        let add_dir = own_file.is_empty() && own_dir.is_empty();
        let add_port = values::argument(&args, "secure-port").is_empty();
        if add_dir {
            args.push(format!("cert-dir={default}"));
        }
        if add_port {
            args.push(format!("secure-port={}", self.port));
        }
        config.insert(self.arg.to_owned(), values::list(args));
        if distro == Distro::Rke2 {
            let key = format!("{}-extra-mount", self.name);
            let mut mounts = values::texts(config.get(&key));
            mounts.push(format!("{effective}:{effective}"));
            config.insert(key, values::list(mounts));
        }
    }
}

fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((parent, _)) => parent,
        None => ".",
    }
}

/// The configuration before files are moved out of it.
pub(super) struct Rendered {
    pub(super) config: Config,
    /// Files S3 needs.
    pub(super) files: Vec<File>,
    /// The server the node joins; empty on the init node.
    pub(super) joined_to: String,
}

/// What the user asked for, as far as this version knows it.
pub(super) fn user_config(renderer: &Renderer<'_>, entry: &Entry<'_>) -> Result<Rc<Config>, Unrenderable> {
    let spec = &renderer.input.control_plane.spec;
    let selected: Result<Vec<bool>, _> = spec
        .machine_selector_config
        .iter()
        .map(|selected| selector::matches(selected.machine_label_selector.as_ref(), &entry.machine.labels))
        .collect();
    let key = (entry.roles.server(), selected?);
    if let Some(known) = renderer.user_configs.borrow().get(&key) {
        return Ok(Rc::clone(known));
    }
    let mut merged: BTreeMap<&str, &Value> = BTreeMap::new();
    let calico = Value::String("calico".to_owned());
    if renderer.distro == Distro::Rke2 {
        merged.insert("cni", &calico);
    }
    merged.extend(spec.machine_global_config.iter().map(|(key, value)| (key.as_str(), value)));
    for (selected, _) in spec.machine_selector_config.iter().zip(&key.1).filter(|(_, matches)| **matches) {
        merged.extend(selected.config.iter().map(|(key, value)| (key.as_str(), value)));
    }
    let mut config = Config::new();
    for (name, value) in merged {
        let Some(argument) = renderer.input.release.argument(name, key.0) else { continue };
        let value = match value {
            // Numbers, objects and nulls have never reached nodes.
            Value::Null | Value::Number(_) | Value::Object(_) => continue,
            value if argument.is_boolean() => Value::Bool(values::is_true(value)),
            value => value.clone(),
        };
        config.insert(name.to_owned(), value);
    }
    let config = Rc::new(config);
    renderer.user_configs.borrow_mut().insert(key, Rc::clone(&config));
    Ok(config)
}

pub(super) fn render(
    renderer: &Renderer<'_>,
    entry: &Entry<'_>,
    join_server: &str,
) -> Result<Rendered, Unrenderable> {
    let spec = &renderer.input.control_plane.spec;
    let user = user_config(renderer, entry)?;
    let mut config = Config::clone(&user);
    if !spec.data_directories.k8s_distro.is_empty() {
        config.insert("data-dir".to_owned(), json!(spec.data_directories.k8s_distro));
    }
    let files = etcd(renderer, entry, &mut config)?;
    let joined_to = role(renderer, entry, join_server, &mut config)?;
    prime(renderer, entry, &mut config);
    if spec.local_cluster_auth_endpoint.enabled && !entry.roles.only_worker() {
        let mut args = values::texts(config.get("kube-apiserver-arg"));
        args.push(format!("authentication-token-webhook-config-file={}", renderer.webhook_path()));
        config.insert("kube-apiserver-arg".to_owned(), values::list(args));
    }
    tokens(renderer, entry, &mut config);
    addresses::add(entry, &mut config)?;
    labels(renderer, entry, &mut config)?;
    let mut taints: Vec<String> = renderer
        .taints(entry)?
        .iter()
        .filter(|taint| !taint.key.is_empty())
        .map(ToString::to_string)
        .collect();
    taints.sort_unstable();
    config.insert("node-taint".to_owned(), values::list(taints));
    Ok(Rendered { config, files, joined_to })
}

fn etcd(renderer: &Renderer<'_>, entry: &Entry<'_>, config: &mut Config) -> Result<Vec<File>, Unrenderable> {
    let Some(etcd) = renderer.input.control_plane.spec.etcd.as_ref().filter(|_| entry.roles.etcd) else {
        return Ok(Vec::new());
    };
    if etcd.disable_snapshots {
        config.insert("etcd-disable-snapshots".to_owned(), json!(true));
    }
    if etcd.snapshot_retention > 0 {
        config.insert("etcd-snapshot-retention".to_owned(), json!(etcd.snapshot_retention));
    }
    if !etcd.snapshot_schedule_cron.is_empty() {
        config.insert("etcd-snapshot-schedule-cron".to_owned(), json!(etcd.snapshot_schedule_cron));
    }
    match &etcd.s3 {
        Some(s3) => s3::add(renderer, s3, config),
        None => Ok(Vec::new()),
    }
}

fn role(
    renderer: &Renderer<'_>,
    entry: &Entry<'_>,
    join_server: &str,
    config: &mut Config,
) -> Result<String, Unrenderable> {
    let spec = &renderer.input.control_plane.spec;
    let mut yes = |key: &str| {
        config.insert(key.to_owned(), Value::Bool(true));
    };
    let server = if entry.init {
        if renderer.distro == Distro::K3s {
            yes("cluster-init");
        }
        ""
    } else if !join_server.is_empty() {
        join_server
    } else if entry.has_annotation(annotation::JOINED_TO) {
        entry.joined_to()
    } else {
        return Err(Unrenderable::ImplausibleServer);
    };
    if entry.roles.only_etcd() {
        yes("disable-scheduler");
        yes("disable-apiserver");
        yes("disable-controller-manager");
    } else if entry.roles.control_plane && !entry.roles.etcd {
        yes("disable-etcd");
    }
    if !server.is_empty() {
        config.insert("server".to_owned(), json!(server));
    }
    let (registry, _) = distro::system_registry(spec, &renderer.input.settings.system_default_registry);
    if !registry.is_empty() && !entry.roles.only_worker() {
        config.insert("system-default-registry".to_owned(), json!(registry));
    }
    if entry.roles.control_plane {
        CONTROLLER_MANAGER.complete(config, renderer.distro, &renderer.data_dir);
        SCHEDULER.complete(config, renderer.distro, &renderer.data_dir);
    }
    let name = entry.label(label::NODE_NAME);
    if !name.is_empty() {
        config.insert("node-name".to_owned(), json!(name));
    }
    Ok(server.to_owned())
}

fn prime(renderer: &Renderer<'_>, entry: &Entry<'_>, config: &mut Config) {
    let input = renderer.input;
    let enabled = match input.control_plane.annotations.get(annotation::PRIME).map(String::as_str) {
        None | Some("") => input.settings.prime,
        Some(own) => own.eq_ignore_ascii_case("true"),
    };
    let known = input.release.server_args.contains_key("prime");
    let server = !entry.roles.only_worker();
    if enabled && known && server && renderer.distro == Distro::Rke2 && !config.contains_key("prime") {
        config.insert("prime".to_owned(), Value::Bool(true));
    }
}

fn tokens(renderer: &Renderer<'_>, entry: &Entry<'_>, config: &mut Config) {
    let tokens = renderer.tokens;
    if tokens.server.is_empty() {
        return;
    }
    if entry.roles.only_worker() {
        config.insert("token".to_owned(), json!(tokens.agent));
    } else {
        config.insert("token".to_owned(), json!(tokens.server));
        config.insert("agent-token".to_owned(), json!(tokens.agent));
    }
}

fn labels(renderer: &Renderer<'_>, entry: &Entry<'_>, config: &mut Config) -> Result<(), Unrenderable> {
    let own: BTreeMap<String, String> = match entry.annotation(annotation::LABELS) {
        "" => BTreeMap::new(),
        text => serde_json::from_str::<Option<_>>(text)
            .map_err(|_| Unrenderable::Annotation {
                key: annotation::LABELS,
                machine: entry.name().to_owned(),
            })?
            .unwrap_or_default(),
    };
    let mut labels: Vec<String> = own.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let group = remuda_names::capi::group::CORE;
    let cluster = renderer.input.cluster.as_ref().map_or("", |cluster| cluster.name.as_str());
    let machine = entry.machine;
    labels.push(format!("{}={}", label::MACHINE, machine.uid));
    labels.push(format!("{}={group}", label::lifecycle::CLUSTER_GROUP));
    labels.push(format!("{}=Cluster", label::lifecycle::CLUSTER_KIND));
    labels.push(format!("{}={cluster}", label::lifecycle::CLUSTER_NAME));
    labels.push(format!("{}={group}", label::lifecycle::MACHINE_GROUP));
    labels.push(format!("{}=Machine", label::lifecycle::MACHINE_KIND));
    labels.push(format!("{}={}", label::lifecycle::MACHINE_NAME, machine.name));
    labels.sort_unstable();
    config.insert("node-label".to_owned(), values::list(labels));
    Ok(())
}

/// Nothing empty reaches a node.
pub(super) fn prune(config: &mut Config) {
    config.retain(|_, value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    });
}
