//! Addresses and node ports of Services: which are taken, and free ones for those that ask.
//!
//! Two writes at once must not get the same: what is given or asked for is kept for the writer for a while, until
//! the write is seen or is not going to be.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::Ipv4Addr,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rand::RngExt;
use remuda_objects::{meta, validate::addresses::network};
use remuda_schema::FieldError;
use remuda_store::{Change, Record};
use serde_json::{Value, json};

use crate::{
    call::Call,
    follow::News,
    server::{Inner, StartError},
    status::{ApiError, ApiResult},
};

const PREFIX: &str = "/core/services/";
pub(crate) const SERVICE_CIDRS: &str = "/networking.k8s.io/servicecidrs/";
pub(crate) const IP_ADDRESSES: &str = "/networking.k8s.io/ipaddresses/";
/// Says which addresses were made for Services by the server.
pub(crate) const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
pub(crate) const MANAGER: &str = "ipallocator.k8s.io";
/// The network there always is.
pub(crate) const NETWORK: &str = "10.96.0.0/12";
const PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;
/// How long something is kept for a write that nobody has seen.
const KEPT: Duration = Duration::from_secs(30);

/// What only one Service can have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Thing {
    Address(String),
    Port(i64),
}

/// Who has what: the key of the Service.
#[derive(Default)]
struct Book {
    taken: HashMap<Thing, Arc<str>>,
    kept: HashMap<Thing, (String, Instant)>,
}

/// An address and how many of its bits all addresses of the network share.
type Network = (Ipv4Addr, u32);

#[derive(Default)]
pub(crate) struct Addresses {
    book: Mutex<Book>,
    /// By the name of their object.
    networks: Mutex<BTreeMap<String, Vec<Network>>>,
}

pub(crate) async fn start(inner: &Arc<Inner>) -> Result<(), StartError> {
    let server = inner.clone();
    inner.follow(PREFIX, move |news| server.addresses.tell(news)).await?;
    let server = inner.clone();
    inner.follow(IP_ADDRESSES, move |news| server.addresses.tell_addresses(news)).await?;
    let server = inner.clone();
    inner.follow(SERVICE_CIDRS, move |news| server.addresses.tell_networks(news)).await
}

/// The networks an object stands for; one that is going gives no addresses.
fn networks_of(record: &Record) -> Vec<Network> {
    let object: Value = serde_json::from_slice(&record.value).unwrap_or_default();
    let cidrs = object["spec"]["cidrs"].as_array().into_iter().flatten();
    let cidrs = cidrs.filter(|_| !meta::is_deleting(&object));
    cidrs.filter_map(|cidr| network(cidr.as_str()?)).collect()
}

/// An address taken for something else than a Service: that of a Service is known from the Service.
fn foreign(record: &Record) -> Option<Thing> {
    let object: Value = serde_json::from_slice(&record.value).ok()?;
    let own = meta::label(&object, MANAGED_BY) == Some(MANAGER);
    (!own).then(|| Thing::Address(meta::name(&object).to_owned()))
}

pub(crate) fn is_in(address: Ipv4Addr, (start, bits): Network) -> bool {
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    u32::from(address) & mask == u32::from(start)
}

/// An address of a network for a Service that asks for none. The first ones are left to those that do.
fn random_address((start, bits): Network) -> Ipv4Addr {
    let size = 1_u32.checked_shl(32 - bits).unwrap_or(u32::MAX);
    let first = (size / 16).clamp(1, 256);
    Ipv4Addr::from(u32::from(start) | rand::rng().random_range(first..(size - 1).max(first + 1)))
}

/// What a stored Service has.
fn things(record: &Record) -> HashSet<Thing> {
    serde_json::from_slice(&record.value).map(|service| things_of(&service)).unwrap_or_default()
}

fn things_of(service: &Value) -> HashSet<Thing> {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    let ports = ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_i64);
    let mut things: HashSet<Thing> = ports.filter(|port| *port != 0).map(Thing::Port).collect();
    if spec["type"] != "ExternalName"
        && let Some(address) = spec["clusterIP"].as_str().filter(|it| !matches!(*it, "" | "None"))
    {
        things.insert(Thing::Address(address.to_owned()));
    }
    things
}

impl Book {
    fn is_free(&self, thing: &Thing, key: &str) -> bool {
        let kept =
            self.kept.get(thing).is_some_and(|(holder, until)| holder != key && *until > Instant::now());
        !kept && self.taken.get(thing).is_none_or(|holder| **holder == *key)
    }

