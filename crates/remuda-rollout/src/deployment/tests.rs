use super::*;
use crate::view::testing::{at, flat};

fn template(name: &str) -> Template {
    let mut template = Template::default();
    template.infrastructure.kind = "ServerTemplate".into();
    template.infrastructure.name = name.into();
    template
}

fn amount(text: &str) -> Amount {
    text.parse().map(Amount::Count).unwrap_or_else(|_| Amount::parse(text).unwrap())
}

/// `replicas=3 [surge=1] [unavailable=0] [ondelete] [paused] [after=5] [template=b] [templates=missing]`
fn deployment(text: &str) -> Deployment {
    let mut surge = Amount::Count(1);
    let mut unavailable = Amount::Count(0);
    let mut found = Deployment {
        replicas: 0,
        strategy: Strategy::OnDelete,
        paused: false,
        rollout_after: None,
        template: template("b"),
        templates_exist: true,
    };
    let mut rolling = true;
    for word in text.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("replicas", value) => found.replicas = value.parse().unwrap(),
            ("surge", value) => surge = amount(value),
            ("unavailable", value) => unavailable = amount(value),
            ("ondelete", _) => rolling = false,
            ("paused", _) => found.paused = true,
            ("after", value) => found.rollout_after = Some(at(value.parse().unwrap())),
            ("template", value) => found.template = template(value),
            ("templates", _) => found.templates_exist = false,
            other => panic!("{other:?}"),
        }
    }
    if rolling {
        found.strategy = Strategy::Rolling { max_surge: surge, max_unavailable: unavailable };
    }
    found
}

/// One set per line: `name template spec/actual/available [made=5] [rev=1] [history=1,2] [max=4] [desired=3]`.
fn sets(text: &str) -> Vec<Set> {
    let parse = |(place, line): (usize, &str)| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap().to_owned();
        let template = template(words.next().unwrap());
        let numbers: Vec<i32> = words.next().unwrap().split('/').map(|part| part.parse().unwrap()).collect();
        let counts = Counts {
            replicas: Some(numbers[1]),
            ready: Some(numbers[2]),
            available: Some(numbers[2]),
            up_to_date: Some(numbers[1]),
        };
        let mut set = Set {
            name,
            created: at(place as i64),
            deleting: false,
            observed: true,
            replicas: numbers[0],
            counts,
            template,
            annotations: Numbers::default(),
        };
        for word in words {
            match word.split_once('=').unwrap() {
                ("made", value) => set.created = at(value.parse().unwrap()),
                ("rev", value) => set.annotations.revision = Some(value.into()),
                ("history", value) => set.annotations.revision_history = Some(value.into()),
                ("max", value) => set.annotations.max_replicas = Some(value.parse().unwrap()),
                ("desired", value) => set.annotations.desired_replicas = Some(value.parse().unwrap()),
                other => panic!("{other:?}"),
            }
        }
        set
    };
    text.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate().map(parse).collect()
}

fn render(plan: &Plan) -> String {
    let mut text = String::new();
    if let Some(waiting) = &plan.waiting {
        text.push_str(&format!("waiting: {waiting}\n"));
    }
    if let Some(create) = &plan.create {
        text.push_str(&format!("create {} rev {}: {}\n", create.replicas, create.revision, create.reason));
    }
    for set in &plan.sets {
        let role = if set.current { "current" } else { "old" };
        text.push_str(&format!("{} {role} {}", set.name, set.from));
        if set.replicas != set.from {
            text.push_str(&format!("->{}", set.replicas));
        }
        if let Some(revision) = set.revision.as_ref().filter(|_| set.current) {
            text.push_str(&format!(" rev {revision}"));
        }
        if let Some(history) = &set.revision_history {
            text.push_str(&format!(" was {history}"));
        }
        if set.disable_create {
            text.push_str(" no-create");
        }
        for (place, note) in set.notes.iter().enumerate() {
            text.push_str(&format!("{}{note}", if place == 0 { ": " } else { ", " }));
        }
        text.push('\n');
    }
    text
}

#[track_caller]
fn check(wanted: &str, given: &str, expected: &str) {
    let plan = plan(&deployment(wanted), &sets(given), at(1000));
    assert_eq!(flat(&render(&plan)), flat(expected));
}

#[test]
fn the_first_set_is_made_at_full_size() {
    check("replicas=3", "", "create 3 rev 1: no MachineSets exist for the MachineDeployment");
}

