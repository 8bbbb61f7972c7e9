//! The plugin host against plugins of all kinds: ours, Go's, and hostile ones.
//!
//! A hostile plugin is a shell script; where it has to answer RPC, it prints the address of a server inside
//! the test.

use std::{
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use remuda_drivers::{
    builtin::{Context, Registry},
    driver::{Config, Driver},
    error::{Class, Error},
    fake::{Fake, amazonec2::AmazonEc2},
    flags::{Flag, Flags},
    gob::{Encoder, encode::Body},
    log::{Log, MemoryLog},
    plugin::{Launch, Plugin},
    rpc::codec::{Arrival, Side},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};

struct Script {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn script(body: &str) -> Script {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("docker-machine-driver-demo");
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Script { _dir: dir, path }
}

/// Patience for what is expected to happen, however busy the computer is.
const LONG: Duration = Duration::from_secs(10);
/// And for what is expected not to.
const SHORT: Duration = Duration::from_millis(500);

fn launch(script: &Script, patience: Duration) -> Launch {
    let mut launch = Launch::new("demo", &script.path);
    launch.timeouts.start = patience;
    launch.timeouts.call = patience;
    launch.timeouts.work = SHORT;
    launch
}

async fn failure(body: &str, patience: Duration) -> Error {
    let script = script(body);
    let started = Instant::now();
    let error = Plugin::start(launch(&script, patience), Log::tracing()).await.err().unwrap();
    assert!(started.elapsed() < LONG, "{error}");
    error
}

#[tokio::test]
async fn a_crash_at_the_start_is_told_with_the_last_output() {
    let error = failure("echo cannot find my libraries >&2; exit 7", LONG).await;
    assert_eq!(error.class(), Class::DriverCrash);
    let text = error.to_string();
    assert!(text.contains("exit status: 7") && text.contains("cannot find my libraries"), "{text}");
}

#[tokio::test]
async fn garbage_instead_of_an_address_is_shown() {
    let error = failure("echo 'Welcome to the driver!'; sleep 60", LONG).await;
    assert_eq!(error.class(), Class::DriverCrash);
    assert_eq!(error.to_string(), "driver printed \"Welcome to the driver!\" instead of its address");
    let error = failure("echo 192.0.2.1:22; sleep 60", LONG).await;
    assert!(error.to_string().contains("not a loopback address"), "{error}");
}

#[tokio::test]
async fn silence_is_a_timeout() {
    let error = failure("sleep 60", SHORT).await;
    assert_eq!(error.class(), Class::Timeout);
}

#[tokio::test]
async fn output_without_end_or_line_ends_is_survived() {
    let error = failure("tr '\\0' x < /dev/zero", LONG).await;
    assert_eq!(error.class(), Class::DriverCrash, "{error}");
    assert!(error.to_string().len() < 400);
    let error = failure("yes >&2", SHORT).await;
    assert_ne!(error.class(), Class::Other, "{error}");
}

#[tokio::test]
async fn a_missing_binary_is_named() {
    let error =
        Plugin::start(Launch::new("demo", "/nonexistent/driver"), Log::tracing()).await.err().unwrap();
    assert!(error.to_string().starts_with("start /nonexistent/driver"), "{error}");
    assert!(Launch::find("demo", &["/nonexistent".into()]).is_none());
}

/// A plugin whose connections are handled by `serve`, after the handshake.
async fn answering<F, Fut>(serve: F) -> (Script, JoinSet<()>)
where
    F: Fn(tokio::net::TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut hello = [0; 27];
            stream.read_exact(&mut hello).await.unwrap();
            assert_eq!(&hello, b"CONNECT /_goRPC_ HTTP/1.0\n\n");
            serve(stream).await;
        }
    });
    (script(&format!("echo {address}; exec sleep 60")), tasks)
}

const CONNECTED: &[u8] = b"HTTP/1.0 200 Connected to Go RPC\n\n";

