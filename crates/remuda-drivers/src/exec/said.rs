//! What scripts say, line by line.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::{
    driver::Owned,
    error::{Error, Result},
    flags::{Flag, Kind},
};

/// A line of a script.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Said {
    pub flags: Option<Vec<SaidFlag>>,
    pub machines: Option<Vec<SaidMachine>>,
    pub state: Option<Map<String, Json>>,
    pub addresses: Option<SaidAddresses>,
    pub ssh: Option<SaidSsh>,
    pub status: Option<String>,
    pub log: Option<String>,
    pub error: Option<SaidError>,
}

#[derive(Deserialize)]
pub(super) struct SaidFlag {
    pub name: String,
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub default: Json,
    #[serde(default)]
    pub usage: String,
    #[serde(default)]
    pub env: String,
    /// Whether it says where machines are.
    #[serde(default)]
    pub place: bool,
}

/// A machine the provider has.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SaidMachine {
    pub id: String,
    pub name: String,
    pub server: String,
    pub kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SaidAddresses {
    pub ip: Option<String>,
    pub private: Option<String>,
    pub ipv6: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SaidSsh {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub user: Option<String>,
    pub key_path: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SaidError {
    pub class: String,
    pub message: String,
}

pub(super) fn flag(driver: &str, said: SaidFlag) -> Result<Flag> {
    let wrong = |what: &str| Error::other(format!("flag {:?} of driver {driver} {what}", said.name));
    let plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    if !said.name.starts_with(&format!("{driver}-")) || !said.name.bytes().all(plain) || said.name.len() > 100
    {
        return Err(wrong(&format!("is not {driver}- and lower-case words")));
    }
    let kind = match (said.kind.as_str(), &said.default) {
        ("string" | "", Json::Null) => Kind::String(String::new()),
        ("string" | "", Json::String(text)) => Kind::String(text.clone()),
        ("int", Json::Null) => Kind::Int(0),
        ("int", Json::Number(number)) => {
            Kind::Int(number.as_i64().ok_or_else(|| wrong("has a bad default"))?)
        }
        ("bool", Json::Null | Json::Bool(false)) => Kind::Bool,
        ("list", Json::Null) => Kind::List(Vec::new()),
        ("list", Json::Array(items)) => {
            Kind::List(items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect())
        }
        ("string" | "int" | "bool" | "list", _) => return Err(wrong("has a default of another type")),
        _ => return Err(wrong("has an unknown type")),
    };
    Ok(Flag { kind, name: said.name, usage: said.usage, env: said.env })
}

/// A machine of a list. One without an id was not made for anybody here.
pub(super) fn owned(said: SaidMachine) -> Option<Owned> {
    let short = |text: String| text.chars().take(200).collect::<String>();
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { short(text) };
    let identity = Some(short(said.id)).filter(|id| !id.is_empty())?;
    Some(Owned {
        kind: or(said.kind, "machine"),
        id: or(said.server, &identity),
        name: short(said.name),
        identity,
    })
}
