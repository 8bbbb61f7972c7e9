//! Making and removing an instance.

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_s3::xml::Node;
use tokio::time::Instant;

use super::{
    AmazonEc2, Record,
    api::{Api, ApiError, Params},
    groups,
};
use crate::{
    driver::Owned,
    error::{Class, Error, Result},
    keys,
};

/// The tag every instance carries; its value is the record's identity.
const TAG: &str = remuda_names::machines::tag::MACHINE;
/// States of instances that still exist.
const ALIVE: &[&str] = &["pending", "running", "stopping", "stopped", "shutting-down"];

impl AmazonEc2 {
    /// Fills in what the flags left open: VPC, subnet, root device.
    pub(super) async fn resolve(&self, api: &Api) -> Result<()> {
        let record = self.record();
        record.base.check_name()?;
        if record.vpc_id.is_empty() && record.subnet_id.is_empty() {
            let params = Params::default().filter("is-default", &["true"]);
            let vpcs = api.list("DescribeVpcs", &params, "vpcSet").await?;
            let vpc = vpcs.first().map(|vpc| vpc.get("vpcId").to_owned());
            self.record.lock().vpc_id = vpc.ok_or_else(|| {
                Error::other(
                    "the account has no default VPC: give --amazonec2-vpc-id or --amazonec2-subnet-id",
                )
            })?;
        }
        let record = self.record();
        if record.subnet_id.is_empty() {
            let zone = record.full_zone();
            let params =
                Params::default().filter("availability-zone", &[&zone]).filter("vpc-id", &[&record.vpc_id]);
            let subnets = api.list("DescribeSubnets", &params, "subnetSet").await?;
            let default = subnets.iter().find(|subnet| subnet.get("defaultForAz") == "true");
            let subnet = default.or(subnets.first());
            let subnet = subnet.ok_or_else(|| Error::other(format!("there is no subnet in zone {zone}")))?;
            self.record.lock().subnet_id = subnet.get("subnetId").to_owned();
        } else {
            let params = Params::default().filter("subnet-id", &[&record.subnet_id]);
            let subnets = api.list("DescribeSubnets", &params, "subnetSet").await?;
            let subnet = subnets
                .first()
                .ok_or_else(|| Error::other(format!("there is no subnet {}", record.subnet_id)))?;
            let vpc = subnet.get("vpcId");
            if !record.vpc_id.is_empty() && vpc != record.vpc_id {
                let (subnet, vpc) = (&record.subnet_id, &record.vpc_id);
                return Err(Error::other(format!("subnet {subnet} does not belong to VPC {vpc}")));
            }
            self.record.lock().vpc_id = vpc.to_owned();
        }
        Ok(())
    }

    /// The image's volumes, as `(device, is root)`; learns the root device's name.
    pub(super) async fn image(&self, api: &Api) -> Result<Vec<String>> {
        let record = self.record();
        let params = Params::default().with("ImageId.1", record.ami.as_str());
        let images = api.list("DescribeImages", &params, "imagesSet").await?;
        let Some(image) = images.first() else {
            let (ami, region) = (&record.ami, &record.region);
            return Err(Error::new(Class::Image, format!("AMI {ami} not found on region {region}")));
        };
        if record.device_name.is_empty() {
            self.record.lock().device_name = image.get("rootDeviceName").to_owned();
        }
        let volumes = image.items("blockDeviceMapping").filter(|device| device.child("ebs").is_some());
        Ok(volumes.map(|device| device.get("deviceName").to_owned()).collect())
    }

