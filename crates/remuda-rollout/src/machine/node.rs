//! What a Machine puts on its Node: labels, annotations and taints.

use std::collections::{BTreeMap, BTreeSet};

use remuda_names::capi::{annotation, label, taint};

use crate::selector::Labels;

/// A taint of a Node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

/// A taint a Machine asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTaint {
    pub taint: Taint,
    /// Kept there, rather than put there once.
    pub always: bool,
}

/// The Node as it is, or as it should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    pub labels: Labels,
    pub annotations: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
}

/// What the Node should say about its Machine.
#[derive(Debug, Clone, Default)]
pub struct Input<'a> {
    /// Labels and annotations of the Machine that belong on the Node.
    pub labels: Labels,
    pub annotations: BTreeMap<String, String>,
    pub interruptible: bool,
    pub cluster: &'a str,
    pub namespace: &'a str,
    pub machine: &'a str,
    /// Kind and name of the Machine's controller.
    pub owner: Option<(&'a str, &'a str)>,
    /// The Machine's set is of an older revision than its deployment.
    pub outdated: bool,
    /// Taints are propagated, and these.
    pub taints: Option<&'a [WantedTaint]>,
}

/// Whether a label of a Machine belongs on its Node. `more` asks the patterns an administrator added.
pub fn is_node_label(key: &str, more: impl Fn(&str) -> bool) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let in_domain = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    domain == "node-role.kubernetes.io"
        || in_domain("node-restriction.kubernetes.io")
        || in_domain("node.cluster.x-k8s.io")
        || more(key)
}

/// Whether an annotation of a Machine belongs on its Node.
pub fn is_node_annotation(key: &str, more: impl Fn(&str) -> bool) -> bool {
    key.split_once('/').is_some_and(|(domain, _)| {
        domain == "node.cluster.x-k8s.io" || domain.ends_with(".node.cluster.x-k8s.io")
    }) || more(key)
}

