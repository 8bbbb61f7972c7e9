//! Health checks over HTTP.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{Uri, header};
use remuda_plan::{
    HttpGet, Probe,
    probe::{Status, Statuses},
};
use rustls::ClientConfig;
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    Chain,
    client::{Client, HttpError, Request, Timeouts},
    disk::read_limited,
    proxy::Proxies,
    tls::{Trust, TrustError},
};

const BODY_LIMIT: usize = 10 << 10;
const REDIRECTS: usize = 10;
/// Where the plan sets no limit. Waiting for ever would stop every report.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
const LONGEST_DELAY: i64 = 600;
const PEM_LIMIT: u64 = 1 << 20;
/// Checks under way at a time.
const CONCURRENT: usize = 16;
/// A check has its turn alone for so long. Most answer in a few milliseconds, so a machine with many of them needs
/// memory and processor for one at a time; one that does not answer holds up the others no longer than this.
const TURN: Duration = Duration::from_millis(100);

/// Runs checks; remembers TLS settings, which are costly to make.
#[derive(Debug, Default)]
pub struct Prober {
    settings: HashMap<String, (Fingerprint, Arc<ClientConfig>)>,
    system_bundle: Option<PathBuf>,
}

/// What TLS settings were made from.
type Fingerprint = (HttpGet, [Option<SystemTime>; 3]);

impl Prober {
    /// A prober that trusts the given bundle in place of the system's, if any.
    pub fn new(system_bundle: Option<PathBuf>) -> Self {
        Self { settings: HashMap::new(), system_bundle }
    }

    /// Checks everything and returns the new health. After a run each probe waits its initial delay.
    /// `None` when the agent is stopping.
    pub async fn check(
        &mut self,
        probes: &BTreeMap<String, Probe>,
        statuses: &Statuses,
        initial: bool,
        stop: &CancellationToken,
    ) -> Option<Statuses> {
        let mut statuses = statuses.clone();
        self.settings.retain(|name, _| probes.contains_key(name));
        let limit = Arc::new(Semaphore::new(CONCURRENT));
        let turns = Arc::new(Semaphore::new(1));
        let mut checks = JoinSet::new();
        for (name, probe) in probes {
            statuses.entry(name.clone()).or_default();
            let tls = match self.tls(name, &probe.http_get) {
                Ok(tls) => tls,
                Err(error) => {
                    tracing::warn!(probe = name, error = %Chain(&error), "probe has unusable TLS settings");
                    continue;
                }
            };
            let (name, probe) = (name.clone(), probe.clone());
            let (limit, turns) = (limit.clone(), turns.clone());
            checks.spawn(async move {
                if initial {
                    let delay = probe.initial_delay_seconds.clamp(0, LONGEST_DELAY);
                    tokio::time::sleep(Duration::from_secs(delay.unsigned_abs())).await;
                }
                let _permit = limit.acquire().await;
                let result = in_turn(&turns, check(&probe, tls)).await;
                (name, probe, result)
            });
        }
        loop {
            let next = tokio::select! {
                () = stop.cancelled() => return None,
                next = checks.join_next() => next,
            };
            let Some(next) = next else { return Some(statuses) };
            let Ok((name, probe, result)) = next else { continue };
            let status = statuses.entry(name.clone()).or_default();
            *status = judge(&name, &probe, *status, result);
        }
    }

    /// Client certificates and authorities that cannot be read are left out, as the servers expect;
    /// the check then fails on its own.
    fn tls(&mut self, name: &str, get: &HttpGet) -> Result<Arc<ClientConfig>, TrustError> {
        let modified = |path: &String| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        let scheme = get.url.split(':').next().unwrap_or_default().to_owned();
        let files = [modified(&get.ca_cert), modified(&get.client_cert), modified(&get.client_key)];
        let fingerprint = (HttpGet { url: scheme, ..get.clone() }, files);
        // Probes of one component mostly agree, and the system's authorities are large.
        if let Some((_, settings)) = self.settings.values().find(|(known, _)| *known == fingerprint) {
            let settings = settings.clone();
            self.settings.insert(name.to_owned(), (fingerprint, settings.clone()));
            return Ok(settings);
        }
        let read = |path: &str| {
            if path.is_empty() {
                return None;
            }
            read_limited(Path::new(path), PEM_LIMIT)
                .inspect_err(
                    |error| tracing::warn!(probe = name, error = %Chain(error), "cannot read file of probe"),
                )
                .ok()
        };
        let mut trust = Trust {
            insecure: get.insecure,
            system: true,
            system_bundle: self.system_bundle.clone(),
            ..Trust::default()
        };
        if !get.insecure && get.url.starts_with("https") {
            trust.extra = read(&get.ca_cert).unwrap_or_default();
            if !get.client_cert.is_empty() && !get.client_key.is_empty() {
                trust.identity = read(&get.client_cert).zip(read(&get.client_key));
            }
        } else {
            // Nothing is verified, so the system's authorities need not be loaded.
            trust.insecure = true;
        }
        let settings = trust.config().or_else(|error| {
            tracing::warn!(probe = name, error = %Chain(&error), "cannot use client certificate of probe");
            Trust { identity: None, ..trust }.config()
        })?;
        self.settings.insert(name.to_owned(), (fingerprint, settings.clone()));
        Ok(settings)
    }
}

/// What a check found; an error in the middle of the answer says nothing about health.
enum Finding {
    Healthy,
    Unhealthy(String),
    Unclear(String),
}

