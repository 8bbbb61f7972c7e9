use super::*;
use proptest::prelude::*;

fn spec(addresses: &str, prefix: i64) -> Spec {
    Spec { addresses: addresses.split_whitespace().map(str::to_owned).collect(), prefix, ..Spec::default() }
}

#[track_caller]
fn refused(spec: &Spec, expected: &str) {
    let errors = Pool::read(spec).unwrap_err();
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"), expected);
}

fn claim(name: &str) -> Claim {
    Claim { namespace: "a".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") }
}

fn given(list: &[(&str, &str)]) -> Vec<Given> {
    let one = |(name, address): &(&str, &str)| Given {
        namespace: "a".to_owned(),
        name: (*name).to_owned(),
        address: address.parse().ok(),
    };
    list.iter().map(one).collect()
}

/// The address and what is on the pool by then.
fn asked(pool: &Pool, name: &str, given: &[Given], promises: &str) -> (String, String) {
    match answer(pool, &claim(name), given, &Promises::read(Some(promises)).unwrap()) {
        Answer::Give { address, promises } => (address.to_string(), promises.text().unwrap_or_default()),
        Answer::Exhausted => ("exhausted".to_owned(), String::new()),
    }
}

#[test]
fn a_pool_gives_all_but_what_its_network_keeps() {
    let counts = |spec: &Spec| Pool::read(spec).unwrap().counts(&[]).total;
    let mut pool = spec("10.0.0.0/29", 29);
    assert_eq!(counts(&pool), 6, "neither the network's address nor the broadcast");
    pool.gateway = "10.0.0.1".to_owned();
    assert_eq!(counts(&pool), 5);
    pool.excluded = vec!["10.0.0.1-10.0.0.3".to_owned(), "10.0.0.200".to_owned()];
    assert_eq!(counts(&pool), 3);
    pool.reserved = true;
    assert_eq!(counts(&pool), 5);
    // The network is that of the prefix, whatever part of it the pool has.
    assert_eq!(counts(&spec("10.0.0.7 10.0.0.8", 24)), 2);
    let mut six = spec("fd00::/126", 64);
    assert_eq!(counts(&six), 3, "the anycast address only");
    six.reserved = true;
    assert_eq!(counts(&six), 4);
    assert_eq!(counts(&spec("fd00::/16", 16)), i64::MAX);
}

#[test]
fn what_does_not_fit_together_is_refused_with_its_field() {
    refused(&spec("", 24), "spec.addresses: Required value: addresses is required");
    refused(
        &spec("10.0.0.1 10.0.0.300", 24),
        "spec.addresses[1]: Invalid value: \"10.0.0.300\": provided address is not a valid IP, range, nor CIDR",
    );
    refused(
        &spec("10.0.0.1 fd00::1", 24),
        "spec.addresses: Invalid value: [\"10.0.0.1\",\"fd00::1\"]: provided addresses are of mixed IP families",
    );
    refused(&spec("10.0.0.1", 33), "spec.prefix: Invalid value: 33: provided prefix is not valid");
    refused(&spec("10.0.0.1", -1), "spec.prefix: Invalid value: -1: provided prefix is not valid");
    refused(
        &spec("10.0.0.1 10.0.1.1", 24),
        "spec.addresses[1]: Invalid value: \"10.0.1.1\": provided address belongs to a different subnet than others",
    );
    let with = |gateway: &str, excluded: &str| {
        let (gateway, excluded) = (gateway.to_owned(), vec![excluded.to_owned()]);
        Spec { gateway, excluded, ..spec("10.0.0.1", 24) }
    };
    refused(&with("router", "10.0.0.9"), "spec.gateway: Invalid value: \"router\": not a valid IP address");
    refused(
        &with("fd00::1", "10.0.0.9"),
        "spec.gateway: Invalid value: \"fd00::1\": provided gateway and addresses are of mixed IP families",
    );
    refused(
        &with("", "fd00::/64"),
        "spec.excludedAddresses: Invalid value: [\"fd00::/64\"]: provided addresses are of mixed IP families",
    );
}

#[test]
fn the_first_free_address_is_given() {
    let pool = Pool::read(&spec("10.0.0.10-10.0.0.12", 24)).unwrap();
    let told = |uid: &str, address: &str| format!("{{\"a/{uid}/uid-{uid}\":\"{address}\"}}");
    assert_eq!(asked(&pool, "x", &[], ""), ("10.0.0.10".to_owned(), told("x", "10.0.0.10")));
    let some = given(&[("p", "10.0.0.10"), ("q", "10.0.0.12"), ("odd", "?")]);
    assert_eq!(asked(&pool, "x", &some, ""), ("10.0.0.11".to_owned(), told("x", "10.0.0.11")));
    let all = given(&[("p", "10.0.0.10"), ("q", "10.0.0.12"), ("r", "10.0.0.11")]);
    assert_eq!(asked(&pool, "x", &all, "").0, "exhausted");
}

#[test]
fn what_is_promised_to_another_claim_is_not_given() {
    let pool = Pool::read(&spec("10.0.0.10-10.0.0.12", 24)).unwrap();
    let promised = "{\"a/y/uid-y\":\"10.0.0.10\"}";
    let (address, after) = asked(&pool, "x", &[], promised);
    assert_eq!(address, "10.0.0.11");
    assert!(after.contains("a/y/uid-y"), "a promise stays until its address is there: {after}");
    // It is there, so the promise may go, and the address counts as given.
    let (address, after) = asked(&pool, "x", &given(&[("y", "10.0.0.10")]), promised);
    assert_eq!((address.as_str(), after.contains("a/y/")), ("10.0.0.11", false));
}

#[test]
fn a_promise_is_kept_after_a_kill() {
    let pool = Pool::read(&spec("10.0.0.10-10.0.0.12", 24)).unwrap();
    let promised = "{\"a/x/uid-x\":\"10.0.0.12\"}";
    assert_eq!(asked(&pool, "x", &[], promised).0, "10.0.0.12");
    // Of another claim of the same name it is not, and one that the pool does not have any more is not given.
    assert_eq!(asked(&pool, "x", &[], "{\"a/x/older\":\"10.0.0.10\"}").0, "10.0.0.11");
    assert_eq!(asked(&pool, "x", &[], "{\"a/x/uid-x\":\"10.0.0.99\"}").0, "10.0.0.10");
    // An address that was taken in its place is not given again.
    assert_eq!(asked(&pool, "x", &given(&[("z", "10.0.0.12")]), promised).0, "10.0.0.10");
}

#[test]
fn promises_that_cannot_be_read_are_not_taken_for_none() {
    for odd in ["{", "[]", "{\"a/b\":\"10.0.0.1\"}", "{\"a/b/c/d\":\"10.0.0.1\"}", "{\"a/b/c\":\"x\"}"] {
        assert_eq!(Promises::read(Some(odd)), Err(Unreadable), "{odd}");
    }
    assert_eq!(Promises::read(None).unwrap().text(), None);
    assert_eq!(Promises::read(Some("{}")).unwrap().text(), None);
}

#[test]
fn counts_tell_what_the_pool_does_not_have_any_more() {
    let pool = Pool::read(&spec("10.0.0.10-10.0.0.12", 24)).unwrap();
    let at = |text: &str| text.parse().ok();
    let counts = pool.counts(&[at("10.0.0.10"), at("10.0.0.10"), at("10.0.0.99"), None]);
    assert_eq!(counts, Counts { total: 3, free: 2, used: 4, out_of_range: 1 });
}

/// What happens to claims that several servers see at different times: each step is a server that has read the pool
/// and its addresses, writes its promise if the pool has not changed since, and makes the IPAddress some time later.
#[derive(Debug, Clone)]
enum Step {
    Read(usize, usize),
    Promise(usize),
    Make(usize),
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3usize, 0..6usize).prop_map(|(server, claim)| Step::Read(server, claim)),
        (0..3usize).prop_map(Step::Promise),
        (0..3usize).prop_map(Step::Make),
        Just(Step::Settle),
    ]
}