    pub(super) async fn make(&self) -> Result<()> {
        if self.record().remuda_id.is_empty() {
            return Err(Error::other("the machine has not been configured"));
        }
        let api = self.api()?;
        self.resolve(&api).await?;
        let volumes = self.image(&api).await?;
        let record = self.record();
        let user_data = match record.user_data_file.as_str() {
            "" => String::new(),
            path => {
                let read = tokio::fs::read(path).await;
                let bytes = read.map_err(|error| {
                    Error::other(format!("read --amazonec2-userdata file {path}: {error}"))
                })?;
                BASE64_STANDARD.encode(bytes)
            }
        };
        self.ensure_key(&api, &record).await?;
        let instance = match self.find(&api, &record).await?.into_iter().next() {
            Some(instance) => instance,
            None => self.run(&api, &volumes, &user_data).await?,
        };
        self.record.lock().instance_id = instance.get("instanceId").to_owned();
        self.wait_until_up(&api).await
    }

    async fn ensure_key(&self, api: &Api, record: &Record) -> Result<()> {
        let path = record.base.key_path();
        self.record.lock().base.ssh_key_path = path.clone();
        if !record.ssh_private_key_path.is_empty() {
            keys::copy(&record.ssh_private_key_path, &path).await?;
        }
        if record.existing_key {
            return Ok(());
        }
        let public = if record.ssh_private_key_path.is_empty() {
            keys::ensure(&path, &record.base.machine_name).await?
        } else {
            let file = format!("{}.pub", record.ssh_private_key_path);
            std::fs::read_to_string(&file)
                .map_err(|error| Error::other(format!("read public key {file}: {error}")))?
        };
        let params = Params::default()
            .with("KeyName", record.key_name.as_str())
            .with("PublicKeyMaterial", BASE64_STANDARD.encode(public.trim()));
        match api.act("ImportKeyPair", &params).await {
            Ok(_) => Ok(()),
            // The name is this machine's alone, so an earlier try was heard after all.
            Err(error) if error.code == "InvalidKeyPair.Duplicate" => Ok(()),
            Err(error) => Err(error.error),
        }
    }

    /// Starts the instance. The token makes repeating harmless: EC2 gives the same instance again.
    async fn run(&self, api: &Api, volumes: &[String], user_data: &str) -> Result<Node> {
        let mut tries = 0;
        loop {
            let record = self.record();
            let groups = groups::ensure(api, &record).await?;
            self.record.lock().security_group_ids.clone_from(&groups);
            self.context.log.info("Launching instance...");
            let params = run_parameters(&record, &groups, volumes, user_data);
            let failure = match api.list("RunInstances", &params, "instancesSet").await {
                Ok(instances) => match instances.into_iter().next() {
                    Some(instance) => return Ok(instance),
                    None => Error::network("RunInstances gave no instance").into(),
                },
                Err(error) => error,
            };
            tries += 1;
            // The last machine of a group may have taken it along meanwhile.
            if failure.code != "InvalidGroup.NotFound" || tries >= self.context.pace.attempts {
                return Err(failure.error);
            }
            tokio::time::sleep(self.context.pace.settle).await;
        }
    }

    /// The instances made for this record that still exist.
    pub(super) async fn find(&self, api: &Api, record: &Record) -> Result<Vec<Node>, ApiError> {
        let mut found = Vec::new();
        if !record.remuda_id.is_empty() {
            let params = Params::default()
                .filter("client-token", &[&record.remuda_id])
                .filter("instance-state-name", ALIVE);
            found.extend(instances(api.list("DescribeInstances", &params, "reservationSet").await?));
        }
        Ok(found)
    }

    /// Every instance that carries our tag in this region.
    pub(super) async fn list_ours(&self) -> Result<Vec<Owned>> {
        let params = Params::default().filter("tag-key", &[TAG]).filter("instance-state-name", ALIVE);
        let found = instances(self.api()?.list("DescribeInstances", &params, "reservationSet").await?);
        let tag = |instance: &Node, key: &str| {
            let held = instance.items("tagSet").find(|tag| tag.get("key") == key);
            held.map(|tag| tag.get("value").to_owned()).unwrap_or_default()
        };
        let owned = found.map(|instance| Owned {
            kind: "instance".to_owned(),
            id: instance.get("instanceId").to_owned(),
            name: tag(&instance, "Name"),
            identity: tag(&instance, TAG),
        });
        Ok(owned.collect())
    }

