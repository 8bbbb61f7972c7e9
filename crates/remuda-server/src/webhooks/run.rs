//! Keeps receivers told.
//!
//! Reads   Secrets of type `remuda.io/webhook`, Clusters, Machines, release data, certificates of this server.
//! Writes  one ConfigMap beside each Secret: what was told.
//! Never   holds anything up: a receiver that does not answer is asked again later, and others do not wait for it.
//!
//! Without such a Secret nothing is looked at and no timer runs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::{core::Machine, management::Setting, provisioning::Cluster};
use remuda_base::{Backoff, backoff::Row};
use remuda_control::{Chain, Ctx, Informer, ObjectKey, Scope};
use remuda_distro::Current;
use remuda_names::{
    rancher::{name::SYSTEM, setting::SERVER_URL},
    webhook,
};
use serde_json::json;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Deliveries,
    due::{self, FirstSeen, Told, Wanted},
    fact::{self, Certificates, Facts},
    send::{self, SendError},
    target::Target,
};

/// After a failure; doubles.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(30 * 60));
/// Changes are gathered for so long: one of them seldom comes alone.
const GATHER: Duration = Duration::from_secs(1);
/// Until notes that could not be read are read again.
const AGAIN: Duration = Duration::from_secs(60);
/// Days pass without an event.
const LOOK: Duration = Duration::from_secs(6 * 60 * 60);
/// One receiver gets so many messages, and so much time, before what was told is noted.
const MESSAGES: usize = 100;
const TIME: Duration = Duration::from_secs(20);
const ACTION: &str = "Deliver";

/// What is told of beside objects.
pub(crate) struct Sources {
    pub(crate) releases: Current,
    pub(crate) certificates: Box<dyn Fn() -> Certificates + Send + Sync>,
    pub(crate) deliveries: Deliveries,
}

/// What is known of one webhook while this server leads.
struct Book {
    uid: String,
    /// Of the Secret that was read last.
    version: String,
    told: Told,
    row: Row,
    retry_at: Option<Timestamp>,
    client: Option<reqwest::Client>,
}

/// Tells until told to stop.
pub(crate) async fn run(ctx: Arc<Ctx>, sources: Arc<Sources>, stop: CancellationToken) {
    let scope = Scope::namespace(SYSTEM).with_fields(format!("type={}", webhook::SECRET_TYPE));
    let secrets: Informer<Secret> = ctx.informers.of(scope);
    let changed = Arc::new(Notify::new());
    let bell = changed.clone();
    let _secrets = secrets.subscribe(move |_| bell.notify_one());
    if stop.run_until_cancelled(secrets.wait_synced()).await.is_none() {
        return;
    }
    while !stop.is_cancelled() {
        if secrets.is_empty() || !ctx.leadership.is_ours() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = changed.notified() => {}
                () = ctx.leadership.gained(), if !ctx.leadership.is_ours() => {}
            }
            continue;
        }
        // It is large, and so is what is below it.
        stop.run_until_cancelled(Box::pin(lead(&ctx, &sources, &secrets, &changed))).await;
    }
}

