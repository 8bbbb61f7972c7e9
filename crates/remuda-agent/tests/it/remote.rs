use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use remuda_agent::{
    decide::{Data, text},
    environment::Environment,
    run::{RunError, RunOptions, run},
};
use remuda_names::agent::ERROR_OUTPUT;
use remuda_plan::{
    key,
    output::{Outputs, unpack},
    sha256_hex,
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    api::{Api, configure},
    server::{Answer, Running, serve},
};

/// A server with one Secret, and room for an agent.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    pub(crate) api: Arc<Api>,
    server: Running,
}

/// A place with an agent in it.
pub(crate) struct World {
    place: Place,
    agent: Agent,
}

impl Deref for World {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

struct Agent {
    stop: CancellationToken,
    tasks: JoinSet<Result<(), RunError>>,
}

impl Agent {
    fn start(config: &Path, strict: bool) -> Self {
        Self::start_in(config, strict, Environment::of_process())
    }

    fn start_in(config: &Path, strict: bool, environment: Environment) -> Self {
        let config = Some(config.to_owned());
        let options = RunOptions { config, strict: Some(strict), allow_non_root: true, environment };
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(run(options, stop.clone()));
        Self { stop, tasks }
    }

    async fn stop(mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let place = Place::new(None).await;
        let agent = Agent::start(&place.configure("http", ""), false);
        Self { place, agent }
    }

    async fn restart(self) -> Self {
        self.agent.stop().await;
        let agent = Agent::start(&self.place.dir.path().join("var/config.yaml"), false);
        Self { agent, ..self }
    }
}

impl Place {
    async fn new(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let api = Api::new();
        let server = api.serve(tls).await;
        Self { dir: tempfile::tempdir().unwrap(), api, server }
    }

    /// The configuration of an agent that knows the server as `cluster` says.
    fn configure(&self, scheme: &str, cluster: &str) -> PathBuf {
        configure(self.dir.path(), &format!("{scheme}://{}", self.server.address), cluster)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) async fn deliver(&self, plan: &str) {
        self.api
            .change("uid-1", |data| {
                data.insert(key::PLAN.into(), plan.into());
                data.insert(key::PLAN_STATE.into(), b"pending".to_vec());
                data.remove(key::PROBE_STATUSES);
            })
            .await;
    }

    async fn deliver_legacy(&self, plan: &str) {
        self.api.change("uid-1", |data| drop(data.insert(key::PLAN.into(), plan.into()))).await;
    }

    /// Delivers a plan that asks for nothing, and waits until it is applied.
    async fn apply_nothing(&self) {
        self.deliver("{}").await;
        self.api.wait("success", state_is("succeeded")).await;
    }

    /// Gives the agent time, which it must not use to read the Secret.
    async fn stays_unread(&self) {
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(self.api.state.lock().await.lists, 0);
    }

