//! A fake of EC2's query API: instances, key pairs, security groups, and the little around them.
//!
//! Signatures are checked by signing again, so a call with a wrong secret, host, body or time is refused.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use parking_lot::Mutex;
use remuda_s3::sign::{Request, authorization, hash};

use super::{Api, Call, Hosts, Reply, pairs};
use crate::{amazonec2::Credentials, secret::Secret};

/// The fake account.
pub struct AmazonEc2 {
    credentials: Credentials,
    region: String,
    state: Mutex<Account>,
    hosts: Option<Arc<dyn Hosts>>,
}

#[derive(Default)]
struct Account {
    next: u64,
    instances: BTreeMap<String, Instance>,
    keys: BTreeMap<String, String>,
    groups: BTreeMap<String, Group>,
    limit: Option<usize>,
}

struct Instance {
    form: BTreeMap<String, String>,
    state: &'static str,
    groups: Vec<String>,
    /// Of the machine behind it, if there is one.
    address: Option<String>,
}

struct Group {
    name: String,
    tags: Vec<String>,
    /// `protocol from to source`.
    rules: Vec<(String, String, String, &'static str)>,
}

impl AmazonEc2 {
    /// An account that accepts only calls signed with this secret.
    pub fn new(access_key: &str, secret_key: &str, region: &str) -> Self {
        let credentials = Credentials {
            access_key: access_key.into(),
            secret_key: Secret::new(secret_key),
            session_token: Secret::default(),
        };
        Self { credentials, region: region.into(), state: Mutex::default(), hosts: None }
    }

    /// The same with real machines behind its instances.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Arc<dyn Hosts>) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Starts the machines of instances that have none yet.
    fn boot(&self, state: &mut Account) -> Result<(), String> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        for (id, instance) in &mut state.instances {
            if instance.address.is_none() && instance.state == "pending" {
                let data = instance.form.get("UserData").map(String::as_str).unwrap_or_default();
                let data = BASE64_STANDARD.decode(data).map_err(|error| error.to_string())?;
                let address = hosts.boot(id, id, &String::from_utf8_lossy(&data))?;
                (instance.address, instance.state) = (Some(address), "running");
            }
        }
        Ok(())
    }

    /// Ends the machines of instances that are going.
    fn end(&self, state: &mut Account) -> Result<(), String> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        for (id, instance) in state.instances.iter_mut().filter(|(_, held)| held.state == "shutting-down") {
            hosts.end(id)?;
            instance.state = "terminated";
        }
        Ok(())
    }

    /// Instances beyond this many are refused.
    pub fn limit(&self, instances: usize) {
        self.state.lock().limit = Some(instances);
    }

    /// Everything that exists, one line each.
    pub fn resources(&self) -> Vec<String> {
        let state = self.state.lock();
        let alive = state.instances.iter().filter(|(_, held)| held.state != "terminated");
        let mut all: Vec<String> = alive.map(|(id, _)| format!("instance {id}")).collect();
        all.extend(state.keys.keys().map(|name| format!("key {name}")));
        all.extend(state.groups.values().map(|group| format!("group {}", group.name)));
        all
    }

    /// The forms instances were started with.
    pub fn launches(&self) -> Vec<BTreeMap<String, String>> {
        self.state.lock().instances.values().map(|instance| instance.form.clone()).collect()
    }

    /// Puts somebody else's things into the account, which must survive.
    pub fn occupy(&self) {
        let mut state = self.state.lock();
        state.keys.insert("other".into(), "x".into());
        let group = Group { name: "other".into(), tags: vec![], rules: vec![] };
        state.groups.insert("sg-other".into(), group);
        let instance = Instance {
            form: BTreeMap::new(),
            state: "running",
            groups: vec!["sg-other".into()],
            address: None,
        };
        state.instances.insert("i-other".into(), instance);
    }

    fn is_signed(&self, call: &Call) -> bool {
        let header = |name: &str| call.headers.get(name).map(String::as_str).unwrap_or_default();
        let time = header("x-amz-date");
        let fresh = jiff::fmt::strtime::parse("%Y%m%dT%H%M%SZ", time)
            .and_then(|parsed| parsed.to_datetime())
            .and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC))
            .is_ok_and(|time| time.timestamp().duration_since(jiff::Timestamp::now()).abs().as_secs() < 300);
        let sent = header("authorization");
        let names = sent.split_once("SignedHeaders=").and_then(|(_, rest)| rest.split_once(','));
        let names: Vec<&str> = names.map(|(names, _)| names.split(';').collect()).unwrap_or_default();
        let headers: Vec<(&str, &str)> = names.iter().map(|name| (*name, header(name))).collect();
        // Without the host and the time, a signature could be used elsewhere or later.
        let bound = ["host", "x-amz-date"].iter().all(|needed| names.contains(needed));
        let request = Request {
            method: &call.method,
            path: "/",
            query: &call.query,
            headers: &headers,
            payload: &hash(&call.body),
            region: &self.region,
            service: "ec2",
            time,
        };
        fresh && bound && sent == authorization(self.credentials.signer(), request)
    }
}

