//! What commands do.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{kinds, narrative::key, stage::Stage};
use crate::{
    dice::{Latency, duration},
    names::TERMINATION_SECONDS,
    objects::{Shape, machine_template},
    workload::{Reach, WorkloadCluster},
};

const NAMESPACE: &str = "default";

type Done = Result<(), String>;

/// `key=value` words, and the others.
fn settings<'a>(words: &[&'a str]) -> (Vec<(&'a str, &'a str)>, Vec<&'a str>) {
    let (set, plain): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.contains('='));
    (set.into_iter().filter_map(|word| word.split_once('=')).collect(), plain)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn failed(error: kube::Error) -> String {
    remuda_control::Chain(&error).to_string()
}

fn kind(word: &str) -> Result<ApiResource, String> {
    kinds::named(word).ok_or_else(|| format!("{word:?} is no kind"))
}

impl Stage {
    pub(super) async fn command(&mut self, command: &str) -> Done {
        let (line, rest) = command.split_once('\n').unwrap_or((command, ""));
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((verb, words)) = words.split_first() else {
            return Ok(());
        };
        // Whatever comes first is there before anybody looks.
        if !matches!(*verb, "latency" | "failures" | "stop") && !self.stopped {
            self.start();
        }
        match (*verb, words) {
            ("latency", words) => self.latencies(words),
            ("failures", words) => self.failures(words),
            ("cluster", [name, words @ ..]) => self.cluster(name, words).await,
            ("template", [name, words @ ..]) => {
                let (set, _) = settings(words);
                let size = set.iter().find(|(key, _)| *key == "size").map_or("large", |(_, size)| size);
                self.apply(machine_template(NAMESPACE, name, size)).await
            }
            ("apply", []) => {
                for document in rest.split("\n  ---\n") {
                    let object: Value =
                        serde_saphyr::from_str(document).map_err(|error| format!("no YAML: {error}"))?;
                    self.apply(object).await?;
                }
                Ok(())
            }
            ("patch" | "status", [word, name, ..]) => {
                let patch = line.splitn(4, ' ').nth(3).ok_or("no patch")?;
                let patch = serde_json::from_str(patch).map_err(|error| format!("no JSON: {error}"))?;
                self.patch(word, name, patch, *verb == "status").await
            }
            ("scale", [word, name, replicas]) => {
                let replicas: u32 = number(replicas)?;
                self.patch(word, name, json!({"spec": {"replicas": replicas}}), false).await
            }
            ("annotate", [word, name, annotation]) => {
                let (key, value) = match (annotation.strip_suffix('-'), annotation.split_once('=')) {
                    (Some(key), _) => (key, Value::Null),
                    (None, Some((key, value))) => (key, json!(value)),
                    (None, None) => (*annotation, json!("")),
                };
                self.patch(word, name, json!({"metadata": {"annotations": {key: value}}}), false).await
            }
            ("strip", [word, name, what @ ..]) => {
                let bare = match what {
                    [] => json!({"ownerReferences": null, "finalizers": null}),
                    ["owners"] => json!({"ownerReferences": null}),
                    ["finalizers"] => json!({"finalizers": null}),
                    _ => return Err("strip KIND NAME, or only its owners or finalizers".to_owned()),
                };
                self.patch(word, name, json!({"metadata": bare}), false).await
            }
            ("delete", [word, name]) => {
                let api = self.api(&kind(word)?);
                let name = self.named(name)?;
                api.delete(&name, &Default::default()).await.map(drop).map_err(failed)
            }
            ("wait" | "skip", [time]) => {
                let time = duration(time).ok_or_else(|| format!("{time:?} is no time"))?;
                if *verb == "skip" {
                    self.skip(time.as_secs()).await;
                } else {
                    self.wait(time).await;
                }
                Ok(())
            }
            ("settle", []) => self.settle().await,
            ("start", []) => {
                self.stopped = false;
                self.start();
                Ok(())
            }
            ("stop", []) => {
                self.stopped = true;
                self.stop().await;
                Ok(())
            }
            ("restart", []) => {
                self.stopped = false;
                self.stop().await;
                self.start();
                Ok(())
            }
            ("show", words) => self.show(words).await,
            ("expect", words) => self.expect(words).await,
            (verb, [cluster, words @ ..]) => {
                let workload = self.workloads.get(&key(cluster));
                let workload = workload.ok_or_else(|| format!("there is no workload cluster {cluster:?}"))?;
                if let ("look", [plural, name]) = (verb, words) {
                    let there = workload.has(plural, name);
                    self.say(&format!(
                        "{plural} {name} in {cluster}: {}",
                        if there { "there" } else { "none" }
                    ));
                    return Ok(());
                }
                self.in_workload(&workload, verb, words)
            }
            _ => Err(format!("{line:?} is no command")),
        }
    }

