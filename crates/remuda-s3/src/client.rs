//! Calls to a store.

use std::{error::Error as _, io, path::Path, time::Duration};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rand::RngExt;
use remuda_base::{Backoff, hex};
use remuda_http::{Options, ReadError, Trust};
use reqwest::{Body, Certificate, Client, Method, Response, StatusCode};
use tokio::{fs::File, io::AsyncWriteExt};
use tokio_util::io::ReaderStream;

use crate::{
    config::{Config, Place},
    error::S3Error,
    sign::{self, Signer},
    xml,
};

/// Calls are tried so often.
const ATTEMPTS: u32 = 4;
const RETRY: Backoff = Backoff::new(Duration::from_millis(300), Duration::from_secs(5));
/// A store that sends nothing for so long has hung.
const SILENCE: Duration = Duration::from_secs(60);
/// Of answers that are read whole.
const ANSWER: usize = 8 << 20;
/// Pages of a list, of a thousand objects each.
const PAGES: usize = 100;
/// What stores take in one piece.
const LARGEST: u64 = 5 << 30;
/// Written and deleted again to see whether the bucket may be written.
const PROBE: &str = ".remuda-write-check";

const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// An object of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its key without the folder.
    pub name: String,
    pub size: u64,
    pub modified: Option<Timestamp>,
}

/// One folder of one bucket.
#[derive(Clone)]
pub struct Store {
    config: Config,
    place: Place,
    client: Client,
}

/// What is sent.
#[derive(Clone, Copy)]
enum Content<'a> {
    Nothing,
    Text(&'a [u8]),
    File { path: &'a Path, size: u64, hash: &'a str },
}

/// A call, but for who makes it and when.
#[derive(Clone, Copy)]
struct Call<'a> {
    what: &'static str,
    method: &'a Method,
    /// Empty for the bucket itself.
    key: &'a str,
    query: &'a str,
    content: Content<'a>,
}

impl Store {
    /// Checks what can be checked without asking.
    pub fn new(config: Config) -> Result<Store, S3Error> {
        let place = config.place()?;
        if config.access_key.is_empty() || config.secret_key.is_empty() {
            return Err(S3Error::NoKeys { bucket: config.bucket });
        }
        let unusable = |source: reqwest::Error| S3Error::Certificates {
            host: place.host.clone(),
            source: source.without_url(),
        };
        let authorities = config.authorities()?;
        let authorities = authorities.as_deref().map(Certificate::from_pem_bundle).transpose();
        let trust = match authorities.map_err(unusable)? {
            _ if config.skip_verify => Trust::Anything,
            Some(certificates) => Trust::Only(certificates),
            None => Trust::System,
        };
        let silence = SILENCE.min(config.timeout);
        let options = Options { whole: Some(config.timeout), trust, ..Options::streaming(silence) };
        let client = remuda_http::client(options).map_err(unusable)?;
        Ok(Store { config, place, client })
    }

    /// Where calls go.
    pub fn host(&self) -> &str {
        &self.place.host
    }

    /// Where an object is, as people write it.
    pub fn location(&self, name: &str) -> String {
        format!("s3://{}/{}{name}", self.config.bucket, self.place.prefix)
    }

    /// Whether the bucket exists, and the credential may write to it and delete there.
    pub async fn check(&self) -> Result<(), S3Error> {
        self.check_exists().await?;
        self.put(PROBE, b"").await?;
        self.delete(PROBE).await
    }

    /// Whether the bucket exists.
    pub async fn check_exists(&self) -> Result<(), S3Error> {
        // A list rather than a HEAD, whose refusals have no text that says why.
        let query = format!("list-type=2&max-keys=1&prefix={}", encode(QUERY, &self.place.prefix));
        let what = "look into the bucket";
        self.call(Call { what, method: &Method::GET, key: "", query: &query, content: Content::Nothing })
            .await?;
        Ok(())
    }

    pub async fn put(&self, name: &str, content: &[u8]) -> Result<(), S3Error> {
        let (what, key) = ("write", self.key(name));
        let content = Content::Text(content);
        self.call(Call { what, method: &Method::PUT, key: &key, query: "", content }).await?;
        Ok(())
    }

    /// Uploads a file. The store refuses what is not what was read here.
    pub async fn put_file(&self, name: &str, path: &Path) -> Result<u64, S3Error> {
        let failed = |source| S3Error::File { path: path.to_owned(), source };
        let read = path.to_owned();
        let hashed = tokio::task::spawn_blocking(move || hash_of(&read)).await;
        let (hash, size) = hashed.map_err(io::Error::other).and_then(|hashed| hashed).map_err(failed)?;
        if size > LARGEST {
            return Err(S3Error::TooLarge { key: name.to_owned(), limit: LARGEST });
        }
        let (what, key) = ("write", self.key(name));
        let content = Content::File { path, size, hash: &hash };
        self.call(Call { what, method: &Method::PUT, key: &key, query: "", content }).await?;
        Ok(size)
    }

    /// Reads a small object whole.
    pub async fn get(&self, name: &str) -> Result<Bytes, S3Error> {
        let (what, key) = ("read", self.key(name));
        let content = Content::Nothing;
        self.call(Call { what, method: &Method::GET, key: &key, query: "", content }).await
    }

