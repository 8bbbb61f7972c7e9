//! Which machine is the init node: the one that starts the cluster, and that all others join.
//!
//! The mark is a label on the plan secret. Whoever carries it is configured without a server to join, so
//! on an empty disk it starts a *new* cluster. A machine that was told to start one must therefore be gone
//! before another is told the same, and once a cluster exists the mark only ever goes to machines that
//! belong to it. While all of those are being deleted, one of them stays the place to join, so that their
//! successors can take over its data.

use remuda_names::rancher::label;

use crate::{
    entry::{Entry, NodeState},
    output::{Again, Waiting, Write},
    spec::ControlPlaneStatus,
};

/// How the election went.
#[derive(Debug, PartialEq)]
pub(crate) enum Election {
    /// There is an init node; the URL may not be known yet.
    Elected(String),
    /// Marks have to be moved first.
    Move(Vec<Write>, Again),
    Waiting(Waiting),
}

/// Whether there is a cluster that could be joined or lost.
pub(crate) fn established(entries: &[Entry<'_>], status: &ControlPlaneStatus) -> bool {
    let known = |entry: &Entry<'_>| !entry.join_url().is_empty() || !entry.joined_to().is_empty();
    status.control_plane_initialized() || entries.iter().any(known)
}

/// `entries` are sorted by name.
pub(crate) fn elect(entries: &[Entry<'_>], fixed: &str, established: bool) -> Election {
    if !fixed.is_empty() {
        return designate(entries, fixed);
    }
    // Before there is a cluster, whoever was given a plan was told to start it, and may do so any moment.
    let starting = entries.iter().find(|entry| !established && entry.roles.etcd && entry.node.is_some());
    let belongs = |entry: &Entry<'_>| match (established, starting) {
        (true, _) => {
            let joined = entry.node.as_ref().is_some_and(NodeState::has_applied) && !entry.has_only_read();
            joined || !entry.join_url().is_empty()
        }
        (false, Some(_)) => entry.node.is_some(),
        (false, None) => true,
    };
    let candidates: Vec<&Entry<'_>> =
        entries.iter().filter(|entry| entry.can_be_init() && belongs(entry)).collect();
    let populated = candidates.iter().copied().find(|entry| !entry.join_url().is_empty());
    let mut marked = entries.iter().filter(|entry| entry.init);
    let current = marked.next().filter(|_| marked.next().is_none());
    let current = current.filter(|entry| candidates.iter().any(|other| other.name() == entry.name()));
    if let Some(current) = current
        && (!current.join_url().is_empty() || populated.is_none())
    {
        return Election::Elected(current.join_url().to_owned());
    }
    let chosen = match (populated.or_else(|| candidates.first().copied()), starting) {
        (Some(chosen), _) => chosen,
        (None, Some(starting)) => {
            return Election::Waiting(Waiting::FormerInitNode { machine: starting.name().to_owned() });
        }
        (None, None) => match reluctant(entries).filter(|_| established) {
            Some(stays) => return keep(entries, stays),
            None => return clear(entries, None).unwrap_or(Election::Waiting(Waiting::ViableInitNode)),
        },
    };
    // One step at a time: a mark is set only when nobody else has it.
    clear(entries, None).unwrap_or_else(|| Election::Move(vec![mark(chosen, true)], Again::Election))
}

/// An etcd machine that nobody would choose, and that still has the cluster's data.
fn reluctant<'e, 'a>(entries: &'e [Entry<'a>]) -> Option<&'e Entry<'a>> {
    let has_data = |entry: &&Entry<'_>| entry.roles.etcd && !entry.join_url().is_empty();
    entries.iter().filter(has_data).find(|entry| entry.init).or_else(|| entries.iter().find(has_data))
}

