//! Calls to EC2's query API.

use remuda_s3::{
    sign::{Request, authorization, hash},
    xml::{self, Node},
};
use reqwest::Url;

use super::Credentials;
use crate::{
    builtin::Context,
    error::{Class, Error, Result},
    http::{Answer, Http, Repeat, Verdict},
    log::Log,
    rest,
};

const VERSION: &str = "2016-11-15";
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
/// Pages beyond this are not read.
const PAGES: usize = 1000;

#[derive(Debug)]
pub(super) struct Api {
    http: Http,
    url: Url,
    host: String,
    region: String,
    credentials: Credentials,
    log: Log,
}

/// An error with EC2's own code, which callers tell apart.
#[derive(Debug)]
pub(super) struct ApiError {
    pub code: String,
    pub error: Error,
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self { code: String::new(), error }
    }
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Self {
        error.error
    }
}

/// The parameters of an action.
#[derive(Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    #[must_use]
    pub(super) fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.push(name, value);
        self
    }

    pub(super) fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// Adds it only if there is something to say.
    pub(super) fn push_some(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.push(name, value);
        }
    }

    /// A filter; several filters must all match.
    #[must_use]
    pub(super) fn filter(mut self, name: &str, values: &[&str]) -> Self {
        let number = self.0.iter().filter(|(name, _)| name.ends_with(".Name")).count() + 1;
        self.push(format!("Filter.{number}.Name"), name);
        for (index, value) in values.iter().enumerate() {
            self.push(format!("Filter.{number}.Value.{}", index + 1), *value);
        }
        self
    }

    /// Tags given to a resource as it is made.
    pub(super) fn tags(&mut self, number: usize, resource: &str, tags: &[(String, String)]) {
        self.push(format!("TagSpecification.{number}.ResourceType"), resource);
        for (index, (key, value)) in tags.iter().enumerate() {
            self.push(format!("TagSpecification.{number}.Tag.{}.Key", index + 1), key.as_str());
            self.push(format!("TagSpecification.{number}.Tag.{}.Value", index + 1), value.as_str());
        }
    }

    fn form(&self, action: &str, page: &str) -> String {
        let own = [("Action", action), ("Version", VERSION)].into_iter();
        let page = (!page.is_empty()).then_some(("NextToken", page));
        let given = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let pairs = own.chain(given).chain(page);
        rest::form(pairs)
    }
}

impl Api {
    pub(super) fn new(
        context: &Context,
        endpoint: &str,
        region: &str,
        credentials: Credentials,
    ) -> Result<Self> {
        let wrong = || Error::other(format!("{endpoint:?} is no EC2 endpoint"));
        let url = Url::parse(endpoint).map_err(|_| wrong())?;
        let name = url.host_str().ok_or_else(wrong)?;
        let host = match url.port() {
            Some(port) => format!("{name}:{port}"),
            None => name.to_owned(),
        };
        let http = Http::new(endpoint, &context.connections, context.pace, context.log.clone())?;
        Ok(Self { http, url, host, region: region.into(), credentials, log: context.log.clone() })
    }

    pub(super) async fn act(&self, action: &str, params: &Params) -> Result<Node, ApiError> {
        self.page(action, params, "").await
    }

    /// All items of a list that may come in pages.
    pub(super) async fn list(
        &self,
        action: &str,
        params: &Params,
        name: &str,
    ) -> Result<Vec<Node>, ApiError> {
        let mut all = Vec::new();
        let mut next = String::new();
        for _ in 0..PAGES {
            let mut node = self.page(action, params, &next).await?;
            next = node.get("nextToken").to_owned();
            if let Some(list) = node.children.iter_mut().find(|child| child.name == name) {
                all.append(&mut list.children);
            }
            if next.is_empty() {
                return Ok(all);
            }
        }
        Err(Error::other(format!("{action}: too many pages")).into())
    }

    /// Every action used here is safe to repeat: it asks, or it names what it makes.
    async fn page(&self, action: &str, params: &Params, next: &str) -> Result<Node, ApiError> {
        let body = params.form(action, next);
        let build = |client: &reqwest::Client| {
            let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
            let token = self.credentials.session_token.expose();
            let mut headers =
                vec![("content-type", FORM), ("host", self.host.as_str()), ("x-amz-date", &time)];
            if !token.is_empty() {
                headers.push(("x-amz-security-token", token));
            }
            let signed = authorization(
                self.credentials.signer(),
                Request {
                    method: "POST",
                    path: "/",
                    query: "",
                    headers: &headers,
                    payload: &hash(body.as_bytes()),
                    region: &self.region,
                    service: "ec2",
                    time: &time,
                },
            );
            let mut request = client
                .post(self.url.clone())
                .header("content-type", FORM)
                .header("x-amz-date", &time)
                .header("authorization", signed)
                .body(body.clone());
            if !token.is_empty() {
                request = request.header("x-amz-security-token", token);
            }
            Ok(request)
        };
        let answer = self.http.call(action, Repeat::Safe, build, judge).await?;
        let text = std::str::from_utf8(&answer.body).ok();
        let node = text.and_then(xml::parse);
        match node {
            Some(node) if (200..300).contains(&answer.status) => Ok(node),
            Some(node) => Err(self.explain(action, &node)),
            None => {
                let status = answer.status;
                Err(Error::network(format!("{action}: the answer cannot be read (status {status})")).into())
            }
        }
    }

    fn explain(&self, action: &str, node: &Node) -> ApiError {
        let said = node.child("Errors").and_then(|errors| errors.child("Error"));
        let code = said.map_or("", |error| error.get("Code")).to_owned();
        let message = said.map_or("", |error| error.get("Message"));
        let message: String = self.log.redactor().scrub(message).chars().take(500).collect();
        let error = Error::new(class(&code), format!("{action}: {code}: {message}"));
        ApiError { code, error }
    }
}

fn code(answer: &Answer) -> Option<String> {
    let node = xml::parse(std::str::from_utf8(&answer.body).ok()?)?;
    Some(node.child("Errors")?.child("Error")?.get("Code").to_owned())
}

fn judge(answer: &Answer) -> Verdict {
    if answer.status < 400 {
        return Verdict::Final;
    }
    match code(answer).as_deref() {
        Some("RequestLimitExceeded" | "Throttling" | "ThrottlingException") => Verdict::Throttled,
        // Told as a server error, but asking again at once is no help.
        Some("InsufficientInstanceCapacity" | "InsufficientHostCapacity") => Verdict::Final,
        _ if answer.status == 429 => Verdict::Throttled,
        _ if answer.status >= 500 => Verdict::Broken,
        _ => Verdict::Final,
    }
}

fn class(code: &str) -> Class {
    match code {
        "AuthFailure"
        | "UnauthorizedOperation"
        | "SignatureDoesNotMatch"
        | "InvalidClientTokenId"
        | "RequestExpired"
        | "ExpiredToken"
        | "MissingAuthenticationToken"
        | "OptInRequired"
        | "PendingVerification"
        | "Blocked" => Class::Credentials,
        "RequestLimitExceeded"
        | "Throttling"
        | "InsufficientInstanceCapacity"
        | "InsufficientHostCapacity" => Class::Quota,
        "InternalError" | "InternalFailure" | "Unavailable" | "ServiceUnavailable" => Class::Network,
        other if other.ends_with("LimitExceeded") || other.ends_with("CountExceeded") => Class::Quota,
        other if other.starts_with("InvalidAMIID") => Class::Image,
        _ => Class::Other,
    }
}
