//! The dashboard in a headless browser, with thousands of clusters and machines: how soon there is something to see, what
//! goes over the wire, how soon a filter and a change are on the screen, what an open page costs the server, and whether
//! the memory of a page grows.
//!
//! Clusters are imported ones that wait for their agents, and all machines belong to one paused cluster: what is measured
//! is the page and the lists below it, not controllers.

mod browser;

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use bytes::Bytes;
use remuda_names::rancher::name::FLEET_DEFAULT;
use remuda_server::kubeconfig;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::browser::Browser;
use crate::{
    http::{Connection, Target, Verb},
    process::{self, Server},
    rancher_api::{MACHINES, machine, paused_cluster},
    table::Table,
};

const USER: &str = "bench";
const PASSWORD: &str = "correct horse battery";
/// Clients that make objects.
const MAKERS: usize = 16;
/// Repetitions of what is short.
const TIMES: usize = 10;
/// The machine that changes.
const CHANGED: &str = "m-00000";

/// Runs in every page before its own scripts: when the first row was painted, and tasks that held the page up.
const WATCH: &str = "
    window.bench = { first: 0, long: [] };
    new PerformanceObserver((list) => { for (const one of list.getEntries()) window.bench.long.push(one.duration); }).observe({ type: 'longtask', buffered: true });
    const look = () => { if (document.querySelector('table.rows tbody a.n')) requestAnimationFrame(() => { window.bench.first = performance.now(); }); else requestAnimationFrame(look); };
    requestAnimationFrame(look);
";

#[derive(clap::Args)]
pub(crate) struct DashboardArguments {
    /// Clusters in the list
    #[arg(long, default_value_t = 2_000)]
    clusters: usize,
    /// Machines in the list
    #[arg(long, default_value_t = 20_000)]
    machines: usize,
    /// Seconds per measurement
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Seconds of 50 changes each, after which the page must not have grown; 3,600 is an hour
    #[arg(long, default_value_t = 60)]
    memory_seconds: u64,
}

pub(crate) async fn run(
    program: &Path,
    with: &[String],
    arguments: &DashboardArguments,
) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let data = dir.path().join("data");
    let server = Server::start(program, &data, "127.0.0.1:0", with)?;
    let access = kubeconfig::read(&data.join(remuda_names::file::ADMIN_KUBECONFIG))?;
    let target = Arc::new(Target::new(&access)?);
    person(program, &data)?;
    let mut connection = target.connect().await?;
    connection.call(Verb::Post, PAUSED, paused_cluster().to_string().into()).await?;
    make(&target, arguments.machines, MACHINES, machine).await?;
    make(&target, arguments.clusters, CLUSTERS, cluster).await?;
    let mut table = Table::new(server.pid());
    table.note(&format!(
        "{} clusters, {} machines, {}",
        arguments.clusters,
        arguments.machines,
        table.memory()
    ));

    let browser = Browser::open(&access.server).await?;
    login(&browser).await?;
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", json!({"source": WATCH})).await?;
    table.note(&format!("cluster list, nothing in the cache: {}", paint(&browser, true).await?));
    table.note(&format!("cluster list, the browser knows the files: {}", paint(&browser, false).await?));
    let middle = arguments.clusters / 2;
    table.note(&filter(&browser, middle).await?);
    table.note(&sort(&browser).await?);
    table.note(&change(&browser, &mut connection).await?);
    table.note(&scroll(&browser).await?);
    table.note(&cost(&browser, &target, server.pid(), arguments.seconds).await?);
    table.note(&memory(&browser, &target, arguments.memory_seconds).await?);
    table.note(&format!("at the end, {}", table.memory()));
    table.print();
    drop(browser);
    server.stop()
}

const PAUSED: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters";
const CLUSTERS: &str = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";

fn cluster(number: usize) -> Value {
    json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": format!("cluster-{number:05}"), "namespace": FLEET_DEFAULT}, "spec": {},
    })
}

/// An administrator with a password.
fn person(program: &Path, data: &Path) -> anyhow::Result<()> {
    use std::io::Write;
    let mut child = Command::new(program)
        .args(["user", "create", USER, "--role", "admin", "--password-stdin", "--data-dir"])
        .arg(data)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    writeln!(input, "{PASSWORD}")?;
    drop(input);
    match child.wait()?.success() {
        true => Ok(()),
        false => bail!("no user was made"),
    }
}

