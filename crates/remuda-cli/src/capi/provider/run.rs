//! `remuda capi provider run`: one program, for as long as this command runs.
//!
//! Nothing on the server is changed before the program has been started once. From then on the state is kept: what is
//! installed anew meanwhile is pointed at the program again. At the end webhooks lead to their Services again.

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use http::Method;
use jiff::Timestamp;
use serde_json::json;
use tokio::{
    net::TcpStream,
    signal::unix::{Signal, SignalKind, signal},
};

use super::{
    Run,
    credentials::{Account, Files, Serving, own_address, write_kubeconfig},
    find::{self, Entry, Wanted},
    process::{Program, Restarts, Site},
    webhooks::{self, Endpoint},
};
use crate::{
    failure::{Code, Failure},
    session::{self, Global, Session},
    token::send,
};

/// How often it is looked whether a program listens.
const LOOK: Duration = Duration::from_millis(250);
/// How often the server is looked at.
const KEEP: Duration = Duration::from_secs(10);
/// A program that does not listen after so long is remarked on.
const SLOW: Duration = Duration::from_secs(30);
/// A connection on one host, or to one beside it.
const REACH: Duration = Duration::from_secs(2);

pub(super) async fn run(session: &Session, global: &Global, arguments: Run) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let prepared = tokio::select! {
        prepared = Provider::prepare(session, global, arguments) => prepared,
        () = signals.stop() => return Err(Failure::silent(Code::Interrupted)),
    };
    let mut provider = prepared?;
    let mut program = provider.start()?;
    let kept = provider.supervise(&mut program, &mut signals).await;
    // Webhooks first: what is written from here on is refused by a Service without endpoints, and not by a port that
    // another program may get.
    let restored = provider.restore().await;
    if let Some(program) = program {
        program.stop(signals.stop()).await;
    }
    kept.and(restored)
}

/// Everything there is to keep of one run.
struct Provider<'a> {
    session: &'a Session,
    entry: Entry,
    account: Account,
    serving: Serving,
    files: Files,
    site: Site,
    endpoint: Endpoint,
    listens_at: SocketAddr,
    line: Vec<String>,
    /// Webhooks that lead to the program.
    webhooks: usize,
    /// What was said last about the server, so that it is said once.
    trouble: Option<String>,
}