fn ok(action: &str, inner: &str) -> Reply {
    Reply::new(
        200,
        format!("<?xml version=\"1.0\"?>\n<{action}Response xmlns=\"x\">{inner}</{action}Response>"),
    )
}

/// The filters of a describe call.
fn filters(form: &BTreeMap<String, String>) -> Vec<(String, Vec<String>)> {
    (1..20)
        .filter_map(|number| {
            let name = form.get(&format!("Filter.{number}.Name"))?.clone();
            let values =
                (1..20).filter_map(|value| form.get(&format!("Filter.{number}.Value.{value}")).cloned());
            Some((name, values.collect()))
        })
        .collect()
}

/// One item per page, to have the pages read.
fn paged(form: &BTreeMap<String, String>, name: &str, items: &[String]) -> String {
    let at: usize = form.get("NextToken").and_then(|token| token.parse().ok()).unwrap_or(0);
    let item = items.get(at).map(|item| format!("<item>{item}</item>")).unwrap_or_default();
    let next =
        if at + 1 < items.len() { format!("<nextToken>{}</nextToken>", at + 1) } else { String::new() };
    format!("<{name}>{item}</{name}>{next}")
}

fn tags(instance: &Instance) -> Vec<(String, String)> {
    let field = |number: u32, name: &str| {
        instance.form.get(&format!("TagSpecification.1.Tag.{number}.{name}")).cloned()
    };
    (1..20).map_while(|number| Some((field(number, "Key")?, field(number, "Value")?))).collect()
}

fn show(id: &str, instance: &mut Instance) -> String {
    let shown = instance.state;
    instance.state = match shown {
        "pending" => "running",
        "shutting-down" => "terminated",
        other => other,
    };
    let tags: String = tags(instance)
        .iter()
        .map(|(key, value)| format!("<item><key>{key}</key><value>{value}</value></item>"))
        .collect();
    let number: u32 = id.bytes().map(u32::from).sum::<u32>() % 250;
    let public = match instance.form.get("NetworkInterface.1.AssociatePublicIpAddress").map(String::as_str) {
        Some("true") if shown != "pending" => {
            let address = instance.address.clone().unwrap_or_else(|| format!("198.51.100.{number}"));
            format!("<ipAddress>{address}</ipAddress>")
        }
        _ => String::new(),
    };
    format!(
        "<instanceId>{id}</instanceId><instanceState><name>{shown}</name></instanceState>\
         <privateIpAddress>10.0.0.{number}</privateIpAddress>{public}<tagSet>{tags}</tagSet>"
    )
}

impl Account {
    fn id(&mut self, prefix: &str) -> String {
        self.next += 1;
        format!("{prefix}-{:08x}", self.next)
    }