async fn make(
    target: &Arc<Target>,
    count: usize,
    path: &'static str,
    object: fn(usize) -> Value,
) -> anyhow::Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..MAKERS {
        let (target, next) = (target.clone(), next.clone());
        tasks.spawn(async move {
            let mut connection = target.connect().await?;
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= count {
                    return anyhow::Ok(());
                }
                connection.call(Verb::Post, path, object(number).to_string().into()).await?;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

async fn login(browser: &Browser) -> anyhow::Result<()> {
    browser.load("/dashboard/").await?;
    browser.wait("document.querySelector('[name=username]')").await?;
    let fill = format!(
        "for (const [name, value] of [['username', '{USER}'], ['password', '{PASSWORD}']]) {{
            const one = document.querySelector(`[name=${{name}}]`); one.value = value; one.dispatchEvent(new Event('input', {{ bubbles: true }}));
        }} document.querySelector('button[type=submit]').click()"
    );
    browser.script(&fill).await?;
    browser.wait("document.querySelector('.app .head')").await
}

/// From the address to the first row, and bytes until then; medians.
async fn paint(browser: &Browser, cold: bool) -> anyhow::Result<String> {
    let (mut times, mut bytes) = (Vec::new(), 0.0);
    for _ in 0..TIMES {
        if cold {
            browser.devtools("Network.clearBrowserCache", json!({})).await?;
        }
        browser.load("/dashboard/clusters").await?;
        browser.wait("window.bench.first").await?;
        times.push(number(&browser.script("return window.bench.first").await?));
        let sent = "const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]; \
                    return all.filter((one) => one.responseEnd && one.responseEnd <= window.bench.first).reduce((sum, one) => sum + one.transferSize, 0)";
        bytes = number(&browser.script(sent).await?).max(bytes);
    }
    let wanted = if cold { " (wanted: 1,000 ms, 250 KB)" } else { "" };
    Ok(format!("first row after {:.0} ms, {:.0} KB at most{wanted}", median(times), bytes / 1e3))
}

/// From what is typed to rows that fit it, and no others.
async fn filter(browser: &Browser, middle: usize) -> anyhow::Result<String> {
    let mut times = Vec::new();
    for number_of in 0..TIMES {
        let wanted = format!("cluster-{:05}", middle + number_of);
        times.push(number(
            &browser.later(&typed(&wanted, &format!("rows.length === 1 && rows[0] === '{wanted}'"))).await?,
        ));
        browser.later(&typed("", "rows.length > 1")).await?;
    }
    Ok(format!("a filter is on the screen after {:.0} ms (wanted: 100)", median(times)))
}

/// A script that types into the filter and waits for the rows to be so.
fn typed(text: &str, so: &str) -> String {
    format!(
        "const began = performance.now(); const field = document.getElementById('filter');
         field.value = '{text}'; field.dispatchEvent(new Event('input', {{ bubbles: true }}));
         const look = () => {{ const rows = [...document.querySelectorAll('table.rows tbody td:not(.c-check) a.n')].map((one) => one.innerText);
             if ({so}) done(performance.now() - began); else requestAnimationFrame(look); }};
         requestAnimationFrame(look)"
    )
}

/// From the click to another first row.
async fn sort(browser: &Browser) -> anyhow::Result<String> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let script = "const began = performance.now(); const first = () => document.querySelector('table.rows tbody a.n')?.innerText;
            const before = first(); const heads = [...document.querySelectorAll('th button.sort')];
            heads.find((one) => one.innerText.trim() === 'Name').click();
            const look = () => { if (first() && first() !== before) done(performance.now() - began);
                else if (performance.now() - began > 1000) done(-1); else requestAnimationFrame(look); };
            requestAnimationFrame(look)";
        let took = number(&browser.later(script).await?);
        // One order of three begins with the same row as the one before.
        if took >= 0.0 {
            times.push(took);
        }
    }
    Ok(format!("another order is on the screen after {:.0} ms (wanted: 100)", median(times)))
}

fn version(number: usize) -> String {
    format!("v1.{number}.0+bench")
}

async fn say(connection: &mut Connection, number: usize) -> anyhow::Result<()> {
    let patch = json!({"status": {"nodeInfo": node_info(&version(number))}}).to_string();
    let path = format!("{MACHINES}/{CHANGED}/status");
    connection.call(Verb::MergePatch, &path, Bytes::from(patch)).await.map(drop)
}

fn node_info(version: &str) -> Value {
    json!({
        "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "c", "kernelVersion": "k", "kubeProxyVersion": "v",
        "kubeletVersion": version, "machineID": "m", "operatingSystem": "linux", "osImage": "o", "systemUUID": "s",
    })
}

