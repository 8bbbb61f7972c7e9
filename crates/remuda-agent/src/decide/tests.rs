use super::*;

const NOW: Stamp = Stamp(1_785_747_907);

/// `secret` is `key=value` words; `@n` in a value is the time n seconds ago. Memory and journal:
/// `#started` a plan was handled before, `#wrote=v` version of the own last write, `#journal=<checksum>/<ok|bad|open>/<same|other>`.
#[track_caller]
fn check(secret: &str, expected: &str) {
    let mut data = Data::new();
    let mut memory = Memory::default();
    let mut journal = None;
    let mut force_on_start = false;
    for word in secret.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "#started" => memory.has_run_once = true,
            "#force" => force_on_start = true,
            "#wrote" => memory.last_written = value.parse().unwrap(),
            "#journal" => journal = Some(value.to_owned()),
            _ => {
                let value = match value.strip_prefix('@') {
                    Some(ago) => Stamp(NOW.0 - ago.parse::<i64>().unwrap()).unix_date(),
                    None => value.to_owned(),
                };
                data.insert(name.to_owned(), value.into_bytes());
            }
        }
    }
    let observed = Observed {
        uid: "u",
        version: 7,
        data: &data,
        checksum: "C",
        recorded: None,
        force_on_start,
        now: NOW,
    };
    let recorded = journal.map(|journal| {
        let words: Vec<&str> = journal.split('/').collect();
        let trigger = match (words[2], text(&data, key::PLAN_STATE)) {
            ("same", "") => checksum_trigger(&data),
            ("same", _) => revision_trigger(text(&data, key::PLAN_REVISION).as_bytes()),
            _ => "other".to_owned(),
        };
        let succeeded = match words[1] {
            "ok" => Some(true),
            "bad" => Some(false),
            _ => None,
        };
        Recorded {
            identity: Identity { source: "u".into(), checksum: words[0].into(), trigger },
            reported: false,
            succeeded,
        }
    });
    let decision = decide(&Observed { recorded: recorded.as_ref(), ..observed }, &memory);
    let run = match &decision.run {
        Run::Skip(reason) => format!("skip: {reason}"),
        Run::Files => "files".into(),
        Run::Begin(_) => format!("begin {}", decision.attempt),
        Run::Resume(_) => format!("resume {}", decision.attempt),
    };
    let flags =
        [(decision.take, " take"), (decision.was_failed, " failed"), (decision.blank_applied, " blank")];
    let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    assert_eq!(format!("{run}{flags}"), expected);
}

#[test]
fn plan_state_alone_decides_where_a_server_writes_it() {
    check("plan-state=pending", "begin 1 take");
    check("plan-state=pending failure-count=4 applied-checksum=C", "begin 1 take");
    check("plan-state=in-progress plan-revision=3", "begin 1");
    check("plan-state=in-progress failure-count=2", "begin 3");
    check("plan-state=succeeded", "skip: plan state is succeeded");
    check("plan-state=failed #started", "skip: plan state is failed");
    check("plan-state=cancelled", "skip: plan state is cancelled");
    check("plan-state=future", "skip: plan state is future");
}

#[test]
fn an_execution_on_record_is_resumed_and_not_begun_again() {
    check("plan-state=in-progress plan-revision=3 #journal=C/open/same", "resume 1");
    check("plan-state=in-progress plan-revision=3 #journal=C/ok/same", "resume 1");
    check("plan-state=in-progress plan-revision=3 #journal=C/ok/other", "begin 1");
    check("plan-state=in-progress plan-revision=3 #journal=D/open/same", "begin 1");
    // The server asked again, so what is on record is over.
    check("plan-state=pending plan-revision=3 #journal=C/ok/same", "begin 1 take");
    check("applied-checksum=D #journal=C/open/same", "resume 1 blank");
    check("applied-checksum=D #started #journal=C/ok/same", "resume 1");
    check(
        "failed-checksum=C failure-count=1 max-failures=1 last-apply-time=@5 #journal=C/bad/same",
        "resume 2 failed blank",
    );
}

#[test]
fn checksums_decide_for_older_servers() {
    check("#started", "begin 1");
    check("applied-checksum=D #started", "begin 1");
    check("applied-checksum=C #started", "skip: plan is applied");
    check("applied-checksum=D #started #wrote=7", "skip: nothing changed since the last report");
    check("applied-checksum=D #started #wrote=6", "begin 1");
}

#[test]
fn the_first_start_on_a_node_runs_the_plan_and_later_ones_only_write_files() {
    check("applied-checksum=C", "begin 1 blank");
    check("applied-checksum=C #journal=C/ok/other", "files");
    check("applied-checksum=C #journal=C/ok/other #force", "begin 1 blank");
    check("applied-checksum=C #journal=D/ok/other", "begin 1 blank");
    check("applied-checksum=C #journal=C/bad/other", "begin 1 blank");
}

#[test]
fn a_failing_plan_cools_down_and_stops_at_the_limit() {
    check(
        "failed-checksum=C failure-count=1 last-apply-time=@10 #started",
        "skip: plan failed 10 s ago, next attempt after 30 s failed",
    );
    check(
        "failed-checksum=C failure-count=1 last-apply-time=@30 #started",
        "skip: plan failed 30 s ago, next attempt after 30 s failed",
    );
    check("failed-checksum=C failure-count=1 last-apply-time=@31 #started", "begin 2 failed");
    check("failed-checksum=C failure-count=1 last-apply-time=@31 #started #wrote=7", "begin 2 failed");
    check("failed-checksum=C failure-count=1 last-apply-time=@-7200 #started", "begin 2 failed");
    check("failed-checksum=C failure-count=1 last-apply-time=junk #started", "begin 2 failed");
    check(
        "failed-checksum=C failure-count=3 max-failures=3 last-apply-time=@99",
        "skip: plan failed 3 times, limit is 3 failed",
    );
    check("failed-checksum=C failure-count=3 max-failures=-1 last-apply-time=@99", "begin 4 failed blank");
    check("failed-checksum=C failure-count=3 max-failures=x last-apply-time=@99", "begin 4 failed blank");
    // A new plan does not inherit the limit of the failed one, but its attempts continue.
    check("failed-checksum=D failure-count=3 max-failures=3 last-apply-time=@1 #started", "begin 4");
}