    fn run(&mut self, form: BTreeMap<String, String>) -> Result<String, &'static str> {
        let token = form.get("ClientToken").cloned().unwrap_or_default();
        let same = |held: &Instance| !token.is_empty() && held.form.get("ClientToken") == Some(&token);
        if let Some((id, instance)) = self.instances.iter_mut().find(|(_, held)| same(held)) {
            return Ok(format!("<instancesSet><item>{}</item></instancesSet>", show(&id.clone(), instance)));
        }
        let alive = self.instances.values().filter(|held| held.state != "terminated").count();
        if self.limit.is_some_and(|limit| alive >= limit) {
            return Err("InstanceLimitExceeded");
        }
        if !self.keys.contains_key(form.get("KeyName").map_or("", String::as_str)) {
            return Err("InvalidKeyPair.NotFound");
        }
        let groups: Vec<String> = (1..10)
            .filter_map(|number| form.get(&format!("NetworkInterface.1.SecurityGroupId.{number}")).cloned())
            .collect();
        if !groups.iter().all(|group| self.groups.contains_key(group)) {
            return Err("InvalidGroup.NotFound");
        }
        let id = self.id("i");
        let mut instance = Instance { form, state: "pending", groups, address: None };
        let shown = show(&id, &mut instance);
        instance.state = "pending";
        self.instances.insert(id, instance);
        Ok(format!("<instancesSet><item>{shown}</item></instancesSet>"))
    }

    fn describe_instances(&mut self, form: &BTreeMap<String, String>) -> Result<String, &'static str> {
        let asked = form.get("InstanceId.1");
        if asked.is_some_and(|id| !self.instances.contains_key(id)) {
            return Err("InvalidInstanceID.NotFound");
        }
        let filters = filters(form);
        let matches = |id: &str, held: &Instance| {
            asked.is_none_or(|asked| asked == id)
                && filters.iter().all(|(name, values)| match name.as_str() {
                    "client-token" => {
                        held.form.get("ClientToken").is_some_and(|token| values.contains(token))
                    }
                    "tag-key" => tags(held).iter().any(|(key, _)| values.contains(key)),
                    "instance-state-name" => values.iter().any(|value| value == held.state),
                    _ => false,
                })
        };
        let mut items = Vec::new();
        for (id, held) in &mut self.instances {
            if matches(id, held) {
                items.push(format!("<instancesSet><item>{}</item></instancesSet>", show(id, held)));
            }
        }
        Ok(paged(form, "reservationSet", &items))
    }

    fn describe_groups(&self, form: &BTreeMap<String, String>) -> String {
        let filters = filters(form);
        let asked = form.get("GroupId.1");
        let matches = |id: &String, group: &Group| {
            asked.is_none_or(|asked| asked == id)
                && filters.iter().all(|(name, values)| match name.as_str() {
                    "group-name" => values.contains(&group.name),
                    "vpc-id" => values.iter().any(|vpc| vpc == "vpc-1"),
                    "tag-key" => values.iter().any(|tag| group.tags.contains(tag)),
                    _ => false,
                })
        };
        let items: Vec<String> = self
            .groups
            .iter()
            .filter(|(id, group)| matches(id, group))
            .map(|(id, group)| {
                let rules: String = group
                    .rules
                    .iter()
                    .map(|(protocol, from, to, source)| {
                        format!(
                            "<item><ipProtocol>{protocol}</ipProtocol><fromPort>{from}</fromPort>\
                             <toPort>{to}</toPort><{source}><item/></{source}></item>"
                        )
                    })
                    .collect();
                let tags: String =
                    group.tags.iter().map(|tag| format!("<item><key>{tag}</key></item>")).collect();
                format!(
                    "<groupId>{id}</groupId><groupName>{}</groupName><ipPermissions>{rules}</ipPermissions>\
                     <tagSet>{tags}</tagSet>",
                    group.name
                )
            })
            .collect();
        paged(form, "securityGroupInfo", &items)
    }

    fn authorize(&mut self, form: &BTreeMap<String, String>) -> Result<String, &'static str> {
        let id = form.get("GroupId").cloned().unwrap_or_default();
        let group = self.groups.get_mut(&id).ok_or("InvalidGroup.NotFound")?;
        let mut rules = Vec::new();
        for number in 1..100 {
            let field = |name: &str| form.get(&format!("IpPermissions.{number}.{name}")).cloned();
            let Some(protocol) = field("IpProtocol") else { break };
            let source = if field("IpRanges.1.CidrIp").is_some() {
                "ipRanges"
            } else if field("Ipv6Ranges.1.CidrIpv6").is_some() {
                "ipv6Ranges"
            } else {
                "groups"
            };
            let rule = (
                protocol,
                field("FromPort").unwrap_or_default(),
                field("ToPort").unwrap_or_default(),
                source,
            );
            if group.rules.contains(&rule) {
                return Err("InvalidPermission.Duplicate");
            }
            rules.push(rule);
        }
        group.rules.extend(rules);
        Ok(String::new())
    }

    fn delete_group(&mut self, id: &str) -> Result<String, &'static str> {
        if !self.groups.contains_key(id) {
            return Err("InvalidGroup.NotFound");
        }
        let used =
            |held: &Instance| held.state != "terminated" && held.groups.iter().any(|group| group == id);
        if self.instances.values().any(used) {
            return Err("DependencyViolation");
        }
        self.groups.remove(id);
        Ok(String::new())
    }
}