#[test]
fn no_set_is_made_without_its_templates() {
    check(
        "replicas=3 templates=missing",
        "a a 3/3/3",
        "waiting: cannot create a MachineSet when templates do not exist
         a old 3",
    );
}

#[test]
fn a_new_template_makes_a_set_within_the_surge() {
    check(
        "replicas=3",
        "a a 3/3/3 rev=1",
        "create 1 rev 2: couldn't find MachineSet matching MachineDeployment spec template: MachineSet a needs rollout: Server is not up-to-date
         a old 3",
    );
}

#[test]
fn an_old_machine_goes_when_a_new_one_is_up() {
    check(
        "replicas=3",
        "a a 3/3/3 rev=1
         b b 1/1/0 rev=2",
        "b current 1 rev 2: 4 current Machines >= 3 MachineDeployment spec.replicas + 1 maxSurge
         a old 3",
    );
    check(
        "replicas=3",
        "a a 3/3/3 rev=1
         b b 1/1/1 rev=2",
        "b current 1 rev 2: 4 current Machines >= 3 MachineDeployment spec.replicas + 1 maxSurge
         a old 3->2: 4 available replicas > 3 minimum available replicas",
    );
}

#[test]
fn a_machine_on_its_way_out_still_counts() {
    check(
        "replicas=3",
        "a a 2/3/3 rev=1
         b b 1/1/1 rev=2",
        "b current 1 rev 2: 4 current Machines >= 3 MachineDeployment spec.replicas + 1 maxSurge
         a old 2",
    );
}

#[test]
fn without_a_surge_an_old_machine_goes_first() {
    check(
        "replicas=3 surge=0 unavailable=1",
        "a a 3/3/3 rev=1
         b b 0/0/0 rev=2",
        "b current 0 rev 2: 3 current Machines >= 3 MachineDeployment spec.replicas + 0 maxSurge
         a old 3->2: 3 available replicas > 2 minimum available replicas",
    );
}

#[test]
fn machines_that_serve_nobody_go_first() {
    check(
        "replicas=3 surge=0 unavailable=1",
        "a a 2/2/2
         c c 1/1/0
         b b 0/0/0 rev=2",
        "b current 0 rev 2: 3 current Machines >= 3 MachineDeployment spec.replicas + 0 maxSurge
         a old 2
         c old 1->0: scale down to align to existing Machines or scale down by removing unavailable replicas (and no available replicas exist on the MachineSet)",
    );
}

#[test]
fn a_broken_template_stops_the_rollout() {
    check(
        "replicas=3 surge=1 unavailable=1",
        "a a 2/2/2
         b b 2/2/0 rev=2",
        "b current 2 rev 2: 4 current Machines >= 3 MachineDeployment spec.replicas + 1 maxSurge
         a old 2",
    );
}

#[test]
fn a_machine_that_will_not_come_up_does_not_block_for_ever() {
    check(
        "replicas=3 surge=1 unavailable=0",
        "a a 3/3/2
         b b 1/1/1 rev=2",
        "b current 1 rev 2: 4 current Machines >= 3 MachineDeployment spec.replicas + 1 maxSurge
         a old 3->2: scaling down by 1 to unblock rollout stuck due to unavailable Machine on oldMS",
    );
}

#[test]
fn scaling_down_ignores_availability() {
    check(
        "replicas=1",
        "b b 3/3/3 rev=1",
        "b current 3->1 rev 1: scale down to align MachineSet spec.replicas to MachineDeployment spec.replicas",
    );
}

#[test]
fn the_largest_matching_set_is_current_then_the_oldest() {
    check("replicas=3", "x b 3/3/3\ny b 0/0/0", "x current 3 rev 1\ny old 0");
    check(
        "replicas=0",
        "y b 0/0/0 made=9\nx b 0/0/0 made=9\nz b 0/0/0 made=3",
        "z current 0 rev 1\nx old 0\ny old 0",
    );
}

#[test]
fn a_wished_rollout_needs_a_set_made_since() {
    check(
        "replicas=1 after=500",
        "b b 1/1/1 rev=1 made=100",
        "create 1 rev 2: spec.rollout.after on MachineDeployment set to 1970-01-01T00:08:20Z, no MachineSet has been created afterwards
         b old 1",
    );
    check("replicas=1 after=500", "b b 1/1/1 rev=1 made=500", "b current 1 rev 1");
    check("replicas=1 after=5000", "b b 1/1/1 rev=1 made=100", "b current 1 rev 1");
}