    fn keep(&mut self, thing: Thing, key: &str) {
        let now = Instant::now();
        self.kept.retain(|_, (_, until)| *until > now);
        self.kept.insert(thing, (key.to_owned(), now + KEPT));
    }

    fn take(&mut self, thing: Thing, key: &Arc<str>) {
        self.kept.remove(&thing);
        self.taken.insert(thing, key.clone());
    }

    /// A free one at random: two servers on one store rarely choose the same.
    fn choose(&mut self, key: &str, random: impl Fn() -> Thing) -> Option<Thing> {
        let chosen = (0..1000)
            .map(|_| random())
            .find(|thing| !self.taken.contains_key(thing) && self.is_free(thing, key))?;
        self.keep(chosen.clone(), key);
        Some(chosen)
    }
}

impl Addresses {
    fn tell(&self, news: News<'_>) {
        let mut book = self.book.lock();
        match news {
            News::Reset(records) => {
                book.taken.retain(|_, holder| !holder.starts_with(PREFIX));
                for record in records {
                    things(record).into_iter().for_each(|thing| book.take(thing, &record.key));
                }
            }
            News::Changed(event) => {
                let key = &event.record.key;
                for thing in event.previous.as_deref().map(things).unwrap_or_default() {
                    if book.taken.get(&thing).is_some_and(|holder| holder == key) {
                        book.taken.remove(&thing);
                    }
                }
                if event.change != Change::Deleted {
                    things(&event.record).into_iter().for_each(|thing| book.take(thing, key));
                }
            }
        }
    }

    fn tell_addresses(&self, news: News<'_>) {
        let mut book = self.book.lock();
        match news {
            News::Reset(records) => {
                book.taken.retain(|_, holder| !holder.starts_with(IP_ADDRESSES));
                for record in records {
                    foreign(record).into_iter().for_each(|thing| book.take(thing, &record.key));
                }
            }
            News::Changed(event) => {
                let key = &event.record.key;
                let named = Thing::Address(key.trim_start_matches(IP_ADDRESSES).to_owned());
                if book.taken.get(&named).is_some_and(|holder| holder == key) {
                    book.taken.remove(&named);
                }
                if event.change != Change::Deleted
                    && let Some(thing) = foreign(&event.record)
                    && !book.taken.contains_key(&thing)
                {
                    book.take(thing, key);
                }
            }
        }
    }

    fn tell_networks(&self, news: News<'_>) {
        let mut networks = self.networks.lock();
        match news {
            News::Reset(records) => {
                *networks =
                    records.iter().map(|record| (record.key.to_string(), networks_of(record))).collect();
            }
            News::Changed(event) if event.change == Change::Deleted => {
                networks.remove(&*event.record.key);
            }
            News::Changed(event) => {
                networks.insert(event.record.key.to_string(), networks_of(&event.record));
            }
        }
    }

    /// All networks, the one that is always there first.
    fn networks(&self) -> Vec<Network> {
        let mut all: Vec<Network> = network(NETWORK).into_iter().collect();
        for known in self.networks.lock().values().flatten() {
            if !all.contains(known) {
                all.push(*known);
            }
        }
        all
    }

    fn choose_address(&self, key: &str) -> ApiResult<String> {
        let networks = self.networks();
        let random = || {
            let network = networks[rand::rng().random_range(0..networks.len())];
            Thing::Address(random_address(network).to_string())
        };
        match self.book.lock().choose(key, random) {
            Some(Thing::Address(address)) => Ok(address),
            _ => Err(ApiError::internal("failed to allocate a serviceIP: range is full")),
        }
    }

    fn choose_port(&self, key: &str) -> ApiResult<i64> {
        match self.book.lock().choose(key, || Thing::Port(rand::rng().random_range(PORTS))) {
            Some(Thing::Port(port)) => Ok(port),
            _ => Err(ApiError::internal("failed to allocate a nodePort: range is full")),
        }
    }

    /// Keeps something for a Service, unless another one has it.
    fn claim(&self, thing: Thing, key: &str) -> bool {
        let mut book = self.book.lock();
        let free = book.is_free(&thing, key);
        if free {
            book.keep(thing, key);
        }
        free
    }
}

