//! Draining a Node: which pods go now, which later, which never, and how that is told.

mod message;

use std::collections::BTreeMap;

use jiff::Timestamp;
use remuda_names::capi::{annotation, label};

pub use message::Outcome;

use crate::{
    condition::seconds_between,
    selector::{Labels, Selector},
};

/// A pod on the Node.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub labels: Labels,
    /// The kubelet made it from a file.
    pub mirror: bool,
    pub controller: Controller,
    /// Succeeded or Failed.
    pub finished: bool,
    pub local_storage: bool,
    pub deleted: Option<Timestamp>,
}

impl Pod {
    /// Whether annotations are those of a mirror pod.
    pub fn is_mirror<V>(annotations: &BTreeMap<String, V>) -> bool {
        annotations.contains_key(annotation::MIRROR_POD)
    }

    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Who would replace the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    None,
    DaemonSet,
    /// A DaemonSet that does not exist any more.
    OrphanedDaemonSet,
    Other,
}

/// A MachineDrainRule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub name: String,
    /// Machines it is about, with the selector of their Cluster; all if empty.
    pub machines: Vec<(Option<Selector>, Option<Selector>)>,
    /// Pods it is about, with the selector of their namespace; all if empty.
    pub pods: Vec<(Option<Selector>, Option<Selector>)>,
    pub behavior: Behavior,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behavior {
    Drain { order: i32 },
    Skip,
    WaitCompleted,
}

/// What becomes of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Evicted in its turn; warnings go to the log.
    Evict {
        order: i32,
        warnings: Vec<Warning>,
    },
    /// Waited for until the pod is gone, which is not the same as completed.
    Wait,
    Skip(Skip),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    OrphanedDaemonSet,
    LocalStorage,
    Unmanaged,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skip {
    /// The node is unreachable and the pod was told to go.
    Unreachable,
    DaemonSet,
    Mirror,
    Label,
    Rule(String),
}

/// What makes draining impossible until somebody acts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    #[error("Pod Namespace does not exist: {0}")]
    Namespace(String),
}

/// What the fates of all pods depend on.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    pub pods: &'a [Pod],
    /// Rules of the Machine's namespace, in any order.
    pub rules: &'a [Rule],
    pub machine: &'a Labels,
    pub cluster: &'a Labels,
    /// Labels of the workload cluster's namespaces.
    pub namespaces: &'a BTreeMap<String, Labels>,
    /// The Node's Ready is Unknown: nobody there carries out a deletion.
    pub unreachable: bool,
}

/// What to do now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// To evict, in this order. All have the lowest order that is present.
    pub evict: Vec<PodKey>,
    pub evict_later: Vec<PodKey>,
    pub deleting: Vec<PodKey>,
    pub wait: Vec<PodKey>,
    pub wait_later: Vec<PodKey>,
    pub skipped: Vec<(PodKey, Skip)>,
    pub warnings: Vec<(PodKey, Warning)>,
    /// Nobody on the node does as told, so evictions ask for no more than a second.
    pub grace_seconds: Option<u32>,
    pub blocked: Vec<Blocked>,
}

/// `namespace/name`
pub type PodKey = String;

impl Plan {
    /// Nothing is left to evict or to wait for.
    pub fn is_done(&self) -> bool {
        self.blocked.is_empty()
            && [&self.evict, &self.evict_later, &self.deleting, &self.wait, &self.wait_later]
                .iter()
                .all(|pods| pods.is_empty())
    }
}