    fn appending(&self, line: &str) -> String {
        plan(&format!("echo {line} >> {}; echo out-{line}", self.path("log")))
    }
}

fn plan(script: &str) -> String {
    let args = json!(["-c", script]);
    format!(r#"{{"instructions":[{{"name":"do","command":"sh","args":{args},"saveOutput":true}}]}}"#)
}

pub(crate) fn state_is(state: &'static str) -> impl Fn(&Data) -> bool {
    move |data| text(data, key::PLAN_STATE) == state
}

fn output(data: &Data, name: &str) -> Outputs {
    unpack(&data[name]).unwrap()
}

#[tokio::test]
async fn a_pending_plan_is_taken_run_and_reported() {
    let world = World::new().await;
    world.api.change("uid-1", |_| {}).await;
    let plan = world.appending("a");
    world.deliver(&plan).await;
    let data = world.api.wait("success", state_is("succeeded")).await;
    assert_eq!(text(&data, key::APPLIED_CHECKSUM), sha256_hex(plan.as_bytes()));
    assert_eq!(text(&data, key::PLAN_REVISION), "1");
    assert_eq!(text(&data, key::SUCCESS_COUNT), "1");
    assert_eq!(text(&data, key::FAILURE_COUNT), "0");
    assert_eq!(text(&data, key::PROBE_STATUSES), "{}");
    assert_eq!(output(&data, key::APPLIED_OUTPUT)["do"].0, b"out-a\n");
    assert!(
        unpack::<remuda_plan::output::PeriodicResult>(&data[key::APPLIED_PERIODIC_OUTPUT])
            .unwrap()
            .is_empty()
    );
    // The same content again is a new run when the server asks for it.
    world.deliver(&plan).await;
    let data = world
        .api
        .wait("second run", |data| text(data, key::PLAN_REVISION) == "2" && state_is("succeeded")(data))
        .await;
    assert_eq!(text(&data, key::SUCCESS_COUNT), "2");
    assert_eq!(world.read("log"), "a\na\n");
}

#[tokio::test]
async fn a_failed_plan_says_why_and_waits_for_the_server() {
    let world = World::new().await;
    world.deliver(&plan("echo x >> $LOG; echo reason >&2; exit 4").replace("$LOG", &world.path("log"))).await;
    let data = world.api.wait("failure", state_is("failed")).await;
    assert_eq!(text(&data, key::FAILURE_COUNT), "1");
    let outputs = output(&data, key::FAILED_OUTPUT);
    assert_eq!(String::from_utf8_lossy(&outputs[ERROR_OUTPUT].0), "instruction 0 (do): exit code 4: reason");
    world.deliver(&world.appending("b")).await;
    let data = world.api.wait("recovery", state_is("succeeded")).await;
    assert_eq!((text(&data, key::FAILURE_COUNT), text(&data, key::FAILED_CHECKSUM)), ("0", ""));
    assert_eq!(world.read("log"), "x\nb\n");
}

#[tokio::test]
async fn older_servers_compare_checksums_and_a_restart_runs_nothing_again() {
    let world = World::new().await;
    let plan = world.appending("a");
    world.deliver_legacy(&plan).await;
    let sum = sha256_hex(plan.as_bytes());
    world.api.wait("checksum", |data| text(data, key::APPLIED_CHECKSUM) == sum).await;
    let world = world.restart().await;
    let puts = world.api.state.lock().await.puts;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.api.state.lock().await.puts, puts, "a settled agent writes nothing");
    let second = world.appending("b");
    world.deliver_legacy(&second).await;
    let sum = sha256_hex(second.as_bytes());
    world.api.wait("checksum", |data| text(data, key::APPLIED_CHECKSUM) == sum).await;
    assert_eq!(world.read("log"), "a\nb\n");
}

#[tokio::test]
async fn an_unreported_end_is_reported_once_the_api_is_back() {
    let world = World::new().await;
    world.api.state.lock().await.faults = vec!["", "fail", "fail", "fail", "fail", "fail", "lose"];
    world.deliver(&world.appending("a")).await;
    let data = world.api.wait("success", state_is("succeeded")).await;
    assert_eq!(text(&data, key::SUCCESS_COUNT), "1");
    assert_eq!(world.read("log"), "a\n");
}

#[tokio::test]
async fn a_write_of_somebody_else_does_not_lose_the_report() {
    let world = World::new().await;
    world.deliver(&plan(&format!("touch {}; sleep 0.6", world.path("started")))).await;
    while !Path::new(&world.path("started")).exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.api.change("uid-1", |data| drop(data.insert("appliedPlan".into(), b"x".to_vec()))).await;
    let data = world.api.wait("success", state_is("succeeded")).await;
    assert_eq!(data["appliedPlan"], b"x");
}

#[tokio::test]
async fn a_plan_replaced_while_it_runs_is_followed_by_the_new_one() {
    let world = World::new().await;
    let log = world.path("log");
    world.deliver(&plan(&format!("echo old >> {log}; sleep 0.5"))).await;
    while world.read("log").is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let second = world.appending("new");
    world.deliver(&second).await;
    let sum = sha256_hex(second.as_bytes());
    let data = world.api.wait("new plan", |data| text(data, key::APPLIED_CHECKSUM) == sum).await;
    assert!(state_is("succeeded")(&data));
    assert_eq!(world.read("log"), "old\nnew\n");
}

#[tokio::test]
async fn a_recreated_secret_and_expired_watches_are_taken_in_stride() {
    let world = World::new().await;
    world.deliver(&world.appending("a")).await;
    world.api.wait("success", state_is("succeeded")).await;
    world.api.delete().await;
    world.api.state.lock().await.expire = true;
    let plan = world.appending("b");
    world
        .api
        .change("uid-2", |data| {
            data.insert(key::PLAN.into(), plan.into());
        })
        .await;
    world
        .api
        .wait("legacy run on the new Secret", |data| !text(data, key::APPLIED_CHECKSUM).is_empty())
        .await;
    assert_eq!(world.read("log"), "a\nb\n");
}

#[tokio::test]
async fn bad_plans_change_nothing_and_the_next_good_one_runs() {
    let world = World::new().await;
    world.deliver("{not json").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(state_is("pending")(&world.api.data().await));
    world.deliver(&world.appending("a")).await;
    world.api.wait("success", state_is("succeeded")).await;
}

#[tokio::test]
async fn the_agent_comes_back_when_the_server_does() {
    let World { place, agent } = World::new().await;
    place.api.change("uid-1", |_| {}).await;
    let Place { dir, api, server } = place;
    let address = server.address;
    drop(server);
    api.hang_up().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let place = Place { dir, server: api.serve_at(address, None).await, api };
    place.deliver(&place.appending("a")).await;
    place.api.wait("success", state_is("succeeded")).await;
    agent.stop().await;
}

#[tokio::test]
async fn the_systems_authorities_are_a_fallback_unless_verification_is_strict() {
    let (config, pem) = tls("127.0.0.1");
    let (_, other) = tls("127.0.0.1");
    let place = Place::new(Some(config)).await;
    let bundle = place.dir.path().join("bundle.pem");
    fs::write(&bundle, pem).unwrap();
    let environment: Environment =
        [("PATH", "/usr/bin:/bin".to_owned()), ("SSL_CERT_FILE", bundle.display().to_string())]
            .into_iter()
            .collect();
    let path = place.configure("https", &authority(&other));
    let strict = Agent::start_in(&path, true, environment.clone());
    place.stays_unread().await;
    strict.stop().await;
    let lenient = Agent::start_in(&path, false, environment);
    place.apply_nothing().await;
    lenient.stop().await;
}

#[tokio::test]
async fn a_pending_upgrade_holds_a_plan_back() {
    let place = Place::new(None).await;
    let config = place.configure("http", "");
    let pending = place.dir.path().join("var/interlock/restart-pending");
    fs::create_dir_all(pending.parent().unwrap()).unwrap();
    fs::write(&pending, "").unwrap();
    let agent = Agent::start(&config, false);
    place.deliver("{}").await;
    place.api.wait("the plan to be taken", state_is("in-progress")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(state_is("in-progress")(&place.api.data().await));
    fs::remove_file(&pending).unwrap();
    place.api.wait("success", state_is("succeeded")).await;
    agent.stop().await;
}

#[tokio::test]
async fn probes_are_reported_with_the_run_and_follow_the_truth() {
    let world = World::new().await;
    let health = Arc::new(std::sync::atomic::AtomicU16::new(200));
    let shared = health.clone();
    let target = serve(None, move |ask| {
        let status = shared.load(std::sync::atomic::Ordering::Relaxed);
        async move {
            assert!(ask.headers["user-agent"].starts_with("kube-probe/"));
            match ask.path.as_str() {
                "/moved" => Answer::Full(302, vec![("Location".into(), "/ok".into())], Vec::new()),
                "/away" => {
                    Answer::Full(302, vec![("Location".into(), "http://localhost:1/".into())], Vec::new())
                }
                _ => Answer::text(status, "x"),
            }
        }
    })
    .await;
    let probe = |path: &str| json!({"httpGet":{"url":format!("http://{}{path}", target.address)},"failureThreshold":1,"timeoutSeconds":2});
    let plan = json!({"probes":{"ok":probe("/ok"),"moved":probe("/moved"),"away":probe("/away")}});
    world.api.change("uid-1", |data| drop(data.insert(key::PROBE_PERIOD.into(), b"1".to_vec()))).await;
    world.deliver(&plan.to_string()).await;
    let data = world.api.wait("success", state_is("succeeded")).await;
    let expected = r#"{"away":{"failureCount":1},"moved":{"healthy":true,"successCount":1},"ok":{"healthy":true,"successCount":1}}"#;
    assert_eq!(text(&data, key::PROBE_STATUSES), expected);
    health.store(503, std::sync::atomic::Ordering::Relaxed);
    world
        .api
        .wait("ill health", |data| text(data, key::PROBE_STATUSES).contains(r#""ok":{"failureCount":1}"#))
        .await;
}

pub(crate) fn tls(name: &str) -> (Arc<rustls::ServerConfig>, String) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), cert.pem())
}

fn authority(pem: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    format!(", certificate-authority-data: {}", STANDARD.encode(pem))
}

#[tokio::test]
async fn the_pinned_certificate_is_accepted_and_another_is_not() {
    let (config, pem) = tls("127.0.0.1");
    let (_, other) = tls("127.0.0.1");
    let place = Place::new(Some(config)).await;
    let agent = Agent::start(&place.configure("https", &authority(&other)), true);
    place.stays_unread().await;
    agent.stop().await;
    let agent = Agent::start(&place.configure("https", &authority(&pem)), true);
    place.apply_nothing().await;
    agent.stop().await;
}

#[tokio::test]
async fn strict_verification_needs_an_authority() {
    let dir = tempfile::tempdir().unwrap();
    let config = configure(dir.path(), "https://127.0.0.1:1", "");
    let mut agent = Agent::start(&config, true);
    let error = agent.tasks.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(remuda_agent::Chain(&error).to_string().contains("no certificate authority"), "{error}");
}

/// Connects everybody who knows the password to one place.
async fn proxy(to: std::net::SocketAddr) -> (std::net::SocketAddr, JoinSet<()>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut tcp, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(tcp.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                assert!(head.starts_with("CONNECT plans.example.com:443 HTTP/1.1\r\n"), "{head}");
                // base64 of u:p@ss
                if !head.contains("Proxy-Authorization: Basic dTpwQHNz\r\n") {
                    tcp.write_all(b"HTTP/1.1 407 Who are you\r\n\r\n").await.unwrap();
                    return;
                }
                tcp.write_all(b"HTTP/1.1 200 Go\r\n\r\n").await.unwrap();
                let mut onward = tokio::net::TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut tcp, &mut onward).await;
            });
        }
    });
    (address, tasks)
}

