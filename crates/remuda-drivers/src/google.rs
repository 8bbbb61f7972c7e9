//! Machines of Google Compute Engine, through its REST API.
//!
//! Flags, their variables and the record are those of rancher-machine. Beyond them the record has `RemudaID`, which every
//! instance has as a label. Its name is its machine's, and a request is repeated under the same id, so that Google makes
//! one instance however often it is asked.
//!
//! Credentials are keys of service accounts only. Where a key says tokens are to be asked for is not read: it would be
//! an address of its writer's choice.

mod api;
mod auth;
mod flags;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use parking_lot::Mutex;
use remuda_names::machines::tag::LABEL;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    builtin::{Context, identity},
    driver::{Base, Config, Driver, Hidden, Owned, Pending, State, from_config, to_config},
    error::{Class, Error, Result},
    flags::{Flag, Flags},
    keys,
    kit::{self, Values},
    rest::Tokens,
    secret::Secret,
};

use api::{Api, Instance};
use auth::Key;
use flags::{UNSUPPORTED, all};

pub const NAME: &str = "google";

/// The record of an instance.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Record {
    #[serde(flatten)]
    base: Base,
    auth: Secret,
    zone: String,
    machine_type: String,
    machine_image: String,
    disk_type: String,
    address: String,
    network: String,
    subnetwork: String,
    preemptible: bool,
    #[serde(rename = "UseInternalIP")]
    use_internal_ip: bool,
    #[serde(rename = "UseInternalIPOnly")]
    use_internal_ip_only: bool,
    scopes: String,
    disk_size: i64,
    project: String,
    tags: String,
    labels: String,
    userdata: String,
    #[serde(rename = "PrivateIPAddress")]
    private_ip_address: String,
    #[serde(rename = "RemudaID")]
    remuda_id: String,
    /// What another driver of that name recorded and we do not know; it is not lost.
    #[serde(flatten)]
    unknown: Hidden,
}

impl Record {
    /// Names of instances are labels of host names.
    fn check_name(&self) -> Result<()> {
        if is_name(&self.base.machine_name) {
            return Ok(());
        }
        let name = &self.base.machine_name;
        Err(Error::other(format!(
            "machine name {name:?} is no name at Google: lower-case letters, digits and -, a letter first, at most 63"
        )))
    }

    /// The labels given and ours.
    fn all_labels(&self) -> Result<BTreeMap<String, String>> {
        let mut labels = BTreeMap::new();
        // Keys and values in turn, as rancher-machine has them, or pairs.
        let parts: Vec<&str> =
            self.labels.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        let paired = parts.iter().all(|part| part.contains('='));
        let pairs: Vec<String> = match paired {
            true => parts.iter().map(ToString::to_string).collect(),
            false => {
                parts.chunks(2).map(|pair| format!("{}={}", pair[0], pair.get(1).unwrap_or(&""))).collect()
            }
        };
        for pair in pairs {
            let (key, value) = kit::label("google-vm-labels", &pair)?;
            let fits = |text: &str| text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_'));
            if !fits(&key)
                || !fits(&value)
                || !key.starts_with(|c: char| c.is_ascii_lowercase())
                || key == LABEL
            {
                return Err(Error::other(format!(
                    "--google-vm-labels: {pair:?} is no label of lower-case letters, digits, - and _"
                )));
            }
            labels.insert(key, value);
        }
        labels.insert(LABEL.to_owned(), self.remuda_id.clone());
        Ok(labels)
    }

    fn all_tags(&self) -> Result<Vec<String>> {
        let tags = self.tags.split(',').map(str::trim).filter(|tag| !tag.is_empty());
        let tags: Vec<String> = tags.map(str::to_owned).collect();
        match tags.iter().find(|tag| !is_name(tag)) {
            Some(bad) => Err(Error::other(format!("--google-tags: {bad:?} is no network tag"))),
            None => Ok(tags),
        }
    }

    fn region(&self) -> &str {
        self.zone.rsplit_once('-').map_or(&self.zone, |(region, _)| region)
    }

