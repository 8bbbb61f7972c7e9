//! Rollouts played through with sets that obey, slowly and in any order.

use jiff::Timestamp;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::view::testing::at;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Server {
    Coming,
    Up,
    Leaving,
}

/// A set and its machines, which come and go when the schedule says so.
#[derive(Debug, Clone)]
struct Player {
    set: Set,
    servers: Vec<Server>,
}

impl Player {
    fn view(&self) -> Set {
        let up = self.servers.iter().filter(|server| **server == Server::Up).count() as i32;
        let actual = self.servers.len() as i32;
        let counts =
            Counts { replicas: Some(actual), ready: Some(up), available: Some(up), up_to_date: Some(actual) };
        Set { counts, ..self.set.clone() }
    }

    /// What its controller does: create what is missing, delete what is too much, unhealthy ones first.
    fn obey(&mut self) {
        while (self.servers.len() as i32) < self.set.replicas {
            self.servers.push(Server::Coming);
        }
        let mut surplus = self.servers.len() as i32 - self.set.replicas;
        surplus -= self.servers.iter().filter(|server| **server == Server::Leaving).count() as i32;
        for victim in [Server::Coming, Server::Up] {
            for server in self.servers.iter_mut().filter(|server| **server == victim) {
                if surplus > 0 {
                    *server = Server::Leaving;
                    surplus -= 1;
                }
            }
        }
    }
}

#[derive(Debug, Clone)]
struct World {
    deployment: Deployment,
    players: Vec<Player>,
    made: i64,
}

impl World {
    fn now(&self) -> Timestamp {
        at(1_000_000)
    }

    fn views(&self) -> Vec<Set> {
        self.players.iter().map(Player::view).collect()
    }

    fn count(&self, kind: Option<Server>) -> i32 {
        let all = self.players.iter().flat_map(|player| &player.servers);
        all.filter(|server| kind.is_none_or(|kind| **server == kind)).count() as i32
    }

    /// One pass of the deployment's controller. Tells whether it wrote anything.
    fn decide(&mut self) -> bool {
        let plan = plan(&self.deployment, &self.views(), self.now());
        let mut wrote = false;
        for desired in &plan.sets {
            let player = self.players.iter_mut().find(|player| player.set.name == desired.name).unwrap();
            let before = player.set.clone();
            player.set.replicas = desired.replicas;
            player.set.annotations = Numbers {
                revision: desired.revision.clone(),
                revision_history: desired.revision_history.clone(),
                desired_replicas: Some(self.deployment.replicas),
                max_replicas: Some(self.deployment.max_replicas()),
            };
            wrote |= before != player.set;
        }
        if let Some(create) = plan.create {
            self.made += 1;
            let set = Set {
                name: format!("set-{}", self.made),
                created: at(self.made),
                deleting: false,
                observed: true,
                replicas: create.replicas,
                counts: Counts::default(),
                template: self.deployment.template.clone(),
                annotations: Numbers { revision: Some(create.revision), ..Numbers::default() },
            };
            self.players.push(Player { set, servers: Vec::new() });
            wrote = true;
        }
        wrote
    }

    /// One event of the world, chosen by a number.
    fn happen(&mut self, choice: u8) {
        let count = self.players.len();
        if count == 0 {
            return;
        }
        let player = &mut self.players[usize::from(choice / 3) % count];
        match choice % 3 {
            0 => player.obey(),
            1 => {
                if let Some(server) = player.servers.iter_mut().find(|server| **server == Server::Coming) {
                    *server = Server::Up;
                }
            }
            _ => {
                if let Some(place) = player.servers.iter().position(|server| *server == Server::Leaving) {
                    player.servers.remove(place);
                }
            }
        }
    }

    /// Everything that can happen without the deployment happens.
    fn settle(&mut self) {
        for player in &mut self.players {
            player.obey();
            player.servers.retain(|server| *server != Server::Leaving);
            player.servers.fill(Server::Up);
        }
    }
}

fn template(number: u8) -> Template {
    Template { version: format!("v1.{number}.0"), ..Template::default() }
}