/// As long as this server leads and there is a webhook.
async fn lead(ctx: &Ctx, sources: &Sources, secrets: &Informer<Secret>, changed: &Arc<Notify>) {
    let clusters: Informer<Cluster> = ctx.informers.of(Scope::all());
    let machines: Informer<Machine> = ctx.informers.of(Scope::all());
    let settings: Informer<Setting> = ctx.informers.of(Scope::all());
    let (one, other) = (changed.clone(), changed.clone());
    let _clusters = clusters.subscribe(move |_| one.notify_one());
    let _machines = machines.subscribe(move |_| other.notify_one());
    // A cache that is not whole yet would say that everything is well again.
    tokio::join!(clusters.wait_synced(), machines.wait_synced(), settings.wait_synced());
    let mut seen = FirstSeen::new();
    let mut books: BTreeMap<String, Book> = BTreeMap::new();
    while ctx.leadership.is_ours() && !secrets.is_empty() {
        let now = ctx.clock.now();
        let (all_clusters, all_machines) = (clusters.list(), machines.list());
        let facts = fact::all(
            all_clusters.iter().map(Arc::as_ref),
            all_machines.iter().map(Arc::as_ref),
            &sources.releases.get(),
            &(sources.certificates)(),
            now,
        );
        due::observe(&mut seen, &facts, now);
        let server = settings.get(&ObjectKey::cluster_wide(SERVER_URL));
        let server = server.map(|setting| setting.effective().to_owned()).unwrap_or_default();
        let webhooks = secrets.list();
        books.retain(|name, _| webhooks.iter().any(|secret| secret.name_any() == *name));
        let look = Look { ctx, deliveries: &sources.deliveries, facts: &facts, seen: &seen, server: &server };
        let attended = webhooks.iter().map(|secret| {
            let book = books.remove(&secret.name_any());
            look.attend(secret, book)
        });
        let mut next = now.checked_add(LOOK).unwrap_or(Timestamp::MAX);
        for (name, book, again) in join_all(attended).await {
            books.extend(book.map(|book| (name, book)));
            next = again.map_or(next, |again| next.min(again));
        }
        let pause = Duration::try_from(next.duration_since(ctx.clock.now())).unwrap_or_default();
        tokio::select! {
            () = changed.notified() => sleep(GATHER).await,
            () = sleep(pause.max(GATHER)) => {}
            () = ctx.leadership.lost() => {}
        }
    }
}

/// One look at the fleet.
struct Look<'a> {
    ctx: &'a Ctx,
    deliveries: &'a Deliveries,
    facts: &'a Facts,
    seen: &'a FirstSeen,
    server: &'a str,
}