impl Inner {
    /// Gives a Service that needs them an address and ports of nodes, or checks those it asks for. What it has
    /// already is its own.
    pub(crate) fn give_address(
        &self,
        call: &Call,
        service: &mut Value,
        live: Option<&Value>,
    ) -> ApiResult<()> {
        let refuse = |service: &Value, error: FieldError| {
            Err(ApiError::invalid(call.kind_named(meta::name(service)), &[error]))
        };
        // Without a name yet it cannot be told from others.
        let name = match meta::name(service) {
            "" => uuid::Uuid::new_v4().to_string(),
            name => name.to_owned(),
        };
        let key = call.resource.key(call.namespace(), &name);
        let own = live.map(things_of).unwrap_or_default();
        if remuda_objects::defaults::service_needs_cluster_ip(service) {
            let address = self.addresses.choose_address(&key)?;
            remuda_objects::defaults::service_set_cluster_ip(service, &address);
        } else if service["spec"]["type"] != "ExternalName" && service["spec"].is_object() {
            remuda_objects::defaults::service_set_cluster_ip(service, "");
            let address = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
            let thing = Thing::Address(address.clone());
            // What is no IPv4 address at all is for validation to say.
            if address.parse::<Ipv4Addr>().is_ok() && !own.contains(&thing) {
                let invalid =
                    |detail: String| FieldError::invalid("spec.clusterIPs", &json!([address]), &detail);
                let networks = self.addresses.networks();
                let parsed = address.parse::<Ipv4Addr>();
                if !parsed.is_ok_and(|address| networks.iter().any(|network| is_in(address, *network))) {
                    let ranges: Vec<String> =
                        networks.iter().map(|(start, bits)| format!("{start}/{bits}")).collect();
                    let detail = format!(
                        "failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. The range of valid IPs is {}",
                        ranges.join(",")
                    );
                    return refuse(service, invalid(detail));
                }
                if !self.addresses.claim(thing, &key) {
                    let detail = format!("failed to allocate IP {address}: provided IP is already allocated");
                    return refuse(service, invalid(detail));
                }
            }
        }
        self.give_ports(call, service, &key, &own)
    }

    fn give_ports(&self, call: &Call, service: &mut Value, key: &str, own: &HashSet<Thing>) -> ApiResult<()> {
        let name = meta::name(service).to_owned();
        let spec = &mut service["spec"];
        let balancer = spec["type"] == "LoadBalancer";
        if !balancer && spec["type"] != "NodePort" {
            return Ok(());
        }
        let give = !balancer || spec["allocateLoadBalancerNodePorts"] != false;
        // The same port with another protocol is reached by the same number.
        let mut same: HashMap<i64, i64> = HashMap::new();
        let ports: &mut [Value] = match &mut spec["ports"] {
            Value::Array(ports) => ports,
            _ => &mut [],
        };
        for (index, port) in ports.iter_mut().enumerate().filter(|(_, port)| port.is_object()) {
            let outer = port["port"].as_i64().unwrap_or_default();
            let number = match port["nodePort"].as_i64().unwrap_or_default() {
                0 if !give => continue,
                0 => match same.get(&outer) {
                    Some(number) => *number,
                    None => self.addresses.choose_port(key)?,
                },
                number => {
                    self.claim_port(number, key, own, &format!("spec.ports[{index}].nodePort"))
                        .map_err(|error| ApiError::invalid(call.kind_named(&name), &[error]))?;
                    number
                }
            };
            same.insert(outer, number);
            port["nodePort"] = number.into();
        }
        if balancer && spec["externalTrafficPolicy"] == "Local" {
            match spec["healthCheckNodePort"].as_i64().unwrap_or_default() {
                0 => spec["healthCheckNodePort"] = self.addresses.choose_port(key)?.into(),
                number => self
                    .claim_port(number, key, own, "spec.healthCheckNodePort")
                    .map_err(|error| ApiError::invalid(call.kind_named(&name), &[error]))?,
            }
        }
        Ok(())
    }

    fn claim_port(
        &self,
        number: i64,
        key: &str,
        own: &HashSet<Thing>,
        field: &str,
    ) -> Result<(), FieldError> {
        if own.contains(&Thing::Port(number)) {
            return Ok(());
        }
        let invalid = |detail: &str| Err(FieldError::invalid(field, &json!(number), detail));
        if !PORTS.contains(&number) {
            return invalid(&format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                PORTS.start(),
                PORTS.end()
            ));
        }
        if !self.addresses.claim(Thing::Port(number), key) {
            return invalid("provided port is already allocated");
        }
        Ok(())
    }
}
