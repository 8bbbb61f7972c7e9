//! Whether one set of rules grants at least what another does.
//!
//! Requested rules are broken down to single permissions (verb × group × resource × name, or verb × URL),
//! so that each is covered by one rule or by none.

use std::{
    borrow::Borrow,
    collections::{HashMap, HashSet},
    rc::Rc,
};

use super::rule::{Rule, url_covers};

/// A rule multiplies out: a hostile one of a few kilobytes can mean billions of permissions. Beyond this
/// many comparisons the rest counts as not covered, which only ever refuses.
const BUDGET: usize = 5_000_000;

/// More than anybody will read in an error message.
const MAX_UNCOVERED: usize = 2_000;

/// The permissions in `requested` that no rule of `owned` grants, each as a rule of its own.
pub fn covers<R: Borrow<Rule>>(owned: &[R], requested: &[Rule]) -> Vec<Rule> {
    // Most requested rules are held word for word: somebody binds a role they have themselves.
    let verbatim: HashSet<&Rule> = owned.iter().map(Borrow::borrow).collect();
    let sets: Vec<Owned<'_>> = owned.iter().map(|rule| Owned::new(rule.borrow())).collect();
    let mut check = Check {
        owned: sets.iter().collect(),
        by_group: HashMap::new(),
        uncovered: Vec::new(),
        budget: BUDGET,
    };
    for rule in requested.iter().filter(|rule| !verbatim.contains(rule)) {
        if check.is_over() {
            break;
        }
        check.resources(rule);
        check.urls(rule);
    }
    if check.budget == 0 {
        // Never report "all covered" when the work was cut short.
        check.uncovered.extend(requested.iter().take(1).cloned());
    }
    check.uncovered
}

/// A held rule with its lists as sets.
struct Owned<'a> {
    verbs: Set<'a>,
    groups: Set<'a>,
    resources: Set<'a>,
    names: Set<'a>,
    urls: &'a [String],
}

struct Set<'a> {
    items: HashSet<&'a str>,
    star: bool,
}

impl<'a> Set<'a> {
    fn new(list: &'a [String]) -> Self {
        let items: HashSet<&str> = list.iter().map(String::as_str).collect();
        Self { star: items.contains("*"), items }
    }

    /// Directly or by a star.
    fn grants(&self, item: &str) -> bool {
        self.star || self.items.contains(item)
    }
}

impl<'a> Owned<'a> {
    fn new(rule: &'a Rule) -> Self {
        Self {
            verbs: Set::new(&rule.verbs),
            groups: Set::new(&rule.api_groups),
            resources: Set::new(&rule.resources),
            names: Set::new(&rule.resource_names),
            urls: &rule.non_resource_urls,
        }
    }

    /// `pods/scale` is also covered by `*/scale`.
    fn grants_resource(&self, resource: &str) -> bool {
        if self.resources.grants(resource) {
            return true;
        }
        let Some(slash) = resource.find('/') else { return false };
        self.resources.items.contains(format!("*{}", &resource[slash..]).as_str())
    }

    /// A name list is a restriction: without one every object is meant. There is no star for names.
    fn is_unnamed(&self) -> bool {
        self.names.items.is_empty()
    }
}

type Held<'a, 'o> = Rc<[&'a Owned<'o>]>;

struct Check<'a, 'o> {
    owned: Vec<&'a Owned<'o>>,
    /// The owned rules about each group asked for so far: rules are many, groups few.
    by_group: HashMap<String, Held<'a, 'o>>,
    uncovered: Vec<Rule>,
    budget: usize,
}

impl<'a, 'o> Check<'a, 'o> {
    fn is_over(&self) -> bool {
        self.budget == 0 || self.uncovered.len() >= MAX_UNCOVERED
    }

    fn pay(&mut self, comparisons: usize) {
        self.budget = self.budget.saturating_sub(comparisons);
    }