    /// Takes over an instance's addresses; whether those that were asked for are there.
    fn learn(&mut self, instance: &Instance) -> bool {
        self.private_ip_address = instance.internal().to_owned();
        let wanted = if self.use_internal_ip { instance.internal() } else { instance.external() };
        self.base.ip_address = wanted.to_owned();
        !self.base.ip_address.is_empty()
    }
}

fn is_name(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'))
        && !text.ends_with('-')
}

/// The driver; see the module.
#[derive(Debug)]
pub struct Google {
    context: Context,
    record: Mutex<Record>,
    tokens: Tokens,
}

impl Google {
    pub fn new(context: Context) -> Self {
        Self { context, record: Mutex::default(), tokens: Tokens::default() }
    }

    fn record(&self) -> Record {
        self.record.lock().clone()
    }

    async fn api(&self, record: &Record) -> Result<Api> {
        if record.auth.is_empty() {
            return Err(kit::no_credential(NAME, "auth-encoded-json"));
        }
        let key = Key::read(record.auth.expose())?;
        key.teach(self.context.log.redactor());
        let token = self.tokens.get(&record.auth, auth::exchange(&self.context, &key)).await?;
        self.context.log.redactor().learn(token.expose());
        Api::new(&self.context, &record.project, &record.zone, &token)
    }

    fn lost(&self) -> Error {
        Error::not_found(format!("machine {} not found", self.record.lock().base.machine_name))
    }

    async fn check(&self) -> Result<()> {
        let record = self.record();
        record.check_name()?;
        let api = self.api(&record).await?;
        let (zone, project) = (&record.zone, &record.project);
        if !api.has("look up zone", "").await? {
            return Err(Error::other(format!("google has no zone {zone} in project {project}")));
        }
        let kind = &record.machine_type;
        if !api.has("look up machine type", &format!("/machineTypes/{}", crate::rest::encode(kind))).await? {
            return Err(Error::other(format!("google has no machine type {kind} in zone {zone}")));
        }
        if !api.has_image(&record.machine_image).await? {
            let image = &record.machine_image;
            return Err(Error::new(Class::Image, format!("google has no image {image}")));
        }
        Ok(())
    }

    async fn make(&self) -> Result<()> {
        let record = self.record();
        record.check_name()?;
        if record.remuda_id.is_empty() {
            return Err(Error::other("the machine has not been configured"));
        }
        let api = self.api(&record).await?;
        let user_data = kit::user_data("google-userdata", &record.userdata).await?;
        let path = record.base.key_path();
        let public = keys::ensure(&path, &record.base.machine_name).await?;
        self.record.lock().base.ssh_key_path = path;
        if self.own(&api, &record).await?.is_none() {
            let request = self.request(&api, &record, public.trim(), user_data.as_deref()).await?;
            self.context.log.info("Creating instance...");
            match api.insert(&request, &identity()).await {
                Ok(operation) => self.done(&api, &operation).await?,
                // An earlier try was heard after all, or the name is somebody else's.
                Err(refused) if refused.status == 409 => {
                    self.own(&api, &record).await?.ok_or(refused.error)?;
                }
                Err(refused) => return Err(refused.error),
            }
        }
        self.context.log.info("Waiting for the instance to run...");
        let look = || async {
            let instance = self.own(&api, &record).await?.ok_or_else(|| self.lost())?;
            Ok((self.record.lock().learn(&instance) && instance.status == "RUNNING").then_some(()))
        };
        self.context.wait("the instance did not come up", look).await
    }