fn judge(name: &str, probe: &Probe, status: Status, finding: Finding) -> Status {
    let after = match finding {
        Finding::Healthy => status.after(probe, true),
        Finding::Unhealthy(reason) => {
            tracing::debug!(probe = name, reason, "probe failed");
            status.after(probe, false)
        }
        Finding::Unclear(reason) => {
            tracing::warn!(probe = name, reason, "probe could not be judged");
            status
        }
    };
    if after.healthy != status.healthy {
        tracing::info!(probe = name, healthy = after.healthy, "health changed");
    }
    after
}

/// Waits for a turn, and for what is done in it; the next one's begins when it is done, or lasts too long.
async fn in_turn<T>(turns: &Semaphore, work: impl Future<Output = T>) -> T {
    let turn = turns.acquire().await;
    let mut work = pin!(work);
    if let Ok(done) = timeout(TURN, &mut work).await {
        return done;
    }
    drop(turn);
    work.await
}

async fn check(probe: &Probe, tls: Arc<ClientConfig>) -> Finding {
    let seconds = u64::try_from(probe.timeout_seconds).unwrap_or(0);
    let limit = if seconds == 0 { DEFAULT_TIMEOUT } else { Duration::from_secs(seconds).min(LONGEST) };
    let Ok(first) = probe.http_get.url.parse::<Uri>() else {
        return Finding::Unclear("address cannot be parsed".into());
    };
    let timeouts = Timeouts { connect: limit, response: limit, idle: limit };
    let client = Client { tls, server_name: None, proxies: Proxies::default(), timeouts };
    match tokio::time::timeout(limit, follow(&client, first)).await {
        Ok(finding) => finding,
        Err(_) => Finding::Unhealthy(format!("no answer within {} s", limit.as_secs())),
    }
}

async fn follow(client: &Client, first: Uri) -> Finding {
    let mut uri = first.clone();
    for _ in 0..=REDIRECTS {
        let request = Request::get(uri.clone())
            .header(header::USER_AGENT, "kube-probe/1.36")
            .header(header::ACCEPT, "*/*");
        let response = match client.send(request).await {
            Ok(response) => response,
            Err(error @ HttpError::Address { .. }) => return Finding::Unclear(error.to_string()),
            Err(error) => return Finding::Unhealthy(Chain(&error).to_string()),
        };
        let (status, headers) = (response.status, response.headers);
        match response.body.read(BODY_LIMIT).await {
            Ok(_) | Err(HttpError::TooLarge { .. }) => {}
            Err(error) => return Finding::Unclear(Chain(&error).to_string()),
        }
        if status.is_success() {
            return Finding::Healthy;
        }
        let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
        let Some(next) = location.filter(|_| status.is_redirection()).and_then(|to| resolve(&uri, to)) else {
            return Finding::Unhealthy(format!("status {status}"));
        };
        if next.host() != first.host() {
            return Finding::Unhealthy(format!("redirected to another host: {next}"));
        }
        uri = next;
    }
    Finding::Unhealthy(format!("more than {REDIRECTS} redirects"))
}

/// Where a `Location` leads.
pub(crate) fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    if location.contains("://") {
        return location.parse().ok();
    }
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    if let Some(rest) = location.strip_prefix("//") {
        return format!("{scheme}://{rest}").parse().ok();
    }
    let path = if location.starts_with('/') {
        location.to_owned()
    } else {
        let parent = base.path().rsplit_once('/').map_or("", |(parent, _)| parent);
        format!("{parent}/{location}")
    };
    format!("{scheme}://{authority}{path}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_resolved_against_the_request() {
        let base: Uri = "https://h:1/a/b?c".parse().unwrap();
        for (location, expected) in [
            ("https://x/y", "https://x/y"),
            ("//x/y", "https://x/y"),
            ("/y", "https://h:1/y"),
            ("y", "https://h:1/a/y"),
        ] {
            assert_eq!(resolve(&base, location).unwrap().to_string(), expected);
        }
        assert!(resolve(&base, "http://[").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_lasts_too_long_loses_the_turn_and_goes_on() {
        let turns = Semaphore::new(1);
        let under_way = std::cell::Cell::new(0);
        let work = |millis: u64| {
            let under_way = &under_way;
            in_turn(&turns, async move {
                under_way.set(under_way.get() + 1);
                let beside = under_way.get();
                tokio::time::sleep(Duration::from_millis(millis)).await;
                under_way.set(under_way.get() - 1);
                (beside, tokio::time::Instant::now())
            })
        };
        let began = tokio::time::Instant::now();
        let (slow, first, second) = tokio::join!(work(3000), work(10), work(10));
        let after = |(beside, ended): (i32, tokio::time::Instant)| (beside, (ended - began).as_millis());
        assert_eq!([slow, first, second].map(after), [(1, 3000), (2, 110), (2, 120)]);
    }

    #[tokio::test]
    async fn dead_hosts_and_nonsense_do_not_take_others_down() {
        let probes = ["http://127.0.0.1:1/", "http://", "nonsense", "ftp://x/", "https://127.0.0.1:1/", ""];
        let probes: BTreeMap<String, Probe> = probes
            .into_iter()
            .map(|url| {
                let http_get =
                    HttpGet { url: url.into(), ca_cert: "/nonexistent".into(), ..HttpGet::default() };
                (url.to_owned(), Probe { http_get, timeout_seconds: 1, ..Probe::default() })
            })
            .collect();
        let mut prober = Prober::default();
        let stop = CancellationToken::new();
        let statuses = prober.check(&probes, &Statuses::new(), false, &stop).await.unwrap();
        assert_eq!(statuses.len(), 6);
        assert_eq!(statuses["http://127.0.0.1:1/"].failure_count, 1);
        assert_eq!(statuses["nonsense"], Status::default());
        stop.cancel();
        assert!(prober.check(&probes, &statuses, true, &stop).await.is_none());
    }
}