    /// Downloads an object into a file that is made for it. One that is not whole is not left behind.
    pub async fn get_file(&self, name: &str, path: &Path, limit: u64) -> Result<u64, S3Error> {
        let (what, key) = ("read", self.key(name));
        let call = Call { what, method: &Method::GET, key: &key, query: "", content: Content::Nothing };
        let mut failures = 0;
        loop {
            let got = async {
                let response = self.send(call).await?;
                self.save(what, name, response, path, limit).await
            };
            match got.await {
                Err(error) if is_passing(&error) && failures + 1 < ATTEMPTS => {
                    failures += 1;
                    pause(failures).await;
                }
                Err(error) => {
                    let _ = tokio::fs::remove_file(path).await;
                    return Err(error);
                }
                Ok(size) => return Ok(size),
            }
        }
    }

    /// All objects of the folder whose names begin with this, in the order of their names.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Object>, S3Error> {
        let what = "list the bucket";
        let prefix = encode(QUERY, &format!("{}{prefix}", self.place.prefix));
        let nonsense = || S3Error::Nonsense { what, host: self.place.host.clone() };
        let mut objects = Vec::new();
        let mut next = String::new();
        for _ in 0..PAGES {
            // In the order of their names, as they are signed.
            let token = match next.as_str() {
                "" => String::new(),
                token => format!("continuation-token={}&", encode(QUERY, token)),
            };
            let query = format!("{token}list-type=2&prefix={prefix}");
            let content = Content::Nothing;
            let answer =
                self.call(Call { what, method: &Method::GET, key: "", query: &query, content }).await?;
            let page = std::str::from_utf8(&answer).ok().and_then(xml::parse).ok_or_else(nonsense)?;
            for entry in page.children.iter().filter(|child| child.name == "Contents") {
                let Some(name) = entry.get("Key").strip_prefix(&self.place.prefix) else { continue };
                let size = entry.get("Size").parse().map_err(|_| nonsense())?;
                let modified = entry.get("LastModified").parse().ok();
                objects.push(Object { name: name.to_owned(), size, modified });
            }
            next = page.get("NextContinuationToken").to_owned();
            if page.get("IsTruncated") != "true" || next.is_empty() {
                return Ok(objects);
            }
        }
        Err(S3Error::TooMany { bucket: self.config.bucket.clone() })
    }

    /// Deletes an object. One that is gone already is no error to those who want it gone.
    pub async fn delete(&self, name: &str) -> Result<(), S3Error> {
        let (what, key) = ("delete", self.key(name));
        let content = Content::Nothing;
        match self.call(Call { what, method: &Method::DELETE, key: &key, query: "", content }).await {
            Err(S3Error::NoObject { .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.place.prefix)
    }

    /// Makes a call until there is an answer to it, and reads that.
    async fn call(&self, call: Call<'_>) -> Result<Bytes, S3Error> {
        let mut failures = 0;
        loop {
            let answered = async {
                let response = self.send(call).await?;
                self.read(call, response).await
            };
            match answered.await {
                Err(error) if is_passing(&error) && failures + 1 < ATTEMPTS => {
                    failures += 1;
                    pause(failures).await;
                }
                answered => return answered,
            }
        }
    }

    /// Makes a call once. Answers that are refusals are errors.
    async fn send(&self, call: Call<'_>) -> Result<Response, S3Error> {
        let Call { what, method, key, query, content } = call;
        let path = match key {
            "" if self.place.path.is_empty() => "/".to_owned(),
            "" => self.place.path.clone(),
            key => format!("{}/{}", self.place.path, encode(KEY, key)),
        };
        let payload = match content {
            Content::Nothing => sign::hash(b""),
            Content::Text(text) => sign::hash(text),
            Content::File { hash, .. } => hash.to_owned(),
        };
        let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let token = self.config.session_token.as_str();
        let mut headers = vec![
            ("host", self.place.host.as_str()),
            ("x-amz-content-sha256", payload.as_str()),
            ("x-amz-date", time.as_str()),
        ];
        if !token.is_empty() {
            headers.push(("x-amz-security-token", token));
        }
        let signer = Signer { access_key: &self.config.access_key, secret_key: &self.config.secret_key };
        let signed = sign::authorization(
            signer,
            sign::Request {
                method: method.as_str(),
                path: &path,
                query,
                headers: &headers,
                payload: &payload,
                region: &self.place.region,
                service: "s3",
                time: &time,
            },
        );
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let mut request = self
            .client
            .request(method.clone(), format!("{}{path}{query}", self.place.base))
            .header("authorization", signed);
        // The host goes with the address.
        for (name, value) in &headers[1..] {
            request = request.header(*name, *value);
        }
        request = match content {
            Content::Nothing => request,
            Content::Text(text) => request.body(text.to_vec()),
            Content::File { path, size, .. } => {
                let file = File::open(path).await;
                let file = file.map_err(|source| S3Error::File { path: path.to_owned(), source })?;
                let body = Body::wrap_stream(ReaderStream::with_capacity(file, 64 << 10));
                request.header("content-length", size).body(body)
            }
        };
        let response = request.send().await.map_err(|error| self.transport(what, error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(call, response).await)
    }

    async fn read(&self, call: Call<'_>, response: Response) -> Result<Bytes, S3Error> {
        let read = remuda_http::read(response, ANSWER).await;
        read.map(Bytes::from).map_err(|error| match error {
            ReadError::Transport(source) => self.transport(call.what, source),
            ReadError::TooLarge(most) => S3Error::TooLarge { key: call.key.to_owned(), limit: most as u64 },
        })
    }

    async fn save(
        &self,
        what: &'static str,
        name: &str,
        mut response: Response,
        path: &Path,
        limit: u64,
    ) -> Result<u64, S3Error> {
        let failed = |source| S3Error::File { path: path.to_owned(), source };
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(path).await.map_err(failed)?;
        let mut size = 0;
        while let Some(chunk) = response.chunk().await.map_err(|error| self.transport(what, error))? {
            size += chunk.len() as u64;
            if size > limit {
                return Err(S3Error::TooLarge { key: name.to_owned(), limit });
            }
            file.write_all(&chunk).await.map_err(failed)?;
        }
        file.sync_all().await.map_err(failed)?;
        Ok(size)
    }

    fn transport(&self, what: &'static str, error: reqwest::Error) -> S3Error {
        let (host, source) = (self.place.host.clone(), error.without_url());
        if source.is_timeout() {
            return S3Error::Silent { what, host };
        }
        match is_about_certificates(&source) {
            true => S3Error::Untrusted { host, source },
            false => S3Error::Transport { what, host, source },
        }
    }

    /// What an answer means that is no success. The store's own text is not repeated: it may say anything.
    async fn refusal(&self, call: Call<'_>, response: Response) -> S3Error {
        let status = response.status();
        let elsewhere = response.headers().get("x-amz-bucket-region");
        let elsewhere = elsewhere.and_then(|region| region.to_str().ok()).map(str::to_owned);
        let body = self.read(call, response).await.unwrap_or_default();
        let told = std::str::from_utf8(&body).ok().and_then(xml::parse).unwrap_or_default();
        let code: String = told.get("Code").chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        let (bucket, host) = (self.config.bucket.clone(), self.place.host.clone());
        let region = match told.get("Region") {
            "" => elsewhere,
            region => {
                Some(region.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect())
            }
        };
        match (status, code.as_str()) {
            (_, "NoSuchBucket") => S3Error::NoBucket { bucket, host },
            (StatusCode::MOVED_PERMANENTLY | StatusCode::BAD_REQUEST, _)
                if region.as_ref().is_some_and(|region| *region != self.place.region) =>
            {
                S3Error::OtherRegion { bucket, region: region.unwrap_or_default() }
            }
            (
                _,
                "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "InvalidToken"
                | "ExpiredToken"
                | "NotSignedUp",
            ) => S3Error::Keys { host, code },
            (_, "NoSuchKey") => S3Error::NoObject { key: call.key.to_owned(), bucket },
            (StatusCode::NOT_FOUND, _) if call.key.is_empty() => S3Error::NoBucket { bucket, host },
            (StatusCode::NOT_FOUND, _) => S3Error::NoObject { key: call.key.to_owned(), bucket },
            (StatusCode::UNAUTHORIZED, _) => S3Error::Keys { host, code },
            (StatusCode::FORBIDDEN, _) => S3Error::Forbidden { what: call.what, bucket },
            _ => S3Error::Refused { what: call.what, host, status: status.as_u16(), code },
        }
    }
}

fn encode(set: &'static AsciiSet, text: &str) -> String {
    utf8_percent_encode(text, set).to_string()
}

/// Hash and length of a file.
fn hash_of(path: &Path) -> io::Result<(String, u64)> {
    use io::Read;
    let mut file = std::fs::File::open(path)?;
    let (mut context, mut size) = (Context::new(&SHA256), 0);
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((hex(context.finish()), size));
        }
        context.update(&buffer[..read]);
        size += read as u64;
    }
}

async fn pause(failures: u32) {
    let random = rand::rng().random_range(0.0..1.0);
    tokio::time::sleep(RETRY.jittered(failures, random)).await;
}

/// Whether the same call may succeed in a moment.
fn is_passing(error: &S3Error) -> bool {
    match error {
        S3Error::Transport { .. } => true,
        S3Error::Refused { status, .. } => *status >= 500 || matches!(*status, 408 | 409 | 429),
        _ => false,
    }
}

/// Whether a connection failed because one side did not believe the other.
fn is_about_certificates(error: &reqwest::Error) -> bool {
    let mut next = error.source();
    while let Some(cause) = next {
        let mut held: &(dyn std::error::Error + 'static) = cause;
        // What an I/O error holds is not among its sources.
        while let Some(inner) = held.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            held = inner;
        }
        if matches!(held.downcast_ref::<rustls::Error>(), Some(rustls::Error::InvalidCertificate(_))) {
            return true;
        }
        next = cause.source();
    }
    false
}
