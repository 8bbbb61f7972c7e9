//! Machines on Amazon EC2, through its query API.
//!
//! Flags, their variables and the record are those of rancher-machine. Beyond them the record has `RemudaID`,
//! which is the client token of the instance: EC2 itself then refuses to make a second one, and finds the
//! first by it when nobody knows its id. The key pair's name is recorded before it is made; security groups we
//! make are tagged, and go with the last machine in them.
//!
//! Credentials come from the flags only; instance roles and files of the AWS tools are not looked at.

mod api;
mod flags;
mod groups;
mod regions;
#[cfg(test)]
mod tests;
mod work;

use parking_lot::Mutex;
use remuda_s3::{sign::Signer, xml::Node};
use serde::{Deserialize, Serialize};

use crate::{
    builtin::{Context, identity, unique_name},
    driver::{Base, Config, Driver, Hidden, Owned, Pending, Ssh, State, from_config, to_config},
    error::{Class, Error, Result},
    flags::{Flag, Flags},
    kit,
    secret::Secret,
};

use api::{Api, Params};

pub const NAME: &str = "amazonec2";

/// Who signs calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    pub access_key: String,
    pub secret_key: Secret,
    pub session_token: Secret,
}

impl Credentials {
    pub(crate) fn signer(&self) -> Signer<'_> {
        Signer { access_key: &self.access_key, secret_key: self.secret_key.expose() }
    }
}

/// The record of an instance.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Record {
    #[serde(flatten)]
    base: Base,
    access_key: Secret,
    secret_key: Secret,
    session_token: Secret,
    region: String,
    #[serde(rename = "AMI")]
    ami: String,
    existing_key: bool,
    key_name: String,
    instance_id: String,
    instance_type: String,
    #[serde(rename = "PrivateIPAddress")]
    private_ip_address: String,
    security_group_ids: Vec<String>,
    security_group_names: Vec<String>,
    security_group_read_only: bool,
    open_ports: Vec<String>,
    tags: String,
    device_name: String,
    root_size: i64,
    volume_type: String,
    iam_instance_profile: String,
    vpc_id: String,
    subnet_id: String,
    zone: String,
    request_spot_instance: bool,
    spot_price: String,
    block_duration_minutes: i64,
    #[serde(rename = "PrivateIPOnly")]
    private_ip_only: bool,
    #[serde(rename = "UsePrivateIP")]
    use_private_ip: bool,
    use_ebs_optimized_instance: bool,
    monitoring: bool,
    #[serde(rename = "SSHPrivateKeyPath")]
    ssh_private_key_path: String,
    retry_count: i64,
    endpoint: String,
    #[serde(rename = "DisableSSL")]
    disable_ssl: bool,
    user_data_file: String,
    encrypt_ebs_volume: bool,
    kms_key_id: String,
    http_endpoint: String,
    http_tokens: String,
    http_protocol_ipv6: String,
    enable_primary_ipv6: bool,
    ipv6_address_count: i64,
    ipv6_address_only: bool,
    #[serde(rename = "RemudaID")]
    remuda_id: String,
    /// What another driver of that name recorded and we do not know; it is not lost.
    #[serde(flatten)]
    unknown: Hidden,
}

impl Record {
    fn full_zone(&self) -> String {
        if self.endpoint.is_empty() { format!("{}{}", self.region, self.zone) } else { self.zone.clone() }
    }

    /// Tags are given as keys and values in turn; a key without a value has none.
    fn tag_pairs(&self) -> Vec<(String, String)> {
        let parts: Vec<&str> = self.tags.split(',').collect();
        let pairs = parts.chunks_exact(2).filter(|pair| !pair[0].is_empty());
        pairs.map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
    }

    fn url(&self) -> String {
        if self.endpoint.is_empty() {
            let suffix = if self.region.starts_with("cn-") { ".cn" } else { "" };
            return format!("https://ec2.{}.amazonaws.com{suffix}/", self.region);
        }
        if self.endpoint.contains("://") {
            return self.endpoint.clone();
        }
        let scheme = if self.disable_ssl { "http" } else { "https" };
        format!("{scheme}://{}/", self.endpoint)
    }

