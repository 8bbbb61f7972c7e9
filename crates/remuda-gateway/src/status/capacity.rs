//! What the nodes of a cluster have together.

use std::collections::BTreeMap;

use remuda_base::quantity;
use serde::Deserialize;

/// Resources worth showing.
const SHOWN: &[&str] = &["cpu", "memory", "pods"];

/// Nodes of a cluster in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) count: i64,
    pub(crate) capacity: BTreeMap<String, String>,
    pub(crate) allocatable: BTreeMap<String, String>,
}

/// What is read of a node. The rest of it, images above all, is skipped while it is parsed.
#[derive(Debug, Default, Deserialize)]
pub(super) struct NodeSize {
    status: Option<StatusSize>,
}

#[derive(Debug, Default, Deserialize)]
struct StatusSize {
    capacity: Option<BTreeMap<String, String>>,
    allocatable: Option<BTreeMap<String, String>>,
}

/// A page of nodes.
#[derive(Debug, Default, Deserialize)]
pub(super) struct NodePage {
    #[serde(default)]
    pub(super) metadata: PageMetadata,
    #[serde(default)]
    pub(super) items: Vec<NodeSize>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct PageMetadata {
    #[serde(default, rename = "continue")]
    pub(super) next: Option<String>,
}

/// Adds up nodes, a page at a time.
#[derive(Debug, Default)]
pub(super) struct Sum {
    count: i64,
    capacity: BTreeMap<&'static str, u128>,
    allocatable: BTreeMap<&'static str, u128>,
}

impl Sum {
    pub(super) fn add(&mut self, node: &NodeSize) {
        self.count += 1;
        let Some(status) = &node.status else { return };
        add(&mut self.capacity, status.capacity.as_ref());
        add(&mut self.allocatable, status.allocatable.as_ref());
    }

    pub(super) fn total(self) -> Nodes {
        Nodes { count: self.count, capacity: shown(&self.capacity), allocatable: shown(&self.allocatable) }
    }
}

/// In billionths, which is the finest a quantity can be. What is no quantity, or is negative, counts as nothing.
fn add(sums: &mut BTreeMap<&'static str, u128>, quantities: Option<&BTreeMap<String, String>>) {
    for name in SHOWN {
        let text = quantities.and_then(|quantities| quantities.get(*name));
        let amount = text.and_then(|text| u128::try_from(quantity::nanos(text)?).ok());
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(amount.unwrap_or(0));
    }
}

fn shown(sums: &BTreeMap<&'static str, u128>) -> BTreeMap<String, String> {
    const NANOS: u128 = 1_000_000_000;
    let text = |name: &str, sum: u128| match name {
        "memory" => format!("{}Ki", sum / NANOS / 1024),
        _ if sum.is_multiple_of(NANOS) => (sum / NANOS).to_string(),
        _ => format!("{}m", sum.div_ceil(NANOS / 1000)),
    };
    sums.iter().map(|(name, sum)| ((*name).to_owned(), text(name, *sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_add_up() {
        let node = |cpu: &str, memory: &str| {
            serde_json::from_value::<NodeSize>(serde_json::json!({
                "metadata": {"name": "n", "managedFields": [{}]},
                "status": {
                    "capacity": {"cpu": cpu, "memory": memory, "pods": "110"},
                    "images": [{"names": ["a"], "sizeBytes": 7}],
                },
            }))
            .unwrap()
        };
        let mut sum = Sum::default();
        sum.add(&node("4", "8Gi"));
        sum.add(&node("500m", "1Gi"));
        sum.add(&NodeSize::default());
        let total = sum.total();
        assert_eq!(total.count, 3);
        let text = |name: &str| total.capacity[name].as_str();
        assert_eq!((text("cpu"), text("memory"), text("pods")), ("4500m", "9437184Ki", "220"));

        // The smallest and the largest suffixes count too; what is none of them does not.
        let mut sum = Sum::default();
        for (cpu, memory) in [("1500000u", "1E"), ("500000000n", "1Ei"), ("-3", "x"), ("1n", "")] {
            sum.add(&node(cpu, memory));
        }
        let total = sum.total();
        assert_eq!(
            (total.capacity["cpu"].as_str(), total.capacity["memory"].as_str()),
            ("2001m", "2102462406842624Ki")
        );
    }
}
