//! Networks of Services and the addresses taken from them.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

use super::{Errors, IMMUTABLE};
use crate::{
    json::{at, list_at, text_at},
    path::Path,
};

/// Address and length of a network written as Kubernetes wants it: without bits beyond its length.
pub fn network(text: &str) -> Option<(Ipv4Addr, u32)> {
    let (address, length) = text.split_once('/')?;
    let (address, bits): (Ipv4Addr, u32) = (address.parse().ok()?, length.parse().ok()?);
    let plain = bits <= 32 && length == bits.to_string();
    let beyond = u32::from(address).checked_shl(bits).unwrap_or(0);
    (plain && beyond == 0).then_some((address, bits))
}

pub(super) fn service_cidr(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let place = path.child("cidrs");
    let cidrs = list_at(new, &["spec", "cidrs"]);
    if let Some(old) = old
        && old["spec"]["cidrs"] != new["spec"]["cidrs"]
    {
        errors.invalid(place, at(new, &["spec", "cidrs"]), IMMUTABLE);
    }
    match cidrs {
        [] => errors.required(place, "at least one CIDR required"),
        [_] => {}
        [..] => {
            let detail = "may only hold one network: this server gives addresses of one family";
            errors.invalid(place, at(new, &["spec", "cidrs"]), detail);
        }
    }
    for (index, cidr) in cidrs.iter().enumerate() {
        let text = cidr.as_str().unwrap_or_default();
        let is_six =
            text.split_once('/').is_some_and(|(address, _)| matches!(address.parse(), Ok(IpAddr::V6(_))));
        if is_six {
            errors.invalid(place.index(index), cidr, "this server gives Services IPv4 addresses only");
        } else if network(text).is_none_or(|(_, bits)| bits > 28) {
            let detail =
                "must be an IPv4 network of at most 28 bits, without bits beyond them, (e.g. 10.9.8.0/24)";
            errors.invalid(place.index(index), cidr, detail);
        }
    }
}

pub(super) fn ip_address(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let place = path.child("parentRef");
    let parent = at(new, &["spec", "parentRef"]);
    if !parent.is_object() {
        return errors.required(place, "");
    }
    for field in ["resource", "name"] {
        if text_at(parent, &[field]).is_empty() {
            errors.required(place.child(field), "");
        }
    }
    for field in ["name", "namespace", "resource", "group"] {
        let text = text_at(parent, &[field]);
        if text.contains(['/', '%']) || matches!(text, "." | "..") {
            errors.invalid(place.child(field), &parent[field], "must be a part of a path");
        }
    }
    if let Some(old) = old {
        errors.immutable(place, parent, at(old, &["spec", "parentRef"]));
    }
}

/// Name rule: an address as it is written canonically.
pub(super) fn address_name(name: &str, _: bool) -> Vec<String> {
    match name.parse::<IpAddr>() {
        Ok(address) if address.to_string() == name => Vec::new(),
        Ok(address) => vec![format!("must be in canonical form (\"{address}\")")],
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    }
}