    async fn request(
        &self,
        api: &Api,
        record: &Record,
        public: &str,
        user_data: Option<&str>,
    ) -> Result<Value> {
        let (project, zone) = (&record.project, &record.zone);
        // Parts are named by where they are at Google, and looked up there.
        let named = |text: &str, marker: &str, prefix: String| match text.contains(marker) {
            true => text.to_owned(),
            false => format!("{prefix}{marker}{text}"),
        };
        let mut card =
            json!({"network": named(&record.network, "/networks/", format!("projects/{project}/global"))});
        if !record.subnetwork.is_empty() {
            let region = format!("projects/{project}/regions/{}", record.region());
            card["subnetwork"] = named(&record.subnetwork, "/subnetworks/", region).into();
        }
        if !record.use_internal_ip_only {
            let mut access = json!({"type": "ONE_TO_ONE_NAT", "name": "External NAT"});
            if !record.address.is_empty() {
                access["natIP"] = api.address(record.region(), &record.address).await?.into();
            }
            card["accessConfigs"] = json!([access]);
        }
        let mut metadata = vec![json!({
            "key": "ssh-keys", "value": format!("{}:{public} {}", record.base.ssh_user, record.base.ssh_user),
        })];
        if let Some(user_data) = user_data {
            metadata.push(json!({"key": "user-data", "value": user_data}));
        }
        let scopes: Vec<&str> = record.scopes.split(',').map(str::trim).filter(|s| !s.is_empty()).collect();
        let accounts =
            if scopes.is_empty() { json!([]) } else { json!([{"email": "default", "scopes": scopes}]) };
        Ok(json!({
            "name": record.base.machine_name,
            "machineType": format!("projects/{project}/zones/{zone}/machineTypes/{}", record.machine_type),
            "labels": record.all_labels()?,
            "tags": {"items": record.all_tags()?},
            "disks": [{
                "boot": true, "autoDelete": true, "type": "PERSISTENT", "mode": "READ_WRITE",
                "initializeParams": {
                    "diskName": format!("{}-disk", record.base.machine_name.chars().take(58).collect::<String>()),
                    "sourceImage": format!("projects/{}", record.machine_image),
                    "diskSizeGb": record.disk_size.to_string(),
                    "diskType": format!("projects/{project}/zones/{zone}/diskTypes/{}", record.disk_type),
                    "labels": record.all_labels()?,
                },
            }],
            "networkInterfaces": [card],
            "serviceAccounts": accounts,
            "scheduling": {"preemptible": record.preemptible},
            "metadata": {"items": metadata},
        }))
    }

    /// Waits for an operation, and fails as it does.
    async fn done(&self, api: &Api, operation: &str) -> Result<()> {
        let look = || async {
            match api.operation(operation).await? {
                Some(operation) if operation.status != "DONE" => Ok(None),
                Some(operation) => operation.outcome(&self.context.log).map(Some),
                // They are forgotten after a while, which is no failure.
                None => Ok(Some(())),
            }
        };
        self.context.wait("the operation did not end", look).await
    }

    /// The instance of the record's name, if it is the record's: it has its label, or the record is from a driver that
    /// gives none.
    async fn own(&self, api: &Api, record: &Record) -> Result<Option<Instance>> {
        let found = api.instance(&record.base.machine_name).await?;
        let ours = |instance: &Instance| {
            record.remuda_id.is_empty() || instance.labels.get(LABEL) == Some(&record.remuda_id)
        };
        Ok(found.filter(ours))
    }

    async fn instance(&self) -> Result<(Api, Instance)> {
        let record = self.record();
        let api = self.api(&record).await?;
        let instance = self.own(&api, &record).await?.ok_or_else(|| self.lost())?;
        self.record.lock().learn(&instance);
        Ok((api, instance))
    }

    async fn power(&self, kind: &str) -> Result<()> {
        let (api, instance) = self.instance().await?;
        let operation = api.power(&instance.name, kind).await?;
        self.done(&api, &operation).await
    }

    async fn clean(&self) -> Result<()> {
        let record = self.record();
        if record.auth.is_empty() || record.project.is_empty() {
            // Never configured, so nothing was made; and there is no key to ask with.
            return Ok(());
        }
        let api = self.api(&record).await?;
        let mut found = self.own(&api, &record).await?;
        if found.is_none() && record.base.ip_address.is_empty() {
            // Nobody knows whether an instance is still on its way.
            tokio::time::sleep(self.context.pace.settle).await;
            found = self.own(&api, &record).await?;
        }
        let Some(instance) = found else { return Ok(()) };
        self.context.log.info(format!("Removing instance {}...", instance.name));
        if let Some(operation) = api.delete(&instance.name).await? {
            self.done(&api, &operation).await?;
        }
        let look = || async { Ok(self.own(&api, &record).await?.is_none().then_some(())) };
        self.context.wait(&format!("instance {} does not go", instance.name), look).await
    }

