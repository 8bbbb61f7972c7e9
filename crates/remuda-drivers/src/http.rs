//! The HTTP client under the cloud drivers: bounded, patient with rate limits, and never following a redirect
//! with credentials in hand.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use rand::RngExt;
use remuda_base::{Backoff, Chain};
use remuda_http::{Client, Options, ReadError, Trust, Url, certificates};
use reqwest::{RequestBuilder, header::HeaderMap};
use tokio::time::Instant;

use crate::{
    error::{Class, Error, Result},
    log::Log,
};

/// How fast and how long the cloud drivers try.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The first pause before a call is repeated; it doubles, with jitter.
    pub retry: Duration,
    /// No single pause is longer, whatever the provider asks for.
    pub longest: Duration,
    /// How often one call is tried. Calls the provider puts off do not count, for as long as `patience`.
    pub attempts: u32,
    /// Between looks at a machine that is coming up.
    pub poll: Duration,
    /// For a machine to get its address, or to be gone.
    pub patience: Duration,
    /// Before looking for something whose creation may have happened: providers show new things late.
    pub settle: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            retry: Duration::from_millis(500),
            longest: Duration::from_secs(60),
            attempts: 6,
            poll: Duration::from_secs(5),
            patience: Duration::from_secs(15 * 60),
            settle: Duration::from_secs(3),
        }
    }
}

impl Pace {
    /// The pause before attempt `number` (from 1), or what the provider asked for. Those who were told the same do
    /// not all come back at once.
    fn pause(&self, number: u32, asked: Option<Duration>) -> Duration {
        let grown = Backoff::new(self.retry, self.longest).delay(number);
        let jitter = rand::rng().random_range(0.5..1.0);
        let pause = match asked {
            Some(asked) => asked + grown.min(asked).mul_f64(jitter),
            None => grown.mul_f64(jitter),
        };
        pause.min(self.longest)
    }
}

/// A complete answer.
pub(crate) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What an API's answer means for the call.
pub(crate) enum Verdict {
    /// Final, good or bad.
    Final,
    /// Not executed; may be repeated whatever it was.
    Throttled,
    /// The server failed and perhaps did it.
    Broken,
}

/// Whether repeating a call can do harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    /// After a failure the caller must look whether it happened.
    Unsafe,
}

#[derive(Debug)]
pub(crate) struct Http {
    client: Client,
    pub pace: Pace,
    log: Log,
}

/// No answer of these APIs is larger.
const LARGEST: usize = 16 << 20;

/// Connections shared by all machines of a context, opened on first use.
#[derive(Debug, Clone, Default)]
pub struct Connections(Arc<[OnceLock<Client>; 2]>);

impl Connections {
    /// The client for an endpoint. This machine's own addresses are not reached through a proxy, and need no
    /// certificates of the public web.
    pub(crate) fn to(&self, endpoint: &str) -> Result<Client> {
        let url = Url::parse(endpoint).map_err(|_| Error::other(format!("{endpoint:?} is no address")))?;
        let local = url.scheme() == "http"
            && url.host_str().is_some_and(|host| {
                host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
            });
        let slot = &self.0[usize::from(local)];
        if let Some(client) = slot.get() {
            return Ok(client.clone());
        }
        let trust = if local { Trust::Only(Vec::new()) } else { Trust::System };
        let client = client(trust, local)?;
        Ok(slot.get_or_init(|| client).clone())
    }
}

fn client(trust: Trust, direct: bool) -> Result<Client> {
    let options = Options { trust, direct, ..Options::within(Duration::from_secs(60)) };
    remuda_http::client(options).map_err(|error| Error::other(format!("set up HTTP: {}", Chain(&error))))
}

impl Http {
    pub(crate) fn new(endpoint: &str, connections: &Connections, pace: Pace, log: Log) -> Result<Self> {
        Ok(Self { client: connections.to(endpoint)?, pace, log })
    }

