use super::*;

fn time(text: &str) -> Timestamp {
    format!("2026-11-01T{text}Z").parse().unwrap()
}

fn facts(notes: &[(&str, &str)]) -> Facts {
    notes
        .iter()
        .map(|(note, detail)| {
            let fact = Fact { detail: (*detail).to_owned(), cluster: "c".to_owned(), ..Fact::default() };
            (Subject::parse(note).unwrap(), fact)
        })
        .collect()
}

struct World {
    topics: BTreeSet<Topic>,
    told: Told,
    seen: FirstSeen,
}

impl World {
    fn new(topics: &[Topic]) -> Self {
        Self { topics: topics.iter().copied().collect(), told: Told::new(), seen: FirstSeen::new() }
    }

    /// What is told at a time, all of it delivered.
    fn look(&mut self, at: &str, notes: &[(&str, &str)]) -> Vec<Message> {
        let (facts, now) = (facts(notes), time(at));
        observe(&mut self.seen, &facts, now);
        let wanted = Wanted { uid: "u", topics: &self.topics, after: Duration::from_secs(60) };
        let due = due(&wanted, &facts, &self.told, &self.seen, "https://s", now);
        for change in due.silent {
            change.apply(&mut self.told);
        }
        for message in &due.messages {
            message.change.clone().apply(&mut self.told);
        }
        due.messages
    }

    #[track_caller]
    fn check(&mut self, at: &str, notes: &[(&str, &str)], expected: &[&str]) {
        let told = self.look(at, notes);
        let types: Vec<&str> = told.iter().map(|message| message.body["type"].as_str().unwrap()).collect();
        assert_eq!(types, expected, "{at}");
    }
}

const DEMO: (&str, &str) = ("broken cluster d/demo", "");

#[test]
fn what_is_broken_is_told_when_it_stays_so_once_and_when_it_is_well() {
    let mut world = World::new(&Topic::ALL);
    world.check("00:00:00", &[DEMO], &[]);
    // Well again before a message was sent: none is.
    world.check("00:00:30", &[], &[]);
    world.check("00:01:10", &[DEMO], &[]);
    world.check("00:02:09", &[DEMO], &[]);
    let broken = world.look("00:02:10", &[DEMO]);
    assert_eq!(broken[0].body["type"], "cluster.broken");
    assert_eq!(broken[0].body["timestamp"], "2026-11-01T00:01:10Z");
    world.check("00:10:00", &[DEMO], &[]);
    let fixed = world.look("00:11:00", &[]);
    assert_eq!(fixed[0].body["type"], "cluster.fixed");
    assert_eq!(fixed[0].body["data"]["fixes"], broken[0].id.as_str());
    assert_eq!(fixed[0].body["data"]["cluster"], "c");
    world.check("00:12:00", &[], &[]);
    assert!(world.told.is_empty());
}

#[test]
fn a_message_has_the_same_name_however_often_it_is_tried() {
    let mut world = World::new(&Topic::ALL);
    world.look("00:00:00", &[DEMO]);
    let first = world.look("00:05:00", &[DEMO]);
    world.told.clear();
    assert_eq!(world.look("00:09:00", &[DEMO])[0].id, first[0].id);
    // Broken anew is another message.
    world.look("00:10:00", &[]);
    world.look("00:11:00", &[DEMO]);
    let again = world.look("00:12:00", &[DEMO]);
    assert_ne!(again[0].id, first[0].id);
}

#[test]
fn the_time_something_was_broken_long_enough_is_known() {
    let mut seen = FirstSeen::new();
    let (facts, now) = (facts(&[DEMO]), time("00:00:00"));
    observe(&mut seen, &facts, now);
    let topics = Topic::ALL.into_iter().collect();
    let wanted = Wanted { uid: "u", topics: &topics, after: Duration::from_secs(60) };
    let due = due(&wanted, &facts, &Told::new(), &seen, "", now);
    assert_eq!((due.messages.len(), due.next), (0, Some(time("00:01:00"))));
}

#[test]
fn only_what_is_asked_for_is_told() {
    let all = [DEMO, ("expiring server /serving", "soon"), ("update-available cluster d/demo", "v2")];
    let mut world = World::new(&[Topic::Fixed]);
    world.check("00:00:00", &all, &[]);
    world.check("00:02:00", &all, &[]);
    world.check("00:03:00", &[], &["cluster.fixed"]);
    let mut world = World::new(&[Topic::Broken]);
    world.look("00:00:00", &all);
    world.check("00:02:00", &all, &["cluster.broken"]);
    world.check("00:03:00", &[], &[]);
    assert!(world.told.is_empty());
}

#[test]
fn an_update_is_told_once_for_each_version_and_expiry_for_each_day() {
    let update = |version| ("update-available cluster d/demo", version);
    let mut world = World::new(&Topic::ALL);
    let told = world.look("00:00:00", &[update("v1")]);
    assert_eq!(told[0].body["data"]["version"], "v1");
    world.check("00:00:01", &[update("v1")], &[]);
    world.check(
        "00:00:02",
        &[update("v2"), ("expiring server /serving", "day")],
        &["server.expiring", "cluster.update-available"],
    );
    // It was installed, or the certificate renewed: that is no news.
    world.check("00:00:03", &[], &[]);
    assert!(world.told.is_empty());
}

#[test]
fn notes_of_another_version_are_dropped() {
    let mut world = World::new(&Topic::ALL);
    world.told.insert("exploded planet x/y".to_owned(), Mark::default());
    world.check("00:00:00", &[], &[]);
    assert!(world.told.is_empty());
}
