//! The objects of addresses of Services, and of the networks they are taken from.

use std::net::{IpAddr, Ipv4Addr};

use remuda_auth::request_info::Verb;
use remuda_objects::{meta, validate::addresses::network};
use serde_json::{Value, json};

use crate::{
    addresses::{IP_ADDRESSES, MANAGED_BY, MANAGER, SERVICE_CIDRS},
    crd::set_condition,
    options::DeleteOptions,
    server::Inner,
    status::ApiResult,
};

const GROUP: &str = "networking.k8s.io";
/// Held by a network while addresses of it are in use.
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

impl Inner {
    /// Makes the object of an address that a Service has, and removes that of one it has no more.
    pub(super) async fn publish_address(&self, address: IpAddr, service: &str) -> ApiResult<()> {
        let Some((namespace, name)) =
            service.strip_prefix("/core/services/").and_then(|rest| rest.split_once('/'))
        else {
            return Ok(());
        };
        let text = address.to_string();
        let parent = json!({"resource": "services", "namespace": namespace, "name": name});
        let has = |service: &Value| {
            service["spec"]["clusterIPs"].as_array().is_some_and(|held| held.iter().any(|it| *it == text))
        };
        let wanted = self.read_value(service).await.is_some_and(|service| has(&service));
        let known = self.read_value(&format!("{IP_ADDRESSES}{text}")).await;
        let own = |known: &Value| {
            let of = &known["spec"]["parentRef"];
            ["resource", "namespace", "name"].iter().all(|field| of[*field] == parent[*field])
        };
        match known {
            Some(known) if own(&known) == wanted => Ok(()),
            Some(known) if meta::label(&known, MANAGED_BY) != Some(MANAGER) => Ok(()),
            // Of this Service that has it no more, or of another one that had it before.
            Some(known) => {
                let call = self.own_call(GROUP, "ipaddresses", Verb::Delete, None, Some(&text))?;
                let uid = Some(meta::uid(&known).to_owned());
                let options = DeleteOptions { uid, ..DeleteOptions::default() };
                match self.delete_object(&call, &options).await {
                    Err(error) if error.code == 404 => {}
                    result => result.map(drop)?,
                }
                if wanted { self.make_address(&text, address, parent).await } else { Ok(()) }
            }
            None if wanted => self.make_address(&text, address, parent).await,
            None => Ok(()),
        }
    }

    async fn make_address(&self, name: &str, address: IpAddr, parent: Value) -> ApiResult<()> {
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let labels = json!({"ipaddress.kubernetes.io/ip-family": family, MANAGED_BY: MANAGER});
        let object = json!({"metadata": {"name": name, "labels": labels}, "spec": {"parentRef": parent}});
        self.ensure(GROUP, "ipaddresses", object).await.map(drop)
    }

    /// Says of a network that it is in use, and lets it go when nothing of it is.
    pub(super) async fn settle_network(&self, name: &str) -> ApiResult<()> {
        let Some(object) = self.read_value(&format!("{SERVICE_CIDRS}{name}")).await else { return Ok(()) };
        let going = meta::is_deleting(&object);
        let held = going && self.is_network_used(name, &object).await?;
        let (status, reason, message) = if held {
            (
                "False",
                "Terminating",
                "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
            )
        } else {
            ("True", "", "Kubernetes Service CIDR is ready")
        };
        let has_finalizer = meta::finalizers(&object).any(|known| known == FINALIZER);
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.clone().find(|condition| condition["type"] == "Ready");
        let told = ready.is_some_and(|ready| ready["status"] == status);
        let hold = !going || held;
        if told && has_finalizer == hold || (going && !held && !has_finalizer) {
            return Ok(());
        }
        let call = self.own_call(GROUP, "servicecidrs", Verb::Update, None, Some(name))?.through("status");
        let now = self.now_text();
        let changed = self.change(&call, |network| {
            let mut status_of = network["status"].take();
            set_condition(&mut status_of, "Ready", status, reason, message, &now);
            network["status"] = status_of;
            let mut finalizers: Vec<String> = meta::finalizers(network).map(str::to_owned).collect();
            finalizers.retain(|known| known != FINALIZER);
            if hold {
                finalizers.push(FINALIZER.to_owned());
            }
            network["metadata"]["finalizers"] = json!(finalizers);
            Ok(())
        });
        match changed.await {
            Err(error) if error.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }

    /// Whether there is an address of it that is of no other network that stays.
    async fn is_network_used(&self, name: &str, object: &Value) -> ApiResult<bool> {
        let networks = |object: &Value| -> Vec<(Ipv4Addr, u32)> {
            let cidrs = object["spec"]["cidrs"].as_array().into_iter().flatten();
            cidrs.filter_map(|cidr| network(cidr.as_str()?)).collect()
        };
        let holds = |networks: &[(Ipv4Addr, u32)], address: Ipv4Addr| {
            networks.iter().any(|network| crate::addresses::is_in(address, *network))
        };
        let others: Vec<(Ipv4Addr, u32)> = self
            .all_of(SERVICE_CIDRS.to_owned())
            .await?
            .iter()
            .filter(|other| meta::name(other) != name && !meta::is_deleting(other))
            .flat_map(networks)
            .collect();
        let own = networks(object);
        let used = self.all_of(IP_ADDRESSES.to_owned()).await?.iter().any(|address| {
            meta::name(address).parse().is_ok_and(|address| holds(&own, address) && !holds(&others, address))
        });
        Ok(used)
    }
}