/// Sorts the pods of a Node out.
pub fn plan(input: &Input<'_>, now: Timestamp) -> Plan {
    let mut rules: Vec<&Rule> =
        input.rules.iter().filter(|rule| applies(&rule.machines, input.machine, input.cluster)).collect();
    rules.sort_by(|a, b| a.name.cmp(&b.name));
    let mut pods: Vec<&Pod> = input.pods.iter().collect();
    pods.sort_by_cached_key(|pod| pod.key());

    let mut plan = Plan { grace_seconds: input.unreachable.then_some(1), ..Plan::default() };
    let mut acting: Vec<(&Pod, Fate)> = Vec::new();
    for pod in pods {
        match fate(pod, &rules, input, now) {
            Ok(Fate::Skip(why)) => plan.skipped.push((pod.key(), why)),
            Ok(fate) => acting.push((pod, fate)),
            Err(blocked) => plan.blocked.push(blocked),
        }
    }
    if !plan.blocked.is_empty() {
        return plan;
    }
    let order = |fate: &Fate| match fate {
        Fate::Evict { order, .. } => *order,
        Fate::Wait | Fate::Skip(_) => 0,
    };
    // A pod that is going still holds back those of higher order.
    let lowest = acting.iter().map(|(_, fate)| order(fate)).min().unwrap_or(0);
    for (pod, fate) in acting {
        let now = order(&fate) == lowest;
        match fate {
            Fate::Evict { .. } if pod.deleted.is_some() => plan.deleting.push(pod.key()),
            Fate::Evict { warnings, .. } => {
                if now {
                    plan.warnings.extend(warnings.into_iter().map(|warning| (pod.key(), warning)));
                    plan.evict.push(pod.key());
                } else {
                    plan.evict_later.push(pod.key());
                }
            }
            Fate::Wait if now => plan.wait.push(pod.key()),
            Fate::Wait => plan.wait_later.push(pod.key()),
            Fate::Skip(_) => {}
        }
    }
    plan
}

/// The first that says skip or wait decides; otherwise the pod is evicted in the order a rule gives it.
fn fate(pod: &Pod, rules: &[&Rule], input: &Input<'_>, now: Timestamp) -> Result<Fate, Blocked> {
    let mut warnings = Vec::new();
    // Whole seconds count: one and a half seconds ago is not yet more than one.
    let told = |since: Timestamp| seconds_between(since, now).trunc() > 1.0;
    if input.unreachable && pod.deleted.is_some_and(told) {
        return Ok(Fate::Skip(Skip::Unreachable));
    }
    match pod.controller {
        Controller::DaemonSet if !pod.finished => return Ok(Fate::Skip(Skip::DaemonSet)),
        Controller::OrphanedDaemonSet if !pod.finished => warnings.push(Warning::OrphanedDaemonSet),
        _ => {}
    }
    if pod.mirror {
        return Ok(Fate::Skip(Skip::Mirror));
    }
    if pod.local_storage && !pod.finished {
        warnings.push(Warning::LocalStorage);
    }
    if pod.controller == Controller::None && !pod.finished {
        warnings.push(Warning::Unmanaged);
    }
    if let Some(value) = pod.labels.get(label::POD_DRAIN) {
        if value.eq_ignore_ascii_case("skip") {
            return Ok(Fate::Skip(Skip::Label));
        }
        if value.replacen('-', "", 1).eq_ignore_ascii_case("waitcompleted") {
            return Ok(Fate::Wait);
        }
    }
    let namespace =
        input.namespaces.get(&pod.namespace).ok_or_else(|| Blocked::Namespace(pod.namespace.clone()))?;
    let rule = rules.iter().find(|rule| applies(&rule.pods, &pod.labels, namespace));
    Ok(match rule.map(|rule| rule.behavior) {
        None => Fate::Evict { order: 0, warnings },
        Some(Behavior::Drain { order }) => Fate::Evict { order, warnings },
        Some(Behavior::WaitCompleted) => Fate::Wait,
        Some(Behavior::Skip) => {
            Fate::Skip(Skip::Rule(rule.map_or_else(String::new, |rule| rule.name.clone())))
        }
    })
}