#[tokio::test]
async fn the_api_is_reached_through_a_proxy() {
    let (config, pem) = tls("somebody.else");
    let place = Place::new(Some(config)).await;
    let (proxy, _tasks) = proxy(place.server.address).await;
    let cluster = format!("{}, tls-server-name: somebody.else", authority(&pem));
    let path = configure(place.dir.path(), "https://plans.example.com", &cluster);
    let environment: Environment =
        [("PATH", "/usr/bin:/bin".to_owned()), ("HTTPS_PROXY", format!("http://u:p%40ss@{proxy}"))]
            .into_iter()
            .collect();
    let agent = Agent::start_in(&path, true, environment);
    place.apply_nothing().await;
    agent.stop().await;
}

#[tokio::test]
async fn output_larger_than_a_secret_does_not_stop_the_report() {
    let world = World::new().await;
    world.deliver(&plan("head -c 600000 /dev/urandom | base64; echo end >&2")).await;
    let data = world.api.wait("success", state_is("succeeded")).await;
    assert!(data[key::APPLIED_OUTPUT].len() <= remuda_plan::output::PACKED_LIMIT);
    assert!(output(&data, key::APPLIED_OUTPUT)["do"].0.ends_with(b"[output cut]\n"));
}

#[tokio::test]
async fn an_image_is_unpacked_and_run() {
    let world = World::new().await;
    let images = world.dir.path().join("var/images");
    fs::create_dir_all(&images).unwrap();
    let script = "#!/bin/sh\necho ran in $CATTLE_AGENT_EXECUTION_PWD\n";
    let layer = crate::image::tar(&[("run.sh", script)]);
    fs::write(images.join("i.tar"), crate::image::saved("rancher/installer:v1", &[layer])).unwrap();
    let instruction = |args: serde_json::Value| json!({"name":"i","image":"rancher/installer:v1","saveOutput":true,"command":args["c"],"args":args["a"]});
    let plan = json!({"instructions":[instruction(json!({"c":"sh","a":["-c","run.sh"]}))]});
    world.deliver(&plan.to_string()).await;
    let data = world.api.wait("success", state_is("succeeded")).await;
    let ran = String::from_utf8(output(&data, key::APPLIED_OUTPUT)["i"].0.clone()).unwrap();
    assert!(ran.starts_with("ran in ") && ran.contains(&sha256_hex(plan.to_string().as_bytes())), "{ran}");
    world.deliver(&json!({"instructions":[instruction(json!({"c":"","a":null}))]}).to_string()).await;
    world
        .api
        .wait("success of the default command", |data| {
            text(data, key::PLAN_REVISION) == "2" && state_is("succeeded")(data)
        })
        .await;
    world.deliver(&json!({"instructions":[{"image":"127.0.0.1:1/none:v1"}]}).to_string()).await;
    let data = world.api.wait("failure", state_is("failed")).await;
    let error = String::from_utf8(output(&data, key::FAILED_OUTPUT)[ERROR_OUTPUT].0.clone()).unwrap();
    assert!(
        error.contains("image 127.0.0.1:1/none:v1") && error.contains("connect to 127.0.0.1:1"),
        "{error}"
    );
}