#[tokio::test]
async fn wrong_handshakes_wrong_types_and_huge_lengths_end_the_plugin_not_us() {
    let cases: &[(&[u8], &[u8], Class)] = &[
        (b"HTTP/1.0 404 Not Found\r\nServer: nginx/1.2.3\r\n\r\n", b"", Class::DriverCrash),
        (CONNECTED, &[0xf8, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Class::DriverCrash),
        (CONNECTED, &[b'x'; 300], Class::DriverCrash),
        // A header that is a plain string.
        (CONNECTED, &[0x05, 0x0c, 0x00, 0x02, 0x6d, 0x31], Class::DriverCrash),
        (CONNECTED, b"", Class::Timeout),
    ];
    for (hello, reply, class) in cases {
        let (script, _server) = answering(move |mut stream| async move {
            let _ = stream.write_all(hello).await;
            let mut buffer = [0; 1000];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(reply).await;
            let _ = stream.read(&mut buffer).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        })
        .await;
        let patience = if *class == Class::Timeout { SHORT } else { LONG };
        let error = Plugin::start(launch(&script, patience), Log::tracing()).await.err().unwrap();
        assert_eq!(error.class(), *class, "{error}");
    }
}

#[tokio::test]
async fn answers_of_the_wrong_type_are_told_by_their_method() {
    let (script, _server) = answering(|mut stream| async move {
        let _ = stream.write_all(CONNECTED).await;
        let mut arrival = Arrival::new(Side::Requests, Default::default());
        let mut encoder = Encoder::default();
        let mut buffer = [0; 1000];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            arrival.feed(&buffer[..count]);
            while let Ok(Some((header, _))) = arrival.next_call() {
                let body = match header.method.as_str() {
                    "RPCServerDriver.GetVersion" => Body::Int(1),
                    "RPCServerDriver.GetState" => Body::Int(77),
                    "RPCServerDriver.GetConfigRaw" => Body::Bytes(b"not json canary".to_vec()),
                    "RPCServerDriver.GetSSHPort" => Body::Int(-1),
                    // Never answered.
                    "RPCServerDriver.Create" => continue,
                    _ => Body::FlagValues(Flags::default()),
                };
                let mut bytes = Vec::new();
                encoder.response(&header, &body, &mut bytes);
                let _ = stream.write_all(&bytes).await;
            }
        }
    })
    .await;
    let plugin = Plugin::start(launch(&script, LONG), Log::tracing()).await.unwrap();
    let wrong = |error: Error, text: &str| {
        assert!(error.to_string().contains(text), "{error}");
        assert!(!error.to_string().contains("canary"), "{error}");
    };
    wrong(plugin.state().await.unwrap_err(), "unknown state 77");
    wrong(
        plugin.flags().await.unwrap_err(),
        "answers GetCreateFlags with nonsense: expected list, got interface",
    );
    wrong(plugin.url().await.unwrap_err(), "answers GetURL with nonsense: expected string");
    wrong(plugin.ssh().await.unwrap_err(), "SSH port -1");
    wrong(plugin.config().await.unwrap_err(), "not a JSON object");
    let late = plugin.create().await.unwrap_err();
    assert_eq!(late.class(), Class::Timeout, "{late}");
    // Other calls still work after one was given up.
    wrong(plugin.state().await.unwrap_err(), "unknown state 77");
}

