//! Generators shared by the property tests.

use proptest::prelude::*;
use serde_json::{Map, Value};

/// JSON of any shape, with the keys this crate looks at frequent enough to get past the first lookup.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let keys = &[
        "metadata",
        "name",
        "namespace",
        "rules",
        "verbs",
        "apiGroups",
        "resources",
        "resourceNames",
        "nonResourceURLs",
        "subjects",
        "roleRef",
        "kind",
        "aggregationRule",
        "clusterRoleSelectors",
        "matchLabels",
        "matchExpressions",
        "operator",
        "key",
        "values",
        "labels",
        "annotations",
        "data",
        "level",
        "users",
        "userGroups",
        "namespaces",
        "omitStages",
        "group",
        "type",
        "expiration",
    ][..];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(&["*", "", "get", "In", "User", "Role", "ClusterRole", "Metadata"][..])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let key = prop::sample::select(keys).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}