/// Whether one of the pairs matches both; no pair matches everything.
fn applies(pairs: &[(Option<Selector>, Option<Selector>)], object: &Labels, parent: &Labels) -> bool {
    let matches = |selector: &Option<Selector>, labels| selector.as_ref().is_none_or(|s| s.matches(labels));
    pairs.is_empty()
        || pairs.iter().any(|(own, of_parent)| matches(own, object) && matches(of_parent, parent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::{at, flat};
    use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

    fn pod(text: &str) -> Pod {
        let mut words = text.split_whitespace();
        let (namespace, name) = words.next().unwrap().split_once('/').unwrap();
        let mut pod = Pod {
            namespace: namespace.into(),
            name: name.into(),
            labels: Labels::new(),
            mirror: false,
            controller: Controller::Other,
            finished: false,
            local_storage: false,
            deleted: None,
        };
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("mirror", _) => pod.mirror = true,
                ("daemonset", _) => pod.controller = Controller::DaemonSet,
                ("orphan", _) => pod.controller = Controller::OrphanedDaemonSet,
                ("bare", _) => pod.controller = Controller::None,
                ("finished", _) => pod.finished = true,
                ("local", _) => pod.local_storage = true,
                ("deleted", at_) => pod.deleted = Some(at(at_.parse().unwrap())),
                ("drain", value) => {
                    pod.labels.insert(label::POD_DRAIN.into(), value.into());
                }
                (key, value) => {
                    pod.labels.insert(key.into(), value.into());
                }
            }
        }
        pod
    }

    /// `name skip|wait|order=3 key=value`
    fn rule(text: &str) -> Rule {
        let words: Vec<_> = text.split_whitespace().collect();
        let behavior = match words[1] {
            "skip" => Behavior::Skip,
            "wait" => Behavior::WaitCompleted,
            order => Behavior::Drain { order: order.strip_prefix("order=").unwrap().parse().unwrap() },
        };
        let pods = words[2..].iter().map(|word| {
            let (key, value) = word.split_once('=').unwrap();
            let labels = Labels::from([(key.to_owned(), value.to_owned())]);
            (Some(Selector { labels, expressions: Vec::new() }), None)
        });
        Rule { name: words[0].into(), machines: Vec::new(), pods: pods.collect(), behavior }
    }

    fn lines<T>(text: &str, parse: fn(&str) -> T) -> Vec<T> {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(parse).collect()
    }

    #[track_caller]
    fn check(unreachable: bool, rules: &str, pods: &str, expected: &str) {
        let (pods, rules) = (lines(pods, pod), lines(rules, rule));
        let namespaces = BTreeMap::from([("ns".to_owned(), Labels::new())]);
        let none = Labels::new();
        let input = Input {
            pods: &pods,
            rules: &rules,
            machine: &none,
            cluster: &none,
            namespaces: &namespaces,
            unreachable,
        };
        let plan = plan(&input, at(100));
        let mut text = String::new();
        let groups = [
            ("evict", &plan.evict),
            ("later", &plan.evict_later),
            ("deleting", &plan.deleting),
            ("wait", &plan.wait),
            ("wait later", &plan.wait_later),
        ];
        for (what, pods) in groups.into_iter().filter(|(_, pods)| !pods.is_empty()) {
            text.push_str(&format!("{what}: {}\n", pods.join(" ")));
        }
        for (pod, why) in &plan.skipped {
            text.push_str(&format!("skip {pod}: {why:?}\n"));
        }
        for (pod, warning) in &plan.warnings {
            text.push_str(&format!("warn {pod}: {warning:?}\n"));
        }
        for blocked in &plan.blocked {
            text.push_str(&format!("blocked: {blocked}\n"));
        }
        if plan.is_done() {
            text.push_str("done\n");
        }
        assert_eq!(flat(&text), flat(expected));
    }

    #[test]
    fn ordinary_pods_are_evicted_by_name() {
        check(false, "", "ns/b\nns/a\nns/c deleted=90", "evict: ns/a ns/b\ndeleting: ns/c");
        check(false, "", "", "done");
    }

    #[test]
    fn daemon_sets_and_mirror_pods_stay() {
        check(
            false,
            "",
            "ns/d daemonset\nns/m mirror\nns/o orphan\nns/f daemonset finished",
            "evict: ns/f ns/o
             skip ns/d: DaemonSet
             skip ns/m: Mirror
             warn ns/o: OrphanedDaemonSet",
        );
        check(false, "", "ns/d daemonset", "skip ns/d: DaemonSet\ndone");
    }

    #[test]
    fn losses_are_warned_of() {
        check(false, "", "ns/a bare local", "evict: ns/a\nwarn ns/a: LocalStorage\nwarn ns/a: Unmanaged");
        check(false, "", "ns/a bare local finished", "evict: ns/a");
    }

    #[test]
    fn the_pods_label_outranks_rules() {
        check(
            false,
            "r order=5",
            "ns/a drain=Skip\nns/b drain=wait-completed\nns/c drain=WaitCompleted\nns/d drain=odd",
            "later: ns/d
             wait: ns/b ns/c
             skip ns/a: Label",
        );
    }

    #[test]
    fn the_first_rule_by_name_decides() {
        check(
            false,
            "b skip app=x
             a order=1 app=x
             c wait app=y",
            "ns/one app=x\nns/two app=y\nns/three app=z",
            "evict: ns/three
             later: ns/one
             wait: ns/two",
        );
        check(false, "b skip", "ns/one", "skip ns/one: Rule(\"b\")\ndone");
    }

    #[test]
    fn only_the_lowest_order_acts_and_leaving_pods_hold_back_the_rest() {
        check(
            false,
            "a order=-1 app=first\nb order=2 app=last",
            "ns/x app=last\nns/y app=first deleted=99\nns/z",
            "later: ns/x ns/z
             deleting: ns/y",
        );
        check(
            false,
            "a order=-1 app=first",
            "ns/x app=first\nns/y drain=wait-completed",
            "evict: ns/x
             wait later: ns/y",
        );
    }

    #[test]
    fn an_unreachable_node_is_not_waited_for() {
        check(
            true,
            "",
            "ns/a deleted=98\nns/b deleted=99\nns/c",
            "evict: ns/c
             deleting: ns/b
             skip ns/a: Unreachable",
        );
    }

    #[test]
    fn a_pod_without_a_namespace_stops_the_drain_and_is_told() {
        check(false, "", "ns/a\nlost/b", "blocked: Pod Namespace does not exist: lost");
    }

    #[test]
    fn rules_for_other_machines_do_not_apply() {
        let mut other = rule("r skip");
        let labels = Labels::from([("pool".to_owned(), "gpu".to_owned())]);
        other.machines = vec![(Some(Selector { labels, expressions: Vec::new() }), None)];
        let pods = [pod("ns/a")];
        let namespaces = BTreeMap::from([("ns".to_owned(), Labels::new())]);
        let none = Labels::new();
        let rules = [other];
        let input = Input {
            pods: &pods,
            rules: &rules,
            machine: &none,
            cluster: &none,
            namespaces: &namespaces,
            unreachable: false,
        };
        assert_eq!(plan(&input, at(0)).evict, ["ns/a"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_drain_ends_when_evicted_pods_go(
            given in proptest::collection::vec((0..4i32, any::<bool>(), any::<bool>()), 0..12),
        ) {
            let mut pods: Vec<Pod> = given.iter().enumerate().map(|(place, (order, daemon, waits))| {
                let mut pod = pod(&format!("ns/p{place} order={order}"));
                if *daemon { pod.controller = Controller::DaemonSet; }
                if *waits { pod.labels.insert(label::POD_DRAIN.into(), "wait-completed".into()); }
                pod
            }).collect();
            let rules: Vec<Rule> = (0..4).map(|order| rule(&format!("r{order} order={order} order={order}"))).collect();
            let namespaces = BTreeMap::from([("ns".to_owned(), Labels::new())]);
            let none = Labels::new();
            for _ in 0..6 {
                let input = Input { pods: &pods, rules: &rules, machine: &none, cluster: &none, namespaces: &namespaces, unreachable: false };
                let plan = plan(&input, at(0));
                let named = plan.evict.len() + plan.evict_later.len() + plan.deleting.len() + plan.wait.len()
                    + plan.wait_later.len() + plan.skipped.len();
                prop_assert!(named == pods.len(), "every pod has one fate");
                prop_assert!(plan.is_done() || !plan.evict.is_empty() || !plan.wait.is_empty(), "something moves");
                pods.retain(|pod| !plan.evict.contains(&pod.key()) && !plan.wait.contains(&pod.key()));
            }
            let input = Input { pods: &pods, rules: &rules, machine: &none, cluster: &none, namespaces: &namespaces, unreachable: false };
            prop_assert!(plan(&input, at(0)).is_done());
        }
    }
}