impl Api for AmazonEc2 {
    fn error(&self, status: u16, code: &str) -> Reply {
        let body = format!(
            "<?xml version=\"1.0\"?><Response><Errors><Error><Code>{code}</Code>\
             <Message>{code} happened</Message></Error></Errors><RequestID>r</RequestID></Response>"
        );
        Reply::new(status, body)
    }

    fn handle(&self, call: &Call) -> Reply {
        if !self.is_signed(call) {
            return self.error(401, "AuthFailure");
        }
        let form = pairs(&String::from_utf8_lossy(&call.body));
        let action = form.get("Action").cloned().unwrap_or_default();
        let field = |name: &str| form.get(name).cloned().unwrap_or_default();
        let mut state = self.state.lock();
        let power =
            |state: &mut Account, to: &'static str| match state.instances.get_mut(&field("InstanceId.1")) {
                Some(instance) if instance.state != "terminated" => {
                    instance.state = to;
                    Ok(String::new())
                }
                Some(_) => Ok(String::new()),
                None => Err("InvalidInstanceID.NotFound"),
            };
        let outcome = match action.as_str() {
            "DescribeVpcs" => Ok("<vpcSet><item><vpcId>vpc-1</vpcId></item></vpcSet>".to_owned()),
            "DescribeSubnets" => {
                let item = |id: &str, default: &str| {
                    format!(
                        "<subnetId>{id}</subnetId><vpcId>vpc-1</vpcId><defaultForAz>{default}</defaultForAz>"
                    )
                };
                Ok(paged(&form, "subnetSet", &[item("subnet-1", "false"), item("subnet-2", "true")]))
            }
            "DescribeImages" if field("ImageId.1") == "ami-missing" => Err("InvalidAMIID.NotFound"),
            "DescribeImages" => Ok("<imagesSet><item><rootDeviceName>/dev/sda1</rootDeviceName>\
                 <blockDeviceMapping><item><deviceName>/dev/sda1</deviceName><ebs/></item>\
                 <item><deviceName>/dev/sdb</deviceName></item></blockDeviceMapping></item></imagesSet>"
                .to_owned()),
            "ImportKeyPair" if state.keys.contains_key(&field("KeyName")) => Err("InvalidKeyPair.Duplicate"),
            "ImportKeyPair" => {
                state.keys.insert(field("KeyName"), field("PublicKeyMaterial"));
                Ok(String::new())
            }
            "DeleteKeyPair" => {
                state.keys.remove(&field("KeyName"));
                Ok("<return>true</return>".to_owned())
            }
            "DescribeSecurityGroups" => Ok(state.describe_groups(&form)),
            "CreateSecurityGroup" if state.groups.values().any(|group| group.name == field("GroupName")) => {
                Err("InvalidGroup.Duplicate")
            }
            "CreateSecurityGroup" => {
                let tags =
                    (1..10).filter_map(|tag| form.get(&format!("TagSpecification.1.Tag.{tag}.Key")).cloned());
                let group = Group { name: field("GroupName"), tags: tags.collect(), rules: Vec::new() };
                let id = state.id("sg");
                state.groups.insert(id.clone(), group);
                Ok(format!("<groupId>{id}</groupId>"))
            }
            "CreateTags" => {
                let tag = field("Tag.1.Key");
                if let Some(group) = state.groups.get_mut(&field("ResourceId.1")) {
                    group.tags.push(tag);
                }
                Ok("<return>true</return>".to_owned())
            }
            "AuthorizeSecurityGroupEgress" => Ok("<return>true</return>".to_owned()),
            "AuthorizeSecurityGroupIngress" => state.authorize(&form),
            "DeleteSecurityGroup" => state.delete_group(&field("GroupId")),
            "RunInstances" => state.run(form.clone()),
            "DescribeInstances" => state.describe_instances(&form),
            "TerminateInstances" => power(&mut state, "shutting-down"),
            "StopInstances" => power(&mut state, "stopped"),
            "StartInstances" | "RebootInstances" => power(&mut state, "running"),
            _ => Err("InvalidAction"),
        };
        let machines = match action.as_str() {
            "RunInstances" => self.boot(&mut state),
            "TerminateInstances" => self.end(&mut state),
            _ => Ok(()),
        };
        if let Err(why) = machines {
            return self.error(500, &why);
        }
        match outcome {
            Ok(inner) => ok(&action, &inner),
            Err(code) => self.error(400, code),
        }
    }
}