impl<'a> Provider<'a> {
    async fn prepare(session: &'a Session, global: &Global, arguments: Run) -> Result<Provider<'a>, Failure> {
        let Run { name, kind, provider_namespace, service_account, address, port, program } = arguments;
        let wanted = Wanted { name: &name, kind: kind.as_deref(), namespace: provider_namespace.as_deref() };
        let entry = find::choose(&find::inventory(session).await?, wanted)?;
        let account = find::account(session, &entry, service_account.as_deref()).await?;
        let server = session::config(&global.locate()?).await?;
        let address = match address {
            Some(address) => address,
            None => own_address(&server)?,
        };
        let objects = webhooks::of_provider(session, &entry.instance).await?;
        check_alone(&entry, objects.iter().filter_map(|(_, object)| webhooks::pointed_at(&object.0))).await?;
        let clients = objects.iter().flat_map(|(_, object)| webhooks::clients(&object.0));
        let services = clients.filter_map(|(_, client)| webhooks::service(client));
        let mut serving = Serving::new(&entry, address, services)?;
        let files = Files::new()?;
        serving.write(&files)?;
        let mut account = Account::new(&entry.namespace, &account);
        account.renew(session, &files).await?;
        write_kubeconfig(&files, &server, &entry.namespace)?;
        let listens_at = SocketAddr::new(address, port.map_or_else(|| free_port(address), Ok)?);
        let endpoint = Endpoint { base: format!("https://{listens_at}"), ca_bundle: serving.ca_bundle() };
        let site = Site {
            kubeconfig: files.kubeconfig().to_string_lossy().into_owned(),
            webhook_port: listens_at.port(),
            webhook_cert_dir: files.certificates().to_string_lossy().into_owned(),
            namespace: entry.namespace.clone(),
            has_webhooks: !objects.is_empty(),
        };
        check_rights(session, &entry, &account).await;
        let (webhooks, trouble) = (0, None);
        Ok(Provider {
            session,
            entry,
            account,
            serving,
            files,
            site,
            endpoint,
            listens_at,
            line: program,
            webhooks,
            trouble,
        })
    }

    fn start(&self) -> Result<Option<Program>, Failure> {
        Program::start(&self.line, &self.site).map(Some)
    }

    fn note(&self, text: &str) {
        self.session.out.note(&format!("{}: {text}", self.entry.instance));
    }

    /// Keeps the program running until it is told to end.
    async fn supervise(
        &mut self,
        program: &mut Option<Program>,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        // A server that refuses this will refuse it later too.
        self.point().await?;
        let mut restarts = Restarts::new();
        let (mut started, mut next_start) = (Instant::now(), Instant::now());
        let mut looked = Instant::now();
        let (mut answers, mut remarked) = (false, false);
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let ended = async {
                match program.as_mut() {
                    Some(program) => program.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = signals.stop() => return Ok(()),
                status = ended => {
                    let (status, ran) = (status?, started.elapsed());
                    if let Some(gone) = program.take() {
                        gone.clear();
                    }
                    let delay = restarts.delay(ran);
                    let (ran, delay_seconds) = (ran.as_secs(), delay.as_secs());
                    self.note(&format!("the program ended after {ran} s ({status}); it is started again in {delay_seconds} s"));
                    (answers, remarked, next_start) = (false, false, Instant::now() + delay);
                }
                _ = ticks.tick() => {
                    if program.is_none() && Instant::now() >= next_start {
                        started = Instant::now();
                        match Program::start(&self.line, &self.site) {
                            Ok(new) => *program = Some(new),
                            // It may be on its way: a build puts it there again.
                            Err(failure) => {
                                let delay = restarts.delay(Duration::ZERO);
                                self.note(&format!("{}; tried again in {} s", failure.message, delay.as_secs()));
                                next_start = Instant::now() + delay;
                            }
                        }
                    }
                    if program.is_some() && !answers {
                        answers = self.looks_ready().await;
                        if !answers && !remarked && started.elapsed() > SLOW {
                            remarked = true;
                            self.note(&format!(
                                "the program does not listen at {}; until it does, writes of its kinds fail", self.listens_at
                            ));
                        }
                    }
                    if looked.elapsed() >= KEEP {
                        looked = Instant::now();
                        self.keep().await?;
                    }
                }
            }
        }
    }

    /// Whether the program answers its webhooks, which is said once.
    async fn looks_ready(&self) -> bool {
        let Entry { instance, version, .. } = &self.entry;
        if self.webhooks == 0 {
            self.session.out.line(&format!("{instance} {version} runs; it has no webhooks"));
            return true;
        }
        let answers = is_answered(self.listens_at).await;
        if answers {
            let (count, base) = (self.webhooks, &self.endpoint.base);
            self.session
                .out
                .line(&format!("{instance} {version} runs and answers {count} webhooks at {base}"));
        }
        answers
    }

    /// What has to be done again and again. A server that does not answer now is asked again.
    async fn keep(&mut self) -> Result<(), Failure> {
        let now = Timestamp::now();
        if self.serving.is_due(now) {
            self.serving.write(&self.files)?;
        }
        let kept = match self.account.is_due(now) {
            true => self.account.renew(self.session, &self.files).await,
            false => Ok(()),
        };
        let kept = match kept {
            Ok(()) => self.point().await,
            failed => failed,
        };
        match kept {
            Ok(()) => self.trouble = None,
            Err(failure) if failure.code == Code::Conflict => return Err(failure),
            Err(failure) if self.trouble.as_ref() != Some(&failure.message) => {
                self.note(&format!("{}; it is tried again", failure.message));
                self.trouble = Some(failure.message);
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Points the provider's webhooks at the program, wherever that is not so.
    async fn point(&mut self) -> Result<(), Failure> {
        let mut count = 0;
        for (resource, object) in webhooks::of_provider(self.session, &self.entry.instance).await? {
            let elsewhere = webhooks::pointed_at(&object.0).filter(|base| *base != self.endpoint.base);
            if let Some(base) = elsewhere {
                // Another run has taken over, or was killed: two of them would take from each other for ever.
                check_alone(&self.entry, [base].into_iter()).await?;
            }
            let mut pointed = object.0.clone();
            if webhooks::point(&mut pointed, &self.entry.namespace, &self.endpoint) {
                let (namespace, endpoint) = (&self.entry.namespace, &self.endpoint);
                let change = |object: &mut serde_json::Value| webhooks::point(object, namespace, endpoint);
                webhooks::change(self.session, &resource, object.name(), change).await?;
            }
            let clients = webhooks::clients(&pointed);
            count += clients
                .iter()
                .filter(|(_, client)| webhooks::base(client) == Some(&self.endpoint.base))
                .count();
        }
        self.webhooks = count;
        Ok(())
    }

    /// Gives webhooks back to their Services.
    async fn restore(&self) -> Result<(), Failure> {
        let mut count = 0;
        for (resource, object) in webhooks::of_provider(self.session, &self.entry.instance).await? {
            let mut restored = object.0.clone();
            if webhooks::restore(&mut restored, &self.endpoint.base) {
                let change = |object: &mut serde_json::Value| webhooks::restore(object, &self.endpoint.base);
                webhooks::change(self.session, &resource, object.name(), change).await?;
                count += 1;
            }
        }
        if count > 0 {
            self.note("its webhooks lead to their Services again, where nothing answers: writes of its kinds fail until it runs");
        }
        Ok(())
    }
}

/// That no other run of a provider is there.
async fn check_alone(provider: &Entry, bases: impl Iterator<Item = &str>) -> Result<(), Failure> {
    for base in bases {
        let address = base.trim_start_matches("https://").parse::<SocketAddr>();
        if let Ok(address) = address
            && is_answered(address).await
        {
            let message =
                format!("a program of {} runs and answers its webhooks at {base}", provider.instance);
            return Err(Failure::new(Code::Conflict, message).hint("end that one first"));
        }
    }
    Ok(())
}

pub(super) async fn is_answered(address: SocketAddr) -> bool {
    matches!(tokio::time::timeout(REACH, TcpStream::connect(address)).await, Ok(Ok(_)))
}

fn free_port(address: IpAddr) -> Result<u16, Failure> {
    let bound = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    bound.map(|bound| bound.port()).map_err(|error| {
        let failure = Failure::new(Code::Other, format!("find a free port at {address}: {error}"));
        failure.hint("--address must be an address of this host")
    })
}

/// Says what the program's rights make likely to go wrong. Those who may not ask go without.
async fn check_rights(session: &Session, provider: &Entry, account: &Account) {
    let user = account.user();
    if allowed(session, account, "*", "*", "*").await == Some(true) {
        session
            .out
            .note(&format!("{}: its components give {user} every right on this server", provider.instance));
        return;
    }
    let Ok(definitions) = find::definitions(session, &provider.instance).await else { return };
    for definition in definitions {
        let (group, plural) = (definition.text("/spec/group"), definition.text("/spec/names/plural"));
        if allowed(session, account, "watch", group, plural).await == Some(false) {
            session.out.note(&format!(
                "{}: {user} may not watch {plural}.{group}: the roles of its components do not give it the right",
                provider.instance
            ));
        }
    }
}

async fn allowed(
    session: &Session,
    account: &Account,
    verb: &str,
    group: &str,
    resource: &str,
) -> Option<bool> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": account.user(), "groups": account.groups(),
            "resourceAttributes": {"verb": verb, "group": group, "resource": resource}},
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer = send(session, "ask for the program's rights", Method::POST, path, &review).await.ok()?;
    answer["status"]["allowed"].as_bool()
}

/// What ends a run. They are listened for from the beginning, so that none ends it half done.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Signals, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::new(Code::Other, format!("listen for signals: {error}")))
        };
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
