//! All files of a plan, in order.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_names::{endpoint, rancher::annotation};
use remuda_plan::json as go_json;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    Renderer, Unrenderable,
    config::{self, Config},
    values,
};
use crate::{
    distro,
    entry::Entry,
    input::Secret,
    node_plan::File,
    selector,
    spec::{KeyToPath, ObjectFiles},
};

/// Files, and what the rest of the plan needs of them.
pub(super) struct Files {
    pub(super) files: Vec<File>,
    /// Where the configuration file is among them, and how the drain hash sees it.
    pub(super) config_at: usize,
    pub(super) drain_text: String,
    pub(super) config: Config,
    pub(super) joined_to: String,
}

const CLOUD_PROVIDER_CONFIG: &str = "cloud-provider-config";
const PRIVATE_REGISTRY: &str = "private-registry";

impl Renderer<'_> {
    pub(super) fn files(&self, entry: &Entry<'_>, join_server: &str) -> Result<Files, Unrenderable> {
        let registries = self.registries.as_ref().map_err(Clone::clone)?;
        let mut files: Vec<File> = Vec::with_capacity(12);
        files.extend(registries.agent_file.clone());
        files.extend(registries.certificates.iter().cloned());
        let config::Rendered { mut config, files: s3, joined_to } = config::render(self, entry, join_server)?;
        files.extend(s3);
        self.parameter_files(&registries.raw, &mut config, &mut files)?;
        self.selected_files(entry, &mut files)?;
        config::prune(&mut config);
        // Where a node joins is a reason to restart it, but none to drain it.
        let entries = config.iter().map(|(key, value)| (key.as_str(), value));
        let (text, drain_text) = go_json::indented(entries, &["server", "cluster-init"]);
        let config_at = files.len();
        files.push(File::new(self.distro.config_path(), text.as_bytes()));
        self.manifests(entry, &mut files)?;
        if self.input.control_plane.spec.local_cluster_auth_endpoint.enabled && !entry.roles.only_worker() {
            files.push(File::new(self.webhook_path(), self.webhook().as_bytes()));
        }
        files.push(self.idempotent_script(entry));
        Ok(Files { files, config_at, drain_text, config, joined_to })
    }

    pub(super) fn config_file(&self, name: &str) -> String {
        format!("{}/etc/config-files/{name}", self.data_dir)
    }

    pub(super) fn webhook_path(&self) -> String {
        format!("{}/kube-api-authn-webhook.yaml", self.data_dir)
    }

    /// The API server's way to ask the authentication proxy of its own node.
    fn webhook(&self) -> String {
        let host = distro::loopback(&self.input.control_plane.spec.networking);
        let (port, path) = (endpoint::PORT, endpoint::PATH);
        format!(
            "\napiVersion: v1\nkind: Config\nclusters:\n- name: Default\n  cluster:\n    \
             insecure-skip-tls-verify: true\n    server: http://{host}:{port}{path}\nusers:\n\
             - name: Default\n  user:\n    insecure-skip-tls-verify: true\ncurrent-context: webhook\n\
             contexts:\n- name: webhook\n  context:\n    user: Default\n    cluster: Default\n"
        )
    }

    fn idempotent_script(&self, entry: &Entry<'_>) -> File {
        if entry.windows && entry.roles.only_worker() {
            return File::new(
                crate::idempotent::WINDOWS_SCRIPT_PATH,
                crate::idempotent::WINDOWS_SCRIPT.as_bytes(),
            )
            .dynamic()
            .minor();
        }
        let make = || {
            let path = crate::idempotent::script_path(&self.input.control_plane.spec);
            File::new(path, crate::idempotent::SCRIPT.as_bytes()).dynamic().minor()
        };
        self.script.get_or_init(make).clone()
    }

    /// Arguments whose value is the content of a file: the content moves out, the path moves in.
    fn parameter_files(
        &self,
        registries: &str,
        config: &mut Config,
        files: &mut Vec<File>,
    ) -> Result<(), Unrenderable> {
        for parameter in ["audit-policy-file", CLOUD_PROVIDER_CONFIG, PRIVATE_REGISTRY, "flannel-conf"] {
            let file = if parameter == PRIVATE_REGISTRY {
                File::new(self.distro.registries_path(), registries.as_bytes())
            } else {
                let Some(value) = config.get(parameter) else { continue };
                let text = values::text(value);
                let path = self.config_file(parameter);
                match text.strip_prefix("secret://").filter(|_| parameter == CLOUD_PROVIDER_CONFIG) {
                    Some(reference) => File::new(path, self.cloud_config(reference)?),
                    None => File::new(path, text.as_bytes()),
                }
            };
            config.insert(parameter.to_owned(), json!(file.path));
            files.push(file);
        }
        Ok(())
    }

    fn cloud_config(&self, reference: &str) -> Result<&[u8], Unrenderable> {
        let (namespace, name) = match reference.split_once(':') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains(':') => {
                (namespace.to_owned(), name.to_owned())
            }
            _ => return Err(Unrenderable::CloudConfigFormat),
        };
        let key = (namespace.clone(), name.clone());
        let Some(secret) = self.input.resources.secrets.get(&key) else {
            return Err(Unrenderable::NotFound { kind: "secret", namespace, name });
        };
        let cluster = self.input.control_plane.name.clone();
        if !authorized(&secret.annotations, annotation::SECRET_AUTHORIZED_FOR_CLUSTER, &cluster) {
            return Err(Unrenderable::CloudConfigForeign { namespace, name, cluster });
        }
        let content = secret.data.get("credential").map(Vec::as_slice);
        content.ok_or(Unrenderable::CloudConfigEmpty { namespace, name })
    }

    fn selected_files(&self, entry: &Entry<'_>, files: &mut Vec<File>) -> Result<(), Unrenderable> {
        let control_plane = &self.input.control_plane;
        for selected in &control_plane.spec.machine_selector_files {
            if !selector::matches(selected.machine_label_selector.as_ref(), &entry.machine.labels)? {
                continue;
            }
            for source in &selected.file_sources {
                if !source.secret.name.is_empty() && !source.config_map.name.is_empty() {
                    return Err(Unrenderable::TwoSources {
                        namespace: control_plane.namespace.clone(),
                        secret: source.secret.name.clone(),
                        config_map: source.config_map.name.clone(),
                    });
                }
                if !source.secret.name.is_empty() {
                    let Secret { annotations, data, .. } = self.source("secret", &source.secret)?;
                    let value = |key: &str| data.get(key).map(Vec::as_slice).unwrap_or_default();
                    self.object_files("secret", &source.secret, annotations, value, files)?;
                }
                if !source.config_map.name.is_empty() {
                    let key = (control_plane.namespace.clone(), source.config_map.name.clone());
                    let Some(object) = self.input.resources.config_maps.get(&key) else {
                        return Err(Unrenderable::NotFound {
                            kind: "configmap",
                            namespace: key.0,
                            name: key.1,
                        });
                    };
                    let value = |key: &str| object.data.get(key).map(String::as_bytes).unwrap_or_default();
                    self.object_files("configmap", &source.config_map, &object.annotations, value, files)?;
                }
            }
        }
        Ok(())
    }

    fn source(&self, kind: &'static str, source: &ObjectFiles) -> Result<&Secret, Unrenderable> {
        let key = (self.input.control_plane.namespace.clone(), source.name.clone());
        let found = self.input.resources.secrets.get(&key);
        found.ok_or_else(|| Unrenderable::NotFound { kind, namespace: key.0.clone(), name: key.1.clone() })
    }

    fn object_files<'v>(
        &self,
        kind: &'static str,
        source: &ObjectFiles,
        annotations: &BTreeMap<String, String>,
        value: impl Fn(&str) -> &'v [u8],
        files: &mut Vec<File>,
    ) -> Result<(), Unrenderable> {
        let control_plane = &self.input.control_plane;
        if !authorized(annotations, annotation::AUTHORIZED_FOR_CLUSTERS, &control_plane.name) {
            return Err(Unrenderable::Unauthorized {
                cluster: format!("{}/{}", control_plane.namespace, control_plane.name),
                kind,
                namespace: control_plane.namespace.clone(),
                name: source.name.clone(),
            });
        }
        for KeyToPath { key, path, dynamic, permissions, hash } in &source.items {
            let content = value(key);
            if !hash.is_empty() && *hash != BASE64_STANDARD.encode(Sha256::digest(content)) {
                return Err(Unrenderable::UnexpectedContent { kind, name: source.name.clone() });
            }
            let permissions = if permissions.is_empty() { &source.default_permissions } else { permissions };
            files.push(File {
                dynamic: *dynamic,
                permissions: permissions.clone(),
                ..File::new(path.as_str(), content)
            });
        }
        Ok(())
    }
}

fn authorized(annotations: &BTreeMap<String, String>, key: &str, cluster: &str) -> bool {
    !cluster.is_empty()
        && annotations.get(key).is_some_and(|clusters| clusters.split(',').any(|name| name == cluster))
}
