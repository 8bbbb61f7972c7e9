//! The Job of a machine and what it needs, as objects.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::{
        batch::v1::Job,
        core::v1::{Secret, ServiceAccount},
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use remuda_drivers::secret::names_a_secret;
use remuda_names::{
    annotation::{POWER, REBOOTED},
    driver::facts,
    machines, power,
    rancher::{group, label, secret_key, secret_type},
};
use serde_json::{Map, Value, json};

use super::address::Address;
use crate::{
    flags::{arguments, flag_of, hidden_variable, is_login_key, variable_of},
    host::Host,
    job::code,
    naming,
};

/// Where the script of a machine is for its Job.
const BOOTSTRAP: &str = "/run/secrets/machine";
/// Where files for the driver are for a Job.
const FILES: &str = "/path/to/machine/files";
/// Attempts at making a server beyond the first, for failures that may pass.
const MORE_CREATIONS: i32 = 3;
/// Attempts at removing a server beyond the first.
const MORE_REMOVALS: i32 = 3;
/// A Job under way for longer hangs.
const LONGEST: i64 = 3600;

/// What the objects of one Job are made from.
#[derive(Debug, Clone)]
pub(crate) struct Blueprint<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub kind: &'a str,
    pub driver: &'a str,
    pub capi_machine: &'a str,
    pub cluster: &'a str,
    pub driver_url: &'a str,
    pub driver_hash: &'a str,
    pub spec: &'a Map<String, Value>,
    /// Field with the content of a file, and the driver's field for its place.
    pub aliases: &'a [(String, String)],
    /// Variables of the server's own that jobs get.
    pub environment: &'a [(String, String)],
    /// What the credential holds.
    pub credential: &'a BTreeMap<String, String>,
    pub hostname_limit: Option<&'a str>,
    /// Identifies the cluster at the provider, where that is asked for.
    pub cluster_tag: Option<&'a str>,
    pub image: &'a str,
    pub lane: &'a str,
    /// What the machine is given of a pool.
    pub address: Option<&'a Address>,
    /// The only host where the Job can be run, if it is not any.
    pub host: Option<&'a Host>,
    pub task: Task<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task<'a> {
    Create {
        bootstrap: &'a str,
    },
    Remove,
    /// Restarts the server, as it was asked for at that time.
    Reboot {
        asked: &'a str,
    },
    /// Stops the server, or starts it.
    Power {
        on: bool,
    },
}

/// The objects of one Job.
pub(crate) struct Objects {
    pub env: Secret,
    pub files: Option<Secret>,
    pub account: ServiceAccount,
    pub role: Role,
    pub binding: RoleBinding,
    pub job: Job,
}

