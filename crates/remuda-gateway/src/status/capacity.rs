//! What the nodes of a cluster have together.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity};

/// Resources worth showing.
const SHOWN: &[&str] = &["cpu", "memory", "pods"];

/// Nodes of a cluster in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) count: i64,
    pub(crate) capacity: BTreeMap<String, String>,
    pub(crate) allocatable: BTreeMap<String, String>,
}

/// Adds up nodes, a page at a time.
#[derive(Debug, Default)]
pub(super) struct Sum {
    count: i64,
    capacity: BTreeMap<&'static str, u128>,
    allocatable: BTreeMap<&'static str, u128>,
}

impl Sum {
    pub(super) fn add(&mut self, node: &Node) {
        self.count += 1;
        let Some(status) = &node.status else { return };
        add(&mut self.capacity, status.capacity.as_ref());
        add(&mut self.allocatable, status.allocatable.as_ref());
    }

    pub(super) fn total(self) -> Nodes {
        Nodes { count: self.count, capacity: shown(&self.capacity), allocatable: shown(&self.allocatable) }
    }
}

fn add(sums: &mut BTreeMap<&'static str, u128>, quantities: Option<&BTreeMap<String, Quantity>>) {
    for name in SHOWN {
        let quantity =
            quantities.and_then(|quantities| quantities.get(*name)).and_then(|text| milli(&text.0));
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(quantity.unwrap_or(0));
    }
}

fn shown(sums: &BTreeMap<&'static str, u128>) -> BTreeMap<String, String> {
    let text = |name: &str, milli: u128| match name {
        "memory" => format!("{}Ki", milli / 1000 / 1024),
        _ if milli.is_multiple_of(1000) => (milli / 1000).to_string(),
        _ => format!("{milli}m"),
    };
    sums.iter().map(|(name, milli)| ((*name).to_owned(), text(name, *milli))).collect()
}

/// A quantity in thousandths; `None` for what is no quantity, is negative, or is out of all proportion.
fn milli(text: &str) -> Option<u128> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(at);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() > 20 || part.len() > 20 || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse::<u32>().ok());
    let factor: u128 = match suffix {
        "m" => 1,
        "" => 1000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "P" => 1_000_000_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        "Pi" => 1000 << 50,
        _ => 1000_u128.checked_mul(10_u128.checked_pow(exponent.filter(|exponent| *exponent <= 15)?)?)?,
    };
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = if part.is_empty() {
        0
    } else {
        part.parse::<u128>().ok()?.checked_mul(factor)? / 10_u128.checked_pow(part.len() as u32)?
    };
    whole.checked_mul(factor)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("4", Some(4000)),
            ("250m", Some(250)),
            ("1.5", Some(1500)),
            ("2Ki", Some(2_048_000)),
            ("1e3", Some(1_000_000)),
            ("0.1", Some(100)),
            ("", None),
            ("-1", None),
            ("x", None),
            ("1e99", None),
            ("é", None),
            ("99999999999999999999999999", None),
        ] {
            assert_eq!(milli(text), expected, "{text}");
        }
    }

    #[test]
    fn nodes_add_up() {
        let node = |cpu: &str, memory: &str| {
            serde_json::from_value::<Node>(serde_json::json!({
                "status": {"capacity": {"cpu": cpu, "memory": memory, "pods": "110"}},
            }))
            .unwrap()
        };
        let mut sum = Sum::default();
        sum.add(&node("4", "8Gi"));
        sum.add(&node("500m", "1Gi"));
        sum.add(&Node::default());
        let total = sum.total();
        assert_eq!(total.count, 3);
        let text = |name: &str| total.capacity[name].as_str();
        assert_eq!((text("cpu"), text("memory"), text("pods")), ("4500m", "9437184Ki", "220"));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(512))]

        #[test]
        fn no_quantity_breaks_anything(text in "[0-9.eEkKmMiGTP-]{0,40}|\\PC{0,20}") {
            let _ = milli(&text);
        }
    }
}