    /// The rules among `owned` that pass `keep`, paying for each comparison.
    fn narrow(&mut self, owned: &[&'a Owned<'o>], keep: impl Fn(&Owned<'o>) -> bool) -> Vec<&'a Owned<'o>> {
        self.pay(owned.len() + 1);
        owned.iter().copied().filter(|rule| keep(rule)).collect()
    }

    fn about_group(&mut self, group: &str) -> Held<'a, 'o> {
        if let Some(known) = self.by_group.get(group) {
            return known.clone();
        }
        self.pay(self.owned.len() + 1);
        let found: Held<'a, 'o> = self.owned.iter().copied().filter(|own| own.groups.grants(group)).collect();
        self.by_group.insert(group.to_owned(), found.clone());
        found
    }

    /// Whether one of these grants every verb and resource of the rule, so that nothing needs to be broken down.
    fn grants_at_once(&mut self, owned: &[&'a Owned<'o>], rule: &Rule) -> bool {
        owned.iter().any(|own| {
            self.pay(1);
            if !own.is_unnamed() {
                return false;
            }
            let verbs = own.verbs.star || {
                self.pay(rule.verbs.len());
                rule.verbs.iter().all(|verb| own.verbs.grants(verb))
            };
            verbs
                && (own.resources.star || {
                    self.pay(rule.resources.len());
                    rule.resources.iter().all(|resource| own.grants_resource(resource))
                })
        })
    }

    fn resources(&mut self, rule: &Rule) {
        for group in &rule.api_groups {
            if self.is_over() {
                return;
            }
            let with_group = self.about_group(group);
            if self.grants_at_once(&with_group, rule) {
                continue;
            }
            for resource in &rule.resources {
                let with_resource = self.narrow(&with_group, |own| own.grants_resource(resource));
                for verb in &rule.verbs {
                    let with_verb = self.narrow(&with_resource, |own| own.verbs.grants(verb));
                    self.names(&with_verb, rule, [group, resource, verb]);
                    if self.is_over() {
                        return;
                    }
                }
            }
        }
    }

    fn names(&mut self, owned: &[&'a Owned<'o>], rule: &Rule, [group, resource, verb]: [&String; 3]) {
        if owned.iter().any(|own| own.is_unnamed()) {
            return;
        }
        let missing = |names: Vec<String>| Rule {
            verbs: vec![verb.clone()],
            api_groups: vec![group.clone()],
            resources: vec![resource.clone()],
            resource_names: names,
            non_resource_urls: Vec::new(),
        };
        if rule.resource_names.is_empty() {
            self.uncovered.push(missing(Vec::new()));
            return;
        }
        for name in &rule.resource_names {
            if self.narrow(owned, |own| own.names.items.contains(name.as_str())).is_empty() {
                self.uncovered.push(missing(vec![name.clone()]));
            }
            if self.is_over() {
                return;
            }
        }
    }

    fn urls(&mut self, rule: &Rule) {
        if rule.non_resource_urls.is_empty() {
            return;
        }
        // A rule restricted to names cannot cover a URL, as in the reference implementation.
        let owned = std::mem::take(&mut self.owned);
        let unnamed = self.narrow(&owned, Owned::is_unnamed);
        self.owned = owned;
        let patterns: usize = unnamed.iter().map(|own| own.urls.len()).sum();
        for url in &rule.non_resource_urls {
            self.pay(patterns);
            let with_url =
                self.narrow(&unnamed, |own| own.urls.iter().any(|pattern| url_covers(pattern, url)));
            for verb in &rule.verbs {
                if self.is_over() {
                    return;
                }
                if self.narrow(&with_url, |own| own.verbs.grants(verb)).is_empty() {
                    self.uncovered.push(Rule {
                        verbs: vec![verb.clone()],
                        non_resource_urls: vec![url.clone()],
                        ..Rule::default()
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::attributes::Attributes;

    #[track_caller]
    fn check(owned: Value, requested: Value, expected: &[&str]) {
        let (owned, requested) = (Rule::parse_all(Some(&owned)), Rule::parse_all(Some(&requested)));
        let uncovered = covers(&owned, &requested);
        let texts: Vec<String> = uncovered.iter().map(Rule::compact_string).collect();
        assert_eq!(texts, expected);
    }

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
        json!({"apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": names})
    }

    #[test]
    fn what_is_held_through_several_rules_is_covered() {
        let owned = json!([
            rule(&[""], &["pods"], &["get", "list"], &[]),
            rule(&["", "apps"], &["*"], &["watch"], &[]),
        ]);
        check(owned.clone(), json!([rule(&[""], &["pods"], &["get", "watch"], &[])]), &[]);
        check(
            owned,
            json!([rule(&["", "apps"], &["pods"], &["get", "delete"], &[])]),
            &[
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}"#,
                r#"{APIGroups:["apps"], Resources:["pods"], Verbs:["get"]}"#,
                r#"{APIGroups:["apps"], Resources:["pods"], Verbs:["delete"]}"#,
            ],
        );
    }

    #[test]
    fn a_star_is_only_covered_by_a_star() {
        let every = rule(&["*"], &["*"], &["*"], &[]);
        check(json!([every]), json!([every, rule(&["x"], &["y/z"], &["bind"], &["n"])]), &[]);
        check(
            json!([rule(&[""], &["pods", "services"], &["get", "list"], &[])]),
            json!([every]),
            &[r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#],
        );
    }

    #[test]
    fn names_and_subresources_count() {
        check(
            json!([rule(&[""], &["secrets"], &["get"], &["a"])]),
            json!([rule(&[""], &["secrets"], &["get"], &["a", "b"])]),
            &[r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}"#],
        );
        check(
            json!([rule(&[""], &["secrets"], &["get"], &["a"])]),
            json!([rule(&[""], &["secrets"], &["get"], &[])]),
            &[r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#],
        );
        check(
            json!([rule(&["a"], &["*/scale"], &["get"], &[])]),
            json!([rule(&["a"], &["x/scale"], &["get"], &[])]),
            &[],
        );
        check(
            json!([rule(&["a"], &["*/scale"], &["get"], &[])]),
            json!([rule(&["a"], &["x/log"], &["get"], &[])]),
            &[r#"{APIGroups:["a"], Resources:["x/log"], Verbs:["get"]}"#],
        );
    }

    #[test]
    fn urls_are_covered_by_prefixes() {
        let urls = |urls: &[&str], verbs: &[&str]| json!([{"nonResourceURLs": urls, "verbs": verbs}]);
        check(urls(&["/api/*"], &["get"]), urls(&["/api/v1", "/api/*"], &["get"]), &[]);
        check(urls(&["*"], &["*"]), urls(&["/x"], &["get"]), &[]);
        check(
            urls(&["/api/*"], &["get"]),
            urls(&["/apis", "*"], &["get"]),
            &[r#"{NonResourceURLs:["/apis"], Verbs:["get"]}"#, r#"{NonResourceURLs:["*"], Verbs:["get"]}"#],
        );
    }

    #[test]
    fn a_rule_that_multiplies_out_to_billions_is_refused_quickly() {
        let many: Vec<String> = (0..5_000).map(|n| format!("x{n}")).collect();
        let huge = Rule {
            verbs: many.clone(),
            api_groups: many.clone(),
            resources: many.clone(),
            resource_names: many.clone(),
            non_resource_urls: many,
        };
        assert!(!covers::<Rule>(&[], std::slice::from_ref(&huge)).is_empty());
        let nearly = Rule { verbs: huge.verbs[..4_999].to_vec(), ..huge.clone() };
        assert!(!covers(&[nearly], std::slice::from_ref(&huge)).is_empty());
        let all = Rule::parse(&rule(&["*"], &["*"], &["*"], &[]));
        let urls = Rule::parse(&json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        let plain = Rule { non_resource_urls: Vec::new(), ..huge };
        assert!(covers(&[all, urls], &[plain]).is_empty());
    }

    #[test]
    fn a_large_role_can_be_handed_on_by_its_holder() {
        let rule = |n: usize, verbs: &[&str]| {
            Rule::parse(&rule(
                &[&format!("g{}", n % 200)],
                &[&format!("r{n}"), &format!("r{n}/status")],
                verbs,
                &[],
            ))
        };
        let held: Vec<Rule> = (0..4_000).map(|n| rule(n, &["get", "list", "watch", "delete"])).collect();
        assert!(covers(&held, &held).is_empty());
        let part: Vec<Rule> = (0..4_000).map(|n| rule(n, &["list", "get"])).collect();
        assert!(covers(&held, &part).is_empty());
        assert_eq!(covers(&part, &held).len(), MAX_UNCOVERED);
    }

    fn any_rules() -> impl Strategy<Value = Vec<Rule>> {
        let list = |options: &'static [&'static str], range: std::ops::Range<usize>| {
            prop::collection::vec(prop::sample::select(options).prop_map(str::to_owned), range)
        };
        let rule =
            (
                list(&["get", "list", "*"], 0..3),
                list(&["", "apps", "*"], 0..3),
                list(&["pods", "pods/log", "*", "*/log"], 0..3),
                list(&["a", "b"], 0..3),
                list(&["/x", "/x/*", "*"], 0..2),
            )
                .prop_map(|(verbs, api_groups, resources, resource_names, non_resource_urls)| {
                    Rule { verbs, api_groups, resources, resource_names, non_resource_urls }
                });
        prop::collection::vec(rule, 0..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// The point of it all: nobody gains a permission by handing out what was judged covered.
        #[test]
        fn covered_rules_allow_nothing_new(owned in any_rules(), requested in any_rules()) {
            prop_assert!(covers(&requested, &requested).is_empty() || !requested.is_empty());
            if !covers(&owned, &requested).is_empty() {
                return Ok(());
            }
            let allows = |rules: &[Rule], a: &Attributes<'_>| rules.iter().any(|rule| rule.allows(a));
            for verb in ["get", "list", "other"] {
                for group in ["", "apps", "x"] {
                    for (resource, sub) in [("pods", ""), ("pods", "log"), ("x", ""), ("x", "log"), ("x", "y")] {
                        for name in ["", "a", "c"] {
                            let a = Attributes::resource(verb, group, resource).subresource(sub).name(name);
                            prop_assert!(allows(&owned, &a) || !allows(&requested, &a), "{:?}", a);
                        }
                    }
                }
                for path in ["/x", "/x/y", "/z"] {
                    let a = Attributes::path(verb, path);
                    prop_assert!(allows(&owned, &a) || !allows(&requested, &a), "{:?}", a);
                }
            }
        }
    }
}