#[test]
fn counters_start_at_one() {
    for (before, after) in [(None, "1"), (Some(""), "1"), (Some("x"), "1"), (Some("9"), "10")] {
        let before = before.map(|text| text.as_bytes().to_vec());
        assert_eq!(increment(before.as_ref()), after.as_bytes());
    }
    assert_eq!(increment(Some(&i64::MAX.to_string().into_bytes())), i64::MAX.to_string().into_bytes());
}

#[test]
fn the_probe_period_is_a_duration_without_its_last_unit_and_sticks() {
    for (text, millis) in [
        ("5", Some(5000)),
        ("0.5", Some(1000)),
        ("1m30", Some(90_000)),
        ("99999999", Some(3_600_000)),
        ("-3", Some(1000)),
    ] {
        assert_eq!(probe_period(text.as_bytes()).map(|period| period.as_millis()), millis, "{text}");
    }
    for text in ["", "x", "5 ", "s", "\u{b5}"] {
        assert_eq!(probe_period(text.as_bytes()), None, "{text}");
    }
    let mut memory = Memory::default();
    memory.notice("u", &Data::from([(key::PROBE_PERIOD.to_owned(), b"9".to_vec())]));
    memory.notice("u", &Data::new());
    assert_eq!(memory.probe_period, Duration::from_secs(9));
}

#[test]
fn a_recreated_secret_is_a_first_start() {
    let mut memory = Memory { has_run_once: true, last_written: 9, uid: "a".into(), ..Memory::default() };
    memory.notice("a", &Data::new());
    assert!(memory.has_run_once);
    memory.notice("b", &Data::new());
    assert_eq!((memory.has_run_once, memory.last_written, memory.uid.as_str()), (false, 0, ""));
}

/// A node and its Secret, without anything in between that could fail on its own.
#[derive(Default)]
struct Model {
    data: Data,
    version: u64,
    memory: Memory,
    recorded: Option<Recorded>,
    delivered: usize,
    begun: BTreeMap<usize, usize>,
    ended: BTreeMap<usize, usize>,
}

impl Model {
    fn deliver(&mut self, stateful: bool) {
        self.delivered += 1;
        self.version += 1;
        self.data.insert(key::PLAN.into(), vec![]);
        if stateful {
            self.data.insert(key::PLAN_STATE.into(), state::PENDING.into());
        }
    }

    fn write(&mut self) {
        self.version += 1;
        self.memory.last_written = self.version;
    }

    /// One pass of an agent that is killed after `steps` steps. Returns whether it survived.
    fn pass(&mut self, mut steps: u32) -> bool {
        let mut survives = || {
            steps = steps.saturating_sub(1);
            steps > 0
        };
        let checksum = format!("c{}", self.delivered);
        self.memory.notice("u", &self.data);
        let observed = Observed {
            uid: "u",
            version: self.version,
            data: &self.data,
            checksum: &checksum,
            recorded: self.recorded.as_ref(),
            force_on_start: false,
            now: NOW,
        };
        let decision = decide(&observed, &self.memory);
        if decision.take {
            crate::report::take(&mut self.data);
            self.write();
            if !survives() {
                return false;
            }
        }
        if let Run::Begin(identity) = &decision.run {
            *self.begun.entry(self.delivered).or_default() += 1;
            self.recorded = Some(Recorded { identity: identity.clone(), reported: false, succeeded: None });
            if !survives() {
                return false;
            }
        }
        let mut ended = None;
        if decision.run.executes() {
            let recorded = self.recorded.as_mut().unwrap();
            if recorded.succeeded.is_none() {
                recorded.succeeded = Some(true);
                *self.ended.entry(self.delivered).or_default() += 1;
            }
            ended = Some(crate::report::Ended { succeeded: true, output: vec![], began: NOW });
            if !survives() {
                return false;
            }
        }
        self.memory.has_run_once = true;
        let before = self.data.clone();
        crate::report::compose(
            &mut self.data,
            &decision,
            &checksum,
            ended.as_ref(),
            None,
            &Default::default(),
        );
        if before != self.data {
            self.write();
        }
        survives()
    }
}

proptest::proptest! {
    #[test]
    fn every_delivery_is_run_once_wherever_the_agent_is_killed(
        stateful in proptest::prelude::any::<bool>(),
        history in proptest::collection::vec((0u32..8, proptest::prelude::any::<bool>()), 1..60),
    ) {
        let mut model = Model::default();
        model.deliver(stateful);
        for (steps, deliver) in history {
            if deliver && steps % 2 == 0 {
                model.deliver(stateful);
            }
            if !model.pass(steps) {
                model.memory = Memory::default();
            }
        }
        for _ in 0..3 {
            model.pass(u32::MAX);
        }
        proptest::prop_assert!(model.begun.values().all(|count| *count == 1), "{:?}", model.begun);
        proptest::prop_assert_eq!(model.ended[&model.delivered], 1);
        // And then nothing changes any more.
        let settled = model.data.clone();
        model.memory = Memory::default();
        model.pass(u32::MAX);
        proptest::prop_assert_eq!(settled, model.data);
    }
}