impl Look<'_> {
    /// Tells one receiver what it does not know yet. Returns when to look again, if nothing happens before.
    async fn attend(&self, secret: &Secret, book: Option<Book>) -> (String, Option<Book>, Option<Timestamp>) {
        let name = secret.name_any();
        match Box::pin(self.tell(secret, book)).await {
            Ok((book, again)) => (name, Some(book), again),
            Err(error) => {
                warn!(webhook = name, error = %Chain(&error), "what was told cannot be read");
                let again = self.ctx.clock.now().checked_add(AGAIN).ok();
                (name, None, again)
            }
        }
    }

    async fn tell(
        &self,
        secret: &Secret,
        book: Option<Book>,
    ) -> Result<(Book, Option<Timestamp>), kube::Error> {
        let (name, uid) = (secret.name_any(), secret.uid().unwrap_or_default());
        let version = secret.resource_version().unwrap_or_default();
        let mut book = match book.filter(|book| book.uid == uid) {
            Some(book) => book,
            None => {
                let told = self.told(&name, &uid).await?;
                let (version, row) = (String::new(), BACKOFF.begin());
                Book { uid: uid.clone(), version, told, row, retry_at: None, client: None }
            }
        };
        let is_new = book.version != version;
        if is_new {
            // It may be what was wrong that was changed.
            book.version = version;
            book.row.reset();
            (book.retry_at, book.client) = (None, None);
        }
        let target = match Target::of(secret) {
            Ok(target) => target,
            Err(wrong) => {
                if is_new {
                    warn!(webhook = name, %wrong, "a webhook is not followed");
                    self.ctx.recorder.warning(secret, "WebhookInvalid", ACTION, wrong.to_string());
                }
                return Ok((book, None));
            }
        };
        let wanted = Wanted { uid: &uid, topics: &target.topics, after: target.after };
        let due = due::due(&wanted, self.facts, &book.told, self.seen, self.server, self.ctx.clock.now());
        let before = book.told.clone();
        for change in due.silent {
            change.apply(&mut book.told);
        }
        let mut again = due.next;
        let is_late = book.retry_at.is_some_and(|at| at > self.ctx.clock.now());
        if is_late && !due.messages.is_empty() {
            again = earlier(again, book.retry_at);
        } else if !due.messages.is_empty() {
            let retry = self.deliver(secret, &target, due.messages, &mut book).await;
            again = earlier(again, retry);
        }
        if book.told != before
            && let Err(error) = self.note(secret, &book.told).await
        {
            // Told again by the next leader at worst; receivers know messages by their names.
            warn!(webhook = name, error = %Chain(&error), "what was told cannot be noted");
        }
        Ok((book, again))
    }

    /// Sends messages until one fails; returns when to go on, if not all are sent.
    async fn deliver(
        &self,
        secret: &Secret,
        target: &Target,
        messages: Vec<due::Message>,
        book: &mut Book,
    ) -> Option<Timestamp> {
        let name = secret.name_any();
        let (began, count) = (Instant::now(), messages.len());
        let clock = &self.ctx.clock;
        for (sent, message) in messages.into_iter().enumerate() {
            if sent == MESSAGES || began.elapsed() > TIME {
                return Some(clock.now());
            }
            let outcome = self.send(target, &message, &mut book.client).await;
            self.deliveries.count(&name, outcome.is_ok());
            match outcome {
                Ok(()) => {
                    if book.row.failures() > 0 {
                        let note = "the receiver takes messages again";
                        self.ctx.recorder.normal(secret, "WebhookRecovered", ACTION, note);
                    }
                    book.row.reset();
                    book.retry_at = None;
                    info!(webhook = name, id = message.id, "message delivered");
                    message.change.apply(&mut book.told);
                }
                Err(error) => {
                    let delay = book.row.jittered(rand::random());
                    book.retry_at = clock.now().checked_add(delay).ok();
                    let left = count - sent;
                    let (seconds, error) = (delay.as_secs(), Chain(&error).to_string());
                    warn!(webhook = name, left, seconds, error, "a message was not delivered");
                    let note = format!("{error}; messages that wait and are tried again: {left}");
                    self.ctx.recorder.warning(secret, "WebhookFailed", ACTION, note);
                    return book.retry_at;
                }
            }
        }
        None
    }

    async fn send(
        &self,
        target: &Target,
        message: &due::Message,
        client: &mut Option<reqwest::Client>,
    ) -> Result<(), SendError> {
        let client = match client {
            Some(client) => client,
            None => client.insert(send::client(target)?),
        };
        send::send(client, target, message, self.ctx.clock.now()).await
    }

    fn notes(&self) -> Api<ConfigMap> {
        Api::namespaced(self.ctx.client.clone(), SYSTEM)
    }

    /// What the leader before has told. Notes of an earlier Secret of this name are none.
    async fn told(&self, name: &str, uid: &str) -> Result<Told, kube::Error> {
        let Some(found) = self.notes().get_opt(&config_map(name)).await? else { return Ok(Told::new()) };
        let is_own = found.owner_references().iter().any(|owner| owner.uid == uid);
        let text = found.data.as_ref().and_then(|data| data.get(webhook::TOLD)).filter(|_| is_own);
        let told = text.and_then(|text| serde_json::from_str(text).ok());
        Ok(told.unwrap_or_default())
    }

    async fn note(&self, secret: &Secret, told: &Told) -> Result<(), kube::Error> {
        let name = config_map(&secret.name_any());
        let owner = secret.owner_ref(&());
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": [owner]},
            "data": {webhook::TOLD: json!(told).to_string()},
        });
        let params = PatchParams::apply(&self.ctx.field_manager).force();
        self.notes().patch_metadata(&name, &params, &Patch::Apply(object)).await.map(drop)
    }
}

fn config_map(secret: &str) -> String {
    format!("{}{secret}", webhook::TOLD_PREFIX)
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
}
