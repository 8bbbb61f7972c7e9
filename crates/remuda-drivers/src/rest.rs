//! JSON APIs over [`Http`]: what cloud APIs have in common. What is different, how one says no, is a function of its
//! driver.

use std::time::Duration;

use reqwest::{Method, header::HeaderValue};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use crate::{
    builtin::Context,
    error::{Class, Error, Result, classify},
    http::{Answer, Http, Repeat, Verdict},
    log::Log,
    secret::Secret,
};

/// Pages beyond this are not read; nobody has so many.
const PAGES: usize = 1000;
/// No explanation of an API is shown longer.
const LONGEST: usize = 500;

/// What an API means by an answer that is no success.
pub(crate) struct Said {
    /// The API's own word for it; may be empty.
    pub code: String,
    pub message: String,
    pub class: Class,
    pub verdict: Verdict,
}

impl Said {
    /// What most APIs mean by a status.
    pub(crate) fn new(status: u16, code: &str, message: &str) -> Self {
        let class = match status {
            401 | 403 => Class::Credentials,
            429 => Class::Quota,
            _ => classify(message),
        };
        let verdict = match status {
            429 => Verdict::Throttled,
            500.. => Verdict::Broken,
            _ => Verdict::Final,
        };
        Self { code: code.to_owned(), message: message.to_owned(), class, verdict }
    }
}

/// Reads the body of an answer that is no success.
pub(crate) type Understand = fn(status: u16, body: &Value) -> Said;

/// A call the API refused, or that did not reach it (status 0).
#[derive(Debug)]
pub(crate) struct Refused {
    pub status: u16,
    pub code: String,
    pub error: Error,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { status: 0, code: String::new(), error }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

/// What a call carries.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body<'a> {
    None,
    Json(&'a Value),
    Form(&'a [(&'a str, String)]),
}

/// One API with one credential.
#[derive(Debug)]
pub(crate) struct Rest {
    http: Http,
    endpoint: String,
    /// The whole value of the header `authorization`.
    authorization: Secret,
    understand: Understand,
    log: Log,
}

impl Rest {
    pub(crate) fn new(
        context: &Context,
        endpoint: &str,
        authorization: Secret,
        understand: Understand,
    ) -> Result<Self> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let http = Http::new(&endpoint, &context.connections, context.pace, context.log.clone())?;
        Ok(Self { http, endpoint, authorization, understand, log: context.log.clone() })
    }

    /// The same, where servers are known by these authorities and no others.
    pub(crate) fn trusting(self, authorities: &str) -> Result<Self> {
        Ok(Self { http: self.http.trusting(authorities)?, ..self })
    }

    /// What is there, or `None`.
    pub(crate) async fn get(&self, what: &str, path: &str) -> Result<Option<Value>, Refused> {
        match self.call(what, Method::GET, path, Body::None, Repeat::Safe).await {
            Ok(body) => Ok(Some(body)),
            Err(refused) if refused.status == 404 => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    pub(crate) async fn post(
        &self,
        what: &str,
        path: &str,
        body: Body<'_>,
        repeat: Repeat,
    ) -> Result<Value, Refused> {
        self.call(what, Method::POST, path, body, repeat).await
    }

    pub(crate) async fn put(&self, what: &str, path: &str, body: Body<'_>) -> Result<Value, Refused> {
        self.call(what, Method::PUT, path, body, Repeat::Safe).await
    }

    /// What is gone already is no error.
    pub(crate) async fn delete(&self, what: &str, path: &str) -> Result<Value, Refused> {
        match self.call(what, Method::DELETE, path, Body::None, Repeat::Safe).await {
            Err(refused) if refused.status == 404 => Ok(Value::Null),
            answer => answer,
        }
    }

    /// The items of a list that comes in pages. `next` says at which path of this API the next one is: an address that
    /// an answer names is never followed, so that the credential goes to nobody else.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        what: &str,
        path: &str,
        name: &str,
        next: impl Fn(&Value) -> Result<Option<String>>,
    ) -> Result<Vec<T>, Refused> {
        let mut all = Vec::new();
        let mut path = path.to_owned();
        for _ in 0..PAGES {
            let mut body = self.call(what, Method::GET, &path, Body::None, Repeat::Safe).await?;
            // What has no list is not the answer to the question, and does not mean that there is nothing.
            let items: Vec<T> = part(what, body[name].take())?;
            all.extend(items);
            match next(&body)? {
                None => return Ok(all),
                Some(further) => path = further,
            }
        }
        Err(Error::other(format!("{what}: too many pages")).into())
    }

    async fn call(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Body<'_>,
        repeat: Repeat,
    ) -> Result<Value, Refused> {
        let url = format!("{}{path}", self.endpoint);
        let build = |client: &reqwest::Client| {
            let mut request = client.request(method.clone(), &url);
            if !self.authorization.is_empty() {
                let value = HeaderValue::from_str(self.authorization.expose());
                let mut value = value.map_err(|_| {
                    Error::new(Class::Credentials, "the credential has characters that cannot be sent")
                })?;
                value.set_sensitive(true);
                request = request.header("authorization", value);
            }
            Ok(match body {
                Body::None => request,
                Body::Json(body) => request.json(body),
                Body::Form(pairs) => request
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(form(pairs.iter().map(|(name, value)| (*name, value.as_str())))),
            })
        };
        let understood = |answer: &Answer| {
            let body = serde_json::from_slice(&answer.body).unwrap_or_default();
            (self.understand)(answer.status, &body)
        };
        let judge = |answer: &Answer| match answer.status {
            200..300 => Verdict::Final,
            _ => understood(answer).verdict,
        };
        let answer = self.http.call(what, repeat, build, judge).await?;
        let status = answer.status;
        if (200..300).contains(&status) {
            if answer.body.is_empty() {
                return Ok(Value::Null);
            }
            return Ok(serde_json::from_slice(&answer.body).map_err(|_| unreadable(what))?);
        }
        let said = understood(&answer);
        let message = if said.message.is_empty() { "no explanation" } else { &said.message };
        let message: String = self.log.redactor().scrub(message).chars().take(LONGEST).collect();
        let error = Error::new(said.class, format!("{what}: {message} (status {status})"));
        Err(Refused { status, code: said.code, error })
    }
}