fn keep(entries: &[Entry<'_>], stays: &Entry<'_>) -> Election {
    if let Some(clear) = clear(entries, Some(stays.name())) {
        return clear;
    }
    if stays.init {
        return Election::Elected(stays.join_url().to_owned());
    }
    Election::Move(vec![mark(stays, true)], Again::Election)
}

fn designate(entries: &[Entry<'_>], id: &str) -> Election {
    let mut matching = entries.iter().filter(|entry| entry.label(label::MACHINE_ID) == id);
    let (Some(designated), None) = (matching.next(), matching.next()) else {
        return Election::Waiting(Waiting::DesignatedInitNode { id: id.to_owned() });
    };
    if let Some(clear) = clear(entries, Some(designated.name())) {
        return clear;
    }
    if designated.init {
        return Election::Elected(designated.join_url().to_owned());
    }
    Election::Move(vec![mark(designated, true)], Again::Election)
}

/// Takes the mark from everybody but `except`; `None` if nobody has it.
fn clear(entries: &[Entry<'_>], except: Option<&str>) -> Option<Election> {
    let others = entries.iter().filter(|entry| entry.init && Some(entry.name()) != except);
    let writes: Vec<Write> = others.map(|entry| mark(entry, false)).collect();
    if writes.is_empty() { None } else { Some(Election::Move(writes, Again::Election)) }
}

fn mark(entry: &Entry<'_>, marked: bool) -> Write {
    let secret = entry.secret.map_or_else(String::new, |secret| secret.name.clone());
    Write::Mark { machine: entry.name().to_owned(), secret, marked }
}

#[cfg(test)]
mod tests {
    use remuda_names::rancher::annotation;

    use super::*;
    use crate::input::{Machine, PlanSecret};

    /// One machine per line: `name [init] [url] [planned] [applied] [deleting] [failed] [bare] [worker] [id=x]`.
    fn machines(text: &str) -> Vec<Machine> {
        let mut machines: Vec<Machine> = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap();
            let words: Vec<&str> = words.collect();
            let has = |word: &str| words.contains(&word);
            let mut secret = PlanSecret { name: format!("{name}-plan"), ..PlanSecret::default() };
            let mut label = |key: &str, value: &str| secret.labels.insert(key.to_owned(), value.to_owned());
            if !has("worker") {
                label(label::ETCD_ROLE, "true");
            }
            if has("init") {
                label(label::INIT_NODE, "true");
            }
            if let Some(id) = words.iter().find_map(|word| word.strip_prefix("id=")) {
                label(label::MACHINE_ID, id);
            }
            if has("url") {
                secret.annotations.insert(annotation::JOIN_URL.to_owned(), format!("https://{name}:6443"));
            }
            if has("planned") || has("applied") {
                secret.data.insert("plan".to_owned(), b"{}".to_vec());
            }
            if has("applied") {
                secret.data.insert("appliedPlan".to_owned(), b"{}".to_vec());
            }
            machines.push(Machine {
                name: name.to_owned(),
                deleting: has("deleting"),
                failed: has("failed"),
                infrastructure_ready: !has("bare"),
                plan_secret: Some(secret),
                ..Machine::default()
            });
        }
        machines
    }

    #[track_caller]
    fn check_fixed(fixed: &str, text: &str, expected: &str) {
        let machines = machines(text);
        let entries: Vec<Entry<'_>> = machines.iter().map(Entry::new).collect();
        let established = established(&entries, &ControlPlaneStatus::default());
        let answer = match elect(&entries, fixed, established) {
            Election::Elected(url) => format!("elected {url}"),
            Election::Waiting(waiting) => waiting.to_string(),
            Election::Move(writes, _) => {
                writes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            }
        };
        assert_eq!(answer.trim_end(), expected, "{text}");
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        check_fixed("", text, expected);
    }

    #[test]
    fn the_first_usable_etcd_machine_starts_a_new_cluster() {
        check("a worker\nb", "b: elected init node");
        check("a bare\nb", "b: elected init node");
        check("a failed\nb deleting", "waiting for viable init node");
        check("a init", "elected");
        check("a init url", "elected https://a:6443");
    }

    #[test]
    fn a_machine_others_can_join_is_preferred() {
        check("a\nb url", "b: elected init node");
        check("a init applied\nb url", "a: no longer init node");
        check("a init bare\nb url applied", "a: no longer init node");
    }

    #[test]
    fn several_marks_are_cleared_before_a_new_one_is_set() {
        check("a init\nb init", "a: no longer init node; b: no longer init node");
    }

    #[test]
    fn a_deleting_init_node_hands_over_to_another_member() {
        check("a init url applied deleting\nb url applied", "a: no longer init node");
        check("a url applied deleting\nb url applied", "b: elected init node");
    }

    #[test]
    fn a_new_machine_never_starts_a_second_cluster() {
        check("a init url applied deleting\nb", "elected https://a:6443");
        check("a url applied deleting\nb", "a: elected init node");
        check("a url applied deleting\nb init", "b: no longer init node");
        check("a init url applied deleting\nb\nc applied", "a: no longer init node");
    }

    #[test]
    fn a_cluster_that_never_came_up_may_start_again_elsewhere() {
        check("a init deleting\nb", "a: no longer init node");
        check("a deleting\nb", "b: elected init node");
        check(
            "a init planned deleting\nb",
            "waiting for machine a to be gone, which may have started the cluster",
        );
        check("a init planned failed\nb planned", "a: no longer init node");
        check("a planned failed\nb planned", "b: elected init node");
    }

    #[test]
    fn a_designated_machine_is_taken_or_waited_for() {
        check_fixed("x", "a\nb id=x", "b: elected init node");
        check_fixed("x", "a init\nb id=x", "a: no longer init node");
        check_fixed("x", "a\nb id=x init url", "elected https://b:6443");
        check_fixed("x", "a", "unable to find designated init node matching machine ID x");
        check_fixed("x", "a id=x\nb id=x", "unable to find designated init node matching machine ID x");
    }
}