    /// Takes over an instance's addresses; whether those that were asked for are there.
    fn learn(&mut self, instance: &Node) -> bool {
        self.instance_id = instance.get("instanceId").to_owned();
        let private = instance.get("privateIpAddress");
        self.private_ip_address = private.to_owned();
        let wanted =
            if self.private_ip_only || self.use_private_ip { private } else { instance.get("ipAddress") };
        self.base.ip_address = wanted.to_owned();
        self.base.ipv6_address = instance.get("ipv6Address").to_owned();
        let v6 = self.ipv6_address_count == 0 || !self.base.ipv6_address.is_empty();
        (self.ipv6_address_only || !self.base.ip_address.is_empty()) && v6
    }

    /// The address to reach the machine by.
    fn host(&self) -> &str {
        if self.base.ip_address.is_empty() { &self.base.ipv6_address } else { &self.base.ip_address }
    }
}

/// The driver; see the module.
#[derive(Debug)]
pub struct AmazonEc2 {
    context: Context,
    record: Mutex<Record>,
}

fn no_credentials() -> Error {
    let text = "amazonec2 driver requires the --amazonec2-access-key and --amazonec2-secret-key options";
    Error::new(Class::Credentials, text)
}

fn one_of(values: &Flags, flag: &str, allowed: &[&str]) -> Result<String> {
    let value = values.str(flag);
    if value.is_empty() || allowed.contains(&value) {
        return Ok(value.to_owned());
    }
    Err(Error::other(format!("--{flag} must be {}", allowed.join(" or "))))
}

impl AmazonEc2 {
    pub fn new(context: Context) -> Self {
        Self { context, record: Mutex::default() }
    }

    fn record(&self) -> Record {
        self.record.lock().clone()
    }

    fn api(&self) -> Result<Api> {
        let record = self.record();
        if record.access_key.is_empty() || record.secret_key.is_empty() {
            return Err(no_credentials());
        }
        let credentials = Credentials {
            access_key: record.access_key.expose().to_owned(),
            secret_key: record.secret_key.clone(),
            session_token: record.session_token.clone(),
        };
        let mut context = self.context.clone();
        if record.retry_count > 0 {
            context.pace.attempts = u32::try_from(record.retry_count + 1).unwrap_or(u32::MAX).min(20);
        }
        Api::new(&context, &record.url(), &record.region, credentials)
    }

    fn learn_secrets(&self, record: &Record) {
        for secret in [&record.access_key, &record.secret_key, &record.session_token] {
            self.context.log.redactor().learn(secret.expose());
        }
    }

    fn take(&self, values: &Flags) -> Result<()> {
        let text = |name: &str| values.str(&format!("amazonec2-{name}")).to_owned();
        let yes = |name: &str| values.bool(&format!("amazonec2-{name}"));
        let number = |name: &str| values.int(&format!("amazonec2-{name}"));
        let list = |name: &str| values.list(&format!("amazonec2-{name}")).to_vec();
        let mut record = self.record.lock();
        let old = record.clone();
        *record = Record {
            access_key: Secret::new(text("access-key")),
            secret_key: Secret::new(text("secret-key")),
            session_token: Secret::new(text("session-token")),
            region: text("region"),
            ami: text("ami"),
            existing_key: !text("keypair-name").is_empty(),
            key_name: text("keypair-name"),
            instance_type: text("instance-type"),
            security_group_names: list("security-group"),
            security_group_read_only: yes("security-group-readonly"),
            open_ports: list("open-port"),
            tags: text("tags"),
            device_name: text("device-name"),
            root_size: number("root-size"),
            volume_type: text("volume-type"),
            iam_instance_profile: text("iam-instance-profile"),
            vpc_id: text("vpc-id"),
            subnet_id: text("subnet-id"),
            zone: text("zone"),
            request_spot_instance: yes("request-spot-instance"),
            spot_price: text("spot-price"),
            block_duration_minutes: number("block-duration-minutes"),
            private_ip_only: yes("private-address-only"),
            use_private_ip: yes("use-private-address"),
            use_ebs_optimized_instance: yes("use-ebs-optimized-instance"),
            monitoring: yes("monitoring"),
            ssh_private_key_path: text("ssh-keypath"),
            retry_count: number("retries"),
            endpoint: text("endpoint"),
            disable_ssl: yes("insecure-transport"),
            user_data_file: text("userdata"),
            encrypt_ebs_volume: yes("encrypt-ebs-volume"),
            kms_key_id: text("kms-key"),
            http_endpoint: one_of(values, "amazonec2-http-endpoint", &["enabled", "disabled"])?,
            http_tokens: one_of(values, "amazonec2-http-tokens", &["optional", "required"])?,
            http_protocol_ipv6: one_of(values, "amazonec2-http-protocol-ipv6", &["enabled", "disabled"])?,
            enable_primary_ipv6: yes("enable-primary-ipv6"),
            ipv6_address_count: number("ipv6-address-count"),
            ipv6_address_only: yes("ipv6-address-only"),
            ..old
        };
        self.learn_secrets(&record);
        record.base.ssh_user = text("ssh-user");
        record.base.ssh_port = 22;
        if record.remuda_id.is_empty() {
            record.remuda_id = identity();
        }
        if !record.existing_key {
            record.key_name = unique_name(&record.base.machine_name, &record.remuda_id);
        }
        let known = regions::image(&record.region);
        if record.endpoint.is_empty() && known.is_none() {
            return Err(Error::other(format!("there is no EC2 region {}", record.region)));
        }
        if record.ami.is_empty() {
            record.ami = known.unwrap_or_default().to_owned();
        }
        check(&record)
    }
}