/// Text as one segment of a path, or one value of a query.
pub(crate) fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, UNRESERVED).to_string()
}

/// Everything but the unreserved characters of RFC 3986 is escaped.
const UNRESERVED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Pairs as a query or a form.
pub(crate) fn form<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect::<Vec<_>>().join("&")
}

pub(crate) fn unreadable(what: &str) -> Error {
    Error::network(format!("{what}: the answer cannot be read"))
}

/// An answer, or a part of one, as what it should be.
pub(crate) fn part<T: DeserializeOwned>(what: &str, value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|_| unreadable(what))
}

/// A token that a credential was exchanged for, until shortly before it ends.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<Option<Token>>);

#[derive(Debug)]
struct Token {
    /// What it was given for: another credential needs another.
    credential: Secret,
    token: Secret,
    until: Instant,
}

/// Tokens are not used in their last minutes: a call under way must not meet their end.
const MARGIN: Duration = Duration::from_secs(300);

impl Tokens {
    /// The token there is, or the one that `exchange` gets, with the seconds it lasts.
    pub(crate) async fn get(
        &self,
        credential: &Secret,
        exchange: impl Future<Output = Result<(Secret, u64)>>,
    ) -> Result<Secret> {
        let mut held = self.0.lock().await;
        if let Some(held) = &*held
            && held.credential == *credential
            && Instant::now() < held.until
        {
            return Ok(held.token.clone());
        }
        let (token, seconds) = exchange.await?;
        let lasts = Duration::from_secs(seconds.min(24 * 3600)).saturating_sub(MARGIN);
        let until = Instant::now() + lasts;
        *held = Some(Token { credential: credential.clone(), token: token.clone(), until });
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cannot_leave_their_place() {
        assert_eq!(encode("a/../b?c#d e.f~g-h_i"), "a%2F..%2Fb%3Fc%23d%20e.f~g-h_i");
        assert_eq!(form([("a b", "c&d"), ("e", "")].into_iter()), "a%20b=c%26d&e=");
    }

    #[tokio::test]
    async fn a_token_is_kept_for_its_credential_until_shortly_before_its_end() {
        let tokens = Tokens::default();
        let get = async |credential: &str, text: &str, seconds: u64| {
            let token = Secret::new(text);
            let credential = Secret::new(credential);
            let exchanged = tokens.get(&credential, async move { Ok((token, seconds)) }).await;
            exchanged.unwrap().expose().to_owned()
        };
        assert_eq!(get("a", "first", 3600).await, "first");
        assert_eq!(get("a", "second", 3600).await, "first");
        assert_eq!(get("b", "third", 299).await, "third");
        assert_eq!(get("b", "fourth", 3600).await, "fourth");
        assert!(!format!("{tokens:?}").contains("fourth"));
    }
}
