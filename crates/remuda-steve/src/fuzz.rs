//! What callers send, at random.

use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use remuda_names::fuzz;
use serde_json::{Value, json};

use crate::{
    filter::Filter,
    kind::Kind,
    list::projected,
    path::Path,
    query::{ListQuery, Parameters},
    row::Row,
    state::Timeline,
    subscribe::Said,
};

pub(crate) fn config() -> Config {
    let told = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u32>().ok();
    let seed = RngSeed::Fixed(told(fuzz::SEED).unwrap_or(1).into());
    Config { cases: told(fuzz::CASES).unwrap_or(512), rng_seed: seed, ..Config::default() }
}

/// Any JSON with the keys that are looked at.
fn object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "True|False|Unknown|Error|2026-01-01T00:00:00Z|\\PC{0,6}".prop_map(Value::from),
    ];
    let key = "metadata|name|status|conditions|type|reason|phase|display|state|spec|replicas|deletionTimestamp|\
               creationTimestamp|finalizers|ownerReferences|labels|workers|containerStatuses|a|b";
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..6).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_filter_is_read_or_refused(
        text in "[a-z.\\[\\]()=!~<>,'\"\\\\ ]{0,40}|[a-z.]{1,4} ?=> ?(\\[[a-z./\\[\\]]{0,4}\\]){0,5}[=~]?[a-z]?|\\PC{0,40}", object in object(),
    ) {
        if let Ok(filter) = Filter::parse(&text) {
            filter.matches(|field| field.path.value(&object));
        }
    }

    #[test]
    fn a_query_is_read_or_refused(
        text in "((filter|sort|page|pagesize|summary|include|exclude|excludeValues|revision|labelSelector|limit)=\\PC{0,20}&?){0,6}",
        object in object(),
    ) {
        if let Ok(query) = ListQuery::parse(&Parameters::parse(Some(&text))) {
            projected(json!({"id": "x", "spec": object}), &query);
        }
    }

    #[test]
    fn a_message_is_understood_or_ignored(
        text in "\\PC{0,60}|\\{\"(resourceType|stop|debounceMs|id)\":\\PC{0,20}\\}",
    ) {
        if let Some(Said::Start(wish, _)) = Said::parse(&text) {
            let _ = wish.labels();
            prop_assert!(wish.debounce().as_millis() >= 50);
        }
    }

    /// Objects of other clusters can be anything.
    #[test]
    fn any_object_has_a_state(object in object(), kind in "Machine|MachineSet|Cluster|Pod|Service|Job|Deployment|X") {
        for group in ["cluster.x-k8s.io", "apps", "", "batch", "management.cattle.io"] {
            let state = Timeline::of(group, &kind, &object).first;
            prop_assert_eq!(state.name.to_lowercase(), state.name.clone());
        }
        if let Some(row) = Row::new(&Kind::default(), object, vec![Value::Null], true) {
            row.value(&Path::parse("metadata.fields[0]").unwrap(), 0);
            row.fields(i64::MAX / 2);
        }
    }
}
