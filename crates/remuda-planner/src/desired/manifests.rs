//! Manifests the distribution deploys by itself.

use remuda_names::rancher::annotation;
use remuda_plan::json as go_json;
use serde_json::{Map, Value, json};

use super::{Renderer, Unrenderable, config};
use crate::{entry::Entry, node_plan::File};

impl Renderer<'_> {
    pub(super) fn manifests(&self, entry: &Entry<'_>, files: &mut Vec<File>) -> Result<(), Unrenderable> {
        if !self.input.pre_bootstrap.is_empty() {
            files.extend(self.input.pre_bootstrap.iter().cloned());
        } else if entry.roles.control_plane {
            self.control_plane_manifests(entry, files)?;
        }
        if !entry.roles.only_worker() {
            files.push(self.charts(entry)?);
        }
        Ok(())
    }

    /// An agent cannot take back a file: what is no longer wanted is written empty.
    fn control_plane_manifests(&self, entry: &Entry<'_>, files: &mut Vec<File>) -> Result<(), Unrenderable> {
        let control_plane = &self.input.control_plane;
        let distro = self.distro.name();
        let path = |name: &str| format!("{}/server/manifests/rancher/{name}", self.data_dir);
        let content = self.agent_manifest(entry)?;
        let agent = File { content, path: path("cluster-agent.yaml"), ..File::default() };
        files.push(agent.dynamic().minor());
        if let Some(spec) = control_plane.annotations.get(annotation::CLUSTER_SPEC) {
            let name = format!("{distro}-etcd-snapshot-extra-metadata");
            let manifest = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: kube-system\n\
                 data:\n  provisioning-cluster-spec: {}\n",
                quoted(spec)
            );
            files.push(File::new(path(&format!("{name}.yaml")), manifest.as_bytes()).dynamic().minor());
        }
        let addons = control_plane.spec.additional_manifest.as_bytes();
        files.push(File::new(path("addons.yaml"), addons).dynamic());
        Ok(())
    }

    fn charts(&self, entry: &Entry<'_>) -> Result<File, Unrenderable> {
        let values = &self.input.control_plane.spec.chart_values;
        // Only this provider's storage driver has to be told which cluster it is in without being configured.
        let implied = "rancher-vsphere-csi";
        let vsphere = values.get(implied).is_none_or(Value::is_null)
            && config::user_config(self, entry)?.get("cloud-provider-name")
                == Some(&json!("rancher-vsphere"));
        let make = || {
            let mut charts: Vec<(&str, &Value)> =
                values.iter().map(|(name, values)| (name.as_str(), values)).collect();
            if vsphere {
                charts.retain(|(name, _)| *name != implied);
                charts.push((implied, &Value::Null));
                charts.sort_unstable_by_key(|(name, _)| *name);
            }
            let cluster = &self.input.control_plane.spec.management_cluster_name;
            let documents: Vec<String> =
                charts.into_iter().map(|(name, values)| chart_config(name, values, cluster)).collect();
            let path = format!("{}/server/manifests/rancher/managed-chart-config.yaml", self.data_dir);
            File::new(path, documents.join("---\n").as_bytes()).dynamic()
        };
        Ok(self.charts[usize::from(vsphere)].get_or_init(make).clone())
    }
}

fn chart_config(name: &str, values: &Value, cluster: &str) -> String {
    let mut values = values.as_object().cloned().unwrap_or_default();
    let object = |parent: &mut Map<String, Value>, key: &str| -> Map<String, Value> {
        parent
            .remove(key)
            .and_then(|value| if let Value::Object(map) = value { Some(map) } else { None })
            .unwrap_or_default()
    };
    let mut global = object(&mut values, "global");
    let mut cattle = object(&mut global, "cattle");
    cattle.insert("clusterId".to_owned(), json!(cluster));
    global.insert("cattle".to_owned(), Value::Object(cattle));
    values.insert("global".to_owned(), Value::Object(global));
    format!(
        "apiVersion: helm.cattle.io/v1\nkind: HelmChartConfig\nmetadata:\n  name: {}\n  namespace: \
         kube-system\nspec:\n  valuesContent: {}\n",
        quoted(name),
        quoted(&go_json::compact(&Value::Object(values)))
    )
}

/// A YAML scalar on one line. Plain names stay plain; anything with control characters is written as JSON,
/// which YAML reads.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '/' | '=' | '.');
    if text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(plain) && text.len() > 5 {
        return text.to_owned();
    }
    if text.chars().any(char::is_control) {
        let mut out = String::new();
        go_json::string(&mut out, text);
        return out;
    }
    format!("'{}'", text.replace('\'', "''"))
}
