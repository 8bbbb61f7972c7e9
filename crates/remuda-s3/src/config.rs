//! Where a bucket is, and who may use it.

use std::{fmt, path::PathBuf, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

use crate::error::{Field, S3Error};

/// How the name of the bucket gets into addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lookup {
    /// As part of the host name at Amazon, as part of the path elsewhere.
    #[default]
    Auto,
    /// `https://<bucket>.<endpoint>/…`
    Dns,
    /// `https://<endpoint>/<bucket>/…`
    Path,
}

impl Lookup {
    /// Reads what `etcd-s3-bucket-lookup-type` says.
    pub fn parse(text: &str) -> Result<Lookup, S3Error> {
        match text {
            "" | "auto" => Ok(Lookup::Auto),
            "dns" => Ok(Lookup::Dns),
            "path" => Ok(Lookup::Path),
            other => Err(setting(Field::Lookup, other, "is not one of auto, dns and path")),
        }
    }
}

/// A store as the user described it. It serialises with its keys: a command hands it to the server it asks.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Host, and port if it is another than 443. Amazon's when empty.
    pub endpoint: String,
    /// `us-east-1` when empty.
    pub region: String,
    pub bucket: String,
    /// Below which all objects are. May be empty.
    pub folder: String,
    pub access_key: String,
    pub secret_key: String,
    pub session_token: String,
    /// The authorities of the store: a file that begins with `/`, PEM, or base64 of it. Those of the system when empty.
    pub endpoint_ca: String,
    /// Any certificate is taken.
    pub skip_verify: bool,
    /// Without TLS.
    pub insecure: bool,
    pub lookup: Lookup,
    /// For a call, whatever it moves.
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            endpoint: String::new(),
            region: String::new(),
            bucket: String::new(),
            folder: String::new(),
            access_key: String::new(),
            secret_key: String::new(),
            session_token: String::new(),
            endpoint_ca: String::new(),
            skip_verify: false,
            insecure: false,
            lookup: Lookup::Auto,
            timeout: Duration::from_secs(300),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("bucket", &self.bucket)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// Where calls go, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// `https://host[:port]`.
    pub(crate) base: String,
    pub(crate) host: String,
    pub(crate) region: String,
    /// Before keys in paths: empty or `/<bucket>`.
    pub(crate) path: String,
    /// Before names in keys: empty or `a/b/`.
    pub(crate) prefix: String,
}

const AMAZON: &str = "s3.amazonaws.com";
const FIRST_REGION: &str = "us-east-1";

fn setting(field: Field, value: &str, reason: &'static str) -> S3Error {
    S3Error::Setting { field, value: value.to_owned(), reason }
}

impl Config {
    /// Reads the arguments of K3s and RKE2, which are named without `etcd-s3-`. Who has no `etcd-s3` has no store.
    pub fn from_arguments(argument: impl Fn(&str) -> Option<String>) -> Result<Config, S3Error> {
        let text = |name: &str| argument(name).unwrap_or_default();
        let yes = |name: &str| matches!(text(name).as_str(), "true" | "t" | "1" | "T" | "TRUE" | "True");
        let timeout = match text("timeout").as_str() {
            "" => Config::default().timeout,
            given => {
                let read = remuda_base::duration::parse(given).filter(|read| !read.is_zero());
                read.ok_or_else(|| setting(Field::Timeout, given, "is not a duration"))?
            }
        };
        Ok(Config {
            endpoint: text("endpoint"),
            region: text("region"),
            bucket: text("bucket"),
            folder: text("folder"),
            access_key: text("access-key"),
            secret_key: text("secret-key"),
            session_token: text("session-token"),
            endpoint_ca: text("endpoint-ca"),
            skip_verify: yes("skip-ssl-verify"),
            insecure: yes("insecure"),
            lookup: Lookup::parse(&text("bucket-lookup-type"))?,
            timeout,
        })
    }

    /// With the text of the authorities in place of their file's name.
    pub fn with_authorities(mut self) -> Result<Config, S3Error> {
        if self.endpoint_ca.starts_with('/') {
            let path = PathBuf::from(&self.endpoint_ca);
            let text = std::fs::read_to_string(&path);
            self.endpoint_ca = text.map_err(|source| S3Error::File { path, source })?;
        }
        Ok(self)
    }