impl Blueprint<'_> {
    fn meta(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.to_owned()),
            labels: Some(self.labels()),
            ..ObjectMeta::default()
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let removes = (self.task == Task::Remove).to_string();
        let labels = [
            (label::INFRA_MACHINE_GROUP, group::MACHINE),
            (label::INFRA_MACHINE_VERSION, "v1"),
            (label::INFRA_MACHINE_KIND, self.kind),
            (label::INFRA_MACHINE_NAME, self.name),
            (label::INFRA_REMOVE, removes.as_str()),
            (label::CAPI_MACHINE_NAME, self.capi_machine),
            (label::CLUSTER_NAME, self.cluster),
            (machines::label::LANE, self.lane),
        ];
        // Names may be longer than labels can be.
        let fits = |value: &str| !value.is_empty() && value.len() <= 63;
        labels
            .into_iter()
            .filter(|(_, value)| fits(value))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    /// The state Secret as it is before anything is recorded. It belongs to nobody: whoever deletes the machine
    /// with all it owns must not take away what is needed to remove the server.
    pub(crate) fn state(&self) -> Secret {
        let mut meta = self.meta(naming::state_secret(self.name));
        let labels = meta.labels.get_or_insert_default();
        labels.retain(|key, _| key != label::INFRA_REMOVE && key != machines::label::LANE);
        labels.insert(label::BACKUP.to_owned(), "true".to_owned());
        Secret { metadata: meta, type_: Some(secret_type::MACHINE_STATE.to_owned()), ..Secret::default() }
    }

    pub(crate) fn objects(&self) -> Result<Objects, serde_json::Error> {
        let name = naming::job(self.name);
        let (mut fields, files) = self.fields();
        let hidden = self.hide(&mut fields);
        let files = (!files.is_empty()).then(|| Secret {
            metadata: self.meta(name.clone()),
            data: Some(files),
            ..Secret::default()
        });
        let state = naming::state_secret(self.name);
        Ok(Objects {
            env: self.env(hidden),
            account: ServiceAccount { metadata: self.meta(name.clone()), ..ServiceAccount::default() },
            role: Role {
                metadata: self.meta(name.clone()),
                rules: Some(vec![PolicyRule {
                    api_groups: Some(vec![String::new()]),
                    resources: Some(vec!["secrets".to_owned()]),
                    resource_names: Some(vec![state]),
                    verbs: vec!["get".to_owned(), "update".to_owned()],
                    ..PolicyRule::default()
                }]),
            },
            binding: RoleBinding {
                metadata: self.meta(name.clone()),
                role_ref: RoleRef {
                    api_group: "rbac.authorization.k8s.io".to_owned(),
                    kind: "Role".to_owned(),
                    name: name.clone(),
                },
                subjects: Some(vec![Subject {
                    kind: "ServiceAccount".to_owned(),
                    name: name.clone(),
                    namespace: Some(self.namespace.to_owned()),
                    ..Subject::default()
                }]),
            },
            job: self.job(name, &fields, files.is_some())?,
            files,
        })
    }

    /// Takes credentials that were given as settings out of them: a command line can be read by anybody.
    fn hide(&self, fields: &mut Map<String, Value>) -> BTreeMap<String, ByteString> {
        let mut hidden = BTreeMap::new();
        fields.retain(|field, value| {
            let flag = flag_of(self.driver, field);
            match value {
                Value::String(text) if names_a_secret(&flag) && !text.starts_with(FILES) => {
                    if !text.is_empty() {
                        hidden.insert(hidden_variable(&flag), ByteString(text.clone().into_bytes()));
                    }
                    false
                }
                _ => true,
            }
        });
        hidden
    }

    fn env(&self, hidden: BTreeMap<String, ByteString>) -> Secret {
        let mut variables: BTreeMap<String, ByteString> = self
            .environment
            .iter()
            .map(|(key, value)| (key.clone(), ByteString(value.clone().into_bytes())))
            .collect();
        for (key, value) in self.credential {
            variables.insert(variable_of(self.driver, key), ByteString(value.clone().into_bytes()));
        }
        variables.extend(hidden);
        let mut meta = self.meta(naming::env_secret(self.name));
        meta.labels.get_or_insert_default().insert(label::BACKUP.to_owned(), "true".to_owned());
        Secret { metadata: meta, data: Some(variables), ..Secret::default() }
    }

    /// The driver's fields, and the files that the contents among them become.
    fn fields(&self) -> (Map<String, Value>, BTreeMap<String, ByteString>) {
        let mut fields = self.spec.clone();
        let mut files = BTreeMap::new();
        for (field, driver_field) in self.aliases {
            let Some(Value::String(content)) = fields.remove(field) else { continue };
            if content.is_empty() {
                continue;
            }
            let file = if is_login_key(field) { "id_rsa" } else { driver_field.as_str() };
            let newline = if content.ends_with('\n') { "" } else { "\n" };
            files.insert(file.to_owned(), ByteString(format!("{content}{newline}").into_bytes()));
            fields.insert(driver_field.clone(), format!("{FILES}/{file}").into());
        }
        if let Some(address) = self.address {
            address.set(self.driver, &mut fields);
        }
        let facts = facts(self.driver);
        if facts.cluster_tag {
            self.tag(&mut fields);
        }
        if facts.keeps_security_groups {
            keep_security_groups(&mut fields);
        }
        (fields, files)
    }

    /// For the cloud provider of the machine's cluster.
    fn tag(&self, fields: &mut Map<String, Value>) {
        let tags = fields.get("tags").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(cluster) = self.cluster_tag
            && !tags.contains("kubernetes.io/cluster/")
        {
            let comma = if tags.is_empty() { "" } else { "," };
            fields.insert(
                "tags".to_owned(),
                format!("{tags}{comma}kubernetes.io/cluster/{cluster},owned").into(),
            );
        }
    }

    fn arguments(&self, fields: &Map<String, Value>) -> Vec<String> {
        let mut all = vec![
            format!("--driver-download-url={}", self.driver_url),
            format!("--driver-hash={}", self.driver_hash),
            format!("--secret-namespace={}", self.namespace),
            format!("--secret-name={}", naming::state_secret(self.name)),
        ];
        let instance = naming::instance(self.name);
        match self.task {
            Task::Create { .. } => {
                all.push("create".to_owned());
                all.push(format!("--driver={}", self.driver));
                all.push(format!("--custom-install-script={BOOTSTRAP}/{}", secret_key::VALUE));
                let hostname = naming::hostname(self.name, self.hostname_limit);
                if hostname != instance {
                    all.push(format!("--hostname-override={hostname}"));
                }
                all.extend(arguments(self.driver, fields));
            }
            Task::Remove => all.extend(["rm", "-y", "--update-config"].map(str::to_owned)),
            Task::Reboot { .. } => all.push("restart".to_owned()),
            Task::Power { on } => all.push(if on { "start" } else { "stop" }.to_owned()),
        }
        all.push(instance);
        all
    }

    fn job(
        &self,
        name: String,
        fields: &Map<String, Value>,
        has_files: bool,
    ) -> Result<Job, serde_json::Error> {
        let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
        if has_files {
            volumes
                .push(json!({"name": "machine-files", "secret": {"secretName": name, "defaultMode": 0o644}}));
            mounts.push(json!({"name": "machine-files", "mountPath": FILES, "readOnly": true}));
        }
        if let Task::Create { bootstrap } = self.task {
            volumes.push(
                json!({"name": "bootstrap", "secret": {"secretName": bootstrap, "defaultMode": 0o777}}),
            );
            mounts.push(json!({"name": "bootstrap", "mountPath": BOOTSTRAP, "readOnly": true}));
        }
        let mut spec = json!({
            "backoffLimit": if self.task == Task::Remove { MORE_REMOVALS } else { MORE_CREATIONS },
            "activeDeadlineSeconds": LONGEST,
            "template": {
                "metadata": {"labels": self.labels()},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": name,
                    "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
                    "containers": [{
                        "name": "machine",
                        "image": self.image,
                        "command": ["remuda", "machine"],
                        "args": self.arguments(fields),
                        "envFrom": [{"secretRef": {"name": naming::env_secret(self.name)}}],
                        "volumeMounts": mounts,
                    }],
                    "volumes": volumes,
                },
            },
        });
        if self.task != Task::Remove {
            // Only what may pass is worth another attempt.
            spec["podFailurePolicy"] = json!({"rules": [{
                "action": "FailJob",
                "onExitCodes": {
                    "containerName": "machine", "operator": "In",
                    "values": [code::FAILED, code::USAGE, code::BEFORE_CREATION],
                },
            }]});
        }
        let mut job: Job = serde_json::from_value(json!({"spec": spec}))?;
        job.metadata = self.meta(name);
        if let Task::Reboot { asked } = self.task {
            job.metadata.annotations.get_or_insert_default().insert(REBOOTED.to_owned(), asked.to_owned());
        }
        if let Task::Power { on } = self.task {
            let asked = if on { power::RUNNING } else { power::STOPPED };
            job.metadata.annotations.get_or_insert_default().insert(POWER.to_owned(), asked.to_owned());
        }
        if let Some(host) = self.host {
            let labels = job.metadata.labels.get_or_insert_default();
            labels.insert(machines::label::HOST.to_owned(), host.id.clone());
            let annotations = job.metadata.annotations.get_or_insert_default();
            annotations.insert(machines::annotation::HOST_NAME.to_owned(), host.name.clone());
        }
        Ok(job)
    }
}

