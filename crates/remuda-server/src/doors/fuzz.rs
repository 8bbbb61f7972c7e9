//! Paths at random, against the doors of a whole server and against what the API makes of them.

use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use remuda_auth::request_info::RequestInfo;
use remuda_door::{Access, Owned, Table};
use remuda_gateway::doors::cluster_of;
use remuda_names::fuzz;

use super::all;

fn config() -> Config {
    let told = |name: &str| std::env::var_os(name)?.to_str()?.parse::<u32>().ok();
    let seed = RngSeed::Fixed(told(fuzz::SEED).unwrap_or(1).into());
    Config { cases: told(fuzz::CASES).unwrap_or(1024), rng_seed: seed, ..Config::default() }
}

/// A path of some door, and what may be done to it to look like another.
fn disguised() -> impl Strategy<Value = (String, String)> {
    let examples: Vec<String> =
        all().iter().flat_map(|door| door.paths).map(|owned: &Owned| owned.example()).collect();
    (proptest::sample::select(examples), 0_usize..9, any::<prop::sample::Index>()).prop_map(
        |(path, how, at)| {
            let at = at.index(path.len());
            let other = match how {
                0 => format!("{}%{:02x}{}", &path[..at], path.as_bytes()[at], &path[at + 1..]),
                1 => format!("{}%{:02X}{}", &path[..at], path.as_bytes()[at], &path[at + 1..]),
                2 => format!("/{path}"),
                3 => format!("{path}/"),
                4 => format!("/x/..{path}"),
                5 => format!("{path}/../api/v1/secrets"),
                6 => format!("{path};x=y"),
                7 => path.to_ascii_uppercase(),
                _ => path.replace('/', "%2f"),
            };
            (path, other)
        },
    )
}

proptest! {
    #![proptest_config(config())]

    /// No other spelling of a path is let in where less is asked for.
    #[test]
    fn a_path_in_disguise_is_the_same_door_or_one_that_knows_the_caller((path, other) in disguised()) {
        let table = Table::new(all());
        let door = |path: &str| table.doors()[table.find(path)];
        let (own, found) = (door(&path), door(&other));
        let asks = matches!(found.access, Access::Api | Access::Authenticated | Access::Permission)
            // Both show strangers settings of a login page and nothing else, whatever the rest of the path is.
            || found.access == Access::Optional
            // There is nothing behind it.
            || found.name == remuda_login::doors::NOTHING_PUBLIC.name;
        prop_assert!(found.name == own.name || asks, "{other} is {} and not {}", found.name, own.name);
        // Whatever the API would take for a resource is the API's, or a cluster's, whose own API judges it.
        if RequestInfo::parse("GET", &other, None).is_resource() {
            prop_assert!(matches!(found.access, Access::Api), "{other} is {}", found.name);
        }
    }

    /// The cluster of the audit log, of authorization and of the proxy is one.
    #[test]
    fn a_path_into_a_cluster_is_of_one_cluster(
        path in "/k8s/(clusters|proxy)(/|%2f)?(local|%6cocal|local;x|LOCAL|c-1|\\.\\.|\\.|)(/|%2F|//)?(api/v1|\\.\\./local|[a-z%;.]{0,6}){0,2}",
    ) {
        let table = Table::new(all());
        let found = table.doors()[table.find(&path)].name;
        match cluster_of(&path) {
            Some(("local", rest)) => {
                prop_assert_eq!(found, "local");
                prop_assert!(rest.starts_with('/'));
            }
            Some(_) => prop_assert_eq!(found, "clusters"),
            None => prop_assert!(found == "kubernetes", "{}", found),
        }
    }
}