    /// The same, where servers are known by these authorities and no others.
    pub(crate) fn trusting(self, authorities: &str) -> Result<Self> {
        let wrong = || Error::other("the authority for the server's certificate is no certificate in PEM");
        let certificates = certificates(authorities.as_bytes()).ok_or_else(wrong)?;
        Ok(Self { client: client(Trust::Only(certificates), false)?, ..self })
    }

    /// Makes a call, again and again where that is allowed. `build` runs for every attempt, because
    /// signatures carry the time.
    pub(crate) async fn call(
        &self,
        what: &str,
        repeat: Repeat,
        build: impl Fn(&Client) -> Result<RequestBuilder>,
        judge: impl Fn(&Answer) -> Verdict,
    ) -> Result<Answer> {
        let (mut tries, mut held, mut since) = (1, 0, None);
        loop {
            let outcome = self.once(build(&self.client)?).await;
            let last = tries >= self.pace.attempts;
            let (number, asked) = match outcome {
                Ok(answer) => match judge(&answer) {
                    Verdict::Final => return Ok(answer),
                    // A rate limit is no failure: with many machines on one account everybody's turn comes.
                    Verdict::Throttled => {
                        let since = *since.get_or_insert_with(Instant::now);
                        if since.elapsed() >= self.pace.patience {
                            let seconds = since.elapsed().as_secs();
                            let message = format!("{what}: still throttled after {seconds} s");
                            return Err(Error::new(Class::Quota, message));
                        }
                        held += 1;
                        (held, asked_pause(&answer.headers))
                    }
                    Verdict::Broken if last || repeat == Repeat::Unsafe => {
                        return Err(Error::network(format!("{what}: server error {}", answer.status)));
                    }
                    Verdict::Broken => {
                        tries += 1;
                        (tries - 1, asked_pause(&answer.headers))
                    }
                },
                Err(error) if last || repeat == Repeat::Unsafe => return Err(error.context(what)),
                Err(_) => {
                    tries += 1;
                    (tries - 1, None)
                }
            };
            let pause = self.pace.pause(number, asked);
            self.log.debug(format!("{what}: trying again in {:.1} s", pause.as_secs_f32()));
            tokio::time::sleep(pause).await;
        }
    }

    async fn once(&self, request: RequestBuilder) -> Result<Answer> {
        let response = request.send().await.map_err(transport)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = remuda_http::read(response, LARGEST).await.map_err(|error| match error {
            ReadError::Transport(error) => transport(error),
            ReadError::TooLarge(_) => Error::network("the answer is too large"),
        })?;
        Ok(Answer { status, headers, body: Bytes::from(body) })
    }
}

/// Failures of the transport. The address is left out, because it may carry a signature.
pub(crate) fn transport(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let class = if error.is_timeout() { Class::Timeout } else { Class::Network };
    Error::new(class, Chain(&error).to_string())
}

fn asked_pause(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(3600.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_jitter_and_stay_bounded() {
        let pace = Pace::default();
        assert!(pace.pause(1, None) <= pace.retry);
        assert!(pace.pause(4, None) >= pace.retry * 4 && pace.pause(4, None) <= pace.retry * 8);
        assert!(pace.pause(40, None) <= pace.longest);
        let asked = Duration::from_secs(7);
        assert!(pace.pause(1, Some(asked)) > asked && pace.pause(1, Some(asked)) <= asked + pace.retry);
        assert!(pace.pause(9, Some(asked)) <= asked * 2);
        assert_eq!(pace.pause(1, Some(Duration::ZERO)), Duration::ZERO);
        assert_eq!(pace.pause(1, Some(Duration::from_secs(700))), pace.longest);
    }

    #[test]
    fn nonsense_in_retry_after_is_ignored() {
        let asked = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", text.parse().unwrap());
            asked_pause(&headers)
        };
        assert_eq!(asked("2"), Some(Duration::from_secs(2)));
        assert_eq!(asked("NaN"), None);
        assert_eq!(asked("-1"), None);
        assert_eq!(asked("Wed, 21 Oct 2026 07:28:00 GMT"), None);
    }
}
