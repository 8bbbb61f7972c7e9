//! Security groups: found by name, made if missing, opened where needed, removed with the last machine.

use remuda_s3::xml::Node;

use super::{
    Record,
    api::{Api, ApiError, Params},
};
use crate::error::{Error, Result};

/// Marks groups that we made and so may remove.
pub(super) const OWNED: &str = remuda_names::machines::tag::OWNED;
/// The group Rancher's machines share, and the tag that marks it as such.
const SHARED: &str = "rancher-nodes";

/// One thing a group lets in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Permission {
    protocol: String,
    from: u16,
    to: u16,
    source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    V4,
    V6,
    /// Members of the same group.
    Group,
}

/// What the shared group needs: from anywhere, and between members.
const OPEN: &[(&str, u16, u16)] = &[
    ("tcp", 22, 22),
    ("tcp", 2376, 2376),
    ("tcp", 8443, 8443),
    ("tcp", 6443, 6443),
    ("tcp", 80, 80),
    ("tcp", 443, 443),
    ("tcp", 30000, 32767),
    ("udp", 30000, 32767),
];
const AMONG: &[(&str, u16, u16)] = &[
    ("tcp", 9345, 9345),
    ("tcp", 2379, 2380),
    ("tcp", 5473, 5473),
    ("tcp", 10250, 10252),
    ("tcp", 10256, 10256),
    ("tcp", 9796, 9796),
    ("tcp", 179, 179),
    ("udp", 4789, 4789),
    ("udp", 8472, 8472),
];

/// Finds or makes every group of the record and gives their ids.
pub(super) async fn ensure(api: &Api, record: &Record) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for name in &record.security_group_names {
        let group = match find(api, name, &record.vpc_id, false).await? {
            Some(group) => group,
            None if record.security_group_read_only => {
                return Err(Error::other(format!(
                    "security group {name} does not exist and may not be made"
                )));
            }
            None => make(api, name, &record.vpc_id).await?,
        };
        let id = group.get("groupId").to_owned();
        if !record.security_group_read_only {
            open(api, name, &id, &group, &record.open_ports).await?;
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Removes the groups that we made and nobody uses any more.
pub(super) async fn remove(api: &Api, record: &Record) -> Result<()> {
    if record.security_group_read_only {
        return Ok(());
    }
    for name in &record.security_group_names {
        let Some(group) = find(api, name, &record.vpc_id, true).await? else { continue };
        let params = Params::default().with("GroupId", group.get("groupId"));
        match api.act("DeleteSecurityGroup", &params).await {
            Ok(_) => {}
            // Other machines are in it; the last one takes it along.
            Err(error) if error.code == "DependencyViolation" || error.code == "InvalidGroup.InUse" => {}
            Err(error) if error.code == "InvalidGroup.NotFound" => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn find(api: &Api, name: &str, vpc: &str, owned: bool) -> Result<Option<Node>, ApiError> {
    let mut params = Params::default().filter("group-name", &[name]);
    if !vpc.is_empty() {
        params = params.filter("vpc-id", &[vpc]);
    }
    if owned {
        params = params.filter("tag-key", &[OWNED]);
    }
    Ok(api.list("DescribeSecurityGroups", &params, "securityGroupInfo").await?.into_iter().next())
}

async fn make(api: &Api, name: &str, vpc: &str) -> Result<Node> {
    let mut params = Params::default().with("GroupName", name).with("GroupDescription", "Machines of Remuda");
    params.push_some("VpcId", vpc);
    let tags = [(OWNED.to_owned(), "true".to_owned()), (SHARED.to_owned(), "remuda".to_owned())];
    params.tags(1, "security-group", &tags);
    match api.act("CreateSecurityGroup", &params).await {
        Ok(_) => {}
        // Another machine was faster, or an earlier try of ours was heard after all.
        Err(error) if error.code == "InvalidGroup.Duplicate" => {}
        Err(error) => return Err(error.into()),
    }
    find(api, name, vpc, false)
        .await?
        .ok_or_else(|| Error::network(format!("security group {name} was made but is not shown yet")))
}

async fn open(api: &Api, name: &str, id: &str, group: &Node, extra: &[String]) -> Result<()> {
    let marked = group.items("tagSet").any(|tag| tag.get("key") == SHARED);
    let wanted = wanted(name == SHARED && marked, extra)?;
    let missing: Vec<&Permission> = wanted.iter().filter(|wanted| !allows(group, wanted)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut params = Params::default().with("GroupId", id);
    for (index, permission) in missing.iter().enumerate() {
        let prefix = format!("IpPermissions.{}", index + 1);
        params.push(format!("{prefix}.IpProtocol"), permission.protocol.as_str());
        params.push(format!("{prefix}.FromPort"), permission.from.to_string());
        params.push(format!("{prefix}.ToPort"), permission.to.to_string());
        match permission.source {
            Source::V4 => params.push(format!("{prefix}.IpRanges.1.CidrIp"), "0.0.0.0/0"),
            Source::V6 => params.push(format!("{prefix}.Ipv6Ranges.1.CidrIpv6"), "::/0"),
            Source::Group => params.push(format!("{prefix}.Groups.1.GroupId"), id),
        }
    }
    match api.act("AuthorizeSecurityGroupIngress", &params).await {
        Ok(_) => Ok(()),
        Err(error) if error.code == "InvalidPermission.Duplicate" => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn wanted(shared: bool, extra: &[String]) -> Result<Vec<Permission>> {
    let permission =
        |protocol: &str, from, to, source| Permission { protocol: protocol.into(), from, to, source };
    let mut all = Vec::new();
    if shared {
        for (protocol, from, to) in OPEN {
            all.push(permission(protocol, *from, *to, Source::V4));
            all.push(permission(protocol, *from, *to, Source::V6));
        }
        for (protocol, from, to) in AMONG {
            all.push(permission(protocol, *from, *to, Source::Group));
        }
    }
    for text in extra {
        let (port, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let port: u16 =
            port.parse().map_err(|_| Error::other(format!("--amazonec2-open-port {text} is no port")))?;
        for source in [Source::V4, Source::V6] {
            let one = permission(protocol, port, port, source);
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    Ok(all)
}

fn allows(group: &Node, wanted: &Permission) -> bool {
    group.items("ipPermissions").any(|held| {
        let source = match wanted.source {
            Source::V4 => "ipRanges",
            Source::V6 => "ipv6Ranges",
            Source::Group => "groups",
        };
        held.get("ipProtocol") == wanted.protocol
            && held.get("fromPort") == wanted.from.to_string()
            && held.items(source).next().is_some()
    })
}
