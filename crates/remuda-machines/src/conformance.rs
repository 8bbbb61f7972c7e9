//! Whether a driver that comes with the program is complete, for tests of programs that register some.

use std::collections::BTreeSet;

use remuda_drivers::{
    builtin::{Context, Registry},
    log::Log,
};
use remuda_names::{driver::facts, machines::class, rancher::annotation::driver as annotation};

use crate::flags::{field_of, pairs, variable_prefix, words};

/// What is missing or wrong, one line each.
pub async fn complaints(drivers: &Registry) -> Vec<String> {
    let mut found = Vec::new();
    for (name, _) in drivers.names() {
        let Some(driver) = drivers.open(name, Context::new(Log::tracing())) else { continue };
        let mut complain = |what: String| found.push(format!("driver {name}: {what}"));
        if driver.name() != name {
            complain(format!("calls itself {}", driver.name()));
        }
        // By the name it is registered under: that is how all others find them.
        let facts = facts(name);
        if ![class::CLOUD, class::HOST].contains(&facts.class) {
            complain(format!("has the class {:?}", facts.class));
        }
        for (known, _) in facts.variable_aliases {
            if !known.starts_with(&variable_prefix(name)) {
                complain(format!("{known} is no variable of it"));
            }
        }
        let Some(listing) = facts.listing else {
            complain("has no listing in remuda_names::driver".to_owned());
            continue;
        };
        if listing.description.is_empty() {
            complain("has no description".to_owned());
        }
        let flags = driver.flags().await.unwrap_or_default();
        let fields: BTreeSet<String> = flags.iter().filter_map(|flag| field_of(&flag.name)).collect();
        for (key, value) in listing.annotations {
            let named = match *key {
                annotation::FILE_ALIASES => pairs(value).into_iter().map(|(_, field)| field).collect(),
                _ => words(value),
            };
            for field in named.iter().filter(|field| !fields.contains(*field)) {
                complain(format!("{key} names {field}, which is none of its flags"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use remuda_drivers::generic::Generic;

    use super::*;

    #[tokio::test]
    async fn every_driver_is_complete_and_a_forgotten_one_is_told() {
        assert_eq!(complaints(&Registry::standard()).await, [""; 0]);
        let forgotten = Registry::default().with("new", true, |context| Arc::new(Generic::new(context)));
        assert_eq!(
            complaints(&forgotten).await,
            ["driver new: calls itself generic", "driver new: has no listing in remuda_names::driver",]
        );
    }
}