#[tokio::test]
async fn dropping_a_plugin_kills_its_whole_process_group() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let script = script(&format!("sleep 300 & echo $! > {}; sleep 300", pid_file.display()));
    let launch = launch(&script, LONG);
    let mut start = std::pin::pin!(Plugin::start(launch, Log::tracing()));
    let pid = loop {
        tokio::select! {
            _ = &mut start => panic!("it never starts"),
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
        match std::fs::read_to_string(&pid_file) {
            Ok(pid) if pid.ends_with('\n') => break pid,
            _ => {}
        }
    };
    start.set(Plugin::start(Launch::new("demo", "/nonexistent"), Log::tracing()));
    let stat = format!("/proc/{}/stat", pid.trim());
    let gone = || std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "));
    for _ in 0..100 {
        if gone() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the grandchild is still there");
}

/// The original driver makes an instance on our fake, and ours takes it over and removes it.
#[tokio::test]
async fn a_record_of_the_original_driver_is_taken_over() {
    let Some(binary) = std::env::var_os("REMUDA_TEST_RANCHER_MACHINE") else {
        eprintln!("skipped: no rancher-machine binary given");
        return;
    };
    let fake = Fake::start(AmazonEc2::new("AKIDCANARY", "canary-secret", "us-east-1")).await.unwrap();
    let memory = Arc::new(MemoryLog::default());
    let store = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(store.path().join("machines/m1")).unwrap();
    let plugin = Plugin::start(Launch::new("amazonec2", &binary), Log::new(memory.clone())).await.unwrap();
    plugin.load(Config::named("m1", store.path().to_str().unwrap())).await.unwrap();
    let mut values = Flags::defaults(&plugin.flags().await.unwrap());
    values.set("amazonec2-access-key", "AKIDCANARY");
    values.set("amazonec2-secret-key", "canary-secret");
    values.set("amazonec2-endpoint", fake.authority());
    values.set("amazonec2-insecure-transport", true);
    values.set("amazonec2-vpc-id", "vpc-1");
    plugin.configure(values).await.unwrap();
    plugin.pre_create_check().await.unwrap();
    let made = plugin.create().await;
    made.unwrap_or_else(|error| panic!("{error}\n{:?}\n{}", fake.calls(), memory.text()));
    assert_eq!(fake.api.resources().len(), 3, "{:?}", fake.api.resources());

    let ours = Registry::standard().open("amazonec2", Context::new(Log::new(memory.clone()))).unwrap();
    ours.load(plugin.config().await.unwrap()).await.unwrap();
    assert_eq!(ours.state().await.unwrap(), plugin.state().await.unwrap());
    assert_eq!(ours.ssh().await.unwrap().key_path, plugin.ssh().await.unwrap().key_path);
    ours.remove().await.unwrap();
    assert_eq!(fake.api.resources(), ["group rancher-nodes"], "not ours, so it stays");
    assert!(!memory.text().to_lowercase().contains("canary"), "{}", memory.text());
    plugin.close().await;
}

/// Set `REMUDA_TEST_RANCHER_MACHINE` to a `rancher-machine` binary to run against Go's side of the protocol.
#[tokio::test]
async fn the_drivers_inside_rancher_machine_answer() {
    let Some(binary) = std::env::var_os("REMUDA_TEST_RANCHER_MACHINE") else {
        eprintln!("skipped: no rancher-machine binary given");
        return;
    };
    let memory = Arc::new(MemoryLog::default());
    let store = tempfile::tempdir().unwrap();
    for (name, count) in [("digitalocean", 14), ("amazonec2", 39), ("generic", 5), ("google", 22)] {
        let plugin = Plugin::start(Launch::new(name, &binary), Log::new(memory.clone())).await.unwrap();
        let flags = plugin.flags().await.unwrap();
        assert_eq!(flags.len(), count, "{name}");
        if let Some(ours) = Registry::standard().open(name, Context::new(Log::tracing())) {
            let facts = |flags: Vec<Flag>| {
                let mut facts: Vec<_> =
                    flags.into_iter().map(|flag| (flag.name, flag.env, flag.kind)).collect();
                facts.sort_by(|a, b| a.0.cmp(&b.0));
                facts
            };
            assert_eq!(facts(ours.flags().await.unwrap()), facts(flags), "{name}");
        }
        plugin.load(Config::named("m1", store.path().to_str().unwrap())).await.unwrap();
        assert_eq!(plugin.machine_name().await.unwrap(), "m1");
        plugin.close().await;
    }
    let plugin = Plugin::start(Launch::new("digitalocean", &binary), Log::new(memory.clone())).await.unwrap();
    let flags = plugin.flags().await.unwrap();
    plugin.load(Config::named("m1", store.path().to_str().unwrap())).await.unwrap();
    let error = plugin.configure(Flags::defaults(&flags)).await.unwrap_err();
    assert!(error.to_string().contains("--digitalocean-access-token"), "{error}");
    let mut values = Flags::defaults(&flags);
    values.set("digitalocean-access-token", "canary-token");
    values.set("digitalocean-ssh-port", 2222);
    plugin.configure(values).await.unwrap();
    let config = plugin.config().await.unwrap();
    assert_eq!((config.str("AccessToken"), config.0["SSHPort"].as_i64()), ("canary-token", Some(2222)));
    assert_eq!(plugin.ssh().await.unwrap_err().class(), Class::Other);
    assert_eq!(plugin.addresses().await.unwrap(), Default::default());
    assert!(plugin.upgrade().await.unwrap_err().is_unsupported());
    assert!(!memory.text().contains("canary"));
    plugin.close().await;
}