    /// Whether all that is asked for here can be carried out.
    pub(crate) fn place(&self) -> Result<Place, S3Error> {
        let bucket = self.bucket.as_str();
        if !is_bucket(bucket) {
            let reason = "is not the name of a bucket: 3 to 63 lower-case letters, digits, dashes and dots";
            return Err(setting(Field::Bucket, bucket, reason));
        }
        let region = if self.region.is_empty() { FIRST_REGION } else { &self.region };
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(setting(Field::Region, region, "is not the name of a region"));
        }
        let endpoint = match self.endpoint.as_str() {
            "" if region == FIRST_REGION => AMAZON.to_owned(),
            "" => format!("s3.{region}.amazonaws.com"),
            given => endpoint(given)?,
        };
        let amazon = endpoint.ends_with(".amazonaws.com") || endpoint.ends_with(".amazonaws.com.cn");
        let in_host = match self.lookup {
            Lookup::Dns => true,
            Lookup::Path => false,
            // A certificate for all buckets does not cover a name with dots.
            Lookup::Auto => amazon && !bucket.contains('.'),
        };
        let (host, path) = match in_host {
            true => (format!("{bucket}.{endpoint}"), String::new()),
            false => (endpoint, format!("/{bucket}")),
        };
        let scheme = if self.insecure { "http" } else { "https" };
        let base = format!("{scheme}://{host}");
        Ok(Place { base, host, region: region.to_owned(), path, prefix: folder(&self.folder)? })
    }

    /// The authorities in PEM, if there are any.
    pub(crate) fn authorities(&self) -> Result<Option<Vec<u8>>, S3Error> {
        let text = self.endpoint_ca.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = || setting(Field::EndpointCa, "…", "is neither PEM nor PEM in base64");
        let pem = match text.contains("-----BEGIN") {
            true => text.as_bytes().to_vec(),
            false => {
                let packed: String = text.split_whitespace().collect();
                BASE64_STANDARD.decode(packed).map_err(|_| wrong())?
            }
        };
        let is_pem = String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----");
        if is_pem { Ok(Some(pem)) } else { Err(wrong()) }
    }
}

fn is_bucket(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (3..=63).contains(&name.len())
        && name.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'.'))
        && name.bytes().next().is_some_and(plain)
        && name.bytes().last().is_some_and(plain)
        && !name.contains("..")
}

/// Host and port. People also write `https://` before it.
fn endpoint(given: &str) -> Result<String, S3Error> {
    let wrong = |reason| setting(Field::Endpoint, given, reason);
    if given.starts_with("http://") {
        return Err(wrong("is without TLS: write the host alone"));
    }
    let host = given.strip_prefix("https://").unwrap_or(given).trim_end_matches('/');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']');
    if host.is_empty() || !host.bytes().all(plain) {
        return Err(wrong("is not a host, or a host and a port"));
    }
    match reqwest::Url::parse(&format!("https://{host}")) {
        Ok(url) if url.has_host() => Ok(host.to_ascii_lowercase()),
        _ => Err(wrong("is not a host, or a host and a port")),
    }
}

/// A folder as what keys begin with.
fn folder(given: &str) -> Result<String, S3Error> {
    let parts: Vec<&str> = given.split('/').filter(|part| !part.is_empty()).collect();
    let odd = |part: &&str| matches!(*part, "." | "..") || part.chars().any(char::is_control);
    if parts.iter().any(odd) || given.len() > 512 {
        return Err(setting(Field::Folder, given, "is not a folder"));
    }
    Ok(parts.iter().map(|part| format!("{part}/")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: &Config, expected: &str) {
        let found = match config.place() {
            Ok(place) => format!("{}{} {} {}", place.base, place.path, place.region, place.prefix),
            Err(error) => format!("{}: {error}", error.field()),
        };
        assert_eq!(found.trim(), expected);
    }

    fn of(endpoint: &str, bucket: &str) -> Config {
        Config { endpoint: endpoint.to_owned(), bucket: bucket.to_owned(), ..Config::default() }
    }

    #[test]
    fn buckets_are_found_where_stores_keep_them() {
        check(&of("", "backups"), "https://backups.s3.amazonaws.com us-east-1");
        let far = Config { region: "eu-west-1".to_owned(), ..of("", "backups") };
        check(&far, "https://backups.s3.eu-west-1.amazonaws.com eu-west-1");
        check(&of("", "my.backups"), "https://s3.amazonaws.com/my.backups us-east-1");
        let deep = Config { folder: "/clusters//demo/".to_owned(), ..of("minio.corp:9000", "backups") };
        check(&deep, "https://minio.corp:9000/backups us-east-1 clusters/demo/");
        let dns = Config { lookup: Lookup::Dns, ..of("https://s3.corp/", "backups") };
        check(&dns, "https://backups.s3.corp us-east-1");
        let path = Config { lookup: Lookup::Path, ..of("", "backups") };
        check(&path, "https://s3.amazonaws.com/backups us-east-1");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_field() {
        for (config, field) in [
            (of("s3.corp", "Backups"), Field::Bucket),
            (of("s3.corp", "a"), Field::Bucket),
            (of("s3.corp", "../x"), Field::Bucket),
            (of("s3.corp/path", "backups"), Field::Endpoint),
            (of("user@s3.corp", "backups"), Field::Endpoint),
            (of("http://s3.corp", "backups"), Field::Endpoint),
            (of("s3.corp:99999", "backups"), Field::Endpoint),
            (Config { region: "eu/west".to_owned(), ..of("s3.corp", "backups") }, Field::Region),
            (Config { folder: "a/../b".to_owned(), ..of("s3.corp", "backups") }, Field::Folder),
        ] {
            assert_eq!(config.place().unwrap_err().field(), field, "{config:?}");
        }
        let odd = Config { endpoint_ca: "nonsense".to_owned(), ..of("s3.corp", "backups") };
        assert_eq!(odd.authorities().unwrap_err().field(), Field::EndpointCa);
    }

    #[test]
    fn keys_do_not_show() {
        let config =
            Config { secret_key: "canary".to_owned(), access_key: "canary".to_owned(), ..of("", "b") };
        assert!(!format!("{config:?}").contains("canary"));
    }
}