/// The Node as it should be. Equal to what it was if there is nothing to do.
///
/// What was put there before and is not wanted any more goes; what others put there stays.
pub fn desired(node: &Metadata, input: &Input<'_>) -> Metadata {
    let mut result = node.clone();
    let listed = |key: &str| -> BTreeSet<String> {
        let names = node.annotations.get(key).map_or("", String::as_str);
        names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let mut labels = input.labels.clone();
    if input.interruptible {
        labels.insert(label::INTERRUPTIBLE.into(), String::new());
    }
    for gone in listed(annotation::NODE_LABELS).iter().filter(|key| !labels.contains_key(*key)) {
        result.labels.remove(gone);
    }
    for gone in
        listed(annotation::NODE_ANNOTATIONS).iter().filter(|key| !input.annotations.contains_key(*key))
    {
        result.annotations.remove(gone);
    }
    let keys = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>().join(",");
    let mut set = |key: &str, value: String| {
        result.annotations.insert(key.to_owned(), value);
    };
    set(annotation::NODE_LABELS, keys(&labels));
    set(annotation::NODE_ANNOTATIONS, keys(&input.annotations));
    set(annotation::NODE_CLUSTER_NAME, input.cluster.to_owned());
    set(annotation::NODE_CLUSTER_NAMESPACE, input.namespace.to_owned());
    set(annotation::NODE_MACHINE, input.machine.to_owned());
    if let Some((kind, name)) = input.owner {
        set(annotation::NODE_OWNER_KIND, kind.to_owned());
        set(annotation::NODE_OWNER_NAME, name.to_owned());
    }
    result.labels.extend(labels);
    result.annotations.extend(input.annotations.clone());
    taints(&mut result, node, input);
    result
}

fn taints(result: &mut Metadata, node: &Metadata, input: &Input<'_>) {
    let is = |key: &'static str, effect: &'static str| {
        move |taint: &Taint| taint.key == key && taint.effect == effect
    };
    let uninitialized = is(taint::UNINITIALIZED, "NoSchedule");
    let outdated = is(taint::OUTDATED_REVISION, "PreferNoSchedule");
    result.taints.retain(|taint| !uninitialized(taint));
    if !input.outdated {
        result.taints.retain(|taint| !outdated(taint));
    } else if !result.taints.iter().any(outdated) {
        let [key, effect] = [taint::OUTDATED_REVISION, "PreferNoSchedule"].map(str::to_owned);
        result.taints.push(Taint { key, value: String::new(), effect });
    }
    let Some(wanted) = input.taints else {
        return;
    };
    let name = |taint: &Taint| format!("{}:{}", taint.key, taint.effect);
    let before = node.annotations.get(annotation::NODE_TAINTS);
    let tracked: BTreeSet<&str> =
        before.map_or("", String::as_str).split(',').filter(|name| !name.is_empty()).collect();
    let kept: BTreeSet<String> =
        wanted.iter().filter(|wanted| wanted.always).map(|wanted| name(&wanted.taint)).collect();
    result.taints.retain(|taint| {
        let name = name(taint);
        !tracked.contains(name.as_str()) || kept.contains(&name)
    });
    for WantedTaint { taint, always } in wanted {
        // A taint for the beginning is put there before anything is tracked, and never again.
        if !always && before.is_some() {
            continue;
        }
        match result.taints.iter_mut().find(|known| name(known) == name(taint)) {
            Some(known) => known.value.clone_from(&taint.value),
            None => result.taints.push(taint.clone()),
        }
    }
    let kept: Vec<String> = kept.into_iter().collect();
    result.annotations.insert(annotation::NODE_TAINTS.into(), kept.join(","));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Labels {
        text.split_whitespace()
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(k, v)| (k.into(), v.into()))
            .collect()
    }

    fn input<'a>() -> Input<'a> {
        Input {
            cluster: "demo",
            namespace: "ns",
            machine: "m",
            owner: Some(("MachineSet", "s")),
            ..Input::default()
        }
    }

    #[test]
    fn only_labels_of_known_domains_are_copied() {
        let more = |key: &str| key.starts_with("mine/");
        for key in [
            "node-role.kubernetes.io/worker",
            "node-restriction.kubernetes.io/x",
            "team.node-restriction.kubernetes.io/x",
            "node.cluster.x-k8s.io/x",
            "a.node.cluster.x-k8s.io/x",
            "mine/x",
        ] {
            assert!(is_node_label(key, more), "{key}");
        }
        for key in ["x", "evilnode.cluster.x-k8s.io/x", "a.node-role.kubernetes.io/x", "yours/x"] {
            assert!(!is_node_label(key, more), "{key}");
        }
    }

    #[test]
    fn what_is_no_longer_wanted_goes_and_what_others_put_there_stays() {
        let node = Metadata {
            labels: labels("old=1 foreign=2"),
            annotations: labels("cluster.x-k8s.io/labels-from-machine=old"),
            taints: Vec::new(),
        };
        let wanted = Input { labels: labels("new=3"), ..input() };
        let found = desired(&node, &wanted);
        assert_eq!(found.labels, labels("foreign=2 new=3"));
        assert_eq!(found.annotations["cluster.x-k8s.io/labels-from-machine"], "new");
        assert_eq!(found.annotations["cluster.x-k8s.io/owner-kind"], "MachineSet");
        assert_eq!(desired(&found, &wanted), found, "deciding again changes nothing");
    }

    #[test]
    fn a_new_node_loses_its_first_taint_and_an_outdated_one_gets_another() {
        let taint =
            |key: &str, effect: &str| Taint { key: key.into(), value: String::new(), effect: effect.into() };
        let node =
            Metadata { taints: vec![taint(taint::UNINITIALIZED, "NoSchedule")], ..Metadata::default() };
        let fresh = desired(&node, &input());
        assert!(fresh.taints.is_empty());
        let outdated = desired(&fresh, &Input { outdated: true, ..input() });
        assert_eq!(outdated.taints, [taint(taint::OUTDATED_REVISION, "PreferNoSchedule")]);
        assert!(desired(&outdated, &input()).taints.is_empty());
    }

    #[test]
    fn taints_for_the_beginning_are_put_there_once() {
        let taint = |key: &str| Taint { key: key.into(), value: String::new(), effect: "NoExecute".into() };
        let wanted = [
            WantedTaint { taint: taint("always"), always: true },
            WantedTaint { taint: taint("once"), always: false },
        ];
        let with = |taints| Input { taints: Some(taints), ..input() };
        let mut node = desired(&Metadata::default(), &with(&wanted));
        assert_eq!(node.taints, [taint("always"), taint("once")]);
        node.taints.clear();
        node = desired(&node, &with(&wanted));
        assert_eq!(node.taints, [taint("always")], "somebody took the other away");
        node = desired(&node, &with(&[]));
        assert!(node.taints.is_empty());
    }
}