    fn latencies(&mut self, words: &[&str]) -> Done {
        let latencies = &mut self.options.latencies;
        for (step, latency) in settings(words).0 {
            let latency: Latency = latency.parse().map_err(|error| format!("{error}"))?;
            *match step {
                "infrastructure" => &mut latencies.infrastructure,
                "bootstrap" => &mut latencies.bootstrap,
                "create" => &mut latencies.create,
                "boot" => &mut latencies.boot,
                "ready" => &mut latencies.ready,
                "delete" => &mut latencies.delete,
                _ => return Err(format!("{step:?} is no step")),
            } = latency;
        }
        Ok(())
    }

    fn failures(&mut self, words: &[&str]) -> Done {
        let failures = &mut self.options.failures;
        for (step, share) in settings(words).0 {
            *match step {
                "create" => &mut failures.create,
                "boot" => &mut failures.boot,
                "ready" => &mut failures.ready,
                _ => return Err(format!("{step:?} is no step that fails")),
            } = number(share)?;
        }
        Ok(())
    }

    async fn cluster(&mut self, name: &str, words: &[&str]) -> Done {
        let mut shape = Shape::new(NAMESPACE, name, 1, 0);
        for (setting, value) in settings(words).0 {
            match setting {
                "cp" => shape.control_planes = number(value)?,
                "workers" => shape.workers = number(value)?,
                "version" => value.clone_into(&mut shape.version),
                _ => return Err(format!("{setting:?} is no setting")),
            }
        }
        for object in shape.objects() {
            self.apply(object).await?;
        }
        Ok(())
    }

    fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, resource)
    }

    /// The name of an object, also of one whose name was made up.
    fn named(&self, name: &str) -> Result<String, String> {
        if name.contains('#') {
            return self.narrative.set_named(name).ok_or_else(|| format!("there is no {name}"));
        }
        match name.split_once('/') {
            None => Ok(name.to_owned()),
            Some((deployment, index)) => {
                let machines = self.narrative.machines_of(deployment);
                let machine = machines.get(number::<usize>(index)?).cloned();
                machine.ok_or_else(|| format!("{deployment} has {} machines", machines.len()))
            }
        }
    }

    async fn apply(&self, mut object: Value) -> Done {
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let resource = kinds::of(&api_version, &kind).ok_or_else(|| format!("{kind:?} is no kind"))?;
        let name = object["metadata"]["name"].as_str().ok_or("no name")?.to_owned();
        object["metadata"]["namespace"] = json!(NAMESPACE);
        let params = PatchParams::apply("scenario").force();
        self.api(&resource).patch(&name, &params, &Patch::Apply(object)).await.map(drop).map_err(failed)
    }

    async fn patch(&self, word: &str, name: &str, patch: Value, status: bool) -> Done {
        let (api, name) = (self.api(&kind(word)?), self.named(name)?);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = match status {
            true => api.patch_status(&name, &params, &patch).await,
            false => api.patch(&name, &params, &patch).await,
        };
        patched.map(drop).map_err(failed)
    }

    async fn field(&self, word: &str, name: &str, path: &str) -> Result<Value, String> {
        let object = self.api(&kind(word)?).get(&self.named(name)?).await.map_err(failed)?;
        let object = serde_json::to_value(object).map_err(|error| error.to_string())?;
        let mut found = &object;
        // Keys may have dots in them, so paths are written with slashes where it matters.
        let keys: Vec<&str> = if path.contains('/') && path.starts_with('/') {
            return Ok(object.pointer(path).cloned().unwrap_or_default());
        } else {
            path.split('.').filter(|key| !key.is_empty()).collect()
        };
        for key in keys {
            // Of a list of conditions, the one of that type.
            let item = found.as_array().and_then(|list| list.iter().find(|item| item["type"] == key));
            found = item.or_else(|| found.get(key)).unwrap_or(&Value::Null);
        }
        Ok(found.clone())
    }

    async fn count(&self, word: &str) -> Result<usize, String> {
        let listed = self.api(&kind(word)?).list(&ListParams::default()).await;
        listed.map(|list| list.items.len()).map_err(failed)
    }

    async fn show(&mut self, words: &[&str]) -> Done {
        let line = match words {
            [word] => format!("{word}: {}", self.count(word).await?),
            [word, name, path] => {
                let value = self.field(word, name, path).await?;
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!("{word} {name} {path}: {}", value.replace('\n', " "))
            }
            _ => return Err("show KIND, or show KIND NAME PATH".to_owned()),
        };
        self.say(&line);
        Ok(())
    }

    async fn expect(&self, words: &[&str]) -> Done {
        let (found, expected) = match words {
            [word, expected] => (self.count(word).await?.to_string(), (*expected).to_owned()),
            [word, name, path, expected @ ..] => {
                let value = self.field(word, name, path).await?;
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                (value, expected.join(" "))
            }
            _ => return Err("expect KIND COUNT, or expect KIND NAME PATH VALUE".to_owned()),
        };
        if found == expected { Ok(()) } else { Err(format!("expected {expected}, found {found}")) }
    }

    fn in_workload(&self, cluster: &WorkloadCluster, verb: &str, words: &[&str]) -> Done {
        let placed = |name: &str| -> Result<(String, String), String> {
            let (namespace, name) = name.split_once('/').ok_or("write NAMESPACE/NAME")?;
            Ok((namespace.to_owned(), name.to_owned()))
        };
        match (verb, words) {
            ("reach", [reach]) => cluster.set_reach(match *reach {
                "answers" => Reach::Answers,
                "refuses" => Reach::Refuses,
                "hangs" => Reach::Hangs,
                _ => return Err(format!("{reach:?} is no way to answer")),
            }),
            ("node", [node, state]) => {
                let node = self.named(node)?;
                let there = match *state {
                    "ready" => cluster.set_node_ready(&node, "True", "KubeletReady", ""),
                    "notready" => {
                        cluster.set_node_ready(&node, "False", "KubeletNotReady", "container runtime is down")
                    }
                    "silent" => cluster.set_node_ready(
                        &node,
                        "Unknown",
                        "NodeStatusUnknown",
                        "Kubelet stopped posting node status.",
                    ),
                    "gone" => cluster.remove_node(&node),
                    _ => return Err(format!("{state:?} is no state")),
                };
                if !there {
                    return Err(format!("there is no node {node}"));
                }
            }
            ("pod", [name, "on", node, words @ ..]) => {
                let ((namespace, name), node) = (placed(name)?, self.named(node)?);
                let mut pod = json!({"metadata": {"labels": {}}});
                for (key, value) in settings(words).0 {
                    match key {
                        "ends" => pod["metadata"]["annotations"] = json!({TERMINATION_SECONDS: value}),
                        key => pod["metadata"]["labels"][key] = json!(value),
                    }
                }
                cluster.place_pod(&namespace, &name, &node, pod);
            }
            ("nopod", [name]) => {
                let (namespace, name) = placed(name)?;
                cluster.remove_pod(&namespace, &name);
            }
            ("budget", [name, words @ ..]) => {
                let (namespace, name) = placed(name)?;
                let mut spec = json!({"selector": {"matchLabels": {}}});
                for (key, value) in settings(words).0 {
                    match key {
                        "min" => spec["minAvailable"] = json!(number::<u32>(value)?),
                        key => spec["selector"]["matchLabels"][key] = json!(value),
                    }
                }
                cluster.place_budget(&namespace, &name, spec);
            }
            _ => return Err(format!("{verb:?} is no command")),
        }
        Ok(())
    }
}