fn world(replicas: i32, surge: i32, unavailable: i32, rolling: bool) -> World {
    let strategy =
        Strategy::Rolling { max_surge: Amount::Count(surge), max_unavailable: Amount::Count(unavailable) };
    let deployment = Deployment {
        replicas,
        strategy: if rolling { strategy } else { Strategy::OnDelete },
        paused: false,
        rollout_after: None,
        template: template(0),
        templates_exist: true,
    };
    World { deployment, players: Vec::new(), made: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rollout_stays_within_its_limits_at_every_instant_and_ends(
        (replicas, surge, unavailable) in (0..7i32, 0..4i32, 0..4i32),
        schedule in proptest::collection::vec(any::<u8>(), 0..120),
        changes in proptest::collection::vec((1..4u8, 0..120usize), 1..4),
    ) {
        let mut world = world(replicas, surge, unavailable, true);
        let posts = world.deployment.fenceposts();
        world.decide();
        world.settle();
        for (step, choice) in schedule.iter().enumerate() {
            if let Some((template_number, _)) = changes.iter().find(|(_, when)| *when == step) {
                world.deployment.template = template(*template_number);
            }
            if choice % 5 == 0 {
                world.decide();
            }
            world.happen(*choice);
            prop_assert!(world.count(None) <= replicas + posts.surge, "{world:?}");
            let asked: i32 = world.players.iter().map(|player| player.set.replicas).sum();
            prop_assert!(asked <= replicas + posts.surge, "{world:?}");
            prop_assert!(world.count(Some(Server::Up)) >= replicas - posts.unavailable, "{world:?}");
        }
        for _ in 0..60 {
            world.decide();
            world.settle();
        }
        let current = world.players.iter().find(|player| player.set.template == world.deployment.template);
        prop_assert_eq!(current.map_or(0, |player| player.servers.len() as i32), replicas);
        prop_assert_eq!(world.count(None), replicas);
        prop_assert!(!world.decide(), "deciding again on the result writes nothing");
    }

    #[test]
    fn with_machines_that_fail_no_decision_spends_availability_that_is_not_there(
        (replicas, surge, unavailable) in (1..7i32, 0..4i32, 0..4i32),
        schedule in proptest::collection::vec((any::<u8>(), any::<bool>()), 0..120),
    ) {
        let mut world = world(replicas, surge, unavailable, true);
        let posts = world.deployment.fenceposts();
        let required = replicas - posts.unavailable;
        world.decide();
        world.settle();
        world.deployment.template = template(1);
        for (choice, fails) in schedule {
            if fails {
                let mut servers = world.players.iter_mut().flat_map(|player| &mut player.servers);
                if let Some(server) = servers.find(|server| **server == Server::Up) {
                    *server = Server::Coming;
                }
            }
            let plan = plan(&world.deployment, &world.views(), world.now());
            for desired in plan.sets.iter().filter(|desired| !desired.current && desired.replicas < desired.from) {
                let set = world.views().into_iter().find(|set| set.name == desired.name).unwrap();
                let deleted = (set.actual() - desired.replicas).max(0).min(set.available());
                let spends = deleted > 0 && !desired.notes.contains(&Note::Stuck);
                let left = world.count(Some(Server::Up)) - deleted;
                prop_assert!(!spends || left >= required, "{desired:?} {world:?}");
            }
            world.decide();
            world.happen(choice);
            prop_assert!(world.count(None) <= replicas + posts.surge, "{world:?}");
        }
    }

    #[test]
    fn replacing_on_deletion_deletes_nothing_itself_and_never_exceeds(
        replicas in 0..7i32,
        schedule in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut world = world(replicas, 0, 0, false);
        world.decide();
        world.settle();
        world.deployment.template = template(1);
        for choice in schedule {
            if choice % 4 == 0 {
                let mut servers = world.players.iter_mut().flat_map(|player| &mut player.servers);
                if let Some(server) = servers.find(|server| **server == Server::Up) {
                    *server = Server::Leaving;
                }
            }
            world.decide();
            for player in &world.players {
                prop_assert!(player.set.replicas >= player.servers.len() as i32, "{world:?}");
            }
            // Old sets create nothing, as their annotation says; none has anything to delete.
            let current = world.deployment.template.clone();
            if choice % 3 != 0 || world.players[usize::from(choice / 3) % world.players.len()].set.template == current {
                world.happen(choice);
            }
            prop_assert!(world.count(None) <= replicas, "{world:?}");
        }
    }

    #[test]
    fn a_paused_deployment_never_exceeds_its_surge_and_settles(
        (replicas, surge, first, second) in (0..20i32, 0..5i32, 0..10i32, 0..10i32),
    ) {
        let mut world = world(first + second, surge, 1, true);
        for (number, size) in [(1u8, first), (2, second)] {
            let set = Set {
                name: format!("s{number}"), created: at(i64::from(number)), deleting: false, observed: true,
                replicas: size, counts: Counts::default(), template: template(number),
                annotations: Numbers { max_replicas: Some(first + second), ..Numbers::default() },
            };
            world.players.push(Player { set, servers: Vec::new() });
        }
        world.settle();
        world.deployment.paused = true;
        world.deployment.replicas = replicas;
        for _ in 0..4 {
            world.decide();
            world.settle();
            prop_assert!(world.count(None) <= replicas + surge);
        }
        prop_assert!(!world.decide());
        prop_assert!(world.players.len() == 2, "no set is made while paused");
    }

    #[test]
    fn no_numbers_make_it_panic(
        replicas in any::<i32>(), surge in any::<i32>(), unavailable in any::<i32>(), rolling in any::<bool>(),
        paused in any::<bool>(),
        sizes in proptest::collection::vec((any::<i32>(), any::<i32>(), any::<i32>(), 0..3u8), 0..5),
    ) {
        let mut world = world(replicas, surge, unavailable, rolling);
        world.deployment.paused = paused;
        let sets: Vec<Set> = sizes.iter().enumerate().map(|(place, (spec, actual, available, kind))| Set {
            name: place.to_string(), created: at(place as i64), deleting: false, observed: true, replicas: *spec,
            counts: Counts { replicas: Some(*actual), available: Some(*available), ..Counts::default() },
            template: template(*kind), annotations: Numbers { max_replicas: Some(*available), ..Numbers::default() },
        }).collect();
        plan(&world.deployment, &sets, world.now());
    }
}