    /// The instance of the record, whatever its state.
    pub(super) async fn instance(&self, api: &Api) -> Result<Node> {
        let record = self.record();
        let lost = || Error::not_found(format!("machine {} not found", record.base.machine_name));
        if record.instance_id.is_empty() {
            return self.find(api, &record).await?.into_iter().next().ok_or_else(lost);
        }
        let params = Params::default().with("InstanceId.1", record.instance_id.as_str());
        match api.list("DescribeInstances", &params, "reservationSet").await {
            Ok(reservations) => instances(reservations).next().ok_or_else(lost),
            Err(error) if error.code.starts_with("InvalidInstanceID") => Err(lost()),
            Err(error) => Err(error.error),
        }
    }

    async fn wait_until_up(&self, api: &Api) -> Result<()> {
        self.context.log.info("Waiting for the instance to run...");
        let deadline = Instant::now() + self.context.pace.patience;
        loop {
            let running = match self.instance(api).await {
                Ok(instance) => {
                    let state = instance.get("instanceState/name");
                    if matches!(state, "shutting-down" | "terminated") {
                        let reason = instance.get("stateReason/message");
                        return Err(Error::from_text(format!("the instance ended at once: {reason}")));
                    }
                    self.record.lock().learn(&instance) && state == "running"
                }
                // A new instance is not shown everywhere at once.
                Err(error) if error.is_not_found() => false,
                Err(error) => return Err(error),
            };
            if running {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::timeout("the instance did not come up"));
            }
            tokio::time::sleep(self.context.pace.poll).await;
        }
    }

    pub(super) async fn clean(&self) -> Result<()> {
        let record = self.record();
        if record.remuda_id.is_empty() && record.instance_id.is_empty() && record.key_name.is_empty() {
            // Never configured, so nothing was made; and there are no credentials to ask with.
            return Ok(());
        }
        let api = self.api()?;
        let mut found = self.find(&api, &record).await?;
        if found.is_empty() && record.instance_id.is_empty() && !record.remuda_id.is_empty() {
            // Nobody knows whether an instance is still on its way into the listing.
            tokio::time::sleep(self.context.pace.settle).await;
            found = self.find(&api, &record).await?;
        }
        let mut ids: Vec<String> = found.iter().map(|node| node.get("instanceId").to_owned()).collect();
        if !record.instance_id.is_empty() && !ids.contains(&record.instance_id) {
            ids.push(record.instance_id.clone());
        }
        for id in &ids {
            self.context.log.info(format!("Terminating instance {id}..."));
            let params = Params::default().with("InstanceId.1", id.as_str());
            match api.act("TerminateInstances", &params).await {
                Ok(_) => self.wait_until_gone(&api, id).await?,
                Err(error) if error.code.starts_with("InvalidInstanceID") => {}
                Err(error) => return Err(error.error),
            }
        }
        if !record.existing_key && !record.key_name.is_empty() {
            let params = Params::default().with("KeyName", record.key_name.as_str());
            match api.act("DeleteKeyPair", &params).await {
                Ok(_) => {}
                Err(error) if error.code == "InvalidKeyPair.NotFound" => {}
                Err(error) => return Err(error.error),
            }
        }
        groups::remove(&api, &record).await
    }

    /// Its security group cannot go before the instance has.
    async fn wait_until_gone(&self, api: &Api, id: &str) -> Result<()> {
        let deadline = Instant::now() + self.context.pace.patience;
        let params = Params::default().with("InstanceId.1", id);
        loop {
            match api.list("DescribeInstances", &params, "reservationSet").await {
                Ok(reservations) => {
                    if instances(reservations).all(|node| node.get("instanceState/name") == "terminated") {
                        return Ok(());
                    }
                }
                Err(error) if error.code.starts_with("InvalidInstanceID") => return Ok(()),
                Err(error) => return Err(error.error),
            }
            if Instant::now() >= deadline {
                return Err(Error::timeout(format!("instance {id} does not end")));
            }
            tokio::time::sleep(self.context.pace.poll).await;
        }
    }
}