#[derive(Clone)]
struct Server {
    claim: Claim,
    revision: usize,
    answer: Answer,
    promised: bool,
}

proptest! {
    /// However servers come in between each other, no address is given twice.
    #[test]
    fn no_address_is_given_twice(steps in prop::collection::vec(step(), 0..60)) {
        let pool = Pool::read(&spec("10.0.0.10-10.0.0.13", 24)).unwrap();
        let (mut revision, mut promises) = (0, Promises::default());
        let mut addresses: Vec<Given> = Vec::new();
        let mut servers: Vec<Option<Server>> = vec![None; 3];
        for step in steps {
            match step {
                Step::Read(server, number) => {
                    let claim = claim(&number.to_string());
                    if !addresses.iter().any(|given| given.name == claim.name) {
                        let answer = answer(&pool, &claim, &addresses, &promises);
                        servers[server] = Some(Server { claim, revision, answer, promised: false });
                    }
                }
                Step::Promise(server) => {
                    if let Some(Server { revision: seen, answer: Answer::Give { promises: wanted, .. }, promised, .. }) =
                        &mut servers[server]
                        && *seen == revision
                    {
                        revision += 1;
                        promises = wanted.clone();
                        *promised = true;
                    }
                }
                Step::Make(server) => {
                    if let Some(Server { claim, answer: Answer::Give { address, .. }, promised: true, .. }) =
                        &servers[server]
                        && !addresses.iter().any(|given| given.name == claim.name)
                    {
                        addresses.push(Given {
                            namespace: claim.namespace.clone(), name: claim.name.clone(), address: Some(*address),
                        });
                    }
                }
                Step::Settle => {
                    revision += 1;
                    promises.settle(&addresses, |_| false);
                }
            }
            let distinct: BTreeSet<_> = addresses.iter().map(|given| given.address).collect();
            prop_assert_eq!(distinct.len(), addresses.len(), "{:?}", addresses);
        }
    }
}