fn check(record: &Record) -> Result<()> {
    if record.access_key.is_empty() || record.secret_key.is_empty() {
        return Err(no_credentials());
    }
    if record.disable_ssl && record.endpoint.is_empty() {
        return Err(Error::other("using --amazonec2-insecure-transport also requires --amazonec2-endpoint"));
    }
    if record.existing_key && record.ssh_private_key_path.is_empty() {
        return Err(Error::other("using --amazonec2-keypair-name also requires --amazonec2-ssh-keypath"));
    }
    if record.ipv6_address_only && record.ipv6_address_count < 1 {
        let text =
            "--amazonec2-ipv6-address-count must be greater than zero with --amazonec2-ipv6-address-only";
        return Err(Error::other(text));
    }
    Ok(())
}

impl Driver for AmazonEc2 {
    kit::by_record!(flags::flags; access_key, secret_key, session_token);

    fn renew(&self, values: Flags) -> Pending<'_, ()> {
        Box::pin(async move {
            let (key, secret) =
                (values.secret("amazonec2-access-key"), values.secret("amazonec2-secret-key"));
            if !key.is_empty() && !secret.is_empty() {
                let mut record = self.record.lock();
                // A session belongs to its keys.
                record.session_token = values.secret("amazonec2-session-token");
                (record.access_key, record.secret_key) = (key, secret);
                self.learn_secrets(&record);
            }
            Ok(())
        })
    }

    fn pre_create_check(&self) -> Pending<'_, ()> {
        Box::pin(async {
            let api = self.api()?;
            self.resolve(&api).await?;
            self.image(&api).await.map(drop)
        })
    }

    fn state(&self) -> Pending<'_, State> {
        Box::pin(async {
            let instance = self.instance(&self.api()?).await?;
            Ok(match instance.get("instanceState/name") {
                "pending" => State::Starting,
                "running" => State::Running,
                "stopping" | "shutting-down" => State::Stopping,
                "stopped" => State::Stopped,
                "terminated" => {
                    let name = self.record.lock().base.machine_name.clone();
                    return Err(Error::not_found(format!("machine {name} not found")));
                }
                _ => State::Error,
            })
        })
    }

    fn ssh(&self) -> Pending<'_, Ssh> {
        Box::pin(async {
            let facts = self.config().await?.ssh();
            Ok(Ssh { host: self.record.lock().host().to_owned(), ..facts })
        })
    }

    fn start(&self) -> Pending<'_, ()> {
        Box::pin(self.power("StartInstances", false))
    }

    fn stop(&self) -> Pending<'_, ()> {
        Box::pin(self.power("StopInstances", false))
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(self.power("RebootInstances", false))
    }

    fn kill(&self) -> Pending<'_, ()> {
        Box::pin(self.power("StopInstances", true))
    }

    fn places(&self) -> Vec<String> {
        vec![format!("{NAME}-region")]
    }

    fn inventory(&self) -> Pending<'_, Vec<Owned>> {
        Box::pin(self.list_ours())
    }
}

impl AmazonEc2 {
    async fn power(&self, action: &str, force: bool) -> Result<()> {
        let api = self.api()?;
        let id = self.instance(&api).await?.get("instanceId").to_owned();
        let mut params = Params::default().with("InstanceId.1", id);
        if force {
            params.push("Force", "true");
        }
        api.act(action, &params).await?;
        Ok(())
    }
}
