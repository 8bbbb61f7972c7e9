//! IP addresses and networks.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{Cx, Entry};
use crate::value::{EvalError, Result, Value};

const CHECK: &[&str] = &[".(ip) -> bool"];

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "ip", native: ip, overloads: &["(string) -> ip", ".(cidr) -> ip"] },
    Entry { name: "isIP", native: is_ip, overloads: &["(string) -> bool"] },
    Entry { name: "ip.isCanonical", native: is_canonical, overloads: &["(string) -> bool"] },
    Entry { name: "family", native: family, overloads: &[".(ip) -> int"] },
    Entry {
        name: "isUnspecified",
        native: |_, args| check(args, |ip| ip.is_unspecified()),
        overloads: CHECK,
    },
    Entry { name: "isLoopback", native: |_, args| check(args, |ip| ip.is_loopback()), overloads: CHECK },
    Entry {
        name: "isLinkLocalMulticast",
        native: |_, args| check(args, link_local_multicast),
        overloads: CHECK,
    },
    Entry { name: "isLinkLocalUnicast", native: |_, args| check(args, link_local_unicast), overloads: CHECK },
    Entry { name: "isGlobalUnicast", native: |_, args| check(args, global_unicast), overloads: CHECK },
    Entry { name: "cidr", native: cidr, overloads: &["(string) -> cidr"] },
    Entry { name: "isCIDR", native: is_cidr, overloads: &["(string) -> bool"] },
    Entry {
        name: "containsIP",
        native: contains_ip,
        overloads: &[".(cidr, string) -> bool", ".(cidr, ip) -> bool"],
    },
    Entry {
        name: "containsCIDR",
        native: contains_cidr,
        overloads: &[".(cidr, string) -> bool", ".(cidr, cidr) -> bool"],
    },
    Entry { name: "prefixLength", native: prefix_length, overloads: &[".(cidr) -> int"] },
    Entry { name: "masked", native: masked, overloads: &[".(cidr) -> cidr"] },
];

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    pub prefix: u8,
}

impl Cidr {
    pub(crate) fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
            }
        };
        Self { address, ..self }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self { address, ..self }.masked().address == self.masked().address
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

fn parse_ip(text: &str) -> Result<IpAddr> {
    if let Some((address, _)) = text.split_once('%')
        && address.parse::<Ipv6Addr>().is_ok()
    {
        return Err(EvalError::failed(format!("IP address {text:?} with zone value is not allowed")));
    }
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            Err(EvalError::failed(format!("IPv4-mapped IPv6 address {text:?} is not allowed")))
        }
        Ok(ip) => Ok(ip),
        Err(_) => Err(EvalError::failed(format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP"
        ))),
    }
}

fn parse_cidr(text: &str) -> Result<Cidr> {
    let fail = |problem: &str| {
        EvalError::failed(format!("network address parse error during conversion from string: {problem}"))
    };
    let (address, prefix) = text.rsplit_once('/').ok_or_else(|| fail("no '/'"))?;
    let digits = !prefix.is_empty() && prefix.len() <= 3 && prefix.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || prefix.len() > 1 && prefix.starts_with('0') {
        return Err(fail(&format!("bad bits after slash: {prefix:?}")));
    }
    let address = parse_ip(address).map_err(|error| fail(&error.to_string()))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    match prefix.parse::<u8>() {
        Ok(prefix) if prefix <= most => Ok(Cidr { address, prefix }),
        _ => Err(fail("prefix length out of range")),
    }
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn global_unicast(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !broadcast && !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !link_local_unicast(ip)
}

fn ip<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    if let Value::Cidr(cidr) = &args[0] {
        return Ok(Value::Ip(cidr.address));
    }
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    parse_ip(text).map(Value::Ip)
}

fn is_ip<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    Ok(Value::Bool(parse_ip(text).is_ok()))
}

fn is_canonical<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    Ok(Value::Bool(parse_ip(text)?.to_string() == text))
}

fn family<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Ip(ip) => Ok(Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        _ => Err(EvalError::no_overload()),
    }
}

fn check<'a>(args: &[Value<'a>], check: fn(IpAddr) -> bool) -> Result<Value<'a>> {
    match &args[0] {
        Value::Ip(ip) => Ok(Value::Bool(check(*ip))),
        _ => Err(EvalError::no_overload()),
    }
}

fn cidr<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    parse_cidr(text).map(Value::Cidr)
}

fn is_cidr<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    Ok(Value::Bool(parse_cidr(text).is_ok()))
}

fn cidr_arg(value: &Value<'_>) -> Result<Cidr> {
    match value {
        Value::Cidr(cidr) => Ok(*cidr),
        _ => Err(EvalError::no_overload()),
    }
}

fn contains_ip<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let cidr = cidr_arg(&args[0])?;
    let address = match &args[1] {
        Value::Ip(ip) => *ip,
        other => {
            let text = other.str_arg()?;
            cx.budget.bytes(text.len())?;
            parse_ip(text)?
        }
    };
    Ok(Value::Bool(cidr.contains(address)))
}

fn contains_cidr<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let cidr = cidr_arg(&args[0])?;
    let inner = match &args[1] {
        Value::Cidr(inner) => *inner,
        other => {
            let text = other.str_arg()?;
            cx.budget.bytes(text.len())?;
            parse_cidr(text)?
        }
    };
    Ok(Value::Bool(cidr.prefix <= inner.prefix && cidr.contains(inner.address)))
}

fn prefix_length<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(Value::Int(i64::from(cidr_arg(&args[0])?.prefix)))
}

fn masked<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(Value::Cidr(cidr_arg(&args[0])?.masked()))
}
