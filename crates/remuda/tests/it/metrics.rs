//! What the server tells Prometheus, and whether the examples for it ask for what is told.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{everyday::kubectl, people::Desk};

const ALERTS: &str = include_str!("../../../../docs/examples/alerts.yaml");
const DASHBOARD: &str = include_str!("../../../../docs/examples/grafana.json");
/// Labels that Prometheus itself adds to what it reads.
const ADDED: [&str; 2] = ["instance", "job"];

/// Words of an expression that are no metrics: they join others.
const JOINING: [&str; 7] = ["by", "without", "on", "ignoring", "and", "or", "unless"];

/// What an expression of Prometheus asks for.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
}

impl Asked {
    fn read(&mut self, expression: &str) {
        let text: Vec<char> = expression.chars().collect();
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':' | '$');
        // Within braces, and after the words that group, are labels.
        let (mut place, mut braces, mut group, mut joined) = (0, false, false, false);
        while place < text.len() {
            match text[place] {
                '"' => {
                    let rest = text[place + 1..].iter().position(|letter| *letter == '"');
                    place += rest.expect("a quote without an end") + 1;
                }
                '[' => place += text[place..].iter().position(|letter| *letter == ']').expect("[ without ]"),
                '{' => braces = true,
                '}' => braces = false,
                '(' => (group, joined) = (joined, false),
                ')' => group = false,
                letter if is_word(letter) => {
                    let word: String = text[place..].iter().take_while(|letter| is_word(**letter)).collect();
                    place += word.len() - 1;
                    let next = text[place + 1..].iter().find(|letter| !letter.is_whitespace());
                    if JOINING.contains(&word.as_str()) {
                        joined = true;
                    } else if braces || group {
                        self.labels.insert(word);
                    } else if next != Some(&'(') && !letter.is_ascii_digit() {
                        // What is followed by a parenthesis is a function, or groups before its metric.
                        if !text[place + 1..].iter().collect::<String>().trim_start().starts_with("by ") {
                            self.metrics.insert(word);
                        }
                    }
                }
                _ => {}
            }
            place += 1;
        }
    }
}

/// Everything a document has under a key, at whatever depth.
fn under<'a>(key: &str, value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|value| under(key, value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| under(key, value, found)),
        _ => {}
    }
}

/// Names by which the samples of each metric are asked for.
fn served(text: &str) -> BTreeSet<String> {
    let mut kinds = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        kinds.insert(name, kind);
    }
    let names = kinds.iter().flat_map(|(name, kind)| {
        let ends: &[&str] = match *kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        ends.iter().map(move |end| format!("{name}{end}"))
    });
    names.collect()
}

#[test]
fn an_expression_is_read_for_its_metrics_and_labels() {
    let mut asked = Asked::default();
    asked.read(
        "histogram_quantile(0.9, sum by (le, verb) (rate(a_bucket{code=~\"[45]..\",job=\"x\"}[6h]))) > 4e9",
    );
    asked.read("b - time() < 14 * 86400");
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(
        asked,
        Asked { metrics: set(&["a_bucket", "b"]), labels: set(&["code", "job", "le", "verb"]) }
    );
}

#[test]
fn metrics_tell_what_a_fleet_is_run_by() {
    let desk = Desk::open();
    desk.cluster("edge");
    let Some(_) = kubectl(&desk, "version --client") else { return };
    let text = desk.until(|| {
        let text = kubectl(&desk, "get --raw /metrics")?;
        // It was never connected, which is no failure.
        text.contains("remuda_clusters{state=\"creating\"} 1").then_some(text)
    });
    for line in [
        "remuda_machines{phase=\"Running\"} 0",
        "remuda_clusters{state=\"ready\"} 0",
        "remuda_clusters_connected 0",
        "remuda_certificate_expiry_timestamp_seconds{certificate=\"authority\"} ",
        "remuda_certificate_expiry_timestamp_seconds{certificate=\"serving\"} ",
        "remuda_cluster_provisioning_seconds_count 0",
        "remuda_agents_connected 0",
        "remuda_machine_phase_seconds_count{phase=\"Provisioning\"} 0",
        "remuda_store_log_bytes ",
        "workqueue_longest_running_processor_seconds",
        "workqueue_longest_waiting_seconds",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let size = text.lines().find_map(|line| line.strip_prefix("remuda_store_size_bytes ")).unwrap();
    assert!(size.parse::<f64>().unwrap() > 0.0, "{size}");

    let served = served(&text);
    let alerts = ALERTS.lines().filter_map(|line| line.trim_start().strip_prefix("expr: ")).collect();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut panels = Vec::new();
    under("expr", &dashboard, &mut panels);
    for (name, expressions, least) in [("alerts.yaml", alerts, 8), ("grafana.json", panels, 15)] {
        let expressions: Vec<&str> = expressions;
        let mut asked = Asked::default();
        expressions.iter().for_each(|expression| asked.read(expression));
        assert!(asked.metrics.len() >= least, "{name}: {:?}", asked.metrics);
        let missing: Vec<_> = asked.metrics.difference(&served).collect();
        assert!(missing.is_empty(), "{name} asks for what is not served: {missing:?}");
        let known = |label: &&String| {
            ADDED.contains(&label.as_str())
                || [", ", ",", "{"].iter().any(|before| text.contains(&format!("{before}{label}=\"")))
        };
        let unknown: Vec<_> = asked.labels.iter().filter(|label| !known(label)).collect();
        assert!(unknown.is_empty(), "{name} asks by labels that nothing has: {unknown:?}");
    }
}
