use std::fs;

use super::*;
use crate::decide::Reason;

struct Bench {
    dir: tempfile::TempDir,
    engine: Engine,
    journal: Journal,
}

impl Bench {
    fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    fn at(dir: tempfile::TempDir) -> Self {
        let config = Config {
            work_directory: dir.path().join("var/work"),
            applied_plan_directory: dir.path().join("var/applied"),
            ..Config::default()
        };
        let engine = Engine::new(config, Environment::of_process(), Images::default());
        let journal = engine.journal("test").unwrap();
        Self { dir, engine, journal }
    }

    /// The same node after the agent was killed.
    fn restart(self) -> Self {
        Self::at(self.dir)
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    async fn apply(&mut self, plan: &str, run: &Run, now: i64) -> Applied {
        self.apply_onto(plan, run, now, &[], &[]).await
    }

    async fn apply_onto(
        &mut self,
        plan: &str,
        run: &Run,
        now: i64,
        output: &[u8],
        periodic: &[u8],
    ) -> Applied {
        let plan = CheckedPlan::decode(plan.as_bytes()).unwrap();
        let order = Order { plan: &plan, run, attempt: 1, output, periodic, now: Stamp(now) };
        self.engine.apply(&order, &mut self.journal, &CancellationToken::new()).await.unwrap()
    }
}

fn identity(trigger: &str) -> Identity {
    Identity { source: "u".into(), checksum: "c".into(), trigger: trigger.into() }
}

fn shell(name: &str, script: &str) -> String {
    format!(
        r#"{{"name":"{name}","command":"sh","args":["-c",{}],"saveOutput":true}}"#,
        serde_json::json!(script)
    )
}

fn outputs(applied: &Applied) -> Outputs {
    unpack(&applied.ended.as_ref().unwrap().output).unwrap()
}

#[tokio::test]
async fn a_disk_that_takes_no_journal_is_why_a_plan_fails() {
    let mut bench = Bench::new();
    fs::create_dir_all(bench.path("var")).unwrap();
    fs::write(bench.path("var/journal"), "in the way").unwrap();
    let plan = format!(r#"{{"instructions":[{}]}}"#, shell("one", "echo one"));
    let applied = bench.apply(&plan, &Run::Begin(identity("t")), 1000).await;
    assert!(!applied.ended.as_ref().unwrap().succeeded);
    let said = String::from_utf8(outputs(&applied)[ERROR_OUTPUT].0.clone()).unwrap();
    assert!(said.contains("create directory") && said.contains("var/journal"), "{said}");
}

#[tokio::test]
async fn files_come_first_and_instructions_run_in_order() {
    let mut bench = Bench::new();
    let file = bench.path("conf");
    let owner = format!(r#""uid":{},"gid":{}"#, nix::unistd::geteuid(), nix::unistd::getegid());
    let plan = format!(
        r#"{{"files":[{{"path":"{file}","content":"aGk=",{owner}}}],"instructions":[{},{}]}}"#,
        shell("one", &format!("cat {file}")),
        shell("two", "echo two; echo three >&2"),
    );
    let applied = bench.apply(&plan, &Run::Begin(identity("t")), 1000).await;
    let ended = applied.ended.as_ref().unwrap();
    assert_eq!((ended.succeeded, ended.began), (true, Stamp(1000)));
    let outputs = outputs(&applied);
    assert_eq!(outputs["one"].0, b"hi\n");
    assert_eq!(outputs["two"].0, b"two\n");
    assert_eq!(fs::read_dir(bench.path("var/applied")).unwrap().count(), 1);
    bench.apply(&plan, &Run::Skip(Reason::Applied), 1001).await;
    assert!(!Path::new(&bench.path("var/work")).exists(), "the work directory is cleaned up");
}

#[tokio::test]
async fn the_first_failure_ends_the_list_and_says_why() {
    let mut bench = Bench::new();
    let witness = bench.path("witness");
    let plan = format!(
        r#"{{"instructions":[{},{}]}}"#,
        shell("bad", "echo partial; echo because >&2; exit 3"),
        shell("never", &format!("touch {witness}")),
    );
    let old = pack(Outputs::from([("former".into(), Blob(b"kept\n".to_vec()))]));
    let applied = bench.apply_onto(&plan, &Run::Begin(identity("t")), 1000, &old, b"").await;
    assert!(!applied.ended.as_ref().unwrap().succeeded);
    let outputs = outputs(&applied);
    assert_eq!(outputs["bad"].0, b"partial\n");
    assert_eq!(outputs["former"].0, b"kept\n");
    assert_eq!(
        String::from_utf8_lossy(&outputs[ERROR_OUTPUT].0),
        "instruction 0 (bad): exit code 3: because"
    );
    assert!(!outputs.contains_key("never") && !Path::new(&witness).exists());
}

#[tokio::test]
async fn an_execution_that_ended_is_reported_again_without_running() {
    let mut bench = Bench::new();
    let count = bench.path("count");
    let plan = format!(r#"{{"instructions":[{}]}}"#, shell("one", &format!("echo x >> {count}; echo out")));
    bench.apply(&plan, &Run::Begin(identity("t")), 1000).await;
    let mut bench = bench.restart();
    let applied = bench.apply(&plan, &Run::Resume(identity("t")), 2000).await;
    assert_eq!(outputs(&applied)["one"].0, b"out\n");
    assert_eq!(applied.ended.unwrap().began, Stamp(1000));
    assert_eq!(fs::read_to_string(&count).unwrap(), "x\n");
}

#[tokio::test]
async fn an_instruction_that_outlives_the_agent_is_found_again() {
    let mut bench = Bench::new();
    let count = bench.path("count");
    let plan = format!(
        r#"{{"instructions":[{},{}]}}"#,
        shell("long", &format!("echo x >> {count}; sleep 0.5; echo done")),
        shell("next", &format!("echo y >> {count}")),
    );
    let decoded = CheckedPlan::decode(plan.as_bytes()).unwrap();
    let run = Run::Begin(identity("t"));
    let order = Order { plan: &decoded, run: &run, attempt: 1, output: b"", periodic: b"", now: Stamp(1000) };
    let stop = CancellationToken::new();
    let stopping = async {
        while !Path::new(&count).exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        stop.cancel();
    };
    let (result, ()) = tokio::join!(bench.engine.apply(&order, &mut bench.journal, &stop), stopping);
    assert!(matches!(result, Err(ApplyError::Stopping)));
    let mut bench = bench.restart();
    let applied = bench.apply(&plan, &Run::Resume(identity("t")), 2000).await;
    assert_eq!(outputs(&applied)["long"].0, b"done\n");
    assert_eq!(fs::read_to_string(&count).unwrap(), "x\ny\n");
}

#[tokio::test]
async fn a_new_plan_waits_for_what_the_former_one_still_runs() {
    let mut bench = Bench::new();
    let log = bench.path("log");
    let old = format!(
        r#"{{"instructions":[{}]}}"#,
        shell("a", &format!("echo a >> {log}; sleep 0.4; echo b >> {log}"))
    );
    let new = format!(r#"{{"instructions":[{}]}}"#, shell("c", &format!("echo c >> {log}")));
    let decoded = CheckedPlan::decode(old.as_bytes()).unwrap();
    let run = Run::Begin(identity("t"));
    let order = Order { plan: &decoded, run: &run, attempt: 1, output: b"", periodic: b"", now: Stamp(1000) };
    let stop = CancellationToken::new();
    let stopping = async {
        while !Path::new(&log).exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        stop.cancel();
    };
    let (_, ()) = tokio::join!(bench.engine.apply(&order, &mut bench.journal, &stop), stopping);
    let mut bench = bench.restart();
    bench.apply(&new, &Run::Begin(identity("u")), 2000).await;
    assert_eq!(fs::read_to_string(&log).unwrap(), "a\nb\nc\n");
}

#[tokio::test]
async fn an_interrupted_instruction_is_tried_again_with_a_new_attempt_number_but_not_for_ever() {
    let mut bench = Bench::new();
    let log = bench.path("log");
    let crash = format!("echo $CATTLE_AGENT_ATTEMPT_NUMBER >> {log}; kill -9 $PPID");
    let plan = format!(r#"{{"instructions":[{}]}}"#, shell("crash", &crash));
    let applied = bench.apply(&plan, &Run::Begin(identity("t")), 1000).await;
    assert!(!applied.ended.as_ref().unwrap().succeeded);
    assert_eq!(fs::read_to_string(&log).unwrap(), "1\n2\n3\n");
    let error = String::from_utf8(outputs(&applied)[ERROR_OUTPUT].0.clone()).unwrap();
    assert!(error.contains("interrupted 3 times"), "{error}");
    let mut bench = bench.restart();
    bench.engine.config.fail_interrupted = true;
    bench.apply(&plan, &Run::Begin(identity("v")), 3000).await;
    assert_eq!(fs::read_to_string(&log).unwrap(), "1\n2\n3\n1\n");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_fails_the_plan() {
    let mut bench = Bench::new();
    let plan = r#"{"files":[{"path":"/dev/null/x","content":""}],"instructions":[{"command":"true"}]}"#;
    let applied = bench.apply(plan, &Run::Begin(identity("t")), 1000).await;
    assert!(!applied.ended.as_ref().unwrap().succeeded);
    let error = String::from_utf8(outputs(&applied)[ERROR_OUTPUT].0.clone()).unwrap();
    assert!(error.contains("/dev/null"), "{error}");
}

#[tokio::test]
async fn periodic_instructions_run_when_due_and_stop_at_the_first_failure() {
    let mut bench = Bench::new();
    let plan = r#"{"periodicInstructions":[
        {"name":"ok","command":"echo","args":["x"],"periodSeconds":60},
        {"command":"false"},
        {"name":"bad","command":"sh","args":["-c","echo e >&2; exit 2"],"saveStderrOutput":true},
        {"name":"after","command":"true"}]}"#;
    let skip = Run::Skip(Reason::Applied);
    let packed = bench.apply(plan, &skip, 1000).await.periodic.unwrap();
    let results: PeriodicResults = unpack(&packed).unwrap();
    assert_eq!(results["ok"].stdout.0, b"x\n");
    assert_eq!((results["bad"].exit_code, results["bad"].failures), (2, 1));
    assert_eq!(results["bad"].stderr.0, b"e\n");
    assert!(!results.contains_key("after"));
    assert!(
        bench
            .apply_onto(
                r#"{"periodicInstructions":[{"name":"ok","command":"echo","periodSeconds":60}]}"#,
                &skip,
                1059,
                b"",
                &packed
            )
            .await
            .periodic
            .is_none()
    );
    let later = bench.apply_onto(plan, &skip, 1060, b"", &packed).await.periodic.unwrap();
    let results: PeriodicResults = unpack(&later).unwrap();
    assert_eq!(results["ok"].last_successful_run_time, Stamp(1060).unix_date());
    assert_eq!(results["bad"].failures, 2);
}

#[tokio::test]
async fn unreadable_stored_output_does_not_stop_a_plan() {
    let mut bench = Bench::new();
    let plan = format!(r#"{{"instructions":[{}]}}"#, shell("one", "echo 1"));
    let applied = bench.apply_onto(&plan, &Run::Begin(identity("t")), 1000, b"junk", b"junk").await;
    assert_eq!(outputs(&applied)["one"].0, b"1\n");
}
