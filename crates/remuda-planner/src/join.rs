//! Where nodes join: finding out each node's URL, and choosing one for each worker.

use std::{collections::BTreeSet, net::Ipv6Addr};

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_distro::Distro;
use remuda_names::rancher::annotation;
use remuda_plan::{
    key,
    output::{PeriodicResults, unpack},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    desired::Unrenderable,
    entry::Entry,
    input::{AddressKind, ControlPlane},
    output::Write,
};

/// Periodic instructions of an etcd-only init node.
pub(crate) const CAPTURE_ADDRESS: &str = "capture-address";
pub(crate) const ETCD_NAME: &str = "etcd-name";

/// Annotations that have to be written before anything is planned.
pub(crate) fn maintain(entries: &[Entry<'_>], distro: Distro) -> Vec<Write> {
    let mut writes = Vec::new();
    for entry in entries {
        let Some(secret) = entry.secret.filter(|_| entry.node.is_some()) else { continue };
        if entry.has_annotation(annotation::JOIN_URL_AUTOSET_DISABLED) {
            continue;
        }
        let mut set = |key: &'static str, value: String| {
            let (machine, secret) = (entry.name().to_owned(), secret.name.clone());
            writes.push(Write::Annotate { machine, secret, key, value });
        };
        let address = if entry.init && entry.roles.only_etcd() {
            reported_address(entry)
        } else {
            machine_address(entry).map(str::to_owned)
        };
        if let Some(url) = address.map(|address| join_url(&address, distro.supervisor_port()))
            && url != entry.join_url()
        {
            set(annotation::JOIN_URL, url);
        }
        if !entry.init
            && entry.joined_to().is_empty()
            && let Some(server) = delivered_server(entry)
        {
            set(annotation::JOINED_TO, server);
        }
    }
    writes
}

fn join_url(address: &str, port: u16) -> String {
    match address.parse::<Ipv6Addr>() {
        Ok(_) => format!("https://[{address}]:{port}"),
        Err(_) => format!("https://{address}:{port}"),
    }
}

/// The last internal address, else the first external one.
fn machine_address<'a>(entry: &Entry<'a>) -> Option<&'a str> {
    entry.machine.kubelet_version.as_ref()?;
    let addresses = &entry.machine.addresses;
    let internal = addresses.iter().rfind(|address| address.kind == AddressKind::InternalIp);
    let external = || addresses.iter().find(|address| address.kind == AddressKind::ExternalIp);
    let found = internal.or_else(external)?;
    Some(found.address.as_str()).filter(|address| !address.is_empty())
}

/// What a periodic instruction printed when it last ran, if that went well.
pub(crate) fn printed(results: &PeriodicResults, name: &str) -> Option<String> {
    let result = results.get(name).filter(|result| result.exit_code == 0)?;
    let succeeded = !result.last_successful_run_time.is_empty();
    succeeded.then(|| String::from_utf8_lossy(&result.stdout.0).into_owned())
}

/// The same of a machine.
pub(crate) fn periodic(entry: &Entry<'_>, name: &str) -> Option<String> {
    let results: PeriodicResults = unpack(entry.secret?.data.get(key::APPLIED_PERIODIC_OUTPUT)?).ok()?;
    printed(&results, name)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DbInfo {
    members: Vec<DbMember>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DbMember {
    name: String,
    #[serde(rename = "clientURLs")]
    client_urls: Vec<String>,
}

/// The address under which the node's own etcd member is known.
fn reported_address(entry: &Entry<'_>) -> Option<String> {
    let results: PeriodicResults = unpack(entry.secret?.data.get(key::APPLIED_PERIODIC_OUTPUT)?).ok()?;
    let info = printed(&results, CAPTURE_ADDRESS)?;
    let name = printed(&results, ETCD_NAME)?;
    let line = info.lines().find(|line| line.starts_with('{'))?;
    let info: DbInfo = serde_json::from_str(line).ok()?;
    let member = info.members.into_iter().find(|member| member.name == name.trim())?;
    host(member.client_urls.first()?).map(str::to_owned)
}

/// Host of a URL, without port and brackets.
fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?.0,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    Some(host).filter(|host| !host.is_empty())
}

/// The server in the configuration a node was given.
fn delivered_server(entry: &Entry<'_>) -> Option<String> {
    let files = &entry.node.as_ref()?.plan()?.files;
    let paths = [Distro::K3s.config_path(), Distro::Rke2.config_path()];
    let file = files.iter().find(|file| paths.contains(&file.path.as_str()))?;
    let config: Value =
        serde_json::from_slice(&BASE64_STANDARD.decode(file.content.as_bytes()).ok()?).ok()?;
    config.get("server")?.as_str().filter(|server| !server.is_empty()).map(str::to_owned)
}

/// Servers workers can join, made once per pass.
pub(crate) struct Servers<'a> {
    /// Control planes with a URL that stay, by name of their machine.
    candidates: Vec<&'a str>,
    /// URLs a worker may stay on.
    valid: BTreeSet<&'a str>,
}