/// Opens the list of machines, which has the one that changes.
async fn machines(browser: &Browser) -> anyhow::Result<()> {
    browser.load("/dashboard/machines?sort=name").await?;
    browser.wait(&format!("document.querySelector('table.rows tbody a.n')?.innerText === '{CHANGED}'")).await
}

/// From before a change is written to its being painted.
async fn change(browser: &Browser, connection: &mut Connection) -> anyhow::Result<String> {
    machines(browser).await?;
    let mut times = Vec::new();
    for number_of in 0..TIMES {
        let wanted = version(number_of);
        let waits = format!(
            "const look = () => {{ if (document.querySelector('table.rows').innerText.includes('{wanted}')) requestAnimationFrame(() => done(Date.now()));
                 else requestAnimationFrame(look); }}; look()"
        );
        // What came before is told; this is not its echo.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let seeing = browser.later(&waits);
        let writing = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let began = SystemTime::now().duration_since(UNIX_EPOCH)?;
            say(connection, number_of).await?;
            anyhow::Ok(began.as_secs_f64() * 1e3)
        };
        let (seen, began) = tokio::try_join!(seeing, writing)?;
        times.push(number(&seen) - began);
    }
    Ok(format!("a change is on the screen after {:.0} ms (wanted: 250)", median(times)))
}

/// Through all machines, a screen with every frame.
async fn scroll(browser: &Browser) -> anyhow::Result<String> {
    machines(browser).await?;
    let script = "window.bench.long = []; let frames = 0; const began = performance.now();
        const step = () => { frames += 1; scrollBy(0, 600);
            if (frames < 600 && innerHeight + scrollY < document.documentElement.scrollHeight - 2) requestAnimationFrame(step);
            else setTimeout(() => done({ frames, took: performance.now() - began, long: window.bench.long }), 500); };
        requestAnimationFrame(step)";
    let told = browser.later(script).await?;
    let long = told["long"].as_array().map(Vec::as_slice).unwrap_or_default();
    let longest = long.iter().map(number).fold(0.0, f64::max);
    Ok(format!(
        "scrolling through {} screens: {:.0} ms a frame, {} tasks of more than 50 ms, the longest {longest:.0} ms (wanted: none)",
        told["frames"],
        number(&told["took"]) / number(&told["frames"]).max(1.0),
        long.len(),
    ))
}

/// Changes machines so often in a second, until told to stop.
fn changes(target: &Arc<Target>, per_second: u64) -> JoinSet<anyhow::Result<()>> {
    let (target, mut tasks) = (target.clone(), JoinSet::new());
    tasks.spawn(async move {
        let mut connection = target.connect().await?;
        let mut ticks = tokio::time::interval(Duration::from_millis(1000 / per_second));
        for number in 0.. {
            ticks.tick().await;
            say(&mut connection, number % 1000).await?;
        }
        Ok(())
    });
    tasks
}

/// Processor time of the server with the list open, less what it has without, at ten changes a second.
async fn cost(browser: &Browser, target: &Arc<Target>, pid: u32, seconds: u64) -> anyhow::Result<String> {
    let _changes = changes(target, 10);
    let spends = async |browser: &Browser, path: &str| {
        browser.load(path).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (before, since) = (process::cpu(pid), Instant::now());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let spent = process::cpu(pid).saturating_sub(before).as_secs_f64();
        anyhow::Ok(100.0 * spent / since.elapsed().as_secs_f64())
    };
    let without = spends(browser, "about:blank").await?;
    let open = spends(browser, "/dashboard/machines?sort=name").await?;
    Ok(format!(
        "ten changes a second: {without:.2} % of a core without a page, {open:.2} % with the list of machines open; \
         the page costs {:.2} % (wanted: 1)",
        open - without
    ))
}

/// Objects of the page before and after many changes.
async fn memory(browser: &Browser, target: &Arc<Target>, seconds: u64) -> anyhow::Result<String> {
    machines(browser).await?;
    let _changes = changes(target, 50);
    // What a page keeps once is made first.
    tokio::time::sleep(Duration::from_secs((seconds / 4).clamp(5, 60))).await;
    let before = browser.heap().await?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = browser.heap().await?;
    let nodes = number(&browser.script("return document.querySelectorAll('*').length").await?);
    Ok(format!(
        "50 changes a second for {seconds} s: the page has {:.2} MB of objects, and had {:.2} MB before; {nodes:.0} elements",
        after / 1e6,
        before / 1e6
    ))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