#[test]
fn a_set_that_is_current_again_gets_a_new_revision_and_remembers() {
    check("replicas=0", "a a 0/0/0 rev=2\nb b 0/0/0 rev=1", "b current 0 rev 3 was 1\na old 0");
    check(
        "replicas=0",
        "a a 0/0/0 rev=4\nb b 0/0/0 rev=3 history=1",
        "b current 0 rev 5 was 1,3
         a old 0",
    );
    check("replicas=0", "a a 0/0/0 rev=junk\nb b 0/0/0 rev=7", "b current 0 rev 7\na old 0");
}

#[test]
fn on_delete_waits_for_somebody_to_delete() {
    check(
        "replicas=3 ondelete",
        "a a 3/3/3 rev=1",
        "create 0 rev 2: couldn't find MachineSet matching MachineDeployment spec template: MachineSet a needs rollout: Server is not up-to-date
         a old 3 no-create",
    );
    check(
        "replicas=3 ondelete",
        "a a 3/2/2 rev=1\nb b 0/0/0 rev=2",
        "b current 0 rev 2: 3 current Machines >= 3 MachineDeployment spec.replicas
         a old 3->2 no-create: scale down to align to existing Machines",
    );
    check(
        "replicas=3 ondelete",
        "a a 2/2/2 rev=1\nb b 0/0/0 rev=2",
        "b current 0->1 rev 2: 2 current Machines < 3 MachineDeployment spec.replicas
         a old 2 no-create",
    );
}

#[test]
fn on_delete_scales_down_from_what_is_left() {
    check(
        "replicas=1 ondelete",
        "a a 3/2/2 rev=1\nb b 0/0/0 rev=2",
        "b current 0 rev 2: 3 current Machines >= 1 MachineDeployment spec.replicas
         a old 3->1 no-create: scale down to align to existing Machines, scale down to align MachineSet spec.replicas to MachineDeployment spec.replicas",
    );
}

#[test]
fn a_paused_deployment_makes_no_set_but_scales() {
    check(
        "replicas=5 paused",
        "a a 3/3/3 rev=1",
        "a old 3->5: scale in proportion while the rollout is paused",
    );
    check(
        "replicas=10 surge=2 paused",
        "a a 4/4/4 max=6\nb b 2/2/2 rev=2 max=6",
        "b current 2->4 rev 2: scale in proportion while the rollout is paused
         a old 4->8: scale in proportion while the rollout is paused",
    );
    check(
        "replicas=0 paused",
        "a a 4/4/4 max=6\nb b 2/2/2 rev=2 max=6",
        "b current 2->0 rev 2: scale in proportion while the rollout is paused
         a old 4->0: scale in proportion while the rollout is paused",
    );
}

#[test]
fn a_saturated_current_set_empties_the_others_even_when_paused() {
    check(
        "replicas=3 paused",
        "a a 1/1/1\nb b 3/3/3 rev=2 desired=3",
        "b current 3 rev 2
         a old 1->0: scale in proportion while the rollout is paused",
    );
}

#[test]
fn what_rounding_leaves_goes_to_the_largest_set() {
    check(
        "replicas=7 surge=0 unavailable=1 paused",
        "a a 1/1/1 max=3\nc c 1/1/1 max=3\nb b 1/1/1 rev=2 max=3",
        "b current 1->3 rev 2: scale in proportion while the rollout is paused
         a old 1->2: scale in proportion while the rollout is paused
         c old 1->2: scale in proportion while the rollout is paused",
    );
}

#[test]
fn old_sets_go_when_nothing_of_them_is_left() {
    let mut given = sets("a a 0/0/0\nc c 1/0/0\nd d 0/1/0\ne e 0/0/0\nf f 0/0/0");
    given[3].observed = false;
    given[4].deleting = true;
    let told: Vec<_> = clean_up(&given).iter().map(|(name, verdict)| format!("{name} {verdict}")).collect();
    assert_eq!(
        told.join("\n"),
        "a delete
c keep: 0/1 machines left
d keep: 1/0 machines left
e keep: waiting for its status
f already deleting"
    );
}

#[test]
fn a_rollout_is_complete_only_by_its_own_status() {
    let counts = |n| Counts { replicas: Some(n), ready: Some(n), available: Some(n), up_to_date: Some(n) };
    assert!(is_complete(3, counts(3), true));
    assert!(!is_complete(3, counts(3), false));
    assert!(!is_complete(3, Counts { available: Some(2), ..counts(3) }, true));
    assert!(is_complete(0, Counts::default(), true));
}