impl<'a> Servers<'a> {
    pub(crate) fn new(entries: &[Entry<'a>]) -> Servers<'a> {
        let staying =
            || entries.iter().filter(|entry| !entry.machine.deleting && !entry.join_url().is_empty());
        let candidates = staying().filter(|entry| entry.roles.control_plane).map(Entry::join_url).collect();
        let valid =
            staying().filter(|entry| entry.roles.control_plane || entry.init).map(Entry::join_url).collect();
        Servers { candidates, valid }
    }

    /// The server of a worker: the one it has if that is still there, else one picked by the machine's UID,
    /// which spreads agents evenly and always the same way.
    pub(crate) fn of(
        &self,
        entry: &Entry<'a>,
        control_plane: &ControlPlane,
    ) -> Result<&'a str, Unrenderable> {
        let joined_to = entry.joined_to();
        if entry.node.is_some() && self.valid.contains(joined_to) {
            return Ok(joined_to);
        }
        let sum = u64::from(crc32fast::hash(entry.machine.uid.as_bytes()).min(u32::MAX - 1));
        let at = sum * self.candidates.len() as u64 / u64::from(u32::MAX);
        let none = || Unrenderable::NoJoinUrl {
            namespace: entry.machine.namespace.clone(),
            machine: entry.machine.name.clone(),
            cluster: format!("{}/{}", control_plane.namespace, control_plane.name),
        };
        usize::try_from(at).ok().and_then(|at| self.candidates.get(at)).copied().ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use remuda_names::rancher::label;
    use remuda_plan::output::{Blob, PeriodicResult, pack};

    use super::*;
    use crate::input::{Address, Machine, PlanSecret};

    fn machine(name: &str) -> Machine {
        let mut secret = PlanSecret { name: format!("{name}-machine-plan"), ..PlanSecret::default() };
        secret.data.insert("plan".to_owned(), b"{}".to_vec());
        Machine { name: name.to_owned(), plan_secret: Some(secret), ..Machine::default() }
    }

    fn written(machine: &Machine) -> Vec<String> {
        maintain(&[Entry::new(machine)], Distro::Rke2).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_is_joined_at_its_internal_address() {
        let mut machine = machine("a");
        let address = |kind, address: &str| Address { kind, address: address.to_owned() };
        machine.addresses = vec![
            address(AddressKind::ExternalIp, "1.2.3.4"),
            address(AddressKind::InternalIp, "10.0.0.1"),
            address(AddressKind::InternalIp, "fd00::1"),
        ];
        assert_eq!(written(&machine), Vec::<String>::new(), "not before its node is known");
        machine.kubelet_version = Some("v1.35.1".to_owned());
        assert_eq!(written(&machine), ["a: rke.cattle.io/join-url=https://[fd00::1]:9345"]);
        machine.addresses.truncate(1);
        assert_eq!(written(&machine), ["a: rke.cattle.io/join-url=https://1.2.3.4:9345"]);
        let annotations = &mut machine.plan_secret.as_mut().unwrap().annotations;
        annotations.insert(annotation::JOIN_URL_AUTOSET_DISABLED.to_owned(), String::new());
        assert_eq!(written(&machine), Vec::<String>::new());
    }

    #[test]
    fn an_etcd_only_init_node_is_joined_where_its_member_is() {
        let mut machine = machine("a");
        let info = "noise\n{\"members\":[{\"name\":\"x\",\"clientURLs\":[\"https://10.0.0.9:2379\"]},\
                    {\"name\":\"a-1\",\"clientURLs\":[\"https://[fd00::2]:2379\"]}]}\n";
        let result = |name: &str, text: &str| {
            let result = PeriodicResult {
                name: name.to_owned(),
                stdout: Blob(text.into()),
                last_successful_run_time: "Mon Aug  3 09:05:07 UTC 2026".to_owned(),
                ..PeriodicResult::default()
            };
            (name.to_owned(), result)
        };
        let results = PeriodicResults::from([result(CAPTURE_ADDRESS, info), result(ETCD_NAME, "a-1\n")]);
        let secret = machine.plan_secret.as_mut().unwrap();
        secret.data.insert(key::APPLIED_PERIODIC_OUTPUT.to_owned(), pack(results));
        for key in [label::ETCD_ROLE, label::INIT_NODE] {
            secret.labels.insert(key.to_owned(), "true".to_owned());
        }
        assert_eq!(written(&machine), ["a: rke.cattle.io/join-url=https://[fd00::2]:9345"]);
        machine
            .plan_secret
            .as_mut()
            .unwrap()
            .data
            .insert(key::APPLIED_PERIODIC_OUTPUT.to_owned(), b"junk".to_vec());
        assert_eq!(written(&machine), Vec::<String>::new());
    }

    #[test]
    fn a_forgotten_server_is_read_from_the_delivered_configuration() {
        let mut machine = machine("a");
        let config = BASE64_STANDARD.encode("{\"server\":\"https://10.0.0.1:9345\"}");
        let plan = serde_json::json!({"files": [{"path": Distro::Rke2.config_path(), "content": config}]});
        let secret = machine.plan_secret.as_mut().unwrap();
        secret.data.insert("plan".to_owned(), plan.to_string().into_bytes());
        assert_eq!(written(&machine), ["a: rke.cattle.io/joined-to=https://10.0.0.1:9345"]);
    }

    #[test]
    fn workers_spread_over_control_planes_and_stay_where_they_are() {
        let mut machines: Vec<Machine> = ["a", "b", "c"].into_iter().map(machine).collect();
        for (at, machine) in machines.iter_mut().enumerate() {
            let secret = machine.plan_secret.as_mut().unwrap();
            secret.labels.insert(label::CONTROL_PLANE_ROLE.to_owned(), "true".to_owned());
            secret.annotations.insert(annotation::JOIN_URL.to_owned(), format!("https://10.0.0.{at}:9345"));
        }
        let entries: Vec<Entry<'_>> = machines.iter().map(Entry::new).collect();
        let servers = Servers::new(&entries);
        let mut seen = BTreeMap::new();
        for at in 0..300 {
            let mut worker = machine("w");
            worker.uid = format!("uid-{at}");
            let entry = Entry::new(&worker);
            *seen.entry(servers.of(&entry, &ControlPlane::default()).unwrap().to_owned()).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 3);
        assert!(seen.values().all(|count| *count > 60), "{seen:?}");
        let mut worker = machine("w");
        let secret = worker.plan_secret.as_mut().unwrap();
        secret.annotations.insert(annotation::JOINED_TO.to_owned(), "https://10.0.0.2:9345".to_owned());
        assert_eq!(
            servers.of(&Entry::new(&worker), &ControlPlane::default()).unwrap(),
            "https://10.0.0.2:9345"
        );
        assert!(Servers::new(&[]).of(&Entry::new(&worker), &ControlPlane::default()).is_err());
    }

    #[test]
    fn the_largest_checksum_still_has_a_server() {
        let sum = u64::from(u32::MAX - 1);
        assert_eq!(sum * 3 / u64::from(u32::MAX), 2);
    }
}