fn instances(reservations: Vec<Node>) -> impl Iterator<Item = Node> {
    reservations.into_iter().flat_map(|mut reservation| {
        let set = reservation.children.iter_mut().find(|child| child.name == "instancesSet");
        set.map(|set| std::mem::take(&mut set.children)).unwrap_or_default()
    })
}

fn run_parameters(record: &Record, groups: &[String], volumes: &[String], user_data: &str) -> Params {
    let flag = |yes: bool| if yes { "true" } else { "false" };
    let mut params = Params::default()
        .with("ImageId", record.ami.as_str())
        .with("MinCount", "1")
        .with("MaxCount", "1")
        .with("ClientToken", record.remuda_id.as_str())
        .with("KeyName", record.key_name.as_str())
        .with("InstanceType", record.instance_type.as_str())
        .with("Monitoring.Enabled", flag(record.monitoring))
        .with("EbsOptimized", flag(record.use_ebs_optimized_instance))
        .with("NetworkInterface.1.DeviceIndex", "0")
        .with("NetworkInterface.1.SubnetId", record.subnet_id.as_str())
        .with(
            "NetworkInterface.1.AssociatePublicIpAddress",
            flag(!record.private_ip_only && !record.ipv6_address_only),
        );
    if !record.zone.is_empty() {
        params.push("Placement.AvailabilityZone", record.full_zone());
    }
    if record.ipv6_address_count > 0 {
        params.push("NetworkInterface.1.Ipv6AddressCount", record.ipv6_address_count.to_string());
        params.push("NetworkInterface.1.PrimaryIpv6", flag(record.enable_primary_ipv6));
    }
    for (index, group) in groups.iter().enumerate() {
        params.push(format!("NetworkInterface.1.SecurityGroupId.{}", index + 1), group.as_str());
    }
    params.push_some("IamInstanceProfile.Name", &record.iam_instance_profile);
    params.push_some("UserData", user_data);
    params.push_some("MetadataOptions.HttpEndpoint", &record.http_endpoint);
    params.push_some("MetadataOptions.HttpTokens", &record.http_tokens);
    params.push_some("MetadataOptions.HttpProtocolIpv6", &record.http_protocol_ipv6);
    for (index, device) in volumes.iter().enumerate() {
        let prefix = format!("BlockDeviceMapping.{}", index + 1);
        params.push(format!("{prefix}.DeviceName"), device.as_str());
        if *device == record.device_name {
            params.push(format!("{prefix}.Ebs.VolumeSize"), record.root_size.to_string());
            params.push(format!("{prefix}.Ebs.VolumeType"), record.volume_type.as_str());
        }
        // Volumes must not outlive their machine.
        params.push(format!("{prefix}.Ebs.DeleteOnTermination"), "true");
        if record.encrypt_ebs_volume {
            params.push(format!("{prefix}.Ebs.Encrypted"), "true");
            params.push_some(&format!("{prefix}.Ebs.KmsKeyId"), &record.kms_key_id);
        }
    }
    if record.request_spot_instance {
        params.push("InstanceMarketOptions.MarketType", "spot");
        params.push("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time");
        params.push_some("InstanceMarketOptions.SpotOptions.MaxPrice", &record.spot_price);
        if record.block_duration_minutes > 0 {
            let minutes = record.block_duration_minutes.to_string();
            params.push("InstanceMarketOptions.SpotOptions.BlockDurationMinutes", minutes);
        }
    }
    let mut tags = record.tag_pairs();
    tags.retain(|(key, _)| key != "Name" && key != TAG);
    tags.push(("Name".into(), record.base.machine_name.clone()));
    tags.push((TAG.into(), record.remuda_id.clone()));
    for (index, resource) in ["instance", "volume", "network-interface"].into_iter().enumerate() {
        params.tags(index + 1, resource, &tags);
    }
    params
}