/// A group that was there before is used as it is.
fn keep_security_groups(fields: &mut Map<String, Value>) {
    let groups = match fields.get("securityGroup") {
        Some(Value::Array(groups)) => groups.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(""),
        Some(Value::String(group)) => group.clone(),
        _ => return,
    };
    if groups != "rancher-nodes" && fields.get("securityGroupReadonly").is_none_or(Value::is_null) {
        fields.insert("securityGroupReadonly".to_owned(), true.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, task: Task<'_>, look: impl FnOnce(&Objects, Vec<String>)) {
        let spec = spec.as_object().cloned().unwrap();
        let credential =
            BTreeMap::from([("digitaloceancredentialConfig-accessToken".to_owned(), "canary".to_owned())]);
        let aliases = [
            ("userdata".to_owned(), "userdata".to_owned()),
            ("sshKeyContents".to_owned(), "sshKeyPath".to_owned()),
        ];
        let blueprint = Blueprint {
            namespace: "fleet-default",
            name: "demo.x",
            kind: "DigitaloceanMachine",
            driver: "digitalocean",
            capi_machine: "demo-x",
            cluster: "demo",
            driver_url: "",
            driver_hash: "",
            spec: &spec,
            aliases: &aliases,
            environment: &[("NO_PROXY".to_owned(), "localhost".to_owned())],
            credential: &credential,
            hostname_limit: None,
            cluster_tag: None,
            image: "remuda",
            lane: "l1",
            address: None,
            host: None,
            task,
        };
        let objects = blueprint.objects().unwrap();
        let pod = objects.job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
        let args = pod.containers[0].args.clone().unwrap();
        look(&objects, args);
    }

    #[test]
    fn a_creation_is_spelled_as_rancher_does() {
        let spec = json!({"region": "nyc3", "ipv6": true, "accessToken": "canary-in-spec", "userdata": "#!/bin/sh\necho", "sshKeyContents": "KEY\n"});
        check(spec, Task::Create { bootstrap: "demo-bootstrap" }, |objects, args| {
            let line = args.join(" ");
            assert_eq!(
                line,
                "--driver-download-url= --driver-hash= --secret-namespace=fleet-default \
                 --secret-name=demo.x-machine-state create --driver=digitalocean \
                 --custom-install-script=/run/secrets/machine/value --digitalocean-ipv6 --digitalocean-region=nyc3 \
                 --digitalocean-ssh-key-path=/path/to/machine/files/id_rsa \
                 --digitalocean-userdata=/path/to/machine/files/userdata demo-x"
            );
            let files = objects.files.as_ref().unwrap().data.as_ref().unwrap();
            assert_eq!(files["userdata"].0, b"#!/bin/sh\necho\n");
            assert_eq!(files["id_rsa"].0, b"KEY\n");
            let env = objects.env.data.as_ref().unwrap();
            assert_eq!(env["DIGITALOCEAN_ACCESS_TOKEN"].0, b"canary");
            assert_eq!(env["NO_PROXY"].0, b"localhost");
            assert_eq!(env["REMUDA_MACHINE_FLAG_DIGITALOCEAN_ACCESS_TOKEN"].0, b"canary-in-spec");
            assert!(!serde_json::to_string(&objects.job).unwrap().contains("canary"));
            let rules = objects.role.rules.as_ref().unwrap();
            assert_eq!(rules[0].resource_names.as_ref().unwrap(), &["demo.x-machine-state"]);
        });
    }

    #[test]
    fn a_reboot_says_which_request_it_carries_out() {
        check(json!({"region": "nyc3"}), Task::Reboot { asked: "t1" }, |objects, args| {
            assert_eq!(args[4..], ["restart", "demo-x"]);
            assert_eq!(objects.job.metadata.annotations.as_ref().unwrap()[REBOOTED], "t1");
            assert_eq!(objects.job.metadata.labels.as_ref().unwrap()[label::INFRA_REMOVE], "false");
        });
    }

    #[test]
    fn a_stop_says_what_it_carries_out() {
        check(json!({"region": "nyc3"}), Task::Power { on: false }, |objects, args| {
            assert_eq!(args[4..], ["stop", "demo-x"]);
            assert_eq!(objects.job.metadata.annotations.as_ref().unwrap()[POWER], power::STOPPED);
        });
    }

    #[test]
    fn a_removal_needs_no_settings() {
        check(json!({"region": "nyc3"}), Task::Remove, |objects, args| {
            assert_eq!(args[4..], ["rm", "-y", "--update-config", "demo-x"]);
            let spec = objects.job.spec.as_ref().unwrap();
            assert!(
                spec.pod_failure_policy.is_none()
                    && spec.template.spec.as_ref().unwrap().volumes.as_ref().unwrap().is_empty()
            );
            assert_eq!(objects.job.metadata.labels.as_ref().unwrap()[label::INFRA_REMOVE], "true");
        });
    }
}