    fn take(&self, values: &Flags) -> Result<()> {
        values.teach(self.context.log.redactor());
        let values = Values::new(NAME, values)?;
        values.refuse(&all(), UNSUPPORTED)?;
        let mut record = self.record.lock();
        record.auth = values.secret("auth-encoded-json");
        if record.auth.is_empty() {
            return Err(kit::no_credential(NAME, "auth-encoded-json"));
        }
        let key = Key::read(record.auth.expose())?;
        key.teach(self.context.log.redactor());
        record.project = values.text("project");
        if record.project.is_empty() {
            record.project = key.project;
        }
        record.zone = values.text("zone");
        record.machine_type = values.text("machine-type");
        let image = values.text("machine-image");
        let known = ["https://www.googleapis.com/compute/v1/projects/", "projects/"];
        let short = known.iter().find_map(|prefix| image.strip_prefix(prefix)).unwrap_or(&image);
        short.clone_into(&mut record.machine_image);
        record.disk_size = values.number("disk-size");
        record.disk_type = values.text("disk-type");
        record.address = values.text("address");
        record.network = values.text("network");
        record.subnetwork = values.text("subnetwork");
        record.preemptible = values.yes("preemptible");
        record.use_internal_ip_only = values.yes("use-internal-ip-only");
        record.use_internal_ip = values.yes("use-internal-ip") || record.use_internal_ip_only;
        record.scopes = values.text("scopes");
        record.tags = values.text("tags");
        record.labels = values.text("vm-labels");
        record.userdata = values.text("userdata");
        record.base.ssh_user = values.text("username");
        record.base.ssh_port = 22;
        if record.remuda_id.is_empty() {
            record.remuda_id = identity();
        }
        check(&record)
    }
}

fn check(record: &Record) -> Result<()> {
    for (flag, text) in [("project", &record.project), ("zone", &record.zone), ("network", &record.network)] {
        if text.is_empty() {
            return Err(kit::required(NAME, flag));
        }
    }
    let user = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    if record.base.ssh_user.is_empty() || !record.base.ssh_user.chars().all(user) {
        return Err(Error::other("--google-username must be the name of a user"));
    }
    if !(1..=65_536).contains(&record.disk_size) {
        return Err(Error::other("--google-disk-size must be a number of GB"));
    }
    if record.use_internal_ip_only && !record.address.is_empty() {
        return Err(Error::other("--google-address cannot be given with --google-use-internal-ip-only"));
    }
    record.all_tags()?;
    record.all_labels().map(drop)
}

impl Driver for Google {
    kit::by_record!(all; auth);

    fn renew(&self, values: Flags) -> Pending<'_, ()> {
        Box::pin(async move {
            values.teach(self.context.log.redactor());
            let auth = values.secret("google-auth-encoded-json");
            if !auth.is_empty() {
                self.record.lock().auth = auth;
            }
            Ok(())
        })
    }

    fn pre_create_check(&self) -> Pending<'_, ()> {
        Box::pin(self.check())
    }

    fn state(&self) -> Pending<'_, State> {
        Box::pin(async {
            Ok(match self.instance().await?.1.status.as_str() {
                "PROVISIONING" | "STAGING" | "REPAIRING" => State::Starting,
                "RUNNING" => State::Running,
                "STOPPING" | "SUSPENDING" | "PENDING_STOP" => State::Stopping,
                "TERMINATED" | "STOPPED" => State::Stopped,
                "SUSPENDED" => State::Saved,
                _ => State::None,
            })
        })
    }

    fn start(&self) -> Pending<'_, ()> {
        Box::pin(self.power("start"))
    }

    fn stop(&self) -> Pending<'_, ()> {
        Box::pin(self.power("stop"))
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(self.power("reset"))
    }

    fn kill(&self) -> Pending<'_, ()> {
        Box::pin(self.power("stop"))
    }

    fn places(&self) -> Vec<String> {
        vec![format!("{NAME}-project")]
    }

    fn inventory(&self) -> Pending<'_, Vec<Owned>> {
        Box::pin(async {
            let all = self.api(&self.record()).await?.ours().await?;
            let ours = all.into_iter().filter_map(|instance| {
                let identity = instance.labels.get(LABEL)?.clone();
                Some(Owned { kind: "instance".to_owned(), id: instance.id, name: instance.name, identity })
            });
            Ok(ours.collect())
        })
    }
}
